//! The first layer: for each token, its word's row plus its position's row plus the row of its type.
//!
//! All tokens have the first type: the second one tells the two texts of a pair apart, and texts come
//! one at a time here.

use rayon::prelude::*;

use super::check_width;
use super::column_sums::column_sums;
use crate::batch::Batch;
use crate::cuda::{Cuda, KernelSource, Launch};
use crate::device::Device;
use crate::error::Error;
use crate::parameters::{ParameterId, Parameters};
use crate::tape::{Backward, Flow, Tape, Var};
use crate::tensor::Tensor;

const KERNELS: KernelSource =
    KernelSource { module: "embedding", text: include_str!("embedding.cu"), define: "" };

/// The tables that tokens are looked up in, each with a row of the hidden size for every value.
#[derive(Clone, Copy, Debug)]
pub struct Tables {
    /// A row a word of the vocabulary.
    pub words: ParameterId,
    /// A row a position.
    pub positions: ParameterId,
    /// A row a type, of which the first is used; some encoders have none.
    pub types: Option<ParameterId>,
}

/// Looks up the tokens of a batch; gives `[tokens, hidden]`.
///
/// # Errors
/// If a token or a position has no row in its table.
pub fn embedding(tape: &mut Tape<'_>, batch: &Batch, tables: Tables) -> Result<Var, Error> {
    let parameters = tape.parameters();
    check_rows(parameters, tables.words, batch.ids())?;
    check_rows(parameters, tables.positions, batch.positions())?;
    let hidden = parameters.info(tables.words).columns;
    let device = parameters.device();
    let mut out = Tensor::scratch(device, batch.tokens(), hidden, device.activations())?;
    match device {
        Device::Cpu(_) => look_up(parameters, batch, tables, out.values_mut()),
        Device::Cuda(cuda) => {
            check_width(hidden)?;
            Launch::new(cuda, &KERNELS, "embedding")
                .shape((batch.tokens() * hidden / 8).div_ceil(256), 1, 256)
                .address(parameters.master_address(tables.words))
                .address(parameters.master_address(tables.positions))
                .address(tables.types.map_or(0, |types| parameters.master_address(types)))
                .address(batch.ids_address())
                .address(batch.positions_address())
                .address(out.address())
                .int(batch.tokens())
                .int(hidden)
                .run()?;
        }
    }
    let weights: Vec<ParameterId> =
        [Some(tables.words), Some(tables.positions), tables.types].into_iter().flatten().collect();
    let op = tape
        .wants(&[], &weights)
        .then(|| -> Box<dyn Backward> { Box::new(Embedding { batch: batch.clone(), tables }) });
    Ok(tape.push(out, op))
}

fn check_rows(parameters: &Parameters, table: ParameterId, values: &[u32]) -> Result<(), Error> {
    let info = parameters.info(table);
    match values.iter().find(|&&value| value as usize >= info.rows) {
        None => Ok(()),
        Some(value) => Err(Error::Unfit(format!(
            "{} has {} rows and a token asks for row {value}; is this the encoder's own tokenizer?",
            info.name, info.rows
        ))),
    }
}

fn look_up(parameters: &Parameters, batch: &Batch, tables: Tables, out: &mut [f32]) {
    let hidden = parameters.info(tables.words).columns;
    let row = |table: ParameterId, row: u32| {
        let first = row as usize * hidden;
        &parameters.values(table)[first..first + hidden]
    };
    let tokens = batch.ids().par_iter().zip(batch.positions());
    out.par_chunks_mut(hidden).zip(tokens).for_each(|(out, (&id, &position))| {
        let (word, position) = (row(tables.words, id), row(tables.positions, position));
        for ((out, word), position) in out.iter_mut().zip(word).zip(position) {
            *out = word + position;
        }
        if let Some(types) = tables.types {
            for (out, value) in out.iter_mut().zip(row(types, 0)) {
                *out += value;
            }
        }
    });
}

struct Embedding {
    batch: Batch,
    tables: Tables,
}

impl Embedding {
    /// Adds the gradient of each token to the rows of a table that it was looked up in.
    fn table_gradient(
        &self,
        parameters: &mut Parameters,
        gradient: &Tensor,
        table: ParameterId,
    ) -> Result<(), Error> {
        match parameters.device().clone() {
            Device::Cpu(_) => {
                let by_word = table == self.tables.words;
                let rows = if by_word { self.batch.ids() } else { self.batch.positions() };
                let hidden = gradient.columns();
                let place = parameters.cleared_gradient(table);
                for (&row, gradient) in rows.iter().zip(gradient.values().chunks(hidden)) {
                    let sums = &mut place[row as usize * hidden..][..hidden];
                    for (sum, value) in sums.iter_mut().zip(gradient) {
                        *sum += value;
                    }
                }
                Ok(())
            }
            Device::Cuda(cuda) => self.table_gradient_on_gpu(&cuda, parameters, gradient, table),
        }
    }

