//! The predictor of fusion: a classifier for seen labels and an encoder with vectors of all labels, which together
//! answer with unseen ones.

mod rehearsal; // which label vectors suit a task

use std::borrow::Cow;

use polytag_nn::device::Device;
use rayon::prelude::*;

use super::combination::{Combination, Predicted};
use super::config::{FusionConfig, FusionSettings};
use super::together::{Side, Together, Usual};
use crate::artifact::{ArtifactError, MANIFEST, ModelFolder, ModelWriter};
use crate::data::{Dataset, LabelChange, LabelSpace, Passage};
use crate::ids::LabelId;
use crate::index::Allowed;
use crate::method::embedding::EmbeddingModel;
use crate::method::label_text::text_of;
use crate::method::parts::Part;
use crate::method::run;
use crate::method::words::{Piece, reasons};
use crate::predict::{Ask, Explanation, Field, PredictError, Predictor, Reason};
use crate::ranking::{Ranking, Scored, TopK};

/// The names of its parts.
pub(in crate::method) const PARTS: [&str; 2] = ["classifier", "semantics"];

/// A model that answers with labels that no training document carries.
pub struct FusionModel {
    settings: FusionSettings,
    space: LabelSpace,
    classifier: Part,
    semantics: Part<EmbeddingModel>,
    /// What label vectors are turned by before they are compared with each other, if they are.
    together: Option<Together>,
    labels: Labels,
}

/// What follows from the labels of the whole and of its parts.
#[derive(Default)]
struct Labels {
    /// The seen labels that can be combined, by their positions in the classifier.
    seen: Allowed,
    /// The positions in the semantics of those labels, by their positions in the classifier.
    vectors: Vec<Option<LabelId>>,
    /// The unseen labels, by their positions in the whole.
    unseen: Vec<LabelId>,
    /// Their vectors, end to end, as documents are compared with them.
    unseen_vectors: Vec<f32>,
    /// The same as predicted labels are compared with them, and what is usual for each label; none where they are
    /// compared as they are.
    unseen_turned: Option<(Vec<f32>, Vec<Usual>)>,
}

/// What the parts say of a passage.
struct Heard {
    /// The labels that are combined, by their positions in the classifier, with their probabilities.
    predicted: Vec<Scored>,
    /// The vector of the passage; empty, where it is not looked at.
    vector: Vec<f32>,
}

impl FusionModel {
    /// A model of two parts that answers with the unseen labels of `space`.
    pub(super) fn new(
        settings: FusionSettings,
        space: LabelSpace,
        classifier: Part,
        mut semantics: Part<EmbeddingModel>,
    ) -> Result<FusionModel, PredictError> {
        semantics.complete(&space)?;
        let labels = Labels::default();
        let mut model = FusionModel { settings, space, classifier, semantics, together: None, labels };
        model.labels = model.match_labels();
        Ok(model)
    }

    /// Learns which labels go together, and compares labels by that; false where too few documents tell.
    pub(super) fn turn_together(&mut self, dataset: &dyn Dataset) -> bool {
        let model = self.semantics.model();
        let places = self.semantics.positions(&self.space);
        let vector = |label: LabelId, to: &mut Vec<f32>| {
            let place = places[label.index()];
            place.inspect(|place| model.extend_with_vector(*place, to)).is_some()
        };
        self.together = Together::learn(dataset, model.dimension(), vector);
        self.labels = self.match_labels();
        self.together.is_some()
    }

    /// Reads a model that [`save`](Predictor::save) wrote, its parts onto `device`.
    pub fn load(folder: &ModelFolder, device: &Device) -> Result<FusionModel, crate::Error> {
        let config: FusionConfig = serde_json::from_value(folder.manifest().config.clone())
            .map_err(|error| folder.damaged(MANIFEST, error))?;
        let settings = FusionSettings::try_from(&config).map_err(|error| folder.damaged(MANIFEST, error))?;
        let classifier = Part::of(folder, PARTS[0], |dir| run::load_part(dir, device))?;
        let semantics = Part::of(folder, PARTS[1], |dir| run::load_embedding(dir, device))?;
        let mut model = FusionModel::new(settings, folder.labels()?, classifier, semantics)?;
        model.together = Together::load(folder, model.semantics.model().dimension())?;
        model.labels = model.match_labels();
        Ok(model)
    }

