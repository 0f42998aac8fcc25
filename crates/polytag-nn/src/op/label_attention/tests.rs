//! Label attention against its formula in f64, finite differences, and one device against the other.

use super::*;
use crate::cuda::CudaOptions;
use crate::op::testing::{self, Build, Case, Matrix, relative_error, sum};
use crate::op::{Pooling, normalise, pool};
use crate::parameters::{ParameterId, Parameters, ParametersBuilder};
use crate::random::Key;
use crate::tape::BackwardOptions;

fn batch(device: &Device, lengths: &[usize]) -> Batch {
    let sequences: Vec<Vec<u32>> = lengths.iter().map(|&length| vec![0; length]).collect();
    Batch::new(device, sequences.iter().map(Vec::as_slice), 0).unwrap()
}

/// Tokens, queries and outputs.
fn case(lengths: &[usize], labels: usize, columns: usize) -> Case {
    Case::new("label attention")
        .input(Matrix::random(lengths.iter().sum(), columns, 1))
        .input(Matrix::random(labels, columns, 2).scaled(1.5, 0.0))
        .input(Matrix::random(labels, columns, 3))
}

/// The op on the inputs of a [`case`], whose outputs are brought to unit length.
///
/// Inputs are activations; labels become f32 by being pooled, each as a sequence of one token.
fn build(lengths: &[usize], sequences: Range<usize>, bytes: usize) -> impl Build {
    build_with(Comparison::Cosine, lengths, sequences, bytes)
}

fn build_with(
    comparison: Comparison,
    lengths: &[usize],
    sequences: Range<usize>,
    bytes: usize,
) -> impl Build {
    move |tape: &mut Tape<'_>, inputs: &[Var], _: &[ParameterId]| {
        let device = tape.parameters().device().clone();
        let singles = batch(&device, &vec![1; inputs[1].tensor().rows()]);
        let queries = pool(tape, &inputs[1], &singles, Pooling::Cls)?;
        let outputs = pool(tape, &inputs[2], &singles, Pooling::Cls)?;
        let outputs = normalise(tape, &outputs)?;
        let memory = ChunkMemory::new(bytes);
        let labels = LabelAttention {
            sequences: sequences.clone(),
            queries: &queries,
            outputs: &outputs,
            comparison,
            memory: &memory,
        };
        label_attention(tape, &inputs[0], &batch(&device, lengths), &labels)
    }
}

/// Everything that the op is run on without a [`Case`]: tokens, queries and outputs.
fn inputs(lengths: &[usize], labels: usize, columns: usize) -> [Matrix; 3] {
    [
        Matrix::random(lengths.iter().sum(), columns, 1),
        Matrix::random(labels, columns, 2),
        Matrix::random(labels, columns, 3),
    ]
}

/// The scores, and the gradients of tokens, queries and outputs where each score's is one.
fn run(device: &Device, matrices: &[Matrix; 3], lengths: &[usize], memory: &ChunkMemory) -> [Vec<f32>; 4] {
    let mut parameters: Parameters = ParametersBuilder::default().build(device).unwrap();
    let mut tape = Tape::training(&parameters, Key::new(0));
    let elements = [device.activations(), Element::F32, Element::F32];
    let leaves: Vec<Var> = matrices
        .iter()
        .zip(elements)
        .map(|(m, element)| tape.leaf(Tensor::new(device, (m.rows, m.columns), &m.values, element).unwrap()))
        .collect();
    let (queries, outputs, comparison) = (&leaves[1], &leaves[2], Comparison::Cosine);
    let labels = LabelAttention { sequences: 0..lengths.len(), queries, outputs, comparison, memory };
    let scores = label_attention(&mut tape, &leaves[0], &batch(device, lengths), &labels).unwrap();
    let loss = total(&mut tape, &scores);
    let record = tape.finish();
    let gradients = record.backward(&[(&loss, 1.0)], &mut parameters, BackwardOptions::default()).unwrap();
    let gradient = |leaf: &Var| gradients.of(leaf).unwrap().to_vec().unwrap();
    [scores.tensor().to_vec().unwrap(), gradient(&leaves[0]), gradient(&leaves[1]), gradient(&leaves[2])]
}

