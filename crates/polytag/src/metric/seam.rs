//! The seam of measuring: a metric adds cases to a tally, merges tallies and reads values off them.

use std::fmt;

use super::bootstrap::Interval;
use super::case::Case;

/// The question a metric answers; reports show the groups one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// How good is the ranking of a document?
    Ranking,
    /// How good is it for labels that are rare?
    Tail,
    /// How good is it for labels that training never saw?
    Unseen,
}

impl Group {
    /// All groups, in the order of reports.
    pub const ALL: [Group; 3] = [Group::Ranking, Group::Tail, Group::Unseen];
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Group::Ranking => "Overall ranking",
            Group::Tail => "Tail of the label set",
            Group::Unseen => "Unseen labels",
        })
    }
}

/// What a value is called, such as `nDCG@5`, and where it belongs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetricName {
    /// Where it belongs.
    pub group: Group,
    /// What it is called, in text and in JSON.
    pub name: String,
}

/// Something that can be measured over documents in chunks.
///
/// Each chunk is added to a tally of its own, and tallies are merged in the order of their chunks.
/// All lists that leave a metric are as long as [`names`](Metric::names), in its order.
///
/// ```
/// use polytag::ids::LabelId;
/// use polytag::metric::{Case, Group, Metric, MetricName};
///
/// /// How many documents have a right label on the first place.
/// struct FirstIsRight;
///
/// impl Metric for FirstIsRight {
///     type Tally = (u32, u32);
///     fn names(&self) -> Vec<MetricName> {
///         vec![MetricName { group: Group::Ranking, name: "first is right".into() }]
///     }
///     fn start(&self) -> (u32, u32) {
///         (0, 0)
///     }
///     fn add(&self, tally: &mut (u32, u32), _document: u64, case: &Case<'_>) {
///         tally.0 += case.hits(1) as u32;
///         tally.1 += 1;
///     }
///     fn merge(&self, tally: &mut (u32, u32), later: (u32, u32)) {
///         *tally = (tally.0 + later.0, tally.1 + later.1);
///     }
///     fn values(&self, tally: &(u32, u32)) -> Vec<Option<f64>> {
///         vec![(tally.1 > 0).then(|| f64::from(tally.0) / f64::from(tally.1))]
///     }
/// }
///
/// let (right, wrong) = ([LabelId(3)], [LabelId(4)]);
/// let mut tally = FirstIsRight.start();
/// for (document, ranking) in [&right, &wrong].into_iter().enumerate() {
///     let mut chunk = FirstIsRight.start();
///     let case = Case { ranking, chances: None, unseen_ranking: None, gold: &right };
///     FirstIsRight.add(&mut chunk, document as u64, &case);
///     FirstIsRight.merge(&mut tally, chunk);
/// }
/// assert_eq!(FirstIsRight.values(&tally), [Some(0.5)]);
/// ```
pub trait Metric: Send + Sync {
    /// What is kept of the documents added so far.
    type Tally: Clone + Send;

    /// What its values are called.
    fn names(&self) -> Vec<MetricName>;

    /// The tally of no document.
    fn start(&self) -> Self::Tally;

    /// Adds a document. `document` is its number in the split: the bootstrap draws by it, so each
    /// document has its own, whatever chunk it is in.
    fn add(&self, tally: &mut Self::Tally, document: u64, case: &Case<'_>);

    /// Adds the documents of `later`, a chunk that follows those of `tally`.
    fn merge(&self, tally: &mut Self::Tally, later: Self::Tally);

    /// The values, as shares from 0 to 1; `None` where no document defines one.
    fn values(&self, tally: &Self::Tally) -> Vec<Option<f64>>;

    /// The 95 % intervals of the values, for metrics that know them.
    fn intervals(&self, _tally: &Self::Tally) -> Vec<Option<Interval>> {
        vec![None; self.names().len()]
    }
}
