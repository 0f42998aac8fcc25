//! Settings of MACLR and of what it is compared with.

use polytag_nn::optimizer::Group;
use polytag_nn::schedule::{ScheduleConfig, Then};
use polytag_nn::train::{Order, TrainConfig};
use serde::{Deserialize, Serialize};

use crate::index::Precision;
use crate::method::error::MethodError;
use crate::method::label_text::LabelText;
use crate::method::label_vectors::IndexKind;
use crate::method::lexical::LexicalConfig;
use crate::method::training::{number, rate_by_width, tokens};
use crate::text::Language;

/// What of a document stands for the document, and what for a label of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PairKind {
    /// Its text, and its title; where there is none, its first sentence and the rest.
    #[default]
    Title,
    /// A sentence drawn at random, and the rest: the inverse cloze task as it was.
    Sentence,
    /// Two pieces of it, or a piece and its title, cut anew each time (RTS).
    Chunks,
    /// All of it, twice (SimCSE): dropout makes the difference.
    Same,
}

/// What given pairs are learned by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PairLoss {
    /// A document's label against the labels of the step's other pairs (paper 001, eq. 3).
    #[default]
    Contrast,
    /// The square of a pair's cosine less 1, and less 0 for a label drawn at random that the document does not have:
    /// single pairs, no other label of the step is looked at (paper 000, section III-B).
    Cosine,
}

/// Settings of MACLR (paper 001).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MaclrConfig {
    /// The encoder to begin with: a known name, a name on the hub, or a folder, such as one of an earlier run.
    pub encoder: String,
    /// How many tokens of a document are read; at most as many as the encoder takes.
    pub max_tokens: usize,
    /// How many tokens of a title or a label are read.
    pub label_tokens: usize,
    /// What of a label is read.
    pub label_text: LabelText,
    /// What the pairs of stage one are made of.
    pub pairs: PairKind,
    /// Into how many clusters documents fall at first; null for none (ICT).
    pub clusters: Option<usize>,
    /// After which share of stage one's steps there are twice as many clusters, in its first half.
    pub clusters_double: f64,
    /// After which share of stage one's steps documents are put into clusters anew, in its first half.
    pub clusters_update: f64,
    /// How many labels, drawn at random, a step of stage one is kept away from (eq. 4), at most a tenth of all; 0 for
    /// none.
    pub label_regularisation: usize,
    /// How many labels, drawn at random, a step of stage one compares with themselves (RTS); 0 for none.
    pub label_pairs: usize,
    /// How often stage one sees each document; 0 leaves it out.
    pub stage_one_epochs: f64,
    /// How many labels a document gets from the encoder for stage two.
    pub pseudo_encoder: usize,
    /// How many labels a document gets from `lexical` for stage two.
    pub pseudo_lexical: usize,
    /// The language whose stems stand for words wherever `lexical` is asked; null keeps words as they are.
    pub stem: Option<Language>,
    /// How often stage two sees each pseudo pair; 0 leaves it out.
    pub stage_two_epochs: f64,
    /// How many epochs of given pairs come at the end; 0 uses no given pair.
    pub few_shot_epochs: f64,
    /// How many given pairs of one label are seen in an epoch at most, so that a label that nearly every document has does
    /// not teach alone; the next epoch sees others. Null for all.
    pub few_shot_most: Option<usize>,
    /// What given pairs are learned by: contrast or cosine.
    pub few_shot_loss: PairLoss,
    /// Whether documents are labels themselves, under their own ids, and none is a label of its own.
    pub item_to_item: bool,
    /// Whether a document that is a label has the label's name and aliases among its words, wherever words count when the
    /// encoder is done: in `words` and `label_prior`. The stages read texts alone.
    pub own_names: bool,
    /// How much of `lexical`'s score a label has beside its cosine when the encoder is done; 0 for none.
    pub words: f32,
    /// What a label gains beside its cosine for being guessed by `lexical`: this times ln(1 + how often, in means of all
    /// labels); 0 for nothing.
    pub label_prior: f32,
    /// After how many steps a stage ends in any case. Documents that no step comes to are neither put into clusters nor
    /// given labels by the encoder, so that these are bounded, too. Words guess for all documents in any case.
    pub max_steps: Option<u64>,
    /// How many pairs a step sees.
    pub batch: usize,
    /// The learning rate of the two stages; null chooses by the encoder's width: 2e-5 for 384 numbers a token, 6.7e-6
    /// for 768.
    pub learning_rate: Option<f64>,
    /// What share of it given pairs are learned with.
    pub few_shot_rate: f64,
    /// The weight decay of matrices.
    pub weight_decay: f64,
    /// Over which share of a stage's steps the learning rate goes up; then it falls in a straight line.
    pub warmup: f64,
    /// The greatest norm of a gradient; null for any.
    pub clip: Option<f32>,
    /// The rate of dropout; null leaves it as the encoder has it.
    pub dropout: Option<f32>,
    /// What cosines are divided by before they compete.
    pub temperature: f32,
    /// How much of the encoder is kept as it was: weights end so far on the way back from where the stages without pairs
    /// brought them. `null` keeps the more the better the encoder already finds what words find; the paper keeps nothing.
    pub keep: Option<f32>,
    /// How often a stage is measured on the dev split, by cosines alone, if there is one; 0 for never. Nothing is chosen
    /// by it.
    pub evaluations: u32,
    /// What label vectors are kept in: f32, f16 or i8.
    pub precision: Precision,
    /// How label vectors are searched: auto, exact or hnsw, which wants label_prior = 0.
    pub index: IndexKind,
}

