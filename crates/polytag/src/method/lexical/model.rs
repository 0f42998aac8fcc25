//! The fitted method: an index over the forms of all labels.

use std::sync::Mutex;

use rayon::prelude::*;
use rustc_hash::FxHashMap;

use super::LexicalConfig;
use super::forms::{Cutters, Form, Terms};
use super::rarity::Rarity;
use crate::artifact::{ArtifactError, ModelFolder, ModelWriter};
use crate::data::{LabelChange, LabelSpace, Passage};
use crate::ids::LabelId;
use crate::index::{FormEntry, Inverted, Query, SearchScratch};
use crate::method::error::MethodError;
use crate::predict::{Ask, Explanation, Field, PredictError, Predictor, Reason};
use crate::ranking::Ranking;
use crate::sparse::Vocabulary;
use crate::text::{AnalyzerError, Scratch};

/// Passages that one task answers.
const CHUNK: usize = 16;

/// A fitted `lexical`.
pub struct LexicalModel {
    config: LexicalConfig,
    cutters: Cutters,
    rarity: Rarity,
    space: LabelSpace,
    terms: Terms,
    index: Inverted,
    /// Buffers that are not in use. They are large for large label sets, so they are kept.
    idle: Mutex<Vec<Buffers>>,
}

/// What answering a passage needs; used again and again.
#[derive(Default)]
struct Buffers {
    text: Scratch,
    search: SearchScratch,
    words: Vocabulary,
    word_uses: Vec<(u32, Field)>,
    term_uses: Vec<(u32, Field)>,
}

/// A term of a document: its weight in the title and in the text.
#[derive(Clone, Copy)]
struct Weighed {
    term: u32,
    title: f32,
    text: f32,
}

impl LexicalModel {
    pub(super) fn new(
        config: &LexicalConfig,
        rarity: Rarity,
        space: LabelSpace,
    ) -> Result<LexicalModel, AnalyzerError> {
        let mut model = LexicalModel {
            config: config.clone(),
            cutters: Cutters::new(config)?,
            rarity,
            space,
            terms: Terms::default(),
            index: Inverted::new(config.coverage),
            idle: Mutex::default(),
        };
        let labels: Vec<LabelId> = model.space.iter().map(|(id, _)| id).collect();
        let mut scratch = Scratch::default();
        labels.into_iter().for_each(|id| model.index_label(id, &mut scratch));
        Ok(model)
    }

    /// A model that knows no document: every word is as rare as any other.
    pub fn without_documents(
        config: &LexicalConfig,
        space: LabelSpace,
    ) -> Result<LexicalModel, crate::Error> {
        super::Lexical::try_from(config.clone())?;
        Ok(LexicalModel::new(config, Rarity::default(), space).map_err(MethodError::from)?)
    }

    /// Reads a model that [`save`](Predictor::save) wrote.
    pub fn load(folder: &ModelFolder) -> Result<LexicalModel, ArtifactError> {
        let manifest = crate::artifact::MANIFEST;
        let config: LexicalConfig = serde_json::from_value(folder.manifest().config.clone())
            .map_err(|error| folder.damaged(manifest, error))?;
        LexicalModel::load_with(folder, (manifest, &config), folder.labels()?)
    }

    /// The same, with settings from the file `name` and labels that were read before.
    pub(in crate::method) fn load_with(
        folder: &ModelFolder,
        (name, config): (&str, &LexicalConfig),
        space: LabelSpace,
    ) -> Result<LexicalModel, ArtifactError> {
        super::Lexical::try_from(config.clone()).map_err(|error| folder.damaged(name, error))?;
        LexicalModel::new(config, Rarity::load(folder)?, space).map_err(|error| folder.damaged(name, error))
    }

    /// Its settings.
    pub(in crate::method) fn config(&self) -> &LexicalConfig {
        &self.config
    }

