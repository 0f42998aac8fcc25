//! Products of vectors in 8 bits, for the instruction set at hand.
//!
//! As in [`kernel`](super::kernel), twelve label vectors meet sixteen or thirty-two queries that lie side by side; four
//! numbers of a query lie together, as the instruction takes them. Sums are integers and exact, and become scores by the
//! same three steps everywhere, so every instruction set gives the same bits. One vector by one query is for walks
//! through a graph, which go where nobody knows beforehand.

#![allow(unsafe_code)]

use super::codes::CodedQuery;
use super::kernel::{LANES, Lanes, Products, TILE};

/// Numbers of a query that lie together.
const QUAD: usize = 4;

/// Four numbers of each of sixteen queries. Aligned, so that no load crosses a cache line.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(super) struct Quads([i8; LANES * QUAD]);

/// Sixteen queries side by side.
#[derive(Clone, Debug)]
pub(super) struct CodedGroup {
    /// One [`Quads`] for every four dimensions.
    queries: Vec<Quads>,
    /// What sums are too high by.
    offsets: [i32; LANES],
    /// What sums are multiplied by.
    scales: Lanes,
}

impl CodedGroup {
    /// Lays up to sixteen queries of `stride` numbers side by side. Lanes without a query are zero.
    pub(super) fn new(queries: &[CodedQuery], stride: usize) -> CodedGroup {
        let mut group = CodedGroup {
            queries: vec![Quads([0; LANES * QUAD]); stride / QUAD],
            offsets: [0; LANES],
            scales: Lanes::default(),
        };
        for (lane, query) in queries.iter().enumerate() {
            for (quads, numbers) in group.queries.iter_mut().zip(query.numbers.chunks(QUAD)) {
                quads.0[lane * QUAD..][..QUAD].copy_from_slice(numbers);
            }
            group.offsets[lane] = query.offset;
            group.scales.0[lane] = query.scale;
        }
        group
    }
}

/// Label vectors to be multiplied, all of the same length, with their scales.
pub(super) struct CodedTile<'a> {
    pub(super) rows: [&'a [u8]; TILE],
    pub(super) scales: [f32; TILE],
}

/// What the processor can do with bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Integers {
    /// 64 products an instruction.
    #[cfg(target_arch = "x86_64")]
    Vnni,
    /// What the compiler makes of it with AVX2.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// What the compiler makes of it.
    Portable,
}

impl Integers {
    /// All that this processor knows, the best first.
    pub(super) fn available() -> Vec<Integers> {
        let mut all = Vec::new();
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512vnni") {
                all.push(Integers::Vnni);
            }
            if is_x86_feature_detected!("avx2") {
                all.push(Integers::Avx2);
            }
        }
        all.push(Integers::Portable);
        all
    }

    /// The best that this processor knows.
    pub(super) fn best() -> Integers {
        Integers::available()[0]
    }

    /// Multiplies a tile with groups; `products` gets one entry a group. `next` are vectors that come after it.
    ///
    /// # Panics
    /// When vectors and groups are not of the same length, or there is not one bar and one entry a group.
    pub(super) fn multiply(
        self,
        tile: &CodedTile<'_>,
        (groups, bars): (&[CodedGroup], &[Lanes]),
        next: Option<&[&[u8]; TILE]>,
        products: &mut [Products],
    ) {
        let stride = tile.rows[0].len();
        assert!(tile.rows.iter().all(|row| row.len() == stride), "vectors of one length");
        assert!(
            groups.iter().all(|group| group.queries.len() * QUAD == stride),
            "queries as long as the vectors"
        );
        assert!(groups.len() == products.len() && groups.len() == bars.len(), "one of each a group");
        if let Some(next) = next {
            next.iter().for_each(|row| prefetch(row));
        }
        match self {
            #[cfg(target_arch = "x86_64")]
            Integers::Vnni => {
                let groups = groups.chunks(2).zip(bars.chunks(2));
                for ((groups, bars), products) in groups.zip(products.chunks_mut(2)) {
                    match (groups, products) {
                        ([first, second], [one, two]) => {
                            // SAFETY: VNNI was detected; the lengths were checked above.
                            unsafe { x86::vnni(tile, [first, second], [&bars[0], &bars[1]], [one, two]) }
                        }
                        ([only], [one]) => {
                            // SAFETY: as above.
                            unsafe { x86::vnni(tile, [only], [&bars[0]], [one]) }
                        }
                        _ => unreachable!("as many products as groups"),
                    }
                }
            }
            #[cfg(target_arch = "x86_64")]
            Integers::Avx2 => {
                for ((group, bars), products) in groups.iter().zip(bars).zip(products) {
                    // SAFETY: AVX2 was detected.
                    unsafe { x86::avx2(tile, group, bars, products) };
                }
            }
            Integers::Portable => {
                for ((group, bars), products) in groups.iter().zip(bars).zip(products) {
                    portable(tile, group, bars, products);
                }
            }
        }
    }

    /// The sum of the products of a vector and a query, too high by the query's offset.
    ///
    /// # Panics
    /// When they are not of the same length.
    #[inline]
    pub(super) fn sum(self, row: &[u8], query: &[i8]) -> i32 {
        assert_eq!(row.len(), query.len(), "a query as long as the vector");
        match self {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: VNNI was detected; the lengths are the same, and a multiple of 64.
            Integers::Vnni if row.len().is_multiple_of(64) => unsafe { x86::sum_vnni(row, query) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: AVX2 was detected.
            Integers::Avx2 => unsafe { x86::sum_avx2(row, query) },
            _ => sum(row, query),
        }
    }

    /// The product of a vector and a query, as [`multiply`](Integers::multiply) has it.
    #[inline]
    pub(super) fn product(self, row: &[u8], scale: f32, query: &CodedQuery) -> f32 {
        (self.sum(row, &query.numbers) - query.offset) as f32 * scale * query.scale
    }
}

