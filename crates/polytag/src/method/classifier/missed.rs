//! What is missing of a score without a word: the explanation of experts that read the text as a whole.
//!
//! Words are left out one after the other, or in long texts a few neighbours at a time, so that a text is read
//! [`MOST`] times more at the most.

use std::ops::Range;

/// Parts of a text that are left out, at most.
const MOST: usize = 64;

/// What each token adds to a score that is `all` for the whole text, `ids`, and what `score` says without some; `ranges`
/// are the bytes that tokens stand for, none for special ones, which stay and add nothing. Tokens that are left out
/// together share what is missing.
pub(super) fn what_is_missed<E>(
    ids: &[u32],
    ranges: impl ExactSizeIterator<Item = Range<usize>>,
    all: f32,
    score: impl Fn(&[u32]) -> Result<f32, E>,
) -> Result<Vec<f32>, E> {
    let mut missed = vec![0.0; ids.len()];
    let words = words(ranges);
    let at_once = words.len().div_ceil(MOST).max(1);
    for part in words.chunks(at_once) {
        let (first, last) = (part[0].start, part[part.len() - 1].end);
        let rest: Vec<u32> = ids[..first].iter().chain(&ids[last..]).copied().collect();
        let share = (all - score(&rest)?) / (last - first) as f32;
        missed[first..last].fill(share);
    }
    Ok(missed)
}

/// The tokens of each word: neighbours whose bytes touch.
fn words(ranges: impl Iterator<Item = Range<usize>>) -> Vec<Range<usize>> {
    let mut words: Vec<Range<usize>> = Vec::new();
    let mut end = None;
    for (token, range) in ranges.enumerate().filter(|(_, range)| !range.is_empty()) {
        match words.last_mut().filter(|word| word.end == token && end == Some(range.start)) {
            Some(word) => word.end += 1,
            None => words.push(token..token + 1),
        }
        end = Some(range.end);
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Adds up what tokens are worth.
    fn sum(ids: &[u32]) -> Result<f32, ()> {
        Ok(ids.iter().map(|&id| id as f32).sum())
    }

    #[test]
    fn a_word_is_left_out_whole_and_special_tokens_stay() {
        // The second word has two pieces.
        let ranges = [0..0, 0..3, 4..6, 6..9, 10..11, 0..0];
        let ids = [100, 1, 2, 4, 7, 100];
        let missed = what_is_missed(&ids, ranges.into_iter(), 214.0, sum).unwrap();
        assert_eq!(missed, [0.0, 1.0, 3.0, 3.0, 7.0, 0.0]);
        assert_eq!(what_is_missed(&[100, 100], [0..0, 0..0].into_iter(), 200.0, sum).unwrap(), [0.0, 0.0]);
    }

    #[test]
    fn long_texts_are_not_read_again_for_every_word() {
        let ids: Vec<u32> = (0..1000).collect();
        let ranges = (0..1000).map(|word| 2 * word..2 * word + 1);
        let read = std::cell::Cell::new(0);
        let counted = |ids: &[u32]| {
            read.set(read.get() + 1);
            sum(ids)
        };
        let all = sum(&ids).unwrap();
        let missed = what_is_missed(&ids, ranges.collect::<Vec<_>>().into_iter(), all, counted).unwrap();
        assert!(read.get() <= MOST);
        assert!((missed.iter().sum::<f32>() - all).abs() < 1.0 && missed[999] > missed[0]);
    }
}
