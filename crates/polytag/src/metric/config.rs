//! The settings of an evaluation: cutoffs, propensity model, bootstrap.
//!
//! An [`EvaluationConfig`] enters as people write it; what leaves is an [`EvaluationPlan`] that is
//! known to make sense.

use serde::{Deserialize, Serialize};

use super::bootstrap::Bootstrap;
use super::error::MetricError;
use super::reciprocal_rank;
use super::table::Propensity;

/// Rankings deeper than this are no rankings any more, and would fill memory.
const DEEPEST: usize = 10_000;

/// A tally keeps two numbers a replicate and metric; past this the interval no longer changes.
const MOST_REPLICATES: usize = 10_000;

/// What to measure, as written in a configuration file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EvaluationConfig {
    /// Cutoffs of all metrics but recall. By-class macro averages are taken at the deepest.
    pub ks: Vec<usize>,
    /// Cutoffs of recall; may be empty.
    pub recall_ks: Vec<usize>,
    /// Cutoffs of zero-shot recall; may be empty.
    pub zsr_ks: Vec<usize>,
    /// How much finding a rare label weighs.
    pub propensity: Propensity,
    /// Whether documents are labels themselves, under their own ids: then a document's own label is left out of its
    /// ranking, as evaluations of item-to-item tasks do.
    pub item_to_item: bool,
    /// How many bootstrap replicates the intervals are drawn from; 0 for no intervals.
    pub replicates: usize,
    /// The seed of the bootstrap.
    pub seed: u64,
}

impl Default for EvaluationConfig {
    fn default() -> EvaluationConfig {
        EvaluationConfig {
            ks: vec![1, 3, 5],
            recall_ks: vec![1, 3, 5, 10, 100],
            zsr_ks: vec![10, 50, 100],
            propensity: Propensity::default(),
            item_to_item: false,
            replicates: 1000,
            seed: 0,
        }
    }
}

/// Depths of a ranking, ascending, each at least one and there once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cutoffs(Vec<usize>);

impl Cutoffs {
    /// Sorts and checks `ks`, the setting called `field`.
    pub fn new(field: &'static str, ks: &[usize]) -> Result<Cutoffs, MetricError> {
        let mut ks = ks.to_vec();
        ks.sort_unstable();
        ks.dedup();
        if ks.first() == Some(&0) {
            return Err(MetricError::ZeroCutoff { field });
        }
        match ks.last() {
            Some(&k) if k > DEEPEST => Err(MetricError::DeepCutoff { field, k, limit: DEEPEST }),
            _ => Ok(Cutoffs(ks)),
        }
    }

    /// The cutoffs, ascending.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = usize> + '_ {
        self.0.iter().copied()
    }

    /// How many cutoffs there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none, which is to say that the metric is not wanted.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The deepest cutoff; 0 where there is none.
    pub fn deepest(&self) -> usize {
        self.0.last().copied().unwrap_or(0)
    }

    /// Which cutoff is the first to take in the place `rank`, counted from one.
    pub(super) fn first_reaching(&self, rank: usize) -> usize {
        self.0.partition_point(|&k| k < rank)
    }

    /// `name@k` for each cutoff.
    pub(super) fn names(&self, name: &str) -> Vec<String> {
        self.iter().map(|k| format!("{name}@{k}")).collect()
    }
}

/// A configuration that makes sense.
///
/// ```
/// use polytag::metric::{EvaluationConfig, EvaluationPlan};
/// let plan = EvaluationPlan::try_from(EvaluationConfig::default())?;
/// assert_eq!(plan.depth(), 100);
/// # Ok::<(), polytag::metric::MetricError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct EvaluationPlan {
    pub(super) ks: Cutoffs,
    pub(super) recall_ks: Cutoffs,
    pub(super) zsr_ks: Cutoffs,
    pub(super) bootstrap: Bootstrap,
    pub(super) item_to_item: bool,
    propensity: Propensity,
}

impl EvaluationPlan {
    /// How deep rankings must be for every metric to be exact.
    pub fn depth(&self) -> usize {
        let deepest = self.ks.deepest().max(self.recall_ks.deepest()).max(self.zsr_ks.deepest());
        deepest.max(reciprocal_rank::DEPTH)
    }

