//! What a training will take, before it begins.

use std::time::Instant;

use super::{Objective, Place, Trainer};
use crate::error::Error;
use crate::parameters::Parameters;

/// Steps that are tried; the first one, which compiles kernels and finds memory, is not counted.
const TRIED: u64 = 4;

impl Trainer {
    /// How many seconds a step takes, by going forth and back over the first few; nothing is learned from them. Memory
    /// that they took shows in the device's peak; what the optimizer keeps comes on top of it.
    pub fn try_steps(
        &self,
        parameters: &mut Parameters,
        objective: &mut dyn Objective,
    ) -> Result<f64, Error> {
        let device = parameters.device().clone();
        let steps = TRIED.min(self.config.steps);
        let mut started = Instant::now();
        for step in 0..steps {
            if step == 1 {
                device.synchronize()?;
                started = Instant::now();
            }
            for part in 0..self.config.accumulation {
                let place = Place { step, part };
                objective.prepare(place)?;
                self.back_and_forth(parameters, objective, place, false)?;
            }
            parameters.forget_gradients();
        }
        device.synchronize()?;
        let counted = if steps > 1 { steps - 1 } else { steps };
        Ok(started.elapsed().as_secs_f64() / counted.max(1) as f64)
    }
}
