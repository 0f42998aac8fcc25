//! Text to token ids, through the `tokenizers` crate.
//!
//! `tokenizer.json` enters with a folder; texts enter and token ids leave, special tokens around them,
//! cut to a length. How title and text are joined, and how much of a long text is looked at, is decided
//! here and nowhere else.

use std::fs;
use std::ops::Range;
use std::path::Path;

use rayon::prelude::*;

use crate::encoder::EncoderConfig;
use crate::error::Error;

/// Files that make up a tokenizer, of which only the first is read here; the others are for Python.
const FILES: [&str; 8] = [
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.txt",
    "vocab.json",
    "merges.txt",
    "sentencepiece.bpe.model",
];

/// How many bytes of a text are looked at first for each token that is wanted. Prose has four to six
/// bytes a token, so that this is rarely too little.
const BYTES_A_TOKEN: usize = 8;

/// A text, with a title or without.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Text<'a> {
    /// Its title.
    pub title: Option<&'a str>,
    /// The text.
    pub text: &'a str,
}

impl<'a> Text<'a> {
    /// A text without a title.
    pub fn new(text: &'a str) -> Text<'a> {
        Text { title: None, text }
    }

    /// Title and text as one: the title stands on a line of its own. WordPiece sees a space there, as
    /// training data of sentence encoders has it; tokenizers that know lines see a line.
    fn joined(&self) -> std::borrow::Cow<'a, str> {
        match self.title {
            Some(title) if !title.is_empty() => format!("{title}\n{}", self.text).into(),
            _ => self.text.into(),
        }
    }
}

/// A tokenizer, and the files it came from.
#[derive(Clone)]
pub struct Tokenizer {
    inner: tokenizers::Tokenizer,
    /// The special tokens before a text, and after it.
    ends: (Vec<u32>, Vec<u32>),
    padding: Option<u32>,
    largest: u32,
    files: Vec<(&'static str, Vec<u8>)>,
}

impl Tokenizer {
    /// Reads `tokenizer.json` of a folder. Cutting and padding that it asks for are not done: texts are cut
    /// to what [`Tokenizer::encode`] is told, and batches are packed.
    pub fn read(folder: &Path) -> Result<Tokenizer, Error> {
        let path = folder.join(FILES[0]);
        if !path.exists() {
            let problem = "is not there; a tokenizer in older files becomes one with: python3 -c 'from \
                           transformers import AutoTokenizer; \
                           AutoTokenizer.from_pretrained(\".\").save_pretrained(\".\")'";
            return Err(Error::file(path, problem));
        }
        let mut files = Vec::new();
        for name in FILES {
            let path = folder.join(name);
            if path.exists() {
                files.push((name, fs::read(&path).map_err(Error::io(&path, "read"))?));
            }
        }
        let problem = |problem| Error::file(&path, format!("is not a tokenizer: {problem}"));
        let mut inner = tokenizers::Tokenizer::from_bytes(&files[0].1).map_err(problem)?;
        let named = ["[PAD]", "<pad>"].iter().find_map(|name| inner.token_to_id(name));
        let padding = inner.get_padding().map(|padding| padding.pad_id).or(named);
        inner.with_padding(None);
        inner.with_truncation(None).map_err(problem)?;
        let largest = inner.get_vocab(true).into_values().max().unwrap_or(0);
        let ends = ends(&inner).map_err(|problem| Error::file(&path, problem))?;
        Ok(Tokenizer { inner, ends, padding, largest, files })
    }

    /// Makes sure that an encoder has a row for every token, and the same special tokens.
    ///
    /// # Errors
    /// If it has not: the tokenizer is another encoder's.
    pub fn check(&self, config: &EncoderConfig) -> Result<(), Error> {
        let (tokens, rows) = (self.largest as usize + 1, config.vocabulary);
        let unfit = |problem: String| {
            Error::Unfit(format!(
                "the tokenizer does not fit the encoder: {problem} (the tokenizer has {tokens} tokens, the \
                 encoder's table {rows} rows); take tokenizer.json from the folder of the encoder itself"
            ))
        };
        if tokens > rows {
            return Err(unfit("it has tokens that the encoder does not know".to_owned()));
        }
        if let Some(padding) = self.padding.filter(|&padding| padding != config.padding) {
            return Err(unfit(format!("its padding token is {padding}, the encoder's {}", config.padding)));
        }
        let own = self.ends.0.first().copied().zip(self.ends.1.last().copied());
        match (own, config.ends) {
            (Some(own), Some(expected)) if own != expected => Err(unfit(format!(
                "a text begins and ends with tokens {} and {}, the encoder's with {} and {}",
                own.0, own.1, expected.0, expected.1
            ))),
            _ => Ok(()),
        }
    }

