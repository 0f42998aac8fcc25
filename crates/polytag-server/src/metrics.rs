//! Counts for machines, in the text format of Prometheus.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::store::Figures;

/// The upper bounds of the seconds that answers are counted by.
const SECONDS: [f64; 12] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0];

/// Everything that is counted.
#[derive(Default)]
pub(crate) struct Metrics {
    /// Requests by route and status.
    requests: Mutex<BTreeMap<(String, u16), u64>>,
    /// Seconds by route.
    seconds: Mutex<BTreeMap<String, Histogram>>,
    /// Documents that were tagged.
    pub(crate) documents: AtomicU64,
    /// Tokens that were tagged, about.
    pub(crate) tokens: AtomicU64,
    /// Batches that were tagged.
    pub(crate) batches: AtomicU64,
    /// Requests that found no room.
    pub(crate) refused: AtomicU64,
    /// Requests whose clients had gone, or whose time was up, before they were worked on.
    pub(crate) dropped: AtomicU64,
}

#[derive(Clone, Default)]
struct Histogram {
    counts: [u64; SECONDS.len()],
    all: u64,
    sum: f64,
}

impl Metrics {
    /// Counts an answer.
    pub(crate) fn answered(&self, route: &str, status: u16, took: Duration) {
        let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        *requests.entry((route.to_owned(), status)).or_default() += 1;
        drop(requests);
        let mut seconds = self.seconds.lock().unwrap_or_else(PoisonError::into_inner);
        let histogram = seconds.entry(route.to_owned()).or_default();
        let took = took.as_secs_f64();
        histogram.all += 1;
        histogram.sum += took;
        let counts = histogram.counts.iter_mut().zip(SECONDS);
        counts.filter(|(_, bound)| took <= *bound).for_each(|(count, _)| *count += 1);
    }

    /// All counts, how much is waiting at each model, and how the stores of labels are doing that are shared.
    pub(crate) fn to_text(&self, waiting: &[(String, usize)], stores: &[(String, Figures)]) -> String {
        let mut text = String::new();
        let head = |text: &mut String, name: &str, kind: &str, help: &str| {
            let _ = write!(text, "# HELP polytag_{name} {help}\n# TYPE polytag_{name} {kind}\n");
        };
        head(&mut text, "requests_total", "counter", "Requests by route and status.");
        for ((route, status), count) in &*self.requests.lock().unwrap_or_else(PoisonError::into_inner) {
            let _ = writeln!(text, "polytag_requests_total{{route=\"{route}\",status=\"{status}\"}} {count}");
        }
        head(&mut text, "request_seconds", "histogram", "Seconds from a request's head to its answer's.");
        for (route, histogram) in &*self.seconds.lock().unwrap_or_else(PoisonError::into_inner) {
            for (bound, count) in SECONDS.iter().zip(histogram.counts) {
                let labels = format!("route=\"{route}\",le=\"{bound}\"");
                let _ = writeln!(text, "polytag_request_seconds_bucket{{{labels}}} {count}");
            }
            let Histogram { all, sum, .. } = histogram;
            let _ = write!(
                text,
                "polytag_request_seconds_bucket{{route=\"{route}\",le=\"+Inf\"}} {all}\n\
                 polytag_request_seconds_sum{{route=\"{route}\"}} {sum}\n\
                 polytag_request_seconds_count{{route=\"{route}\"}} {all}\n"
            );
        }
        for (name, help, count) in [
            ("documents_total", "Documents that were tagged.", &self.documents),
            ("tokens_total", "Tokens that were tagged, at four bytes each.", &self.tokens),
            ("batches_total", "Batches that were tagged.", &self.batches),
            ("refused_total", "Requests that found no room.", &self.refused),
            ("dropped_total", "Requests that nobody waited for any more.", &self.dropped),
        ] {
            head(&mut text, name, "counter", help);
            let _ = writeln!(text, "polytag_{name} {}", count.load(Ordering::Relaxed));
        }
        head(&mut text, "waiting_tokens", "gauge", "Tokens that wait to be tagged.");
        for (model, tokens) in waiting {
            let _ = writeln!(text, "polytag_waiting_tokens{{model=\"{}\"}} {tokens}", escaped(model));
        }
        type Of = fn(&Figures) -> u64;
        let of_stores: [(&str, &str, &str, Of); 6] = [
            ("store_up", "gauge", "Whether the database of labels can be used.", |figures| {
                u64::from(figures.problem.is_none())
            }),
            ("store_revision", "gauge", "The last change of labels that answers know of.", |figures| {
                figures.revision.max(0) as u64
            }),
            (
                "store_failures_total",
                "counter",
                "Times that the database of labels could not be used.",
                |figures| figures.failures,
            ),
            ("store_connections_total", "counter", "Connections to the database of labels.", |figures| {
                figures.connections
            }),
            ("store_taken_total", "counter", "Changes of labels that other servers made.", |figures| {
                figures.taken
            }),
            ("store_rebuilds_total", "counter", "Times that all labels were read anew.", |figures| {
                figures.rebuilds
            }),
        ];
        for (name, kind, help, of) in of_stores.into_iter().filter(|_| !stores.is_empty()) {
            head(&mut text, name, kind, help);
            for (model, figures) in stores {
                let _ = writeln!(text, "polytag_{name}{{model=\"{}\"}} {}", escaped(model), of(figures));
            }
        }
        text
    }
}

fn escaped(name: &str) -> String {
    name.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_add_up() {
        let metrics = Metrics::default();
        metrics.answered("/v1/models", 200, Duration::from_millis(3));
        metrics.answered("/v1/models", 200, Duration::from_secs(60));
        metrics.answered("/v1/models", 404, Duration::from_millis(1));
        let text = metrics.to_text(
            &[("a\"b".to_owned(), 7)],
            &[("m".to_owned(), Figures { revision: 9, ..Figures::default() })],
        );
        for line in [
            "polytag_requests_total{route=\"/v1/models\",status=\"200\"} 2",
            "polytag_request_seconds_bucket{route=\"/v1/models\",le=\"0.005\"} 2",
            "polytag_request_seconds_bucket{route=\"/v1/models\",le=\"+Inf\"} 3",
            "polytag_waiting_tokens{model=\"a\\\"b\"} 7",
            "polytag_store_up{model=\"m\"} 1",
            "polytag_store_revision{model=\"m\"} 9",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
    }
}
