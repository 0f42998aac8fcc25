//! The predictor: the links of a document's words, and the labels that have their features.

use rayon::prelude::*;
use rustc_hash::FxHashMap;

use super::ZestConfig;
use super::labels::LabelFeatures;
use super::links::{Bilinear, Compared, Scratch};
use crate::artifact::{ArtifactError, MANIFEST, ModelFolder, ModelWriter, TensorsBuilder};
use crate::data::{LabelChange, LabelSpace, Passage};
use crate::ids::LabelId;
use crate::method::training::probability;
use crate::method::word_rows;
use crate::predict::{Ask, Explanation, Field, PredictError, Predictor, Reason};
use crate::ranking::{Ranking, Scored};
use crate::sparse::{Entry, Tfidf};

/// The file of links, and its parts.
const LINKS: &str = "links.safetensors";
const STARTS: &str = "starts";
const FEATURES: &str = "features";
const FIRST: &str = "first";
const WEIGHTS: &str = "weights";
const SHARED: &str = "shared";

/// A fitted `zest`.
pub struct ZestModel {
    config: ZestConfig,
    words: Tfidf,
    bilinear: Bilinear,
    features: LabelFeatures,
    space: LabelSpace,
}

impl ZestModel {
    pub(super) fn new(
        config: ZestConfig,
        words: Tfidf,
        bilinear: Bilinear,
        features: LabelFeatures,
        space: LabelSpace,
    ) -> ZestModel {
        ZestModel { config, words, bilinear, features, space }
    }

    /// Reads a model that [`save`](Predictor::save) wrote.
    pub fn load(folder: &ModelFolder) -> Result<ZestModel, crate::Error> {
        let config: ZestConfig = serde_json::from_value(folder.manifest().config.clone())
            .map_err(|error| folder.damaged(MANIFEST, error))?;
        super::Zest::try_from(config.clone()).map_err(|error| folder.damaged(MANIFEST, error))?;
        let words = word_rows::load(folder, &config.tfidf())?;
        let space = folder.labels()?;
        let features = LabelFeatures::new((config.label_text, config.own), &words, &space);
        let tensors = folder.mapped(LINKS)?;
        let numbers = |name: &str| Ok::<_, ArtifactError>(tensors.array::<f32>(name)?.to_vec());
        let starts: Vec<usize> = tensors
            .array::<u64>(STARTS)?
            .iter()
            .map(|&start| usize::try_from(start).unwrap_or(usize::MAX))
            .collect();
        if starts.len() != words.vocabulary().len() + 1 {
            return Err(folder.damaged(LINKS, "its links are not those of the words").into());
        }
        let shared: [f32; 2] = numbers(SHARED)?
            .try_into()
            .map_err(|_| folder.damaged(LINKS, "what all links share is not two numbers"))?;
        let places = (features.len(), starts, tensors.array::<u32>(FEATURES)?.to_vec());
        let bilinear = Bilinear::from_parts(places, (numbers(FIRST)?, numbers(WEIGHTS)?), shared)
            .map_err(|error| folder.damaged(LINKS, error))?;
        Ok(ZestModel { config, words, bilinear, features, space })
    }

    fn answer(&self, row: &[Entry], ask: &Ask<'_>, scratch: &mut Scratch) -> Result<Ranking, PredictError> {
        let may = |label: u32| ask.allowed.is_none_or(|allowed| allowed.contains(LabelId(label)));
        let most = self.config.shortlist.max(ask.k);
        let found = self.bilinear.shortlist(row, &self.features, (most, may), scratch);
        let scored = |found: Compared| {
            let score = (1.0 - self.config.alike) * probability(found.odds) + self.config.alike * found.alike;
            Scored { label: LabelId(found.label), score }
        };
        Ok(Ranking::new(found.into_iter().map(scored).collect(), ask.k)?)
    }
}

impl Predictor for ZestModel {
    fn label_space(&self) -> &LabelSpace {
        &self.space
    }

    fn predict(&self, passages: &[Passage<'_>], ask: &Ask<'_>) -> Result<Vec<Ranking>, PredictError> {
        let rows = word_rows::weigh(&self.words, passages);
        // A scratch is as large as the label set: one a thread.
        let size = rows.len().div_ceil(rayon::current_num_threads()).max(1);
        let answer = |rows: &[Vec<Entry>]| -> Result<Vec<Ranking>, PredictError> {
            let mut scratch = Scratch::default();
            rows.iter().map(|row| self.answer(row, ask, &mut scratch)).collect()
        };
        let parts: Vec<Vec<Ranking>> = rows.par_chunks(size).map(answer).collect::<Result<_, _>>()?;
        Ok(parts.into_iter().flatten().collect())
    }

    fn apply(&mut self, changes: &[LabelChange]) -> Result<(), PredictError> {
        let (space, _) = self.space.changed(changes).map_err(|(_, error)| error)?;
        self.features.read(&self.words, &space);
        self.space = space;
        Ok(())
    }

    /// A word's share of the probability is that of the log-odds it adds, from what they are without any.
    fn explain(&self, passage: Passage<'_>, label: LabelId) -> Result<Explanation, PredictError> {
        let row = word_rows::weigh(&self.words, &[passage]).remove(0);
        let (added, bias) = self.bilinear.explained(&row, self.features.of(label.0));
        let more: f32 = added.iter().map(|[odds, _]| odds).sum();
        let (without, learned) = (probability(bias), probability(bias + more));
        let slope = if more == 0.0 { 0.0 } else { (learned - without) / more };
        let alike = self.config.alike;
        let weigh = |[odds, same]: [f32; 2]| (1.0 - alike) * slope * odds + alike * same;
        let weights: FxHashMap<u32, f32> =
            row.iter().map(|entry| entry.column).zip(added.iter().copied().map(weigh)).collect();
        let score = (1.0 - alike) * learned + alike * added.iter().map(|[_, same]| same).sum::<f32>();
        let mut reasons = word_rows::reasons(&self.words, passage, &weights);
        let told: f32 = reasons.iter().map(|reason| reason.weight).sum();
        let words = "(any text)".to_owned();
        reasons.push(Reason { words, field: Field::Text, weight: score - told, attention: None });
        let matched = Some(self.space.label(label).name.clone());
        Ok(Explanation { score, matched, reasons, marks: Vec::new() })
    }

    fn gives_probabilities(&self) -> bool {
        self.config.alike == 0.0
    }

    fn save(&self, model: &mut ModelWriter) -> Result<(), ArtifactError> {
        word_rows::save(&self.words, model)?;
        let (first, weights, shared) = self.bilinear.parts();
        let (starts, features, values) = first.parts();
        let starts: Vec<u64> = starts.iter().map(|&start| start as u64).collect();
        let tensors = TensorsBuilder::default()
            .numbers(STARTS, &starts)
            .numbers(FEATURES, features)
            .numbers(FIRST, values)
            .numbers(WEIGHTS, weights)
            .numbers(SHARED, &shared);
        model.tensors(LINKS, &tensors)
    }
}
