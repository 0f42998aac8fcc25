//! PSnDCG@k: discounted gain in which rare labels weigh more.

use super::case::Case;
use super::config::Cutoffs;
use super::ndcg::{discount, ideal_gain};
use super::per_document::{PerDocument, Ratio};
use super::psp::{found_weights, ideal_weights};
use super::seam::Group;
use super::table::LabelTable;

/// Propensity-scored nDCG within the first k places (Jain et al., KDD 2016).
///
/// A right label weighs its inverse propensity times the discount of its place. As in pyxclib, each
/// document is divided by the unweighted ideal gain of `min(k, gold)` places, summed over documents,
/// and divided by the sum that the gold labels, heaviest first, would have reached.
#[derive(Clone, Debug)]
pub struct PropensityNdcg(pub Cutoffs);

impl PerDocument for PropensityNdcg {
    fn group(&self) -> Group {
        Group::Tail
    }

    fn names(&self) -> Vec<String> {
        self.0.names("PSnDCG")
    }

    fn contributions(&self, case: &Case<'_>, table: &LabelTable, out: &mut Vec<Ratio>) {
        let ideal = ideal_weights(case, table);
        out.extend(self.0.iter().map(|k| {
            let scale = ideal_gain(k.min(case.gold.len()));
            Ratio {
                num: gain(found_weights(case, table, k)) / scale,
                den: gain(ideal.iter().copied().take(k)) / scale,
            }
        }));
    }
}

fn gain(weights: impl Iterator<Item = f64>) -> f64 {
    weights.zip(1..).map(|(weight, rank)| weight * discount(rank)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::LabelId;
    use crate::metric::fixture::{assert_values, cutoffs, table};

    #[test]
    fn by_hand() {
        let metric = PropensityNdcg(cutoffs(&[1, 3]));
        let table = table(&[100, 1, 0, 10], 1000);
        let [many, one, unseen] = [0, 1, 2].map(|id| table.inverse_propensity(LabelId(id)));
        let (second, third) = (0.630_929_754, 0.5);
        let at_three = (many + one * third) / (one + many * second);
        assert_values(&metric, &table, &[(&[0, 3, 1], &[0, 1])], &[many / one, at_three]);
        // Two documents at k = 3: scales 1 + 0.630930 and 1; the second finds nothing.
        let scale = 1.0 + second;
        let expected = (unseen / scale) / ((unseen + one * second) / scale + many);
        let cases: [(&[u32], &[u32]); 2] = [(&[2], &[1, 2]), (&[], &[0])];
        assert_values(&metric, &table, &cases, &[unseen / (unseen + many), expected]);
    }
}
