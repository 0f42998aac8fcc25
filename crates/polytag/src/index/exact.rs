//! Dense vectors, searched one and all.
//!
//! A batch of queries is laid side by side, sixteen to a group, and label vectors pass by it twelve at a
//! time, so that each is read from memory once for up to 128 queries. Scores that are not above a query's
//! worst kept label are dropped sixteen at a time. A set of allowed labels, like the positions of removed
//! ones, decides which vectors are read at all: a search costs what it may answer with.
//!
//! Memory: 4 or 2 bytes a number and a bit a position, up to twice that after growing label by label, and 4 bytes a
//! position where labels gain something.
//! A search takes another 4 bytes a number of the queries, and `k` times 8 bytes a query and thread.

use half::f16;
use rayon::prelude::*;

use super::kernel::{Ahead, Group, Instructions, LANES, Lanes, Products, TILE};
use super::{Allowed, IndexError, LabelIndex, Precision, Rows};
use crate::ids::LabelId;
use crate::ranking::{NotFinite, Ranking, Scored, TopK};

/// Most queries that label vectors pass by at once. At 384 numbers each they fill 192 KiB.
const QUERY_BLOCK: usize = 128;
/// Words of 64 positions that one step of the walk takes: 768 labels, a whole number of tiles.
const BLOCK_WORDS: usize = 12;

/// An index that compares a query with every label.
///
/// See [`LabelIndex`] for an example.
#[derive(Debug)]
pub struct Exact {
    dim: usize,
    rows: Rows,
    /// The labels that have a vector.
    labels: Allowed,
    /// What labels have before any product, by position; labels past the end have nothing.
    gains: Vec<f32>,
    instructions: Instructions,
}

impl Exact {
    /// An empty index for vectors of `dim` numbers.
    pub fn new(dim: usize, precision: Precision) -> Result<Exact, IndexError> {
        Exact::from_rows(dim, Rows::empty(precision), Allowed::default())
    }

    /// An index of the vectors in `rows`, of which those of `labels` count. Nothing is copied.
    pub fn from_rows(dim: usize, rows: Rows, labels: Allowed) -> Result<Exact, IndexError> {
        if dim == 0 {
            return Err(IndexError::NoDimensions);
        }
        let positions = rows.len() / dim;
        let whole = rows.len().is_multiple_of(dim);
        if !whole || (positions..labels.words() * 64).any(|at| labels.contains(LabelId::from_index(at))) {
            return Err(IndexError::Shape { found: rows.len(), positions: labels.len(), dim });
        }
        if let Some((place, value)) = rows.first_not_finite() {
            let label = LabelId::from_index(place / dim);
            return Err(IndexError::Value { label, place: place % dim, value, limit: FINITE });
        }
        Ok(Exact { dim, rows, labels, gains: Vec::new(), instructions: Instructions::best() })
    }

    /// The same index, where a label has its gain, by position, on top of its product. A label that is given a vector
    /// later and stands past the end of `gains` has none.
    pub fn with_gains(self, gains: Vec<f32>) -> Result<Exact, IndexError> {
        if let Some(place) = gains.iter().position(|gain| !gain.is_finite()) {
            return Err(IndexError::Gain { label: LabelId::from_index(place), value: gains[place] });
        }
        Ok(Exact { gains, ..self })
    }

    /// What labels have on top of their products, by position.
    pub fn gains(&self) -> &[f32] {
        &self.gains
    }

    /// What a label has on top of its product.
    pub fn gain(&self, label: LabelId) -> f32 {
        self.gains.get(label.index()).copied().unwrap_or(0.0)
    }

    /// Makes room for the vectors of `positions` labels in all, so that they are taken in without
    /// being moved.
    pub fn reserve(&mut self, positions: usize) -> Result<(), IndexError> {
        let no_memory = IndexError::Memory { positions, dim: self.dim };
        let Some(len) = positions.checked_mul(self.dim) else { return Err(no_memory) };
        self.rows.reserve(len).map_err(|_| no_memory)
    }

