//! Settings of the classifier and its presets.

use polytag_nn::op::Pooling;
use polytag_nn::optimizer::Group;
use serde::{Deserialize, Serialize};

use super::expert::{Expert, Layers, Reads};
use crate::method::error::MethodError;
use crate::method::label_text::LabelText;
use crate::method::training::{Steps, at_least_one, number, tokens};

/// What experts are taught.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Together {
    /// Each is to be right by itself (paper 004, section 3.3.1).
    #[default]
    Individual,
    /// The mean of their scores is to be right (eq. 5). What is given is the mean of their probabilities in any case.
    Collaborative,
}

/// What stands for the labels of a document beside its text, while it is learned (paper 002).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Guide {
    /// Their texts, one after the other, through the same encoder.
    #[default]
    Texts,
    /// Numbers of each label's own, added up (table 4).
    OneHot,
}

/// Settings of the classifier.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClassifierConfig {
    /// The encoder: a known name, a name on the hub, or a folder.
    pub encoder: String,
    /// How many tokens of a document are read; at most as many as the encoder takes.
    pub max_tokens: usize,
    /// Who judges: `cls@LAYER`, `mean@LAYER` or `labels@LAYER`, where a layer is a number, `last`, or `last5` for the last
    /// five together.
    pub experts: Vec<Expert>,
    /// What experts are taught.
    pub together: Together,
    /// How much it counts that experts judge differently where neither is right yet (paper 004, eq. 6 to 10); 0 for not at
    /// all.
    pub diversity: f32,
    /// After how many epochs it begins to count.
    pub diversity_after: f64,
    /// How much it counts that a document's vector is near its labels' (paper 002, eq. 2); 0 for not at all.
    pub feature_guide: f32,
    /// How much it counts that labels are found from their own vector (eq. 3); 0 for not at all.
    pub link_guide: f32,
    /// What stands for the labels of a document.
    pub guide: Guide,
    /// What of a label is read for it.
    pub label_text: LabelText,
    /// How many tokens of a document's labels are read, of all together.
    pub label_tokens: usize,
    /// How many labels there may be before they are judged in clusters: a document's best ones first, and their labels
    /// only.
    pub cluster_above: usize,
    /// How many labels a cluster has at most.
    pub cluster_size: usize,
    /// How many clusters of a document have their labels judged.
    pub cluster_beam: usize,
    /// How many labels a training step judges, for all its documents, where there are clusters.
    pub cluster_labels: usize,
    /// The rate of dropout before labels are judged.
    pub feature_dropout: f32,
    /// What a label's score begins with.
    pub bias: f32,
    /// The learning rate of what labels look for.
    pub attention_learning_rate: f64,
    /// The learning rate of what labels are compared with.
    pub output_learning_rate: f64,
    /// How many steps of what size, at what rates.
    #[serde(flatten)]
    pub steps: Steps,
}

impl Default for ClassifierConfig {
    fn default() -> ClassifierConfig {
        ClassifierConfig {
            encoder: "minilm".to_owned(),
            max_tokens: 512,
            experts: vec![pooled(Pooling::Cls, Layers::Last(1))],
            together: Together::Individual,
            diversity: 0.0,
            diversity_after: 3.0,
            feature_guide: 0.0,
            link_guide: 0.0,
            guide: Guide::Texts,
            label_text: LabelText::Name,
            label_tokens: 512,
            cluster_above: 20_000,
            cluster_size: 64,
            cluster_beam: 16,
            cluster_labels: 8192,
            feature_dropout: 0.3,
            bias: -5.0,
            attention_learning_rate: 1e-2,
            output_learning_rate: 1e-2,
            steps: Steps::default(),
        }
    }
}

fn pooled(pooling: Pooling, layers: Layers) -> Expert {
    Expert { reads: Reads::Pooled(pooling), layers }
}

impl ClassifierConfig {
    /// GUDN (paper 002): the last ten layers together, and both guides. Losses are sums over labels and numbers here, not
    /// means, so that the feature guide needs a small weight not to drown the others.
    pub fn gudn() -> ClassifierConfig {
        ClassifierConfig {
            experts: vec![pooled(Pooling::Cls, Layers::Last(10))],
            feature_guide: 0.01,
            link_guide: 1.0,
            feature_dropout: 0.5,
            ..ClassifierConfig::default()
        }
    }

    /// ME-XML (paper 004): labels that look at the first layer, beside the last.
    pub fn me_xml() -> ClassifierConfig {
        ClassifierConfig {
            experts: vec![
                Expert { reads: Reads::Labels, layers: Layers::Number(1) },
                pooled(Pooling::Cls, Layers::Last(1)),
            ],
            diversity: 0.01,
            attention_learning_rate: 2e-2,
            output_learning_rate: 2e-2,
            ..ClassifierConfig::default()
        }
    }

