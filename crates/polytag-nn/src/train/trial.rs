//! What a training will take, before it begins.

use std::time::Instant;

use super::{Objective, Place, Trainer};
use crate::error::Error;
use crate::parameters::Parameters;

/// How often a step is tried; the first time, which compiles kernels and finds memory, is not counted.
const TRIED: u64 = 4;

impl Trainer {
    /// How many seconds a step takes, by going forth and back over the first one a few times; nothing is learned from it,
    /// and the objective is asked for nothing that it would not be asked for anyway. The memory that it takes shows in
    /// the device's peak.
    pub fn try_steps(
        &self,
        parameters: &mut Parameters,
        objective: &mut dyn Objective,
    ) -> Result<f64, Error> {
        let device = parameters.device().clone();
        let mut started = Instant::now();
        for time in 0..TRIED {
            if time == 1 {
                device.synchronize()?;
                started = Instant::now();
            }
            for part in self.parts() {
                let place = Place { step: 0, part };
                objective.prepare(place)?;
                self.back_and_forth(parameters, objective, place, false)?;
            }
            parameters.forget_gradients();
        }
        device.synchronize()?;
        Ok(started.elapsed().as_secs_f64() / (TRIED - 1) as f64)
    }
}