    /// Whether the classifier's scores are what is combined here.
    pub(super) fn takes_probabilities(&self) -> bool {
        self.classifier.model().gives_probabilities()
    }

    /// How many seen labels the classifier can predict, and how many unseen ones there are.
    pub(super) fn counts(&self) -> (usize, usize) {
        (self.labels.seen.iter().count(), self.labels.unseen.len())
    }

    /// Finds the labels of the whole in its parts.
    fn match_labels(&self) -> Labels {
        let in_classifier = self.classifier.positions(&self.space);
        let in_semantics = self.semantics.positions(&self.space);
        let mut labels = Labels {
            vectors: vec![None; self.classifier.model().label_space().positions()],
            ..Labels::default()
        };
        for (label, _) in self.space.iter() {
            match (self.space.is_seen(label), in_classifier[label.index()], in_semantics[label.index()]) {
                (true, Some(place), Some(vector)) => {
                    labels.seen.insert(place);
                    labels.vectors[place.index()] = Some(vector);
                }
                (false, _, Some(vector)) => {
                    labels.unseen.push(label);
                    self.semantics.model().extend_with_vector(vector, &mut labels.unseen_vectors);
                }
                _ => {}
            }
        }
        let turned = |together: &Together| {
            let turned = together.turned(&labels.unseen_vectors, Side::Wanted);
            let usual = together.usual_for(&turned);
            (turned, usual)
        };
        labels.unseen_turned = self.together.as_ref().map(turned);
        labels
    }

    /// What the parts say of passages.
    fn hear(&self, passages: &[Passage<'_>]) -> Result<Vec<Heard>, PredictError> {
        let FusionSettings { threshold, most, document, .. } = self.settings;
        let classifier = self.classifier.model();
        let is_itself = classifier.item_to_item();
        let rankings = if document < 1.0 {
            // One more where a document may be among its own labels.
            let k = most + usize::from(is_itself);
            classifier.predict(passages, &Ask { k, allowed: Some(&self.labels.seen) })?
        } else {
            vec![Ranking::default(); passages.len()]
        };
        let vectors = if document > 0.0 { self.semantics.model().vectors_of(passages)? } else { Vec::new() };
        let dim = self.semantics.model().dimension();
        let heard = |(place, ranking): (usize, Ranking)| {
            let id = passages[place].id.filter(|_| is_itself);
            let itself = id.and_then(|id| classifier.label_space().find(id));
            let others = ranking.entries().iter().filter(|entry| Some(entry.label) != itself).take(most);
            let best = others.clone().next();
            let mut predicted: Vec<Scored> =
                others.filter(|entry| entry.score > threshold).copied().collect();
            if predicted.is_empty() {
                // Nothing is likely: the likeliest stands alone, where its probability makes no difference.
                predicted.extend(best.filter(|best| best.score > 0.0));
            }
            let vector = vectors.get(place * dim..(place + 1) * dim).unwrap_or_default().to_vec();
            Heard { predicted, vector }
        };
        Ok(rankings.into_iter().enumerate().map(heard).collect())
    }

    /// The predicted labels of a passage, to be combined.
    fn predicted(&self, heard: &Heard) -> Predicted {
        let (mut vectors, mut probabilities) = (Vec::new(), Vec::new());
        for entry in &heard.predicted {
            if let Some(label) = self.labels.vectors[entry.label.index()] {
                self.semantics.model().extend_with_vector(label, &mut vectors);
                probabilities.push(entry.score);
            }
        }
        if let Some(together) = &self.together {
            vectors = together.turned(&vectors, Side::Predicted);
        }
        Predicted::new(&vectors, self.semantics.model().dimension(), &probabilities)
    }

    /// The score of an unseen label: of the combination, and of the document.
    fn score(&self, heard: &Heard, combination: &Combination, label: &Looked<'_>) -> (f32, f32) {
        let share = self.settings.document;
        let document = if heard.vector.is_empty() { 0.0 } else { cosine(&heard.vector, label.vector) };
        let labels = match label.usual {
            Some(usual) if !combination.is_empty() => usual.above(combination.cosine),
            _ => combination.cosine,
        };
        ((1.0 - share) * labels, share * document)
    }

    fn rank(&self, heard: &Heard, unseen: &Unseen<'_>, k: usize) -> Result<Ranking, PredictError> {
        // Nothing was predicted, and the document is not looked at: there is nothing to say.
        if heard.predicted.is_empty() && heard.vector.is_empty() {
            return Ok(Ranking::default());
        }
        let combinations = self.predicted(heard).combine(unseen.turned(), self.settings.effort);
        let mut top = TopK::new(k);
        for (place, (&label, combination)) in unseen.labels.iter().zip(&combinations).enumerate() {
            let looked = unseen.label(place, self.semantics.model().dimension());
            let (of_labels, of_document) = self.score(heard, combination, &looked);
            top.push(Scored { label, score: of_labels + of_document })?;
        }
        Ok(top.into_ranking())
    }
}

/// Unseen labels that may be answered with, and their vectors.
struct Unseen<'a> {
    labels: Cow<'a, [LabelId]>,
    vectors: Cow<'a, [f32]>,
    /// How predicted labels are compared with them, where that is another matter.
    turned: Option<Turned<'a>>,
}

