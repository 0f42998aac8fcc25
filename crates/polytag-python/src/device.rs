//! Where a model works, and in what precision.

use std::path::{Path, PathBuf};

use polytag::method;
use polytag_nn::cuda::CudaOptions;
use polytag_nn::device::{Device, Precision};
use pyo3::prelude::*;

use crate::errors;

/// Where to work, as it was asked for.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    /// `auto`, `cpu`, `cuda` or `cuda:N`.
    pub(crate) device: String,
    /// `f32` or `int8`.
    pub(crate) precision: String,
    /// The folder that keeps compiled kernels, where there is one.
    pub(crate) cache: Option<PathBuf>,
}

impl Place {
    /// Opens the device for the model in the folder `dir`; one without a network needs none.
    pub(crate) fn for_model(&self, dir: &Path) -> PyResult<Device> {
        self.check()?;
        let used = method::uses_network(dir).map_err(errors::library)?;
        if used { self.open() } else { Ok(Device::cpu()) }
    }

    /// Whether it is a place at all, before anything is read.
    pub(crate) fn check(&self) -> PyResult<()> {
        let device = self.device.as_str();
        if !matches!(device, "auto" | "cpu" | "cuda") && self.ordinal().is_none() {
            return Err(errors::input(format!("device={device:?}: it is auto, cpu, cuda or cuda:N")));
        }
        match self.precision.as_str() {
            "f32" => Ok(()),
            "int8" if device.starts_with("cuda") => Err(errors::input(
                "the precision \"int8\" is for the CPU only; say device=\"cpu\", or leave it out",
            )),
            "int8" => Ok(()),
            other => Err(errors::input(format!("the precision {other:?} is not known: it is f32 or int8"))),
        }
    }

    /// Opens the device.
    pub(crate) fn open(&self) -> PyResult<Device> {
        self.check()?;
        if self.precision == "int8" {
            return Ok(Device::cpu_in(Precision::EightBit));
        }
        let options = |ordinal| CudaOptions {
            ordinal,
            kernel_cache: self.cache.as_ref().map(|root| root.join("kernels")),
            ..CudaOptions::default()
        };
        match self.device.as_str() {
            "cpu" => Ok(Device::cpu()),
            "auto" => Ok(Device::auto(&options(0)).0),
            _ => Device::cuda(&options(self.ordinal().unwrap_or(0))).map_err(errors::engine),
        }
    }

    fn ordinal(&self) -> Option<usize> {
        self.device.strip_prefix("cuda:").and_then(|number| number.parse().ok())
    }
}