    fn table_gradient_on_gpu(
        &self,
        cuda: &Cuda,
        parameters: &mut Parameters,
        gradient: &Tensor,
        table: ParameterId,
    ) -> Result<(), Error> {
        let by_word = table == self.tables.words;
        let occurrences = if by_word { self.batch.by_id() } else { self.batch.by_position() };
        let hidden = gradient.columns();
        let place = parameters.cleared_gradient_operand(table)?;
        Launch::new(cuda, &KERNELS, "embedding_gradient")
            .shape(occurrences.count, hidden.div_ceil(256), 256)
            .address(gradient.address())
            .address(place.address)
            .address(occurrences.values)
            .address(occurrences.starts)
            .address(occurrences.tokens)
            .int(hidden)
            .run()
    }
}

impl Backward for Embedding {
    fn name(&self) -> &'static str {
        "embedding"
    }

    fn backward(self: Box<Self>, gradient: Tensor, flow: &mut Flow<'_>) -> Result<(), Error> {
        for table in [self.tables.words, self.tables.positions] {
            if flow.trains(table) {
                self.table_gradient(flow.parameters(), &gradient, table)?;
            }
        }
        match self.tables.types {
            Some(types) if flow.trains(types) => column_sums(flow.parameters(), &gradient, types),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::testing::{Build, Case, Matrix, sum};

    fn case(words: usize, hidden: usize) -> Case {
        Case::new("embedding")
            .weight(Matrix::random(words, hidden, 1))
            .weight(Matrix::random(520, hidden, 2))
            .weight(Matrix::random(2, hidden, 3))
    }

    /// Sequences of these lengths, of words that a few are much more frequent among than the others.
    fn sequences(lengths: &[usize], words: usize) -> Vec<Vec<u32>> {
        let mut next = 0;
        let mut word = || {
            next += 1;
            ((next * next) % words).min((next * 7) % words) as u32
        };
        lengths.iter().map(|&length| (0..length).map(|_| word()).collect()).collect()
    }

    fn build(lengths: &[usize], words: usize) -> impl Build {
        move |tape: &mut Tape<'_>, _: &[Var], weights: &[ParameterId]| {
            let sequences = sequences(lengths, words);
            let batch = Batch::new(tape.parameters().device(), sequences.iter().map(Vec::as_slice), 2)?;
            let tables = Tables { words: weights[0], positions: weights[1], types: Some(weights[2]) };
            embedding(tape, &batch, tables)
        }
    }

    fn small() -> Case {
        Case::new("embedding")
            .weight(Matrix::random(5, 3, 1))
            .weight(Matrix::random(6, 3, 2))
            .weight(Matrix::random(2, 3, 3))
    }

    #[test]
    fn gradients_match_finite_differences() {
        small().check_gradients(build(&[4, 1, 2], 5));
    }

    #[test]
    fn gradients_of_two_uses_are_added() {
        small().check_gradients(|tape: &mut Tape<'_>, inputs: &[Var], weights: &[ParameterId]| {
            let first = build(&[2, 1], 5)(tape, inputs, weights)?;
            let second = build(&[1, 2], 4)(tape, inputs, weights)?;
            sum(tape, &first, &second)
        });
    }

    #[test]
    fn frozen_tables_have_no_gradient() {
        case(100, 64).check_frozen(build(&[7, 1, 30], 100));
    }

    #[test]
    fn the_gpu_agrees_with_the_cpu() {
        case(100, 64).compare_devices(build(&[1], 100));
        case(500, 384).compare_devices(build(&[77, 1, 3, 128, 512], 500));
        case(1000, 768).compare_devices(build(&[2, 300, 4, 77, 128, 512, 1, 1], 40));
    }

    #[test]
    fn tokens_without_a_row_are_refused() {
        let device = Device::cpu();
        let mut builder = crate::parameters::ParametersBuilder::default();
        let words = builder.add("words", (4, 2), &[0.0; 8]);
        let positions = builder.add("positions", (3, 2), &[0.0; 6]);
        let parameters = builder.build(&device).unwrap();
        let mut tape = Tape::inference(&parameters);
        let mut try_with = |ids: &[u32], first_position| {
            let batch = Batch::new(&device, [ids], first_position).unwrap();
            embedding(&mut tape, &batch, Tables { words, positions, types: None })
        };
        assert!(try_with(&[3, 0], 1).is_ok());
        assert!(try_with(&[4], 0).err().unwrap().to_string().contains("words has 4 rows"));
        assert!(try_with(&[1, 1], 2).err().unwrap().to_string().contains("positions"));
    }
}