    /// The vectors, end to end by position: what is to be saved.
    pub fn rows(&self) -> &Rows {
        &self.rows
    }

    /// The labels that have a vector.
    pub fn labels(&self) -> &Allowed {
        &self.labels
    }

    /// The vector of a label, if it has one.
    pub fn vector(&self, label: LabelId) -> Option<Vec<f32>> {
        let mut vector = Vec::new();
        self.labels.contains(label).then(|| self.extend_with(label, &mut vector))?;
        Some(vector)
    }

    /// Appends the numbers at a label's position.
    ///
    /// # Panics
    /// If there is no such position.
    pub fn extend_with(&self, label: LabelId, to: &mut Vec<f32>) {
        let range = label.index() * self.dim..(label.index() + 1) * self.dim;
        match &self.rows {
            Rows::F32(numbers) => to.extend_from_slice(&numbers[range]),
            Rows::F16(numbers) => to.extend(numbers[range].iter().map(|number| number.to_f32())),
        }
    }

    /// The same index, its work done with other instructions.
    #[cfg(test)]
    pub(super) fn with_instructions(self, instructions: Instructions) -> Exact {
        Exact { instructions, ..self }
    }

    fn check_vector(&self, label: LabelId, vector: &[f32]) -> Result<(), IndexError> {
        if vector.len() != self.dim {
            return Err(IndexError::Dimension { label, found: vector.len(), expected: self.dim });
        }
        let refused = |limit: &'static str| {
            move |place: usize| IndexError::Value { label, place, value: vector[place], limit }
        };
        let (fits, limit): (fn(&f32) -> bool, _) = match self.rows.precision() {
            Precision::F32 => (|value| value.is_finite(), FINITE),
            Precision::F16 => (|value| f16::from_f32(*value).is_finite(), HALF),
        };
        vector.iter().position(|value| !fits(value)).map_or(Ok(()), |place| Err(refused(limit)(place)))
    }

    fn check_queries(&self, queries: &[f32]) -> Result<(), IndexError> {
        if !queries.len().is_multiple_of(self.dim) {
            return Err(IndexError::Queries { found: queries.len(), dim: self.dim });
        }
        match queries.iter().position(|value| !value.is_finite()) {
            None => Ok(()),
            Some(at) => {
                let (query, place) = (at / self.dim, at % self.dim);
                Err(IndexError::Query { query, place, value: queries[at] })
            }
        }
    }

    /// Walks the labels once for a block of queries.
    ///
    /// The best of two parts of the labels are the best of the best of both, so it does not matter how
    /// the walk is shared out between threads.
    fn search_block(
        &self,
        queries: &[f32],
        k: usize,
        allowed: Option<&Allowed>,
    ) -> Result<Vec<Ranking>, NotFinite> {
        let packed = pack(queries, self.dim);
        let search = Search { index: self, packed: &packed, count: queries.len() / self.dim, k, allowed };
        let words = allowed.map_or(usize::MAX, Allowed::words).min(self.labels.words());
        let walks: Vec<Walk<'_>> = (0..words.div_ceil(BLOCK_WORDS))
            .into_par_iter()
            .fold(|| Walk::new(&search), Walk::block)
            .collect();
        let mut tops: Vec<TopK> = (0..search.count).map(|_| TopK::new(k)).collect();
        for walk in walks {
            // The walks stand in the order of their labels: the first failure is always the same one.
            if let Some(failure) = walk.failure {
                return Err(failure);
            }
            for (top, part) in tops.iter_mut().zip(walk.tops) {
                part.into_ranking().entries().iter().try_for_each(|entry| top.push(*entry))?;
            }
        }
        Ok(tops.into_iter().map(TopK::into_ranking).collect())
    }
}

const FINITE: &str = "only finite numbers can be compared";
const HALF: &str = "16 bits hold finite numbers up to 65504 only";

impl LabelIndex for Exact {
    fn dim(&self) -> usize {
        self.dim
    }

    fn len(&self) -> usize {
        self.labels.len()
    }

