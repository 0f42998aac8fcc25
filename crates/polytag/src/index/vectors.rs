//! The vectors of an index: those it began with, in memory or in a file, and those that were given since.
//!
//! What lies in a file, or is linked by a graph, stays as it is: a vector that is given later is kept beside it, in
//! memory. Whoever asks for the vector of a label does not see where it lies.

use std::borrow::Cow;

use half::f16;
use rustc_hash::FxHashMap;

use super::codes::{Codes, MOST_NUMBERS};
use super::kernel::{CHAINS, Instructions, TILE};
use super::{Allowed, IndexError, Precision, Rows};
use crate::ids::LabelId;

const FINITE: &str = "only finite numbers can be compared";
const HALF: &str = "16 bits hold finite numbers up to 65504 only";

/// Vectors by position.
#[derive(Debug)]
pub(super) struct Vectors {
    dim: usize,
    base: Part,
    /// Whether the base stays as it is.
    sealed: bool,
    /// Those given since it does; by slot.
    later: Part,
    slots: FxHashMap<u32, u32>,
    /// The positions whose vectors are among them.
    changed: Allowed,
}

/// The same vectors, once or twice.
#[derive(Debug)]
struct Part {
    rows: Rows,
    codes: Option<Codes>,
}

impl Part {
    fn empty(dim: usize, rows: Precision, coded: bool) -> Part {
        Part { rows: Rows::empty(rows), codes: coded.then(|| Codes::empty(dim)) }
    }

    /// Puts a vector at a place, if there is memory for it.
    fn set(&mut self, dim: usize, place: usize, vector: &[f32]) -> Result<(), IndexError> {
        let positions = place + 1;
        let no_memory = IndexError::Memory { positions, dim };
        let Some(end) = positions.checked_mul(dim) else { return Err(no_memory) };
        let grown = self
            .rows
            .grow(end)
            .and_then(|()| self.codes.as_mut().map_or(Ok(()), |codes| codes.grow(positions)));
        grown.map_err(|_| no_memory)?;
        self.rows.write(end - dim, vector);
        if let Some(codes) = &mut self.codes {
            codes.write(place, vector);
        }
        Ok(())
    }
}

impl Vectors {
    /// The vectors in `rows`, one a position; `coded` ones have codes, made here where none are given.
    pub(super) fn new(
        dim: usize,
        rows: Rows,
        coded: bool,
        codes: Option<Codes>,
    ) -> Result<Vectors, IndexError> {
        if dim == 0 {
            return Err(IndexError::NoDimensions);
        }
        if coded && dim > MOST_NUMBERS {
            return Err(IndexError::TooLong { dim, most: MOST_NUMBERS });
        }
        let positions = rows.len() / dim;
        let fits =
            rows.len().is_multiple_of(dim) && codes.as_ref().is_none_or(|codes| codes.len() == positions);
        if !fits {
            return Err(IndexError::Shape { found: rows.len(), positions, dim });
        }
        // What lies in a file is looked at when it is needed: a score that is no number is an error then.
        if !rows.is_mapped()
            && let Some((place, value)) = rows.first_not_finite()
        {
            let label = LabelId::from_index(place / dim);
            return Err(IndexError::Value { label, place: place % dim, value, limit: FINITE });
        }
        let codes = match codes {
            None if coded => Some(Codes::of(&rows, dim).map_err(|_| IndexError::Memory { positions, dim })?),
            codes => codes,
        };
        let kept = if matches!(rows, Rows::F32(_)) { Precision::F32 } else { Precision::F16 };
        let later = Part::empty(dim, kept, codes.is_some());
        let sealed = rows.is_mapped() || codes.as_ref().is_some_and(Codes::is_mapped);
        let base = Part { rows, codes };
        Ok(Vectors { dim, base, sealed, later, slots: FxHashMap::default(), changed: Allowed::default() })
    }

    /// Leaves the vectors that there are as they are from now on.
    pub(super) fn seal(&mut self) {
        self.sealed = true;
    }

    /// How many numbers a vector has.
    pub(super) fn dim(&self) -> usize {
        self.dim
    }

    /// How many positions the vectors it began with have.
    pub(super) fn positions(&self) -> usize {
        self.base.rows.len() / self.dim
    }

    /// How many positions all vectors have.
    pub(super) fn all_positions(&self) -> usize {
        let later = self.slots.keys().map(|&position| position as usize + 1).max().unwrap_or(0);
        self.positions().max(later)
    }

    /// The codes of the vectors it began with, where there are codes.
    pub(super) fn base_codes(&self) -> Option<&Codes> {
        self.base.codes.as_ref()
    }

    /// Whether vectors are kept in 8 bits, too.
    pub(super) fn are_coded(&self) -> bool {
        self.base.codes.is_some()
    }

