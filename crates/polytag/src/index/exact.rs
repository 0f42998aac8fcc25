//! Dense vectors, searched one and all.
//!
//! A batch of queries is laid side by side, sixteen to a group, and label vectors pass by it twelve at a
//! time, so that each is read from memory once for up to 128 queries. Scores that are not above a query's
//! worst kept label are dropped sixteen at a time. A set of allowed labels, like the positions of removed
//! ones, decides which vectors are read at all: a search costs what it may answer with.
//!
//! In 8 bits, scores are those of rounded vectors and queries, so more labels than are wanted are kept and scored again
//! in 16 bits. What is wanted is among them but for ties within the rounding.
//!
//! Memory: 4, 2 or (8 bits with 16 beside them) 3 bytes a number and a bit a position, up to twice that after growing
//! label by label, and 4 bytes a position where labels gain something. Vectors in a file take no memory but what the
//! system keeps of it.
//! A search takes another 4 bytes a number of the queries, and `k` times 8 bytes a query and thread.

use std::borrow::Cow;

use rayon::prelude::*;

use super::codes::{CodedQuery, Codes, stride};
use super::kernel::{Ahead, Group, Instructions, LANES, Lanes, Products, TILE};
use super::kernel8::{CodedGroup, CodedTile, Integers};
use super::vectors::Vectors;
use super::{Allowed, IndexError, LabelIndex, Precision, Rows};
use crate::ids::LabelId;
use crate::ranking::{NotFinite, Ranking, Scored, TopK};
use crate::storage::Array;

/// Most queries that label vectors pass by at once. At 384 numbers each they fill 192 KiB.
const QUERY_BLOCK: usize = 128;
/// Words of 64 positions that one step of the walk takes: 768 labels, a whole number of tiles.
const BLOCK_WORDS: usize = 12;

/// An index that compares a query with every label.
///
/// See [`LabelIndex`] for an example.
#[derive(Debug)]
pub struct Exact {
    pub(super) vectors: Vectors,
    /// The labels that have a vector.
    labels: Allowed,
    /// What labels have before any product, by position; labels past the end have nothing.
    gains: Vec<f32>,
    pub(super) instructions: Instructions,
    pub(super) integers: Integers,
}

impl Exact {
    /// An empty index for vectors of `dim` numbers.
    pub fn new(dim: usize, precision: Precision) -> Result<Exact, IndexError> {
        let coded = precision == Precision::I8;
        Exact::of(Vectors::new(dim, Rows::empty(precision), coded, None)?, Allowed::default())
    }

    /// An index of the vectors in `rows`, of which those of `labels` count. Nothing is copied.
    pub fn from_rows(dim: usize, rows: Rows, labels: Allowed) -> Result<Exact, IndexError> {
        Exact::of(Vectors::new(dim, rows, false, None)?, labels)
    }

    /// The same in 8 bits beside `rows`, the codes made anew or, where they were kept, taken as they are: numbers, a
    /// whole number of cache lines each, and scales.
    pub fn from_coded_rows(
        dim: usize,
        rows: Rows,
        labels: Allowed,
        codes: Option<(Array<u8>, Array<f32>)>,
    ) -> Result<Exact, IndexError> {
        let codes = codes.map(|(numbers, scales)| Codes::from_parts(dim, numbers, scales)).transpose();
        let codes = codes.map_err(|problem| IndexError::Unfit { problem })?;
        Exact::of(Vectors::new(dim, rows, true, codes)?, labels)
    }

    fn of(vectors: Vectors, labels: Allowed) -> Result<Exact, IndexError> {
        let (positions, dim) = (vectors.positions(), vectors.dim());
        if (positions..labels.words() * 64).any(|at| labels.contains(LabelId::from_index(at))) {
            return Err(IndexError::Shape { found: positions * dim, positions: labels.len(), dim });
        }
        let (instructions, integers) = (Instructions::best(), Integers::best());
        Ok(Exact { vectors, labels, gains: Vec::new(), instructions, integers })
    }

    /// The same index with its vectors in 8 bits beside those it has.
    pub fn coded(self) -> Result<Exact, IndexError> {
        let (dim, labels, gains) = (self.dim(), self.labels, self.gains);
        let coded = Exact::from_coded_rows(dim, self.vectors.into_rows(), labels, None)?;
        Ok(Exact { gains, ..coded })
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
        self.vectors.reserve(positions)
    }

