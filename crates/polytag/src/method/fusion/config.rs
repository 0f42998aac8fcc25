//! Settings of fusion: `conse` and `xml0` differ in them only.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::super::error::MethodError;
use super::combination::{EXACT, Effort, MOST};

/// Which combinations of predicted labels are compared with an unseen label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Combine {
    /// The best one, for each unseen label.
    Best,
    /// All of them together.
    All,
}

/// By which vectors predicted labels are compared with unseen ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LabelVectorKind {
    /// As the encoder has them (paper 000): labels that mean much the same are near each other.
    Plain,
    /// Turned, so that labels which documents carry together are near each other.
    Together,
    /// Whichever of the two finds labels again that are hidden for a rehearsal.
    Auto,
}

/// Settings of `xml0`, and of its peer `conse`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FusionConfig {
    /// The folder of the model that predicts seen labels, with probabilities.
    pub classifier: String,
    /// The folder of the model that gives vectors to labels and documents: one of `frozen`, `few-shot` or their like.
    pub semantics: String,
    /// The probability that a predicted label must be above to be combined.
    pub threshold: f32,
    /// How many predicted labels are combined at most, the most probable first: up to 25 exactly, up to 64 by a beam.
    pub most: usize,
    /// How many combinations a beam keeps.
    pub beam: usize,
    /// Which combinations are compared with an unseen label: best or all.
    pub combine: Combine,
    /// By which label vectors they are compared: plain, together, which learns from the label sets of train documents what
    /// goes with what, or auto, which tries both on labels that it hides.
    pub vectors: LabelVectorKind,
    /// How much of the score is the similarity of the document, from 0 to 1; the rest is that of the labels. 0 is label
    /// fusion alone.
    pub document: f32,
}

impl FusionConfig {
    /// XML0, paper 000, which says that both scores are combined and not how. That labels may be compared by what goes
    /// together is ours; `vectors = plain` is the paper's form.
    pub fn xml0() -> FusionConfig {
        FusionConfig {
            classifier: String::new(),
            semantics: String::new(),
            threshold: 0.1,
            most: EXACT,
            beam: 32,
            combine: Combine::Best,
            vectors: LabelVectorKind::Auto,
            document: 0.7,
        }
    }

    /// ConSE as paper 000 applies it (section IV): all predicted labels are one combination, and the document is not
    /// looked at.
    pub fn conse() -> FusionConfig {
        FusionConfig {
            combine: Combine::All,
            vectors: LabelVectorKind::Plain,
            document: 0.0,
            ..FusionConfig::xml0()
        }
    }

    /// The folders that it is made from.
    pub(in super::super) fn folders(&self) -> Vec<PathBuf> {
        [&self.classifier, &self.semantics].into_iter().map(PathBuf::from).collect()
    }
}

impl Default for FusionConfig {
    fn default() -> FusionConfig {
        FusionConfig::xml0()
    }
}

/// The part of the settings that counts after fitting.
#[derive(Clone, Copy, Debug)]
pub(super) struct FusionSettings {
    pub(super) threshold: f32,
    pub(super) most: usize,
    pub(super) effort: Effort,
    pub(super) document: f32,
}

impl TryFrom<&FusionConfig> for FusionSettings {
    /// What is wrong.
    type Error = String;

    fn try_from(config: &FusionConfig) -> Result<FusionSettings, String> {
        let &FusionConfig { threshold, most, beam, combine, document, .. } = config;
        if !(0.0..1.0).contains(&threshold) {
            return Err(format!(
                "threshold = {threshold} is out of range; say a probability from 0 to below 1"
            ));
        }
        if !(1..=MOST).contains(&most) {
            return Err(format!(
                "most = {most} is out of range; say 1 to {MOST}, up to {EXACT} for exact answers"
            ));
        }
        if !(1..=4096).contains(&beam) {
            return Err(format!("beam = {beam} is out of range; say 1 to 4096"));
        }
        if !(0.0..=1.0).contains(&document) {
            return Err(format!("document = {document} is out of range; say a share from 0 to 1"));
        }
        let effort = match combine {
            Combine::Best => Effort::Best { beam },
            Combine::All => Effort::All,
        };
        Ok(FusionSettings { threshold, most, effort, document })
    }
}

/// The method, its settings checked.
pub struct Fusion {
    pub(super) name: &'static str,
    pub(super) config: FusionConfig,
    pub(super) settings: FusionSettings,
}

impl Fusion {
    /// Checks settings; `name` is the preset they were made from.
    pub fn new(name: &'static str, config: FusionConfig) -> Result<Fusion, MethodError> {
        let settings = FusionSettings::try_from(&config)
            .map_err(|problem| MethodError::Config { method: name, problem })?;
        Ok(Fusion { name, config, settings })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn senseless_settings_are_refused() {
        let refused = |change: fn(&mut FusionConfig)| {
            let mut config = FusionConfig::xml0();
            change(&mut config);
            Fusion::new("xml0", config).err().unwrap().to_string()
        };
        assert!(refused(|config| config.threshold = 1.0).contains("from 0 to below 1"));
        assert!(refused(|config| config.threshold = f32::NAN).contains("threshold"));
        assert!(refused(|config| config.most = 0).contains("1 to 64"));
        assert!(refused(|config| config.most = 65).contains("up to 25"));
        assert!(refused(|config| config.beam = 0).contains("1 to 4096"));
        assert!(refused(|config| config.document = -0.5).contains("from 0 to 1"));
    }
}