    /// All vectors by position, copied where some were given since the others stay as they are.
    pub(super) fn to_rows(&self) -> Cow<'_, Rows> {
        if self.slots.is_empty() {
            return Cow::Borrowed(&self.base.rows);
        }
        let mut all = self.base.rows.clone();
        for label in self.changed.iter() {
            let mut vector = Vec::with_capacity(self.dim);
            self.extend_with(label, &mut vector);
            let end = (label.index() + 1) * self.dim;
            all.grow(end).expect("there was memory for a copy");
            all.write(end - self.dim, &vector);
        }
        Cow::Owned(all)
    }

    /// All codes by position, where there are any, copied in the same case.
    pub(super) fn to_codes(&self) -> Option<Cow<'_, Codes>> {
        let base = self.base.codes.as_ref()?;
        if self.slots.is_empty() {
            return Some(Cow::Borrowed(base));
        }
        let mut all = base.clone();
        for label in self.changed.iter() {
            let (codes, scale) = self.code(label.0);
            all.grow(label.index() + 1).expect("there was memory for a copy");
            all.put(label.index(), codes, scale);
        }
        Some(Cow::Owned(all))
    }

    /// All vectors by position, copied only where they must be.
    pub(super) fn into_rows(self) -> Rows {
        if self.slots.is_empty() { self.base.rows } else { self.to_rows().into_owned() }
    }

    /// Makes room for `positions` in all.
    pub(super) fn reserve(&mut self, positions: usize) -> Result<(), IndexError> {
        let no_memory = IndexError::Memory { positions, dim: self.dim };
        let Some(len) = positions.checked_mul(self.dim) else { return Err(no_memory) };
        self.base.rows.reserve(len).map_err(|_| no_memory)
    }

    /// Whether a vector can be kept.
    pub(super) fn check(&self, label: LabelId, vector: &[f32]) -> Result<(), IndexError> {
        if vector.len() != self.dim {
            return Err(IndexError::Dimension { label, found: vector.len(), expected: self.dim });
        }
        let (fits, limit): (fn(&f32) -> bool, _) = match self.base.rows {
            Rows::F32(_) => (|value| value.is_finite(), FINITE),
            Rows::F16(_) => (|value| f16::from_f32(*value).is_finite(), HALF),
        };
        match vector.iter().position(|value| !fits(value)) {
            None => Ok(()),
            Some(place) => Err(IndexError::Value { label, place, value: vector[place], limit }),
        }
    }

    /// Gives a label its vector, which has been checked.
    pub(super) fn set(&mut self, label: LabelId, vector: &[f32]) -> Result<(), IndexError> {
        if !self.sealed {
            return self.base.set(self.dim, label.index(), vector);
        }
        let slot = self.slots.get(&label.0).copied().unwrap_or(self.slots.len() as u32);
        self.later.set(self.dim, slot as usize, vector)?;
        self.slots.insert(label.0, slot);
        self.changed.insert(label);
        Ok(())
    }

    /// Leaves nothing of a label's vector where that can be.
    pub(super) fn clear(&mut self, label: LabelId) {
        if !self.sealed {
            self.base.set(self.dim, label.index(), &vec![0.0; self.dim]).expect("it has a place");
        }
    }

    /// Appends the numbers at a label's position.
    ///
    /// # Panics
    /// If there is no such position.
    pub(super) fn extend_with(&self, label: LabelId, to: &mut Vec<f32>) {
        let (part, place) = self.place(label.0);
        part.rows.extend_with(place * self.dim..(place + 1) * self.dim, to);
    }

    fn place(&self, position: u32) -> (&Part, usize) {
        match self.changed.contains(LabelId(position)) {
            false => (&self.base, position as usize),
            true => (&self.later, self.slots[&position] as usize),
        }
    }

    /// The numbers of up to twelve labels; those of the last one again where there are fewer.
    pub(super) fn pick<'a, T>(&'a self, kept: Kept<'a, T>, labels: &[u32]) -> [&'a [T]; TILE] {
        std::array::from_fn(|row| {
            let position = labels[row.min(labels.len() - 1)];
            let (numbers, place) = match self.changed.contains(LabelId(position)) {
                false => (kept.base, position as usize),
                true => (kept.later, self.slots[&position] as usize),
            };
            &numbers[place * self.dim..(place + 1) * self.dim]
        })
    }

    /// The numbers in 32 bits, if they are kept so, else in 16.
    pub(super) fn numbers(&self) -> Result<Kept<'_, f32>, Kept<'_, f16>> {
        match (&self.base.rows, &self.later.rows) {
            (Rows::F32(base), Rows::F32(later)) => Ok(Kept { base, later }),
            (Rows::F16(base), Rows::F16(later)) => Err(Kept { base, later }),
            _ => unreachable!("all vectors are kept in the same way"),
        }
    }

    /// The code and the scale of a label, where there are codes.
    pub(super) fn code(&self, position: u32) -> (&[u8], f32) {
        let (part, place) = self.place(position);
        let codes = part.codes.as_ref().expect("vectors are coded");
        (codes.row(place), codes.scale(place))
    }

    /// The products of a query with labels, in full: the same bits as those of a search without codes.
    pub(super) fn products(&self, instructions: Instructions, query: &[f32], labels: &[u32]) -> Vec<f32> {
        let mut found = Vec::with_capacity(labels.len());
        let mut wide = vec![0.0; if self.numbers().is_ok() { 0 } else { CHAINS * self.dim }];
        for chunk in labels.chunks(CHAINS) {
            let tile: [&[f32]; CHAINS] = match self.numbers() {
                Ok(kept) => {
                    let picked = self.pick(kept, chunk);
                    std::array::from_fn(|row| picked[row])
                }
                Err(kept) => {
                    let picked = self.pick(kept, chunk);
                    for (from, to) in picked.iter().zip(wide.chunks_mut(self.dim)) {
                        instructions.widen(from, to);
                    }
                    std::array::from_fn(|row| &wide[row * self.dim..(row + 1) * self.dim])
                }
            };
            found.extend_from_slice(&instructions.chains(&tile, query)[..chunk.len()]);
        }
        found
    }
}

/// Numbers by where they are kept.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kept<'a, T> {
    base: &'a [T],
    later: &'a [T],
}
