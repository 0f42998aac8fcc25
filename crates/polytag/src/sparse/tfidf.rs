//! TF-IDF: how much a term says about a text, given how many texts use it.
//!
//! Fitting reads the texts once and keeps, for each term, in how many of them it stands; weighing
//! reads a text and gives a row of length one. With [`WordRule::Python`](crate::text::WordRule) the
//! numbers are those of scikit-learn's `TfidfVectorizer` with the same settings.
//!
//! Memory while fitting: the terms met so far, at most [`TfidfConfig::table_limit`] of them, and those
//! of the thousand texts in work; past the limit the rarest are forgotten, and [`Tfidf::forgotten`]
//! says how many. Memory while weighing: the result, and 4 bytes a term and thread.

use std::borrow::Cow;

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::csr::Csr;
use super::vocabulary::Vocabulary;
use crate::text::{Analyzer, AnalyzerConfig, AnalyzerError, Scratch};

/// Texts that one task handles: enough to hide its start, few enough to spread.
const CHUNK: usize = 64;

/// Chunks in work at once, a bound on memory.
const WAVE: usize = 16;

/// Texts that one task weighs, with one tally for all.
const WEIGHED: usize = 512;

/// How texts become weighted terms.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TfidfConfig {
    /// How text is cut into terms.
    pub analyzer: AnalyzerConfig,
    /// Terms in fewer texts than this are left out.
    pub min_df: u32,
    /// Terms in more than this share of the texts are left out.
    pub max_df: f64,
    /// Only so many terms are kept: those used most often.
    pub max_features: Option<usize>,
    /// Whether n uses of a term count as 1 + ln n.
    pub sublinear: bool,
    /// Whether every term is taken to stand in one text more than it does.
    pub smooth: bool,
    /// Terms held in memory while fitting.
    pub table_limit: usize,
}

impl Default for TfidfConfig {
    fn default() -> TfidfConfig {
        TfidfConfig {
            analyzer: AnalyzerConfig::default(),
            min_df: 1,
            max_df: 1.0,
            max_features: None,
            sublinear: true,
            smooth: true,
            table_limit: 20_000_000,
        }
    }
}

