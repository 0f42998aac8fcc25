//! Which label vectors suit a task: some seen labels are hidden, and looked for in documents that carry them.
//!
//! Whether labels near a document's labels in meaning are its labels, too, or exclude them, differs from one label set to
//! another, and so does whether there are labels enough to learn what goes together. In the rehearsal the classifier predicts
//! what is not hidden of train documents, and what is hidden stands for labels that nobody has seen. The classifier knows these
//! documents, and a tuned encoder the hidden labels, so that both seem better than they are, but to either kind of vectors alike.

use polytag_nn::random::Key;

use super::{FusionModel, Heard, Unseen};
use crate::data::{DataError, Dataset, Document, Passage};
use crate::ids::{DocId, LabelId};
use crate::index::Allowed;
use crate::method::TrainContext;
use crate::method::error::MethodError;
use crate::method::view::View;
use crate::metric::{discount, ideal_gain};
use crate::predict::PredictError;
use crate::progress::Event;
use crate::ranking::Ranking;

/// The share of seen labels that are hidden.
const HIDDEN: f32 = 0.2;

/// Documents that are tried at most, evenly out of those that can be.
const TRIED: usize = 500;

/// With fewer than this nothing can be said.
const LEAST: usize = 20;

/// Unseen labels that hidden ones are looked for among, about: of more only some are taken, evenly.
const AMONG: usize = 5000;

/// Documents that are read at once.
const WINDOW: usize = 64;

/// Places of a ranking that count.
const PLACES: usize = 5;

impl FusionModel {
    /// Whether hidden labels are found better by what goes together than by vectors as they are; false where that cannot be
    /// tried.
    pub(in super::super) fn goes_together(
        &mut self,
        dataset: &dyn Dataset,
        context: &TrainContext<'_>,
    ) -> Result<bool, MethodError> {
        let Some(rehearsal) = Rehearsal::new(dataset, context.seed) else { return Ok(false) };
        let space = std::mem::replace(&mut self.space, rehearsal.shown.label_space().clone());
        let tried = self.try_both(&rehearsal, context);
        // Whatever came of it, the model is what it was.
        self.space = space;
        self.together = None;
        self.labels = self.match_labels();
        let Some([plain, together]) = tried? else { return Ok(false) };
        for (name, value) in [("as they are", plain), ("by what goes together", together)] {
            let name = format!("nDCG@{PLACES} of hidden labels, vectors {name}:");
            context.progress.report(Event::Measured { name: &name, value: 100.0 * value });
        }
        Ok(together > plain)
    }

    /// How well hidden labels are found by vectors as they are, and by what goes together; none where that cannot be learned,
    /// or the classifier cannot say anything of the documents.
    fn try_both(
        &mut self,
        rehearsal: &Rehearsal<'_>,
        context: &TrainContext<'_>,
    ) -> Result<Option<[f64; 2]>, MethodError> {
        if !self.turn_together(&rehearsal.shown) {
            return Ok(None);
        }
        let Some(heard) = self.hear_of(rehearsal, context)? else { return Ok(None) };
        let together = self.found(rehearsal, &heard)?;
        self.together = None;
        self.labels = self.match_labels();
        Ok(Some([self.found(rehearsal, &heard)?, together]))
    }

    /// What the parts say of the documents that are tried; none, if rankings were recorded for others only.
    fn hear_of(
        &self,
        rehearsal: &Rehearsal<'_>,
        context: &TrainContext<'_>,
    ) -> Result<Option<Vec<Heard>>, MethodError> {
        let mut heard = Vec::with_capacity(rehearsal.tried.len());
        for window in rehearsal.tried.chunks(WINDOW) {
            if context.stop.is_asked() {
                return Err(DataError::Stopped.into());
            }
            let read = |&id: &DocId| rehearsal.shown.document(id);
            let documents = window.iter().map(read).collect::<Result<Vec<Document>, DataError>>()?;
            let passages: Vec<Passage<'_>> = documents.iter().map(Document::passage).collect();
            match self.hear(&passages) {
                Err(PredictError::NotRecorded { .. } | PredictError::NoId) => return Ok(None),
                said => heard.extend(said?),
            }
        }
        Ok(Some(heard))
    }

    /// The mean nDCG of hidden labels.
    fn found(&self, rehearsal: &Rehearsal<'_>, heard: &[Heard]) -> Result<f64, MethodError> {
        // Labels that nobody has seen stand among them, as they will.
        let step = self.labels.unseen.len().div_ceil(AMONG).max(1);
        let some = self.labels.unseen.iter().step_by(step).chain(rehearsal.gold.iter().flatten());
        let among: Allowed = some.copied().collect();
        let unseen = Unseen::all(&self.labels).allowed(&among, self.semantics.model().dimension());
        let mut sum = 0.0;
        for (heard, gold) in heard.iter().zip(&rehearsal.gold) {
            sum += ndcg(&self.rank(heard, &unseen, PLACES)?, gold);
        }
        Ok(sum / heard.len() as f64)
    }
}

fn ndcg(ranking: &Ranking, gold: &[LabelId]) -> f64 {
    let places = ranking.labels().zip(1..).filter(|(label, _)| gold.contains(label));
    places.map(|(_, rank)| discount(rank)).sum::<f64>() / ideal_gain(PLACES.min(gold.len()))
}