impl Default for MaclrConfig {
    fn default() -> MaclrConfig {
        MaclrConfig {
            encoder: "minilm".to_owned(),
            max_tokens: 288,
            label_tokens: 128,
            label_text: LabelText::Full,
            pairs: PairKind::Title,
            clusters: Some(2048),
            clusters_double: 0.1,
            clusters_update: 0.05,
            label_regularisation: 256,
            label_pairs: 0,
            stage_one_epochs: 3.0,
            pseudo_encoder: 3,
            pseudo_lexical: 3,
            stem: LexicalConfig::default().stem,
            stage_two_epochs: 2.0,
            few_shot_epochs: 0.0,
            few_shot_most: Some(50),
            few_shot_loss: PairLoss::Contrast,
            item_to_item: false,
            own_names: true,
            words: 1.0,
            label_prior: 0.05,
            max_steps: None,
            batch: 256,
            learning_rate: None,
            few_shot_rate: 0.5,
            weight_decay: 0.01,
            warmup: 0.1,
            clip: Some(1.0),
            dropout: None,
            temperature: 0.05,
            keep: None,
            evaluations: 1,
            precision: Precision::F32,
            index: IndexKind::Auto,
        }
    }
}

impl MaclrConfig {
    /// Stage one alone, pairs against pairs: the inverse cloze task with titles.
    pub fn ict() -> MaclrConfig {
        MaclrConfig {
            clusters: None,
            label_regularisation: 0,
            pseudo_encoder: 0,
            pseudo_lexical: 0,
            stage_two_epochs: 0.0,
            words: 0.0,
            label_prior: 0.0,
            keep: Some(0.0),
            ..MaclrConfig::default()
        }
    }

    /// Each text against itself under another dropout.
    pub fn simcse() -> MaclrConfig {
        MaclrConfig { pairs: PairKind::Same, ..MaclrConfig::ict() }
    }

    /// Random pieces of a document, its title, and labels against themselves (paper 003, appendix B).
    pub fn rts() -> MaclrConfig {
        MaclrConfig { pairs: PairKind::Chunks, label_pairs: 256, ..MaclrConfig::ict() }
    }

    /// Both stages, then the pairs that there are.
    pub fn few_shot_after() -> MaclrConfig {
        MaclrConfig { few_shot_epochs: 3.0, ..MaclrConfig::default() }
    }

    /// The pairs that there are, and nothing else.
    pub fn few_shot() -> MaclrConfig {
        MaclrConfig {
            stage_one_epochs: 0.0,
            stage_two_epochs: 0.0,
            few_shot_epochs: 3.0,
            ..MaclrConfig::default()
        }
    }

