//! `polytag explain`: the labels of one text, and the words that speak for them.

use std::path::PathBuf;

use clap::Args;
use polytag::data::Passage;
use polytag::method;
use polytag::predict::{Ask, Explanation, Field};
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
  polytag explain MODEL --title 'Tea' --text '…' --label 2449 --json")]
pub(crate) struct Explain {
    /// The model folder
    model: PathBuf,
    /// The text
    #[arg(long)]
    text: String,
    /// Its title
    #[arg(long)]
    title: Option<String>,
    /// How many labels to explain
    #[arg(long, default_value_t = 3)]
    k: usize,
    /// Explain this label instead of the best, whether it fits or not
    #[arg(long, value_name = "ID")]
    label: Vec<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
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
        let model = method::load(&self.model, &self.engine.for_model(&self.model, session)?)?;
        let space = model.label_space();
        let passage = Passage { title: self.title.as_deref(), text: &self.text };
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
        if self.json {
            output::print_json(&explained)?;
        } else if explained.is_empty() {
            output::print_text("No label has anything in common with this text.\n")?;
        } else {
            explained.iter().try_for_each(|entry| output::print_text(&describe(entry)))?;
        }
        Ok(DONE)
    }
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
        };
        let attention = reason
            .attention
            .map_or(String::new(), |share| format!(", {:.0} % of the label's attention", 100.0 * share));
        text.push_str(&format!("       {:.3}  {:?} {place}{attention}\n", reason.weight, reason.words));
    }
    text
}

fn shorten(text: &str) -> String {
    const LENGTH: usize = 80;
    if text.chars().count() <= LENGTH {
        return text.to_owned();
    }
    text.chars().take(LENGTH).chain(['…']).collect()
}
