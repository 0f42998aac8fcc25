//! `polytag explain`: the labels of one text, and the words that speak for them.

use std::io::IsTerminal as _;
use std::path::PathBuf;

use clap::Args;
use polytag::data::Passage;
use polytag::picture::{Page, Part};
use polytag::predict::{Ask, Explanation, Field, Mark};
use serde::Serialize;

use super::{DONE, Done};
use crate::device::EngineArguments;
use crate::failure::user_error;
use crate::output;
use crate::settings::Session;

/// Reasons shown for a label.
const SHOWN: usize = 6;

/// Show why a text gets its labels
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  polytag explain MODEL --text 'Rules for the import of tea'
  polytag explain MODEL --title 'Tea' --text '…' --label 2449 --json
  polytag explain MODEL --text '…' --html why.html

Where the method can say what each word adds, or where a label looks, the text is shown with such words shaded: on
a terminal, unless NO_COLOR is set, and in the HTML page.")]
pub(crate) struct Explain {
    /// The model folder
    model: PathBuf,
    /// The text
    #[arg(long)]
    text: String,
    /// Its title
    #[arg(long)]
    title: Option<String>,
    /// The id of the document, for models that know documents by it
    #[arg(long, value_name = "ID")]
    id: Option<String>,
    /// How many labels to explain
    #[arg(long, default_value_t = 3)]
    k: usize,
    /// Explain this label instead of the best, whether it fits or not
    #[arg(long, value_name = "ID")]
    label: Vec<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Write a page with the text, the words that speak for each label shaded
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    #[command(flatten)]
    engine: EngineArguments,
}

#[derive(Serialize)]
struct Explained<'a> {
    id: &'a str,
    name: &'a str,
    #[serde(flatten)]
    explanation: Explanation,
}

impl Explain {
    pub(crate) fn run(&self, session: &Session) -> Done {
        if self.k == 0 {
            return Err(user_error("--k 0 asks for no label; say at least 1"));
        }
        let model = session.model(&self.model, &self.engine.for_model(&self.model, session)?)?;
        let space = model.label_space();
        let passage = Passage { id: self.id.as_deref(), title: self.title.as_deref(), text: &self.text };
        let labels = if self.label.is_empty() {
            let ask = Ask { k: self.k, allowed: None };
            let rankings = model.predict(&[passage], &ask).map_err(polytag::Error::from)?;
            rankings[0].labels().collect()
        } else {
            let find = |id: &String| {
                space.find(id).ok_or_else(|| user_error(format!("the model has no label with the id {id:?}")))
            };
            self.label.iter().map(find).collect::<anyhow::Result<Vec<_>>>()?
        };
        let mut explained = Vec::new();
        for id in labels {
            let label = space.label(id);
            let explanation = model.explain(passage, id).map_err(polytag::Error::from)?;
            explained.push(Explained { id: &label.id, name: &label.name, explanation });
        }
        if let Some(path) = &self.html {
            output::write_file(path, &page(&passage, &explained).to_html(), &[])?;
        }
        if self.json {
            output::print_json(&explained)?;
        } else if explained.is_empty() {
            output::print_text("No label has anything in common with this text.\n")?;
        } else {
            let shades = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
            for entry in &explained {
                output::print_text(&describe(entry))?;
                if shades && !entry.explanation.marks.is_empty() {
                    output::print_text(&shaded(&passage, &entry.explanation.marks))?;
                }
            }
            if explained.iter().any(|entry| is_in_odds(&entry.explanation)) {
                output::print_text(
                    "\nWhat each adds is in log-odds: all of 0 are a probability of one half.\n",
                )?;
            }
        }
        Ok(DONE)
    }
}

/// Whether reasons add up to the log-odds of a score, and not to the score.
fn is_in_odds(explanation: &Explanation) -> bool {
    let sum: f32 = explanation.reasons.iter().map(|reason| reason.weight).sum();
    let chance = 1.0 / (1.0 + (-sum).exp());
    (sum - explanation.score).abs() > 1e-3 && (chance - explanation.score).abs() < 1e-3
}

fn describe(entry: &Explained<'_>) -> String {
    let Explained { id, name, explanation } = entry;
    let mut text = format!("{:.3}  {name} ({id})\n", explanation.score);
    match &explanation.matched {
        Some(matched) if matched != name => {
            text.push_str(&format!("       through {:?}\n", shorten(matched)))
        }
        Some(_) => {}
        None => text.push_str("       nothing in the text speaks for it\n"),
    }
    for reason in explanation.reasons.iter().take(SHOWN) {
        let place = match reason.field {
            Field::Title => "in the title",
            Field::Text => "in the text",
            Field::Predicted => "among the predicted labels",
        };
        let attention = reason
            .attention
            .map_or(String::new(), |share| format!(", {:.0} % of the label's attention", 100.0 * share));
        let inner = reason.words.strip_prefix('(').and_then(|words| words.strip_suffix(')'));
        let words = match inner.filter(|_| reason.field == Field::Predicted) {
            Some(words) => words.to_owned(),
            None => format!("{:?} {place}", reason.words),
        };
        text.push_str(&format!("       {:.3}  {words}{attention}\n", reason.weight));
    }
    text
}

