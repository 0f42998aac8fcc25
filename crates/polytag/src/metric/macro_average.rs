//! macro P@k, R@k and F@k: averages over labels instead of documents (paper 004, appendix B).

use super::config::Cutoffs;
use super::per_label::{LabelCount, LabelCounts, PerLabel};
use super::seam::Group;
use super::table::LabelTable;
use crate::data::Frequency;
use crate::ids::LabelId;

/// Precision, recall and F1 of each label over the evaluated documents, averaged over labels: all
/// of them at every cutoff, and those of each frequency class at the deepest.
///
/// With `t` documents that carry the label and have it on their first k places, `p` that have it
/// there and `y` that carry it, P = t/p, R = t/y and F = 2PR/(P+R) (equations 13 to 15).
///
/// Equation 12 averages over the labels of a class. For a label that no evaluated document carries
/// R and F have no value, so the average is over those that some document carries. P of such a
/// label that was never predicted is zero: it was to be found and was not.
#[derive(Clone, Debug)]
pub struct MacroAverage(pub Cutoffs);

/// How well a label was found, from 0 to 1.
type Score = fn(&LabelCount) -> f64;

const SCORES: [(&str, Score); 3] =
    [("P", precision), ("R", |count| f64::from(count.hits) / f64::from(count.gold)), ("F", f_score)];

const CLASSES: [(&str, Frequency); 3] =
    [("few", Frequency::Few), ("medium", Frequency::Medium), ("many", Frequency::Many)];

fn precision(count: &LabelCount) -> f64 {
    f64::from(count.hits) / f64::from(count.predicted.max(1))
}

/// 2PR/(P+R) with the fractions taken out, which is zero where P and R are.
fn f_score(count: &LabelCount) -> f64 {
    2.0 * f64::from(count.hits) / (f64::from(count.predicted) + f64::from(count.gold))
}

impl PerLabel for MacroAverage {
    fn group(&self) -> Group {
        Group::Tail
    }

    fn names(&self) -> Vec<String> {
        let overall = SCORES.iter().flat_map(|(score, _)| self.0.names(&format!("macro {score}")));
        let k = self.0.deepest();
        let by_class = CLASSES
            .iter()
            .flat_map(|(class, _)| SCORES.iter().map(move |(score, _)| format!("macro {score}@{k} {class}")));
        overall.chain(by_class).collect()
    }

    fn values(&self, counts: &LabelCounts, table: &LabelTable, out: &mut Vec<Option<f64>>) {
        for (_, score) in SCORES {
            out.extend((0..self.0.len()).map(|cutoff| average(counts.at(cutoff), score)));
        }
        for (_, class) in CLASSES {
            let of_class = |&(label, _): &(LabelId, LabelCount)| table.frequency(label) == class;
            let deepest = || counts.at(self.0.len() - 1).filter(of_class);
            out.extend(SCORES.iter().map(|(_, score)| average(deepest(), *score)));
        }
    }
}

fn average(counts: impl Iterator<Item = (LabelId, LabelCount)>, score: Score) -> Option<f64> {
    let (sum, labels) = counts.fold((0.0, 0u64), |(sum, n), (_, count)| (sum + score(&count), n + 1));
    (labels > 0).then(|| sum / labels as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metric::fixture::{cutoffs, label_values, table};

    #[test]
    fn by_hand() {
        // Label 0 is many-shot, 1 and 2 are few-shot, 3 is unseen, 4 is medium-shot.
        let table = table(&[500, 5, 1, 0, 50], 1000);
        let metric = MacroAverage(cutoffs(&[1, 2]));
        // At 2: label 0: t 2, p 3, y 2; label 1: t 1, p 1, y 2; label 2: t 0, p 0, y 1.
        // Label 4 is predicted once and carried by none: it is in no average.
        let cases: [(&[u32], &[u32]); 3] = [(&[0, 1], &[0, 1]), (&[4, 0], &[0, 2]), (&[0], &[1])];
        let values = label_values(&metric, &[1, 2], &table, &cases);
        let expected = [
            // P@1: label 0 t 1, p 2, y 2; nothing else hit.
            ("macro P@1", Some(0.5 / 3.0)),
            ("macro P@2", Some((2.0 / 3.0 + 1.0) / 3.0)),
            ("macro R@1", Some(0.5 / 3.0)),
            ("macro R@2", Some((1.0 + 0.5) / 3.0)),
            ("macro F@1", Some(0.5 / 3.0)),
            ("macro F@2", Some((0.8 + 2.0 / 3.0) / 3.0)),
            ("macro P@2 few", Some(0.5)),
            ("macro R@2 few", Some(0.25)),
            ("macro F@2 few", Some(1.0 / 3.0)),
            ("macro P@2 medium", None),
            ("macro R@2 medium", None),
            ("macro F@2 medium", None),
            ("macro P@2 many", Some(2.0 / 3.0)),
            ("macro R@2 many", Some(1.0)),
            ("macro F@2 many", Some(0.8)),
        ];
        assert_eq!(values.len(), expected.len());
        for ((name, value), (expected_name, expected)) in values.iter().zip(expected) {
            assert_eq!(name, expected_name);
            let close = value.unwrap_or(-1.0) - expected.unwrap_or(-1.0);
            assert!(close.abs() < 1e-12, "{name}: {value:?}, not {expected:?}");
        }
    }

    #[test]
    fn empty_rankings_score_zero() {
        let table = table(&[5, 5], 10);
        let values = label_values(&MacroAverage(cutoffs(&[1])), &[1], &table, &[(&[], &[0])]);
        assert_eq!(values[0], ("macro P@1".to_owned(), Some(0.0)));
        assert_eq!(values[2], ("macro F@1".to_owned(), Some(0.0)));
    }
}
