//! Terms and their numbers.
//!
//! All terms lie in one string; a table of numbers finds them by hash. Memory: the bytes of the
//! terms and about 14 more a term.

use std::hash::BuildHasher;

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use rustc_hash::FxBuildHasher;

/// A set of terms numbered from zero.
///
/// ```
/// use polytag::sparse::Vocabulary;
/// let mut vocabulary = Vocabulary::default();
/// assert_eq!(vocabulary.intern("tea"), 0);
/// assert_eq!(vocabulary.intern("trade"), 1);
/// assert_eq!(vocabulary.find("tea"), Some(0));
/// assert_eq!(vocabulary.term(1), "trade");
/// ```
#[derive(Clone, Debug, Default)]
pub struct Vocabulary {
    text: String,
    /// Where each term ends.
    ends: Vec<usize>,
    table: HashTable<u32>,
}

/// A list that is not a vocabulary.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VocabularyError {
    /// A term stands twice.
    #[error("line {line}: the term {term:?} stands twice")]
    Repeated {
        /// The line, from one.
        line: usize,
        /// The term.
        term: String,
    },
}

impl Vocabulary {
    /// How many terms there are.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The term with a number.
    ///
    /// # Panics
    /// When there is none.
    pub fn term(&self, number: u32) -> &str {
        slice(&self.text, &self.ends, number)
    }

    /// The terms in order of their numbers.
    pub fn terms(&self) -> impl Iterator<Item = &str> {
        (0..self.len() as u32).map(|number| self.term(number))
    }

    /// The number of a term.
    pub fn find(&self, term: &str) -> Option<u32> {
        self.table.find(hash(term), |&number| self.term(number) == term).copied()
    }

    /// The number of a term, new if need be.
    pub fn intern(&mut self, term: &str) -> u32 {
        let Vocabulary { text, ends, table } = self;
        let entry = table.entry(
            hash(term),
            |&number| slice(text, ends, number) == term,
            |&number| hash(slice(text, ends, number)),
        );
        match entry {
            Entry::Occupied(entry) => *entry.get(),
            Entry::Vacant(entry) => {
                let number = u32::try_from(ends.len()).expect("fewer than 2^32 terms fit in memory");
                entry.insert(number);
                text.push_str(term);
                ends.push(text.len());
                number
            }
        }
    }

    /// Forgets all terms and keeps the memory.
    pub fn clear(&mut self) {
        self.text.clear();
        self.ends.clear();
        self.table.clear();
    }

    /// The terms as lines. Terms hold no line breaks, as no word does.
    pub fn to_lines(&self) -> String {
        let mut lines = String::with_capacity(self.text.len() + self.len());
        for term in self.terms() {
            lines.push_str(term);
            lines.push('\n');
        }
        lines
    }

    /// Reads what [`to_lines`](Vocabulary::to_lines) wrote.
    pub fn from_lines(lines: &str) -> Result<Vocabulary, VocabularyError> {
        let mut vocabulary = Vocabulary::default();
        for (index, term) in lines.split_terminator('\n').enumerate() {
            if vocabulary.intern(term) as usize != index {
                return Err(VocabularyError::Repeated { line: index + 1, term: term.to_owned() });
            }
        }
        Ok(vocabulary)
    }
}

fn slice<'a>(text: &'a str, ends: &[usize], number: u32) -> &'a str {
    let number = number as usize;
    let start = if number == 0 { 0 } else { ends[number - 1] };
    &text[start..ends[number]]
}

fn hash(term: &str) -> u64 {
    FxBuildHasher.hash_one(term)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_repeated_term_is_no_vocabulary() {
        let error = Vocabulary::from_lines("a\nb\na\n").unwrap_err();
        assert_eq!(error, VocabularyError::Repeated { line: 3, term: "a".to_owned() });
    }

    proptest! {
        #[test]
        fn terms_keep_their_numbers(terms in prop::collection::vec("[a-zé ]{1,6}", 0..200)) {
            let mut vocabulary = Vocabulary::default();
            for term in &terms {
                let number = vocabulary.intern(term);
                prop_assert_eq!(vocabulary.term(number), term);
            }
            let read = Vocabulary::from_lines(&vocabulary.to_lines()).unwrap();
            prop_assert_eq!(read.terms().collect::<Vec<_>>(), vocabulary.terms().collect::<Vec<_>>());
            for term in &terms {
                prop_assert_eq!(read.find(term), vocabulary.find(term));
            }
            prop_assert_eq!(read.find("no such term"), None);
        }
    }
}
