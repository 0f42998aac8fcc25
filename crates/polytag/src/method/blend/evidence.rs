//! What sources say of a label, as features of a logistic regression.
//!
//! A source says of a label that it is not among its best, or with which score and at which place it is. Scores that are
//! probabilities become log-odds; all are centred and scaled by what they were in the rehearsal, so that any kind of
//! score will do. A square beside them lets the regression bend them.

use serde::{Deserialize, Serialize};

use crate::ids::LabelId;
use crate::ranking::Scored;

/// Features of a source.
pub(super) const OF_A_SOURCE: usize = 4;

/// Scores further out than this are as far as this.
const FARTHEST: f32 = 6.0;

/// How the scores of a source are read.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Scale {
    /// Whether they are probabilities.
    odds: bool,
    middle: f32,
    width: f32,
}

/// What a source says of a label: its place, from zero, and its score.
pub(super) type Said = Option<(usize, f32)>;

impl Scale {
    /// The scale of these scores.
    pub(super) fn of(scores: &[f32]) -> Scale {
        let odds = scores.iter().all(|score| (0.0..=1.0).contains(score));
        let read = |score: &f32| f64::from(if odds { log_odds(*score) } else { *score });
        let count = scores.len().max(1) as f64;
        let middle = scores.iter().map(read).sum::<f64>() / count;
        let spread = scores.iter().map(|score| (read(score) - middle).powi(2)).sum::<f64>() / count;
        Scale { odds, middle: middle as f32, width: spread.sqrt().max(1e-6) as f32 }
    }

    fn read(&self, score: f32) -> f32 {
        let score = if self.odds { log_odds(score.clamp(0.0, 1.0)) } else { score };
        ((score - self.middle) / self.width).clamp(-FARTHEST, FARTHEST)
    }

    /// Whether the numbers can be read with.
    pub(super) fn is_sound(&self) -> bool {
        self.middle.is_finite() && self.width.is_finite() && self.width > 0.0
    }

    /// What it says as features.
    fn features(&self, said: Said) -> [f32; OF_A_SOURCE] {
        match said {
            None => [1.0, 0.0, 0.0, 0.0],
            Some((place, score)) => {
                let read = self.read(score);
                [0.0, read, read * read, (place as f32 + 1.0).ln()]
            }
        }
    }
}

fn log_odds(probability: f32) -> f32 {
    let inside = probability.clamp(1e-7, 1.0 - 1e-7);
    (inside / (1.0 - inside)).ln()
}

/// How many features there are with so many sources.
pub(super) fn width(sources: usize) -> usize {
    1 + sources * OF_A_SOURCE + 1
}

/// Adds the features of a label that so many train documents carry.
pub(super) fn extend(features: &mut Vec<f32>, scales: &[Scale], said: &[Said], count: u32) {
    features.push(1.0);
    for (scale, said) in scales.iter().zip(said) {
        features.extend(scale.features(*said));
    }
    features.push((count as f32).ln_1p());
}

/// Calls with each label that any source ranks, in rising order, and with what each says of it: at the place where it
/// stands, or all at one `place`.
pub(super) fn each_label(
    rankings: &[&[Scored]],
    place: Option<usize>,
    mut call: impl FnMut(LabelId, &[Said]),
) {
    let mut all: Vec<(LabelId, usize, usize, f32)> = Vec::new();
    for (source, ranking) in rankings.iter().enumerate() {
        let places = ranking.iter().enumerate();
        all.extend(places.map(|(own, scored)| (scored.label, source, place.unwrap_or(own), scored.score)));
    }
    all.sort_unstable_by_key(|&(label, source, ..)| (label, source));
    let mut said = vec![None; rankings.len()];
    for of_label in all.chunk_by(|a, b| a.0 == b.0) {
        said.fill(None);
        of_label.iter().for_each(|&(_, source, place, score)| said[source] = Some((place, score)));
        call(of_label[0].0, &said);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probabilities_are_read_as_odds_and_other_scores_as_they_are() {
        let odds = Scale::of(&[0.1, 0.9, 0.5]);
        assert!(odds.odds && (odds.read(0.5)).abs() < 1e-5 && odds.read(0.9) > 0.5);
        assert!((odds.read(0.9) + odds.read(0.1)).abs() < 1e-4);
        assert_eq!(odds.read(1.0), FARTHEST.min(odds.read(1.0)));
        let plain = Scale::of(&[-3.0, 5.0]);
        assert!(!plain.odds && (plain.read(5.0) - 1.0).abs() < 1e-5);
        assert!(Scale::of(&[]).is_sound() && Scale::of(&[0.3, 0.3]).is_sound());
    }

    #[test]
    fn labels_come_in_order_with_all_that_is_said() {
        let scored = |label, score| Scored { label: LabelId(label), score };
        let (first, second) = ([scored(4, 0.9), scored(1, 0.2)], [scored(1, 7.0)]);
        let heard = |place| {
            let mut heard = Vec::new();
            each_label(&[&first, &second], place, |label, said| heard.push((label.0, said.to_vec())));
            heard
        };
        let own = [(1, vec![Some((1, 0.2)), Some((0, 7.0))]), (4, vec![Some((0, 0.9)), None])];
        assert_eq!(heard(None), own);
        let behind = [(1, vec![Some((9, 0.2)), Some((9, 7.0))]), (4, vec![Some((9, 0.9)), None])];
        assert_eq!(heard(Some(9)), behind);
    }
}
