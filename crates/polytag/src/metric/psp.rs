//! PSP@k: precision in which rare labels weigh more.

use super::case::Case;
use super::config::Cutoffs;
use super::per_document::{PerDocument, Ratio};
use super::seam::Group;
use super::table::LabelTable;

/// Propensity-scored precision within the first k places (Jain et al., KDD 2016).
///
/// A right label weighs its inverse propensity. As in pyxclib, the weights found are summed over
/// all documents and divided by the sum that rankings of the gold labels, heaviest first, would
/// have reached: one ratio of sums, not a mean of ratios.
#[derive(Clone, Debug)]
pub struct PropensityPrecision(pub Cutoffs);

/// The inverse propensities of the gold labels, heaviest first.
pub(super) fn ideal_weights(case: &Case<'_>, table: &LabelTable) -> Vec<f64> {
    let mut weights: Vec<f64> = case.gold.iter().map(|&label| table.inverse_propensity(label)).collect();
    weights.sort_unstable_by(|a, b| b.total_cmp(a));
    weights
}

/// By place: the inverse propensity of the label there, or zero where it is wrong.
pub(super) fn found_weights<'a>(
    case: &'a Case<'_>,
    table: &'a LabelTable,
    k: usize,
) -> impl Iterator<Item = f64> + 'a {
    let weight = |&label| if case.is_gold(label) { table.inverse_propensity(label) } else { 0.0 };
    case.top(k).iter().map(weight)
}

impl PerDocument for PropensityPrecision {
    fn group(&self) -> Group {
        Group::Tail
    }

    fn names(&self) -> Vec<String> {
        self.0.names("PSP")
    }

    fn contributions(&self, case: &Case<'_>, table: &LabelTable, out: &mut Vec<Ratio>) {
        let ideal = ideal_weights(case, table);
        out.extend(self.0.iter().map(|k| {
            let found: f64 = found_weights(case, table, k).sum();
            let best: f64 = ideal.iter().take(k).sum();
            Ratio { num: found / k as f64, den: best / k as f64 }
        }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::LabelId;
    use crate::metric::fixture::{assert_values, cutoffs, table};

    #[test]
    fn by_hand() {
        let metric = PropensityPrecision(cutoffs(&[1, 3]));
        let table = table(&[100, 1, 0, 10], 1000);
        let [many, one, unseen, ten] = [0, 1, 2, 3].map(|id| table.inverse_propensity(LabelId(id)));
        assert!(many < ten && ten < one && one < unseen);
        // The frequent label first: right, and yet not the best first place.
        assert_values(&metric, &table, &[(&[0, 3, 1], &[0, 1])], &[many / one, 1.0]);
        // Sums over documents before the division; the second document finds nothing.
        let cases: [(&[u32], &[u32]); 2] = [(&[2], &[2, 3]), (&[], &[0])];
        assert_values(&metric, &table, &cases, &[unseen / (unseen + many), unseen / (unseen + ten + many)]);
        // More gold than places.
        let at_three = (many + ten) / (unseen + one + ten);
        assert_values(&metric, &table, &[(&[0, 3], &[0, 1, 2, 3])], &[many / unseen, at_three]);
    }
}
