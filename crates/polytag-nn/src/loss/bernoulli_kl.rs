//! How differently two experts judge the labels that documents carry.

use crate::cuda::{Buffer, Cuda, KernelSource, Launch};
use crate::device::Device;
use crate::element::Element;
use crate::error::Error;
use crate::tape::{Backward, Flow, Link, Tape, Var};
use crate::tensor::Tensor;

use super::positives::Positives;
use super::total::Total;

const KERNELS: KernelSource =
    KernelSource { module: "bernoulli_kl", text: include_str!("bernoulli_kl.cu"), define: "" };

/// The distribution-aware diversity loss of paper 004 (eq. 6 to 9), averaged over documents:
/// `−Σ λ · KL(p ‖ q)` over the labels that a document carries, with `p = σ(left)` and `q = σ(right)` the two
/// experts' probabilities of the label and `λ = (1 − max(p, q)) / n` for a label of `n` training documents.
/// `λ` is taken as given: no gradient goes through it.
///
/// `left` and `right` are scores `[B, C]` in f32, `counts` is `[1, C]`. Only the labels that documents carry
/// are looked at, so that the work does not grow with `B × C`; the gradients of both sides do.
pub fn bernoulli_kl(
    tape: &mut Tape<'_>,
    (left, right): (&Var, &Var),
    positives: &Positives,
    counts: &Tensor,
) -> Result<Var, Error> {
    let divergence = Divergence {
        left: left.tensor().clone(),
        right: right.tensor().clone(),
        counts: counts.clone(),
        positives: positives.clone(),
        links: [left.link(), right.link()],
    };
    divergence.check()?;
    let loss = divergence.forward()?;
    let op = tape.wants(&[left, right], &[]).then(|| -> Box<dyn Backward> { Box::new(divergence) });
    Ok(tape.push(loss, op))
}

struct Divergence {
    left: Tensor,
    right: Tensor,
    counts: Tensor,
    positives: Positives,
    links: [Link; 2],
}

impl Divergence {
    fn check(&self) -> Result<(), Error> {
        let shape = (self.positives.documents(), self.positives.labels());
        let fits = |tensor: &Tensor, shape: (usize, usize)| {
            (tensor.rows(), tensor.columns(), tensor.element()) == (shape.0, shape.1, Element::F32)
        };
        if fits(&self.left, shape) && fits(&self.right, shape) && fits(&self.counts, (1, shape.1)) {
            return Ok(());
        }
        let Divergence { left, right, counts, positives, .. } = self;
        Err(Error::Unfit(format!(
            "{left:?}, {right:?}, counts {counts:?} and {positives:?} do not fit together"
        )))
    }

    fn share(&self) -> f32 {
        1.0 / self.positives.documents().max(1) as f32
    }

    fn forward(&self) -> Result<Tensor, Error> {
        let device = self.left.device();
        match &device {
            Device::Cpu(_) => {
                let losses = self.positive_places().map(|(_, a, b, attention)| {
                    let (p, softplus) = (sigmoid(a), |x: f64| x.max(0.0) + (-x.abs()).exp().ln_1p());
                    let kl = p * (softplus(-b) - softplus(-a)) + (1.0 - p) * (softplus(b) - softplus(a));
                    -attention * kl
                });
                let loss = f64::from(self.share()) * losses.sum::<f64>();
                Tensor::new(&device, (1, 1), &[loss as f32], Element::F32)
            }
            Device::Cuda(cuda) => {
                let documents = self.positives.documents();
                let losses = Buffer::take(cuda, 4 * documents.max(1))?;
                self.over_documents(cuda, "divergence").buffer(&losses).run()?;
                let loss = Tensor::scratch(&device, 1, 1, Element::F32)?;
                let (values, factor, to) = (losses.pointer(), self.share(), loss.address());
                Total { values, count: documents, factor, to, accumulate: false }.run(cuda)?;
                Ok(loss)
            }
        }
    }

    /// The places where documents carry labels, both scores there, and `λ`.
    fn positive_places(&self) -> impl Iterator<Item = (usize, f64, f64, f64)> {
        let documents = (0..self.positives.documents())
            .flat_map(|document| self.positives.places(document).map(move |entry| (document, entry)));
        documents.filter(|&(_, entry)| self.positives.weight(entry) > 0.0).map(|(document, entry)| {
            let label = self.positives.label(entry);
            let place = document * self.left.columns() + label;
            let (a, b) = (f64::from(self.left.values()[place]), f64::from(self.right.values()[place]));
            let count = f64::from(self.counts.values()[label]).max(1.0);
            (place, a, b, (1.0 - sigmoid(a).max(sigmoid(b))) / count)
        })
    }

    /// A kernel with a block for each document; its first arguments are what both kernels take.
    fn over_documents<'a>(&self, cuda: &'a Cuda, name: &'static str) -> Launch<'a> {
        let positives = self.positives.addresses();
        Launch::new(cuda, &KERNELS, name)
            .shape(self.positives.documents(), 1, 128)
            .address(self.left.address())
            .address(self.right.address())
            .address(self.counts.address())
            .int(self.left.columns())
            .address(positives.offsets)
            .address(positives.entries)
            .address(positives.weights)
    }
}