    /// The vectors, end to end by position: what is to be saved. They are copied where they lie in a file and some were
    /// given since.
    pub fn rows(&self) -> Cow<'_, Rows> {
        self.vectors.to_rows()
    }

    /// Whether vectors are kept in 8 bits, too.
    pub fn is_coded(&self) -> bool {
        self.vectors.are_coded()
    }

    /// The vectors in 8 bits, where they are kept so: what is to be saved beside them. They are copied where those are.
    pub fn codes(&self) -> Option<Cow<'_, Codes>> {
        self.vectors.to_codes()
    }

    /// The vector of a label, if it has one: [`vector`](LabelIndex::vector) without anything that could fail.
    pub fn kept(&self, label: LabelId) -> Option<Vec<f32>> {
        let mut vector = Vec::new();
        self.labels.contains(label).then(|| self.extend_with(label, &mut vector))?;
        Some(vector)
    }

    /// Appends the numbers at a label's position.
    ///
    /// # Panics
    /// If there is no such position.
    pub fn extend_with(&self, label: LabelId, to: &mut Vec<f32>) {
        self.vectors.extend_with(label, to);
    }

    /// The same index, its work done with other instructions.
    #[cfg(test)]
    pub(super) fn with_instructions(self, instructions: Instructions) -> Exact {
        Exact { instructions, ..self }
    }

    /// The same index, its work in 8 bits done with other instructions.
    #[cfg(test)]
    pub(super) fn with_integers(self, integers: Integers) -> Exact {
        Exact { integers, ..self }
    }

    /// Walks the labels once for a block of queries.
    ///
    /// The best of two parts of the labels are the best of the best of both, so it does not matter how
    /// the walk is shared out between threads.
    fn search_block(
        &self,
        queries: &[f32],
        (k, coded): (usize, bool),
        allowed: Option<&Allowed>,
    ) -> Result<Vec<Ranking>, NotFinite> {
        let dim = self.vectors.dim();
        let sides = match coded {
            false => Sides::Full(pack(queries, dim)),
            true => Sides::Coded(pack_codes(queries, dim)),
        };
        let search = Search { index: self, sides: &sides, count: queries.len() / dim, k, allowed };
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

    /// The same search by vectors in full, though they are kept in 8 bits, too.
    pub fn search_in_full(
        &self,
        queries: &[f32],
        k: usize,
        allowed: Option<&Allowed>,
    ) -> Result<Vec<Ranking>, IndexError> {
        self.search_blocks(queries, k, allowed, false)
    }

    fn search_blocks(
        &self,
        queries: &[f32],
        k: usize,
        allowed: Option<&Allowed>,
        coded: bool,
    ) -> Result<Vec<Ranking>, IndexError> {
        self.check_queries(queries)?;
        let (dim, count) = (self.dim(), queries.len() / self.dim());
        if k == 0 || count == 0 {
            return Ok(vec![Ranking::default(); count]);
        }
        // Blocks of nearly the same size, each of whole groups.
        let block = count.div_ceil(count.div_ceil(QUERY_BLOCK)).next_multiple_of(LANES);
        let found: Vec<Result<Vec<Ranking>, NotFinite>> = queries
            .par_chunks(block * dim)
            .map(|queries| match coded {
                false => self.search_block(queries, (k, false), allowed),
                true => {
                    let near = self.search_block(queries, (more_than(k), true), allowed)?;
                    let near = queries.par_chunks(dim).zip(near);
                    near.map(|(query, near)| self.scored_again(query, near.labels(), k)).collect()
                }
            })
            .collect();
        let found: Vec<Vec<Ranking>> = found.into_iter().collect::<Result<_, _>>()?;
        Ok(found.into_iter().flatten().collect())
    }

    /// The best `k` of some labels that have vectors, scored in full.
    pub(super) fn scored_again(
        &self,
        query: &[f32],
        labels: impl Iterator<Item = LabelId>,
        k: usize,
    ) -> Result<Ranking, NotFinite> {
        let labels: Vec<u32> = labels.map(|label| label.0).collect();
        let products = self.vectors.products(self.instructions, query, &labels);
        let scored = labels.into_iter().zip(products).map(|(label, product)| {
            let label = LabelId(label);
            Scored { label, score: product + self.gain(label) }
        });
        Ranking::new(scored.collect(), k)
    }
}

