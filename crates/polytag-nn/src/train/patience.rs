//! When to stop because it gets no better.

use serde::{Deserialize, Serialize};

/// The best measurement so far, and how many there were since.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Patience {
    best: Option<(u64, f64)>,
    since: usize,
}

impl Patience {
    /// Takes note of a measurement after `step`; higher is better. Says whether it is the best so far.
    pub fn note(&mut self, step: u64, measured: f64) -> bool {
        let better = measured.is_finite() && self.best.is_none_or(|(_, best)| measured > best);
        if better {
            self.best = Some((step, measured));
            self.since = 0;
        } else {
            self.since += 1;
        }
        better
    }

    /// The step and the value of the best measurement.
    pub fn best(&self) -> Option<(u64, f64)> {
        self.best
    }

    /// Whether `limit` measurements in a row were no better.
    pub fn is_over(&self, limit: Option<usize>) -> bool {
        limit.is_some_and(|limit| self.since >= limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_ends_after_so_many_without_a_better_one() {
        let mut patience = Patience::default();
        assert!(!patience.note(5, f64::NAN) && patience.best().is_none());
        assert!(patience.note(10, 0.5));
        assert!(!patience.note(20, 0.5));
        assert!(patience.note(30, 0.6));
        assert!(!patience.note(40, 0.1) && !patience.is_over(Some(2)));
        assert!(!patience.note(50, f64::NAN), "what is no number is no better");
        assert!(patience.is_over(Some(2)) && !patience.is_over(None));
        assert_eq!(patience.best(), Some((30, 0.6)));
    }
}
