//! An inverted index over the forms of labels: exact, sparse, and never finished.
//!
//! A label is found through its forms: its name, each alias, its description. A form is a sparse
//! vector over terms. The score of a form for a query is their inner product, times the share of
//! the form's words that the query holds, raised to a power; a label scores as its best form.
//!
//! Memory: 12 bytes an entry of a form and 32 a term. Cost of a search: one step for each entry
//! whose term is in the query, and a power for each form that might be among the best.

use std::ops::Range;

use super::Allowed;
use crate::ids::LabelId;
use crate::ranking::{NotFinite, Ranking, Scored, TopK};

/// One entry of a form.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FormEntry {
    /// The term.
    pub term: u32,
    /// Its weight.
    pub weight: f32,
    /// Which share of the form it stands for; the shares of a form add up to one.
    pub share: f32,
}

#[derive(Clone, Copy, Debug)]
struct Posting {
    form: u32,
    weight: f32,
    share: f32,
}

/// How many forms are scored before it is asked which others can still be among the best, besides two for each label
/// that is wanted.
const FIRST: usize = 32;

/// Forms of labels by the terms they hold.
///
/// ```
/// use polytag::{ids::LabelId, index::{FormEntry, Inverted, Query}};
/// let mut index = Inverted::new(0.5);
/// let entry = |term, share| FormEntry { term, weight: 1.0, share };
/// index.add(LabelId(0), &[vec![entry(0, 1.0)]]);
/// index.add(LabelId(1), &[vec![entry(0, 0.5), entry(1, 0.5)]]);
/// let ranking = index.search(&Query { terms: &[(0, 1.0)], k: 2, allowed: None }, &mut Default::default())?;
/// // The second label's form is only half covered.
/// assert_eq!(ranking.entries()[0].label, LabelId(0));
/// assert_eq!(ranking.entries()[1].score, 0.5f32.sqrt());
/// # Ok::<(), polytag::ranking::NotFinite>(())
/// ```
#[derive(Debug)]
pub struct Inverted {
    coverage_power: f32,
    postings: Vec<Vec<Posting>>,
    /// The label of each form; none once it has been removed.
    labels: Vec<Option<LabelId>>,
    /// The forms of each label, by its position.
    forms: Vec<Range<u32>>,
}

/// What to look for.
#[derive(Clone, Copy, Debug)]
pub struct Query<'a> {
    /// Terms, each once, and their weights.
    pub terms: &'a [(u32, f32)],
    /// How many labels are wanted.
    pub k: usize,
    /// Which labels may be answered with; all, if none is named.
    pub allowed: Option<&'a Allowed>,
}

/// Buffers that one thread uses again and again: at most 24 bytes a form and 12 a label.
#[derive(Debug, Default)]
pub struct SearchScratch {
    sums: Vec<(f32, f32)>,
    touched_forms: Vec<u32>,
    found: Vec<Found>,
    best: Best,
    scores: Vec<f32>,
}

/// A form that shares terms with the query.
#[derive(Clone, Copy, Debug)]
struct Found {
    label: LabelId,
    product: f32,
    coverage: f32,
}

/// The best score of each label.
#[derive(Debug, Default)]
struct Best {
    /// By position; zero for none.
    scores: Vec<f32>,
    /// The labels that have one.
    labels: Vec<LabelId>,
}

impl Best {
    fn take(&mut self, label: LabelId, score: f32) {
        let best = &mut self.scores[label.index()];
        // A score that is not a number stays, for whoever ranks labels to find it.
        if score > *best || score.is_nan() {
            if *best == 0.0 {
                self.labels.push(label);
            }
            *best = score;
        }
    }

    /// The score of the label in place `k`, or zero if there are fewer.
    fn nth(&self, k: usize, scores: &mut Vec<f32>) -> f32 {
        scores.clear();
        scores.extend(self.labels.iter().map(|label| self.scores[label.index()]));
        match k.checked_sub(1).filter(|&last| last < scores.len()) {
            Some(last) => *scores.select_nth_unstable_by(last, |a, b| b.total_cmp(a)).1,
            None => 0.0,
        }
    }
}

impl Inverted {
    /// An empty index. `coverage_power` says how much a form suffers from words that the query
    /// lacks: at 0 not at all, at 1 in proportion.
    pub fn new(coverage_power: f32) -> Inverted {
        Inverted { coverage_power, postings: Vec::new(), labels: Vec::new(), forms: Vec::new() }
    }

    /// Adds a label by its forms; those it had before are removed. A form without entries is never
    /// found.
    pub fn add(&mut self, label: LabelId, forms: &[Vec<FormEntry>]) {
        self.remove(label);
        let number = |forms: usize| u32::try_from(forms).expect("fewer than 2^32 forms fit in memory");
        let first = number(self.labels.len());
        for entries in forms {
            let form = number(self.labels.len());
            self.labels.push(Some(label));
            for entry in entries {
                let term = entry.term as usize;
                if term >= self.postings.len() {
                    self.postings.resize_with(term + 1, Vec::new);
                }
                self.postings[term].push(Posting { form, weight: entry.weight, share: entry.share });
            }
        }
        if label.index() >= self.forms.len() {
            self.forms.resize(label.index() + 1, 0..0);
        }
        self.forms[label.index()] = first..number(self.labels.len());
    }

