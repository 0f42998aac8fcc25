//! The forms of a label as sparse vectors.

use super::LexicalConfig;
use super::rarity::Rarity;
use crate::data::Label;
use crate::index::FormEntry;
use crate::sparse::Vocabulary;
use crate::text::{Analyzer, Scratch};

/// A way to say a label, weighed.
pub(super) struct Form<'a> {
    /// The words as they were given.
    pub(super) text: &'a str,
    /// Its terms. The weights make a vector of length one, or less for a description.
    pub(super) entries: Vec<FormEntry>,
}

/// Terms of labels, numbered as they come, with the rarity of each.
#[derive(Default)]
pub(super) struct Terms {
    pub(super) vocabulary: Vocabulary,
    pub(super) rarity: Vec<f32>,
}

impl Terms {
    /// Gives every term of `label` a number.
    pub(super) fn learn(&mut self, label: &Label, analyzer: &Analyzer, rarity: &Rarity) {
        let mut scratch = Scratch::default();
        for text in label.names().chain(label.description.as_deref()) {
            analyzer.each_term(text, &mut scratch, |term| {
                if self.vocabulary.intern(term) as usize == self.rarity.len() {
                    self.rarity.push(rarity.of(term) as f32);
                }
            });
        }
    }

    /// The forms of `label` that differ from each other; its terms must have been learned.
    pub(super) fn forms<'a>(
        &self,
        label: &'a Label,
        config: &LexicalConfig,
        analyzer: &Analyzer,
    ) -> Vec<Form<'a>> {
        let names = label.names().map(|name| (name, 1.0));
        let description = label.description.as_deref().map(|text| (text, config.description_weight));
        let mut scratch = Scratch::default();
        let mut forms: Vec<Form<'a>> = Vec::new();
        for (text, scale) in names.chain(description) {
            let mut numbers = Vec::new();
            analyzer.each_term(text, &mut scratch, |term| numbers.extend(self.vocabulary.find(term)));
            numbers.sort_unstable();
            numbers.dedup();
            let entries = self.weigh(&numbers, scale, config.ngram_weight);
            if !entries.is_empty() && forms.iter().all(|form| form.entries != entries) {
                forms.push(Form { text, entries });
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
        let length = entries.iter().map(|entry| entry.weight.powi(2)).sum::<f32>().sqrt();
        let whole: f32 = entries.iter().map(|entry| entry.share).sum();
        for entry in &mut entries {
            entry.weight *= scale / length;
            entry.share /= whole;
        }
        entries
    }
}
