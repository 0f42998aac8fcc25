//! The rehearsal of sources: some train documents are held out, and some labels are hidden from the rest.
//!
//! A source that is fitted on the rest meets the held-out documents as it will meet new ones, and the hidden labels as it
//! will meet those that no document carries. Where many labels are unseen, hidden are those that only held-out documents
//! carry, beside all that no document carries: they are as often right there as unseen labels will be, and as many. Where
//! few are, that is too little to learn from, and rare others are hidden, too, chosen by chance: truly unseen labels are
//! rare, or a document would carry them.

use crate::data::Dataset;
use crate::ids::{DocId, LabelId};
use crate::method::view::View;
use crate::sparse::{GOLDEN, mixed};

/// Documents that are held out at most; more say little more.
const MOST_DOCUMENTS: usize = 5000;

/// Labels that more documents carry than this are not hidden by chance.
const RARE: u32 = 20;

/// Hidden labels that held-out documents must carry, counted document by document, where none is hidden by chance.
const ENOUGH: usize = 50;

/// What sources are fitted on, and what they are tried on.
pub(super) struct Rehearsal<'a> {
    /// The documents to learn from.
    pub(super) rest: View<'a>,
    /// The documents to try on, with all their labels.
    pub(super) held_out: View<'a>,
    /// Whether a label is hidden, by its position.
    pub(super) hidden: Vec<bool>,
}

/// Which labels are hidden.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Hidden {
    /// Those that only held-out documents carry, if these are enough, else this share of the labels.
    ByNature(f64),
    /// This share of the labels.
    Share(f64),
}

impl<'a> Rehearsal<'a> {
    /// Holds out a share of the documents and hides a share of the labels, or those alone that only held-out documents
    /// carry, if these are enough; none, if that leaves nothing to learn from or to try on.
    pub(super) fn new(
        dataset: &'a dyn Dataset,
        (held_out, hidden): (f64, Hidden),
        seed: u64,
    ) -> Option<Rehearsal<'a>> {
        let chance =
            |salt: u64, place: u32| mixed(mixed(seed ^ salt) ^ GOLDEN.wrapping_mul(u64::from(place) + 1));
        let mut order: Vec<DocId> =
            (0..dataset.len() as u32).map(DocId).filter(|id| !dataset.labels_of(*id).is_empty()).collect();
        order.sort_by_key(|id| (chance(0x646f_6373, id.0), *id));
        // A share of so many documents is as many of them, however it was rounded.
        let count = ((order.len() as f64 * held_out + 1e-6) as usize).min(MOST_DOCUMENTS);
        let is_held: Vec<bool> = {
            let mut is_held = vec![false; dataset.len()];
            order[..count].iter().for_each(|id| is_held[id.index()] = true);
            is_held
        };
        let space = dataset.label_space();
        let mut left = vec![0u32; space.positions()];
        for id in (0..dataset.len() as u32).map(DocId).filter(|id| !is_held[id.index()]) {
            dataset.labels_of(id).iter().for_each(|label| left[label.index()] += 1);
        }
        let seen: Vec<LabelId> =
            space.iter().map(|(label, _)| label).filter(|label| space.is_seen(*label)).collect();
        let mut is_hidden = vec![false; space.positions()];
        seen.iter()
            .filter(|label| left[label.index()] == 0)
            .for_each(|label| is_hidden[label.index()] = true);
        let held = || (0..dataset.len() as u32).map(DocId).filter(|id| is_held[id.index()]);
        let carried: usize = held()
            .map(|id| dataset.labels_of(id).iter().filter(|label| is_hidden[label.index()]).count())
            .sum();
        match hidden {
            Hidden::ByNature(_) if carried >= ENOUGH => {
                let unseen = space.iter().filter(|(label, _)| !space.is_seen(*label));
                unseen.for_each(|(label, _)| is_hidden[label.index()] = true);
            }
            Hidden::ByNature(share) | Hidden::Share(share) => {
                let by_nature = is_hidden.iter().filter(|hidden| **hidden).count();
                let wanted = (seen.len() as f64 * share) as usize;
                let mut rare: Vec<LabelId> =
                    seen.into_iter().filter(|label| (1..=RARE).contains(&left[label.index()])).collect();
                rare.sort_by_key(|label| (chance(0x6c61_6265, label.0), *label));
                for label in rare.into_iter().take(wanted.saturating_sub(by_nature)) {
                    is_hidden[label.index()] = true;
                }
            }
        }
        let (mut rest, mut held_out) = (View::of(dataset), View::of(dataset));
        let mut counts = vec![0u32; space.positions()];
        for id in (0..dataset.len() as u32).map(DocId) {
            let labels = dataset.labels_of(id);
            if is_held[id.index()] {
                held_out.push(id, labels.to_vec());
            } else {
                let shown: Vec<LabelId> =
                    labels.iter().copied().filter(|label| !is_hidden[label.index()]).collect();
                // What carried hidden labels alone would teach that nothing fits.
                if shown.is_empty() && !labels.is_empty() {
                    continue;
                }
                shown.iter().for_each(|label| counts[label.index()] += 1);
                rest.push(id, shown);
            }
        }
        let any = counts.iter().any(|&count| count > 0);
        let documents = rest.len() as u64;
        for view in [&mut rest, &mut held_out] {
            view.set_train_counts(counts.clone(), documents);
        }
        (any && !held_out.is_empty()).then_some(Rehearsal { rest, held_out, hidden: is_hidden })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{DataError, Document, Label, LabelSpace};

    struct Made(LabelSpace, Vec<Vec<LabelId>>);