/// What is shown, and what is to be found.
struct Rehearsal<'a> {
    /// All train documents without the hidden labels.
    shown: View<'a>,
    /// The documents to try, which carry hidden labels, and these.
    tried: Vec<DocId>,
    gold: Vec<Vec<LabelId>>,
}

impl<'a> Rehearsal<'a> {
    /// None, where too few documents carry labels that are hidden.
    fn new(dataset: &'a dyn Dataset, seed: u64) -> Option<Rehearsal<'a>> {
        let (space, key) = (dataset.label_space(), Key::new(seed).part(0x6869_6465));
        let is_hidden = |label: &LabelId| key.uniform(label.0, 0) < HIDDEN;
        let seen = space.iter().map(|(label, _)| label).filter(|label| space.is_seen(*label));
        let hidden: Allowed = seen.filter(is_hidden).collect();
        let mut shown = View::of(dataset);
        let mut counts = vec![0u32; space.positions()];
        for id in (0..dataset.len() as u32).map(DocId) {
            let labels = dataset.labels_of(id).iter().copied();
            let known: Vec<LabelId> = labels.filter(|label| !hidden.contains(*label)).collect();
            known.iter().for_each(|label| counts[label.index()] += 1);
            shown.push(id, known);
        }
        shown.set_train_counts(counts, dataset.len() as u64);
        let gold = |id: &DocId| -> Vec<LabelId> {
            dataset.labels_of(*id).iter().copied().filter(|label| hidden.contains(*label)).collect()
        };
        let with_any: Vec<DocId> =
            (0..dataset.len() as u32).map(DocId).filter(|id| !gold(id).is_empty()).collect();
        if with_any.len() < LEAST {
            return None;
        }
        let count = with_any.len().min(TRIED);
        let tried: Vec<DocId> = (0..count).map(|at| with_any[at * with_any.len() / count]).collect();
        let gold = tried.iter().map(gold).collect();
        Some(Rehearsal { shown, tried, gold })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{Label, LabelSpace};
    use crate::ranking::Scored;

    /// Documents of which each carries its number's label and the next one.
    struct Chain(LabelSpace, Vec<Vec<LabelId>>);

    impl Dataset for Chain {
        fn len(&self) -> usize {
            self.1.len()
        }

        fn document(&self, _: DocId) -> Result<Document, DataError> {
            unreachable!("texts are not asked for")
        }

        fn labels_of(&self, id: DocId) -> &[LabelId] {
            &self.1[id.index()]
        }

        fn label_space(&self) -> &LabelSpace {
            &self.0
        }
    }

    fn chain(labels: u32, documents: u32) -> Chain {
        let mut space = LabelSpace::default();
        (0..labels).for_each(|label| _ = space.add(Label::new(label.to_string(), "a name")).unwrap());
        let sets: Vec<Vec<LabelId>> =
            (0..documents).map(|at| vec![LabelId(at % labels), LabelId((at + 1) % labels)]).collect();
        let mut counts = vec![0; labels as usize];
        sets.iter().flatten().for_each(|label| counts[label.index()] += 1);
        space.set_train_counts(counts, documents.into());
        Chain(space, sets)
    }

    #[test]
    fn what_is_hidden_is_found_in_no_document_and_asked_for() {
        let train = chain(400, 2000);
        let rehearsal = Rehearsal::new(&train, 7).unwrap();
        let shown = rehearsal.shown.label_space();
        let hidden: Vec<LabelId> = (0..400).map(LabelId).filter(|label| !shown.is_seen(*label)).collect();
        assert!((50..110).contains(&hidden.len()), "{}", hidden.len());
        assert_eq!(rehearsal.shown.len(), 2000);
        for id in (0..2000).map(DocId) {
            let wanted = train.labels_of(id).iter().copied().filter(|label| !hidden.contains(label));
            assert!(rehearsal.shown.labels_of(id).iter().copied().eq(wanted));
        }
        assert!(rehearsal.tried.len() > 200 && rehearsal.tried.is_sorted());
        for (id, gold) in rehearsal.tried.iter().zip(&rehearsal.gold) {
            let wanted = train.labels_of(*id).iter().copied().filter(|label| hidden.contains(label));
            assert!(!gold.is_empty() && gold.iter().copied().eq(wanted));
        }
        // By the seed, and not without documents enough.
        assert_eq!(Rehearsal::new(&train, 7).unwrap().tried, rehearsal.tried);
        assert_ne!(Rehearsal::new(&train, 8).unwrap().tried, rehearsal.tried);
        assert!(Rehearsal::new(&chain(400, 12), 7).is_none());
    }

    #[test]
    fn rankings_are_measured_by_place() {
        let ranking = |labels: &[u32]| {
            let entries = labels
                .iter()
                .zip(1..)
                .map(|(&label, at)| Scored { label: LabelId(label), score: -(at as f32) });
            Ranking::new(entries.collect(), PLACES).unwrap()
        };
        let gold = [LabelId(4), LabelId(9)];
        assert_eq!(ndcg(&ranking(&[4, 9, 1]), &gold), 1.0);
        assert!((ndcg(&ranking(&[1, 4]), &gold) - 0.630_93 / 1.630_93).abs() < 1e-5);
        assert_eq!(ndcg(&ranking(&[]), &gold), 0.0);
    }
}
