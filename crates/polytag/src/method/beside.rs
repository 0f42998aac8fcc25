//! What a model of vectors has beside them: the words that a document and a label share, as `lexical` weighs them, and
//! what a label gains for being guessed often. Both come from texts alone, so that no labelled pair is needed.
//!
//! Where documents are labels themselves, a document's words may include the names of the label that it is. Its text
//! often has no need to say them, and they tell what it belongs to.
//!
//! Where vectors are trained on texts, labels compete for documents one against one, and it is forgotten that some
//! labels fit far more documents than others. How often `lexical` guesses a label says it again, roughly.
//!
//! Memory: what a `lexical` model takes, with a copy of the labels' texts, and 4 bytes a label.

use rayon::prelude::*;
use rustc_hash::FxHashMap;

use super::lexical::{LexicalConfig, LexicalModel};
use crate::artifact::{ArtifactError, ModelFolder, ModelWriter};
use crate::data::{LabelChange, LabelSpace, Passage};
use crate::ids::LabelId;
use crate::index::{Allowed, LabelIndex};
use crate::predict::{Ask, Explanation, PredictError, Predictor as _, Reason};
use crate::ranking::{Ranking, Scored};

/// How many labels more than are wanted vectors and words are each asked for. A label that is among neither's best is
/// passed over.
const DEEP: usize = 1000;

/// The file of `lexical`'s settings.
const SETTINGS: &str = "lexical.json";

/// A label's share of the words of a document.
pub(super) struct Words {
    model: LexicalModel,
    /// How much of `lexical`'s score counts beside a cosine.
    weight: f32,
    /// Whether a document that is a label has the label's names among its words.
    own_names: bool,
    /// How many labels more than are wanted each side is asked for.
    deep: usize,
}

impl Words {
    pub(super) fn new(model: LexicalModel, weight: f32) -> Words {
        Words { model, weight, own_names: false, deep: DEEP }
    }

    /// The same, where documents that are labels have the labels' names among their words, or not.
    pub(super) fn with_own_names(self, own_names: bool) -> Words {
        Words { own_names, ..self }
    }

    /// Reads what [`save`](Words::save) wrote.
    pub(super) fn load(
        folder: &ModelFolder,
        weight: f32,
        space: &LabelSpace,
    ) -> Result<Words, ArtifactError> {
        let text = folder.read_text(SETTINGS)?;
        let config: LexicalConfig =
            serde_json::from_str(&text).map_err(|error| folder.damaged(SETTINGS, error))?;
        let model = LexicalModel::load_with(folder, (SETTINGS, &config), space.clone())?;
        Ok(Words::new(model, weight))
    }

    pub(super) fn save(&self, model: &mut ModelWriter) -> Result<(), ArtifactError> {
        let settings = serde_json::to_string_pretty(self.model.config()).expect("settings are plain");
        model.file(SETTINGS, settings.as_bytes())?;
        self.model.save(model)
    }

    pub(super) fn apply(&mut self, changes: &[LabelChange]) -> Result<(), PredictError> {
        self.model.apply(changes)
    }

