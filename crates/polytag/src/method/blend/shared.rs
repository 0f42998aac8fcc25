//! Reasons of several sources as one list: what a source adds to the log-odds of a label is shared out among the words that
//! speak for the label there, in proportion to what they add to its own score.

use crate::predict::{Explanation, Field, Mark, Reason};

/// The reasons so far.
#[derive(Default)]
pub(super) struct Shared {
    reasons: Vec<Reason>,
    marks: Vec<Mark>,
}

impl Shared {
    /// Adds what a source adds, for its own reasons; called by `words` where it has none, or speaks against the label.
    pub(super) fn add(&mut self, own: Option<Explanation>, (part, words): (f64, &str)) {
        let own = own.filter(|_| part > 0.0);
        let speaking = own.iter().flat_map(|own| &own.reasons).filter(|reason| reason.weight > 0.0);
        let total: f64 = speaking.clone().map(|reason| f64::from(reason.weight)).sum();
        if total <= 0.0 {
            self.add_reason(&format!("({words})"), Field::Predicted, part as f32);
            return;
        }
        let share = (part / total) as f32;
        for reason in speaking.cloned().collect::<Vec<_>>() {
            self.add_reason(&reason.words, reason.field, share * reason.weight);
        }
        for mark in own.into_iter().flat_map(|own| own.marks).filter(|mark| mark.weight > 0.0) {
            let weight = share * mark.weight;
            let same = |known: &&mut Mark| {
                (known.field, known.start, known.end) == (mark.field, mark.start, mark.end)
            };
            match self.marks.iter_mut().find(same) {
                Some(known) => known.weight += weight,
                None => self.marks.push(Mark { weight, attention: None, ..mark }),
            }
        }
    }

    fn add_reason(&mut self, words: &str, field: Field, weight: f32) {
        match self.reasons.iter_mut().find(|known| (&known.words[..], known.field) == (words, field)) {
            Some(known) => known.weight += weight,
            None => self.reasons.push(Reason { words: words.to_owned(), field, weight, attention: None }),
        }
    }

    /// The reasons, the most important first, and the marks, as they stand. Of two marks that overlap, as sources cut words
    /// otherwise, the one that adds more stays.
    pub(super) fn into_reasons(self) -> (Vec<Reason>, Vec<Mark>) {
        let Shared { mut reasons, mut marks } = self;
        reasons.sort_by(Reason::order);
        marks.sort_by(|a, b| b.weight.total_cmp(&a.weight).then(a.start.cmp(&b.start)));
        let mut kept: Vec<Mark> = Vec::new();
        for mark in marks {
            let apart = |known: &Mark| {
                known.field != mark.field || known.end <= mark.start || mark.end <= known.start
            };
            if kept.iter().all(apart) {
                kept.push(mark);
            }
        }
        kept.sort_by_key(|mark| (mark.field == Field::Text, mark.start));
        (reasons, kept)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own(reasons: &[(&str, f32)], marks: &[(usize, usize, f32)]) -> Option<Explanation> {
        let reason = |&(words, weight): &(&str, f32)| Reason {
            words: words.to_owned(),
            field: Field::Text,
            weight,
            attention: None,
        };
        let mark = |&(start, end, weight): &(usize, usize, f32)| Mark {
            field: Field::Text,
            start,
            end,
            weight,
            attention: None,
        };
        Some(Explanation {
            score: 0.0,
            matched: None,
            reasons: reasons.iter().map(reason).collect(),
            marks: marks.iter().map(mark).collect(),
        })
    }

    #[test]
    fn what_sources_add_is_shared_out_among_words() {
        let mut shared = Shared::default();
        shared.add(
            own(&[("tea", 3.0), ("rail", 1.0), ("(the text as a whole)", -9.0)], &[]),
            (2.0, "tree 0.4"),
        );
        shared.add(own(&[("tea", 0.2)], &[(4, 7, 0.2)]), (0.5, "words 0.2"));
        shared.add(own(&[("tea", 5.0)], &[(0, 1, 5.0)]), (-1.0, "against 0.1"));
        shared.add(None, (-3.0, "carried by 2 documents"));
        let (reasons, marks) = shared.into_reasons();
        let told: Vec<(&str, f32)> =
            reasons.iter().map(|reason| (&reason.words[..], reason.weight)).collect();
        let expected =
            [("tea", 2.0), ("rail", 0.5), ("(against 0.1)", -1.0), ("(carried by 2 documents)", -3.0)];
        assert_eq!(told, expected);
        assert_eq!(
            marks.iter().map(|mark| (mark.start, mark.end, mark.weight)).collect::<Vec<_>>(),
            [(4, 7, 0.5)]
        );
    }

    #[test]
    fn marks_that_overlap_are_one() {
        let mut shared = Shared::default();
        shared.add(own(&[("a", 1.0)], &[(0, 4, 1.0), (9, 12, 0.5)]), (1.0, ""));
        shared.add(own(&[("a", 1.0)], &[(2, 6, 2.0), (9, 12, 0.5)]), (1.0, ""));
        let (_, marks) = shared.into_reasons();
        assert_eq!(
            marks.iter().map(|mark| (mark.start, mark.weight)).collect::<Vec<_>>(),
            [(2, 2.0), (9, 1.0)]
        );
    }
}
