//! Which device a command works on, decided in one place.

use std::path::Path;
use std::str::FromStr;

use clap::Args;
use polytag::method;
use polytag_nn::cuda::CudaOptions;
use polytag_nn::device::Device;

use crate::cache::CacheArguments;
use crate::failure::say;
use crate::settings::Session;

/// The option of every command that runs an encoder.
#[derive(Debug, Args)]
pub(crate) struct DeviceArgument {
    /// Where to work: auto (a GPU if there is one), cpu, cuda or cuda:N
    #[arg(long, default_value = "auto", value_name = "DEVICE", global = true)]
    device: Choice,
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
        let options = |ordinal| CudaOptions {
            ordinal,
            kernel_cache: cache_root.map(|root| root.join("kernels")),
            ..CudaOptions::default()
        };
        match self.device {
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

    /// What PyTorch calls the device that was opened.
    pub(crate) fn torch_name(&self, opened: &Device) -> String {
        match (opened, self.device) {
            (Device::Cpu(_), _) => "cpu".to_owned(),
            (Device::Cuda(_), Choice::Cuda(ordinal)) => format!("cuda:{ordinal}"),
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
            assert_eq!(text.parse::<Choice>().ok(), choice, "{text}");
        }
    }
}
