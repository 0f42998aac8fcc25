//! The fitted method: an index over the forms of all labels.

use rayon::prelude::*;

use super::LexicalConfig;
use super::forms::Terms;
use super::rarity::Rarity;
use crate::artifact::{ArtifactError, ModelFolder, ModelWriter};
use crate::data::{LabelChange, LabelSpace, Passage};
use crate::ids::LabelId;
use crate::index::{Inverted, Query, SearchScratch};
use crate::method::error::MethodError;
use crate::predict::{Ask, Explanation, Field, PredictError, Predictor, Reason};
use crate::ranking::Ranking;
use crate::text::{Analyzer, AnalyzerError, Scratch};

/// A fitted `lexical`.
pub struct LexicalModel {
    config: LexicalConfig,
    analyzer: Analyzer,
    rarity: Rarity,
    space: LabelSpace,
    terms: Terms,
    index: Inverted,
}

/// Buffers that one thread uses again and again.
#[derive(Default)]
struct Buffers {
    text: Scratch,
    search: SearchScratch,
    uses: Vec<(u32, Field)>,
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
            analyzer: config.analyzer(config.ngrams)?,
            rarity,
            space,
            terms: Terms::default(),
            index: Inverted::new(config.coverage),
        };
        let labels: Vec<LabelId> = model.space.iter().map(|(id, _)| id).collect();
        labels.into_iter().for_each(|id| model.index_label(id));
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
        super::Lexical::try_from(config.clone()).map_err(|error| folder.damaged(manifest, error))?;
        let space = folder.labels()?;
        LexicalModel::new(&config, Rarity::load(folder)?, space)
            .map_err(|error| folder.damaged(manifest, error))
    }

    fn index_label(&mut self, id: LabelId) {
        let label = self.space.label(id);
        self.terms.learn(label, &self.analyzer, &self.rarity);
        for form in self.terms.forms(label, &self.config, &self.analyzer) {
            self.index.add_form(id, &form.entries);
        }
    }

    /// The terms of a passage that some label has, scaled so that their sums over title and text make
    /// a vector of length one.
    fn weigh(&self, passage: Passage<'_>, buffers: &mut Buffers) -> Vec<Weighed> {
        let Buffers { text: scratch, uses, .. } = buffers;
        uses.clear();
        let fields = [(Field::Title, passage.title.unwrap_or_default()), (Field::Text, passage.text)];
        for (field, text) in fields {
            let vocabulary = &self.terms.vocabulary;
            self.analyzer.each_term(text, scratch, |term| {
                uses.extend(vocabulary.find(term).map(|number| (number, field)));
            });
        }
        uses.sort_unstable_by_key(|&(term, _)| term);
        let mut weighed: Vec<Weighed> = uses
            .chunk_by(|a, b| a.0 == b.0)
            .map(|run| {
                let titles = run.iter().filter(|(_, field)| *field == Field::Title).count();
                let damped = |uses: usize| if uses == 0 { 0.0 } else { 1.0 + (uses as f32).ln() };
                let rarity = self.terms.rarity[run[0].0 as usize];
                let title = rarity * self.config.title_weight * damped(titles);
                Weighed { term: run[0].0, title, text: rarity * damped(run.len() - titles) }
            })
            .collect();
        let length = weighed.iter().map(|entry| (entry.title + entry.text).powi(2)).sum::<f32>().sqrt();
        if length > 0.0 {
            for entry in &mut weighed {
                entry.title /= length;
                entry.text /= length;
            }
        }
        weighed
    }
}

impl Predictor for LexicalModel {
    fn label_space(&self) -> &LabelSpace {
        &self.space
    }

