//! Some rows of a weight as a value, such as the vectors of labels that are looked at in a step.

use std::sync::Arc;

use crate::cpu;
use crate::cuda::{Buffer, KernelSource, Launch};
use crate::device::Device;
use crate::element::Element;
use crate::error::Error;
use crate::parameters::ParameterId;
use crate::tape::{Backward, Flow, Tape, Var};
use crate::tensor::Tensor;

const KERNELS: KernelSource = KernelSource { module: "gather", text: include_str!("gather.cu"), define: "" };

/// Which rows, none of them twice.
#[derive(Clone)]
pub struct RowIds {
    ids: Arc<[u32]>,
    on_gpu: Option<Arc<Buffer>>,
}

impl RowIds {
    /// Rows that ops on `device` take.
    ///
    /// # Errors
    /// If a row is named twice, or the device is out of memory.
    pub fn new(device: &Device, ids: &[u32]) -> Result<RowIds, Error> {
        let mut sorted = ids.to_vec();
        sorted.sort_unstable();
        if let Some(twice) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(Error::Unfit(format!("row {} is to be taken twice", twice[0])));
        }
        let on_gpu = match device {
            Device::Cpu(_) => None,
            Device::Cuda(cuda) => Some(Arc::new(Buffer::upload(cuda, ids)?)),
        };
        Ok(RowIds { ids: ids.into(), on_gpu })
    }

    /// The rows in their order.
    pub fn ids(&self) -> &[u32] {
        &self.ids
    }

    /// The rows, on a GPU.
    pub(super) fn buffer(&self) -> &Buffer {
        self.on_gpu.as_ref().expect("rows for a GPU lie there")
    }
}

/// Rows of a weight, which is taken as rows of `width` numbers whatever its shape: `[rows, width]`, f32.
///
/// # Panics
/// If the weight has no such row.
pub fn gather(tape: &mut Tape<'_>, weight: ParameterId, rows: &RowIds, width: usize) -> Result<Var, Error> {
    let parameters = tape.parameters();
    let (device, info) = (parameters.device(), parameters.info(weight));
    let most = rows.ids.iter().max().map_or(0, |&row| row as usize + 1);
    assert!(most * width <= info.len(), "{} has the rows", info.name);
    let mut out = Tensor::scratch(device, rows.ids.len(), width, Element::F32)?;
    match device {
        Device::Cpu(_) => {
            let values = parameters.values(weight);
            for (row, &id) in out.values_mut().chunks_exact_mut(width).zip(rows.ids.iter()) {
                row.copy_from_slice(&values[id as usize * width..][..width]);
            }
        }
        Device::Cuda(cuda) => {
            let length = rows.ids.len() * width;
            Launch::new(cuda, &KERNELS, "gather")
                .shape(length.div_ceil(256), 1, 256)
                .address(parameters.master_address(weight))
                .buffer(rows.buffer())
                .address(out.address())
                .long(length)
                .int(width)
                .run()?;
        }
    }
    let op = tape
        .wants(&[], &[weight])
        .then(|| -> Box<dyn Backward> { Box::new(Gather { weight, rows: rows.clone(), width }) });
    Ok(tape.push(out, op))
}

struct Gather {
    weight: ParameterId,
    rows: RowIds,
    width: usize,
}

impl Backward for Gather {
    fn name(&self) -> &'static str {
        "gather"
    }

    fn backward(self: Box<Self>, gradient: Tensor, flow: &mut Flow<'_>) -> Result<(), Error> {
        let width = self.width;
        match gradient.device() {
            Device::Cpu(_) => {
                let place = flow.parameters().cleared_gradient(self.weight);
                for (row, &id) in gradient.values().chunks_exact(width).zip(self.rows.ids.iter()) {
                    cpu::axpy(1.0, row, &mut place[id as usize * width..][..width]);
                }
                Ok(())
            }
            Device::Cuda(cuda) => {
                let place = flow.parameters().cleared_gradient_operand(self.weight)?;
                let length = self.rows.ids.len() * width;
                Launch::new(&cuda, &KERNELS, "gather_gradient")
                    .shape(length.div_ceil(256), 1, 256)
                    .address(gradient.address())
                    .buffer(self.rows.buffer())
                    .address(place.address)
                    .long(length)
                    .int(width)
                    .run()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::testing::{self, Case, Matrix};

    /// Rows of a weight, some of which are taken by two.
    fn build(tape: &mut Tape<'_>, weight: ParameterId, width: usize) -> Result<Var, Error> {
        let device = tape.parameters().device().clone();
        let (some, others) = (RowIds::new(&device, &[6, 0, 3])?, RowIds::new(&device, &[3, 1, 2])?);
        let some = gather(tape, weight, &some, width)?;
        let others = gather(tape, weight, &others, width)?;
        testing::sum(tape, &some, &others)
    }

    fn case() -> Case {
        Case::new("gather").element(Element::F32).weight(Matrix::random(7, 5, 1))
    }

    #[test]
    fn gradients_match_finite_differences() {
        case().check_gradients(|tape, _, weights| build(tape, weights[0], 5));
        // The same numbers, taken as rows of one.
        case().check_gradients(|tape, _, weights| build(tape, weights[0], 1));
    }

    #[test]
    fn the_gpu_agrees_with_the_cpu() {
        case().compare_devices(|tape, _, weights| build(tape, weights[0], 5));
        case().compare_devices(|tape, _, weights| build(tape, weights[0], 1));
    }

    #[test]
    fn no_row_is_taken_twice() {
        assert!(RowIds::new(&Device::cpu(), &[2, 1, 2]).err().unwrap().to_string().contains("row 2"));
    }
}
