//! Rankings while they are read: each score checked, each document and each label of it there once.

use std::path::{Path, PathBuf};

use rustc_hash::FxHashSet;

use crate::data::{DataError, LabelSpace, Place};
use crate::ids::LabelId;
use crate::ranking::{Ranking, Scored};

/// Rankings by the ids of documents, in the order of the file.
pub(super) type Answers = Vec<(String, Ranking)>;

/// What was read so far.
pub(super) struct Rankings<'a> {
    path: &'a Path,
    space: &'a LabelSpace,
    answers: Answers,
    documents: FxHashSet<String>,
    known: u64,
    unknown: u64,
    /// The first label that is not known, and where it stands.
    first_unknown: Option<(Place, String)>,
}

/// A ranking being read.
#[derive(Default)]
pub(super) struct Row {
    scored: Vec<Scored>,
    labels: FxHashSet<LabelId>,
}

impl<'a> Rankings<'a> {
    pub(super) fn new(path: &'a Path, space: &'a LabelSpace) -> Rankings<'a> {
        Rankings {
            path,
            space,
            answers: Vec::new(),
            documents: FxHashSet::default(),
            known: 0,
            unknown: 0,
            first_unknown: None,
        }
    }

    /// A line of the file.
    pub(super) fn line(&self, number: u64) -> Place {
        Place::line(self.path, number)
    }

    /// What is wrong at a place.
    pub(super) fn malformed(
        &self,
        place: Place,
        problem: impl Into<String>,
        remedy: impl Into<String>,
    ) -> DataError {
        DataError::Malformed { place, problem: problem.into(), remedy: remedy.into() }
    }

    /// How many labels there are.
    pub(super) fn labels(&self) -> usize {
        self.space.len()
    }

    /// Takes in the score of a label that is named.
    pub(super) fn named(
        &mut self,
        row: &mut Row,
        id: &str,
        score: f64,
        place: Place,
    ) -> Result<(), DataError> {
        match self.space.find(id) {
            Some(label) => self.score(row, (label, id), score, place),
            None => {
                // A score that is none is refused whoever has it.
                self.checked(id, score, &place)?;
                self.unknown += 1;
                self.first_unknown.get_or_insert_with(|| (place, id.to_owned()));
                Ok(())
            }
        }
    }

    /// Takes in the score of a column.
    pub(super) fn column(
        &mut self,
        row: &mut Row,
        column: usize,
        score: f64,
        place: Place,
    ) -> Result<(), DataError> {
        // The labels of a task are the first of its space.
        let label = LabelId::from_index(column);
        let id = self.space.label(label).id.clone();
        self.score(row, (label, &id), score, place)
    }

    fn score(
        &mut self,
        row: &mut Row,
        (label, id): (LabelId, &str),
        score: f64,
        place: Place,
    ) -> Result<(), DataError> {
        let score = self.checked(id, score, &place)?;
        if !row.labels.insert(label) {
            let problem = format!("the label {id:?} stands twice in one ranking");
            return Err(self.malformed(place, problem, "keep one of its scores"));
        }
        self.known += 1;
        row.scored.push(Scored { label, score });
        Ok(())
    }

    fn checked(&self, id: &str, score: f64, place: &Place) -> Result<f32, DataError> {
        let narrow = score as f32;
        if narrow.is_finite() && narrow >= 0.0 {
            return Ok(narrow);
        }
        let problem = format!("the label {id:?} has the score {score}");
        let remedy =
            "scores must be finite and not negative; make them probabilities, or leave the label out";
        Err(self.malformed(place.clone(), problem, remedy))
    }

    /// Ends the ranking of a document.
    pub(super) fn finish(&mut self, document: &str, row: Row, place: Place) -> Result<(), DataError> {
        if !self.documents.insert(document.to_owned()) {
            let problem = format!("the document {document:?} was ranked before");
            return Err(self.malformed(place, problem, "keep one of its rankings"));
        }
        let count = row.scored.len();
        let ranking = Ranking::new(row.scored, count)
            .map_err(|error| self.malformed(place, error.to_string(), "make it a finite number"))?;
        self.answers.push((document.to_owned(), ranking));
        Ok(())
    }

    /// What the user should know of labels that were left out; an error where that is all of them.
    pub(super) fn warning(&self) -> Result<Option<String>, DataError> {
        let Some((place, id)) = &self.first_unknown else { return Ok(None) };
        if self.known == 0 {
            let problem = format!("none of its labels is known to the task, {id:?} first");
            return Err(self.malformed(place.clone(), problem, "write the ids that labels.jsonl has"));
        }
        Ok(Some(format!(
            "{place}: {} scores are of labels that the task does not know, {id:?} first; they are left out",
            self.unknown
        )))
    }

    pub(super) fn into_answers(self) -> Answers {
        self.answers
    }

    /// The file.
    pub(super) fn path(&self) -> PathBuf {
        self.path.to_owned()
    }
}