    fn predict(&self, passages: &[Passage<'_>], ask: &Ask<'_>) -> Result<Vec<Ranking>, PredictError> {
        passages
            .par_iter()
            .map_init(Buffers::default, |buffers, passage| {
                let weighed = self.weigh(*passage, buffers);
                let terms: Vec<(u32, f32)> =
                    weighed.iter().map(|entry| (entry.term, entry.title + entry.text)).collect();
                let query = Query { terms: &terms, k: ask.k, allowed: ask.allowed };
                Ok(self.index.search(&query, &mut buffers.search)?)
            })
            .collect()
    }

    fn apply(&mut self, change: &LabelChange) -> Result<(), PredictError> {
        let id = self.space.apply(change)?;
        match change {
            LabelChange::Add { .. } => self.index_label(id),
            LabelChange::Remove { .. } => self.index.remove(id),
            LabelChange::Rename { .. } => {
                self.index.remove(id);
                self.index_label(id);
            }
        }
        Ok(())
    }

    fn explain(&self, passage: Passage<'_>, label: LabelId) -> Result<Explanation, PredictError> {
        let mut buffers = Buffers::default();
        let weighed = self.weigh(passage, &mut buffers);
        let mut best = Explanation { score: 0.0, matched: None, reasons: Vec::new() };
        for form in self.terms.forms(self.space.label(label), &self.config, &self.analyzer) {
            let at = |term: u32| weighed.binary_search_by_key(&term, |entry| entry.term).ok();
            let matches: Vec<_> =
                form.entries.iter().filter_map(|entry| Some((entry, weighed[at(entry.term)?]))).collect();
            let coverage: f32 = matches.iter().map(|(entry, _)| entry.share).sum();
            let factor = coverage.min(1.0).powf(self.config.coverage);
            let reason = |term: u32, field: Field, weight: f32| Reason {
                words: self.surface(passage, term, field),
                field,
                weight: weight * factor,
            };
            let mut reasons = Vec::new();
            for (entry, found) in &matches {
                if found.title > 0.0 {
                    reasons.push(reason(entry.term, Field::Title, entry.weight * found.title));
                }
                if found.text > 0.0 {
                    reasons.push(reason(entry.term, Field::Text, entry.weight * found.text));
                }
            }
            let score = reasons.iter().map(|reason| reason.weight).sum();
            if score > best.score {
                reasons.sort_by(|a, b| b.weight.total_cmp(&a.weight).then_with(|| a.words.cmp(&b.words)));
                best = Explanation { score, matched: Some(form.text.to_owned()), reasons };
            }
        }
        Ok(best)
    }

    fn save(&self, model: &mut ModelWriter) -> Result<(), ArtifactError> {
        self.rarity.save(model)
    }
}

impl LexicalModel {
    /// The words of the passage behind a term, where they stand first.
    fn surface(&self, passage: Passage<'_>, term: u32, field: Field) -> String {
        let text = match field {
            Field::Title => passage.title.unwrap_or_default(),
            Field::Text => passage.text,
        };
        let wanted = self.terms.vocabulary.term(term);
        let mut first = None;
        self.analyzer.each_term_and_source(text, &mut Scratch::default(), |found, source| {
            if first.is_none() && found == wanted {
                first = Some(source.split_whitespace().collect::<Vec<_>>().join(" "));
            }
        });
        first.unwrap_or_else(|| wanted.to_owned())
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
        ];
        labels.into_iter().for_each(|label| {
            space.add(label).unwrap();
        });
        LexicalModel::without_documents(&LexicalConfig::default(), space).unwrap()
    }

    fn best(model: &LexicalModel, text: &str) -> Vec<String> {
        let rankings = model.predict(&[Passage::from(text)], &Ask { k: 5, allowed: None }).unwrap();
        rankings[0].labels().map(|label| model.space.label(label).id.clone()).collect()
    }

    #[test]
    fn names_aliases_and_descriptions_are_found_by_their_stems() {
        let model = model();
        assert_eq!(best(&model, "The tariffs of the Customs"), ["1"]);
        assert_eq!(best(&model, "An import duty"), ["1"]);
        assert_eq!(best(&model, "He keeps a bee"), ["3"]);
        assert_eq!(best(&model, "Nothing of the kind")[..], [""; 0]);
        assert_eq!(best(&model, ""), [""; 0]);
    }

    #[test]
    fn a_fuller_match_wins() {
        let model = model();
        assert_eq!(best(&model, "customs and fishing quota"), ["2", "1"]);
    }

    #[test]
    fn changed_labels_are_in_the_next_answer() {
        let mut model = model();
        model.apply(&LabelChange::Add { label: Label::new("4", "bee venom") }).unwrap();
        assert_eq!(best(&model, "bee venom")[0], "4");
        model.apply(&LabelChange::Rename { id: "4".into(), name: "snake venom".into() }).unwrap();
        assert_eq!(best(&model, "bee venom")[..2], ["4", "3"]);
        assert_eq!(best(&model, "snake"), ["4"]);
        model.apply(&LabelChange::Remove { id: "4".into() }).unwrap();
        assert_eq!(best(&model, "snake venom"), [""; 0]);
        assert!(model.apply(&LabelChange::Remove { id: "4".into() }).is_err());
    }

    #[test]
    fn a_label_added_later_scores_as_one_that_was_always_there() {
        let mut later = model();
        let label = Label { aliases: vec!["smuggled goods".into()], ..Label::new("4", "customs fraud") };
        later.apply(&LabelChange::Add { label: label.clone() }).unwrap();
        let mut space = model().space;
        space.add(label).unwrap();
        let always = LexicalModel::without_documents(&LexicalConfig::default(), space).unwrap();
        let passage =
            [Passage { title: Some("Customs"), text: "fraud with smuggled goods and import duties" }];
        let ask = Ask { k: 5, allowed: None };
        assert_eq!(later.predict(&passage, &ask).unwrap(), always.predict(&passage, &ask).unwrap());
    }

    #[test]
    fn an_explanation_adds_up_to_the_score() {
        let model = model();
        let passage = Passage { title: Some("Imports"), text: "Duties on imports of honey; import duties." };
        let ranking = &model.predict(&[passage], &Ask { k: 5, allowed: None }).unwrap()[0];
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