    /// The propensity model, for [`LabelTable::new`](super::LabelTable::new).
    pub fn propensity(&self) -> Propensity {
        self.propensity
    }
}

impl TryFrom<EvaluationConfig> for EvaluationPlan {
    type Error = MetricError;

    fn try_from(config: EvaluationConfig) -> Result<EvaluationPlan, MetricError> {
        let ks = Cutoffs::new("ks", &config.ks)?;
        if ks.is_empty() {
            return Err(MetricError::NoCutoff);
        }
        let (replicates, limit) = (config.replicates, MOST_REPLICATES);
        if replicates > limit {
            return Err(MetricError::ManyReplicates { replicates, limit });
        }
        check_propensity(config.propensity)?;
        Ok(EvaluationPlan {
            ks,
            recall_ks: Cutoffs::new("recall_ks", &config.recall_ks)?,
            zsr_ks: Cutoffs::new("zsr_ks", &config.zsr_ks)?,
            bootstrap: Bootstrap::new(config.seed, replicates),
            item_to_item: config.item_to_item,
            propensity: config.propensity,
        })
    }
}

/// Within these ranges every inverse propensity is finite and at least one.
fn check_propensity(Propensity { a, b }: Propensity) -> Result<(), MetricError> {
    let usual = Propensity::default();
    if !(0.0..=2.0).contains(&a) {
        return Err(MetricError::Propensity { field: "a", value: a, range: "from 0 to 2", usual: usual.a });
    }
    if !(0.001..=1000.0).contains(&b) {
        let range = "from 0.001 to 1000";
        return Err(MetricError::Propensity { field: "b", value: b, range, usual: usual.b });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(change: impl FnOnce(&mut EvaluationConfig)) -> MetricError {
        let mut config = EvaluationConfig::default();
        change(&mut config);
        EvaluationPlan::try_from(config).unwrap_err()
    }

    #[test]
    fn bad_settings_are_refused_with_a_remedy() {
        assert_eq!(refusal(|c| c.ks.clear()), MetricError::NoCutoff);
        assert_eq!(refusal(|c| c.ks.push(0)), MetricError::ZeroCutoff { field: "ks" });
        assert_eq!(refusal(|c| c.zsr_ks.push(0)), MetricError::ZeroCutoff { field: "zsr_ks" });
        let deep = refusal(|c| c.recall_ks.push(20_000));
        assert_eq!(
            deep.to_string(),
            "`recall_ks` holds the cutoff 20000; the deepest that can be measured is 10000"
        );
        assert!(refusal(|c| c.replicates = 20_000).to_string().contains("at most 10000"));
        assert!(refusal(|c| c.propensity.a = f64::NAN).to_string().contains("propensity.a"));
        assert!(refusal(|c| c.propensity.b = 0.0).to_string().contains("from 0.001 to 1000"));
    }

    #[test]
    fn cutoffs_are_sorted_and_told_apart() {
        let ks = Cutoffs::new("ks", &[5, 1, 5, 3]).unwrap();
        assert_eq!(ks.names("P"), ["P@1", "P@3", "P@5"]);
        assert_eq!([1, 2, 3, 4, 5, 6].map(|rank| ks.first_reaching(rank)), [0, 1, 1, 2, 2, 3]);
        assert_eq!(Cutoffs::new("zsr_ks", &[]).unwrap().deepest(), 0);
    }

    #[test]
    fn unknown_settings_are_refused_and_missing_ones_have_defaults() {
        let read = serde_json::from_str::<EvaluationConfig>;
        assert!(read(r#"{"k": [1]}"#).is_err());
        assert!(read(r#"{"propensity": {"c": 1}}"#).is_err());
        let config = read(r#"{"ks": [2], "propensity": {"a": 0.5}}"#).unwrap();
        assert_eq!(config.propensity, Propensity { a: 0.5, b: 1.5 });
        assert_eq!(config.recall_ks, EvaluationConfig::default().recall_ks);
    }
}