/// The sum of all scores.
fn total(tape: &mut Tape<'_>, scores: &Var) -> Var {
    struct Ones(Link, (usize, usize));
    impl Backward for Ones {
        fn name(&self) -> &'static str {
            "total"
        }
        fn backward(self: Box<Self>, gradient: Tensor, flow: &mut Flow<'_>) -> Result<(), Error> {
            let ones = vec![1.0; self.1.0 * self.1.1];
            flow.give(self.0, Tensor::new(&gradient.device(), self.1, &ones, Element::F32)?)
        }
    }
    let (tensor, link) = (scores.tensor(), scores.link());
    let value = Tensor::new(&tensor.device(), (1, 1), &[tensor.to_vec().unwrap().iter().sum()], Element::F32);
    tape.push(value.unwrap(), Some(Box::new(Ones(link, (tensor.rows(), tensor.columns())))))
}

/// The formula, word for word.
fn exact([tokens, queries, outputs]: &[Matrix; 3], lengths: &[usize]) -> Vec<f64> {
    let columns = tokens.columns;
    let rows = |m: &Matrix| -> Vec<Vec<f64>> {
        m.values.chunks(columns).map(|row| row.iter().map(|&value| f64::from(value)).collect()).collect()
    };
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let (tokens, queries, outputs) = (rows(tokens), rows(queries), rows(outputs));
    let (mut first, mut scores) = (0, Vec::new());
    for length in lengths {
        let own = &tokens[first..first + length];
        first += length;
        for (query, output) in queries.iter().zip(&outputs) {
            let weight = |token: &Vec<f64>| (dot(query, token) / (columns as f64).sqrt()).exp();
            let all: f64 = own.iter().map(weight).sum();
            let found: Vec<f64> =
                (0..columns).map(|i| own.iter().map(|token| weight(token) / all * token[i]).sum()).collect();
            scores.push(dot(&found, output) / dot(&found, &found).sqrt());
        }
    }
    scores
}

#[test]
fn the_value_is_the_formulas() {
    for (lengths, labels, columns) in [(&[3, 1, 40][..], 5, 6), (&[100, 7], 300, 48), (&[2], 1, 900)] {
        let matrices = inputs(lengths, labels, columns);
        let [scores, ..] = run(&Device::cpu(), &matrices, lengths, &ChunkMemory::default());
        for (found, exact) in scores.iter().zip(exact(&matrices, lengths)) {
            assert!((f64::from(*found) - exact).abs() < 1e-5, "{found}, and the formula says {exact}");
        }
    }
}

#[test]
fn gradients_match_finite_differences() {
    let lengths = &[3, 1, 5, 2];
    for bytes in [1, 4 * 3 * (2 * 5 + 8), 1 << 20] {
        case(lengths, 7, 8).check_gradients(build(lengths, 0..4, bytes));
        case(lengths, 7, 8).check_gradients(build(lengths, 1..3, bytes));
    }
}

#[test]
fn products_have_their_gradients_too() {
    let lengths = &[3, 1, 5, 2];
    let build = |bytes| build_with(Comparison::Product, lengths, 1..4, bytes);
    for bytes in [1, 1 << 20] {
        case(lengths, 7, 8).check_gradients(build(bytes));
    }
    let mixed = &[77, 1, 2, 512, 9, 300, 500, 8, 130];
    for bytes in [150_000, 512 << 20] {
        case(mixed, 101, 64).compare_devices(build_with(Comparison::Product, mixed, 2..8, bytes));
    }
}

#[test]
fn a_gradient_is_added_to_what_is_there_whoever_it_is_of() {
    let build = |tape: &mut Tape<'_>, inputs: &[Var], ids: &[ParameterId]| {
        let all = build(&[3, 1, 5], 0..2, 1 << 20)(tape, inputs, ids)?;
        let again = build(&[3, 1, 5], 1..3, 1 << 20)(tape, inputs, ids)?;
        sum(tape, &all, &again)
    };
    case(&[3, 1, 5], 4, 8).check_gradients(build);
    case(&[3, 1, 5], 4, 64).compare_devices(build);
    let same = Case::new("one value for all").element(Element::F32).input(Matrix::random(4, 6, 1));
    same.check_gradients(|tape, inputs, _| {
        let (value, memory) = (&inputs[0], &ChunkMemory::default());
        let batch = batch(tape.parameters().device(), &[3, 1]);
        let labels = LabelAttention {
            sequences: 0..2,
            queries: value,
            outputs: value,
            comparison: Comparison::Cosine,
            memory,
        };
        label_attention(tape, value, &batch, &labels)
    });
}

