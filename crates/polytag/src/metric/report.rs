//! What an evaluation found, in percent, as data and as JSON.

use serde::ser::{Serialize, SerializeMap, SerializeStruct, Serializer};

use super::bootstrap::Interval;
use super::seam::Group;

/// JSON keeps this many decimals: more than any interval makes sense of, and short to read.
const DECIMALS: i32 = 4;

/// A value of a report.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// What it is called, such as `nDCG@5`.
    pub name: String,
    /// Where it belongs.
    pub group: Group,
    /// The value in percent.
    pub value: f64,
    /// Its 95 % interval in percent, where one was drawn.
    pub interval: Option<Interval>,
}

/// The result of an evaluation.
///
/// As JSON it is `{"metrics": {"P@1": 61.2, …}, "intervals": {"P@1": [59.8, 62.7], …},
/// "documents": 1000, …}`, metrics in the order of `metrics`. Metrics that the split does not
/// define, such as those of unseen labels where there are none, are absent.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// The values, in the order they are shown within their groups.
    pub metrics: Vec<Measured>,
    /// Documents that were measured.
    pub documents: u64,
    /// Documents that were left out because they have no gold label.
    pub documents_without_gold: u64,
    /// Measured documents with at least one gold label that training never saw.
    pub documents_with_unseen_gold: u64,
    /// Labels of the model.
    pub labels: u64,
    /// Those of them that training never saw.
    pub unseen_labels: u64,
    /// Distinct gold labels that the model does not have, and cannot find.
    pub unknown_gold_labels: u64,
}

impl Report {
    /// The value in percent of the metric called `name`, if it is defined.
    pub fn value(&self, name: &str) -> Option<f64> {
        self.find(name).map(|measured| measured.value)
    }

    /// The metric called `name`, if it is defined.
    pub fn find(&self, name: &str) -> Option<&Measured> {
        self.metrics.iter().find(|measured| measured.name == name)
    }

    /// The groups that have values, with them.
    pub(super) fn groups(&self) -> impl Iterator<Item = (Group, Vec<&Measured>)> {
        let of = |group| self.metrics.iter().filter(|measured| measured.group == group).collect();
        let groups = Group::ALL.into_iter().map(move |group| (group, of(group)));
        groups.filter(|(_, measured): &(Group, Vec<&Measured>)| !measured.is_empty())
    }
}

impl Serialize for Report {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut report = serializer.serialize_struct("Report", 8)?;
        report.serialize_field("metrics", &Values(&self.metrics))?;
        report.serialize_field("intervals", &Intervals(&self.metrics))?;
        report.serialize_field("documents", &self.documents)?;
        report.serialize_field("documents_without_gold", &self.documents_without_gold)?;
        report.serialize_field("documents_with_unseen_gold", &self.documents_with_unseen_gold)?;
        report.serialize_field("labels", &self.labels)?;
        report.serialize_field("unseen_labels", &self.unseen_labels)?;
        report.serialize_field("unknown_gold_labels", &self.unknown_gold_labels)?;
        report.end()
    }
}

/// Name to value, in order.
struct Values<'a>(&'a [Measured]);

/// Name to the two ends, in order, where there is an interval.
struct Intervals<'a>(&'a [Measured]);

impl Serialize for Values<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|measured| (&measured.name, round(measured.value))))
    }
}

impl Serialize for Intervals<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for measured in self.0 {
            if let Some(Interval { low, high }) = measured.interval {
                map.serialize_entry(&measured.name, &[round(low), round(high)])?;
            }
        }
        map.end()
    }
}

fn round(value: f64) -> f64 {
    let scale = 10f64.powi(DECIMALS);
    (value * scale).round() / scale
}

#[cfg(test)]
mod tests {
    use crate::metric::fixture::small_report;

    #[test]
    fn json_keeps_order_and_shape() {
        let json = serde_json::to_string(&small_report()).unwrap();
        assert_eq!(
            json,
            r#"{"metrics":{"P@1":61.1111,"PSP@1":7.0,"ZSR@100":0.5},"#.to_owned()
                + r#""intervals":{"P@1":[59.8765,62.3],"PSP@1":[0.0,100.0]},"#
                + r#""documents":9,"documents_without_gold":1,"documents_with_unseen_gold":2,"#
                + r#""labels":40,"unseen_labels":5,"unknown_gold_labels":1}"#
        );
    }

    #[test]
    fn values_are_found_by_name() {
        let report = small_report();
        assert_eq!(report.value("PSP@1"), Some(7.0));
        assert_eq!(report.value("PSP@3"), None);
    }
}
