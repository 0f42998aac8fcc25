//! How a comparison becomes a score.

use super::config::Loss;

/// Turns the cosine or product of a document and a label into a score.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::method) struct Scoring {
    /// What it is multiplied by.
    pub(in crate::method) scale: f32,
    /// What is added then.
    pub(in crate::method) bias: f32,
    /// Whether every label is a question of its own, so that the score is a probability.
    pub(in crate::method) probability: bool,
}

impl Scoring {
    pub(super) fn new(scale: f32, bias: f32, loss: Loss) -> Scoring {
        Scoring { scale, bias, probability: loss == Loss::Bce }
    }

    /// The score of a comparison: its probability, or for losses that compare labels with each other the
    /// comparison itself.
    pub(in crate::method) fn score(&self, comparison: f32) -> f32 {
        if !self.probability {
            return comparison;
        }
        probability(comparison * self.scale + self.bias)
    }

    /// What a part of a comparison adds to the log-odds of a probability, or to the score, and what is there
    /// before any part.
    pub(in crate::method) fn shares(&self) -> (f32, f32) {
        if self.probability { (self.scale, self.bias) } else { (1.0, 0.0) }
    }
}

/// The probability whose log-odds these are.
pub(in crate::method) fn probability(log_odds: f32) -> f32 {
    1.0 / (1.0 + (-log_odds).exp())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probability_lies_between_zero_and_one_and_rises_with_the_cosine() {
        let scoring = Scoring::new(20.0, -10.0, Loss::Bce);
        assert_eq!(scoring.score(0.5), 0.5);
        assert!(scoring.score(-1.0) > 0.0 && scoring.score(1.0) < 1.0);
        assert!(scoring.score(0.6) > scoring.score(0.55));
        assert_eq!(Scoring::new(20.0, -10.0, Loss::Softmax).score(0.3), 0.3);
    }
}