    /// Removes all forms of a label, if it has any.
    pub fn remove(&mut self, label: LabelId) {
        if let Some(forms) = self.forms.get_mut(label.index()) {
            for form in std::mem::take(forms) {
                self.labels[form as usize] = None;
            }
        }
    }

    /// The best labels for a query. Labels that share no term with it are not ranked.
    pub fn search(&self, query: &Query<'_>, scratch: &mut SearchScratch) -> Result<Ranking, NotFinite> {
        scratch.sums.resize(self.labels.len(), (0.0, 0.0));
        scratch.best.scores.resize(self.forms.len(), 0.0);
        for &(term, value) in query.terms {
            for posting in self.postings.get(term as usize).map_or(&[][..], Vec::as_slice) {
                let sum = &mut scratch.sums[posting.form as usize];
                if *sum == (0.0, 0.0) {
                    scratch.touched_forms.push(posting.form);
                }
                sum.0 += value * posting.weight;
                sum.1 += posting.share;
            }
        }
        scratch.found.clear();
        for form in scratch.touched_forms.drain(..) {
            let (product, coverage) = std::mem::take(&mut scratch.sums[form as usize]);
            let Some(label) = self.labels[form as usize] else { continue };
            if query.allowed.is_none_or(|allowed| allowed.contains(label)) {
                scratch.found.push(Found { label, product, coverage });
            }
        }
        // The best products first: most others cannot come near them, whatever they cover, and need no power.
        let first = query.k.saturating_mul(2).saturating_add(FIRST);
        let (first, rest) = match scratch.found.len() / 2 > first {
            true => {
                scratch.found.select_nth_unstable_by(first, |a, b| b.product.total_cmp(&a.product));
                scratch.found.split_at(first)
            }
            false => scratch.found.split_at(scratch.found.len()),
        };
        let score = |found: &Found| found.product * found.coverage.min(1.0).powf(self.coverage_power);
        for found in first {
            scratch.best.take(found.label, score(found));
        }
        // What a form covers is at most all of it, so that it scores its product at most. What is no number is
        // below nothing.
        let least = if rest.is_empty() { 0.0 } else { scratch.best.nth(query.k, &mut scratch.scores) };
        for found in rest.iter().filter(|found| found.product >= least || found.product.is_nan()) {
            scratch.best.take(found.label, score(found));
        }
        let mut top = TopK::new(query.k);
        let mut failure: Option<NotFinite> = None;
        for label in scratch.best.labels.drain(..) {
            let score = std::mem::take(&mut scratch.best.scores[label.index()]);
            let failures = failure.into_iter().chain(top.push(Scored { label, score }).err());
            failure = failures.min_by_key(|failure| failure.label);
        }
        failure.map_or_else(|| Ok(top.into_ranking()), Err)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    type Forms = Vec<(u32, Vec<(u32, f32)>)>;

    fn index(forms: &Forms, power: f32) -> Inverted {
        let mut index = Inverted::new(power);
        let mut by_label = std::collections::BTreeMap::<u32, Vec<Vec<FormEntry>>>::new();
        for (label, entries) in forms {
            by_label.entry(*label).or_default().push(shared(entries));
        }
        by_label.iter().for_each(|(label, forms)| index.add(LabelId(*label), forms));
        index
    }

    fn shared(entries: &[(u32, f32)]) -> Vec<FormEntry> {
        let share = 1.0 / entries.len() as f32;
        entries.iter().map(|&(term, weight)| FormEntry { term, weight, share }).collect()
    }

    fn forms() -> impl Strategy<Value = Forms> {
        let entries = prop::collection::btree_map(0u32..12, 0.1f32..1.0, 0..5);
        prop::collection::vec((0u32..6, entries.prop_map(|map| map.into_iter().collect())), 0..20)
    }

    /// What the index should find, worked out the long way.
    fn by_hand(forms: &Forms, terms: &[(u32, f32)], k: usize, allowed: Option<&Allowed>) -> Ranking {
        let mut best = std::collections::BTreeMap::<u32, f32>::new();
        for (label, entries) in forms {
            let (mut product, mut coverage) = (0.0, 0.0);
            for &(term, value) in terms {
                for entry in shared(entries).iter().filter(|entry| entry.term == term) {
                    product += value * entry.weight;
                    coverage += entry.share;
                }
            }
            let score = product * f32::min(coverage, 1.0).powf(0.5);
            if score > 0.0 && allowed.is_none_or(|allowed| allowed.contains(LabelId(*label))) {
                let slot = best.entry(*label).or_default();
                *slot = slot.max(score);
            }
        }
        let scored = best.into_iter().map(|(label, score)| Scored { label: LabelId(label), score }).collect();
        Ranking::new(scored, k).unwrap()
    }

    /// So many that most are not scored in full.
    fn many_forms() -> impl Strategy<Value = Forms> {
        let entries = prop::collection::btree_map(0u32..12, 0.1f32..1.0, 1..5);
        prop::collection::vec((0u32..60, entries.prop_map(|map| map.into_iter().collect())), 100..300)
    }

    proptest! {
        #[test]
        fn search_among_many_forms_is_exact(
            forms in many_forms(),
            terms in prop::collection::btree_map(0u32..14, 0.1f32..1.0, 0..8),
            k in 0usize..20,
        ) {
            let terms: Vec<(u32, f32)> = terms.into_iter().collect();
            let query = Query { terms: &terms, k, allowed: None };
            let index = index(&forms, 0.5);
            let mut scratch = SearchScratch::default();
            let found = index.search(&query, &mut scratch).unwrap();
            prop_assert_eq!(&found, &by_hand(&forms, &terms, k, None));
            prop_assert_eq!(index.search(&query, &mut scratch).unwrap(), found);
        }

        #[test]
        fn search_is_exact(
            forms in forms(),
            terms in prop::collection::btree_map(0u32..14, 0.1f32..1.0, 0..8),
            k in 0usize..8,
            some in prop::option::of(prop::collection::vec(0u32..6, 0..4)),
        ) {
            let terms: Vec<(u32, f32)> = terms.into_iter().collect();
            let allowed = some.map(|labels| labels.into_iter().map(LabelId).collect::<Allowed>());
            let query = Query { terms: &terms, k, allowed: allowed.as_ref() };
            let index = index(&forms, 0.5);
            let mut scratch = SearchScratch::default();
            let found = index.search(&query, &mut scratch).unwrap();
            prop_assert_eq!(&found, &by_hand(&forms, &terms, k, allowed.as_ref()));
            // The buffers are clean for the next query.
            prop_assert_eq!(index.search(&query, &mut scratch).unwrap(), found);
        }

        #[test]
        fn a_removed_label_is_as_if_it_had_never_been(forms in forms(), gone in 0u32..6) {
            let terms: Vec<(u32, f32)> = (0..12).map(|term| (term, 1.0)).collect();
            let query = Query { terms: &terms, k: 10, allowed: None };
            let mut removed = index(&forms, 0.5);
            removed.remove(LabelId(gone));
            let without: Forms = forms.into_iter().filter(|(label, _)| *label != gone).collect();
            prop_assert_eq!(
                removed.search(&query, &mut SearchScratch::default()).unwrap(),
                index(&without, 0.5).search(&query, &mut SearchScratch::default()).unwrap()
            );
        }
    }

    /// A label for each of so many products, found by one term that covers as much of its form as is said.
    fn products(forms: impl Iterator<Item = (f32, f32)>) -> Inverted {
        let mut index = Inverted::new(0.5);
        for (label, (weight, share)) in forms.enumerate() {
            index.add(LabelId(label as u32), &[vec![FormEntry { term: 0, weight, share }]]);
        }
        index
    }

    #[test]
    fn forms_with_the_product_of_the_worst_that_is_wanted_are_scored() {
        // All alike, so that the smallest ids are wanted, wherever they come to lie.
        let index = products((0..500).map(|_| (1.0, 1.0)));
        let mut allowed: Allowed = (0..500).map(LabelId).collect();
        let found = |k: usize, allowed: Option<&Allowed>| {
            let query = Query { terms: &[(0, 1.0)], k, allowed };
            let ranking = index.search(&query, &mut SearchScratch::default()).unwrap();
            ranking.labels().collect::<Vec<_>>()
        };
        assert_eq!(found(3, None), [0, 1, 2].map(LabelId));
        assert_eq!(found(3, Some(&allowed)), [0, 1, 2].map(LabelId));
        allowed = (100..500).map(LabelId).collect();
        assert_eq!(found(3, Some(&allowed)), [100, 101, 102].map(LabelId));
    }

    #[test]
    fn a_large_product_that_covers_little_does_not_hide_a_smaller_one() {
        // The first hundred have the larger products and cover a hundredth.
        let index = products((0..400).map(|label| if label < 100 { (2.0, 0.01) } else { (1.0, 1.0) }));
        let query = Query { terms: &[(0, 1.0)], k: 3, allowed: None };
        let found = index.search(&query, &mut SearchScratch::default()).unwrap();
        assert_eq!(found.labels().collect::<Vec<_>>(), [100, 101, 102].map(LabelId));
    }

    #[test]
    fn weights_that_are_no_numbers_are_an_error_that_names_the_first() {
        // A negative one is less than all others: it would never be among the best.
        for nan in [f32::NAN, -f32::NAN] {
            let weight = |label| if label == 70 || label == 450 { nan } else { 1.0 };
            let index = products((0..500).map(|label| (weight(label), 1.0)));
            let query = Query { terms: &[(0, 1.0)], k: 1, allowed: None };
            let error = index.search(&query, &mut SearchScratch::default()).unwrap_err();
            assert_eq!(error.label, LabelId(70));
        }
    }

    #[test]
    fn a_weight_that_is_not_a_number_is_an_error() {
        let index = index(&vec![(0, vec![(0, 1.0)])], 0.5);
        let query = Query { terms: &[(0, f32::NAN)], k: 1, allowed: None };
        assert!(index.search(&query, &mut SearchScratch::default()).is_err());
    }
}
