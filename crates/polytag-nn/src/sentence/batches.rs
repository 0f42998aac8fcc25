//! Texts through an encoder in batches of like length.

use std::ops::Range;

use rayon::prelude::*;

use crate::batch::Batch;
use crate::device::{Device, Precision};
use crate::encoder::{Encoder, Top};
use crate::error::Error;
use crate::parameters::Parameters;
use crate::tape::{Tape, Var};

/// How many tokens run together on the CPU: enough rows to keep a product busy, few enough that the
/// activations stay in the cache and every thread has a batch of its own.
const CPU_TOKENS: usize = 768;

/// The same in 8-bit integers: weights are a quarter as large, so that fetching them again for fewer rows costs little,
/// and what a layer makes of so few stays in the second cache.
const CPU_TOKENS_IN_EIGHT_BITS: usize = 256;

/// How many tokens run together on a GPU.
const GPU_TOKENS: usize = 32_768;

/// Runs texts, given as token ids, through an encoder in batches, and what `head` makes of each batch's last
/// hidden states, which is a result a text: the results, in the order of the texts.
///
/// How texts are put together is a function of their lengths alone, so that the number of threads changes no
/// result.
///
/// # Errors
/// If a text is empty, too long, or has a token that the encoder does not know; if the device is out of
/// memory; and what `head` fails with.
///
/// # Panics
/// If `head` does not give a result a text.
pub fn in_batches<R: Send>(
    encoder: &Encoder,
    parameters: &Parameters,
    texts: &[&[u32]],
    head: impl Fn(&mut Tape<'_>, &Var, &Batch) -> Result<Vec<R>, Error> + Sync,
) -> Result<Vec<R>, Error> {
    let layers = [encoder.last()];
    layers_in_batches((encoder, &layers, Top::Tokens), parameters, texts, |tape, states, batch| {
        head(tape, &states[0], batch)
    })
}

/// The same with the hidden states of several layers, as [`Encoder::states`] gives them.
///
/// # Errors
/// As [`in_batches`], and if there is no such layer.
///
/// # Panics
/// As [`in_batches`].
pub fn layers_in_batches<R: Send>(
    (encoder, layers, top): (&Encoder, &[usize], Top),
    parameters: &Parameters,
    texts: &[&[u32]],
    head: impl Fn(&mut Tape<'_>, &[Var], &Batch) -> Result<Vec<R>, Error> + Sync,
) -> Result<Vec<R>, Error> {
    let run = |texts_of_batch: &[usize]| {
        let batch = encoder.batch(parameters.device(), texts_of_batch.iter().map(|&text| texts[text]))?;
        let mut tape = Tape::inference(parameters);
        let states = encoder.states(&mut tape, &batch, (layers, top))?;
        let results = head(&mut tape, &states, &batch)?;
        assert_eq!(results.len(), batch.len(), "a result a text");
        Ok(results)
    };
    let limit = match (parameters.device(), parameters.device().precision()) {
        (Device::Cpu(_), Precision::Float) => CPU_TOKENS,
        (Device::Cpu(_), Precision::EightBit) => CPU_TOKENS_IN_EIGHT_BITS,
        (Device::Cuda(_), _) => GPU_TOKENS,
    };
    let lengths: Vec<usize> = texts.iter().map(|text| text.len()).collect();
    let (order, batches) = pack(&lengths, limit);
    let done: Vec<Vec<R>> = match parameters.device() {
        // Each batch goes through the whole encoder on a thread: nobody waits for the others.
        Device::Cpu(_) => batches
            .into_par_iter()
            .with_max_len(1)
            .map(|batch| run(&order[batch]))
            .collect::<Result<_, Error>>()?,
        Device::Cuda(_) => {
            batches.into_iter().map(|batch| run(&order[batch])).collect::<Result<_, Error>>()?
        }
    };
    let mut results: Vec<(usize, R)> = order.into_iter().zip(done.into_iter().flatten()).collect();
    results.sort_by_key(|&(text, _)| text);
    Ok(results.into_iter().map(|(_, result)| result).collect())
}

/// Texts by falling length, and ranges of them with at most `limit` tokens, or of one text.
fn pack(lengths: &[usize], limit: usize) -> (Vec<usize>, Vec<Range<usize>>) {
    let mut order: Vec<usize> = (0..lengths.len()).collect();
    order.sort_by_key(|&text| (std::cmp::Reverse(lengths[text]), text));
    let (mut batches, mut start, mut tokens) = (Vec::new(), 0, 0);
    for (rank, &text) in order.iter().enumerate() {
        if rank > start && tokens + lengths[text] > limit {
            batches.push(start..rank);
            (start, tokens) = (rank, 0);
        }
        tokens += lengths[text];
    }
    if start < order.len() {
        batches.push(start..order.len());
    }
    (order, batches)
}

#[cfg(test)]
mod tests {
    use super::pack;

    #[test]
    fn batches_hold_every_text_once_and_few_tokens() {
        let lengths = [5, 300, 7, 100, 100, 100, 512, 1];
        let (order, batches) = pack(&lengths, 256);
        assert_eq!(order, [6, 1, 3, 4, 5, 2, 0, 7]);
        assert_eq!(batches, [0..1, 1..2, 2..4, 4..8]);
        assert_eq!(pack(&[], 256), (vec![], vec![]));
    }
}