/// Settings that make no sense, or texts without terms.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum TfidfError {
    /// The analyzer's settings.
    #[error(transparent)]
    Analyzer(#[from] AnalyzerError),
    /// `max_df` is not a share.
    #[error("max_df = {0} is not a share; say a number above 0 and at most 1")]
    MaxDf(f64),
    /// `table_limit` or `max_features` is zero.
    #[error("{0} = 0 would keep no term; say at least 1, or leave it out")]
    Zero(&'static str),
}

/// A fitted weighting: terms and their inverse document frequencies.
pub struct Tfidf {
    config: TfidfConfig,
    analyzer: Analyzer,
    vocabulary: Vocabulary,
    idf: Vec<f64>,
    forgotten: u64,
}

/// What is known of the terms so far.
#[derive(Default)]
struct Counts {
    vocabulary: Vocabulary,
    /// In how many texts each term stands, and how often in all.
    uses: Vec<Uses>,
}

#[derive(Clone, Copy, Default)]
struct Uses {
    texts: u32,
    times: u64,
}

impl Tfidf {
    /// Fits on `count` texts; `text` gives each by position.
    pub fn fit<'a, E: From<TfidfError> + Send>(
        config: &TfidfConfig,
        count: usize,
        text: impl Fn(usize) -> Result<Cow<'a, str>, E> + Sync,
    ) -> Result<Tfidf, E> {
        let analyzer = check(config)?;
        let mut counts = Counts::default();
        let mut forgotten = 0;
        let chunks: Vec<usize> = (0..count).step_by(CHUNK).collect();
        for wave in chunks.chunks(WAVE) {
            let counted: Vec<Counts> = wave
                .par_iter()
                .map(|&start| count_chunk(&analyzer, start..count.min(start + CHUNK), &text))
                .collect::<Result<_, E>>()?;
            for part in counted {
                counts.merge(&part);
                forgotten += counts.shrink_to(config.table_limit);
            }
        }
        let (vocabulary, texts) = counts.select(config, count);
        let idf = texts.iter().map(|&df| idf(count, df, config.smooth)).collect();
        Ok(Tfidf { config: config.clone(), analyzer, vocabulary, idf, forgotten })
    }

    /// A weighting that was fitted before.
    ///
    /// # Errors
    /// If settings make no sense.
    ///
    /// # Panics
    /// If there is not one frequency a term.
    pub fn from_parts(
        config: &TfidfConfig,
        vocabulary: Vocabulary,
        idf: Vec<f64>,
    ) -> Result<Tfidf, TfidfError> {
        assert_eq!(vocabulary.len(), idf.len(), "a frequency a term");
        Ok(Tfidf { config: config.clone(), analyzer: check(config)?, vocabulary, idf, forgotten: 0 })
    }

    /// The same with the commonest terms first, so that what is used most lies together.
    pub fn commonest_first(self) -> Tfidf {
        let mut numbers: Vec<u32> = (0..self.vocabulary.len() as u32).collect();
        numbers.sort_by(|&a, &b| self.idf[a as usize].total_cmp(&self.idf[b as usize]).then(a.cmp(&b)));
        let mut vocabulary = Vocabulary::default();
        numbers.iter().for_each(|&number| {
            vocabulary.intern(self.vocabulary.term(number));
        });
        let idf = numbers.iter().map(|&number| self.idf[number as usize]).collect();
        Tfidf { vocabulary, idf, ..self }
    }

    /// How text is cut.
    pub fn analyzer(&self) -> &Analyzer {
        &self.analyzer
    }

    /// The settings it was fitted with.
    pub fn config(&self) -> &TfidfConfig {
        &self.config
    }

    /// Its terms.
    pub fn vocabulary(&self) -> &Vocabulary {
        &self.vocabulary
    }

    /// The inverse document frequency of each term.
    pub fn idf(&self) -> &[f64] {
        &self.idf
    }

    /// Its terms and the inverse document frequency of each.
    pub fn into_parts(self) -> (Vocabulary, Vec<f64>) {
        (self.vocabulary, self.idf)
    }

    /// How many rare terms were dropped while fitting to stay within the table.
    pub fn forgotten(&self) -> u64 {
        self.forgotten
    }

    /// The weights of `count` texts, a row each, of length one.
    pub fn transform<'a, E: Send>(
        &self,
        count: usize,
        text: impl Fn(usize) -> Result<Cow<'a, str>, E> + Sync,
    ) -> Result<Csr, E> {
        let starts: Vec<usize> = (0..count).step_by(WEIGHED).collect();
        let parts: Vec<Csr> = starts
            .into_par_iter()
            .map(|start| {
                let mut part = Csr::empty(self.vocabulary.len());
                let mut weighing = Weighing::default();
                for index in start..count.min(start + WEIGHED) {
                    part.push(self.weigh(&text(index)?, &mut weighing));
                }
                Ok(part)
            })
            .collect::<Result<_, E>>()?;
        Ok(Csr::stacked(self.vocabulary.len(), parts))
    }

    /// The weights of one text, of length one, by term.
    pub fn weigh(&self, text: &str, weighing: &mut Weighing) -> Vec<(u32, f32)> {
        let Weighing { scratch, tally } = weighing;
        tally.times.resize(self.vocabulary.len(), 0);
        self.analyzer.each_term(text, scratch, |term| {
            if let Some(number) = self.vocabulary.find(term) {
                tally.add(number);
            }
        });
        let weigh = |(number, times): (u32, u32)| {
            let times = f64::from(times);
            let tf = if self.config.sublinear { 1.0 + times.ln() } else { times };
            (number, tf * self.idf[number as usize])
        };
        let weights: Vec<(u32, f64)> = tally.take().map(weigh).collect();
        let length = weights.iter().map(|(_, weight)| weight * weight).sum::<f64>().sqrt();
        weights.into_iter().map(|(number, weight)| (number, (weight / length) as f32)).collect()
    }
}

fn check(config: &TfidfConfig) -> Result<Analyzer, TfidfError> {
    if !(config.max_df > 0.0 && config.max_df <= 1.0) {
        return Err(TfidfError::MaxDf(config.max_df));
    }
    if config.max_features == Some(0) {
        return Err(TfidfError::Zero("max_features"));
    }
    if config.table_limit == 0 {
        return Err(TfidfError::Zero("table_limit"));
    }
    Ok(Analyzer::try_from(config.analyzer.clone())?)
}

/// ln(n / df) + 1, each count raised by one where smooth.
fn idf(texts: usize, df: u32, smooth: bool) -> f64 {
    let extra = f64::from(u8::from(smooth));
    ((texts as f64 + extra) / (f64::from(df) + extra)).ln() + 1.0
}

fn count_chunk<'a, E>(
    analyzer: &Analyzer,
    range: std::ops::Range<usize>,
    text: &impl Fn(usize) -> Result<Cow<'a, str>, E>,
) -> Result<Counts, E> {
    let mut counts = Counts::default();
    let mut scratch = Scratch::default();
    // The text that used each term last; no text has the last number of all.
    let mut last: Vec<usize> = Vec::new();
    for index in range {
        let text = text(index)?;
        analyzer.each_term(&text, &mut scratch, |term| {
            let number = counts.vocabulary.intern(term) as usize;
            if number == last.len() {
                last.push(usize::MAX);
                counts.uses.push(Uses::default());
            }
            let uses = &mut counts.uses[number];
            uses.times += 1;
            uses.texts += u32::from(last[number] != index);
            last[number] = index;
        });
    }
    Ok(counts)
}