/// Asks for a vector that will be read soon.
#[inline(always)]
pub(super) fn prefetch<T>(row: &[T]) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let start = row.as_ptr().cast::<i8>();
        for line in (0..size_of_val(row)).step_by(64) {
            // SAFETY: a hint that may name any address.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(start.wrapping_add(line)) };
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = row;
}

#[inline(always)]
fn sum(row: &[u8], query: &[i8]) -> i32 {
    row.iter()
        .zip(query)
        .map(|(&code, &number)| i32::from(i16::from(code)) * i32::from(i16::from(number)))
        .sum()
}

#[inline(always)]
fn portable(tile: &CodedTile<'_>, group: &CodedGroup, bars: &Lanes, products: &mut Products) {
    for (row, (codes, scale)) in tile.rows.iter().zip(tile.scales).enumerate() {
        let mut sums = [0i32; LANES];
        for (codes, quads) in codes.as_chunks::<QUAD>().0.iter().zip(&group.queries) {
            for (sum, numbers) in sums.iter_mut().zip(quads.0.as_chunks::<QUAD>().0) {
                for place in 0..QUAD {
                    *sum += i32::from(codes[place]) * i32::from(numbers[place]);
                }
            }
        }
        products.above[row] = 0;
        for (lane, sum) in sums.into_iter().enumerate() {
            let score = (sum - group.offsets[lane]) as f32 * scale * group.scales.0[lane] + 0.0;
            let passes = score > bars.0[lane] || !score.is_finite();
            products.above[row] |= u16::from(passes) << lane;
            products.scores[row].0[lane] = score;
        }
    }
}