    fn set(&mut self, label: LabelId, vector: &[f32]) -> Result<(), IndexError> {
        self.check_vector(label, vector)?;
        let positions = label.index() + 1;
        let no_memory = IndexError::Memory { positions, dim: self.dim };
        let Some(end) = positions.checked_mul(self.dim) else { return Err(no_memory) };
        self.rows.grow(end).map_err(|_| no_memory)?;
        self.rows.write(end - self.dim, vector);
        self.labels.insert(label);
        Ok(())
    }

    fn remove(&mut self, label: LabelId) {
        if self.labels.remove(label) {
            self.rows.write(label.index() * self.dim, &vec![0.0; self.dim]);
        }
    }

    fn search(
        &self,
        queries: &[f32],
        k: usize,
        allowed: Option<&Allowed>,
    ) -> Result<Vec<Ranking>, IndexError> {
        self.check_queries(queries)?;
        let count = queries.len() / self.dim;
        if k == 0 || count == 0 {
            return Ok(vec![Ranking::default(); count]);
        }
        // Blocks of nearly the same size, each of whole groups.
        let block = count.div_ceil(count.div_ceil(QUERY_BLOCK)).next_multiple_of(LANES);
        let found: Vec<Result<Vec<Ranking>, NotFinite>> = queries
            .par_chunks(block * self.dim)
            .map(|queries| self.search_block(queries, k, allowed))
            .collect();
        let found: Vec<Vec<Ranking>> = found.into_iter().collect::<Result<_, _>>()?;
        Ok(found.into_iter().flatten().collect())
    }
}

/// Lays queries side by side in groups: one [`Lanes`] a dimension, group after group. Lanes without a
/// query are zero.
fn pack(queries: &[f32], dim: usize) -> Vec<Lanes> {
    let mut packed = vec![Lanes::default(); queries.len().div_ceil(LANES * dim) * dim];
    for (group, queries) in packed.chunks_mut(dim).zip(queries.chunks(LANES * dim)) {
        for (lane, query) in queries.chunks(dim).enumerate() {
            for (lanes, &value) in group.iter_mut().zip(query) {
                lanes.0[lane] = value;
            }
        }
    }
    packed
}

/// What all walks of a search share.
struct Search<'a> {
    index: &'a Exact,
    packed: &'a [Lanes],
    count: usize,
    k: usize,
    allowed: Option<&'a Allowed>,
}

/// A walk over a stretch of the labels, from the first to the last.
struct Walk<'a> {
    search: &'a Search<'a>,
    /// The best labels so far, a query each.
    tops: Vec<TopK>,
    /// What a score must be above to be among them; nothing is, where there is no query.
    bars: Vec<Lanes>,
    /// The same for products alone, before what the labels at hand gain.
    lowered: Vec<Lanes>,
    products: Vec<Products>,
    /// The positions of the labels at hand.
    members: Vec<u32>,
    /// Their vectors in 32 bits, where they are kept in 16.
    wide: Vec<f32>,
    failure: Option<NotFinite>,
}