/// Their vectors as predicted labels are compared with them, and what is usual for them.
struct Turned<'a> {
    vectors: Cow<'a, [f32]>,
    usual: Cow<'a, [Usual]>,
}

/// One of them.
struct Looked<'a> {
    vector: &'a [f32],
    turned: &'a [f32],
    usual: Option<Usual>,
}

impl<'a> Unseen<'a> {
    fn all(labels: &'a Labels) -> Unseen<'a> {
        let turned = labels.unseen_turned.as_ref();
        Unseen {
            labels: labels.unseen.as_slice().into(),
            vectors: labels.unseen_vectors.as_slice().into(),
            turned: turned.map(|(vectors, usual)| Turned {
                vectors: vectors.as_slice().into(),
                usual: usual.as_slice().into(),
            }),
        }
    }

    /// Those of them that are allowed.
    fn allowed(self, allowed: &Allowed, dim: usize) -> Unseen<'a> {
        let places: Vec<usize> =
            (0..self.labels.len()).filter(|&place| allowed.contains(self.labels[place])).collect();
        if places.len() == self.labels.len() {
            return self;
        }
        let rows = |vectors: &[f32]| -> Cow<'a, [f32]> {
            places.iter().flat_map(|place| &vectors[place * dim..][..dim]).copied().collect()
        };
        let turned = |turned: Turned<'_>| Turned {
            vectors: rows(&turned.vectors),
            usual: places.iter().map(|&place| turned.usual[place]).collect(),
        };
        Unseen {
            labels: places.iter().map(|&place| self.labels[place]).collect(),
            vectors: rows(&self.vectors),
            turned: self.turned.map(turned),
        }
    }

    /// The vectors that predicted labels are compared with.
    fn turned(&self) -> &[f32] {
        self.turned.as_ref().map_or(&self.vectors, |turned| &turned.vectors)
    }

    fn label(&self, place: usize, dim: usize) -> Looked<'_> {
        let own = place * dim..(place + 1) * dim;
        let usual = self.turned.as_ref().map(|turned| turned.usual[place]);
        Looked { vector: &self.vectors[own.clone()], turned: &self.turned()[own], usual }
    }
}

impl Predictor for FusionModel {
    fn label_space(&self) -> &LabelSpace {
        &self.space
    }

    /// The encoder's label vectors are looked at, and not searched.
    fn place(&mut self, device: &Device) {
        self.classifier.place(device);
    }

    fn notice(&self) -> Option<String> {
        self.classifier.model().notice()
    }

    fn item_to_item(&self) -> bool {
        self.classifier.model().item_to_item() || self.semantics.model().item_to_item()
    }

