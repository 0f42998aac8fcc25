//! Gradients against finite differences, and one device against the other.
//!
//! A [`Case`] is inputs and weights for an op. Its output is multiplied by fixed random numbers and
//! summed, so that every gradient is tested at once.

use std::io::Write as _;

use crate::cuda::CudaOptions;
use crate::device::Device;
use crate::element::Element;
use crate::error::Error;
use crate::op;
use crate::parameters::{ParameterId, Parameters, ParametersBuilder};
use crate::random::Key;
use crate::tape::{Backward, BackwardOptions, Flow, Link, Tape, Var};
use crate::tensor::Tensor;

/// The CPU, and the GPU where there is one; a word about its absence where there is none.
pub(crate) fn devices(what: &str) -> Vec<Device> {
    let mut devices = vec![Device::cpu()];
    devices.extend(gpu(what));
    devices
}

/// The GPU, where there is one; a word about its absence where there is none.
pub(crate) fn gpu(what: &str) -> Option<Device> {
    match Device::cuda(&CudaOptions::default()) {
        Ok(device) => Some(device),
        Err(why) => {
            // Straight to the file: the test harness hides what passing tests print.
            writeln!(std::io::stderr(), "skipped on the GPU: {what} ({why})").ok();
            None
        }
    }
}

/// Numbers of a matrix.
#[derive(Clone, Debug)]
pub(crate) struct Matrix {
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    pub(crate) values: Vec<f32>,
}

impl Matrix {
    /// Normal random numbers, each exact in bf16 so that both devices begin alike.
    pub(crate) fn random(rows: usize, columns: usize, seed: u64) -> Matrix {
        let key = Key::new(seed);
        let values = (0..rows * columns)
            .map(|i| half::bf16::from_f32(key.normal((i / columns) as u32, (i % columns) as u32)).to_f32())
            .collect();
        Matrix { rows, columns, values }
    }

    /// The same, every number multiplied and moved.
    pub(crate) fn scaled(mut self, factor: f32, offset: f32) -> Matrix {
        for value in &mut self.values {
            *value = half::bf16::from_f32(*value * factor + offset).to_f32();
        }
        self
    }
}

/// Inputs and weights for an op.
#[derive(Clone)]
pub(crate) struct Case {
    name: &'static str,
    inputs: Vec<Matrix>,
    weights: Vec<Matrix>,
    frozen: Option<usize>,
    input_element: Option<Element>,
}