impl<'a> Walk<'a> {
    fn new(search: &'a Search<'a>) -> Walk<'a> {
        let (dim, groups) = (search.index.dim, search.count.div_ceil(LANES));
        let mut bars = vec![Lanes([f32::INFINITY; LANES]); groups];
        for query in 0..search.count {
            bars[query / LANES].0[query % LANES] = f32::NEG_INFINITY;
        }
        let wide = if search.index.rows.precision() == Precision::F16 { TILE * dim } else { 0 };
        Walk {
            search,
            tops: (0..search.count).map(|_| TopK::new(search.k)).collect(),
            lowered: bars.clone(),
            bars,
            products: vec![Products::default(); groups],
            members: Vec::with_capacity(BLOCK_WORDS * 64),
            wide: vec![0.0; wide],
            failure: None,
        }
    }

    /// Takes the labels of one block of positions.
    fn block(mut self, block: usize) -> Walk<'a> {
        if self.failure.is_none() {
            self.collect_members(block);
            let members = std::mem::take(&mut self.members);
            let mut tiles = members.chunks(TILE).peekable();
            while let Some(labels) = tiles.next() {
                self.multiply(labels, tiles.peek().copied());
                self.failure = self.keep(labels).err();
                if self.failure.is_some() {
                    break;
                }
            }
            self.members = members;
        }
        self
    }

    fn collect_members(&mut self, block: usize) {
        self.members.clear();
        for word in block * BLOCK_WORDS..(block + 1) * BLOCK_WORDS {
            let allowed = self.search.allowed.map_or(u64::MAX, |allowed| allowed.word(word));
            let mut bits = self.search.index.labels.word(word) & allowed;
            while bits != 0 {
                self.members.push(word as u32 * 64 + bits.trailing_zeros());
                bits &= bits - 1;
            }
        }
    }

    /// The products of `labels` with all queries, while the vectors of `next` are on their way.
    fn multiply(&mut self, labels: &[u32], next: Option<&[u32]>) {
        let Exact { dim, rows, instructions, .. } = self.search.index;
        self.lower_bars(labels);
        let bars = if self.search.index.gains.is_empty() { &self.bars } else { &self.lowered };
        let groups = self.search.packed.chunks(*dim).zip(bars);
        let groups: Vec<Group<'_>> = groups.map(|(queries, bars)| Group { queries, bars }).collect();
        match rows {
            Rows::F32(numbers) => {
                let ahead = next.map(|next| Ahead::new(&pick(numbers, *dim, next)));
                instructions.multiply(&pick(numbers, *dim, labels), &groups, ahead, &mut self.products);
            }
            Rows::F16(numbers) => {
                let ahead = next.map(|next| Ahead::new(&pick(numbers, *dim, next)));
                let narrow = pick(numbers, *dim, labels);
                for (from, to) in narrow.into_iter().zip(self.wide.chunks_mut(*dim)) {
                    instructions.widen(from, to);
                }
                let tile = std::array::from_fn(|row| &self.wide[row * dim..(row + 1) * dim]);
                instructions.multiply(&tile, &groups, ahead, &mut self.products);
            }
        }
    }

    /// What a product must be above, so that no label of a tile is passed over whose gain makes up for it. A little
    /// lower than that, so that rounding passes over none either.
    fn lower_bars(&mut self, labels: &[u32]) {
        let index = self.search.index;
        if index.gains.is_empty() {
            return;
        }
        let most = labels.iter().map(|&label| index.gain(LabelId(label))).fold(0.0, f32::max);
        self.lowered.clone_from(&self.bars);
        let lanes = self.lowered.iter_mut().flat_map(|lanes| &mut lanes.0).filter(|bar| bar.is_finite());
        lanes.for_each(|bar| *bar -= most + 1e-6 * (bar.abs() + most));
    }

    /// Keeps what is good enough of the last products.
    fn keep(&mut self, labels: &[u32]) -> Result<(), NotFinite> {
        for (group, products) in self.products.iter().enumerate() {
            for (row, &label) in labels.iter().enumerate() {
                let mut above = products.above[row];
                while above != 0 {
                    let lane = above.trailing_zeros() as usize;
                    above &= above - 1;
                    let top = &mut self.tops[group * LANES + lane];
                    let label = LabelId(label);
                    let score = products.scores[row].0[lane] + self.search.index.gain(label);
                    top.push(Scored { label, score })?;
                    // Later labels must do better than the worst: at the same score the earlier one stays.
                    self.bars[group].0[lane] = top.worst().map_or(f32::NEG_INFINITY, |worst| worst.score);
                }
            }
        }
        Ok(())
    }
}

/// The vectors of up to twelve labels; the last one again where there are fewer.
fn pick<'a, T>(numbers: &'a [T], dim: usize, labels: &[u32]) -> [&'a [T]; TILE] {
    std::array::from_fn(|row| {
        let start = labels[row.min(labels.len() - 1)] as usize * dim;
        &numbers[start..start + dim]
    })
}