    fn index_label(&mut self, id: LabelId, scratch: &mut Scratch) {
        let label = self.space.label(id);
        let forms = self.terms.learn_forms(label, &self.cutters, &self.rarity, scratch);
        let entries: Vec<Vec<FormEntry>> = forms.into_iter().map(|form| form.entries).collect();
        self.index.add(id, &entries);
    }

    /// The terms of a passage that some label has, as parts of a vector over all its words that is
    /// of length one. So a score depends on the passage and its label, not on what other labels there are.
    fn weigh(&self, passage: Passage<'_>, buffers: &mut Buffers) -> Vec<Weighed> {
        let Buffers { text: scratch, words, word_uses, term_uses, .. } = buffers;
        words.clear();
        word_uses.clear();
        term_uses.clear();
        for (field, text) in fields(passage) {
            self.cutters.names.each_term(text, scratch, |term| {
                term_uses.extend(self.terms.vocabulary.find(term).map(|number| (number, field)));
                if !term.contains(' ') {
                    word_uses.push((words.intern(term), field));
                }
            });
        }
        let word_rarity = |number: u32| self.rarity.of(words.term(number)) as f32;
        let length = self
            .weigh_uses(word_uses, word_rarity)
            .map(|entry| (entry.title + entry.text).powi(2))
            .sum::<f32>()
            .sqrt();
        // A passage that has a term has words, and no word weighs nothing.
        self.weigh_uses(term_uses, |number| self.terms.rarity[number as usize])
            .map(|entry| Weighed { title: entry.title / length, text: entry.text / length, ..entry })
            .collect()
    }

    /// Weights by term, in order: rarity · (1 + ln uses), the title's apart from the text's.
    fn weigh_uses<'a>(
        &'a self,
        uses: &'a mut [(u32, Field)],
        rarity: impl Fn(u32) -> f32 + 'a,
    ) -> impl Iterator<Item = Weighed> + 'a {
        uses.sort_unstable_by_key(|&(term, _)| term);
        uses.chunk_by(|a, b| a.0 == b.0).map(move |run| {
            let titles = run.iter().filter(|(_, field)| *field == Field::Title).count();
            let damped = |uses: usize| if uses == 0 { 0.0 } else { 1.0 + (uses as f32).ln() };
            let rarity = rarity(run[0].0);
            let title = rarity * self.config.title_weight * damped(titles);
            Weighed { term: run[0].0, title, text: rarity * damped(run.len() - titles) }
        })
    }

    fn answer(
        &self,
        passage: Passage<'_>,
        ask: &Ask<'_>,
        buffers: &mut Buffers,
    ) -> Result<Ranking, PredictError> {
        let weighed = self.weigh(passage, buffers);
        let terms: Vec<(u32, f32)> =
            weighed.iter().map(|entry| (entry.term, entry.title + entry.text)).collect();
        let query = Query { terms: &terms, k: ask.k, allowed: ask.allowed };
        Ok(self.index.search(&query, &mut buffers.search)?)
    }

    /// Lends buffers to `work`.
    fn with_buffers<T>(&self, work: impl FnOnce(&mut Buffers) -> T) -> T {
        let lent = self.idle.lock().ok().and_then(|mut idle| idle.pop());
        let mut buffers = lent.unwrap_or_default();
        let done = work(&mut buffers);
        if let Ok(mut idle) = self.idle.lock() {
            idle.push(buffers);
        }
        done
    }

    /// The matches of a form with a passage, as the parts of its score.
    fn match_form(&self, form: &Form<'_>, weighed: &[Weighed]) -> Vec<(u32, Field, f32)> {
        let found = |entry: &FormEntry| {
            let at = weighed.binary_search_by_key(&entry.term, |weighed| weighed.term).ok()?;
            Some((*entry, weighed[at]))
        };
        let matches: Vec<(FormEntry, Weighed)> = form.entries.iter().filter_map(found).collect();
        let coverage: f32 = matches.iter().map(|(entry, _)| entry.share).sum();
        let factor = coverage.min(1.0).powf(self.config.coverage);
        matches
            .iter()
            .flat_map(|(entry, weighed)| {
                [(Field::Title, weighed.title), (Field::Text, weighed.text)]
                    .map(|(field, weight)| (entry.term, field, factor * entry.weight * weight))
            })
            .filter(|(_, _, weight)| *weight > 0.0)
            .collect()
    }

    /// The words of the passage behind each of `terms`, where they stand first in each field.
    fn sources(&self, passage: Passage<'_>, terms: &[u32]) -> FxHashMap<(u32, Field), String> {
        let mut sources = FxHashMap::default();
        let mut scratch = Scratch::default();
        for (field, text) in fields(passage) {
            self.cutters.names.each_term_and_source(text, &mut scratch, |term, source| {
                let number = self.terms.vocabulary.find(term).filter(|number| terms.contains(number));
                if let Some(number) = number {
                    let words = || source.split_whitespace().collect::<Vec<_>>().join(" ");
                    sources.entry((number, field)).or_insert_with(words);
                }
            });
        }
        sources
    }
}