    /// What is best where every label has examples: labels that look at the first layer and at the last, beside the last
    /// layer's first token, guided by the texts of labels.
    pub fn guided_experts() -> ClassifierConfig {
        ClassifierConfig {
            experts: vec![
                Expert { reads: Reads::Labels, layers: Layers::Number(1) },
                Expert { reads: Reads::Labels, layers: Layers::Last(1) },
                pooled(Pooling::Cls, Layers::Last(1)),
            ],
            link_guide: 1.0,
            output_learning_rate: 1.5e-2,
            steps: Steps { epochs: 10, ..Steps::default() },
            ..ClassifierConfig::me_xml()
        }
    }

    /// What documents are guided by, if by anything.
    pub(super) fn guided_by(&self) -> Option<Guide> {
        (self.feature_guide > 0.0 || self.link_guide > 0.0).then_some(self.guide)
    }

    /// Whether the settings make sense together.
    pub(super) fn check(&self, method: &'static str) -> Result<(), MethodError> {
        let nobody = self.experts.is_empty().then(|| "experts = [] leaves nobody to judge".to_owned());
        let alone = (self.experts.len() == 1 && self.diversity > 0.0).then(|| {
            "diversity needs two experts that can differ; say diversity = 0, or name more experts".to_owned()
        });
        let pooled = self.experts.iter().any(|expert| matches!(expert.reads, Reads::Pooled(_)));
        let nothing = (self.guided_by().is_some() && !pooled).then(|| {
            "guides need an expert with a vector for the whole document; add cls@last to experts".to_owned()
        });
        let bias =
            (!self.bias.is_finite()).then(|| format!("bias = {} is out of range; say a number", self.bias));
        let problem = nobody
            .or(alone)
            .or(nothing)
            .or(bias)
            .or_else(|| tokens("max_tokens", self.max_tokens))
            .or_else(|| tokens("label_tokens", self.label_tokens))
            .or_else(|| self.steps.problem())
            .or_else(|| at_least_one("cluster_size", self.cluster_size))
            .or_else(|| at_least_one("cluster_beam", self.cluster_beam))
            .or_else(|| at_least_one("cluster_labels", self.cluster_labels))
            .or_else(|| number("diversity", self.diversity.into(), 1000.0))
            .or_else(|| number("diversity_after", self.diversity_after, 1e6))
            .or_else(|| number("feature_guide", self.feature_guide.into(), 1000.0))
            .or_else(|| number("link_guide", self.link_guide.into(), 1000.0))
            .or_else(|| number("feature_dropout", self.feature_dropout.into(), 0.9));
        match problem {
            Some(problem) => Err(MethodError::Config { method, problem }),
            None => Ok(()),
        }
    }

    /// The optimizer's settings: the encoder, what labels look for, what they are compared with.
    pub(super) fn groups(&self, hidden: usize) -> Vec<Group> {
        self.steps.groups(hidden, &[self.attention_learning_rate, self.output_learning_rate])
    }
}

/// The group of weights that labels look with.
pub(super) const ATTENTION: usize = 1;

/// The group of weights that labels are compared by.
pub(super) const OUTPUT: usize = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn senseless_settings_are_refused() {
        let refused = |change: fn(&mut ClassifierConfig)| {
            let mut config = ClassifierConfig::gudn();
            change(&mut config);
            config.check("gudn").unwrap_err().to_string()
        };
        let presets = [
            ClassifierConfig::default(),
            ClassifierConfig::gudn(),
            ClassifierConfig::me_xml(),
            ClassifierConfig::guided_experts(),
        ];
        for preset in presets {
            assert!(preset.check("classifier").is_ok());
        }
        assert!(refused(|config| config.experts.clear()).contains("nobody"));
        assert!(refused(|config| config.diversity = 0.1).contains("two experts"));
        assert!(refused(|config| config.experts = vec!["labels@1".parse().unwrap()]).contains("cls@last"));
        assert!(refused(|config| config.steps.batch = 0).contains("batch = 0"));
        assert!(refused(|config| config.steps.accumulation = 7).contains("7 parts"));
        assert!(refused(|config| config.feature_dropout = 1.0).contains("feature_dropout"));
        assert!(refused(|config| config.cluster_beam = 0).contains("cluster_beam"));
        assert!(refused(|config| config.bias = f32::NAN).contains("bias"));
        assert!(refused(|config| config.steps.max_steps = Some(0)).contains("max_steps"));
    }
}
