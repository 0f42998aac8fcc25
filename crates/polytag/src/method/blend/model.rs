//! The predictor of a blend: its sources, and how they are judged.
//!
//! A label is judged by what sources say of it among their `depth` best of all labels, as they were in the rehearsal: its
//! probability does not hang on how many labels are asked for or which are allowed. Labels that no source has there are
//! looked for only where too few others are left, and judged by what sources say then, as if they stood right behind.

use polytag_nn::device::Device;
use rayon::prelude::*;
use tempfile::TempDir;

use super::config::{BlendConfig, NAMES};
use super::evidence::{Said, each_label};
use super::judgement::Judgement;
use super::logistic::probability;
use super::shared::Shared;
use crate::artifact::{ArtifactError, MANIFEST, ModelFolder, ModelWriter};
use crate::data::{LabelChange, LabelSpace, Passage};
use crate::ids::LabelId;
use crate::index::Allowed;
use crate::method::config::MethodConfig;
use crate::method::parts::{Part, Prepared};
use crate::method::run;
use crate::metric::{LabelTable, Propensity};
use crate::predict::{Ask, Explanation, PredictError, Predictor};
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

    /// What each source says of each of the passages, its labels as those of the whole.
    fn hear(&self, passages: &[Passage<'_>], ask: &Ask<'_>) -> Result<Vec<Vec<Vec<Scored>>>, PredictError> {
        let itself = |passage: &Passage<'_>| self.space.find(passage.id?);
        let itself: Vec<Option<LabelId>> =
            passages.iter().map(|passage| itself(passage).filter(|_| self.item_to_item())).collect();
        // One more, where a document may be among its own labels.
        let k = ask.k.saturating_add(usize::from(self.item_to_item()));
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
            let rankings = source.model().predict(passages, &Ask { k, allowed: allowed.as_ref() })?;
            let whole = |scored: &Scored| {
                let label = in_whole.get(scored.label.index()).copied().flatten();
                label.map(|label| Scored { label, score: scored.score })
            };
            let kept = |(ranking, itself): (&Ranking, &Option<LabelId>)| {
                let labels = ranking.entries().iter().filter_map(whole);
                labels.filter(|scored| Some(scored.label) != *itself).take(ask.k).collect()
            };
            heard.push(rankings.iter().zip(&itself).map(kept).collect());
        }
        Ok(heard)
    }

    /// What each source says of passages among its best.
    fn hear_near(&self, passages: &[Passage<'_>]) -> Result<Vec<Vec<Vec<Scored>>>, PredictError> {
        self.hear(passages, &Ask { k: self.config.depth, allowed: None })
    }

    /// The probabilities of labels that sources rank for the passage in a row, by their places there or all at one.
    fn judged(&self, heard: &[Vec<Vec<Scored>>], row: usize, place: Option<usize>) -> Vec<Scored> {
        let rankings: Vec<&[Scored]> = heard.iter().map(|of_source| &of_source[row][..]).collect();
        let mut judged = Vec::new();
        each_label(&rankings, place, |label, said| {
            if self.space.is_active(label) {
                judged.push(Scored { label, score: probability(self.log_odds(label, said).0) as f32 });
            }
        });
        judged
    }

    /// What sources say of a label, if any says something.
    fn said_of(&self, passage: Passage<'_>, label: LabelId) -> Result<Option<Vec<Said>>, PredictError> {
        let find = |heard: &[Vec<Vec<Scored>>], place| {
            let rankings: Vec<&[Scored]> = heard.iter().map(|of_source| &of_source[0][..]).collect();
            let mut said: Option<Vec<Said>> = None;
            each_label(&rankings, place, |found, of_label| {
                if found == label {
                    said = Some(of_label.to_vec());
                }
            });
            said
        };
        let near = find(&self.hear_near(&[passage])?, None);
        if near.is_some() {
            return Ok(near);
        }
        let only: Allowed = [label].into_iter().collect();
        Ok(find(&self.hear(&[passage], &Ask { k: 1, allowed: Some(&only) })?, Some(self.config.depth)))
    }

    /// Adds labels that no source has among its best, as if they stood right behind. Where few are allowed, all sources say
    /// something of each.
    fn look_further(
        &self,
        passages: &[Passage<'_>],
        judged: &mut [&mut Vec<Scored>],
        ask: &Ask<'_>,
    ) -> Result<(), PredictError> {
        let few = ask.allowed.map(Allowed::len).filter(|&allowed| allowed <= self.config.depth);
        let far = self.hear(passages, &Ask { k: few.unwrap_or(ask.k), ..*ask })?;
        judged.par_iter_mut().enumerate().for_each(|(row, judged)| {
            let known: Allowed = judged.iter().map(|scored| scored.label).collect();
            let found = self.judged(&far, row, Some(self.config.depth));
            judged.extend(found.into_iter().filter(|scored| !known.contains(scored.label)));
        });
        Ok(())
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
        let near = self.hear_near(passages)?;
        let mut judged: Vec<Vec<Scored>> =
            (0..passages.len()).into_par_iter().map(|row| self.judged(&near, row, None)).collect();
        drop(near);
        let may = |label: LabelId| ask.allowed.is_none_or(|allowed| allowed.contains(label));
        let wanted = match ask.allowed {
            Some(allowed) => ask.k.min(allowed.len()),
            None if ask.k > self.config.depth => ask.k.min(self.space.len()),
            // Asked for no more than they were, sources know of no others.
            None => 0,
        };
        let is_short =
            |judged: &Vec<Scored>| judged.iter().filter(|scored| may(scored.label)).count() < wanted;
        let short = passages.iter().zip(&mut judged).filter(|(_, judged)| is_short(judged));
        let (left, mut short): (Vec<Passage<'_>>, Vec<&mut Vec<Scored>>) = short.unzip();
        if !left.is_empty() {
            self.look_further(&left, &mut short, ask)?;
        }
        let rank = |judged: Vec<Scored>| {
            let mut top = TopK::new(ask.k);
            for scored in judged {
                if may(scored.label) && scored.score >= self.config.least {
                    top.push(scored)?;
                }
            }
            Ok(top.into_ranking())
        };
        judged.into_par_iter().map(rank).collect()
    }

    fn apply(&mut self, changes: &[LabelChange]) -> Result<(), PredictError> {
        let (space, _) = self.space.changed(changes).map_err(|(_, error)| error)?;
        // What is slow or may fail comes first for all sources, where it can be had before: after an error there none has
        // changed.
        let prepared: Vec<Prepared> =
            self.sources.iter().map(|source| source.prepare(changes)).collect::<Result<_, _>>()?;
        for (source, prepared) in self.sources.iter_mut().zip(&prepared) {
            source.apply_prepared(prepared)?;
        }
        self.space = space;
        self.labels = self.match_labels();
        Ok(())
    }

    fn explain(&self, passage: Passage<'_>, label: LabelId) -> Result<Explanation, PredictError> {
        let Some(said) = self.said_of(passage, label)? else {
            return Ok(Explanation { score: 0.0, matched: None, reasons: Vec::new(), marks: Vec::new() });
        };
        let (odds, parts) = self.log_odds(label, &said);
        let names = self.config.checked_methods();
        let mut shared = Shared::default();
        let mut heard = Vec::new();
        for (source, name) in names.iter().map(MethodConfig::name).enumerate() {
            let words = match said[source] {
                Some((place, score)) if place < self.config.depth => {
                    format!("{name} {score:.3} at place {}", place + 1)
                }
                Some((_, score)) => format!("{name} {score:.3}, not among its {}", self.config.depth),
                None => format!("{name}: not among its {}", self.config.depth),
            };
            let model = self.sources[source].model();
            let own = said[source].and_then(|_| model.label_space().find(&self.space.label(label).id));
            let reasons = own.map(|own| model.explain(passage, own)).transpose()?;
            shared.add(reasons, (parts[source], &words));
            heard.push(words);
        }
        let count = self.space.train_count(label);
        shared.add(None, (odds - parts.iter().sum::<f64>(), &format!("carried by {count} documents")));
        let matched = Some(heard.join("; "));
        let (reasons, marks) = shared.into_reasons();
        Ok(Explanation { score: probability(odds) as f32, matched, reasons, marks })
    }

    fn item_to_item(&self) -> bool {
        self.sources.iter().any(|source| source.model().item_to_item())
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
