//! Products of label vectors with queries, for the instruction set at hand.
//!
//! Twelve label vectors meet sixteen or thirty-two queries at a time. Queries lie side by side, one a
//! lane, so that each lane sums one product from its first number to its last with fused multiply-adds:
//! `s ← q·v + s`. No step depends on what lies in other lanes, nor on the width of a register, so every
//! instruction set gives the same bits. The sums stay in registers; a label vector is read as it lies
//! in memory, wherever that is, so that any choice of labels costs what those labels cost.

#![allow(unsafe_code)]

use half::f16;

/// Queries that lie side by side.
pub(super) const LANES: usize = 16;
/// Label vectors that are taken at once. With two registers of queries they fill 24 of AVX-512's 32.
pub(super) const TILE: usize = 12;

/// Label vectors that meet a single query at once.
pub(super) const CHAINS: usize = 8;

/// One number of each of sixteen queries. Aligned, so that no load crosses a cache line.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(64))]
pub(super) struct Lanes(pub(super) [f32; LANES]);

/// Label vectors to be multiplied, all of the same length.
pub(super) type Tile<'a> = [&'a [f32]; TILE];

/// The products of a tile with one group of queries.
#[derive(Clone, Debug, Default)]
pub(super) struct Products {
    /// The scores, by label.
    pub(super) scores: [Lanes; TILE],
    /// Which lanes of a label are above their bar, or no finite number; the first in the lowest bit.
    pub(super) above: [u16; TILE],
}

/// A group of queries and what their scores must pass.
#[derive(Clone, Copy, Debug)]
pub(super) struct Group<'a> {
    /// The numbers of the queries: one [`Lanes`] a dimension.
    pub(super) queries: &'a [Lanes],
    /// The score that each query's labels must be above.
    pub(super) bars: &'a Lanes,
}

/// Addresses that will be read soon: `step` bytes of each for every sixteen dimensions.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ahead {
    rows: [*const i8; TILE],
    step: usize,
}

impl Ahead {
    /// The next vectors, as they are kept in memory.
    pub(super) fn new<T>(rows: &[&[T]; TILE]) -> Ahead {
        Ahead { rows: rows.map(|row| row.as_ptr().cast()), step: LANES * size_of::<T>() }
    }
}

/// What the processor can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Instructions {
    /// 16 numbers at once, 32 registers.
    #[cfg(target_arch = "x86_64")]
    Avx512,
    /// 8 numbers at once, 16 registers; FMA and F16C.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// What the compiler makes of it.
    Portable,
}

