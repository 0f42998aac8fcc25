//! Weights in 8 bits, laid out once in panels as the kernel reads them.

use rayon::prelude::*;

use super::MAX_DEPTH;
use super::rows::TINY;
use super::set::IntegerSet;
use crate::cpu::memory::Aligned;
use crate::cpu::view::View;

/// The greatest magnitude of a rounded weight: -128 is left out, so that zero is in the middle.
const GREATEST: f32 = 127.0;

/// A weight `[out, in]` in 8 bits, for products `x · wᵀ`.
///
/// A column of the product has a scale of its own, by which its integers are multiplied to come near the weights
/// again: they are off by half a scale at most, which is the greatest of the column divided by 254. A panel is as many
/// columns as a tile is wide, four bytes of each after those of the one before; the last one, and the depth, are filled
/// up with zeros.
#[derive(Clone, Debug)]
pub struct EightBitWeights {
    pub(super) set: IntegerSet,
    pub(super) depth: usize,
    pub(super) columns: usize,
    /// The bytes.
    data: Aligned,
    /// A scale a column, of whole panels.
    scales: Aligned,
    /// The sum of the integers of a column, of whole panels.
    totals: Vec<i32>,
}

impl EightBitWeights {
    /// Rounds a weight, a column of the product a row. One that is not finite gives products that are not, either.
    ///
    /// # Panics
    /// If rows do not lie end to end, or are longer than [`MAX_DEPTH`].
    pub fn new(weight: View<'_>) -> EightBitWeights {
        EightBitWeights::for_set(IntegerSet::best(), weight)
    }

    pub(super) fn for_set(set: IntegerSet, weight: View<'_>) -> EightBitWeights {
        assert_eq!(weight.column_stride(), 1, "rows of a weight lie end to end");
        EightBitWeights::packed(set, (weight.columns(), weight.rows()), |column, integers| {
            round(&weight.from(column, 0)[..integers.len()], integers)
        })
    }

    /// Lays out the columns that `column` writes; it gives their scales.
    pub(super) fn packed(
        set: IntegerSet,
        (depth, columns): (usize, usize),
        column: impl Fn(usize, &mut [i8]) -> f32 + Sync,
    ) -> EightBitWeights {
        assert!(depth <= MAX_DEPTH, "sums of {depth} products do not fit 32 bits");
        let (width, groups) = (set.width(), depth.div_ceil(4));
        let padded = columns.next_multiple_of(width);
        let mut weights = EightBitWeights {
            set,
            depth,
            columns,
            data: Aligned::zeros(padded * groups),
            scales: Aligned::zeros(padded),
            totals: vec![0; padded],
        };
        if groups == 0 {
            return weights;
        }
        let panels = weights.data.par_chunks_mut(width * groups);
        let beside = weights.scales.par_chunks_mut(width).zip(weights.totals.par_chunks_mut(width));
        panels.zip(beside).enumerate().for_each(|(panel, (data, (scales, totals)))| {
            let data: &mut [[i8; 4]] = bytemuck::cast_slice_mut(data);
            let mut integers = vec![0; depth];
            for place in 0..width.min(columns - panel * width) {
                scales[place] = column(panel * width + place, &mut integers);
                totals[place] = integers.iter().map(|&integer| i32::from(integer)).sum();
                for (group, four) in integers.chunks(4).enumerate() {
                    data[group * width + place][..four.len()].copy_from_slice(four);
                }
            }
        });
        weights
    }

    /// How many numbers a row of the left side has.
    pub fn depth(&self) -> usize {
        self.depth
    }

    /// How many columns the product has.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// How many groups of four a row has.
    pub(super) fn groups(&self) -> usize {
        self.depth.div_ceil(4)
    }

    /// How many panels there are.
    pub(super) fn panels(&self) -> usize {
        self.columns.div_ceil(self.set.width())
    }

    /// A panel: its bytes, and the scales and totals of its columns.
    pub(super) fn panel(&self, panel: usize) -> (&[i8], &[f32], &[i32]) {
        let width = self.set.width();
        let of_columns = panel * width..(panel + 1) * width;
        let numbers = of_columns.start * self.groups()..of_columns.end * self.groups();
        (
            bytemuck::cast_slice(&self.data[numbers]),
            &self.scales[of_columns.clone()],
            &self.totals[of_columns],
        )
    }
}

/// Rounds a column; gives its scale.
fn round(values: &[f32], integers: &mut [i8]) -> f32 {
    if !values.iter().all(|value| value.is_finite()) {
        integers.fill(0);
        return f32::NAN;
    }
    let greatest = values.iter().fold(0.0_f32, |greatest, value| greatest.max(value.abs()));
    if greatest < TINY {
        integers.fill(0);
        return 0.0;
    }
    let inverse = GREATEST / greatest;
    for (integer, value) in integers.iter_mut().zip(values) {
        *integer = (value * inverse).round_ties_even() as i8;
    }
    greatest / GREATEST
}