/// What weighing a text needs; used again and again, for one weighting. Memory: 4 bytes a term of its vocabulary.
#[derive(Default)]
pub struct Weighing {
    scratch: Scratch,
    tally: Tally,
}

/// Uses of terms in one text.
#[derive(Default)]
struct Tally {
    times: Vec<u32>,
    used: Vec<u32>,
}

impl Tally {
    fn add(&mut self, number: u32) {
        let times = &mut self.times[number as usize];
        if *times == 0 {
            self.used.push(number);
        }
        *times += 1;
    }

    /// The terms that were used, in order, with how often; forgets them.
    fn take(&mut self) -> impl Iterator<Item = (u32, u32)> {
        self.used.sort_unstable();
        let Tally { times, used } = self;
        used.drain(..).map(|number| (number, std::mem::take(&mut times[number as usize])))
    }
}

impl Counts {
    fn merge(&mut self, other: &Counts) {
        for (term, uses) in other.vocabulary.terms().zip(&other.uses) {
            self.add(term, *uses);
        }
    }

    fn add(&mut self, term: &str, uses: Uses) {
        let number = self.vocabulary.intern(term) as usize;
        if number == self.uses.len() {
            self.uses.push(Uses::default());
        }
        self.uses[number].texts += uses.texts;
        self.uses[number].times += uses.times;
    }

    /// Forgets the rarest terms until at most `limit` are left; says how many went.
    fn shrink_to(&mut self, limit: usize) -> u64 {
        if self.vocabulary.len() <= limit {
            return 0;
        }
        let before = self.vocabulary.len();
        // Half the table is freed at once, so that this happens rarely. Of terms as rare as each other
        // those met first stay.
        let kept = (limit / 2).max(1);
        let mut numbers: Vec<u32> = (0..before as u32).collect();
        let rarest_last = |&number: &u32| (std::cmp::Reverse(self.uses[number as usize].texts), number);
        numbers.select_nth_unstable_by_key(kept - 1, rarest_last);
        numbers.truncate(kept);
        numbers.sort_unstable();
        let old = std::mem::take(self);
        for number in numbers {
            self.add(old.vocabulary.term(number), old.uses[number as usize]);
        }
        (before - kept) as u64
    }

