//! How a blend judges: what the rehearsal taught, and how good it was.

use serde::{Deserialize, Serialize};

use super::evidence::{OF_A_SOURCE, Said, Scale, each_label, extend, width};
use super::logistic::{Logistic, probability};
use crate::ids::LabelId;
use crate::metric::{CalibrationBins, discount, ideal_gain};
use crate::ranking::Scored;

/// What keeps weights small; features are of about the size of one.
const RIDGE: f64 = 1.0;

/// Hidden labels that must have been found for what unseen ones are worth to be learned from them.
const ENOUGH: usize = 10;

/// Documents that must have been tried for what unseen labels may gain to be chosen by them: one of a hundred documents
/// whose first label changes is more than is given.
const TELLING: usize = 200;

/// Places over which a rehearsal is measured.
const PLACES: usize = 5;

/// The greatest shift that is tried, and the steps to it.
const SHIFTS: (f64, usize) = (12.0, 48);

/// From what sources say to log-odds, for seen labels and for unseen ones.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Judgement {
    pub(super) scales: Vec<Scale>,
    seen: Vec<f64>,
    unseen: Vec<f64>,
    /// What is added to the log-odds of unseen labels.
    pub(super) shift: f64,
}

impl Judgement {
    /// Whether the numbers fit so many sources.
    pub(super) fn is_sound(&self, sources: usize) -> bool {
        let finite = |weights: &[f64]| {
            weights.len() == width(sources) && weights.iter().all(|weight| weight.is_finite())
        };
        self.scales.len() == sources
            && self.scales.iter().all(Scale::is_sound)
            && finite(&self.seen)
            && finite(&self.unseen)
            && self.shift.is_finite()
    }

    /// The log-odds of a label, and what each source adds to them; the rest is due to how often it was carried.
    pub(super) fn log_odds(&self, said: &[Said], count: u32) -> (f64, Vec<f64>) {
        let mut features = Vec::with_capacity(width(said.len()));
        extend(&mut features, &self.scales, said, count);
        let (weights, shift) = if count > 0 { (&self.seen, 0.0) } else { (&self.unseen, self.shift) };
        let terms: Vec<f64> =
            weights.iter().zip(&features).map(|(weight, &feature)| weight * f64::from(feature)).collect();
        let of_sources = terms[1..terms.len() - 1].chunks_exact(OF_A_SOURCE).map(|terms| terms.iter().sum());
        (terms.iter().sum::<f64>() + shift, of_sources.collect())
    }
}

/// A held-out document: what each source ranks, and its labels, in rising order.
pub(super) struct Tried<'a> {
    pub(super) rankings: Vec<&'a [Scored]>,
    pub(super) gold: &'a [LabelId],
}

/// A rehearsal to learn from.
pub(super) struct Lesson<'a> {
    pub(super) tried: Vec<Tried<'a>>,
    /// How many documents that sources learned from carry a label, by its position; hidden ones none.
    pub(super) counts: Vec<u32>,
    /// Whether a label is hidden.
    pub(super) hidden: &'a [bool],
}

/// How good a rehearsal was.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Quality {
    /// nDCG@5.
    pub(super) ndcg: f64,
    /// Of the labels of documents that were hidden, the share among the first ten.
    pub(super) hidden_at_10: f64,
    /// How far probabilities are from how often they are right, on average, over the first five places.
    pub(super) calibration_error: f64,
}

/// A label that some source ranks for a held-out document.
struct Judged {
    odds: f64,
    is_hidden: bool,
    is_right: bool,
}

