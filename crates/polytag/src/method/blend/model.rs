//! The predictor of a blend: its sources, and how they are judged.

use polytag_nn::device::Device;
use rayon::prelude::*;
use tempfile::TempDir;

use super::config::{BlendConfig, NAMES};
use super::evidence::{Said, each_label};
use super::judgement::Judgement;
use super::logistic::probability;
use crate::artifact::{ArtifactError, MANIFEST, ModelFolder, ModelWriter};
use crate::data::{LabelChange, LabelSpace, Passage};
use crate::ids::LabelId;
use crate::index::Allowed;
use crate::method::config::MethodConfig;
use crate::method::parts::Part;
use crate::method::run;
use crate::metric::{LabelTable, Propensity};
use crate::predict::{Ask, Explanation, Field, PredictError, Predictor, Reason};
use crate::ranking::{Ranking, Scored, TopK};

/// The file of what the rehearsal taught.
const JUDGEMENT: &str = "judgement.json";

/// A fitted blend.
pub struct BlendModel {
    config: BlendConfig,
    judgement: Judgement,
    space: LabelSpace,
    sources: Vec<Part>,
    labels: Labels,
    /// Where sources lie until the blend is written.
    _folders: Option<TempDir>,
}

/// What follows from the labels of the whole and of its sources.
#[derive(Default)]
struct Labels {
    /// For each source: the labels of the whole by their positions in it.
    in_whole: Vec<Vec<Option<LabelId>>>,
    /// What rare labels gain, by position.
    gains: Vec<f64>,
}

impl BlendModel {
    pub(super) fn new(
        config: BlendConfig,
        judgement: Judgement,
        space: LabelSpace,
        sources: Vec<Part>,
    ) -> BlendModel {
        let mut model =
            BlendModel { config, judgement, space, sources, labels: Labels::default(), _folders: None };
        model.labels = model.match_labels();
        model
    }

    /// The same, with the folder that its sources lie in until it is written.
    pub(super) fn kept_in(self, folders: TempDir) -> BlendModel {
        BlendModel { _folders: Some(folders), ..self }
    }

    /// Reads a model that [`save`](Predictor::save) wrote, its sources onto `device`.
    pub fn load(folder: &ModelFolder, device: &Device) -> Result<BlendModel, crate::Error> {
        let config: BlendConfig = serde_json::from_value(folder.manifest().config.clone())
            .map_err(|error| folder.damaged(MANIFEST, error))?;
        config.check("blend").map_err(|error| folder.damaged(MANIFEST, error))?;
        let judgement: Judgement = serde_json::from_str(&folder.read_text(JUDGEMENT)?)
            .map_err(|error| folder.damaged(JUDGEMENT, error))?;
        if !judgement.is_sound(config.sources.len()) {
            return Err(folder.damaged(JUDGEMENT, "its numbers do not fit the sources").into());
        }
        let part = |name| Part::of(folder, name, |dir| run::load_part(dir, device));
        let sources = NAMES[..config.sources.len()].iter().copied().map(part).collect::<Result<_, _>>()?;
        Ok(BlendModel::new(config, judgement, folder.labels()?, sources))
    }

    fn match_labels(&self) -> Labels {
        let in_whole = self.sources.iter().map(|source| {
            let mut in_whole = vec![None; source.model().label_space().positions()];
            for (label, place) in (0..).map(LabelId).zip(source.positions(&self.space)) {
                if let Some(place) = place {
                    in_whole[place.index()] = Some(label);
                }
            }
            in_whole
        });
        let table = LabelTable::new(&self.space, Propensity::default());
        let gain = |label| match self.space.is_seen(label) {
            true => f64::from(self.config.tail) * table.inverse_propensity(label).ln(),
            false => 0.0,
        };
        Labels {
            in_whole: in_whole.collect(),
            gains: (0..self.space.positions() as u32).map(|label| gain(LabelId(label))).collect(),
        }
    }