#[test]
fn the_gpu_agrees_with_the_cpu() {
    let mixed = &[77, 1, 2, 512, 9, 300, 500, 8, 130];
    for (columns, labels) in [(64, 13), (384, 13), (384, 1000), (768, 1000)] {
        case(mixed, labels, columns).compare_devices(build(mixed, 0..9, 512 << 20));
    }
    // Some of the sequences, and chunks of one label, of a few, and of many.
    for bytes in [1, 150_000, 2 << 20] {
        case(mixed, 101, 64).compare_devices(build(mixed, 2..8, bytes));
    }
    let short: Vec<usize> = (0..64).map(|i| 4 + i % 17).collect();
    case(&short, 300, 384).compare_devices(build(&short, 0..64, 512 << 20));
    case(&[5, 3], 40, 8).compare_devices(build(&[5, 3], 0..2, 512 << 20));
}

#[test]
fn neither_chunks_nor_threads_change_a_score() {
    let lengths = &[30, 1, 77];
    let matrices = inputs(lengths, 300, 48);
    let with = |bytes| run(&Device::cpu(), &matrices, lengths, &ChunkMemory::new(bytes));
    let all = with(1 << 30);
    for bytes in [1, 30_000, 1 << 18] {
        let some = with(bytes);
        assert_eq!(some[0], all[0], "{bytes} bytes");
        for (some, all) in some.iter().zip(&all) {
            assert!(relative_error(some, all) < 1e-5);
        }
    }
    for threads in [1, 3] {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        assert_eq!(pool.install(|| with(1 << 18)), with(1 << 18), "{threads} threads");
    }
}

#[test]
fn weights_of_a_label_explain_its_score() {
    let lengths = &[9];
    let matrices = inputs(lengths, 3, 16);
    let [scores, ..] = run(&Device::cpu(), &matrices, lengths, &ChunkMemory::default());
    let [tokens, queries, outputs] = &matrices;
    for (label, score) in scores.iter().enumerate() {
        let row = label * 16..(label + 1) * 16;
        let weights = label_attention_weights(&tokens.values, &queries.values[row.clone()]);
        assert!((weights.iter().sum::<f32>() - 1.0).abs() < 1e-6);
        let mut found = [0.0; 16];
        for (weight, token) in weights.iter().zip(tokens.values.chunks(16)) {
            crate::cpu::axpy(*weight, token, &mut found);
        }
        let cosine = dot(&found, &outputs.values[row]) / dot(&found, &found).sqrt();
        assert!((cosine - score).abs() < 1e-5, "{cosine} {score}");
    }
}

#[test]
fn tokens_of_zeros_score_zero_and_have_finite_gradients() {
    for device in testing::devices("label attention over zeros") {
        let zeros = Matrix { rows: 3, columns: 8, values: vec![0.0; 24] };
        let matrices = [zeros, Matrix::random(4, 8, 1), Matrix::random(4, 8, 2)];
        let [scores, tokens, queries, outputs] = run(&device, &matrices, &[1, 2], &ChunkMemory::default());
        assert!(scores.iter().all(|&score| score == 0.0));
        assert!([tokens, queries, outputs].concat().iter().all(|value| value.is_finite()));
    }
}

#[test]
fn a_gpu_without_room_takes_fewer_labels_at_once() {
    if testing::gpu("label attention in little memory").is_none() {
        return;
    }
    let lengths = &[512; 16];
    let matrices = inputs(lengths, 1000, 64);
    let (ample, scarce) = (ChunkMemory::default(), ChunkMemory::default());
    let expected = run(&Device::cuda(&CudaOptions::default()).unwrap(), &matrices, lengths, &ample);
    assert_eq!(ample.bytes(), ChunkMemory::default().bytes(), "nothing is lowered where there is enough");
    // All labels at once take 34 MB, the rest 7 MB.
    let options = CudaOptions { memory_limit: Some(24 << 20), ..CudaOptions::default() };
    let found = run(&Device::cuda(&options).unwrap(), &matrices, lengths, &scarce);
    assert!(scarce.bytes() < 24 << 20 && scarce.bytes() >= 1 << 20, "{}", scarce.bytes());
    for (found, expected) in found.iter().zip(&expected) {
        assert!(relative_error(found, expected) < 1e-2);
    }
}

#[test]
fn no_sequences_are_refused() {
    let device = Device::cpu();
    let parameters = ParametersBuilder::default().build(&device).unwrap();
    let value = Var::constant(Tensor::zeros(&device, 3, 4, Element::F32).unwrap());
    let memory = &ChunkMemory::default();
    let labels = LabelAttention {
        sequences: 1..1,
        queries: &value,
        outputs: &value,
        comparison: Comparison::Cosine,
        memory,
    };
    let scores =
        label_attention(&mut Tape::inference(&parameters), &value, &batch(&device, &[1, 2]), &labels);
    assert!(matches!(scores, Err(Error::Unfit(_))));
}