    /// The terms that the settings let through, in alphabetical order, with their frequencies.
    fn select(self, config: &TfidfConfig, count: usize) -> (Vocabulary, Vec<u32>) {
        let most = config.max_df * count as f64;
        let mut kept: Vec<(&str, Uses)> = self
            .vocabulary
            .terms()
            .zip(self.uses.iter().copied())
            .filter(|(_, uses)| uses.texts >= config.min_df && f64::from(uses.texts) <= most)
            .collect();
        if let Some(limit) = config.max_features
            && kept.len() > limit
        {
            kept.sort_unstable_by(|(a, x), (b, y)| y.times.cmp(&x.times).then(a.cmp(b)));
            kept.truncate(limit);
        }
        kept.par_sort_unstable_by_key(|(term, _)| *term);
        let mut vocabulary = Vocabulary::default();
        for (term, _) in &kept {
            vocabulary.intern(term);
        }
        (vocabulary, kept.iter().map(|(_, uses)| uses.texts).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::WordRule;

    fn fit(config: &TfidfConfig, texts: &[&'static str]) -> Tfidf {
        Tfidf::fit::<TfidfError>(config, texts.len(), |i| Ok(texts[i].into())).unwrap()
    }

    fn transform(tfidf: &Tfidf, texts: &[&'static str]) -> Csr {
        tfidf.transform::<TfidfError>(texts.len(), |i| Ok(texts[i].into())).unwrap()
    }

    const TEXTS: [&str; 4] = ["tea trade tea", "trade law", "tea law law law", "  "];

    #[test]
    fn weights_are_those_worked_out_by_hand() {
        let tfidf = fit(&TfidfConfig::default(), &TEXTS);
        assert_eq!(tfidf.vocabulary().terms().collect::<Vec<_>>(), ["law", "tea", "trade"]);
        // Each term stands in two of four texts: ln(5 / 3) + 1.
        let idf = (5.0f64 / 3.0).ln() + 1.0;
        assert!(tfidf.idf().iter().all(|x| (x - idf).abs() < 1e-12));
        let matrix = transform(&tfidf, &TEXTS);
        // "tea" twice: 1 + ln 2 = 1.693147; "trade" once: 1; the idf cancels out.
        let length = (1.693_147_2f32.powi(2) + 1.0).sqrt();
        assert_eq!(matrix.row(0).indices, [1, 2]);
        assert!((matrix.row(0).values[0] - 1.693_147_2 / length).abs() < 1e-6);
        assert!((matrix.row(0).values[1] - 1.0 / length).abs() < 1e-6);
        assert!(matrix.row(3).indices.is_empty());
    }

    #[test]
    fn rare_common_and_surplus_terms_are_left_out() {
        let terms = |config: TfidfConfig| {
            let tfidf = fit(&config, &["a1 b1", "a1 c1 c1 c1", "a1 b1", "a1 d1"]);
            tfidf.vocabulary().terms().map(str::to_owned).collect::<Vec<_>>()
        };
        let default = TfidfConfig::default;
        assert_eq!(terms(TfidfConfig { min_df: 2, ..default() }), ["a1", "b1"]);
        assert_eq!(terms(TfidfConfig { max_df: 0.5, ..default() }), ["b1", "c1", "d1"]);
        assert_eq!(terms(TfidfConfig { max_features: Some(2), ..default() }), ["a1", "c1"]);
    }

    #[test]
    fn a_full_table_forgets_the_rarest_and_says_so() {
        let texts: Vec<String> = (0..2000).map(|i| format!("common w{i}")).collect();
        let config = TfidfConfig { table_limit: 100, ..TfidfConfig::default() };
        let text = |i: usize| Ok::<_, TfidfError>(Cow::from(&texts[i]));
        let tfidf = Tfidf::fit(&config, texts.len(), text).unwrap();
        assert!(tfidf.vocabulary().len() <= 100);
        assert!(tfidf.vocabulary().find("common").is_some());
        assert!(tfidf.forgotten() >= 1800);
    }

    #[test]
    fn the_number_of_threads_changes_nothing() {
        let texts: Vec<String> = (0..3000).map(|i| format!("w{} w{} common", i % 97, i % 31)).collect();
        let run = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| {
                let text = |i: usize| Ok::<_, TfidfError>(Cow::from(&texts[i]));
                let tfidf = Tfidf::fit(&TfidfConfig::default(), texts.len(), text).unwrap();
                tfidf.transform(texts.len(), text).unwrap()
            })
        };
        assert_eq!(run(1), run(3));
    }

    #[test]
    fn senseless_settings_are_refused() {
        let refused = |config: TfidfConfig| {
            Tfidf::fit::<TfidfError>(&config, 0, |_| Ok("".into())).err().expect("refused").to_string()
        };
        assert!(refused(TfidfConfig { max_df: f64::NAN, ..TfidfConfig::default() }).contains("max_df = NaN"));
        assert!(refused(TfidfConfig { max_df: 1.5, ..TfidfConfig::default() }).contains("max_df"));
        assert!(
            refused(TfidfConfig { max_features: Some(0), ..TfidfConfig::default() }).contains("max_features")
        );
    }

    /// Numbers from scikit-learn 1.9.1, by scripts/make-tfidf-golden: `TfidfVectorizer(sublinear_tf=True, ngram_range=(1, 2))`.
    #[test]
    fn python_words_give_scikit_learns_numbers() {
        let analyzer =
            AnalyzerConfig { words: WordRule::Python, ngrams: (1, 2), ..AnalyzerConfig::default() };
        let config = TfidfConfig { analyzer, ..TfidfConfig::default() };
        let golden: Golden = serde_json::from_str(include_str!("../../testdata/tfidf-golden.json")).unwrap();
        let text = |i: usize| Ok::<_, TfidfError>(Cow::from(&golden.texts[i]));
        let tfidf = Tfidf::fit(&config, golden.texts.len(), text).unwrap();
        assert_eq!(tfidf.vocabulary().terms().collect::<Vec<_>>(), golden.terms);
        let matrix = tfidf.transform(golden.texts.len(), text).unwrap();
        for (row, expected) in matrix.iter().zip(&golden.rows) {
            assert_eq!(row.indices.len(), expected.len());
            for ((&index, &value), &(term, weight)) in row.indices.iter().zip(row.values).zip(expected) {
                assert_eq!(index, term);
                assert!((f64::from(value) - weight).abs() < 1e-6);
            }
        }
    }

    #[derive(Deserialize)]
    struct Golden {
        texts: Vec<String>,
        terms: Vec<String>,
        rows: Vec<Vec<(u32, f64)>>,
    }
}
