//! Pairs out of documents that nobody labelled: something that stands for the document, and something short that
//! stands for a label of it.

use std::collections::HashMap;

use polytag_nn::random::Key;
use polytag_nn::tokenizer::Text;
use rayon::prelude::*;

use super::config::{MaclrConfig, PairKind};
use crate::data::{DataError, Dataset, Document};
use crate::ids::DocId;
use crate::method::error::MethodError;
use crate::method::training::{Reading, Texts};
use crate::progress::Stage;
use crate::text::sentences;

/// Documents read and made into tokens between two looks at whether to stop.
const CHUNK: usize = 2048;

/// Pairs as token ids.
#[derive(Default)]
pub(super) struct TextPairs {
    /// What stands for each document.
    pub(super) contexts: Texts,
    /// What stands for a label of it.
    pub(super) titles: Texts,
    /// The first pair with the same context, and with the same title: duplicates are no negatives of each other.
    same_context: Vec<u32>,
    same_title: Vec<u32>,
    /// Which document each is of.
    pub(super) places: Vec<u32>,
    /// How many documents had nothing to make two texts of.
    pub(super) alone: usize,
    /// How many documents had no text at all and make no pair.
    pub(super) empty: usize,
}

impl TextPairs {
    /// Makes a pair of each document that has a text.
    pub(super) fn read(
        dataset: &dyn Dataset,
        config: &MaclrConfig,
        reading: Reading<'_>,
        (stage, key): (Stage<'_>, Key),
    ) -> Result<TextPairs, MethodError> {
        let mut pairs = TextPairs::default();
        for first in (0..dataset.len()).step_by(CHUNK) {
            if reading.stop.is_asked() {
                return Err(MethodError::Stopped);
            }
            let chunk = first..dataset.len().min(first + CHUNK);
            let made: Vec<Pair> = chunk
                .clone()
                .into_par_iter()
                .map(|place| {
                    let document = dataset.document(DocId(place as u32))?;
                    Ok(Pair::of(&document, config.pairs, key.bits(place as u32, 0)))
                })
                .collect::<Result<_, DataError>>()?;
            pairs.empty += made.iter().filter(|pair| pair.is_empty()).count();
            let places = (chunk.start as u32..).zip(&made).filter(|(_, pair)| !pair.is_empty());
            pairs.places.extend(places.map(|(place, _)| place));
            let made: Vec<Pair> = made.into_iter().filter(|pair| !pair.is_empty()).collect();
            pairs.alone += made.iter().filter(|pair| pair.alone).count();
            // Of what is cut into pieces later, two pieces' worth is read.
            let longest = match config.pairs {
                PairKind::Chunks => 2 * reading.max_tokens,
                _ => reading.max_tokens,
            };
            let encode = |texts: Vec<Text<'_>>, longest| reading.tokenizer.encode(&texts, longest);
            pairs
                .contexts
                .extend(encode(made.iter().map(|pair| Text::new(&pair.context)).collect(), longest)?);
            let longest = match config.pairs {
                PairKind::Same => reading.max_tokens,
                _ => config.label_tokens.min(reading.max_tokens),
            };
            pairs.titles.extend(encode(made.iter().map(|pair| Text::new(&pair.title)).collect(), longest)?);
            stage.advance(chunk.len() as u64);
        }
        stage.finish();
        pairs.same_context = firsts(&pairs.contexts);
        pairs.same_title = firsts(&pairs.titles);
        Ok(pairs)
    }

    /// These pairs alone.
    pub(super) fn only(&self, chosen: &[usize]) -> TextPairs {
        let of = |texts: &Texts| {
            let mut few = Texts::default();
            few.extend(chosen.iter().map(|&pair| texts.get(pair).to_vec()));
            few
        };
        let (contexts, titles) = (of(&self.contexts), of(&self.titles));
        let (same_context, same_title) = (firsts(&contexts), firsts(&titles));
        let places = chosen.iter().map(|&pair| self.places[pair]).collect();
        TextPairs { contexts, titles, same_context, same_title, places, ..*self }
    }

    /// How many pairs.
    pub(super) fn len(&self) -> usize {
        self.contexts.len()
    }

    /// Whether the two say the same: the one's title is then as good as the other's own.
    pub(super) fn same(&self, one: usize, other: usize) -> bool {
        self.same_context[one] == self.same_context[other] || self.same_title[one] == self.same_title[other]
    }
}

/// For each text the first that is the same. Those that say nothing have nothing in common.
pub(super) fn firsts(texts: &Texts) -> Vec<u32> {
    let mut known: HashMap<&[u32], u32> = HashMap::new();
    let mut first = |(text, place)| if is_bare(text) { place } else { *known.entry(text).or_insert(place) };
    texts.iter().zip(0..).map(&mut first).collect()
}

/// Whether a text is its special tokens alone.
pub(super) fn is_bare(text: &[u32]) -> bool {
    text.len() <= 2
}

/// The two sides of a document.
struct Pair {
    context: String,
    title: String,
    /// Whether both are the same, for want of something better.
    alone: bool,
}

impl Pair {
    fn of(document: &Document, kind: PairKind, draw: u32) -> Pair {
        let title = document.title.as_deref().unwrap_or_default().trim();
        let text = document.text.trim();
        let all = || [title, text].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ");
        let twice = |alone| Pair { context: all(), title: all(), alone };
        let two = |context: String, title: &str| Pair { context, title: title.to_owned(), alone: false };
        match kind {
            PairKind::Same => twice(false),
            // The title is no part of what is cut: a piece that begins with it would give it away.
            PairKind::Chunks if text.is_empty() => two(title.to_owned(), ""),
            PairKind::Chunks => two(text.to_owned(), title),
            PairKind::Title if !title.is_empty() && !text.is_empty() => two(text.to_owned(), title),
            PairKind::Title => {
                let all = all();
                let mut parts = sentences(&all);
                match (parts.next(), parts.collect::<Vec<_>>()) {
                    (Some(first), rest) if !rest.is_empty() => two(rest.join(" "), first),
                    _ => twice(true),
                }
            }
            PairKind::Sentence => {
                let title = Some(title).filter(|title| !title.is_empty());
                let mut parts: Vec<&str> = title.into_iter().chain(sentences(text)).collect();
                if parts.len() < 2 {
                    return twice(true);
                }
                let drawn = parts.remove(draw as usize % parts.len());
                two(parts.join(" "), drawn)
            }
        }
    }

