//! How the learning rate goes up and down: a function of the step, and of nothing else.

use serde::{Deserialize, Serialize};

use crate::error::Error;

/// How the learning rate goes up and down.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ScheduleConfig {
    /// Over which share of all steps the rate goes up from zero: from 0 to 1.
    pub warmup: f64,
    /// What it does then.
    pub then: Then,
}

/// What the learning rate does after warming up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Then {
    /// It stays.
    Constant,
    /// It falls in a straight line, to zero after the last step.
    Linear,
}

impl Default for ScheduleConfig {
    fn default() -> ScheduleConfig {
        ScheduleConfig { warmup: 0.1, then: Then::Linear }
    }
}

/// A checked schedule over a number of steps.
#[derive(Clone, Debug, PartialEq)]
pub struct Schedule {
    warmup_steps: u64,
    steps: u64,
    then: Then,
}

impl ScheduleConfig {
    /// The schedule of a training run of `steps` steps.
    ///
    /// # Errors
    /// If the warm-up is no share.
    pub fn over(&self, steps: u64) -> Result<Schedule, Error> {
        if !(0.0..=1.0).contains(&self.warmup) {
            let warmup = self.warmup;
            return Err(Error::Unfit(format!(
                "a warm-up over {warmup} of the steps is not possible; 0 to 1 is"
            )));
        }
        Ok(Schedule { warmup_steps: (self.warmup * steps as f64).round() as u64, steps, then: self.then })
    }
}

impl Schedule {
    /// What the learning rate is multiplied by at a step, counted from zero.
    ///
    /// Every step of the run moves the weights: the first already has a part of the rate, and the last
    /// still has one.
    pub fn factor(&self, step: u64) -> f32 {
        if step < self.warmup_steps {
            return ((step + 1) as f64 / self.warmup_steps as f64) as f32;
        }
        match self.then {
            Then::Constant => 1.0,
            Then::Linear => {
                let falling = self.steps.saturating_sub(self.warmup_steps).max(1);
                (self.steps.saturating_sub(step) as f64 / falling as f64) as f32
            }
        }
    }

    /// How many steps the run has.
    pub fn steps(&self) -> u64 {
        self.steps
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_goes_up_and_then_down_in_straight_lines() {
        let schedule = ScheduleConfig { warmup: 0.2, then: Then::Linear }.over(10).unwrap();
        let factors: Vec<f32> = (0..12).map(|step| schedule.factor(step)).collect();
        assert_eq!(factors, [0.5, 1.0, 1.0, 0.875, 0.75, 0.625, 0.5, 0.375, 0.25, 0.125, 0.0, 0.0]);
    }

    #[test]
    fn a_constant_rate_stays() {
        let schedule = ScheduleConfig { warmup: 0.5, then: Then::Constant }.over(4).unwrap();
        assert_eq!(
            (0..6).map(|step| schedule.factor(step)).collect::<Vec<_>>(),
            [0.5, 1.0, 1.0, 1.0, 1.0, 1.0]
        );
        let flat = ScheduleConfig { warmup: 0.0, then: Then::Constant }.over(0).unwrap();
        assert_eq!(flat.factor(0), 1.0);
    }

    #[test]
    fn what_is_no_share_is_refused() {
        for warmup in [-0.1, 1.5, f64::NAN] {
            assert!(ScheduleConfig { warmup, ..ScheduleConfig::default() }.over(10).is_err());
        }
        assert!(serde_json::from_str::<ScheduleConfig>(r#"{"warm_up": 0.1}"#).is_err());
        let read: ScheduleConfig = serde_json::from_str(r#"{"then": "constant"}"#).unwrap();
        assert_eq!(read, ScheduleConfig { warmup: 0.1, then: Then::Constant });
    }
}
