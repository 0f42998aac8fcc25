//! The predictor that answers with recorded rankings. Labels can be removed and renamed; none can be added, as no file
//! has scores for it.

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use super::rankings::Answers;
use crate::artifact::{ArtifactError, ModelFolder, ModelWriter};
use crate::data::{LabelChange, LabelSpace, Passage};
use crate::ids::LabelId;
use crate::predict::{Ask, Embeddings, Explanation, Field, PredictError, Predictor, Reason};
use crate::ranking::{Ranking, Scored};

/// The file of rankings in a model folder.
const RANKINGS: &str = "rankings.jsonl";

/// The rankings of a file, by the ids of documents.
pub struct RecordedModel {
    space: LabelSpace,
    answers: Answers,
    places: FxHashMap<String, usize>,
}

/// A line of the file: a document, and its labels by their places in the label table, with scores.
#[derive(Serialize, Deserialize)]
struct Line {
    id: String,
    labels: Vec<(u32, f32)>,
}

impl RecordedModel {
    pub(super) fn new(space: LabelSpace, answers: Answers) -> RecordedModel {
        let places = answers.iter().enumerate().map(|(place, (id, _))| (id.clone(), place)).collect();
        RecordedModel { space, answers, places }
    }

    /// Reads a model that [`save`](Predictor::save) wrote.
    pub fn load(folder: &ModelFolder) -> Result<RecordedModel, ArtifactError> {
        let space = folder.labels()?;
        let mut answers = Answers::new();
        for line in folder.read_text(RANKINGS)?.lines() {
            let line: Line = serde_json::from_str(line).map_err(|error| folder.damaged(RANKINGS, error))?;
            if line.labels.iter().any(|(label, _)| *label as usize >= space.positions()) {
                return Err(folder.damaged(RANKINGS, format!("{:?} has a label that is none", line.id)));
            }
            let scored = line.labels.iter().map(|&(label, score)| Scored { label: LabelId(label), score });
            let ranking = Ranking::new(scored.collect(), line.labels.len());
            answers.push((line.id, ranking.map_err(|error| folder.damaged(RANKINGS, error))?));
        }
        Ok(RecordedModel::new(space, answers))
    }

    /// The ranking of a passage.
    fn ranking(&self, passage: &Passage<'_>) -> Result<&Ranking, PredictError> {
        let id = passage.id.ok_or(PredictError::NoId)?;
        let place = self.places.get(id).ok_or_else(|| PredictError::NotRecorded { id: id.to_owned() })?;
        Ok(&self.answers[*place].1)
    }

    /// The labels after changes, none of which adds one.
    fn changed(&self, changes: &[LabelChange]) -> Result<LabelSpace, PredictError> {
        if changes.iter().any(|change| matches!(change, LabelChange::Add { .. })) {
            return Err(PredictError::OnlyRecorded);
        }
        Ok(self.space.changed(changes).map_err(|(_, error)| error)?.0)
    }
}

impl Predictor for RecordedModel {
    fn label_space(&self) -> &LabelSpace {
        &self.space
    }

    fn predict(&self, passages: &[Passage<'_>], ask: &Ask<'_>) -> Result<Vec<Ranking>, PredictError> {
        let is_wanted = |entry: &&Scored| {
            self.space.is_active(entry.label)
                && ask.allowed.is_none_or(|allowed| allowed.contains(entry.label))
        };
        let answer = |passage: &Passage<'_>| {
            let wanted = self.ranking(passage)?.entries().iter().filter(is_wanted).take(ask.k);
            Ok(Ranking::new(wanted.copied().collect(), ask.k)?)
        };
        passages.iter().map(answer).collect()
    }

    /// What another program calls its scores is not known: they are taken for probabilities where all lie from 0 to 1.
    fn gives_probabilities(&self) -> bool {
        let mut scores = self.answers.iter().flat_map(|(_, ranking)| ranking.entries());
        scores.all(|entry| (0.0..=1.0).contains(&entry.score))
    }

    fn apply(&mut self, changes: &[LabelChange]) -> Result<(), PredictError> {
        self.space = self.changed(changes)?;
        Ok(())
    }

    fn prepare(&self, changes: &[LabelChange]) -> Result<Embeddings, PredictError> {
        self.changed(changes).map(|_| Embeddings::default())
    }

    fn explain(&self, passage: Passage<'_>, label: LabelId) -> Result<Explanation, PredictError> {
        let entry = self.ranking(&passage)?.entries().iter().find(|entry| entry.label == label);
        let reason = |entry: &Scored| {
            let words = "(as the file says)".to_owned();
            Reason { words, field: Field::Predicted, weight: entry.score, attention: None }
        };
        Ok(Explanation {
            score: entry.map_or(0.0, |entry| entry.score),
            matched: entry.map(|_| self.space.label(label).name.clone()),
            reasons: entry.into_iter().map(reason).collect(),
            marks: Vec::new(),
        })
    }

    fn takes_new_labels(&self) -> bool {
        false
    }

    fn save(&self, model: &mut ModelWriter) -> Result<(), ArtifactError> {
        let mut bytes = Vec::new();
        for (id, ranking) in &self.answers {
            let labels = ranking.entries().iter().map(|entry| (entry.label.0, entry.score)).collect();
            serde_json::to_writer(&mut bytes, &Line { id: id.clone(), labels })
                .expect("strings and finite numbers always make JSON");
            bytes.push(b'\n');
        }
        model.file(RANKINGS, &bytes)
    }
}
