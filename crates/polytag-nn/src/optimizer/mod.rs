//! AdamW: weights and gradients enter, other weights leave, in one pass over memory.
//!
//! A step has two parts: the norm of the whole gradient, and the update, which clips on the way. Both go over
//! all weights at once, whatever matrices they are.
//!
//! On a GPU the host does not wait: the update reads the norm where the device has it. A norm that is not a
//! finite number makes that update, and all that are asked for after it, change nothing; the host hears of it
//! from [`AdamW::settle`], which is called every few steps, and is then where it was before the step that
//! failed. On the CPU it hears of it at once.

mod cuda;
mod layout;

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::cpu;
use crate::device::Device;
use crate::element::Element;
use crate::error::Error;
use crate::parameters::{Arenas, Parameters};
use crate::tensor::Tensor;
use cuda::OnGpu;
use layout::{Segment, segments};

/// How many weights are worked on at a time.
const TILE: usize = 4096;

/// After how many steps a GPU is asked whether all went well. Asking costs a wait for its work.
const SETTLE_EVERY: u64 = 32;

/// Settings that weights share; [`ParameterInfo::group`](crate::parameters::ParameterInfo) picks one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Group {
    /// The learning rate, before the schedule.
    pub learning_rate: f64,
    /// Which share of a weight is taken away at each step, times the learning rate.
    pub weight_decay: f64,
    /// How slowly the means of the gradient and of its square change.
    pub betas: (f64, f64),
    /// What is added to the root of the mean square.
    pub epsilon: f64,
}

impl Default for Group {
    fn default() -> Group {
        Group { learning_rate: 1e-4, weight_decay: 0.01, betas: (0.9, 0.999), epsilon: 1e-8 }
    }
}

impl Group {
    fn check(&self) -> Result<(), Error> {
        let Group { learning_rate, weight_decay, betas, epsilon } = self;
        let not_negative = |value: f64| value >= 0.0 && value.is_finite();
        let share = |value: f64| (0.0..1.0).contains(&value);
        let problem = if !not_negative(*learning_rate) {
            format!("a learning rate of {learning_rate} is not possible")
        } else if !not_negative(*weight_decay) {
            format!("a weight decay of {weight_decay} is not possible")
        } else if !share(betas.0) || !share(betas.1) {
            format!("betas of {} and {} are not possible; they lie in [0, 1)", betas.0, betas.1)
        } else if !(*epsilon > 0.0 && epsilon.is_finite()) {
            format!("an epsilon of {epsilon} is not possible; it is greater than zero")
        } else {
            return Ok(());
        };
        Err(Error::Unfit(problem))
    }
}

/// What is the same for all weights of a group at a step: the bias corrections are in it.
#[derive(Clone, Copy)]
struct Setting {
    keep: f32,
    step_size: f32,
    root_scale: f32,
    epsilon: f32,
    beta1: f32,
    rest1: f32,
    beta2: f32,
    rest2: f32,
}

impl Setting {
    fn new(group: &Group, decays: bool, factor: f64, step: u64) -> Setting {
        let (beta1, beta2) = group.betas;
        let rate = group.learning_rate * factor;
        let power = |beta: f64| beta.powf(step as f64);
        Setting {
            keep: if decays { (1.0 - rate * group.weight_decay) as f32 } else { 1.0 },
            step_size: (rate / (1.0 - power(beta1))) as f32,
            root_scale: (1.0 / (1.0 - power(beta2)).sqrt()) as f32,
            epsilon: group.epsilon as f32,
            beta1: beta1 as f32,
            rest1: (1.0 - beta1) as f32,
            beta2: beta2 as f32,
            rest2: (1.0 - beta2) as f32,
        }
    }

    /// As the kernels read it.
    fn numbers(&self) -> [f32; 8] {
        let Setting { keep, step_size, root_scale, epsilon, beta1, rest1, beta2, rest2 } = *self;
        [keep, step_size, root_scale, epsilon, beta1, rest1, beta2, rest2]
    }
}