/// An op under test: the same for every device.
pub(crate) trait Build: Fn(&mut Tape<'_>, &[Var], &[ParameterId]) -> Result<Var, Error> {}
impl<F: Fn(&mut Tape<'_>, &[Var], &[ParameterId]) -> Result<Var, Error>> Build for F {}

/// What an op gave: its output, the gradients of inputs and of weights.
struct Outcome {
    output: Vec<f32>,
    inputs: Vec<Vec<f32>>,
    weights: Vec<Vec<f32>>,
}

impl Case {
    /// A case with nothing in it.
    pub(crate) fn new(name: &'static str) -> Case {
        Case { name, inputs: Vec::new(), weights: Vec::new(), frozen: None, input_element: None }
    }

    /// Adds an input.
    pub(crate) fn input(mut self, matrix: Matrix) -> Case {
        self.inputs.push(matrix);
        self
    }

    /// Adds a weight.
    pub(crate) fn weight(mut self, matrix: Matrix) -> Case {
        self.weights.push(matrix);
        self
    }

    /// Inputs are of this element on the GPU instead of what activations are made of there.
    pub(crate) fn element(mut self, element: Element) -> Case {
        self.input_element = Some(element);
        self
    }

    /// Checks each input's and weight's gradient against central differences, on the CPU.
    pub(crate) fn check_gradients(&self, build: impl Build) {
        let outcome = self.run(&Device::cpu(), &build).unwrap();
        let analytic = outcome.inputs.iter().chain(&outcome.weights);
        for (which, gradient) in analytic.enumerate() {
            for (place, &found) in gradient.iter().enumerate() {
                let step = 4e-3;
                let moved = |by: f32| self.moved(which, place, by).loss(&build);
                // Two steps, extrapolated: the error falls with the fourth power of the step.
                let near = (moved(step) - moved(-step)) / (2.0 * f64::from(step));
                let far = (moved(2.0 * step) - moved(-2.0 * step)) / (4.0 * f64::from(step));
                let expected = (4.0 * near - far) / 3.0;
                let scale = 1.0 + expected.abs();
                assert!(
                    (f64::from(found) - expected).abs() < 1e-2 * scale,
                    "{}: gradient {which} at {place} is {found}, the difference says {expected}",
                    self.name
                );
            }
        }
    }

    /// Checks that the GPU gives what the CPU gives, as closely as bf16 can. Skips without a GPU.
    pub(crate) fn compare_devices(&self, build: impl Build) {
        let Some(gpu) = gpu(self.name) else { return };
        let expected = self.run(&Device::cpu(), &build).unwrap();
        let found = self.run(&gpu, &build).unwrap();
        let again = self.run(&gpu, &build).unwrap();
        let pairs = [("output", 0, &expected.output, &found.output, &again.output)];
        let inputs = (0..self.inputs.len())
            .map(|i| ("input", i, &expected.inputs[i], &found.inputs[i], &again.inputs[i]));
        let weights = (0..self.weights.len())
            .map(|i| ("weight", i, &expected.weights[i], &found.weights[i], &again.weights[i]));
        for (kind, index, expected, found, again) in pairs.into_iter().chain(inputs).chain(weights) {
            let error = relative_error(found, expected);
            assert!(error < 1.5e-2, "{}: {kind} {index} is off by {error}", self.name);
            assert_eq!(found, again, "{}: {kind} {index} differs from run to run", self.name);
        }
    }

    /// Checks that a weight that is not trained has no gradient, and that the others have theirs.
    pub(crate) fn check_frozen(&self, build: impl Build) {
        for device in devices(self.name) {
            let all = self.run(&device, &build).unwrap();
            for frozen in 0..self.weights.len() {
                let without = Case { frozen: Some(frozen), ..self.clone() }.run(&device, &build).unwrap();
                assert_eq!(all.inputs, without.inputs, "{}: without weight {frozen}", self.name);
                for (i, gradient) in without.weights.iter().enumerate() {
                    let zeros = vec![0.0; gradient.len()];
                    let expected = if i == frozen { &zeros } else { &all.weights[i] };
                    assert_eq!(gradient, expected, "{}: weight {i} without {frozen}", self.name);
                }
            }
        }
    }

    fn moved(&self, which: usize, place: usize, by: f32) -> Case {
        let mut moved = self.clone();
        match which.checked_sub(moved.inputs.len()) {
            None => moved.inputs[which].values[place] += by,
            Some(weight) => moved.weights[weight].values[place] += by,
        }
        moved
    }

    fn parameters(&self, device: &Device) -> (Parameters, Vec<ParameterId>) {
        let mut builder = ParametersBuilder::default();
        let ids: Vec<ParameterId> = self
            .weights
            .iter()
            .enumerate()
            .map(|(i, w)| builder.add(&format!("weight {i}"), (w.rows, w.columns), &w.values))
            .collect();
        if let Some(frozen) = self.frozen {
            builder.info_mut(ids[frozen]).trained = false;
        }
        (builder.build(device).unwrap(), ids)
    }

    fn leaves(&self, tape: &mut Tape<'_>, device: &Device) -> Vec<Var> {
        let element = self.input_element.unwrap_or(device.activations());
        let tensor = |m: &Matrix| Tensor::new(device, (m.rows, m.columns), &m.values, element).unwrap();
        self.inputs.iter().map(|matrix| tape.leaf(tensor(matrix))).collect()
    }

    /// The weighted sum of the output, in f64.
    fn loss(&self, build: &impl Build) -> f64 {
        let device = Device::cpu();
        let (parameters, ids) = self.parameters(&device);
        let mut tape = Tape::training(&parameters, Key::new(0));
        let leaves = self.leaves(&mut tape, &device);
        let output = build(&mut tape, &leaves, &ids).unwrap();
        let output = output.tensor();
        let factors = factors(output.rows(), output.columns());
        output.values().iter().zip(&factors).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum()
    }

    fn run(&self, device: &Device, build: &impl Build) -> Result<Outcome, Error> {
        let (mut parameters, ids) = self.parameters(device);
        let mut tape = Tape::training(&parameters, Key::new(0));
        let leaves = self.leaves(&mut tape, device);
        let output = build(&mut tape, &leaves, &ids)?;
        let loss = weighted_sum(&mut tape, &output)?;
        let values = output.tensor().to_vec()?;
        let gradients =
            tape.finish().backward(&[(&loss, 1.0)], &mut parameters, BackwardOptions { checked: true })?;
        let inputs = leaves
            .iter()
            .map(|leaf| gradients.of(leaf).map_or(Ok(Vec::new()), Tensor::to_vec))
            .collect::<Result<_, _>>()?;
        let weights = ids.iter().map(|&id| parameters.gradient_to_vec(id)).collect::<Result<_, _>>()?;
        Ok(Outcome { output: values, inputs, weights })
    }
}

/// `‖a − b‖ / ‖b‖`, in f64; infinite if `a` is not finite.
pub(crate) fn relative_error(a: &[f32], b: &[f32]) -> f64 {
    assert_eq!(a.len(), b.len());
    if a.iter().any(|value| !value.is_finite()) {
        return f64::INFINITY;
    }
    let squares = |values: &mut dyn Iterator<Item = f64>| values.map(|v| v * v).sum::<f64>().sqrt();
    let distance = squares(&mut a.iter().zip(b).map(|(&a, &b)| f64::from(a) - f64::from(b)));
    distance / squares(&mut b.iter().map(|&b| f64::from(b))).max(1e-12)
}

fn factors(rows: usize, columns: usize) -> Vec<f32> {
    Matrix::random(rows, columns, 99).values
}

/// The sum of the values, each multiplied by a fixed random number.
fn weighted_sum(tape: &mut Tape<'_>, value: &Var) -> Result<Var, Error> {
    let tensor = value.tensor();
    let factors = factors(tensor.rows(), tensor.columns());
    let sum = tensor.to_vec()?.iter().zip(&factors).map(|(a, b)| a * b).sum();
    let sum = Tensor::new(&tensor.device(), (1, 1), &[sum], Element::F32)?;
    let like = tensor.clone();
    Ok(tape.push(sum, Some(Box::new(WeightedSum { factors, like, link: value.link() }))))
}

struct WeightedSum {
    factors: Vec<f32>,
    like: Tensor,
    link: Link,
}

impl Backward for WeightedSum {
    fn name(&self) -> &'static str {
        "weighted sum"
    }

    fn backward(self: Box<Self>, gradient: Tensor, flow: &mut Flow<'_>) -> Result<(), Error> {
        assert_eq!(gradient.to_vec()?, [1.0]);
        let shape = (self.like.rows(), self.like.columns());
        let tensor = Tensor::new(&self.like.device(), shape, &self.factors, self.like.element())?;
        flow.give(self.link, tensor)
    }
}

/// The sum of two values, each of which takes the whole gradient.
pub(crate) fn sum(tape: &mut Tape<'_>, first: &Var, second: &Var) -> Result<Var, Error> {
    op::sum(tape, &[first.clone(), second.clone()])
}
