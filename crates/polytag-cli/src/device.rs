//! Which device a command works on, and in what precision it predicts, decided in one place.

use std::path::Path;
use std::str::FromStr;

use clap::{Args, ValueEnum};
use polytag::method;
use polytag_nn::cuda::CudaOptions;
use polytag_nn::device::{Device, Precision};
use polytag_nn::world::World;

use crate::cache::CacheArguments;
use crate::failure::{say, user_error};
use crate::settings::Session;

/// The option of every command that runs an encoder.
#[derive(Debug, Args)]
pub(crate) struct DeviceArgument {
    /// Where to work: auto (a GPU if there is one), cpu, cuda or cuda:N; `fit` also trains on several together
    /// (cuda:0,cuda:1)
    #[arg(long, default_value = "auto", value_name = "DEVICE", global = true)]
    device: Named,
}

/// What was named: a device, or a list of those that train together. A list of one ends with a comma (`cuda:0,`): it goes
/// the way of several, alone.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Named {
    One(Choice),
    Together(Vec<Choice>),
}

impl FromStr for Named {
    type Err = String;

    fn from_str(text: &str) -> Result<Named, String> {
        if !text.contains(',') {
            return text.parse().map(Named::One);
        }
        let names = text.strip_suffix(',').unwrap_or(text);
        let device = |name: &str| match name.parse()? {
            Choice::Auto => Err("a list names devices, such as cuda:0,cuda:1".to_owned()),
            choice => Ok(choice),
        };
        names.split(',').map(device).collect::<Result<_, String>>().map(Named::Together)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Choice {
    Auto,
    Cpu,
    Cuda(usize),
}

impl FromStr for Choice {
    type Err = String;

    fn from_str(text: &str) -> Result<Choice, String> {
        match text {
            "auto" => Ok(Choice::Auto),
            "cpu" => Ok(Choice::Cpu),
            "cuda" => Ok(Choice::Cuda(0)),
            _ => {
                let number = text.strip_prefix("cuda:").and_then(|number| number.parse().ok());
                number.map(Choice::Cuda).ok_or_else(|| "it is auto, cpu, cuda or cuda:N".to_owned())
            }
        }
    }
}

/// The option of commands that encode more than they train.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct PrecisionArgument {
    /// What an encoder computes in: int8 is faster on a CPU, which --device auto then takes, with scores that differ a
    /// little; steps of a training are in f32 in any case
    #[arg(long, value_enum, default_value_t = Choices::F32)]
    precision: Choices,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Choices {
    /// As the encoder was made; on a GPU products are in bf16
    F32,
    /// The products of its layers in 8-bit integers; on a CPU only
    Int8,
}

impl PrecisionArgument {
    /// Whether it is 8-bit integers.
    pub(crate) fn is_int8(self) -> bool {
        self.precision == Choices::Int8
    }
}

/// The options of every command that may run the encoder of a model.
#[derive(Debug, Args)]
pub(crate) struct EngineArguments {
    #[command(flatten)]
    device: DeviceArgument,
    #[command(flatten)]
    pub(crate) cache: CacheArguments,
}

impl EngineArguments {
    /// The device for the model in `dir`. One without a network needs none, and nothing is said of it.
    pub(crate) fn for_model(&self, dir: &Path, session: &Session) -> anyhow::Result<Device> {
        self.open(method::uses_network(dir)?, session)
    }

    /// The same for a command that only predicts.
    pub(crate) fn for_prediction(
        &self,
        dir: &Path,
        precision: PrecisionArgument,
        session: &Session,
    ) -> anyhow::Result<Device> {
        self.open_in(method::uses_network(dir)?, precision, session)
    }

    /// The device in a precision, if a network is `used`.
    pub(crate) fn open_in(
        &self,
        used: bool,
        precision: PrecisionArgument,
        session: &Session,
    ) -> anyhow::Result<Device> {
        match used {
            true => self.device.open_in(precision, self.cache.root().as_deref(), session),
            false => Ok(Device::cpu()),
        }
    }

    /// The devices for a fit: the first one, and all of them where several were named. Those that were named together
    /// are opened in any case; they work in floats.
    pub(crate) fn open_all(
        &self,
        used: bool,
        precision: PrecisionArgument,
        session: &Session,
    ) -> anyhow::Result<(Device, Option<World>)> {
        let choices = match &self.device.device {
            Named::Together(_) if precision.is_int8() => {
                return Err(user_error("--precision int8 is for one device; name one".to_owned()));
            }
            Named::Together(choices) => choices,
            Named::One(_) => return Ok((self.open_in(used, precision, session)?, None)),
        };
        let root = self.cache.root();
        let open = |&choice: &Choice| DeviceArgument::open_one(choice, root.as_deref(), session);
        let world = World::new(choices.iter().map(open).collect::<anyhow::Result<_>>()?)?;
        Ok((world.devices()[0].clone(), Some(world)))
    }

    /// The device, if a network is `used`.
    pub(crate) fn open(&self, used: bool, session: &Session) -> anyhow::Result<Device> {
        if used { self.device.open(self.cache.root().as_deref(), session) } else { Ok(Device::cpu()) }
    }
}

impl DeviceArgument {
    /// Opens the device; kernels are kept in `kernels` of the cache folder, if there is one. What `auto`
    /// came to is told, unless the session is quiet; a GPU that was asked for and cannot be used is an
    /// error that says why.
    pub(crate) fn open(&self, cache_root: Option<&Path>, session: &Session) -> anyhow::Result<Device> {
        DeviceArgument::open_one(self.one()?, cache_root, session)
    }

    /// The device that was named.
    fn one(&self) -> anyhow::Result<Choice> {
        match &self.device {
            Named::One(choice) => Ok(*choice),
            Named::Together(_) => {
                let why = "--device names a list, and only `fit` works on several devices; name one";
                Err(user_error(why.to_owned()))
            }
        }
    }

    fn open_one(choice: Choice, cache_root: Option<&Path>, session: &Session) -> anyhow::Result<Device> {
        let options = |ordinal| CudaOptions {
            ordinal,
            kernel_cache: cache_root.map(|root| root.join("kernels")),
            ..CudaOptions::default()
        };
        match choice {
            Choice::Cpu => Ok(Device::cpu()),
            Choice::Cuda(ordinal) => Ok(Device::cuda(&options(ordinal))?),
            Choice::Auto => {
                let (device, no_gpu) = Device::auto(&options(0));
                // The reason can be long, and most who have no GPU know it.
                let hint = no_gpu.map(|_| "; `--device cuda` says why it is no GPU").unwrap_or_default();
                if !session.quiet {
                    say(&format!("device: {}{hint}", device.name()));
                }
                Ok(device)
            }
        }
    }

    /// The same, in a precision. Integers are for the CPU, which `auto` then takes; a GPU that was asked for is an
    /// error.
    pub(crate) fn open_in(
        &self,
        precision: PrecisionArgument,
        cache_root: Option<&Path>,
        session: &Session,
    ) -> anyhow::Result<Device> {
        if !precision.is_int8() {
            return self.open(cache_root, session);
        }
        let device = Device::cpu_in(Precision::EightBit);
        match self.one()? {
            Choice::Cuda(_) => {
                let remedy = "say --device cpu, or leave out --precision";
                return Err(user_error(format!("--precision int8 is for the CPU only; {remedy}")));
            }
            Choice::Auto if !session.quiet => say(&format!("device: {}", device.name())),
            Choice::Auto | Choice::Cpu => {}
        }
        Ok(device)
    }

    /// What PyTorch calls the device that was opened.
    pub(crate) fn torch_name(&self, opened: &Device) -> String {
        match (opened, &self.device) {
            (Device::Cpu(_), _) => "cpu".to_owned(),
            (Device::Cuda(_), Named::One(Choice::Cuda(ordinal))) => format!("cuda:{ordinal}"),
            (Device::Cuda(_), _) => "cuda:0".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_go_by_name() {
        for (text, choice) in [
            ("auto", Some(Choice::Auto)),
            ("cpu", Some(Choice::Cpu)),
            ("cuda", Some(Choice::Cuda(0))),
            ("cuda:3", Some(Choice::Cuda(3))),
            ("cuda:", None),
            ("cuda:-1", None),
            ("gpu", None),
        ] {
            assert_eq!(text.parse::<Named>().ok(), choice.map(Named::One), "{text}");
        }
    }

    #[test]
    fn several_devices_are_a_list_and_so_is_one_with_a_comma() {
        let list = |text: &str| match text.parse::<Named>() {
            Ok(Named::Together(choices)) => Some(choices),
            _ => None,
        };
        assert_eq!(list("cuda:0,cuda:2"), Some(vec![Choice::Cuda(0), Choice::Cuda(2)]));
        assert_eq!(list("cuda:1,"), Some(vec![Choice::Cuda(1)]));
        assert_eq!(list("cpu,cpu,"), Some(vec![Choice::Cpu, Choice::Cpu]));
        for text in [",", "cuda:0,,cuda:1", "auto,cuda:0", "cuda:0, cuda:1", "cuda:0,gpu"] {
            assert!(text.parse::<Named>().is_err(), "{text}");
        }
    }
}