fn fields(passage: Passage<'_>) -> [(Field, &str); 2] {
    [(Field::Title, passage.title.unwrap_or_default()), (Field::Text, passage.text)]
}

impl Predictor for LexicalModel {
    fn label_space(&self) -> &LabelSpace {
        &self.space
    }

    fn predict(&self, passages: &[Passage<'_>], ask: &Ask<'_>) -> Result<Vec<Ranking>, PredictError> {
        let chunks: Vec<Vec<Ranking>> = passages
            .par_chunks(CHUNK)
            .map(|chunk| {
                self.with_buffers(|buffers| {
                    chunk.iter().map(|passage| self.answer(*passage, ask, buffers)).collect()
                })
            })
            .collect::<Result<_, PredictError>>()?;
        Ok(chunks.into_iter().flatten().collect())
    }

    fn apply(&mut self, changes: &[LabelChange]) -> Result<(), PredictError> {
        let (space, changed) = self.space.changed(changes).map_err(|(_, error)| error)?;
        self.space = space;
        let mut scratch = Scratch::default();
        changed.written.into_iter().for_each(|label| self.index_label(label, &mut scratch));
        changed.removed.into_iter().for_each(|label| self.index.remove(label));
        Ok(())
    }

    fn explain(&self, passage: Passage<'_>, label: LabelId) -> Result<Explanation, PredictError> {
        let weighed = self.with_buffers(|buffers| self.weigh(passage, buffers));
        let forms = self.terms.known_forms(self.space.label(label), &self.cutters);
        let mut best = (0.0, None, Vec::new());
        for form in &forms {
            let matches = self.match_form(form, &weighed);
            let score: f32 = matches.iter().map(|(_, _, weight)| weight).sum();
            if score > best.0 {
                best = (score, Some(form.text.to_owned()), matches);
            }
        }
        let (score, matched, matches) = best;
        let terms: Vec<u32> = matches.iter().map(|(term, _, _)| *term).collect();
        let sources = self.sources(passage, &terms);
        let mut reasons: Vec<Reason> = matches
            .into_iter()
            .map(|(term, field, weight)| {
                let words = sources.get(&(term, field)).cloned();
                let words = words.unwrap_or_else(|| self.terms.vocabulary.term(term).to_owned());
                Reason { words, field, weight, attention: None }
            })
            .collect();
        reasons.sort_by(Reason::order);
        Ok(Explanation { score, matched, reasons, marks: Vec::new() })
    }

    fn save(&self, model: &mut ModelWriter) -> Result<(), ArtifactError> {
        self.rarity.save(model)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Label;

    fn model() -> LexicalModel {
        let mut space = LabelSpace::default();
        let labels = [
            Label { aliases: vec!["duties on imports".into()], ..Label::new("1", "customs tariff") },
            Label::new("2", "fishing quota"),
            Label { description: Some("Keeping bees for honey".into()), ..Label::new("3", "apiculture") },
            Label::new("4", "…!"),
        ];
        labels.into_iter().for_each(|label| {
            space.add(label).unwrap();
        });
        LexicalModel::without_documents(&LexicalConfig::default(), space).unwrap()
    }

    fn ranking(model: &LexicalModel, passage: Passage<'_>) -> Ranking {
        model.predict(&[passage], &Ask { k: 5, allowed: None }).unwrap().remove(0)
    }

    fn best(model: &LexicalModel, text: &str) -> Vec<String> {
        let ranking = ranking(model, Passage::from(text));
        ranking.labels().map(|label| model.space.label(label).id.clone()).collect()
    }

    #[test]
    fn names_aliases_and_descriptions_are_found_by_their_stems() {
        let model = model();
        assert_eq!(best(&model, "The tariffs of the Customs"), ["1"]);
        assert_eq!(best(&model, "An import duty"), ["1"]);
        assert_eq!(best(&model, "He keeps a bee"), ["3"]);
        assert_eq!(best(&model, "Nothing of the kind")[..], [""; 0]);
        assert_eq!(best(&model, "…!"), [""; 0]);
    }

    #[test]
    fn a_fuller_match_wins() {
        assert_eq!(best(&model(), "customs and fishing quota"), ["2", "1"]);
    }

    #[test]
    fn changed_labels_are_in_the_next_answer() {
        let mut model = model();
        model.apply(&[LabelChange::Add { label: Label::new("5", "bee venom") }]).unwrap();
        assert_eq!(best(&model, "bee venom")[0], "5");
        model.apply(&[LabelChange::Rename { id: "5".into(), name: "snake venom".into() }]).unwrap();
        assert_eq!(best(&model, "bee venom")[..2], ["5", "3"]);
        assert_eq!(best(&model, "snake"), ["5"]);
        model.apply(&[LabelChange::Remove { id: "5".into() }]).unwrap();
        assert_eq!(best(&model, "snake venom"), [""; 0]);
        assert!(model.apply(&[LabelChange::Remove { id: "5".into() }]).is_err());
    }

    #[test]
    fn scores_do_not_depend_on_the_history_of_the_labels() {
        let passage =
            Passage { id: None, title: Some("Customs"), text: "fraud with smuggled goods and import duties" };
        let label = Label { aliases: vec!["smuggled goods".into()], ..Label::new("5", "customs fraud") };
        let mut later = model();
        let before = ranking(&later, passage);
        later.apply(&[LabelChange::Add { label: label.clone() }]).unwrap();
        let mut space = model().space;
        space.add(label).unwrap();
        let always = LexicalModel::without_documents(&LexicalConfig::default(), space).unwrap();
        assert_eq!(ranking(&later, passage), ranking(&always, passage));
        later.apply(&[LabelChange::Remove { id: "5".into() }]).unwrap();
        assert_eq!(ranking(&later, passage), before);
    }

    #[test]
    fn an_explanation_adds_up_to_the_score() {
        let model = model();
        let passage =
            Passage { id: None, title: Some("Imports"), text: "Duties on imports of honey; import duties." };
        let ranking = ranking(&model, passage);
        assert_eq!(ranking.len(), 2);
        for entry in ranking.entries() {
            let explanation = model.explain(passage, entry.label).unwrap();
            let sum: f32 = explanation.reasons.iter().map(|reason| reason.weight).sum();
            assert!((explanation.score - entry.score).abs() < 1e-5);
            assert!((sum - entry.score).abs() < 1e-5);
        }
        let first = model.explain(passage, ranking.entries()[0].label).unwrap();
        assert_eq!(first.matched.as_deref(), Some("duties on imports"));
        assert!(
            first.reasons.iter().any(|reason| reason.words == "duties on" && reason.field == Field::Text)
        );
        assert!(model.explain(passage, LabelId(1)).unwrap().reasons.is_empty());
    }
}
