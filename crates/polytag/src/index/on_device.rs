//! Exact search where the vectors lie on a GPU, too: it finds candidates, the CPU scores them again, and every answer is
//! the bits that [`Exact::search_in_full`] gives.
//!
//! The device multiplies the same numbers and adds them up in another order, so that its scores and those of the CPU are no
//! further apart than a [bound](super::bounds). The device is asked for some more than
//! the `k` labels that are wanted. If its last candidate's score plus the bound is below the `k`-th score of the CPU, no label
//! that the device left out can belong to the answer. Where that does not hold, as with many labels that score the same, the
//! CPU answers that query. It does so, too, where few labels are allowed, as it then reads those alone.
//!
//! What a device does wrong is not believed for long: candidates must be labels that may be answered with, as many as there
//! should be, and each score within the bound of the CPU's; and when vectors are brought there, answers to a few of them are
//! compared with those of the CPU. If anything is amiss the CPU searches from then on, and [`OnDevice::told`] says why.
//!
//! Labels that change are hidden on the device and compared on the CPU, until they are many and the copy is made anew; for
//! that, vectors of which some lie in a file are put together in memory once. Memory here: a bit a position, and while it
//! searches among allowed labels 4 bytes a position.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use polytag_nn::device::Device;
use polytag_nn::nearest::{MOST, Near, Nearest, Numbers};
use rayon::prelude::*;

use super::bounds::Bounds;
use super::{Allowed, Exact, IndexError, LabelIndex, Rows};
use crate::ids::LabelId;
use crate::ranking::{Ranking, Scored};

/// From how many labels on a search is worth the way to a device. A CPU reads so many vectors in a few milliseconds, some
/// ten times what it takes to ask a device and hear from it.
pub const DEVICE_FROM: usize = 20_000;

/// How many labels change before the copy is made anew. So many are compared in a fraction of the time that a search takes.
const MOST_CHANGES: usize = 4096;

/// How many labels more than are wanted the device is asked for, besides an eighth of those: ties within the bound must fit
/// in there.
const MARGIN: usize = 32;

/// How many vectors a device is checked with, and how many labels each is answered with.
const CHECKED: (usize, usize) = (32, 100);

/// The part of a device: the best positions by scores that are nearly right.
pub(super) trait Candidates: Send + Sync {
    /// Never answers with a position from now on.
    fn hide(&mut self, position: usize) -> Result<(), polytag_nn::Error>;

    /// The best `most` positions of each query, by score, then position.
    fn best(
        &self,
        queries: &[f32],
        most: usize,
        offsets: Option<&[f32]>,
    ) -> Result<Vec<Vec<Near>>, polytag_nn::Error>;
}

impl Candidates for Nearest {
    fn hide(&mut self, position: usize) -> Result<(), polytag_nn::Error> {
        Nearest::hide(self, position)
    }

    fn best(
        &self,
        queries: &[f32],
        most: usize,
        offsets: Option<&[f32]>,
    ) -> Result<Vec<Vec<Near>>, polytag_nn::Error> {
        Nearest::best(self, queries, most, offsets)
    }
}