    /// The best labels by vectors and words together.
    pub(super) fn search(
        &self,
        (passages, vectors): (&[Passage<'_>], &[f32]),
        index: &dyn LabelIndex,
        ask: &Ask<'_>,
    ) -> Result<Vec<Ranking>, PredictError> {
        let deep = Ask { k: ask.k.saturating_add(self.deep), allowed: ask.allowed };
        let near = index.search(vectors, deep.k, deep.allowed)?;
        let titles = self.titles(passages);
        let passages = &named(passages, &titles)[..];
        let worded = self.model.predict(passages, &deep)?;
        let found = near.into_par_iter().zip(worded);
        let queries = passages.par_iter().zip(vectors.par_chunks_exact(index.dim()));
        queries
            .zip(found)
            .map(|((&passage, vector), found)| self.mix((passage, vector), index, found, (ask.k, deep.k)))
            .collect()
    }

    /// The titles that passages are read with, where they are not their own.
    fn titles(&self, passages: &[Passage<'_>]) -> Vec<Option<String>> {
        let space = self.model.label_space();
        passages.iter().map(|passage| self.own_names.then(|| own_title(passage, space)).flatten()).collect()
    }

    fn mix(
        &self,
        (passage, vector): (Passage<'_>, &[f32]),
        index: &dyn LabelIndex,
        (near, worded): (Ranking, Ranking),
        (k, deep): (usize, usize),
    ) -> Result<Ranking, PredictError> {
        // Each side scores what only the other one found.
        let without = |labels: &Ranking, others: &Ranking| -> Allowed {
            let others: Allowed = others.labels().collect();
            labels.labels().filter(|label| !others.contains(*label)).collect()
        };
        let (far, unworded) = (without(&worded, &near), without(&near, &worded));
        let rest = index.search(vector, far.len(), Some(&far))?;
        // Where words found fewer than they were asked for, all others share none.
        let unworded = if worded.len() < deep {
            Vec::new()
        } else {
            self.model.predict(&[passage], &Ask { k: unworded.len(), allowed: Some(&unworded) })?
        };
        let entries = |one: &Ranking, more: &[Ranking]| -> Vec<Scored> {
            [one].into_iter().chain(more).flat_map(Ranking::entries).copied().collect()
        };
        let shared: FxHashMap<LabelId, f32> =
            entries(&worded, &unworded).into_iter().map(|entry| (entry.label, entry.score)).collect();
        let mut scored = entries(&near, &rest);
        for entry in &mut scored {
            entry.score += self.weight * shared.get(&entry.label).copied().unwrap_or(0.0);
        }
        Ok(Ranking::new(scored, k)?)
    }

    /// Adds the words that speak for a label to other reasons for it. Comes back with what they add to the score.
    pub(super) fn explain(
        &self,
        passage: Passage<'_>,
        label: LabelId,
        reasons: &mut Vec<Reason>,
    ) -> Result<Explanation, PredictError> {
        let titles = self.titles(&[passage]);
        let shared = self.model.explain(named(&[passage], &titles)[0], label)?;
        for reason in &shared.reasons {
            let weight = self.weight * reason.weight;
            let same = |known: &&mut Reason| (&known.words, known.field) == (&reason.words, reason.field);
            match reasons.iter_mut().find(same) {
                Some(known) => known.weight += weight,
                None => reasons.push(Reason { weight, ..reason.clone() }),
            }
        }
        Ok(Explanation { score: self.weight * shared.score, ..shared })
    }
}

/// The title of a passage with the names of the label that it is, if it is one; none where they say nothing new.
pub(super) fn own_title(passage: &Passage<'_>, space: &LabelSpace) -> Option<String> {
    let label = space.label(passage.id.and_then(|id| space.find(id))?);
    let names = [&label.name].into_iter().chain(&label.aliases).map(String::as_str);
    let more: Vec<&str> =
        names.filter(|name| Some(*name) != passage.title && *name != passage.text).collect();
    let words = passage.title.into_iter().chain(more.iter().copied());
    (!more.is_empty()).then(|| words.collect::<Vec<_>>().join("\n"))
}

/// Passages with other titles, where there are others.
pub(super) fn named<'a>(passages: &[Passage<'a>], titles: &'a [Option<String>]) -> Vec<Passage<'a>> {
    let named = |(passage, title): (&Passage<'a>, &'a Option<String>)| Passage {
        title: title.as_deref().or(passage.title),
        ..*passage
    };
    passages.iter().zip(titles).map(named).collect()
}

/// What labels gain, by position, for how many documents they were guessed for: `weight` times the logarithm of how much
/// more that is than nothing, where the mean of all `labels` counts as one.
pub(super) fn gains(guessed: &[u32], labels: usize, weight: f32) -> Vec<f32> {
    let all: u64 = guessed.iter().map(|&count| u64::from(count)).sum();
    let mean = all as f64 / labels.max(1) as f64;
    let gain = |&count: &u32| if count == 0 { 0.0 } else { (f64::from(count) / mean).ln_1p() };
    guessed.iter().map(|count| weight * gain(count) as f32).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Label;
    use crate::index::{Exact, Precision};

    #[test]
    fn what_one_side_finds_the_other_scores() {
        let mut space = LabelSpace::default();
        for name in ["river bank", "sea water", "river water", "stone"] {
            space.add(Label::new(name, name)).unwrap();
        }
        let model = || LexicalModel::without_documents(&LexicalConfig::default(), space.clone()).unwrap();
        let mut index = Exact::new(2, Precision::F32).unwrap();
        for (place, vector) in [[0.0, 1.0], [0.6, 0.8], [0.8, 0.6], [1.0, 0.0]].iter().enumerate() {
            index.set(LabelId::from_index(place), vector).unwrap();
        }
        let index = index.with_gains(vec![0.25, 0.0, 0.5]).unwrap();
        // Words find the first label first, or the third; vectors the last but for what the third gains.
        let passages =
            [Passage::from("A bank by the river"), Passage::from("the river, and the river water")];
        let vectors = [1.0, 0.0, 1.0, 0.0];
        let by_words = model().predict(&passages, &Ask { k: 4, allowed: None }).unwrap();
        let expected = |weight: f32, query: usize, label: LabelId| {
            let words = by_words[query].entries().iter().find(|entry| entry.label == label);
            let near = index.search(&vectors[..2], 1, Some(&[label].into_iter().collect())).unwrap();
            near[0].entries()[0].score + weight * words.map_or(0.0, |entry| entry.score)
        };
        for (weight, best) in [(2.0, [2, 2]), (8.0, [0, 2])] {
            for (deep, k) in [(0, 1), (0, 2), (1, 3), (9, 4)] {
                let words = Words { deep, ..Words::new(model(), weight) };
                let found = words.search((&passages, &vectors), &index, &Ask { k, allowed: None }).unwrap();
                for (query, best) in best.into_iter().enumerate() {
                    let entries = found[query].entries();
                    assert_eq!((entries.len(), entries[0].label), (k, LabelId(best)), "{weight} {deep} {k}");
                    for entry in entries {
                        let sum = expected(weight, query, entry.label);
                        assert!((entry.score - sum).abs() < 1e-6, "{weight} {deep} {k}: {entry:?} {sum}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_document_that_is_a_label_has_its_names_among_its_words() {
        let mut space = LabelSpace::default();
        let label =
            |id: &str, name: &str, alias: &str| Label { aliases: vec![alias.into()], ..Label::new(id, name) };
        space.add(label("a", "parser of dates", "perl-dates")).unwrap();
        space.add(label("b", "scripting language", "perl")).unwrap();
        let passage = |id| Passage { id, title: Some("parser of dates"), text: "It reads them." };
        let title = |passage: Passage<'_>| own_title(&passage, &space);
        assert_eq!(title(passage(Some("a"))).as_deref(), Some("parser of dates\nperl-dates"));
        assert_eq!(title(passage(Some("b"))).unwrap(), "parser of dates\nscripting language\nperl");
        assert_eq!(title(Passage { title: None, ..passage(Some("b")) }).unwrap(), "scripting language\nperl");
        assert_eq!([title(passage(Some("z"))), title(passage(None))], [None, None]);
        let bare = Label::new("c", "sea");
        let mut other = LabelSpace::default();
        other.add(bare).unwrap();
        let known = Passage { id: Some("c"), title: None, text: "sea" };
        assert_eq!(own_title(&known, &other), None, "nothing new");

        let model = LexicalModel::without_documents(&LexicalConfig::default(), space.clone()).unwrap();
        let mut index = Exact::new(2, Precision::F32).unwrap();
        index.set(LabelId(0), &[1.0, 0.0]).unwrap();
        index.set(LabelId(1), &[0.0, 1.0]).unwrap();
        let mut words = Words::new(model, 2.0).with_own_names(true);
        let score = |words: &Words, id, label| {
            let allowed: Allowed = [label].into_iter().collect();
            let ask = Ask { k: 1, allowed: Some(&allowed) };
            let found = words.search((&[passage(id)], &[0.6, 0.8]), &index, &ask).unwrap();
            found[0].entries()[0].score
        };
        assert_eq!(score(&words, None, LabelId(1)), 0.8, "no word is shared");
        let by_name = score(&words, Some("a"), LabelId(1));
        assert!(by_name > 0.8, "perl-dates has perl");
        let mut reasons = Vec::new();
        let explained = words.explain(passage(Some("a")), LabelId(1), &mut reasons).unwrap();
        let sum: f32 = reasons.iter().map(|reason| reason.weight).sum();
        assert!((0.8 + explained.score - by_name).abs() < 1e-6 && (sum - explained.score).abs() < 1e-6);
        assert_eq!(reasons[0].words, "perl");
        // A label that comes or goes takes its names along.
        words.apply(&[LabelChange::Add { label: label("z", "tool", "perl") }]).unwrap();
        assert!(score(&words, Some("z"), LabelId(1)) > 0.8);
        words.apply(&[LabelChange::Remove { id: "z".into() }]).unwrap();
        assert_eq!(score(&words, Some("z"), LabelId(1)), 0.8);
        let words = words.with_own_names(false);
        assert_eq!(score(&words, Some("a"), LabelId(1)), 0.8);
    }

    #[test]
    fn a_label_gains_by_how_often_it_is_guessed_against_the_mean() {
        let found = gains(&[0, 2, 6, 0], 4, 0.5);
        let expected = [0.0, 0.5 * 2f32.ln(), 0.5 * 4f32.ln(), 0.0];
        assert!(found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-6), "{found:?}");
        assert_eq!(gains(&[0, 0], 2, 0.5), [0.0, 0.0], "nothing was guessed");
        assert_eq!(gains(&[], 0, 0.5), [0.0; 0]);
    }
}
