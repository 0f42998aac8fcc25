//! Devices of one machine that train together.
//!
//! A [`World`] is a list of devices, and a [`Member`] is one of them at work, in a thread of its own. Each has all weights and
//! works on its own parts of a step; gradients are added up over all of them, and each takes the same step of the
//! optimizer. What is decided on the host (whether to stop, what was measured) is decided by the first and told to the
//! others in a meeting; numbers on GPUs are added up by NCCL, those of CPUs in memory, in the order
//! of the ranks.
//!
//! Nobody asks a GPU for a sum before all have come to the meeting: a device that failed never leaves another one waiting.
//!
//! ```
//! use polytag_nn::device::Device;
//! use polytag_nn::error::Error;
//! use polytag_nn::world::World;
//!
//! let world = World::new(vec![Device::cpu(), Device::cpu()])?;
//! let ranks = world.run(
//!     |first| Ok::<_, Error>(first.exchange(first.rank())?),
//!     |other| other.exchange(other.rank()).map(drop),
//! )?;
//! assert_eq!((*ranks[0], *ranks[1]), (0, 1));
//! # Ok::<(), Error>(())
//! ```

mod meeting; // where threads wait for each other

use std::sync::Arc;

use rayon::prelude::*;

use crate::cuda::nccl::{self, Communicator};
use crate::device::Device;
use crate::error::Error;
use crate::tensor::Tensor;
use meeting::Meeting;

/// Numbers that one thread adds up at a time, on the CPU.
const CHUNK: usize = 1 << 14;

/// Devices that train together: CPUs, for tests, or GPUs.
#[derive(Clone, Debug)]
pub struct World {
    devices: Vec<Device>,
}

impl World {
    /// A world of these devices, which may be a single one.
    ///
    /// # Errors
    /// If there are none, if a CPU is among GPUs or a GPU is there twice, or if GPUs are to work together and NCCL is not
    /// installed.
    pub fn new(devices: Vec<Device>) -> Result<World, Error> {
        let unfit = |problem: &str| Err(Error::Unfit(problem.to_owned()));
        let mut gpus: Vec<usize> = devices.iter().filter_map(gpu).map(|gpu| gpu.ordinal()).collect();
        if devices.is_empty() {
            return unfit("a training needs a device");
        }
        if !gpus.is_empty() && gpus.len() < devices.len() {
            return unfit("a CPU and a GPU cannot train together; name GPUs only");
        }
        gpus.sort_unstable();
        if let Some(twice) = gpus.windows(2).find(|pair| pair[0] == pair[1]) {
            return unfit(&format!("cuda:{} is named twice; each GPU has one part in a training", twice[0]));
        }
        if !gpus.is_empty() {
            nccl::version()?;
        }
        Ok(World { devices })
    }

    /// How many devices.
    pub fn size(&self) -> usize {
        self.devices.len()
    }

    /// The devices, by rank.
    pub fn devices(&self) -> &[Device] {
        &self.devices
    }