/// The passage in parts, and how strongly each stands out: marked words, and what is between them.
fn runs(passage: &Passage<'_>, marks: &[Mark]) -> Vec<(String, f32)> {
    let strengths = Mark::strengths(marks);
    let mut runs = Vec::new();
    let title = passage.title.unwrap_or_default();
    for (field, text) in [(Field::Title, title), (Field::Text, passage.text)] {
        let mut done = 0;
        for (mark, &strength) in marks.iter().zip(&strengths).filter(|(mark, _)| mark.field == field) {
            if let (Some(between), Some(word)) = (text.get(done..mark.start), text.get(mark.start..mark.end))
            {
                runs.push((between.to_owned(), 0.0));
                runs.push((word.to_owned(), strength));
                done = mark.end;
            }
        }
        runs.push((text[done..].to_owned(), 0.0));
        if field == Field::Title && !title.is_empty() {
            runs.push(("\n".to_owned(), 0.0));
        }
    }
    runs.retain(|(text, _)| !text.is_empty());
    runs
}

/// The passage for a terminal, the background of words the darker the more they stand out.
fn shaded(passage: &Passage<'_>, marks: &[Mark]) -> String {
    const SHADES: [u8; 4] = [230, 222, 214, 208];
    let run = |(text, strength): (String, f32)| match (strength * (SHADES.len() + 1) as f32) as usize {
        0 => text,
        shade => format!("\x1b[38;5;16;48;5;{}m{text}\x1b[0m", SHADES[shade.min(SHADES.len()) - 1]),
    };
    let text: String = runs(passage, marks).into_iter().map(run).collect();
    format!("\n       {}\n\n", text.replace('\n', "\n       "))
}

/// A page with the passage for each label, and the words that speak for it.
fn page(passage: &Passage<'_>, explained: &[Explained<'_>]) -> Page {
    let mut parts = Vec::new();
    for Explained { id, name, explanation } in explained {
        let attends = explanation.marks.iter().any(|mark| mark.attention.is_some());
        let note = match (explanation.marks.is_empty(), attends) {
            (true, _) => {
                "What each word of the text adds is not known for this method; the table has what is."
            }
            (false, true) => "The darker a word, the more of its attention the label gives it.",
            (false, false) => "The darker a word, the more it adds to the score.",
        };
        let title = format!("{name} ({id}): {:.3}", explanation.score);
        parts.push(Part::Marked { title, note: note.to_owned(), runs: runs(passage, &explanation.marks) });
        let row = |reason: &polytag::predict::Reason| {
            let share = reason.attention.map_or(String::new(), |share| format!("{:.1} %", 100.0 * share));
            vec![reason.words.clone(), format!("{:.3}", reason.weight), share]
        };
        let mut head = vec!["words".to_owned(), "adds".to_owned()];
        head.extend(attends.then(|| "attention".to_owned()));
        let rows = explanation.reasons.iter().take(SHOWN).map(row);
        let rows = rows.map(|mut row| {
            row.truncate(head.len());
            row
        });
        parts.push(Part::Table { title: format!("What speaks for {name}"), rows: rows.collect(), head });
    }
    let paragraph = if explained.is_empty() { "No label has anything in common with this text." } else { "" };
    Page { heading: "Why these labels".to_owned(), paragraph: paragraph.to_owned(), parts }
}

fn shorten(text: &str) -> String {
    const LENGTH: usize = 80;
    if text.chars().count() <= LENGTH {
        return text.to_owned();
    }
    text.chars().take(LENGTH).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(field: Field, (start, end): (usize, usize), weight: f32) -> Mark {
        Mark { field, start, end, weight, attention: None }
    }

    #[test]
    fn marked_words_are_shaded_where_they_stand() {
        let passage = Passage { id: None, title: Some("Tea"), text: "green\ntea\u{fc}" };
        let marks = [
            mark(Field::Title, (0, 3), 1.0),
            mark(Field::Text, (0, 5), 0.1),
            mark(Field::Text, (6, 11), -2.0),
        ];
        let found = runs(&passage, &marks);
        let texts: Vec<&str> = found.iter().map(|(text, _)| &text[..]).collect();
        assert_eq!(texts, ["Tea", "\n", "green", "\n", "tea\u{fc}"]);
        assert_eq!(
            found.iter().map(|(_, strength)| *strength).collect::<Vec<_>>(),
            [1.0, 0.0, 0.1, 0.0, 0.0]
        );
        let text = shaded(&passage, &marks);
        assert!(text.contains("\x1b[38;5;16;48;5;208mTea\x1b[0m"), "{text:?}");
        assert_eq!(text.matches("\x1b[0m").count(), 1, "{text:?}");
        // A mark that is not in the text marks nothing.
        let off = [mark(Field::Text, (0, 99), 1.0)];
        let whole: String = runs(&passage, &off).into_iter().map(|(text, _)| text).collect();
        assert_eq!(whole, "Tea\ngreen\ntea\u{fc}");
    }
}
