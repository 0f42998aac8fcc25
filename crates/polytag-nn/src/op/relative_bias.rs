//! MPNet's relative bias: what is added to the score of a query and a key, by how far they are apart.
//!
//! Near distances have a bucket each, farther ones share buckets that grow with the logarithm. The
//! table of buckets is spread out over all distances once a forward pass, so that attention looks a
//! bias up without knowing of buckets.

use crate::batch::LONGEST;
use crate::cuda::{Buffer, KernelSource, Launch};
use crate::device::Device;
use crate::element::Element;
use crate::error::Error;
use crate::parameters::ParameterId;
use crate::tape::{Backward, Flow, Tape, Var};
use crate::tensor::Tensor;

const KERNELS: KernelSource =
    KernelSource { module: "relative_bias", text: include_str!("relative_bias.cu"), define: "" };

/// How many distances there are between tokens of a sequence: key minus query, moved to begin at zero.
pub const DISTANCES: usize = 2 * LONGEST - 1;

/// Beyond this distance all share the last bucket.
const FARTHEST: f32 = 128.0;

/// Spreads a weight of `[buckets, heads]` out to `[heads, DISTANCES]`.
pub fn relative_bias(tape: &mut Tape<'_>, weight: ParameterId) -> Result<Var, Error> {
    let parameters = tape.parameters();
    let (buckets, heads) = (parameters.info(weight).rows, parameters.info(weight).columns);
    let places: Vec<u32> = (0..DISTANCES).map(|place| bucket(place, buckets)).collect();
    let device = parameters.device();
    let mut out = Tensor::scratch(device, heads, DISTANCES, Element::F32)?;
    match device {
        Device::Cpu(_) => {
            let values = parameters.values(weight);
            for (head, row) in out.values_mut().chunks_exact_mut(DISTANCES).enumerate() {
                for (value, &bucket) in row.iter_mut().zip(&places) {
                    *value = values[bucket as usize * heads + head];
                }
            }
        }
        Device::Cuda(cuda) => {
            let table = Buffer::upload(cuda, &places)?;
            Launch::new(cuda, &KERNELS, "spread_buckets")
                .shape(DISTANCES.div_ceil(256), heads, 256)
                .address(parameters.master_address(weight))
                .buffer(&table)
                .address(out.address())
                .int(DISTANCES)
                .run()?;
        }
    }
    let op = tape
        .wants(&[], &[weight])
        .then(|| -> Box<dyn Backward> { Box::new(RelativeBias { weight, places }) });
    Ok(tape.push(out, op))
}

/// The bucket of a distance, given as its place from zero.
fn bucket(place: usize, buckets: usize) -> u32 {
    let distance = place as i64 - (LONGEST as i64 - 1);
    let half = buckets / 2;
    let near = half / 2;
    let size = distance.unsigned_abs() as usize;
    let of_size = if size < near {
        size
    } else {
        let far = (size as f32 / near as f32).ln() / (FARTHEST / near as f32).ln() * (half - near) as f32;
        (near + far as usize).min(half - 1)
    };
    let later = if distance > 0 { half } else { 0 };
    (later + of_size) as u32
}

struct RelativeBias {
    weight: ParameterId,
    places: Vec<u32>,
}

impl Backward for RelativeBias {
    fn name(&self) -> &'static str {
        "relative bias"
    }

    fn backward(self: Box<Self>, gradient: Tensor, flow: &mut Flow<'_>) -> Result<(), Error> {
        if !flow.trains(self.weight) {
            return Ok(());
        }
        let parameters = flow.parameters();
        let (buckets, heads) = (parameters.info(self.weight).rows, parameters.info(self.weight).columns);
        match parameters.device().clone() {
            Device::Cpu(_) => {
                let (place, accumulate) = parameters.gradient(self.weight);
                if !accumulate {
                    place.fill(0.0);
                }
                for (head, row) in gradient.values().chunks_exact(DISTANCES).enumerate() {
                    for (value, &bucket) in row.iter().zip(&self.places) {
                        place[bucket as usize * heads + head] += value;
                    }
                }
                Ok(())
            }
            Device::Cuda(cuda) => {
                let table = Buffer::upload(&cuda, &self.places)?;
                let (place, accumulate) = parameters.gradient_operand(self.weight);
                Launch::new(&cuda, &KERNELS, "gather_buckets")
                    .shape(buckets, heads, 32)
                    .address(gradient.address())
                    .buffer(&table)
                    .address(place.address)
                    .int(DISTANCES)
                    .int(usize::from(accumulate))
                    .run()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::testing::{Case, Matrix};

    #[test]
    fn distances_fall_into_the_buckets_they_were_trained_in() {
        let at = |distance: i64| bucket((distance + 511) as usize, 32);
        assert_eq!([0, -1, -7, -8, -9, -15].map(at), [0, 1, 7, 8, 8, 9]);
        assert_eq!([-16, -31, -32, -64, -127, -128, -511].map(at), [10, 11, 12, 14, 15, 15, 15]);
        assert_eq!([1, 7, 8, 16, 511].map(at), [17, 23, 24, 26, 31]);
    }

    #[test]
    fn gradients_match_finite_differences() {
        Case::new("relative bias")
            .weight(Matrix::random(32, 2, 1))
            .check_gradients(|tape, _, weights| relative_bias(tape, weights[0]));
    }

    #[test]
    fn the_gpu_agrees_with_the_cpu() {
        Case::new("relative bias")
            .weight(Matrix::random(32, 12, 1))
            .compare_devices(|tape, _, weights| relative_bias(tape, weights[0]));
    }
}
