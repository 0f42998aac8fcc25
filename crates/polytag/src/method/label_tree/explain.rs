//! Which words speak for a label of a tree.
//!
//! The probability of a label is a product of turns, which no sum of words makes. Its log-odds are shared out as the
//! document is faded in: from a document that says nothing to the whole one, every word is credited with what the
//! log-odds rise by its growing share of each margin (integrated gradients; Sundararajan et al., 2017). What a document
//! that says nothing would get is the rest.

use rustc_hash::FxHashMap;

use super::features::Features;
use super::model::Grown;
use crate::data::Passage;
use crate::method::word_rows;
use crate::predict::{Field, Reason};
use crate::sparse::Entry;

/// Steps of the fading in.
const STEPS: usize = 64;

/// Probabilities nearer to 0 or 1 than this have no log-odds to speak of.
const CERTAIN: f64 = 1e-6;

/// A turn on the way to a label: what each entry of the document adds to the margin, by its place, and the constant.
pub(super) struct Turn {
    pub(super) shares: Vec<(usize, f32)>,
    pub(super) constant: f32,
}

impl Grown {
    /// The turns on the way to the label in a row.
    pub(super) fn turns(&self, row: u32, entries: &[Entry]) -> Vec<Turn> {
        let place = self.tree.order.iter().zip(0..).find(|(label, _)| **label == row);
        let place = place.map_or(0, |(_, place)| place);
        self.path(place)
            .map(|(level, node, child)| {
                let first_child = self.first_child[level + 1] + self.tree.children(level, node).start;
                let (shares, constant) =
                    self.weights.shares(self.first_node[level] + node, (first_child, child), entries);
                Turn { shares, constant }
            })
            .collect()
    }
}

/// The probability of a label at the end of these paths, one a tree; what each of the document's entries adds to its
/// log-odds, and what nothing in the document does.
pub(super) fn attribute(paths: &[Vec<Turn>], entries: usize, power: f32) -> (f32, Vec<f32>, f32) {
    let power = f64::from(power);
    let sum = |turn: &Turn| turn.shares.iter().map(|(_, share)| f64::from(*share)).sum::<f64>();
    let sums: Vec<Vec<f64>> = paths.iter().map(|path| path.iter().map(sum).collect()).collect();
    // How far each turn is from certain, with so much of the document.
    let lacks = |tree: usize, faded: f64| -> Vec<f64> {
        let turns = paths[tree].iter().zip(&sums[tree]);
        turns.map(|(turn, sum)| (1.0 - f64::from(turn.constant) - faded * sum).max(0.0)).collect()
    };
    let chance = |lacks: &[f64]| (-lacks.iter().map(|lack| lack.powf(power)).sum::<f64>()).exp();
    let trees = paths.len() as f64;
    let probability =
        |faded: f64| (0..paths.len()).map(|tree| chance(&lacks(tree, faded))).sum::<f64>() / trees;
    let mut weights = vec![0.0f64; entries];
    for step in 0..STEPS {
        let faded = (step as f64 + 0.5) / STEPS as f64;
        let all = probability(faded).clamp(CERTAIN, 1.0 - CERTAIN);
        let slope = 1.0 / (all * (1.0 - all) * STEPS as f64);
        for (tree, path) in paths.iter().enumerate() {
            let lacks = lacks(tree, faded);
            let own = chance(&lacks) / trees;
            for (turn, lack) in path.iter().zip(&lacks).filter(|(_, lack)| **lack > 0.0) {
                let steep = slope * own * power * lack.powf(power - 1.0);
                turn.shares.iter().for_each(|&(place, share)| weights[place] += steep * f64::from(share));
            }
        }
    }
    let score = probability(1.0);
    let held = score.clamp(CERTAIN, 1.0 - CERTAIN);
    let rest = (held / (1.0 - held)).ln() - weights.iter().sum::<f64>();
    (score as f32, weights.into_iter().map(|weight| weight as f32).collect(), rest as f32)
}

impl Features {
    /// What the entries of a passage's row weigh, as words of the passage, and the rest.
    pub(super) fn reasons(
        &self,
        passage: Passage<'_>,
        (row, weights): (&[Entry], &[f32]),
        rest: f32,
    ) -> Vec<Reason> {
        let by_column: FxHashMap<u32, f32> =
            row.iter().map(|entry| entry.column).zip(weights.iter().copied()).collect();
        let reason =
            |words: &str, field, weight| Reason { words: words.to_owned(), field, weight, attention: None };
        let mut reasons = match self.words() {
            Some(words) => word_rows::reasons(words, passage, &by_column),
            None => Vec::new(),
        };
        let vector: f32 = row
            .iter()
            .zip(weights)
            .filter(|(entry, _)| entry.column as usize >= self.word_columns())
            .map(|(_, weight)| weight)
            .sum();
        let told = vector + reasons.iter().map(|reason| reason.weight).sum::<f32>();
        if self.has_encoder() {
            reasons.push(reason("(what the encoder reads)", Field::Text, vector));
        }
        // Terms across title and text stand in neither.
        let rest = rest + weights.iter().sum::<f32>() - told;
        reasons.push(reason("(the text as a whole)", Field::Text, rest));
        reasons
    }
}