    /// The token ids of each text, at most `max_tokens` with the special tokens, in parallel. An empty
    /// text is its special tokens.
    ///
    /// # Errors
    /// If `max_tokens` leaves no room for a token of the text.
    pub fn encode(&self, texts: &[Text<'_>], max_tokens: usize) -> Result<Vec<Vec<u32>>, Error> {
        let special = self.ends.0.len() + self.ends.1.len();
        if max_tokens <= special {
            let problem = format!("max_tokens is {max_tokens}, but {special} are taken by special tokens");
            return Err(Error::Unfit(problem));
        }
        texts
            .par_iter()
            .map(|text| {
                let words = self.first_tokens(&text.joined(), max_tokens - special)?;
                Ok([&self.ends.0[..], &words, &self.ends.1].concat())
            })
            .collect()
    }

    /// The first `wanted` tokens of a text.
    ///
    /// A long text is not looked at whole: its beginning is cut off where a word ends, which changes no
    /// token before the cut, since words are made into tokens one by one. Where there is no such place the
    /// cut is made anywhere, and tokens count only if they lie far before it. A beginning that gives too
    /// few tokens is made twice as long, until it is the text.
    fn first_tokens(&self, text: &str, wanted: usize) -> Result<Vec<u32>, Error> {
        let mut limit = BYTES_A_TOKEN * wanted;
        loop {
            let beginning = Beginning::of(text, limit);
            let encoding = self
                .inner
                .encode_fast(beginning.text, false)
                .map_err(|problem| Error::Unfit(format!("a text cannot be made into tokens: {problem}")))?;
            let ids = encoding.get_ids();
            let enough = match beginning.end {
                End::OfText => true,
                End::OfWord => ids.len() > wanted,
                End::Anywhere => ids.len() > 2 * wanted,
            };
            if enough {
                return Ok(ids[..ids.len().min(wanted)].to_vec());
            }
            limit = limit.saturating_mul(2);
        }
    }

    /// The token ids of a text, as [`Tokenizer::encode`] gives them, and the bytes of title and text, joined
    /// by a line end, that each stands for; none for special tokens.
    ///
    /// # Errors
    /// As [`Tokenizer::encode`].
    pub fn pieces(&self, text: Text<'_>, max_tokens: usize) -> Result<(Vec<u32>, Vec<Range<usize>>), Error> {
        let ids = self.encode(&[text], max_tokens)?.remove(0);
        let joined = text.joined();
        let words = ids.len() - self.ends.0.len() - self.ends.1.len();
        let encoding = self
            .inner
            .encode(joined.as_ref(), false)
            .map_err(|problem| Error::Unfit(format!("a text cannot be made into tokens: {problem}")))?;
        let mut ranges = vec![0..0; self.ends.0.len()];
        ranges.extend(encoding.get_offsets().iter().take(words).map(|&(start, end)| start..end));
        ranges.resize(ids.len(), 0..0);
        Ok((ids, ranges))
    }

    /// Writes the files it came from into a folder, byte for byte.
    pub fn write(&self, folder: &Path) -> Result<(), Error> {
        for (name, bytes) in &self.files {
            let path = folder.join(name);
            fs::write(&path, bytes).map_err(Error::io(&path, "write"))?;
        }
        Ok(())
    }
}

/// The special tokens that stand before and after a text: what is around the tokens of a probe.
fn ends(tokenizer: &tokenizers::Tokenizer) -> Result<(Vec<u32>, Vec<u32>), String> {
    let ids = |special| match tokenizer.encode_fast("a", special) {
        Ok(encoding) => Ok(encoding.get_ids().to_vec()),
        Err(problem) => Err(format!("cannot make text into tokens: {problem}")),
    };
    let (plain, whole) = (ids(false)?, ids(true)?);
    if plain.is_empty() {
        return Err("gives no tokens for a text".to_owned());
    }
    let at = whole.windows(plain.len()).position(|part| part == plain);
    let at = at.ok_or("changes a text's tokens when special tokens are added")?;
    Ok((whole[..at].to_vec(), whole[at + plain.len()..].to_vec()))
}

/// The beginning of a text, and what it ends with.
#[derive(Debug, PartialEq, Eq)]
struct Beginning<'a> {
    text: &'a str,
    end: End,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    OfText,
    OfWord,
    Anywhere,
}

impl<'a> Beginning<'a> {
    /// About the first `limit` bytes. Only plain spaces and line ends count as ends of words: other
    /// characters that look like space are taken away by some tokenizers, which joins what is around them.
    fn of(text: &'a str, limit: usize) -> Beginning<'a> {
        if text.len() <= limit {
            return Beginning { text, end: End::OfText };
        }
        let limit = (0..=limit).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
        let space = |byte: u8| matches!(byte, b' ' | b'\n' | b'\r' | b'\t');
        let bytes = text.as_bytes();
        // In the second half only: a text whose last space is far behind is cut anywhere.
        let word_end = (limit / 2..limit).rev().find(|&at| {
            space(bytes[at]) && text[..at].chars().next_back().is_some_and(|before| !before.is_whitespace())
        });
        match word_end {
            Some(at) => Beginning { text: &text[..at], end: End::OfWord },
            None => Beginning { text: &text[..limit], end: End::Anywhere },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(family: &str) -> std::path::PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/encoders").join(family)
    }

    #[test]
    fn a_beginning_ends_where_a_word_does() {
        let of = |text, limit| Beginning::of(text, limit);
        assert_eq!(of("one two", 7), Beginning { text: "one two", end: End::OfText });
        assert_eq!(of("one two  three", 9), Beginning { text: "one two", end: End::OfWord });
        assert_eq!(of("a bbbbbbbbbbbbbbb", 10), Beginning { text: "a bbbbbbbb", end: End::Anywhere });
        assert_eq!(of("日本語日本語", 10), Beginning { text: "日本語", end: End::Anywhere });
    }

    #[test]
    fn long_texts_give_the_tokens_that_the_whole_gives() {
        for family in ["bert", "roberta"] {
            let tokenizer = Tokenizer::read(&folder(family)).unwrap();
            let wanted = 30;
            for unit in
                ["the cat sat. ", "cat\n\n  dog ", "日本語", "aaaa", "aaaaaaaa ", "é\u{301} x", "\u{85}a b"]
            {
                let text = unit.repeat(2_000);
                let whole = tokenizer.inner.encode_fast(text.as_str(), false).unwrap();
                let expected = &whole.get_ids()[..wanted.min(whole.get_ids().len())];
                assert_eq!(tokenizer.first_tokens(&text, wanted).unwrap(), expected, "{family}: {unit:?}");
            }
        }
    }

    #[test]
    fn titles_are_lines_and_texts_are_cut() {
        let tokenizer = Tokenizer::read(&folder("bert")).unwrap();
        let titled = Text { title: Some("the"), text: "cat" };
        let ids =
            tokenizer.encode(&[titled, Text::new("the\ncat"), Text::new(""), Text::default()], 64).unwrap();
        assert_eq!(ids[0], ids[1]);
        assert_eq!(ids[2], [&tokenizer.ends.0[..], &tokenizer.ends.1].concat());
        assert_eq!(ids[3].len(), 2);
        let long = "the cat ".repeat(100);
        let cut = &tokenizer.encode(&[Text::new(&long)], 10).unwrap()[0];
        assert_eq!((cut.len(), cut[9]), (10, tokenizer.ends.1[0]));
        assert!(tokenizer.encode(&[], 2).unwrap_err().to_string().contains("max_tokens"));
    }

    #[test]
    fn pieces_are_tokens_with_their_places() {
        let tokenizer = Tokenizer::read(&folder("bert")).unwrap();
        let text = Text { title: Some("the"), text: "and the xyz" };
        let (ids, ranges) = tokenizer.pieces(text, 64).unwrap();
        assert_eq!(ids, tokenizer.encode(&[text], 64).unwrap()[0]);
        assert_eq!(ranges, [0..0, 0..3, 4..7, 8..11, 12..13, 13..14, 14..15, 0..0]);
        assert_eq!(tokenizer.pieces(text, 4).unwrap().1.len(), 4);
    }

    #[test]
    fn another_encoders_tokenizer_is_refused_with_both_sizes() {
        let tokenizer = Tokenizer::read(&folder("roberta")).unwrap();
        tokenizer.check(&EncoderConfig::read(&folder("roberta")).unwrap()).unwrap();
        let error = tokenizer.check(&EncoderConfig::read(&folder("bert")).unwrap()).unwrap_err().to_string();
        assert!(error.contains("300") && error.contains("204"), "{error}");
        let tokenizer = Tokenizer::read(&folder("bert")).unwrap();
        let error =
            tokenizer.check(&EncoderConfig::read(&folder("roberta")).unwrap()).unwrap_err().to_string();
        assert!(error.contains("padding token is 0, the encoder's 1"), "{error}");
    }

    #[test]
    fn files_that_are_no_tokenizer_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let error = |folder: &Path| Tokenizer::read(folder).err().unwrap().to_string();
        assert!(error(folder.path()).contains("AutoTokenizer"));
        for text in ["", "{}", "{\"model\": 3}", "[1"] {
            fs::write(folder.path().join("tokenizer.json"), text).unwrap();
            let message = error(folder.path());
            assert!(
                message.contains("tokenizer.json") && message.contains("is not a tokenizer"),
                "{message}"
            );
        }
    }
}
