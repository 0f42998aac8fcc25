//! Word vectors out of a package's files.
//!
//! A NumPy matrix and a Parquet column of words enter, both already compared with their checksums; word vectors leave,
//! to be written in the form that all runs read. Only as much of NumPy's format is understood as the packages of the
//! catalogue use: their content is pinned, so that no other file ever gets here. What is not understood is an error, never a
//! guess.

mod numpy; // a matrix
mod parquet; // a column of words

use crate::encoder::word_vectors::WordVectors;
use crate::sparse::Vocabulary;

/// The word vectors in two files, or what is wrong with which.
pub(super) fn read(matrix: &[u8], words: &[u8]) -> Result<WordVectors, String> {
    let matrix = numpy::read(matrix).map_err(|problem| format!("the matrix: {problem}"))?;
    let mut vocabulary = Vocabulary::default();
    let mut count = 0;
    let read = parquet::each_string(words, |word| {
        count += 1;
        match vocabulary.intern(word) + 1 == count {
            true => Ok(()),
            false => Err(format!("{word:?} stands twice")),
        }
    });
    read.map_err(|problem| format!("the words: {problem}"))?;
    WordVectors::new(vocabulary, matrix.columns, matrix.values)
}

/// What scripts/make-tiny-word-vectors wrote.
#[cfg(test)]
pub(super) mod sample {
    pub(in crate::encoder::pull) const COLUMNS: &[u8] =
        include_bytes!("../../../../testdata/word-vectors/columns.npy");
    pub(super) const ROWS: &[u8] = include_bytes!("../../../../testdata/word-vectors/rows.npy");
    pub(in crate::encoder::pull) const WORDS: &[u8] =
        include_bytes!("../../../../testdata/word-vectors/words.parquet");
    pub(super) const PLAIN: &[u8] = include_bytes!("../../../../testdata/word-vectors/plain.parquet");
    pub(super) const BAD: &[u8] = include_bytes!("../../../../testdata/word-vectors/bad.parquet");
}

#[cfg(test)]
mod tests {
    use super::*;
    use polytag_nn::tokenizer::Text;

    #[test]
    fn words_meet_their_vectors() {
        let vectors = read(sample::COLUMNS, sample::WORDS).unwrap();
        assert_eq!((vectors.words(), vectors.dimension()), (300, 3));
        // The second word: (3, 4, 5) / 8.
        let encoded = vectors.encode(&[Text::new("Tea")]);
        let long = 50_f32.sqrt();
        assert!(encoded.iter().zip([3.0, 4.0, 5.0]).all(|(a, b)| (a - b / long).abs() < 1e-6), "{encoded:?}");
    }

    #[test]
    fn what_does_not_fit_is_told() {
        assert!(read(sample::ROWS, sample::WORDS).err().unwrap().contains("4 vectors for 300 words"));
        assert!(read(sample::WORDS, sample::WORDS).err().unwrap().starts_with("the matrix: "));
        assert!(read(sample::COLUMNS, sample::BAD).err().unwrap().starts_with("the words: "));
    }
}
