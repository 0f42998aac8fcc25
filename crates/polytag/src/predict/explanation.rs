//! Why a label was given.

use std::cmp::Ordering;

use serde::Serialize;

/// The part of a passage that a reason lies in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Field {
    /// The title.
    Title,
    /// The text.
    Text,
    /// Neither: labels that another model predicts for the passage.
    Predicted,
}

/// Words of the passage that speak for a label.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Reason {
    /// The words, as the method sees them.
    pub words: String,
    /// Where they stand.
    pub field: Field,
    /// How much of the score is due to them.
    pub weight: f32,
    /// How much of its attention the label gives them, where labels attend.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attention: Option<f32>,
}

impl Reason {
    /// The order of an explanation: the most important first, then by words.
    pub(crate) fn order(&self, other: &Reason) -> Ordering {
        other.weight.total_cmp(&self.weight).then_with(|| self.words.cmp(&other.words))
    }
}

/// Why a label fits a passage.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Explanation {
    /// The score of the label; zero where nothing speaks for it.
    pub score: f32,
    /// The name or description of the label that fits best, if any does.
    pub matched: Option<String>,
    /// What speaks for it, the most important first. The weights add up to the score; where the score is a
    /// probability, to its log-odds, and where it is the mean of several experts', to the mean of theirs.
    pub reasons: Vec<Reason>,
    /// The words of the passage in their order, where the method can say what each adds; else none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub marks: Vec<Mark>,
}

/// A word of the passage, and what it has to do with a score.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Mark {
    /// Whether it stands in the title or in the text.
    pub field: Field,
    /// Its first byte there.
    pub start: usize,
    /// The byte after it.
    pub end: usize,
    /// How much of the score is due to it.
    pub weight: f32,
    /// How much of its attention the label gives it, where labels attend.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attention: Option<f32>,
}

impl Mark {
    /// How strongly each of these stands out beside the others, from 0 to 1: by attention, where labels attend, else by
    /// what it adds.
    pub fn strengths(marks: &[Mark]) -> Vec<f32> {
        let strength = |mark: &Mark| mark.attention.unwrap_or(mark.weight).max(0.0);
        let most = marks.iter().map(strength).fold(0.0, f32::max);
        marks.iter().map(|mark| if most > 0.0 { strength(mark) / most } else { 0.0 }).collect()
    }
}