/// What a step found.
#[derive(Clone, Debug)]
pub struct StepReport {
    /// Which step it was, counted from one.
    pub step: u64,
    norm: Norm,
}

#[derive(Clone, Debug)]
enum Norm {
    Known(f32),
    OnGpu(Tensor),
}

impl StepReport {
    /// The norm of the whole gradient, before clipping. On a GPU this waits for the step to be done.
    pub fn gradient_norm(&self) -> Result<f32, Error> {
        match &self.norm {
            Norm::Known(norm) => Ok(*norm),
            Norm::OnGpu(norm) => Ok(norm.to_vec()?[0]),
        }
    }
}

/// What an optimizer knows besides the weights: enough to go on to the same bytes.
#[derive(Clone, Debug, PartialEq)]
pub struct AdamWState {
    /// How many steps were taken.
    pub steps: u64,
    /// The means of the gradients, for all weights as they lie end to end.
    pub first: Vec<f32>,
    /// The means of their squares.
    pub second: Vec<f32>,
}

/// AdamW with decoupled weight decay and groups of settings.
pub struct AdamW {
    groups: Vec<Group>,
    steps: u64,
    settled: u64,
    first: Tensor,
    second: Tensor,
    on_gpu: Option<OnGpu>,
}

impl AdamW {
    /// An optimizer for these weights that has not taken a step.
    ///
    /// # Errors
    /// If a setting is not possible, or a weight is of a group that is not there.
    pub fn new(parameters: &mut Parameters, groups: Vec<Group>) -> Result<AdamW, Error> {
        groups.iter().try_for_each(Group::check)?;
        let device = parameters.device().clone();
        let arenas = parameters.arenas()?;
        check_groups(&arenas, groups.len())?;
        let total = arenas.masters.columns();
        let moments = || Tensor::zeros(&device, 1, total, Element::F32);
        let (first, second) = (moments()?, moments()?);
        let on_gpu = match &device {
            Device::Cpu(_) => None,
            Device::Cuda(cuda) => Some(OnGpu::new(cuda, 2 * groups.len())?),
        };
        // Asking for the arenas marked all gradients as written: the first step begins with none.
        parameters.forget_gradients();
        Ok(AdamW { groups, steps: 0, settled: 0, first, second, on_gpu })
    }

    /// How many steps were taken.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Moves the weights that are trained against their gradients and forgets the gradients.
    ///
    /// `factor` is the schedule's; a gradient whose norm is greater than `clip` is shortened to it.
    ///
    /// # Errors
    /// If the norm is not a finite number, now or (on a GPU) at one of the steps before: then weights and
    /// state are as they were before that step.
    pub fn step(
        &mut self,
        parameters: &mut Parameters,
        factor: f32,
        clip: Option<f32>,
    ) -> Result<StepReport, Error> {
        let arenas = parameters.arenas()?;
        check_groups(&arenas, self.groups.len())?;
        let segments = segments(arenas.infos, arenas.masters.columns());
        let step = self.steps + 1;
        let settings: Vec<Setting> = self
            .groups
            .iter()
            .flat_map(|group| {
                [false, true].map(|decays| Setting::new(group, decays, f64::from(factor), step))
            })
            .collect();
        let norm = match &mut self.on_gpu {
            None => {
                let norm = norm(arenas.gradients.values(), &segments);
                if norm.is_finite() {
                    let scale = clip.filter(|&clip| norm > clip).map_or(1.0, |clip| clip / norm);
                    self.update(arenas, &segments, &settings, scale);
                }
                Norm::Known(norm)
            }
            Some(on_gpu) => {
                let moments = (&mut self.first, &mut self.second);
                Norm::OnGpu(on_gpu.step(arenas, moments, (&segments, &settings), (step, clip))?)
            }
        };
        parameters.forget_gradients();
        if let Norm::Known(norm) = norm
            && !norm.is_finite()
        {
            return Err(not_finite(step));
        }
        parameters.forget_packed();
        self.steps = step;
        if step >= self.settled + SETTLE_EVERY {
            self.settle()?;
        }
        Ok(StepReport { step, norm })
    }

