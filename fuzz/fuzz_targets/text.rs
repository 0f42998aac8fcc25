//! Any text through the analyzer and TF-IDF.
//!
//! The first three bytes choose the settings; the rest is one text a line.

#![no_main]

use std::borrow::Cow;
use std::sync::Once;

use libfuzzer_sys::fuzz_target;
use polytag::sparse::{Tfidf, TfidfConfig, TfidfError, Vocabulary};
use polytag::text::{Analyzer, AnalyzerConfig, Language, Scratch, WordRule};

static ONE_THREAD: Once = Once::new();

const LANGUAGES: [Language; 18] = [
    Language::Arabic,
    Language::Danish,
    Language::Dutch,
    Language::English,
    Language::Finnish,
    Language::French,
    Language::German,
    Language::Greek,
    Language::Hungarian,
    Language::Italian,
    Language::Norwegian,
    Language::Portuguese,
    Language::Romanian,
    Language::Russian,
    Language::Spanish,
    Language::Swedish,
    Language::Tamil,
    Language::Turkish,
];

fuzz_target!(|data: &[u8]| {
    // Threads would only blur what each input covers.
    ONE_THREAD.call_once(|| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(1).use_current_thread();
        pool.build_global().expect("nobody else builds it");
    });
    let [rule, language, weights, rest @ ..] = data else { return };
    let text = String::from_utf8_lossy(rest);
    let analyzer = AnalyzerConfig {
        words: if rule & 1 == 0 { WordRule::Unicode } else { WordRule::Python },
        min_chars: usize::from(rule >> 1 & 3),
        // The last choice keeps the words.
        stem: LANGUAGES.get(usize::from(language % 19)).copied(),
        ngrams: [(1, 1), (1, 2), (1, 3), (2, 3)][usize::from(rule >> 3 & 3)],
    };
    terms_are_words(&analyzer, &text);
    let config = TfidfConfig {
        analyzer,
        min_df: u32::from(weights & 1) + 1,
        max_df: if weights & 2 == 0 { 1.0 } else { 0.5 },
        max_features: if weights & 4 == 0 { None } else { Some(3) },
        sublinear: weights & 8 == 0,
        smooth: weights & 16 == 0,
        table_limit: if weights & 32 == 0 { 1 << 20 } else { 4 },
    };
    rows_have_length_one(&config, &text);
});

fn terms_are_words(config: &AnalyzerConfig, text: &str) {
    let analyzer = Analyzer::try_from(config.clone()).expect("the range is a range");
    let lower = text.to_lowercase();
    let mut scratch = Scratch::default();
    let mut terms = Vec::new();
    analyzer.each_term_and_source(text, &mut scratch, |term, source| {
        // By Unicode's rule the source is of the normal form, which need not be how the text was typed.
        assert!(!source.is_empty() && (config.words == WordRule::Unicode || lower.contains(source)));
        assert!(!term.contains(['\n', '\r', '\t']), "{term:?}");
        // Words are told apart by the one space between them.
        let words = term.split(' ').inspect(|word| assert!(!word.is_empty(), "{term:?} from {source:?}"));
        assert!((config.ngrams.0..=config.ngrams.1).contains(&words.count()), "{term:?}");
        terms.push(term.to_owned());
    });
    // What a thread remembers of the last text changes nothing in the next.
    let mut again = terms.iter();
    analyzer.each_term(text, &mut scratch, |term| assert_eq!(again.next().map(String::as_str), Some(term)));
    assert_eq!(again.next(), None);
}

fn rows_have_length_one(config: &TfidfConfig, text: &str) {
    let texts: Vec<&str> = text.lines().collect();
    let give = |index: usize| Ok::<_, TfidfError>(Cow::Borrowed(texts[index]));
    let tfidf = Tfidf::fit(config, texts.len(), give).expect("the settings make sense");
    assert!(tfidf.idf().iter().all(|weight| weight.is_finite() && *weight > 0.0));
    let rows = tfidf.transform(texts.len(), give).expect("the texts are at hand");
    assert_eq!(rows.rows(), texts.len());
    for row in rows.iter() {
        assert!(row.indices.windows(2).all(|pair| pair[0] < pair[1]));
        assert!(row.indices.iter().all(|&index| (index as usize) < tfidf.vocabulary().len()));
        assert!(row.values.iter().all(|value| value.is_finite()));
        assert!(row.indices.is_empty() || (row.dot(row) - 1.0).abs() < 1e-4);
    }
    let read = Vocabulary::from_lines(&tfidf.vocabulary().to_lines()).expect("each term stands once");
    assert!(read.terms().eq(tfidf.vocabulary().terms()));
}