/// The kernels proper.
#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::{CodedGroup, CodedTile, LANES, Lanes, Products, QUAD, TILE, portable, sum};

    /// Twelve labels by `G` registers of queries.
    ///
    /// # Safety
    /// AVX-512F and VNNI are there; label vectors and groups have the same length.
    #[target_feature(enable = "avx512f,avx512vnni")]
    pub(super) unsafe fn vnni<const G: usize>(
        tile: &CodedTile<'_>,
        groups: [&CodedGroup; G],
        bars: [&Lanes; G],
        products: [&mut Products; G],
    ) {
        let quads = tile.rows[0].len() / QUAD;
        let rows: [*const i32; TILE] = tile.rows.map(|row| row.as_ptr().cast());
        let queries: [*const i8; G] = groups.map(|group| group.queries.as_ptr().cast());
        let mut sums = [[_mm512_setzero_si512(); G]; TILE];
        for place in 0..quads {
            // SAFETY: `place` is below the number of quads of each row and each group; `Quads` are 64 aligned bytes.
            unsafe {
                let queries =
                    queries.map(|queries| _mm512_load_si512(queries.add(place * LANES * QUAD).cast()));
                for (sums, row) in sums.iter_mut().zip(&rows) {
                    let codes = _mm512_set1_epi32(row.add(place).read_unaligned());
                    for (sum, query) in sums.iter_mut().zip(queries) {
                        *sum = _mm512_dpbusd_epi32(*sum, codes, query);
                    }
                }
            }
        }
        for (index, products) in products.into_iter().enumerate() {
            let group = groups[index];
            // SAFETY: sixteen numbers each; `Lanes` are aligned.
            let (offsets, scales, bars) = unsafe {
                let offsets = _mm512_loadu_si512(group.offsets.as_ptr().cast());
                (offsets, _mm512_load_ps(group.scales.0.as_ptr()), _mm512_load_ps(bars[index].0.as_ptr()))
            };
            for (row, sums) in sums.iter().enumerate() {
                let sum = _mm512_cvtepi32_ps(_mm512_sub_epi32(sums[index], offsets));
                let scaled = _mm512_mul_ps(_mm512_mul_ps(sum, _mm512_set1_ps(tile.scales[row])), scales);
                let score = _mm512_add_ps(scaled, _mm512_setzero_ps());
                // SAFETY: `Lanes` are sixteen aligned numbers.
                unsafe { _mm512_store_ps(products.scores[row].0.as_mut_ptr(), score) };
                products.above[row] = _mm512_cmp_ps_mask::<_CMP_NLE_UQ>(score, bars)
                    | _mm512_cmp_ps_mask::<_CMP_NGE_UQ>(score, _mm512_set1_ps(f32::MIN));
            }
        }
    }

    /// # Safety
    /// AVX2 is there.
    #[target_feature(enable = "avx2")]
    pub(super) unsafe fn avx2(
        tile: &CodedTile<'_>,
        group: &CodedGroup,
        bars: &Lanes,
        products: &mut Products,
    ) {
        portable(tile, group, bars, products);
    }

    /// # Safety
    /// AVX-512F and VNNI are there; both are of the same length, a multiple of 64.
    #[target_feature(enable = "avx512f,avx512vnni")]
    pub(super) unsafe fn sum_vnni(row: &[u8], query: &[i8]) -> i32 {
        let mut sums = [_mm512_setzero_si512(); 2];
        for (turn, place) in (0..row.len()).step_by(64).enumerate() {
            // SAFETY: 64 bytes lie from `place` on in both.
            unsafe {
                let codes = _mm512_loadu_si512(row.as_ptr().add(place).cast());
                let numbers = _mm512_loadu_si512(query.as_ptr().add(place).cast());
                sums[turn % 2] = _mm512_dpbusd_epi32(sums[turn % 2], codes, numbers);
            }
        }
        _mm512_reduce_add_epi32(_mm512_add_epi32(sums[0], sums[1]))
    }

    /// # Safety
    /// AVX2 is there.
    #[target_feature(enable = "avx2")]
    pub(super) unsafe fn sum_avx2(row: &[u8], query: &[i8]) -> i32 {
        sum(row, query)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::codes::{Codes, stride};

    fn vector(seed: usize, dim: usize) -> Vec<f32> {
        (0..dim).map(|place| ((seed * 7919 + place * 104_729) % 2003) as f32 / 1001.0 - 1.0).collect()
    }

    #[test]
    fn every_instruction_set_gives_the_same_bits() {
        for dim in [1, 3, 63, 64, 65, 384, 1000] {
            let mut codes = Codes::empty(dim);
            codes.grow(TILE).unwrap();
            (0..TILE).for_each(|row| codes.write(row, &vector(row, dim)));
            let queries: Vec<CodedQuery> =
                (0..20).map(|query| CodedQuery::of(&vector(50 + query, dim))).collect();
            let groups: Vec<CodedGroup> =
                queries.chunks(LANES).map(|queries| CodedGroup::new(queries, stride(dim))).collect();
            let tile = CodedTile {
                rows: std::array::from_fn(|row| codes.row(row)),
                scales: std::array::from_fn(|row| codes.scale(row)),
            };
            let bars = [Lanes([0.1; LANES]), Lanes([f32::INFINITY; LANES])];
            let run = |integers: Integers| {
                let mut products = vec![Products::default(); 2];
                integers.multiply(&tile, (&groups, &bars), Some(&tile.rows), &mut products);
                products
            };
            let expected = run(Integers::Portable);
            for integers in Integers::available() {
                let found = run(integers);
                for (found, expected) in found.iter().zip(&expected) {
                    assert_eq!(found.above, expected.above, "{integers:?} {dim}");
                    for (found, expected) in found.scores.iter().zip(&expected.scores) {
                        assert_eq!(
                            found.0.map(f32::to_bits),
                            expected.0.map(f32::to_bits),
                            "{integers:?} {dim}"
                        );
                    }
                }
                for row in 0..TILE {
                    for (query, lane) in queries.iter().zip(0..LANES) {
                        let product = integers.product(codes.row(row), codes.scale(row), query) + 0.0;
                        assert_eq!(product.to_bits(), expected[0].scores[row].0[lane].to_bits());
                    }
                }
            }
        }
    }
}
