//! The products of an encoder's layers: in the device's floating-point numbers, or in 8-bit integers.
//!
//! Integers are for passes that nobody will go back over, on a CPU of which they were asked. There is nothing
//! to differentiate, so that the ops here have no way back.

use super::{FeedForward, feed_forward, linear};
use crate::cpu::{self, EightBitThen, View};
use crate::device::{Device, Precision};
use crate::element::Element;
use crate::error::Error;
use crate::parameters::{ParameterId, Parameters};
use crate::tape::{Tape, Var};
use crate::tensor::Tensor;

/// How the products of a pass are computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Products {
    /// In floating-point numbers, as [`linear`] and [`feed_forward`] do.
    Float,
    /// In 8-bit integers.
    EightBit,
}

impl Products {
    /// How the products of this tape's pass are computed: as its device says, but in floating-point numbers wherever
    /// something is recorded.
    pub fn of(tape: &Tape<'_>) -> Products {
        match tape.parameters().device().precision() {
            Precision::EightBit if tape.is_inference() => Products::EightBit,
            _ => Products::Float,
        }
    }

    /// The same as [`linear`].
    pub fn linear(
        self,
        tape: &mut Tape<'_>,
        input: &Var,
        weight: ParameterId,
        bias: Option<ParameterId>,
    ) -> Result<Var, Error> {
        let parameters = tape.parameters();
        if self == Products::Float || !fits(parameters, weight) {
            return linear(tape, input, weight, bias);
        }
        let mut out = place(parameters, input, weight)?;
        let then = bias.map_or(EightBitThen::Store, |bias| EightBitThen::Bias(parameters.values(bias)));
        cpu::multiply_eight_bit(view(input), &parameters.eight_bit(weight), out.values_mut(), then);
        Ok(tape.push(out, None))
    }

    /// The same as [`feed_forward`].
    pub fn feed_forward(self, tape: &mut Tape<'_>, input: &Var, weights: FeedForward) -> Result<Var, Error> {
        let FeedForward { up, up_bias, down } = weights;
        let parameters = tape.parameters();
        if self == Products::Float || !fits(parameters, up) || !fits(parameters, down) {
            return feed_forward(tape, input, weights);
        }
        let mut out = place(parameters, input, down)?;
        let first = (&*parameters.eight_bit(up), parameters.values(up_bias));
        cpu::feed_forward_eight_bit(view(input), first, &parameters.eight_bit(down), out.values_mut());
        Ok(tape.push(out, None))
    }
}

/// Whether the sums of a weight's products fit 32 bits: those of all known encoders do by far.
fn fits(parameters: &Parameters, weight: ParameterId) -> bool {
    matches!(parameters.device(), Device::Cpu(_)) && parameters.info(weight).columns <= cpu::MAX_DEPTH
}

/// A place for the product of an input and a weight.
fn place(parameters: &Parameters, input: &Var, weight: ParameterId) -> Result<Tensor, Error> {
    Tensor::scratch(parameters.device(), input.tensor().rows(), parameters.info(weight).rows, Element::F32)
}

fn view(input: &Var) -> View<'_> {
    let tensor = input.tensor();
    View::new(tensor.values(), tensor.rows(), tensor.columns())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::testing::random;
    use crate::parameters::ParametersBuilder;
    use crate::random::Key;

    /// A weight up, its bias, and a weight down.
    fn weights(device: &Device) -> (Parameters, FeedForward) {
        let mut builder = ParametersBuilder::default();
        let up = builder.add("up", (96, 32), &random(96 * 32, 1));
        let up_bias = builder.add("up bias", (1, 96), &random(96, 2));
        let down = builder.add("down", (32, 96), &random(32 * 96, 3));
        (builder.build(device).unwrap(), FeedForward { up, up_bias, down })
    }

    /// How far two matrices are apart, by how long the second one is.
    fn error(found: &Var, exact: &Var) -> f64 {
        let (found, exact) = (found.tensor().to_vec().unwrap(), exact.tensor().to_vec().unwrap());
        let squares = |values: &mut dyn Iterator<Item = f32>| -> f64 {
            values.map(|value| f64::from(value).powi(2)).sum()
        };
        let off = squares(&mut found.iter().zip(&exact).map(|(a, b)| a - b));
        (off / squares(&mut exact.iter().copied())).sqrt()
    }

    #[test]
    fn integers_come_within_a_hundredth_where_nothing_is_recorded() {
        let device = Device::cpu_in(Precision::EightBit);
        let (parameters, ids) = weights(&device);
        let input = Var::constant(Tensor::new(&device, (40, 32), &random(40 * 32, 4), Element::F32).unwrap());
        let mut tape = Tape::inference(&parameters);
        let products = Products::of(&tape);
        assert_eq!(products, Products::EightBit);
        let exact = linear(&mut tape, &input, ids.up, Some(ids.up_bias)).unwrap();
        let found = products.linear(&mut tape, &input, ids.up, Some(ids.up_bias)).unwrap();
        let off = error(&found, &exact);
        assert!(off > 0.0 && off < 0.01, "{off}");
        let exact = feed_forward(&mut tape, &input, ids).unwrap();
        let found = products.feed_forward(&mut tape, &input, ids).unwrap();
        let off = error(&found, &exact);
        assert!(off > 0.0 && off < 0.01, "{off}");
        let recorded = Tape::training(&parameters, Key::new(1));
        assert_eq!(Products::of(&recorded), Products::Float);
        let (parameters, _) = weights(&Device::cpu());
        assert_eq!(Products::of(&Tape::inference(&parameters)), Products::Float);
    }

    #[test]
    fn weights_that_change_are_rounded_anew() {
        let (mut parameters, ids) = weights(&Device::cpu_in(Precision::EightBit));
        let before = parameters.eight_bit(ids.down);
        assert!(std::sync::Arc::ptr_eq(&before, &parameters.eight_bit(ids.down)));
        parameters.set(ids.down, &random(32 * 96, 9)).unwrap();
        assert!(!std::sync::Arc::ptr_eq(&before, &parameters.eight_bit(ids.down)));
    }
}