    /// Whether the settings make sense together.
    pub(super) fn check(&self, method: &'static str) -> Result<(), MethodError> {
        let share = |name: &str, value: f64| {
            let fits = value > 0.0 && value <= 1.0;
            (!fits).then(|| format!("{name} = {value} is out of range; say a share of the steps, up to 1"))
        };
        let zero = |name: &str, is_zero: bool| {
            is_zero.then(|| {
                format!("{name} = 0 is out of range; say at least 1, or null where that is possible")
            })
        };
        let temperature = (!(self.temperature >= 1e-3 && self.temperature.is_finite()))
            .then(|| format!("temperature = {} is out of range; say at least 0.001", self.temperature));
        let graph = (self.index == IndexKind::Hnsw && self.label_prior > 0.0).then(|| {
            "index = hnsw: labels gain something beside their cosines, which a graph does not know; say \
             label_prior = 0, or index = exact"
                .to_owned()
        });
        let nothing = (!self.has_stage_one() && !self.has_stage_two() && self.few_shot_epochs == 0.0).then(|| {
            "no stage is left to train; say stage_one_epochs, stage_two_epochs or few_shot_epochs, or take \
             `frozen`"
                .to_owned()
        });
        let problem = None
            .or_else(|| tokens("max_tokens", self.max_tokens))
            .or_else(|| tokens("label_tokens", self.label_tokens))
            .or_else(|| zero("batch", self.batch == 0))
            .or_else(|| (self.batch == 1).then(|| "batch = 1 leaves nothing to tell a pair from".to_owned()))
            .or_else(|| zero("clusters", self.clusters == Some(0)))
            .or_else(|| zero("max_steps", self.max_steps == Some(0)))
            .or_else(|| zero("few_shot_most", self.few_shot_most == Some(0)))
            .or_else(|| share("clusters_double", self.clusters_double))
            .or_else(|| share("clusters_update", self.clusters_update))
            .or_else(|| number("stage_one_epochs", self.stage_one_epochs, 1e6))
            .or_else(|| number("stage_two_epochs", self.stage_two_epochs, 1e6))
            .or_else(|| number("few_shot_epochs", self.few_shot_epochs, 1e6))
            .or_else(|| number("few_shot_rate", self.few_shot_rate, 100.0))
            .or_else(|| number("pseudo_encoder", self.pseudo_encoder as f64, 1000.0))
            .or_else(|| number("pseudo_lexical", self.pseudo_lexical as f64, 1000.0))
            .or_else(|| number("words", self.words.into(), 100.0))
            .or_else(|| number("label_prior", self.label_prior.into(), 100.0))
            .or_else(|| number("dropout", self.dropout.unwrap_or(0.0).into(), 0.9))
            .or_else(|| number("keep", self.keep.unwrap_or(0.0).into(), 1.0))
            .or_else(|| number("warmup", self.warmup, 1.0))
            .or_else(|| number("learning_rate", self.learning_rate.unwrap_or(0.0), 1.0))
            .or_else(|| number("weight_decay", self.weight_decay, 1.0))
            .or_else(|| number("clip", self.clip.unwrap_or(0.0).into(), 1e6))
            .or(temperature)
            .or(graph)
            .or(nothing);
        match problem {
            Some(problem) => Err(MethodError::Config { method, problem }),
            None => Ok(()),
        }
    }

    /// Whether there is a stage one.
    pub(super) fn has_stage_one(&self) -> bool {
        self.stage_one_epochs > 0.0
    }

    /// Whether there is a stage two.
    pub(super) fn has_stage_two(&self) -> bool {
        self.stage_two_epochs > 0.0 && self.pseudo_encoder + self.pseudo_lexical > 0
    }

    /// How many examples a step sees of so many: a batch larger than the task would hold the same one twice.
    pub(super) fn per_step(&self, examples: usize) -> usize {
        self.batch.min(examples).max(1)
    }

    /// Which of so many documents, in order, a stage is about that sees each of them so often: as many as `max_steps` come
    /// to, drawn by the seed. None where that is all of them.
    pub(super) fn drawn(&self, documents: usize, epochs: f64, seed: u64) -> Option<Vec<usize>> {
        let seen = self.max_steps?.saturating_mul(self.batch as u64) as f64 / epochs.min(1.0);
        // One alone has nothing to be told from.
        let count = seen.ceil().max(2.0);
        (count < documents as f64).then(|| {
            let mut drawn = Order::new(documents, seed ^ 0x6472_6177).examples(0, count as usize);
            drawn.sort_unstable();
            drawn
        })
    }