    /// What each source says of passages, its labels as those of the whole.
    fn hear(&self, passages: &[Passage<'_>], ask: &Ask<'_>) -> Result<Vec<Vec<Vec<Scored>>>, PredictError> {
        let depth = self.config.depth.max(ask.k);
        let mut heard = Vec::with_capacity(self.sources.len());
        for (source, in_whole) in self.sources.iter().zip(&self.labels.in_whole) {
            let allowed = ask.allowed.map(|allowed| {
                let mut own = Allowed::default();
                for (place, label) in (0..).map(LabelId).zip(in_whole) {
                    if label.is_some_and(|label| allowed.contains(label)) {
                        own.insert(place);
                    }
                }
                own
            });
            let rankings = source.model().predict(passages, &Ask { k: depth, allowed: allowed.as_ref() })?;
            let whole = |scored: &Scored| {
                let label = in_whole.get(scored.label.index()).copied().flatten();
                label.map(|label| Scored { label, score: scored.score })
            };
            heard.push(
                rankings.iter().map(|ranking| ranking.entries().iter().filter_map(whole).collect()).collect(),
            );
        }
        Ok(heard)
    }

    /// The log-odds of a label, and what each source adds to them.
    fn log_odds(&self, label: LabelId, said: &[Said]) -> (f64, Vec<f64>) {
        let (odds, parts) = self.judgement.log_odds(said, self.space.train_count(label));
        (odds + self.labels.gains[label.index()], parts)
    }
}

impl Predictor for BlendModel {
    fn label_space(&self) -> &LabelSpace {
        &self.space
    }

    fn place(&mut self, device: &Device) {
        self.sources.iter_mut().for_each(|source| source.place(device));
    }

    fn notice(&self) -> Option<String> {
        self.sources.iter().find_map(|source| source.model().notice())
    }

    fn predict(&self, passages: &[Passage<'_>], ask: &Ask<'_>) -> Result<Vec<Ranking>, PredictError> {
        let heard = self.hear(passages, ask)?;
        let rank = |place: usize| {
            let rankings: Vec<&[Scored]> = heard.iter().map(|of_source| &of_source[place][..]).collect();
            let mut top = TopK::new(ask.k);
            let mut failure = None;
            each_label(&rankings, |label, said| {
                let score = probability(self.log_odds(label, said).0) as f32;
                if self.space.is_active(label) && score >= self.config.least {
                    failure = failure.take().or(top.push(Scored { label, score }).err());
                }
            });
            match failure {
                Some(error) => Err(error.into()),
                None => Ok(top.into_ranking()),
            }
        };
        (0..passages.len()).into_par_iter().map(rank).collect()
    }

    fn apply(&mut self, changes: &[LabelChange]) -> Result<(), PredictError> {
        let (space, _) = self.space.changed(changes).map_err(|(_, error)| error)?;
        for source in &mut self.sources {
            source.apply(changes)?;
        }
        self.space = space;
        self.labels = self.match_labels();
        Ok(())
    }

    fn explain(&self, passage: Passage<'_>, label: LabelId) -> Result<Explanation, PredictError> {
        let heard = self.hear(&[passage], &Ask { k: self.config.depth, allowed: None })?;
        let rankings: Vec<&[Scored]> = heard.iter().map(|of_source| &of_source[0][..]).collect();
        let mut said: Option<Vec<Said>> = None;
        each_label(&rankings, |found, of_label| {
            if found == label {
                said = Some(of_label.to_vec());
            }
        });
        let Some(said) = said else {
            return Ok(Explanation { score: 0.0, matched: None, reasons: Vec::new(), marks: Vec::new() });
        };
        let (odds, parts) = self.log_odds(label, &said);
        let names = self.config.checked_methods();
        let mut reasons: Vec<Reason> = Vec::new();
        let mut add = |words: String, weight: f64| {
            reasons.push(Reason { words, field: Field::Predicted, weight: weight as f32, attention: None });
        };
        for ((name, said), part) in names.iter().map(MethodConfig::name).zip(&said).zip(&parts) {
            add(
                match said {
                    Some((place, score)) => format!("{name}: {score:.3} at place {}", place + 1),
                    None => format!("{name}: not among its {}", self.config.depth),
                },
                *part,
            );
        }
        let count = self.space.train_count(label);
        add(format!("carried by {count} documents"), odds - parts.iter().sum::<f64>());
        reasons.sort_by(Reason::order);
        let matched = Some(self.space.label(label).name.clone());
        Ok(Explanation { score: probability(odds) as f32, matched, reasons, marks: Vec::new() })
    }

    fn gives_probabilities(&self) -> bool {
        true
    }

    fn save(&self, model: &mut ModelWriter) -> Result<(), ArtifactError> {
        let judgement =
            serde_json::to_string_pretty(&self.judgement).expect("plain numbers always make JSON");
        model.file(JUDGEMENT, judgement.as_bytes())?;
        self.sources.iter().try_for_each(|source| source.save(model))
    }
}