impl LabelIndex for Exact {
    fn dim(&self) -> usize {
        self.vectors.dim()
    }

    fn labels(&self) -> &Allowed {
        &self.labels
    }

    fn vector(&self, label: LabelId) -> Result<Option<Vec<f32>>, IndexError> {
        Ok(self.kept(label))
    }

    fn check(&self, label: LabelId, vector: &[f32]) -> Result<(), IndexError> {
        self.vectors.check(label, vector)
    }

    fn set(&mut self, label: LabelId, vector: &[f32]) -> Result<(), IndexError> {
        self.vectors.check(label, vector)?;
        self.vectors.set(label, vector)?;
        self.labels.insert(label);
        Ok(())
    }

    fn remove(&mut self, label: LabelId) {
        if self.labels.remove(label) {
            self.vectors.clear(label);
        }
    }

    fn search(
        &self,
        queries: &[f32],
        k: usize,
        allowed: Option<&Allowed>,
    ) -> Result<Vec<Ranking>, IndexError> {
        self.search_blocks(queries, k, allowed, self.vectors.are_coded())
    }
}

/// How many labels are kept by codes where `k` are wanted.
pub(super) fn more_than(k: usize) -> usize {
    k.saturating_add(k / 2).saturating_add(16)
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

/// The same in 8 bits, group by group.
fn pack_codes(queries: &[f32], dim: usize) -> Vec<CodedGroup> {
    let queries: Vec<CodedQuery> = queries.chunks(dim).map(CodedQuery::of).collect();
    queries.chunks(LANES).map(|queries| CodedGroup::new(queries, stride(dim))).collect()
}

/// Queries side by side, as label vectors meet them.
enum Sides {
    Full(Vec<Lanes>),
    Coded(Vec<CodedGroup>),
}

/// What all walks of a search share.
struct Search<'a> {
    index: &'a Exact,
    sides: &'a Sides,
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
        let (dim, groups) = (search.index.dim(), search.count.div_ceil(LANES));
        let mut bars = vec![Lanes([f32::INFINITY; LANES]); groups];
        for query in 0..search.count {
            bars[query / LANES].0[query % LANES] = f32::NEG_INFINITY;
        }
        let is_wide = matches!(search.sides, Sides::Coded(_)) || search.index.vectors.numbers().is_ok();
        let wide = if is_wide { 0 } else { TILE * dim };
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
        let Exact { vectors, instructions, .. } = self.search.index;
        let dim = vectors.dim();
        self.lower_bars(labels);
        let bars = if self.search.index.gains.is_empty() { &self.bars } else { &self.lowered };
        let packed = match self.search.sides {
            Sides::Full(packed) => packed,
            Sides::Coded(groups) => {
                let code = |labels: &[u32], row: usize| vectors.code(labels[row.min(labels.len() - 1)]);
                let tile = CodedTile {
                    rows: std::array::from_fn(|row| code(labels, row).0),
                    scales: std::array::from_fn(|row| code(labels, row).1),
                };
                let next = next.map(|next| std::array::from_fn(|row| code(next, row).0));
                let integers = self.search.index.integers;
                return integers.multiply(&tile, (groups, bars), next.as_ref(), &mut self.products);
            }
        };
        let groups = packed.chunks(dim).zip(bars);
        let groups: Vec<Group<'_>> = groups.map(|(queries, bars)| Group { queries, bars }).collect();
        match vectors.numbers() {
            Ok(numbers) => {
                let ahead = next.map(|next| Ahead::new(&vectors.pick(numbers, next)));
                instructions.multiply(&vectors.pick(numbers, labels), &groups, ahead, &mut self.products);
            }
            Err(numbers) => {
                let ahead = next.map(|next| Ahead::new(&vectors.pick(numbers, next)));
                let narrow = vectors.pick(numbers, labels);
                for (from, to) in narrow.into_iter().zip(self.wide.chunks_mut(dim)) {
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
