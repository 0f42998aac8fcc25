//! metric
/// A failure to measure.
#[derive(Debug, thiserror::Error)]
pub enum MetricError {}
