//! From pieces of words to words: what an explanation of an encoder's answer is made of.

use std::ops::Range;

use crate::data::Passage;
use crate::predict::{Field, Mark, Reason};

/// A piece of a text, what it adds to a score, and how much of a label's attention it has, if labels attend.
pub(super) struct Piece {
    /// Its bytes in title and text, joined by a line end; none for what stands for the text as a whole.
    pub(super) range: Range<usize>,
    /// What it adds to the score.
    pub(super) weight: f32,
    /// Its share of the attention.
    pub(super) attention: Option<f32>,
}

/// The words that pieces make: as reasons, the most important first, with what stands for no bytes as one at the end; and
/// as marks, in the order of the text.
pub(super) fn reasons(
    passage: &Passage<'_>,
    pieces: impl IntoIterator<Item = Piece>,
) -> (Vec<Reason>, Vec<Mark>) {
    let title = passage.title.filter(|title| !title.is_empty()).unwrap_or_default();
    let joined =
        if title.is_empty() { passage.text.to_owned() } else { format!("{title}\n{}", passage.text) };
    let text_at = joined.len() - passage.text.len();
    let mut words: Vec<(Range<usize>, Reason)> = Vec::new();
    let mut rest: Option<Reason> = None;
    for Piece { range, weight, attention } in pieces {
        if range.is_empty() {
            let words = "(the text as a whole)".to_owned();
            let none = || Reason { words, field: Field::Text, weight: 0.0, attention: None };
            add(rest.get_or_insert_with(none), weight, attention);
            continue;
        }
        let piece = joined.get(range.clone()).unwrap_or_default();
        // Pieces that touch are parts of a word.
        match words.last_mut().filter(|(word, _)| range.start == word.end) {
            Some((word, reason)) => {
                word.end = range.end;
                reason.words.push_str(piece);
                add(reason, weight, attention);
            }
            None => {
                let field = if range.end <= title.len() { Field::Title } else { Field::Text };
                words.push((range, Reason { words: piece.to_owned(), field, weight, attention }));
            }
        }
    }
    let mark = |(range, reason): &(Range<usize>, Reason)| {
        let first = if reason.field == Field::Title { 0 } else { text_at };
        let (start, end) = (range.start.saturating_sub(first), range.end.saturating_sub(first));
        Mark { field: reason.field, start, end, weight: reason.weight, attention: reason.attention }
    };
    let marks = words.iter().map(mark).collect();
    let mut reasons: Vec<Reason> = words.into_iter().map(|(_, reason)| reason).collect();
    reasons.sort_by(Reason::order);
    reasons.extend(rest);
    (reasons, marks)
}

fn add(reason: &mut Reason, weight: f32, attention: Option<f32>) {
    reason.weight += weight;
    if let Some(more) = attention {
        *reason.attention.get_or_insert(0.0) += more;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_that_touch_become_a_word() {
        let passage = Passage { id: None, title: Some("Tea"), text: "greenish tea" };
        let piece = |range, weight| Piece { range, weight, attention: Some(weight / 2.0) };
        let pieces =
            [piece(0..0, 0.5), piece(0..3, 1.0), piece(4..9, 2.0), piece(9..12, 1.5), piece(13..16, 0.25)];
        let (found, marks) = reasons(&passage, pieces);
        let words: Vec<(&str, Field, f32)> =
            found.iter().map(|r| (&r.words[..], r.field, r.weight)).collect();
        let whole = "(the text as a whole)";
        assert_eq!(
            words,
            [
                ("greenish", Field::Text, 3.5),
                ("Tea", Field::Title, 1.0),
                ("tea", Field::Text, 0.25),
                (whole, Field::Text, 0.5)
            ]
        );
        assert_eq!(found[0].attention, Some(1.75));
        let marked: Vec<(&str, f32)> = marks
            .iter()
            .map(|mark| {
                let field = if mark.field == Field::Title { "Tea" } else { passage.text };
                (&field[mark.start..mark.end], mark.weight)
            })
            .collect();
        assert_eq!(marked, [("Tea", 1.0), ("greenish", 3.5), ("tea", 0.25)]);
        assert_eq!(Mark::strengths(&marks), [1.0 / 3.5, 1.0, 0.25 / 3.5]);
        assert_eq!(Mark::strengths(&[]), [] as [f32; 0]);
    }
}