    /// The settings that what stage one leaves is a function of; others are as they always are.
    pub(super) fn of_stage_one(&self) -> MaclrConfig {
        let MaclrConfig { stage_two_epochs, pseudo_encoder, pseudo_lexical, stem, .. } =
            MaclrConfig::default();
        MaclrConfig { stage_two_epochs, pseudo_encoder, pseudo_lexical, stem, ..self.of_stage_two() }
    }

    /// The settings that what stage two leaves is a function of.
    pub(super) fn of_stage_two(&self) -> MaclrConfig {
        let MaclrConfig { few_shot_epochs, few_shot_rate, few_shot_most, few_shot_loss, keep, .. } =
            MaclrConfig::default();
        MaclrConfig {
            few_shot_epochs,
            few_shot_rate,
            few_shot_most,
            few_shot_loss,
            keep,
            ..self.of_all_stages()
        }
    }

    /// The settings that what the last stage leaves is a function of. Which encoder it begins with is in the weights;
    /// what is beside the vectors comes after it.
    pub(super) fn of_all_stages(&self) -> MaclrConfig {
        let MaclrConfig { encoder, evaluations, precision, index, words, label_prior, own_names, .. } =
            MaclrConfig::default();
        MaclrConfig { encoder, evaluations, precision, index, words, label_prior, own_names, ..self.clone() }
    }

    /// The engine's settings for a stage over so many examples.
    pub(super) fn loop_config(&self, examples: usize, epochs: f64, seed: u64) -> TrainConfig {
        let all = (examples as f64 * epochs / self.per_step(examples) as f64).ceil().max(1.0) as u64;
        let steps = self.max_steps.map_or(all, |most| most.min(all));
        let measured = (self.evaluations > 0).then(|| steps.div_ceil(u64::from(self.evaluations)));
        TrainConfig {
            steps,
            accumulation: 1,
            clip: self.clip,
            schedule: ScheduleConfig { warmup: self.warmup, then: Then::Linear },
            note_every: 50,
            evaluate_every: measured,
            patience: None,
            checkpoint_every: 100,
            checkpoint_seconds: 120,
            seed,
        }
    }