impl Backward for Divergence {
    fn name(&self) -> &'static str {
        "Bernoulli KL"
    }

    fn backward(self: Box<Self>, gradient: Tensor, flow: &mut Flow<'_>) -> Result<(), Error> {
        for (side, link) in self.links.into_iter().enumerate() {
            let Some(to) = link else { continue };
            let of_right = side == 1;
            let (mut place, accumulate) = flow.slot(to, &self.left)?;
            match self.left.device() {
                Device::Cpu(_) => {
                    let values = place.values_mut();
                    if !accumulate {
                        values.fill(0.0);
                    }
                    let factor = -f64::from(self.share() * gradient.values()[0]);
                    for (at, a, b, attention) in self.positive_places() {
                        let (p, q) = (sigmoid(a), sigmoid(b));
                        let slope = if of_right { q - p } else { p * (1.0 - p) * (a - b) };
                        values[at] += (factor * attention * slope) as f32;
                    }
                }
                Device::Cuda(cuda) => {
                    if !accumulate {
                        place.buffer_mut().clear(0, 4 * self.left.rows() * self.left.columns())?;
                    }
                    self.over_documents(&cuda, "divergence_gradient")
                        .address(place.address())
                        .address(gradient.address())
                        .float(self.share())
                        .int(usize::from(of_right))
                        .run()?;
                }
            }
            flow.put(to, place)?;
        }
        Ok(())
    }
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loss::testing::*;
    use crate::op::testing::{Case, Matrix};
    use crate::parameters::ParametersBuilder;
    use crate::random::Key;
    use crate::tape::BackwardOptions;

    fn counts(device: &Device, labels: usize) -> Tensor {
        let counts: Vec<f32> = (0..labels).map(|label| (1 + label % 5) as f32).collect();
        Tensor::new(device, (1, labels), &counts, Element::F32).unwrap()
    }

    fn loss(tape: &mut Tape<'_>, inputs: &[Var]) -> Result<Var, Error> {
        let labels = inputs[0].tensor().columns();
        let device = tape.parameters().device();
        let (positives, counts) = (positives_on(device, labels), counts(device, labels));
        bernoulli_kl(tape, (&inputs[0], &inputs[1]), &positives, &counts)
    }

    /// The formula, with `λ` of the scores that are given for it.
    fn exact(scores: [&[f64]; 2], fixed: [&[f64]; 2], labels: usize) -> f64 {
        let mut sum = 0.0;
        for (document, own) in some_positives(labels).iter().enumerate() {
            for &label in own {
                let at = document * labels + label as usize;
                let [p, q] = scores.map(|side| sigmoid(side[at]));
                let [fixed_p, fixed_q] = fixed.map(|side| sigmoid(side[at]));
                let attention = (1.0 - fixed_p.max(fixed_q)) / f64::from(1 + label % 5);
                sum -= attention * (p * (p / q).ln() + (1.0 - p) * ((1.0 - p) / (1.0 - q)).ln());
            }
        }
        sum / 7.0
    }

    fn sides() -> [Matrix; 2] {
        [Matrix::random(7, 13, 1), Matrix::random(7, 13, 2)]
    }

    fn wide(matrix: &Matrix) -> Vec<f64> {
        matrix.values.iter().map(|&value| f64::from(value)).collect()
    }

    #[test]
    fn the_value_is_the_formulas() {
        let [left, right] = sides();
        let found = evaluate(&[&left, &right], &[], |tape, inputs, _| loss(tape, inputs));
        let both = [wide(&left), wide(&right)];
        let both = [&both[0][..], &both[1][..]];
        assert_close(found, exact(both, both, 13));
    }

    #[test]
    fn gradients_match_finite_differences_of_the_formula_with_attention_held() {
        let device = Device::cpu();
        let mut parameters = ParametersBuilder::default().build(&device).unwrap();
        let mut tape = Tape::training(&parameters, Key::new(0));
        let leaves = sides()
            .map(|m| tape.leaf(Tensor::new(&device, (m.rows, m.columns), &m.values, Element::F32).unwrap()));
        let loss = loss(&mut tape, &leaves).unwrap();
        let gradients =
            tape.finish().backward(&[(&loss, 1.0)], &mut parameters, BackwardOptions::default()).unwrap();
        let both = sides().map(|side| wide(&side));
        for (side, leaf) in leaves.iter().enumerate() {
            for (place, &found) in gradients.of(leaf).unwrap().values().iter().enumerate() {
                let moved = |by: f64| {
                    let mut moved = both.clone();
                    moved[side][place] += by;
                    exact([&moved[0], &moved[1]], [&both[0], &both[1]], 13)
                };
                let expected = (moved(1e-5) - moved(-1e-5)) / 2e-5;
                assert!((f64::from(found) - expected).abs() < 1e-6, "{side} {place}: {found} {expected}");
            }
        }
    }

    #[test]
    fn the_gpu_agrees_with_the_cpu() {
        let [left, right] = sides();
        let case = Case::new("Bernoulli KL").element(Element::F32).input(left).input(right);
        case.compare_devices(|tape, inputs, _| loss(tape, inputs));
    }
}
