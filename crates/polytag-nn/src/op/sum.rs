//! Several matrices added up, such as the scores that a label gets from several layers.

use super::add_to;
use crate::error::Error;
use crate::tape::{Backward, Flow, Link, Tape, Var};
use crate::tensor::Tensor;

/// The sum of matrices of one shape.
///
/// # Panics
/// If there are none, or not all are of one shape.
pub fn sum(tape: &mut Tape<'_>, terms: &[Var]) -> Result<Var, Error> {
    let (first, others) = terms.split_first().expect("there is something to add up");
    if others.is_empty() {
        return Ok(first.clone());
    }
    let mut total = first.tensor().clone().into_unshared()?;
    for other in others {
        total = add_to(total, other.tensor())?;
    }
    let wants = tape.wants(&terms.iter().collect::<Vec<_>>(), &[]);
    let op = wants.then(|| -> Box<dyn Backward> { Box::new(Sum(terms.iter().map(Var::link).collect())) });
    Ok(tape.push(total, op))
}

struct Sum(Vec<Link>);

impl Backward for Sum {
    fn name(&self) -> &'static str {
        "sum"
    }

    fn backward(self: Box<Self>, gradient: Tensor, flow: &mut Flow<'_>) -> Result<(), Error> {
        self.0.iter().try_for_each(|&link| flow.give(link, gradient.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::element::Element;
    use crate::op::testing::{Case, Matrix};

    /// Three matrices, one of them twice.
    fn build(tape: &mut Tape<'_>, inputs: &[Var]) -> Result<Var, Error> {
        sum(tape, &[inputs[0].clone(), inputs[1].clone(), inputs[2].clone(), inputs[1].clone()])
    }

    fn case() -> Case {
        let shape = |seed| Matrix::random(5, 8, seed);
        Case::new("sum").element(Element::F32).input(shape(1)).input(shape(2)).input(shape(3))
    }

    #[test]
    fn gradients_match_finite_differences() {
        case().check_gradients(|tape, inputs, _| build(tape, inputs));
    }

    #[test]
    fn the_gpu_agrees_with_the_cpu() {
        case().compare_devices(|tape, inputs, _| build(tape, inputs));
    }
}