    fn predict(&self, passages: &[Passage<'_>], ask: &Ask<'_>) -> Result<Vec<Ranking>, PredictError> {
        let mut unseen = Unseen::all(&self.labels);
        if let Some(allowed) = ask.allowed {
            unseen = unseen.allowed(allowed, self.semantics.model().dimension());
        }
        if unseen.labels.is_empty() {
            return Ok(vec![Ranking::default(); passages.len()]);
        }
        let heard = self.hear(passages)?;
        heard.par_iter().map(|heard| self.rank(heard, &unseen, ask.k)).collect()
    }

    fn apply(&mut self, changes: &[LabelChange]) -> Result<(), PredictError> {
        let (space, _) = self.space.changed(changes).map_err(|(_, error)| error)?;
        // What always encodes comes first, so that its failure changes nothing. Should the classifier's encoder fail
        // afterwards, the encoder of labels knows labels that nobody asks it for.
        self.semantics.apply(changes)?;
        self.classifier.apply(changes)?;
        self.space = space;
        self.labels = self.match_labels();
        Ok(())
    }

    fn explain(&self, passage: Passage<'_>, label: LabelId) -> Result<Explanation, PredictError> {
        let dim = self.semantics.model().dimension();
        let place = self.labels.unseen.iter().position(|unseen| *unseen == label);
        let Some(place) = place else {
            // Seen labels are the classifier's business.
            return Ok(Explanation { score: 0.0, matched: None, reasons: Vec::new(), marks: Vec::new() });
        };
        let unseen = Unseen::all(&self.labels);
        let looked = unseen.label(place, dim);
        let heard = self.hear(&[passage])?.remove(0);
        let predicted = self.predicted(&heard);
        let combination = predicted.combine(looked.turned, self.settings.effort)[0];
        let (of_labels, of_document) = self.score(&heard, &combination, &looked);
        let mut pieces = Vec::new();
        if !heard.vector.is_empty() {
            let shares = self.semantics.model().encoder().shares(text_of(&passage), looked.vector)?;
            let share = self.settings.document;
            let piece = |(range, weight)| Piece { range, weight: share * weight, attention: None };
            pieces.extend(shares.into_iter().map(piece));
        }
        let (mut reasons, marks) = reasons(&passage, pieces);
        let names = self.classifier.model().label_space();
        let mut chosen = Vec::new();
        let factor = looked.usual.map_or(1.0, |usual| usual.factor()) * (1.0 - self.settings.document);
        for (member, part) in predicted.shares(&combination, looked.turned) {
            let Scored { label, score } = heard.predicted[member];
            let words = format!("{} {score:.2}", names.label(label).name);
            let weight = factor * part;
            reasons.push(Reason { words: words.clone(), field: Field::Predicted, weight, attention: None });
            chosen.push(words);
        }
        if let Some(usual) = looked.usual.filter(|_| !combination.is_empty()) {
            let weight = (1.0 - self.settings.document) * usual.taken();
            let words = "what is usual for this label".to_owned();
            reasons.push(Reason { words, field: Field::Predicted, weight, attention: None });
        }
        reasons.sort_by(Reason::order);
        let of_vector = if heard.vector.is_empty() { 0.0 } else { cosine(&heard.vector, looked.vector) };
        let chosen = if chosen.is_empty() { "no label".to_owned() } else { chosen.join(" + ") };
        let matched = format!("labels {:.3}, document {of_vector:.3}: {chosen}", combination.cosine);
        Ok(Explanation { score: of_labels + of_document, matched: Some(matched), reasons, marks })
    }

    fn save(&self, model: &mut ModelWriter) -> Result<(), ArtifactError> {
        self.classifier.save(model)?;
        self.semantics.save(model)?;
        self.together.as_ref().map_or(Ok(()), |together| together.save(model))
    }
}

/// The cosine of two vectors; 0 where one has no length.
fn cosine(a: &[f32], b: &[f32]) -> f32 {
    let product =
        |a: &[f32], b: &[f32]| -> f64 { a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum() };
    let lengths = (product(a, a) * product(b, b)).sqrt();
    if lengths > 0.0 { (product(a, b) / lengths) as f32 } else { 0.0 }
}
