//! How well labels were found: one metric a file, added up in parallel, reported with intervals.
//!
//! What enters is a [`Case`] a document, its ranking beside its gold labels, and a [`LabelTable`]
//! with what training knew of each label. What leaves is a [`Report`] in percent, as JSON, plain
//! text or Markdown. Between them stand two kinds of metric. Most are averages over documents: each
//! implements [`PerDocument`] and [`DocumentAverages`] adds them up. A few look at each label over
//! all documents: each implements [`PerLabel`] and [`LabelAverages`] counts for them. Both are a
//! [`Metric`], so both split over threads and merge, and both draw their 95 % intervals from the
//! same [`Bootstrap`]. [`Evaluation`] is the set that `polytag evaluate` prints.
//!
//! Results depend on the cases, their numbers and the seed. Sums of floating-point numbers also
//! depend on their order: cut documents into chunks of a fixed size and merge the chunks in order,
//! and any number of threads gives the same bytes.

mod bootstrap; // how far a value may be off: Poisson bootstrap, percentile intervals
mod case; // what is measured: one document's ranking and gold
mod config; // which cutoffs, which propensities, how many replicates
mod error; // settings that are refused
mod seam; // the trait that all metrics meet, and their names
mod table; // what training knew of each label

mod per_document; // metrics that are averages over documents, and then each of them

mod ndcg;
mod precision;
mod psndcg;
mod psp;
mod r_precision;
mod recall;
mod reciprocal_rank;
mod unseen_only;
mod unseen_share;
mod zero_shot_recall;

mod per_label; // metrics that look at each label over all documents, and then each of them

mod coverage;
mod macro_average;

mod calibration; // what probabilities are worth

mod evaluation; // all of them together
mod report; // what came out
mod report_text; // the same for people
mod evaluate; // a model run over a split

#[cfg(test)]
mod fixture;
#[cfg(test)]
mod reference_tests;

pub use bootstrap::{Bootstrap, Interval};
pub use calibration::{Calibration, CalibrationBins};
pub use case::Case;
pub use config::{Cutoffs, EvaluationConfig, EvaluationPlan};
pub use coverage::Coverage;
pub use error::MetricError;
pub use evaluate::evaluate;
pub use evaluation::{Evaluation, EvaluationTally};
pub use macro_average::MacroAverage;
pub use ndcg::Ndcg;
pub(crate) use ndcg::{discount, ideal_gain};
pub use per_document::{AveragesTally, DocumentAverages, PerDocument, Ratio};
pub use per_label::{LabelAverages, LabelCount, LabelCounts, LabelsTally, PerLabel};
pub use precision::Precision;
pub use psndcg::PropensityNdcg;
pub use psp::PropensityPrecision;
pub use r_precision::RPrecision;
pub use recall::Recall;
pub use reciprocal_rank::ReciprocalRank;
pub use report::{Measured, Report};
pub use seam::{Group, Metric, MetricName};
pub use table::{LabelTable, Propensity};
pub use unseen_only::UnseenOnly;
pub use unseen_share::UnseenShare;
pub use zero_shot_recall::ZeroShotRecall;
