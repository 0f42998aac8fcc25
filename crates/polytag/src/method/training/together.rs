//! A training from its first step to its last, on one device or on several that train together.

use polytag_nn::device::Device;
use polytag_nn::error::Error;
use polytag_nn::optimizer::Group;
use polytag_nn::parameters::{Parameters, ParametersBuilder};
use polytag_nn::train::{Ended, Objective, Point, TrainConfig, Trainer, Watch};

use super::told::Told;
use crate::method::TrainContext;
use crate::method::error::MethodError;
use crate::progress::Event;

/// Makes what a device trains, out of what all of them share.
type MakeObjective<'a, 'o> = &'a (dyn Fn(&Device) -> Result<Box<dyn Objective + 'o>, Error> + Sync);

/// A training before its first step.
pub(in crate::method) struct Training {
    /// How it is trained: in as many parts as all devices have together.
    pub(in crate::method) config: TrainConfig,
    /// The optimizer's settings.
    pub(in crate::method) groups: Vec<Group>,
    /// The weights to begin with.
    pub(in crate::method) builder: ParametersBuilder,
    /// What else it is a function of.
    pub(in crate::method) about: String,
}

impl Training {
    /// Trains to the end, and tells of it; the weights, on the context's device, and the course.
    pub(in crate::method) fn finish(
        self,
        objective: MakeObjective<'_, '_>,
        told: Told<'_>,
        context: &TrainContext<'_>,
    ) -> Result<(Parameters, Vec<Point>), MethodError> {
        let done = match context.world {
            None => {
                let Training { config, groups, builder, about } = self;
                let mut parameters = builder.build(context.device)?;
                let mut trainer = Trainer::new(config, groups, &mut parameters, &about)?;
                let mut objective = objective(context.device)?;
                let points = watched(&mut trainer, (&mut parameters, objective.as_mut()), told, context)?;
                (parameters, points)
            }
            Some(world) => world.run(
                |first| -> Result<(Parameters, Vec<Point>), MethodError> {
                    let (mut parameters, trainer) = self.begin(context.device)?;
                    let mut trainer = trainer.join(first)?;
                    let mut objective = objective(context.device)?;
                    let points = watched(&mut trainer, (&mut parameters, objective.as_mut()), told, context)?;
                    Ok((parameters, points))
                },
                |other| {
                    let (mut parameters, trainer) = self.begin(other.device())?;
                    let mut trainer = trainer.join(other)?;
                    let mut objective = objective(other.device())?;
                    // The first one is asked to stop, is told of points and has the folder.
                    let mut nobody = Watch { stop: &|| false, note: &mut |_| {}, folder: None };
                    trainer.run(&mut parameters, objective.as_mut(), &mut nobody).map(drop)
                },
            )?,
        };
        let gpus = context.world.map_or(std::slice::from_ref(context.device), |world| world.devices());
        let peaks = gpus.iter().filter(|device| matches!(device, Device::Cuda(_)));
        if let Some(peak) = peaks.map(|device| device.peak_memory().0).max() {
            let gib = peak as f64 / f64::from(1 << 30);
            context.progress.report(Event::Measured { name: "peak memory of the GPU, GiB:", value: gib });
        }
        Ok(done)
    }

    /// Weights and trainer for one of several devices.
    fn begin(&self, device: &Device) -> Result<(Parameters, Trainer), Error> {
        let mut parameters = self.builder.clone().build(device)?;
        let (config, groups) = (self.config.clone(), self.groups.clone());
        let trainer = Trainer::new(config, groups, &mut parameters, &self.about)?;
        Ok((parameters, trainer))
    }
}

/// Trains where people watch; the course.
fn watched(
    trainer: &mut Trainer,
    (parameters, objective): (&mut Parameters, &mut dyn Objective),
    mut told: Told<'_>,
    context: &TrainContext<'_>,
) -> Result<Vec<Point>, MethodError> {
    let ended = trainer.run(
        parameters,
        objective,
        &mut Watch {
            stop: &|| context.stop.is_asked(),
            note: &mut |point| told.point(point),
            folder: context.folder,
        },
    )?;
    let points = told.end();
    if ended == Ended::Stopped { Err(MethodError::Stopped) } else { Ok(points) }
}