    impl Dataset for Made {
        fn len(&self) -> usize {
            self.1.len()
        }
        fn document(&self, id: DocId) -> Result<Document, DataError> {
            // Of those without labels some are labelled with nothing, and some by nobody.
            let labels = Some(self.1[id.index()].clone());
            let labels = labels.filter(|labels| !labels.is_empty() || id.0 % 14 != 7);
            Ok(Document { id: id.0.to_string(), title: None, text: "words".into(), labels })
        }
        fn labels_of(&self, id: DocId) -> &[LabelId] {
            &self.1[id.index()]
        }
        fn label_space(&self) -> &LabelSpace {
            &self.0
        }
    }

    fn made(documents: u32, labels: u32) -> Made {
        let mut space = LabelSpace::default();
        let ids: Vec<LabelId> =
            (0..labels).map(|label| space.add(Label::new(label.to_string(), "name")).unwrap()).collect();
        let mut counts = vec![0; labels as usize];
        let lists: Vec<Vec<LabelId>> = (0..documents)
            .map(|document| {
                let mut list = vec![ids[(document % labels) as usize], ids[(document / 3 % labels) as usize]];
                list.sort_unstable();
                list.dedup();
                list.iter().for_each(|label| counts[label.index()] += 1);
                list
            })
            .collect();
        space.set_train_counts(counts, documents.into());
        Made(space, lists)
    }

    #[test]
    fn as_many_are_held_out_as_a_share_stands_for() {
        let of = |documents: u32| {
            let share = 200.0 / f64::from(documents);
            Rehearsal::new(&made(documents, 40), (share, Hidden::Share(0.1)), 1).unwrap().held_out.len()
        };
        assert_eq!([539, 578, 607, 1000, 1199].map(of), [200; 5]);
    }

    #[test]
    fn what_nobody_labelled_stays_so() {
        let mut made = made(400, 20);
        (0..400).step_by(7).for_each(|id| made.1[id].clear());
        let rehearsal = Rehearsal::new(&made, (0.2, Hidden::Share(0.1)), 3).unwrap();
        let labels = |id: u32| rehearsal.rest.document(DocId(id)).unwrap().labels;
        let of_rest: Vec<_> = (0..rehearsal.rest.len() as u32).map(labels).collect();
        assert_eq!(of_rest.iter().filter(|labels| labels.is_none()).count(), 29);
        assert_eq!(of_rest.iter().flatten().filter(|labels| labels.is_empty()).count(), 29);
    }

    #[test]
    fn what_is_hidden_is_in_held_out_documents_alone() {
        let made = made(400, 120);
        let rehearsal = Rehearsal::new(&made, (0.2, Hidden::Share(0.1)), 3).unwrap();
        assert_eq!(rehearsal.held_out.len(), 80);
        let hidden = rehearsal.hidden.iter().filter(|hidden| **hidden).count();
        assert!((12..=30).contains(&hidden), "{hidden}");
        for document in 0..rehearsal.rest.len() as u32 {
            let labels = rehearsal.rest.labels_of(DocId(document));
            assert!(labels.iter().all(|label| !rehearsal.hidden[label.index()]));
            assert_eq!(rehearsal.rest.document(DocId(document)).unwrap().gold(), labels);
        }
        let space = rehearsal.rest.label_space();
        for (label, _) in space.iter() {
            assert_eq!(space.is_seen(label), !rehearsal.hidden[label.index()]);
        }
        let carried = |label: usize| {
            let held = 0..rehearsal.held_out.len() as u32;
            held.filter(|&id| rehearsal.held_out.labels_of(DocId(id)).contains(&LabelId(label as u32)))
                .count()
        };
        assert!((0..120).filter(|&label| rehearsal.hidden[label]).any(|label| carried(label) > 0));
    }

    #[test]
    fn where_many_labels_are_unseen_all_that_the_rest_does_not_carry_are_hidden() {
        // Each label is carried by a few documents, and half of them by none.
        let mut made = made(200, 300);
        (0..300).for_each(|label| {
            made.0.add(Label::new(format!("more{label}"), "name")).unwrap();
        });
        let hidden = |share| Rehearsal::new(&made, (0.5, share), 1).unwrap().hidden;
        let by_nature = hidden(Hidden::ByNature(0.5));
        assert!(by_nature[300..].iter().all(|hidden| *hidden), "no document carries them");
        let rehearsal = Rehearsal::new(&made, (0.5, Hidden::ByNature(0.5)), 1).unwrap();
        let space = rehearsal.rest.label_space();
        for (label, _) in space.iter() {
            assert_eq!(rehearsal.hidden[label.index()], !space.is_seen(label), "{label:?}");
        }
        let by_chance = hidden(Hidden::Share(0.5));
        assert!(by_chance[300..].iter().all(|hidden| !*hidden));
        // Nothing is rare enough to be hidden by nature where all labels are frequent.
        let frequent = self::made(400, 8);
        let rehearsal = |hidden| Rehearsal::new(&frequent, (0.2, hidden), 1).unwrap().hidden;
        assert_eq!(rehearsal(Hidden::ByNature(0.25)), rehearsal(Hidden::Share(0.25)));
    }

    #[test]
    fn the_seed_decides_and_too_little_is_said() {
        let made = made(100, 30);
        let held = |seed| Rehearsal::new(&made, (0.1, Hidden::Share(0.1)), seed).unwrap().held_out.documents;
        assert_eq!(held(1), held(1));
        assert_ne!(held(1), held(2));
        assert!(Rehearsal::new(&self::made(4, 2), (0.1, Hidden::Share(0.1)), 0).is_none());
    }
}