impl Lesson<'_> {
    /// Learns to judge. `shift` is what unseen labels gain; without it as much is chosen as costs `give` of nDCG@5.
    pub(super) fn learn(&self, shift: Option<f64>, give: f64) -> Judgement {
        let mut judgement = self.fitted(|_| true);
        judgement.shift = shift.unwrap_or_else(|| self.shift(&judgement, give));
        judgement
    }

    /// How good judgements are on documents that they were not learned from: one of half of the documents is tried on
    /// the other, and the other way around.
    pub(super) fn quality(&self, shift: f64) -> Quality {
        let halves = [0, 1].map(|half| Judgement { shift, ..self.fitted(|place| place % 2 != half) });
        let judged: Vec<Vec<Judged>> = self
            .tried
            .iter()
            .enumerate()
            .map(|(place, tried)| self.judged(&halves[place % 2], tried))
            .collect();
        let (mut found, mut all) = (0, 0);
        for (judged, tried) in judged.iter().zip(&self.tried) {
            found += judged.iter().take(10).filter(|judged| judged.is_right && judged.is_hidden).count();
            all += tried.gold.iter().filter(|label| self.hidden[label.index()]).count();
        }
        let hidden_at_10 = if all == 0 { 0.0 } else { found as f64 / all as f64 };
        Quality { ndcg: self.ndcg(&judged), hidden_at_10, calibration_error: calibration_error(&judged) }
    }

    /// What documents at some places teach.
    fn fitted(&self, is_taken: impl Fn(usize) -> bool) -> Judgement {
        let sources = self.tried.first().map_or(0, |tried| tried.rankings.len());
        let taken =
            || self.tried.iter().enumerate().filter(|(place, _)| is_taken(*place)).map(|(_, tried)| tried);
        let scales: Vec<Scale> = (0..sources)
            .map(|source| {
                let scores =
                    taken().flat_map(|tried| tried.rankings[source].iter().map(|scored| scored.score));
                Scale::of(&scores.collect::<Vec<f32>>())
            })
            .collect();
        let (mut seen, mut unseen) = (Examples::default(), Examples::default());
        for tried in taken() {
            each_label(&tried.rankings, None, |label, said| {
                let count = self.counts[label.index()];
                let examples = match (count, self.hidden[label.index()]) {
                    (0, true) => &mut unseen,
                    // Labels that no document carries at all cannot be right here, and teach nothing.
                    (0, false) => return,
                    _ => &mut seen,
                };
                extend(&mut examples.features, &scales, said, count);
                examples.right.push(tried.gold.binary_search(&label).is_ok());
            });
        }
        let of_seen = seen.learned(sources);
        let is_enough = unseen.right.iter().filter(|right| **right).count() >= ENOUGH;
        // Else unseen labels are judged as the rarest of the seen.
        let of_unseen = if is_enough { unseen.learned(sources) } else { of_seen.clone() };
        Judgement { scales, seen: of_seen.0, unseen: of_unseen.0, shift: 0.0 }
    }

    /// The labels of a document, best first.
    fn judged(&self, judgement: &Judgement, tried: &Tried<'_>) -> Vec<Judged> {
        let mut judged = Vec::new();
        each_label(&tried.rankings, None, |label, said| {
            let (count, is_hidden) = (self.counts[label.index()], self.hidden[label.index()]);
            if count > 0 || is_hidden {
                let (odds, _) = judgement.log_odds(said, count);
                judged.push(Judged { odds, is_hidden, is_right: tried.gold.binary_search(&label).is_ok() });
            }
        });
        judged.sort_by(|a, b| b.odds.total_cmp(&a.odds));
        judged
    }

    fn ndcg(&self, judged: &[Vec<Judged>]) -> f64 {
        let of_document = |(judged, tried): (&Vec<Judged>, &Tried<'_>)| {
            let right = judged.iter().zip(1..=PLACES).filter(|(judged, _)| judged.is_right);
            right.map(|(_, rank)| discount(rank)).sum::<f64>() / ideal_gain(tried.gold.len().min(PLACES))
        };
        judged.iter().zip(&self.tried).map(of_document).sum::<f64>() / judged.len().max(1) as f64
    }

    /// As much for unseen labels as costs `give` of nDCG@5, if there are documents enough to tell.
    fn shift(&self, judgement: &Judgement, give: f64) -> f64 {
        if self.tried.len() < TELLING {
            return 0.0;
        }
        let mut judged: Vec<Vec<Judged>> =
            self.tried.iter().map(|tried| self.judged(judgement, tried)).collect();
        let (most, steps) = SHIFTS;
        let step = most / steps as f64;
        let mut values = vec![self.ndcg(&judged)];
        for _ in 0..steps {
            for judged in &mut judged {
                judged.iter_mut().filter(|judged| judged.is_hidden).for_each(|judged| judged.odds += step);
                judged.sort_by(|a, b| b.odds.total_cmp(&a.odds));
            }
            values.push(self.ndcg(&judged));
        }
        let best = values.iter().copied().fold(0.0, f64::max);
        let last = values.iter().rposition(|value| *value >= best - give).unwrap_or(0);
        // Past the last step nothing is known of what it costs; with nothing hidden it costs nothing, and means nothing.
        if self.hidden.iter().any(|hidden| *hidden) { last as f64 * step } else { 0.0 }
    }
}