    /// The optimizer's settings, at a share of the learning rate.
    pub(super) fn groups(&self, hidden: usize, share: f64) -> Vec<Group> {
        let by_width = || rate_by_width(2e-5, hidden);
        let learning_rate = share * self.learning_rate.unwrap_or_else(by_width);
        vec![Group { learning_rate, weight_decay: self.weight_decay, ..Group::default() }]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_preset_is_a_choice_of_stages_and_pairs() {
        let all = MaclrConfig::default();
        assert!(all.has_stage_one() && all.has_stage_two() && all.few_shot_epochs == 0.0);
        let ict = MaclrConfig::ict();
        assert!(ict.has_stage_one() && !ict.has_stage_two() && ict.clusters.is_none());
        assert_eq!(
            (MaclrConfig::simcse().pairs, MaclrConfig::rts().pairs),
            (PairKind::Same, PairKind::Chunks)
        );
        let given = MaclrConfig::few_shot();
        assert!(!given.has_stage_one() && !given.has_stage_two() && given.few_shot_epochs > 0.0);
    }

    #[test]
    fn senseless_settings_are_refused() {
        let refused = |change: fn(&mut MaclrConfig)| {
            let mut config = MaclrConfig::default();
            change(&mut config);
            config.check("maclr").unwrap_err().to_string()
        };
        assert!(MaclrConfig::default().check("maclr").is_ok());
        assert!(refused(|config| config.max_tokens = 1).contains("max_tokens = 1"));
        assert!(refused(|config| config.batch = 1).contains("batch = 1"));
        assert!(refused(|config| config.clusters = Some(0)).contains("clusters"));
        assert!(refused(|config| config.clusters_update = 0.0).contains("clusters_update"));
        assert!(refused(|config| config.temperature = 0.0).contains("temperature"));
        assert!(refused(|config| config.few_shot_most = Some(0)).contains("few_shot_most"));
        assert!(refused(|config| config.words = f32::NAN).contains("words = NaN"));
        assert!(refused(|config| config.label_prior = -1.0).contains("label_prior = -1"));
        assert!(refused(|config| config.keep = Some(1.5)).contains("keep = 1.5"));
        assert!(refused(|config| config.index = IndexKind::Hnsw).contains("label_prior = 0"));
        let plain = MaclrConfig { index: IndexKind::Hnsw, label_prior: 0.0, ..MaclrConfig::default() };
        assert!(plain.check("maclr").is_ok());
        assert!(refused(|config| config.stage_two_epochs = f64::NAN).contains("stage_two_epochs"));
        let nothing =
            |config: &mut MaclrConfig| (config.stage_one_epochs, config.stage_two_epochs) = (0.0, 0.0);
        assert!(refused(nothing).contains("no stage"));
    }

    #[test]
    fn a_stage_does_not_depend_on_what_comes_after_it() {
        let (one, other) =
            (MaclrConfig::default(), MaclrConfig { few_shot_epochs: 3.0, ..MaclrConfig::default() });
        assert!(one.of_stage_one() == other.of_stage_one() && one.of_stage_two() == other.of_stage_two());
        assert_ne!(one.of_all_stages(), other.of_all_stages());
        let other = MaclrConfig { few_shot_loss: PairLoss::Cosine, ..one.clone() };
        assert!(one.of_stage_two() == other.of_stage_two() && one.of_all_stages() != other.of_all_stages());
        let other = MaclrConfig { own_names: false, words: 0.5, index: IndexKind::Exact, ..one.clone() };
        assert_eq!(one.of_all_stages(), other.of_all_stages(), "words and indexes come after all stages");
        let other = MaclrConfig { keep: Some(0.25), ..one.clone() };
        assert_eq!(one.of_stage_two(), other.of_stage_two(), "weights go back after the stage");
        assert_ne!(one.of_all_stages(), other.of_all_stages(), "pairs begin where they went back to");
        let other = MaclrConfig { pseudo_encoder: 9, evaluations: 7, ..one.clone() };
        assert_eq!(one.of_stage_one(), other.of_stage_one());
        assert_ne!(one.of_stage_two(), other.of_stage_two());
        let other = MaclrConfig { temperature: 0.1, ..one.clone() };
        assert_ne!(one.of_stage_one(), other.of_stage_one());
    }

    #[test]
    fn documents_that_no_step_comes_to_are_left_out() {
        let config = MaclrConfig { max_steps: Some(10), batch: 16, ..MaclrConfig::default() };
        let drawn = config.drawn(1000, 3.0, 1).unwrap();
        assert_eq!(drawn.len(), 160);
        assert!(drawn.windows(2).all(|pair| pair[0] < pair[1]) && drawn[159] < 1000);
        assert!(drawn[0] < 100 && drawn[159] >= 900, "from all over");
        assert_eq!(config.drawn(1000, 3.0, 1), Some(drawn.clone()));
        assert_ne!(config.drawn(1000, 3.0, 2), Some(drawn), "another seed draws others");
        // Half an epoch of so many documents is as many steps.
        assert_eq!(config.drawn(1000, 0.5, 1).unwrap().len(), 320);
        assert_eq!(config.drawn(160, 3.0, 1), None, "all of them");
        assert_eq!(MaclrConfig::default().drawn(1000, 3.0, 1), None);
    }

    #[test]
    fn steps_follow_examples_and_end_where_they_are_told_to() {
        let config = MaclrConfig { evaluations: 2, ..MaclrConfig::default() };
        let steps = config.loop_config(51_200, 10.0, 0);
        assert_eq!((steps.steps, steps.evaluate_every), (2000, Some(1000)));
        assert_eq!(config.loop_config(20, 10.0, 0).steps, 10, "small tasks have small batches");
        let config = MaclrConfig { max_steps: Some(7), evaluations: 0, ..config };
        let steps = config.loop_config(3, 0.1, 0);
        assert_eq!((steps.steps, steps.evaluate_every), (1, None));
        assert_eq!(config.loop_config(20, 10.0, 0).steps, 7);
    }
}
