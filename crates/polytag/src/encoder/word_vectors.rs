//! Averages of word vectors: the GloVe row of paper 001 (section 5.1).
//!
//! A folder of words and their vectors enters; texts enter and vectors leave: the mean over the words of a text, all
//! of the same weight, made one long. Words are cut and lower-cased as everywhere in polytag; those that are not
//! known are left out, and a text of none but such is the zero vector, which scores 0 with everything.
//!
//! The folder holds `words.txt`, one word a line, and `word_vectors.safetensors`, a row a word in that order. Memory:
//! four bytes a number, the words, and about 14 bytes more a word: 89 MB for 400,000 words of 50 numbers each.

use std::fs::{self, File};
use std::io::Write as _;
use std::ops::Range;
use std::path::Path;

use polytag_nn::Error;
use polytag_nn::tokenizer::Text;
use polytag_nn::weights::{self, NewTensor, WeightFile};
use rayon::prelude::*;

use crate::sparse::Vocabulary;
use crate::text::each_word_in_place;

/// The file of words.
pub(super) const WORDS: &str = "words.txt";

/// The file of their vectors.
pub(super) const VECTORS: &str = "word_vectors.safetensors";

/// The files of a folder.
pub(super) const FILES: [&str; 2] = [WORDS, VECTORS];

/// What the vectors are called there.
const TENSOR: &str = "word_vectors";

/// More than any list of words takes.
const LONGEST_WORDS: u64 = 1 << 30;

/// Words and their vectors.
pub struct WordVectors {
    words: Vocabulary,
    dimension: usize,
    /// The vector of each word, end to end, all finite.
    values: Vec<f32>,
    /// How many words of a text are read.
    max_words: Option<usize>,
}

impl WordVectors {
    /// Words with the vectors that lie end to end in `values`, in the same order; or what is wrong with them.
    pub(super) fn new(words: Vocabulary, dimension: usize, values: Vec<f32>) -> Result<WordVectors, String> {
        if words.is_empty() || dimension == 0 {
            return Err("there are no vectors in it".to_owned());
        }
        if words.len().checked_mul(dimension) != Some(values.len()) {
            let vectors = values.len() / dimension;
            return Err(format!("there are {vectors} vectors for {} words", words.len()));
        }
        // A word that is empty, or goes over the end of a line, could not be read again.
        if let Some(word) = words.terms().find(|word| word.is_empty() || word.contains('\n')) {
            return Err(format!("{word:?} is not a word"));
        }
        if let Some(place) = values.iter().position(|value| !value.is_finite()) {
            let word = words.term((place / dimension) as u32);
            return Err(format!("the vector of {word:?} holds {}", values[place]));
        }
        Ok(WordVectors { words, dimension, values, max_words: None })
    }

    /// Whether a folder holds word vectors.
    pub(crate) fn are_in(folder: &Path) -> bool {
        folder.join(VECTORS).is_file()
    }

    /// Reads a folder. Of each text the first `max_words` words are read, known or not, or all.
    ///
    /// # Errors
    /// If a file is missing, cannot be believed, or does not fit the other.
    pub fn load(folder: &Path, max_words: Option<usize>) -> Result<WordVectors, Error> {
        let words = read_words(&folder.join(WORDS))?;
        let path = folder.join(VECTORS);
        let file = WeightFile::open(&path)?;
        let shape = file.tensors().get(TENSOR).map(|info| info.shape.clone());
        let Some(&[rows, dimension]) = shape.as_deref() else {
            let problem = format!("has no matrix {TENSOR}, a row a word");
            return Err(Error::file(path, problem));
        };
        // Before the values are read, which are many.
        if rows != words.len() {
            let problem = format!("has {rows} vectors, but {WORDS} beside it has {} words", words.len());
            return Err(Error::file(path, problem));
        }
        let vectors = WordVectors::new(words, dimension, file.read(TENSOR)?);
        let vectors = vectors.map_err(|problem| Error::file(path, problem))?;
        Ok(WordVectors { max_words, ..vectors })
    }