    /// Waits until all steps asked for are taken.
    ///
    /// # Errors
    /// If the gradient of one had a norm that is not a finite number. Neither it nor those after it were
    /// taken, and [`AdamW::steps`] says again how many were: run the next one anew, with checks, to learn
    /// which op is at fault.
    pub fn settle(&mut self) -> Result<(), Error> {
        if let Some(on_gpu) = &mut self.on_gpu
            && let Some(refused) = on_gpu.take_refused()?
        {
            self.steps = refused - 1;
            self.settled = self.steps;
            return Err(not_finite(refused));
        }
        self.settled = self.steps;
        Ok(())
    }

    /// What is needed to go on later.
    ///
    /// # Errors
    /// Those of [`AdamW::settle`].
    pub fn state(&mut self) -> Result<AdamWState, Error> {
        self.settle()?;
        Ok(AdamWState { steps: self.steps, first: self.first.to_vec()?, second: self.second.to_vec()? })
    }

    /// Goes back to a state that was kept.
    ///
    /// # Errors
    /// If it is of other weights.
    pub fn restore(&mut self, state: &AdamWState) -> Result<(), Error> {
        let total = self.first.columns();
        if state.first.len() != total || state.second.len() != total {
            let given = state.first.len();
            return Err(Error::Unfit(format!(
                "the optimizer's state is of {given} weights, and there are {total}; it belongs to another model"
            )));
        }
        if let Some(on_gpu) = &mut self.on_gpu {
            // What was refused belongs to a past that is given up.
            on_gpu.take_refused()?;
        }
        let device = self.first.device();
        self.first = Tensor::new(&device, (1, total), &state.first, Element::F32)?;
        self.second = Tensor::new(&device, (1, total), &state.second, Element::F32)?;
        (self.steps, self.settled) = (state.steps, state.steps);
        Ok(())
    }

    fn update(&mut self, arenas: Arenas<'_>, segments: &[Segment], settings: &[Setting], scale: f32) {
        for Segment { weights, setting } in segments {
            let setting = settings[*setting];
            let masters = arenas.masters.values_mut()[weights.clone()].par_chunks_mut(TILE);
            let firsts = self.first.values_mut()[weights.clone()].par_chunks_mut(TILE);
            let seconds = self.second.values_mut()[weights.clone()].par_chunks_mut(TILE);
            let gradients = arenas.gradients.values()[weights.clone()].par_chunks(TILE);
            masters.zip(firsts).zip(seconds).zip(gradients).for_each(
                |(((masters, firsts), seconds), gradients)| {
                    let moments = firsts.iter_mut().zip(seconds);
                    for ((master, (first, second)), gradient) in
                        masters.iter_mut().zip(moments).zip(gradients)
                    {
                        let gradient = scale * gradient;
                        *first = setting.beta1 * *first + setting.rest1 * gradient;
                        *second = setting.beta2 * *second + setting.rest2 * gradient * gradient;
                        let root = second.sqrt() * setting.root_scale + setting.epsilon;
                        *master = setting.keep * *master - setting.step_size * *first / root;
                    }
                },
            );
        }
    }
}

/// The norm of the gradient of all weights that are trained. Its parts are added up in order.
fn norm(gradients: &[f32], segments: &[Segment]) -> f32 {
    let squares = segments.iter().map(|segment| cpu::sum_of_squares(&gradients[segment.weights.clone()]));
    squares.sum::<f64>().sqrt() as f32
}

fn check_groups(arenas: &Arenas<'_>, groups: usize) -> Result<(), Error> {
    match arenas.infos.iter().find(|info| info.group >= groups) {
        None => Ok(()),
        Some(info) => Err(Error::Unfit(format!(
            "{} is of group {} of the optimizer, and there are {groups}, from zero",
            info.name, info.group
        ))),
    }
}

fn not_finite(step: u64) -> Error {
    Error::NotFinite { what: "the norm of the gradient".to_owned(), place: format!(", at step {step}") }
}

#[cfg(test)]
mod tests;