    fn is_empty(&self) -> bool {
        self.context.is_empty()
    }
}

/// Two pieces of a text with a special token at either end, cut where `draw` says: each of at most `longest` tokens, from
/// anywhere in its part. A text too short to cut is both of them.
pub(super) fn pieces(text: &[u32], draw: u32, longest: usize) -> [Vec<u32>; 2] {
    let inner = text.len().saturating_sub(2);
    if inner < 2 {
        return [text.to_vec(), text.to_vec()];
    }
    let cut = 2 + draw as usize % (inner - 1);
    let (first, last) = (text[0], text[text.len() - 1]);
    let piece = |part: &[u32]| {
        let room = part.len().min(longest.saturating_sub(2).max(1));
        let start = draw as usize % (part.len() - room + 1);
        [&[first], &part[start..start + room], &[last]].concat()
    };
    [piece(&text[1..cut]), piece(&text[cut..text.len() - 1])]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document(title: Option<&str>, text: &str) -> Document {
        Document { id: "1".into(), title: title.map(str::to_owned), text: text.into(), labels: None }
    }

    fn sides(title: Option<&str>, text: &str, kind: PairKind, draw: u32) -> (String, String, bool) {
        let Pair { context, title, alone } = Pair::of(&document(title, text), kind, draw);
        (context, title, alone)
    }

    #[test]
    fn a_title_stands_for_a_label_and_else_the_first_sentence() {
        let pair = |title, text| sides(title, text, PairKind::Title, 0);
        assert_eq!(
            pair(Some("Ping"), "It measures loss."),
            ("It measures loss.".into(), "Ping".into(), false)
        );
        assert_eq!(pair(None, "One. Two. Three."), ("Two. Three.".into(), "One.".into(), false));
        assert_eq!(pair(Some(" "), "One. Two."), ("Two.".into(), "One.".into(), false));
        assert_eq!(pair(None, "Only one"), ("Only one".into(), "Only one".into(), true));
        assert_eq!(pair(Some("Only a title"), " "), ("Only a title".into(), "Only a title".into(), true));
        assert_eq!(pair(None, " "), (String::new(), String::new(), true));
    }

    #[test]
    fn a_sentence_is_drawn_and_the_rest_is_its_context() {
        let drawn = |draw| sides(Some("T"), "One. Two.", PairKind::Sentence, draw);
        assert_eq!(drawn(0), ("One. Two.".into(), "T".into(), false));
        assert_eq!(drawn(2), ("T One.".into(), "Two.".into(), false));
        assert_eq!(drawn(4), ("T Two.".into(), "One.".into(), false));
        assert!(sides(None, "One.", PairKind::Sentence, 7).2);
    }

    #[test]
    fn a_title_is_no_part_of_what_is_cut() {
        let pair = |title, text| sides(title, text, PairKind::Chunks, 0);
        assert_eq!(pair(Some("T"), "One. Two."), ("One. Two.".into(), "T".into(), false));
        assert_eq!(pair(None, "One. Two."), ("One. Two.".into(), String::new(), false));
        assert_eq!(pair(Some("T"), ""), ("T".into(), String::new(), false));
    }

    #[test]
    fn texts_that_say_nothing_have_nothing_in_common() {
        let mut texts = Texts::default();
        texts.extend([vec![1, 5, 2], vec![1, 2], vec![1, 5, 2], vec![1, 2]]);
        assert_eq!(firsts(&texts), [0, 1, 0, 3]);
    }

    #[test]
    fn pieces_are_whole_texts_of_their_own() {
        let text = [101, 1, 2, 3, 4, 102];
        for draw in 0..10 {
            let [one, other] = pieces(&text, draw, 4);
            assert!(one.len() >= 3 && other.len() >= 3 && one.len() <= 4 && other.len() <= 4);
            assert!(one[0] == 101 && other[0] == 101 && one.ends_with(&[102]) && other.ends_with(&[102]));
        }
        assert_eq!(pieces(&text, 0, 512), [vec![101, 1, 102], vec![101, 2, 3, 4, 102]]);
        assert_eq!(pieces(&text, 2, 512), [vec![101, 1, 2, 3, 102], vec![101, 4, 102]]);
        assert_eq!(pieces(&[101, 102], 5, 512), [vec![101, 102], vec![101, 102]]);
        assert_eq!(pieces(&[101, 9, 102], 5, 512), [vec![101, 9, 102], vec![101, 9, 102]]);
    }
}