/// Brings vectors of so many numbers, with their offsets, to a device.
pub(super) type Bring =
    dyn Fn(Numbers<'_>, usize, &[f32]) -> Result<Box<dyn Candidates>, polytag_nn::Error> + Send + Sync;

/// From how many labels on the device is asked, and how many changes its copy lives through.
#[derive(Clone, Copy, Debug)]
pub(super) struct Thresholds {
    pub(super) from: usize,
    pub(super) changes: usize,
}

/// An exact index whose vectors lie on a device, too.
///
/// Answers are those of [`Exact::search`]; of vectors in 8 bits those of [`Exact::search_in_full`], as a device has no use
/// for codes.
pub struct OnDevice {
    exact: Exact,
    bring: Box<Bring>,
    thresholds: Thresholds,
    copy: Option<Copied>,
    /// Why the device does not search any more, or never did.
    failure: OnceLock<String>,
    /// How many queries it helped to answer.
    helped: AtomicU64,
}

/// What lies on the device.
struct Copied {
    there: Box<dyn Candidates>,
    positions: usize,
    bounds: Bounds,
    /// Labels that were given other vectors, or taken out, since it was made.
    changed: Allowed,
}

impl OnDevice {
    /// Brings the vectors to a device and checks what it answers. If that fails, the CPU searches and it is
    /// [told](OnDevice::told).
    pub fn new(exact: Exact, device: &Device) -> OnDevice {
        let device = device.clone();
        let bring = move |numbers: Numbers<'_>, dim: usize, offsets: &[f32]| {
            let there = Nearest::new(&device, numbers, dim, offsets)?;
            Ok(Box::new(there) as Box<dyn Candidates>)
        };
        let thresholds = Thresholds { from: DEVICE_FROM, changes: MOST_CHANGES };
        OnDevice::brought(exact, Box::new(bring), thresholds)
    }

    pub(super) fn brought(exact: Exact, bring: Box<Bring>, thresholds: Thresholds) -> OnDevice {
        let mut index = OnDevice {
            exact,
            bring,
            thresholds,
            copy: None,
            failure: OnceLock::new(),
            helped: AtomicU64::new(0),
        };
        index.renew();
        index
    }

    /// The vectors, searched on the CPU.
    pub fn exact(&self) -> &Exact {
        &self.exact
    }

    /// Why the device does not search; none, if it does.
    pub fn told(&self) -> Option<&str> {
        self.failure.get().map(String::as_str)
    }

    /// How many queries were answered with the device's help; the CPU answered the others alone.
    pub fn helped(&self) -> u64 {
        self.helped.load(Ordering::Relaxed)
    }

    /// Makes the copy anew, if many labels changed since it was made. Worth a call after every batch of changes.
    pub fn settle(&mut self) {
        if self.failure.get().is_some() {
            // It is never asked again.
            self.copy = None;
        } else if self.copy.as_ref().is_some_and(|copy| copy.changed.len() > self.thresholds.changes) {
            // The device may not have room for both.
            self.copy = None;
            self.renew();
        }
    }

    fn renew(&mut self) {
        match self.copied() {
            Ok(copy) => self.copy = Some(copy),
            Err(why) => self.lose(why),
        }
    }

    fn lose(&self, why: String) {
        // The first reason stays.
        self.failure.get_or_init(|| format!("labels are searched on the CPU, not on the GPU: {why}"));
    }

    /// A copy that was checked, or why there is none.
    fn copied(&self) -> Result<Copied, String> {
        let (dim, rows) = (self.exact.dim(), self.exact.rows());
        let positions = rows.len() / dim;
        let numbers = match &*rows {
            Rows::F32(numbers) => Numbers::F32(numbers),
            Rows::F16(numbers) => Numbers::F16(numbers),
        };
        let bounds = Bounds::of(numbers, &self.exact);
        let offsets = self.offsets(positions, self.exact.labels());
        let there = (self.bring)(numbers, dim, &offsets).map_err(|error| error.to_string())?;
        let copy = Copied { there, positions, bounds, changed: Allowed::default() };
        self.check(&copy)?;
        Ok(copy)
    }

    /// What the device adds to products: gains, and what keeps it from answering with other labels.
    fn offsets(&self, positions: usize, labels: &Allowed) -> Vec<f32> {
        let offset = |label: LabelId| match labels.contains(label) {
            true => self.exact.gain(label),
            false => f32::NEG_INFINITY,
        };
        (0..positions).into_par_iter().map(|position| offset(LabelId::from_index(position))).collect()
    }

    /// Whether the device answers as the CPU does, or what is wrong.
    fn check(&self, copy: &Copied) -> Result<(), String> {
        let labels: Vec<LabelId> = self.exact.labels().iter().collect();
        let count = CHECKED.0.min(labels.len());
        let mut queries = Vec::with_capacity(count * self.exact.dim());
        for query in 0..count {
            self.exact.extend_with(labels[query * labels.len() / count], &mut queries);
        }
        let truth =
            self.exact.search_in_full(&queries, CHECKED.1, None).map_err(|error| error.to_string())?;
        let found = self.asked(copy, &queries, CHECKED.1, None).map_err(|trouble| trouble.to_string())?;
        match found.iter().zip(&truth).all(|(found, truth)| found.as_ref().is_none_or(|found| found == truth))
        {
            true => Ok(()),
            false => Err("its answers are not those of the CPU".to_owned()),
        }
    }

    /// The answers that are certain, with the help of the device; none for queries that the CPU must answer.
    fn asked(
        &self,
        copy: &Copied,
        queries: &[f32],
        k: usize,
        allowed: Option<&Allowed>,
    ) -> Result<Vec<Option<Ranking>>, Trouble> {
        let may_be = self.exact.labels().intersected(allowed);
        let here = copy.changed.intersected(Some(&may_be));
        let there = may_be.without(&copy.changed);
        let most = (k + k / 8 + MARGIN).min(MOST);
        let offsets = allowed.map(|_| self.offsets(copy.positions, &there));
        let near = copy.there.best(queries, most, offsets.as_deref())?;
        let changed = match here.is_empty() {
            true => vec![Ranking::default(); near.len()],
            false => self.exact.search_in_full(queries, k, Some(&here))?,
        };
        let dim = self.exact.dim();
        if near.len() != queries.len() / dim {
            return Err(Trouble::Wrong("it answered another number of queries"));
        }
        let asked = queries.par_chunks(dim).zip(near).zip(changed);
        let answers: Vec<Result<Option<Ranking>, Trouble>> = asked
            .map(|((query, near), changed)| {
                let Some(bound) = copy.bounds.of_query(query) else { return Ok(None) };
                let Some(scored) = self.scored(query, &near, (&there, most), bound)? else { return Ok(None) };
                let entries = scored.entries().iter().chain(changed.entries()).copied().collect();
                let ranking = Ranking::new(entries, k).map_err(IndexError::from)?;
                let last = near.last().filter(|_| near.len() == most).map(|last| f64::from(last.score));
                let worst = ranking.entries().last().map(|worst| f64::from(worst.score));
                // Without a last one, the device left nothing out.
                let is_certain = last.zip(worst).is_none_or(|(last, worst)| last + bound < worst);
                Ok(is_certain.then_some(ranking))
            })
            .collect();
        // Of several troubles the first query's is told, whatever the threads do.
        answers.into_iter().collect()
    }

    /// The candidates of a query by scores of the CPU, if they are what they should be. None if the CPU has none for them.
    fn scored(
        &self,
        query: &[f32],
        near: &[Near],
        (there, most): (&Allowed, usize),
        bound: f64,
    ) -> Result<Option<Ranking>, Trouble> {
        let mut by_label: Vec<Scored> =
            near.iter().map(|near| Scored { label: LabelId(near.position), score: near.score }).collect();
        by_label.sort_unstable_by_key(|near| near.label);
        let is_whole = near.len() == most.min(there.len())
            && by_label.iter().all(|near| there.contains(near.label))
            && by_label.windows(2).all(|pair| pair[0].label < pair[1].label);
        if !is_whole {
            return Err(Trouble::Wrong("it answered with other labels than it should"));
        }
        let labels = by_label.iter().map(|near| near.label);
        let Ok(scored) = self.exact.scored_again(query, labels, near.len()) else { return Ok(None) };
        let mut again = scored.entries().to_vec();
        again.sort_unstable_by_key(|entry| entry.label);
        let apart = by_label.iter().zip(&again).map(|(a, b)| (f64::from(a.score) - f64::from(b.score)).abs());
        match apart.into_iter().all(|apart| apart <= bound) {
            true => Ok(Some(scored)),
            false => Err(Trouble::Wrong("its scores are further from those of the CPU than rounding can be")),
        }
    }

    /// The answers of device and CPU together.
    fn together(
        &self,
        copy: &Copied,
        queries: &[f32],
        k: usize,
        allowed: Option<&Allowed>,
    ) -> Result<Vec<Ranking>, IndexError> {
        let mut found = match self.asked(copy, queries, k, allowed) {
            Ok(found) => found,
            Err(trouble) => {
                // Memory may be had again later; anything else is not tried again.
                if !trouble.may_pass() {
                    self.lose(trouble.to_string());
                }
                return self.exact.search_in_full(queries, k, allowed);
            }
        };
        let certain = found.iter().filter(|found| found.is_some()).count();
        self.helped.fetch_add(certain as u64, Ordering::Relaxed);
        let dim = self.exact.dim();
        let open = queries.chunks(dim).zip(&found).filter(|(_, found)| found.is_none());
        let open: Vec<f32> = open.flat_map(|(query, _)| query).copied().collect();
        let mut rest = self.exact.search_in_full(&open, k, allowed)?.into_iter();
        found.iter_mut().filter(|found| found.is_none()).for_each(|found| *found = rest.next());
        Ok(found.into_iter().flatten().collect())
    }

    /// Keeps the device from answering with a label by the vector that it had.
    fn note(&mut self, label: LabelId) {
        let Some(copy) = &mut self.copy else { return };
        let hidden = if copy.changed.insert(label) && label.index() < copy.positions {
            copy.there.hide(label.index())
        } else {
            Ok(())
        };
        if let Err(error) = hidden {
            self.copy = None;
            self.lose(error.to_string());
        }
    }
}