    /// Writes both files into a new folder, for [`load`](WordVectors::load).
    ///
    /// # Errors
    /// If the folder is there already, or cannot be written.
    pub fn export(&self, folder: &Path) -> Result<(), Error> {
        fs::create_dir(folder).map_err(Error::io(folder, "create"))?;
        self.write(folder)
    }

    /// Writes both files into a folder. They are on the disk when this returns.
    pub(super) fn write(&self, folder: &Path) -> Result<(), Error> {
        let path = folder.join(WORDS);
        let mut file = File::create(&path).map_err(Error::io(&path, "create"))?;
        let written = file.write_all(self.words.to_lines().as_bytes()).and_then(|()| file.sync_all());
        written.map_err(Error::io(&path, "write"))?;
        let tensor = NewTensor { name: TENSOR.to_owned(), shape: vec![self.words.len(), self.dimension] };
        weights::write(&folder.join(VECTORS), &[tensor], |_| Ok(self.values.clone()))
    }

    /// How many numbers a vector has.
    pub fn dimension(&self) -> usize {
        self.dimension
    }

    /// How many words there are.
    pub fn words(&self) -> usize {
        self.words.len()
    }

    /// The vectors of texts, one behind the other, in their order: each one long, or zero.
    pub fn encode(&self, texts: &[Text<'_>]) -> Vec<f32> {
        let mut vectors = vec![0.0; texts.len() * self.dimension];
        let places = vectors.par_chunks_exact_mut(self.dimension);
        places.zip(texts).for_each_init(
            || (String::new(), vec![0.0; self.dimension]),
            |(lower, sum), (place, text)| {
                let length = self.sum(text, (lower, sum), |_, _| {});
                if length > 0.0 {
                    place.iter_mut().zip(sum).for_each(|(value, sum)| *value = (*sum / length) as f32);
                }
            },
        );
        vectors
    }

    /// How much each known word of a text has to do with the inner product of the text's vector and another one:
    /// its bytes in title and text, joined by a line end, and the share, which may be negative. The shares add up to
    /// the inner product.
    pub fn shares(&self, text: Text<'_>, other: &[f32]) -> Vec<(Range<usize>, f32)> {
        let (mut sum, mut found) = (vec![0.0; self.dimension], Vec::new());
        let length = self.sum(&text, (&mut String::new(), &mut sum), |bytes, vector| {
            let product = vector.iter().zip(other).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum::<f64>();
            found.push((bytes, product));
        });
        // Where vectors cancel out, the text's is zero, and so is every share.
        let share = |product: f64| if length > 0.0 { (product / length) as f32 } else { 0.0 };
        found.into_iter().map(|(bytes, product)| (bytes, share(product))).collect()
    }

    /// Adds up the vectors of a text's known words in `sum`, calls `found` with each of them and its bytes, and gives
    /// the length of the sum. The mean points the same way, so that nothing is divided by the number of words.
    ///
    /// Sums are of 64 bits, in which no number of 32-bit values overflows.
    fn sum(
        &self,
        text: &Text<'_>,
        (lower, sum): (&mut String, &mut Vec<f64>),
        mut found: impl FnMut(Range<usize>, &[f32]),
    ) -> f64 {
        sum.fill(0.0);
        let mut left = self.max_words.unwrap_or(usize::MAX);
        let title = text.title.filter(|title| !title.is_empty());
        let parts = title.map(|title| (title, 0)).into_iter();
        for (part, start) in parts.chain([(text.text, title.map_or(0, |title| title.len() + 1))]) {
            each_word_in_place(part, lower, |word, bytes| {
                if left == 0 {
                    return;
                }
                left -= 1;
                let Some(number) = self.words.find(word) else { return };
                let vector = &self.values[number as usize * self.dimension..][..self.dimension];
                sum.iter_mut().zip(vector).for_each(|(sum, &value)| *sum += f64::from(value));
                found(start + bytes.start..start + bytes.end, vector);
            });
        }
        sum.iter().map(|value| value * value).sum::<f64>().sqrt()
    }
}

/// Reads a list of words, one a line.
fn read_words(path: &Path) -> Result<Vocabulary, Error> {
    let problem = |text: String| Error::file(path, text);
    let length = fs::metadata(path).map_err(Error::io(path, "read"))?.len();
    if length > LONGEST_WORDS {
        return Err(problem(format!("has {length} bytes; at most {LONGEST_WORDS} are read")));
    }
    let bytes = fs::read(path).map_err(Error::io(path, "read"))?;
    let lines = String::from_utf8(bytes).map_err(|error| problem(format!("is not text: {error}")))?;
    if !lines.ends_with('\n') {
        return Err(problem("is empty or cut short: its last line has no end".to_owned()));
    }
    Vocabulary::from_lines(&lines).map_err(|error| problem(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// `tea` to the right, `trade` up, `rail` to the left.
    fn tiny() -> WordVectors {
        let words = Vocabulary::from_lines("tea\ntrade\nrail\n").unwrap();
        WordVectors::new(words, 2, vec![2.0, 0.0, 0.0, 1.0, -2.0, 0.0]).unwrap()
    }

    fn folder() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        tiny().write(dir.path()).unwrap();
        dir
    }

    #[test]
    fn a_text_is_the_mean_of_its_known_words_made_one_long() {
        let texts = [
            Text { title: Some("TEA"), text: "the trade, the tea" },
            Text::new("trade"),
            Text::new("nothing known"),
            Text::new(""),
            Text::new("tea by rail"),
        ];
        let vectors = tiny().encode(&texts);
        // Two of tea and one of trade: (4, 1).
        let long = 17_f32.sqrt();
        let expected = [4.0 / long, 1.0 / long, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0];
        vectors.iter().zip(expected).for_each(|(a, b)| assert!((a - b).abs() < 1e-6, "{vectors:?}"));
    }

    #[test]
    fn shares_are_of_words_where_they_stand_and_add_up() {
        let (vectors, title, text) = (tiny(), "The Tea", "trade of tea");
        let asked = Text { title: Some(title), text };
        let (own, other) = (vectors.encode(&[asked]), [0.6, 0.8]);
        let shares = vectors.shares(asked, &other);
        let joined = format!("{title}\n{text}");
        let words: Vec<&str> = shares.iter().map(|(bytes, _)| &joined[bytes.clone()]).collect();
        assert_eq!(words, ["Tea", "trade", "tea"]);
        let product: f32 = own.iter().zip(other).map(|(a, b)| a * b).sum();
        assert!((shares.iter().map(|(_, share)| share).sum::<f32>() - product).abs() < 1e-6);
        assert!(vectors.shares(Text::new("tea rail"), &other).iter().all(|(_, share)| *share == 0.0));
        assert!(vectors.shares(Text::new("?"), &other).is_empty());
    }

    #[test]
    fn the_largest_numbers_make_finite_vectors() {
        let words = Vocabulary::from_lines("a\nb\n").unwrap();
        let vectors = WordVectors::new(words, 2, vec![f32::MAX, f32::MAX, f32::MIN_POSITIVE, 0.0]).unwrap();
        let long = "a ".repeat(10_000);
        let encoded = vectors.encode(&[Text::new(&long), Text::new("b")]);
        let expected = [0.5_f32.sqrt(), 0.5_f32.sqrt(), 1.0, 0.0];
        encoded.iter().zip(expected).for_each(|(a, b)| assert!((a - b).abs() < 1e-6, "{encoded:?}"));
    }

    #[test]
    fn a_text_is_cut_where_asked() {
        let dir = folder();
        let vectors = WordVectors::load(dir.path(), Some(2)).unwrap();
        let texts = [Text { title: Some("tea"), text: "of trade" }, Text::new("of the tea")];
        assert_eq!(vectors.encode(&texts), [1.0, 0.0, 0.0, 0.0]);
    }

    #[test]
    fn a_folder_comes_back_as_it_was() {
        let (dir, again) = (folder(), tempfile::tempdir().unwrap());
        let out = again.path().join("copy");
        let read = WordVectors::load(dir.path(), None).unwrap();
        assert_eq!((read.words(), read.dimension()), (3, 2));
        read.export(&out).unwrap();
        for name in [WORDS, VECTORS] {
            assert_eq!(fs::read(dir.path().join(name)).unwrap(), fs::read(out.join(name)).unwrap());
        }
        assert!(read.export(&out).unwrap_err().to_string().contains("copy"), "what is there is left alone");
    }

    #[test]
    fn damaged_files_are_named() {
        let told = |damage: &dyn Fn(&Path)| {
            let dir = folder();
            damage(dir.path());
            WordVectors::load(dir.path(), None).err().unwrap().to_string()
        };
        let words = |text: &'static str| told(&move |dir: &Path| fs::write(dir.join(WORDS), text).unwrap());
        for (text, part) in [
            ("tea\ntrade\n", "has 3 vectors, but words.txt beside it has 2 words"),
            ("tea\ntrade\nrail\nbee\n", "words.txt beside it has 4 words"),
            ("tea\ntrade\nra", "words.txt: is empty or cut short"),
            ("", "words.txt: is empty or cut short"),
            ("tea\ntrade\ntea\n", "words.txt: line 3: the term \"tea\" stands twice"),
            ("tea\n\nrail\n", "\"\" is not a word"),
        ] {
            let error = words(text);
            assert!(error.contains(part), "{error}");
        }
        let error = told(&|dir| fs::write(dir.join(WORDS), b"tea\n\xff\nrail\n").unwrap());
        assert!(error.contains("words.txt: is not text"), "{error}");
        for name in [WORDS, VECTORS] {
            assert!(told(&|dir| fs::remove_file(dir.join(name)).unwrap()).contains(name));
        }
        let error = told(&|dir| {
            let bytes = fs::read(dir.join(VECTORS)).unwrap();
            fs::write(dir.join(VECTORS), &bytes[..bytes.len() - 4]).unwrap();
        });
        assert!(error.contains(VECTORS) && error.contains("cut short"), "{error}");
        let error = told(&|dir| {
            let mut bytes = fs::read(dir.join(VECTORS)).unwrap();
            let last = bytes.len() - 4;
            bytes[last..].copy_from_slice(&f32::NAN.to_le_bytes());
            fs::write(dir.join(VECTORS), bytes).unwrap();
        });
        assert!(error.contains(VECTORS) && error.contains("NaN"), "{error}");
        let shaped = |name: &str, shape: &[usize]| {
            told(&|dir| {
                let tensor = NewTensor { name: name.to_owned(), shape: shape.to_vec() };
                let values = vec![0.0; shape.iter().product()];
                weights::write(&dir.join(VECTORS), &[tensor], |_| Ok(values.clone())).unwrap();
            })
        };
        assert!(shaped("others", &[3, 2]).contains("has no matrix word_vectors"));
        assert!(shaped(TENSOR, &[6]).contains("has no matrix word_vectors"));
        assert!(shaped(TENSOR, &[3, 0]).contains("there are no vectors"));
    }

    #[test]
    fn vectors_that_do_not_fit_their_words_are_refused() {
        let new = |values: &[f32]| {
            let words = Vocabulary::from_lines("tea\nrail\n").unwrap();
            WordVectors::new(words, 2, values.to_vec()).err().unwrap()
        };
        assert_eq!(new(&[1.0; 6]), "there are 3 vectors for 2 words");
        assert_eq!(new(&[1.0, 2.0, f32::INFINITY, 0.0]), "the vector of \"rail\" holds inf");
    }

    proptest! {
        #[test]
        fn no_damage_makes_a_panic(name in 0_usize..2, place in any::<prop::sample::Index>(), value in any::<u8>()) {
            let dir = folder();
            let path = dir.path().join([WORDS, VECTORS][name]);
            let mut bytes = fs::read(&path).unwrap();
            let place = place.index(bytes.len());
            bytes[place] = value;
            fs::write(&path, bytes).unwrap();
            if let Ok(vectors) = WordVectors::load(dir.path(), None) {
                prop_assert!(vectors.encode(&[Text::new("tea trade rail")]).iter().all(|value| value.is_finite()));
            }
        }

        #[test]
        fn a_vector_is_one_long_or_zero(text in "(tea |trade |rail |x )*") {
            let vector = tiny().encode(&[Text::new(&text)]);
            let length: f32 = vector.iter().map(|value| value * value).sum();
            prop_assert!(length == 0.0 || (length - 1.0).abs() < 1e-6);
        }
    }
}
