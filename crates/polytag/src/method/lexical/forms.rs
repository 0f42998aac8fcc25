//! The forms of a label as sparse vectors.

use super::LexicalConfig;
use super::rarity::Rarity;
use crate::data::Label;
use crate::index::FormEntry;
use crate::sparse::Vocabulary;
use crate::text::{Analyzer, AnalyzerError, Scratch};

/// A way to say a label, weighed.
pub(super) struct Form<'a> {
    /// The words as they were given.
    pub(super) text: &'a str,
    /// Its terms. The weights make a vector of length one, or less for a description.
    pub(super) entries: Vec<FormEntry>,
}

/// How labels and documents are cut. Names are cut into runs of words; descriptions, which are long
/// and many, into words.
pub(super) struct Cutters {
    pub(super) names: Analyzer,
    descriptions: Analyzer,
    description_weight: f32,
    ngram_weight: f32,
}

impl Cutters {
    pub(super) fn new(config: &LexicalConfig) -> Result<Cutters, AnalyzerError> {
        Ok(Cutters {
            names: config.analyzer(config.ngrams)?,
            descriptions: config.analyzer(1)?,
            description_weight: config.description_weight,
            ngram_weight: config.ngram_weight,
        })
    }
}

/// Terms of labels, numbered as they come, with the rarity of each.
#[derive(Default)]
pub(super) struct Terms {
    pub(super) vocabulary: Vocabulary,
    pub(super) rarity: Vec<f32>,
}

impl Terms {
    /// The forms of `label` that differ from each other; new terms get numbers.
    pub(super) fn learn_forms<'a>(
        &mut self,
        label: &'a Label,
        cutters: &Cutters,
        rarity: &Rarity,
        scratch: &mut Scratch,
    ) -> Vec<Form<'a>> {
        let cut = cut_forms(label, cutters, scratch, |term| {
            let number = self.vocabulary.intern(term);
            if number as usize == self.rarity.len() {
                self.rarity.push(rarity.of(term) as f32);
            }
            Some(number)
        });
        self.weigh_forms(cut, cutters.ngram_weight)
    }

    /// The forms of a label whose terms have been learned.
    pub(super) fn known_forms<'a>(&self, label: &'a Label, cutters: &Cutters) -> Vec<Form<'a>> {
        let find = |term: &str| self.vocabulary.find(term);
        self.weigh_forms(cut_forms(label, cutters, &mut Scratch::default(), find), cutters.ngram_weight)
    }

    fn weigh_forms<'a>(&self, cut: Vec<CutForm<'a>>, ngram_weight: f32) -> Vec<Form<'a>> {
        let mut forms: Vec<Form<'a>> = Vec::with_capacity(cut.len());
        for form in cut {
            let entries = self.weigh(&form.terms, form.scale, ngram_weight);
            if !entries.is_empty() && forms.iter().all(|other| other.entries != entries) {
                forms.push(Form { text: form.text, entries });
            }
        }
        forms
    }

    fn weigh(&self, numbers: &[u32], scale: f32, ngram_weight: f32) -> Vec<FormEntry> {
        let raw = numbers.iter().map(|&term| {
            let rarity = self.rarity[term as usize];
            let is_word = !self.vocabulary.term(term).contains(' ');
            let (weight, share) = if is_word { (rarity, rarity) } else { (ngram_weight * rarity, 0.0) };
            FormEntry { term, weight, share }
        });
        let mut entries: Vec<FormEntry> = raw.collect();
        // Every form that has a term has a word, whose rarity is at least 1: neither is zero.
        let length = entries.iter().map(|entry| entry.weight.powi(2)).sum::<f32>().sqrt();
        let whole: f32 = entries.iter().map(|entry| entry.share).sum();
        for entry in &mut entries {
            entry.weight *= scale / length;
            entry.share /= whole;
        }
        entries
    }
}

/// A form cut into the numbers of its terms, each once, in order.
struct CutForm<'a> {
    text: &'a str,
    scale: f32,
    terms: Vec<u32>,
}

fn cut_forms<'a>(
    label: &'a Label,
    cutters: &Cutters,
    scratch: &mut Scratch,
    mut number: impl FnMut(&str) -> Option<u32>,
) -> Vec<CutForm<'a>> {
    let names = label.names().map(|name| (name, 1.0, &cutters.names));
    let description = label.description.as_deref();
    let description = description.map(|text| (text, cutters.description_weight, &cutters.descriptions));
    names
        .chain(description.filter(|_| cutters.description_weight > 0.0))
        .map(|(text, scale, analyzer)| {
            let mut terms = Vec::new();
            analyzer.each_term(text, scratch, |term| terms.extend(number(term)));
            terms.sort_unstable();
            terms.dedup();
            CutForm { text, scale, terms }
        })
        .collect()
}
