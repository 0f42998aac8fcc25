//! A training on several devices: what they have to agree on, and what is added up.
//!
//! Each device has a trainer of its own, and all run the same loop. The first one stops, measures, notes and writes; it is the only
//! one with a folder. A trainer that is alone decides for itself and waits for nobody.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use sha2::{Digest as _, Sha256};

use super::checkpoint::{self, Contents};
use super::{CHECKPOINT, Evaluation, Objective, Trainer};
use crate::error::Error;
use crate::parameters::Parameters;
use crate::world::Member;

impl Trainer {
    /// The same training as one of several, each of which has a trainer with the same settings. They begin with the weights
    /// of the first one.
    ///
    /// # Errors
    /// If the parts of a step cannot be shared evenly.
    pub fn join(mut self, member: &Member) -> Result<Trainer, Error> {
        let (parts, size) = (self.config.accumulation, member.size());
        if !parts.is_multiple_of(size) {
            let problem = format!("{parts} parts of a step cannot be shared evenly by {size} devices");
            return Err(Error::Unfit(problem));
        }
        self.member = Some(member.clone());
        Ok(self)
    }

    /// Which parts of a step are worked on here.
    pub(super) fn parts(&self) -> Range<usize> {
        let (rank, size) = self.member.as_ref().map_or((0, 1), |member| (member.rank(), member.size()));
        let each = self.config.accumulation / size;
        rank * each..(rank + 1) * each
    }

    pub(super) fn first_part(&self) -> usize {
        self.parts().start
    }

    /// Whether this is the one that decides.
    pub(super) fn is_first(&self) -> bool {
        self.member.as_ref().is_none_or(|member| member.rank() == 0)
    }

    /// What the first one says; the others are not asked.
    pub(super) fn first_says(&self, asked: impl FnOnce() -> bool) -> Result<bool, Error> {
        match &self.member {
            None => Ok(asked()),
            Some(member) => member.of_first(|| Ok(asked())).map(|said| *said),
        }
    }

    /// What the first one measures.
    pub(super) fn evaluation(
        &self,
        parameters: &Parameters,
        objective: &mut dyn Objective,
    ) -> Result<Option<Evaluation>, Error> {
        match &self.member {
            None => objective.evaluate(parameters),
            Some(member) => member.of_first(|| objective.evaluate(parameters)).map(Arc::unwrap_or_clone),
        }
    }

    /// The checkpoint in the first one's folder. Where there is none, all take over the first one's weights.
    pub(super) fn checkpoint(
        &self,
        parameters: &mut Parameters,
        folder: Option<&Path>,
    ) -> Result<Option<Contents>, Error> {
        let length = parameters.masters_len();
        let read = || match folder {
            Some(folder) => checkpoint::read(&folder.join(CHECKPOINT), &self.state.fingerprint, length),
            None => Ok(None),
        };
        let Some(member) = &self.member else { return read() };
        let of_first = member.exchange(self.state.fingerprint.clone())?;
        if *of_first[0] != self.state.fingerprint {
            let problem = "devices were to train together, and not the same training".to_owned();
            return Err(Error::Unfit(problem));
        }
        let contents = Arc::unwrap_or_clone(member.of_first(read)?);
        if contents.is_none() {
            let masters = member.of_first(|| parameters.masters_to_vec())?;
            if !self.is_first() {
                parameters.set_masters(&masters)?;
            }
        }
        Ok(contents)
    }

    /// Adds up the gradients of all devices: one sum over all weights, which lie end to end.
    pub(super) fn sum_gradients(&self, parameters: &mut Parameters) -> Result<(), Error> {
        match &self.member {
            None => Ok(()),
            Some(member) => member.sum(parameters.arenas()?.gradients),
        }
    }

    /// The losses since the last time, weighted, those of all devices in the order in which one would have them.
    pub(super) fn losses_of_all(&mut self) -> Result<Vec<f32>, Error> {
        let mut losses = Vec::with_capacity(self.pending.len());
        for (place, loss, weight) in self.pending.drain(..) {
            losses.push(((place.step, place.part), loss.to_vec()?[0] * weight));
        }
        if let Some(member) = &self.member {
            losses = member.exchange(losses)?.iter().flat_map(|own| own.iter().copied()).collect();
            // Stable: several losses of a place stay in their order.
            losses.sort_by_key(|&(place, _)| place);
        }
        Ok(losses.into_iter().map(|(_, loss)| loss).collect())
    }

    /// What any of the devices found out about numbers that are not finite, where this one found nothing.
    pub(super) fn told_by_any(&self, told: Result<(), Error>) -> Result<(), Error> {
        let Some(member) = &self.member else { return told };
        let found = match &told {
            Err(Error::NotFinite { what, place }) => Some((what.clone(), place.clone())),
            _ => None,
        };
        let all = member.exchange(found)?;
        let first = all.iter().find_map(|found| found.as_ref().clone());
        match (told, first) {
            (Ok(()), Some((what, place))) => Err(Error::NotFinite { what, place }),
            (told, _) => told,
        }
    }

    /// Makes sure that all devices still have the same weights, bit for bit.
    pub(super) fn compare_weights(&self, parameters: &Parameters) -> Result<(), Error> {
        let Some(member) = self.member.as_ref().filter(|member| member.size() > 1) else { return Ok(()) };
        let mut hash = Sha256::new();
        hash.update(bytemuck::cast_slice(&parameters.masters_to_vec()?));
        let all = member.exchange(hash.finalize().to_vec())?;
        if all.iter().all(|other| *other == all[0]) {
            return Ok(());
        }
        Err(Error::Cuda {
            action: format!("training on {} devices", member.size()),
            problem: format!("after step {} they no longer have the same weights", self.state.step),
        })
    }
}