#[derive(Default)]
struct Examples {
    features: Vec<f32>,
    right: Vec<bool>,
}

impl Examples {
    fn learned(&self, sources: usize) -> Logistic {
        Logistic::fit(&self.features, &self.right, width(sources), RIDGE)
    }
}

/// Over the first places of all documents: how far probabilities are from how often they are right.
fn calibration_error(judged: &[Vec<Judged>]) -> f64 {
    let mut bins = CalibrationBins::default();
    for judged in judged.iter().flat_map(|judged| judged.iter().take(PLACES)) {
        bins.add(probability(judged.odds), judged.is_right);
    }
    bins.error().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ranking::Ranking;

    /// What a source ranks for each document, its labels, which labels are hidden, and how often each is carried.
    type Made = (Vec<Vec<Scored>>, Vec<Vec<LabelId>>, Vec<bool>, Vec<u32>);

    /// Documents whose label is often the first of a source that knows what is hidden, too, and seldom the others.
    fn rankings() -> Made {
        let labels = 40u32;
        let hidden: Vec<bool> = (0..labels).map(|label| label % 4 == 0).collect();
        let counts: Vec<u32> = hidden.iter().map(|&hidden| if hidden { 0 } else { 5 }).collect();
        let (mut all, mut gold) = (Vec::new(), Vec::new());
        for document in 0..600u32 {
            let right = document * 7 % labels;
            let scored = |place: u32| {
                let label = LabelId((right + place * 3) % labels);
                // The scores of hidden labels are lower, though they are right as often.
                let lower = if hidden[label.index()] { 0.5 } else { 1.0 };
                Scored { label, score: lower * 0.9 / (place as f32 + 1.0) }
            };
            all.push(Ranking::new((0..6).map(scored).collect(), 6).unwrap().entries().to_vec());
            gold.push(vec![if document % 5 == 0 { LabelId((right + 3) % labels) } else { LabelId(right) }]);
        }
        (all, gold, hidden, counts)
    }

    #[test]
    fn hidden_labels_get_a_chance_of_their_own_and_probabilities_mean_something() {
        let (rankings, gold, hidden, counts) = rankings();
        let tried = rankings.iter().zip(&gold).map(|(ranking, gold)| Tried { rankings: vec![ranking], gold });
        let lesson = Lesson { tried: tried.collect(), counts, hidden: &hidden };
        let judgement = lesson.learn(Some(0.0), 0.0);
        assert!(judgement.is_sound(1));
        // The same score means more for a hidden label.
        let odds = |count| judgement.log_odds(&[Some((0, 0.45))], count).0;
        assert!(odds(0) > odds(5) + 0.5, "{} {}", odds(0), odds(5));
        let quality = lesson.quality(0.0);
        assert!(quality.ndcg > 0.8 && quality.hidden_at_10 > 0.9, "{quality:?}");
        assert!(quality.calibration_error < 0.05, "{quality:?}");
        let (total, parts) = judgement.log_odds(&[Some((0, 0.45))], 5);
        assert!(parts.len() == 1 && total.is_finite());
    }

    #[test]
    fn unseen_labels_gain_as_much_as_may_be_given() {
        let (rankings, gold, hidden, counts) = rankings();
        let tried = rankings.iter().zip(&gold).map(|(ranking, gold)| Tried { rankings: vec![ranking], gold });
        let lesson = Lesson { tried: tried.collect(), counts, hidden: &hidden };
        let shift = |give| lesson.learn(None, give).shift;
        assert!(shift(0.0) <= shift(0.02) && shift(0.02) < shift(1.0));
        assert_eq!(shift(1.0), SHIFTS.0);
        let lesson = Lesson { tried: lesson.tried.into_iter().take(TELLING - 1).collect(), ..lesson };
        assert_eq!(lesson.learn(None, 1.0).shift, 0.0, "too few documents to tell");
    }
}
