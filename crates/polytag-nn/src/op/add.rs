//! Sums of gradients: a value that several ops took has a gradient from each.

use crate::cpu;
use crate::cuda::{KernelSource, Launch};
use crate::device::Device;
use crate::element::Element;
use crate::error::Error;
use crate::tensor::Tensor;

const KERNELS: KernelSource = KernelSource { module: "add", text: include_str!("add.cu"), define: "" };

/// Adds `other` to a matrix that nobody shares.
pub(crate) fn add_to(mut sum: Tensor, other: &Tensor) -> Result<Tensor, Error> {
    assert_eq!((sum.rows(), sum.columns()), (other.rows(), other.columns()), "sums are of one shape");
    match sum.device() {
        Device::Cpu(_) => {
            cpu::axpy(1.0, other.values(), sum.values_mut());
        }
        Device::Cuda(cuda) => {
            assert_eq!(sum.element(), other.element(), "sums are of one element");
            let name = match sum.element() {
                Element::F32 => "add_f32",
                Element::Bf16 => "add_bf16",
            };
            let length = sum.rows() * sum.columns();
            Launch::new(&cuda, &KERNELS, name)
                .shape(length.div_ceil(8 * 256), 1, 256)
                .address(sum.address())
                .address(other.address())
                .long(length)
                .run()?;
        }
    }
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::testing;

    #[test]
    fn matrices_are_added_on_every_device() {
        for device in testing::devices("sums of gradients") {
            for element in [Element::F32, device.activations()] {
                for columns in [1, 7, 8, 300] {
                    let values: Vec<f32> = (0..3 * columns).map(|i| i as f32).collect();
                    let sum = Tensor::new(&device, (3, columns), &values, element).unwrap();
                    let other =
                        Tensor::new(&device, (3, columns), &vec![2.0; values.len()], element).unwrap();
                    let sum = add_to(sum, &other).unwrap().to_vec().unwrap();
                    for (sum, value) in sum.iter().zip(values) {
                        assert!((sum - value - 2.0).abs() <= 0.01 * value, "{sum} {value}");
                    }
                }
            }
        }
    }
}