    /// Does `first` on the first device, in this thread, and `others` on each other one, in threads of their own, until all
    /// are done. All must come to the same meetings in the same order. Not to be called from a thread of the pool
    /// that the CPU's work is shared among.
    ///
    /// # Errors
    /// That of the device that failed first; the others are broken off.
    pub fn run<T, E: From<Error>>(
        &self,
        first: impl FnOnce(&Member) -> Result<T, E>,
        others: impl Fn(&Member) -> Result<(), Error> + Sync,
    ) -> Result<T, E> {
        let meeting = Arc::new(Meeting::of(self.size()));
        let mut members = self.members(&meeting)?.into_iter();
        let lead = members.next().expect("a world has a device");
        std::thread::scope(|scope| {
            let others = &others;
            let threads: Vec<_> =
                members.map(|member| scope.spawn(move || member.at_work(|member| others(member)))).collect();
            let done = lead.at_work(first);
            let mut ends = Vec::with_capacity(threads.len());
            for thread in threads {
                ends.push(thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
            }
            match meeting.broken_by() {
                Some(rank) if rank > 0 => {
                    Err(ends.swap_remove(rank - 1).err().unwrap_or(Error::Elsewhere).into())
                }
                _ => done,
            }
        })
    }

    fn members(&self, meeting: &Arc<Meeting>) -> Result<Vec<Member>, Error> {
        let gpus: Vec<_> = self.devices.iter().filter_map(gpu).collect();
        let mut sums = match gpus.is_empty() {
            true => Vec::new(),
            false => Communicator::all(&gpus)?,
        }
        .into_iter();
        let member = |(rank, device): (usize, &Device)| {
            let sums = sums.next().map_or(Sums::Host, Sums::Gpus);
            let meeting = Arc::clone(meeting);
            Member(Arc::new(Place { rank, size: self.size(), device: device.clone(), meeting, sums }))
        };
        Ok(self.devices.iter().enumerate().map(member).collect())
    }
}

fn gpu(device: &Device) -> Option<&crate::cuda::Cuda> {
    match device {
        Device::Cpu(_) => None,
        Device::Cuda(cuda) => Some(cuda),
    }
}

/// A device of a world at work. Clones are the same member.
#[derive(Clone)]
pub struct Member(Arc<Place>);

struct Place {
    rank: usize,
    size: usize,
    device: Device,
    meeting: Arc<Meeting>,
    sums: Sums,
}

/// Who adds up.
enum Sums {
    /// This machine's processor, in the order of the ranks.
    Host,
    /// NCCL.
    Gpus(Communicator),
}

impl Member {
    /// Its place among the others, from zero.
    pub fn rank(&self) -> usize {
        self.0.rank
    }

    /// How many there are.
    pub fn size(&self) -> usize {
        self.0.size
    }

    /// Its device.
    pub fn device(&self) -> &Device {
        &self.0.device
    }

    /// Waits for all others and gives what all brought, by rank.
    ///
    /// # Errors
    /// If another one failed.
    pub fn exchange<T: Send + Sync + 'static>(&self, value: T) -> Result<Vec<Arc<T>>, Error> {
        self.0.meeting.exchange(self.0.rank, value)
    }

    /// What the first one makes, for all; the others make nothing.
    pub(crate) fn of_first<T: Send + Sync + 'static>(
        &self,
        make: impl FnOnce() -> Result<T, Error>,
    ) -> Result<Arc<T>, Error> {
        let made = (self.rank() == 0).then(make).transpose()?;
        let mut all = self.exchange(made.map(Arc::new))?;
        let first = all.swap_remove(0);
        Ok(Arc::clone(first.as_ref().as_ref().expect("the first one made it")))
    }

    /// Replaces values by their sums over all members. The host does not wait for a GPU.
    pub(crate) fn sum(&self, values: &mut Tensor) -> Result<(), Error> {
        match &self.0.sums {
            Sums::Gpus(communicator) => {
                self.exchange(())?;
                let count = values.rows() * values.columns();
                communicator.sum(values.buffer_mut(), count)
            }
            Sums::Host => {
                let all = self.exchange(values.to_vec()?)?;
                values.values_mut().par_chunks_mut(CHUNK).enumerate().for_each(|(place, sums)| {
                    let range = place * CHUNK..place * CHUNK + sums.len();
                    sums.copy_from_slice(&all[0][range.clone()]);
                    for more in &all[1..] {
                        sums.iter_mut().zip(&more[range.clone()]).for_each(|(sum, value)| *sum += value);
                    }
                });
                Ok(())
            }
        }
    }

    /// Works, and leaves when all others are done, too; at once, if it fails or panics.
    fn at_work<T, E: From<Error>>(self, work: impl FnOnce(&Member) -> Result<T, E>) -> Result<T, E> {
        let leaving = Leaving(&self);
        let done = work(&self)?;
        // A sum that is done here may still be read from by another GPU.
        self.device().synchronize()?;
        self.exchange(())?;
        if let Sums::Gpus(communicator) = &self.0.sums {
            communicator.done();
        }
        std::mem::forget(leaving);
        Ok(done)
    }
}

/// Tells the others, when it is dropped, that nobody is to wait for this one.
struct Leaving<'a>(&'a Member);

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        self.0.0.meeting.break_off(self.0.rank());
    }
}

#[cfg(test)]
mod tests;