impl Instructions {
    /// All that this processor knows, the best first.
    pub(super) fn available() -> Vec<Instructions> {
        let mut all = Vec::new();
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("fma") {
                all.push(Instructions::Avx512);
            }
            if is_x86_feature_detected!("avx2")
                && is_x86_feature_detected!("fma")
                && is_x86_feature_detected!("f16c")
            {
                all.push(Instructions::Avx2);
            }
        }
        all.push(Instructions::Portable);
        all
    }

    /// The best that this processor knows.
    pub(super) fn best() -> Instructions {
        Instructions::available()[0]
    }

    /// Multiplies a tile with one or more groups; `products` gets one entry a group.
    ///
    /// # Panics
    /// When a label vector and a group are not of the same length, or there is not one entry a group.
    pub(super) fn multiply(
        self,
        tile: &Tile<'_>,
        groups: &[Group<'_>],
        ahead: Option<Ahead>,
        products: &mut [Products],
    ) {
        let dim = tile[0].len();
        assert!(tile.iter().all(|row| row.len() == dim), "vectors of one length");
        assert!(groups.iter().all(|group| group.queries.len() == dim), "queries as long as the vectors");
        assert_eq!(groups.len(), products.len(), "a place for the products of each group");
        match self {
            #[cfg(target_arch = "x86_64")]
            Instructions::Avx512 => {
                let mut ahead = ahead;
                for (pair, products) in groups.chunks(2).zip(products.chunks_mut(2)) {
                    let ahead = ahead.take();
                    match (pair, products) {
                        ([first, second], [one, two]) => {
                            // SAFETY: AVX-512 was detected; the lengths were checked above.
                            unsafe { x86::avx512(tile, [*first, *second], ahead, [one, two]) }
                        }
                        ([only], [one]) => {
                            // SAFETY: as above.
                            unsafe { x86::avx512(tile, [*only], ahead, [one]) }
                        }
                        _ => unreachable!("as many products as groups"),
                    }
                }
            }
            #[cfg(target_arch = "x86_64")]
            Instructions::Avx2 => {
                let mut ahead = ahead;
                for (group, products) in groups.iter().zip(products) {
                    let (low, high) = (0, TILE / 2);
                    // SAFETY: AVX2 and FMA were detected; the lengths were checked above.
                    unsafe { x86::avx2(tile, low, *group, ahead.take(), products) };
                    // SAFETY: as above.
                    unsafe { x86::avx2(tile, high, *group, None, products) };
                }
            }
            Instructions::Portable => {
                for (group, products) in groups.iter().zip(products) {
                    portable(tile, *group, products);
                }
            }
        }
    }

    /// The products of eight label vectors with one query: the bits that [`multiply`](Instructions::multiply) gives.
    ///
    /// # Panics
    /// When they are not of the same length.
    pub(super) fn chains(self, rows: &[&[f32]; CHAINS], query: &[f32]) -> [f32; CHAINS] {
        assert!(rows.iter().all(|row| row.len() == query.len()), "vectors as long as the query");
        match self {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: FMA was detected, which every processor with AVX-512 has.
            Instructions::Avx512 | Instructions::Avx2 => unsafe { x86::chains_fma(rows, query) },
            Instructions::Portable => chains(rows, query),
        }
    }

    /// Widens 16-bit numbers, exactly.
    ///
    /// # Panics
    /// When there is not one place a number.
    pub(super) fn widen(self, from: &[f16], to: &mut [f32]) {
        assert_eq!(from.len(), to.len(), "a place for each number");
        match self {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: AVX-512 was detected; the lengths are the same.
            Instructions::Avx512 => unsafe { x86::widen_avx512(from, to) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: F16C was detected; the lengths are the same.
            Instructions::Avx2 => unsafe { x86::widen_f16c(from, to) },
            Instructions::Portable => widen_rest(from, to),
        }
    }
}

#[inline(always)]
fn chains(rows: &[&[f32]; CHAINS], query: &[f32]) -> [f32; CHAINS] {
    let mut sums = [0.0f32; CHAINS];
    for (place, &number) in query.iter().enumerate() {
        for (sum, row) in sums.iter_mut().zip(rows) {
            *sum = row[place].mul_add(number, *sum);
        }
    }
    // Zero has one sign, so that equal scores are the same bits.
    sums.map(|sum| sum + 0.0)
}

fn widen_rest(from: &[f16], to: &mut [f32]) {
    for (wide, narrow) in to.iter_mut().zip(from) {
        *wide = narrow.to_f32();
    }
}

fn portable(tile: &Tile<'_>, group: Group<'_>, products: &mut Products) {
    for (row, (scores, above)) in tile.iter().zip(products.scores.iter_mut().zip(&mut products.above)) {
        let mut sums = [0.0f32; LANES];
        for (&value, queries) in row.iter().zip(group.queries) {
            for (sum, &query) in sums.iter_mut().zip(&queries.0) {
                *sum = value.mul_add(query, *sum);
            }
        }
        *above = 0;
        for (lane, sum) in sums.iter_mut().enumerate() {
            // Zero has one sign, so that equal scores are the same bits.
            *sum += 0.0;
            let passes = *sum > group.bars.0[lane] || !sum.is_finite();
            *above |= u16::from(passes) << lane;
        }
        scores.0 = sums;
    }
}

/// The kernels proper.
#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::{Ahead, CHAINS, Group, LANES, Products, TILE, Tile, chains, f16, widen_rest};

    /// Twelve labels by `G` registers of queries.
    ///
    /// # Safety
    /// AVX-512F is there; label vectors and groups have the same length.
    #[target_feature(enable = "avx512f")]
    pub(super) unsafe fn avx512<const G: usize>(
        tile: &Tile<'_>,
        groups: [Group<'_>; G],
        ahead: Option<Ahead>,
        products: [&mut Products; G],
    ) {
        let dim = tile[0].len();
        let rows: [*const f32; TILE] = tile.map(<[f32]>::as_ptr);
        let queries: [*const f32; G] = groups.map(|group| group.queries.as_ptr().cast());
        let mut sums = [[_mm512_setzero_ps(); G]; TILE];
        let mut start = 0;
        while start < dim {
            if let Some(ahead) = ahead {
                prefetch(&ahead, start);
            }
            let end = dim.min(start + LANES);
            for place in start..end {
                // SAFETY: `place` is below `dim`, the length of each row and each group; `Lanes` are
                // sixteen aligned numbers.
                unsafe {
                    let queries = queries.map(|queries| _mm512_load_ps(queries.add(place * LANES)));
                    for (sums, row) in sums.iter_mut().zip(&rows) {
                        let value = _mm512_set1_ps(*row.add(place));
                        for (sum, query) in sums.iter_mut().zip(queries) {
                            *sum = _mm512_fmadd_ps(value, query, *sum);
                        }
                    }
                }
            }
            start = end;
        }
        for (index, products) in products.into_iter().enumerate() {
            // SAFETY: `Lanes` are sixteen aligned numbers.
            let bars = unsafe { _mm512_load_ps(groups[index].bars.0.as_ptr()) };
            for (row, sums) in sums.iter().enumerate() {
                // Zero has one sign, so that equal scores are the same bits.
                let sum = _mm512_add_ps(sums[index], _mm512_setzero_ps());
                // SAFETY: as above.
                unsafe { _mm512_store_ps(products.scores[row].0.as_mut_ptr(), sum) };
                products.above[row] = _mm512_cmp_ps_mask::<_CMP_NLE_UQ>(sum, bars)
                    | _mm512_cmp_ps_mask::<_CMP_NGE_UQ>(sum, _mm512_set1_ps(f32::MIN));
            }
        }
    }

    /// Half a tile, from label `first` on, by two registers of queries: 12 sums in 16 registers.
    ///
    /// # Safety
    /// AVX2 and FMA are there; label vectors and group have the same length; `first` is 0 or 6.
    #[target_feature(enable = "avx2,fma")]
    pub(super) unsafe fn avx2(
        tile: &Tile<'_>,
        first: usize,
        group: Group<'_>,
        ahead: Option<Ahead>,
        products: &mut Products,
    ) {
        const ROWS: usize = TILE / 2;
        let dim = tile[0].len();
        let rows: [*const f32; ROWS] = std::array::from_fn(|row| tile[first + row].as_ptr());
        let queries: *const f32 = group.queries.as_ptr().cast();
        let mut sums = [[_mm256_setzero_ps(); 2]; ROWS];
        let mut start = 0;
        while start < dim {
            if let Some(ahead) = ahead {
                prefetch(&ahead, start);
            }
            let end = dim.min(start + LANES);
            for place in start..end {
                // SAFETY: `place` is below `dim`, the length of each row and of the group; `Lanes` are
                // two times eight aligned numbers.
                unsafe {
                    let low = _mm256_load_ps(queries.add(place * LANES));
                    let high = _mm256_load_ps(queries.add(place * LANES + 8));
                    for (sums, row) in sums.iter_mut().zip(&rows) {
                        let value = _mm256_set1_ps(*row.add(place));
                        sums[0] = _mm256_fmadd_ps(value, low, sums[0]);
                        sums[1] = _mm256_fmadd_ps(value, high, sums[1]);
                    }
                }
            }
            start = end;
        }
        for (row, sums) in sums.into_iter().enumerate() {
            let mut above = 0;
            for (half, sum) in sums.into_iter().enumerate() {
                let sum = _mm256_add_ps(sum, _mm256_setzero_ps());
                // SAFETY: both are halves of `Lanes`: eight aligned numbers.
                let bars = unsafe {
                    _mm256_store_ps(products.scores[first + row].0.as_mut_ptr().add(half * 8), sum);
                    _mm256_load_ps(group.bars.0.as_ptr().add(half * 8))
                };
                let passes = _mm256_or_ps(
                    _mm256_cmp_ps::<_CMP_NLE_UQ>(sum, bars),
                    _mm256_cmp_ps::<_CMP_NGE_UQ>(sum, _mm256_set1_ps(f32::MIN)),
                );
                above |= (_mm256_movemask_ps(passes) as u16) << (half * 8);
            }
            products.above[first + row] = above;
        }
    }

    /// # Safety
    /// FMA is there.
    #[target_feature(enable = "avx2,fma")]
    pub(super) unsafe fn chains_fma(rows: &[&[f32]; CHAINS], query: &[f32]) -> [f32; CHAINS] {
        chains(rows, query)
    }

    /// Asks for the part of the next vectors that belongs to the dimensions from `place` on.
    #[inline(always)]
    fn prefetch(ahead: &Ahead, place: usize) {
        for row in ahead.rows {
            // SAFETY: a hint that may name any address.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(row.wrapping_add(place / LANES * ahead.step)) };
        }
    }

    /// # Safety
    /// AVX-512F is there; both are of the same length.
    #[target_feature(enable = "avx512f")]
    pub(super) unsafe fn widen_avx512(from: &[f16], to: &mut [f32]) {
        let whole = from.len() - from.len() % 16;
        for place in (0..whole).step_by(16) {
            // SAFETY: sixteen numbers lie from `place` on in both.
            unsafe {
                let narrow = _mm256_loadu_si256(from.as_ptr().add(place).cast());
                _mm512_storeu_ps(to.as_mut_ptr().add(place), _mm512_cvtph_ps(narrow));
            }
        }
        widen_rest(&from[whole..], &mut to[whole..]);
    }

    /// # Safety
    /// F16C is there; both are of the same length.
    #[target_feature(enable = "avx,f16c")]
    pub(super) unsafe fn widen_f16c(from: &[f16], to: &mut [f32]) {
        let whole = from.len() - from.len() % 8;
        for place in (0..whole).step_by(8) {
            // SAFETY: eight numbers lie from `place` on in both.
            unsafe {
                let narrow = _mm_loadu_si128(from.as_ptr().add(place).cast());
                _mm256_storeu_ps(to.as_mut_ptr().add(place), _mm256_cvtph_ps(narrow));
            }
        }
        widen_rest(&from[whole..], &mut to[whole..]);
    }
}