impl LabelIndex for OnDevice {
    fn dim(&self) -> usize {
        self.exact.dim()
    }

    fn labels(&self) -> &Allowed {
        self.exact.labels()
    }

    fn vector(&self, label: LabelId) -> Result<Option<Vec<f32>>, IndexError> {
        self.exact.vector(label)
    }

    fn check(&self, label: LabelId, vector: &[f32]) -> Result<(), IndexError> {
        LabelIndex::check(&self.exact, label, vector)
    }

    fn set(&mut self, label: LabelId, vector: &[f32]) -> Result<(), IndexError> {
        self.exact.set(label, vector)?;
        self.note(label);
        Ok(())
    }

    fn remove(&mut self, label: LabelId) {
        if self.exact.labels().contains(label) {
            self.exact.remove(label);
            self.note(label);
        }
    }

    fn search(
        &self,
        queries: &[f32],
        k: usize,
        allowed: Option<&Allowed>,
    ) -> Result<Vec<Ranking>, IndexError> {
        let Some(copy) = self.copy.as_ref().filter(|_| self.failure.get().is_none()) else {
            return self.exact.search(queries, k, allowed);
        };
        self.exact.check_queries(queries)?;
        let is_few = allowed.is_some_and(|allowed| allowed.len() < self.thresholds.from);
        if is_few || k == 0 || k > MOST - MARGIN || queries.is_empty() {
            return self.exact.search_in_full(queries, k, allowed);
        }
        self.together(copy, queries, k, allowed)
    }
}

/// Why a device gave no answer.
#[derive(Debug, thiserror::Error)]
enum Trouble {
    #[error(transparent)]
    Failed(#[from] polytag_nn::Error),
    #[error("{0}")]
    Wrong(&'static str),
    /// Not the device's fault: the CPU says the same when it is asked.
    #[error(transparent)]
    Refused(#[from] IndexError),
}

impl Trouble {
    /// Whether the device may be asked again.
    fn may_pass(&self) -> bool {
        matches!(self, Trouble::Refused(_) | Trouble::Failed(polytag_nn::Error::OutOfMemory { .. }))
    }
}

impl std::fmt::Debug for OnDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OnDevice").field("exact", &self.exact).field("told", &self.told()).finish()
    }
}
