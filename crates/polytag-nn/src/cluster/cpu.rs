//! The CPU's part: threads take blocks of rows, and each goes through all centres, chunk by chunk.

use rayon::prelude::*;

use super::groups::Groups;
use super::points::Points;
use super::work::{Chunks, Compared, Worker};
use crate::cpu::{Packed, Scratch, Then, View, first_greatest, multiply_alone};
use crate::error::Error;

/// The CPU at work.
pub(super) struct CpuWorker<'a> {
    points: &'a Points<'a>,
    chunks: Chunks,
}

impl<'a> CpuWorker<'a> {
    /// For these rows.
    pub(super) fn new(points: &'a Points<'a>, chunks: Chunks) -> CpuWorker<'a> {
        CpuWorker { points, chunks }
    }
}

/// A chunk of centres, laid out for products.
struct Chunk<'a> {
    first: u32,
    centres: Packed,
    offsets: &'a [f32],
}

impl Worker for CpuWorker<'_> {
    fn assign(&mut self, compared: &Compared, nearest: &mut [u32]) -> Result<(), Error> {
        let (dimension, Chunks { rows, clusters }) = (self.points.dimension(), self.chunks);
        let centres = compared.centres.chunks(clusters * dimension).zip(compared.offsets.chunks(clusters));
        let chunks: Vec<Chunk<'_>> = (0..)
            .step_by(clusters)
            .zip(centres)
            .map(|(first, (centres, offsets))| {
                let view = View::new(centres, offsets.len(), dimension).transposed();
                Chunk { first, centres: Packed::new(view), offsets }
            })
            .collect();
        let blocks = nearest.par_chunks_mut(rows).zip(self.points.values().par_chunks(rows * dimension));
        blocks.for_each(|(nearest, rows)| {
            assign_block(View::new(rows, nearest.len(), dimension), &chunks, nearest);
        });
        Ok(())
    }

    fn means(&mut self, groups: &Groups, centres: &mut [f32]) -> Result<(), Error> {
        let dimension = self.points.dimension();
        let means = centres.par_chunks_mut(dimension).zip(groups.starts.par_windows(2));
        means.for_each_init(
            || vec![0.0_f64; dimension],
            |sums, (centre, ends)| {
                let members = &groups.members[ends[0] as usize..ends[1] as usize];
                if members.is_empty() {
                    return;
                }
                sums.fill(0.0);
                for &row in members {
                    for (sum, &x) in sums.iter_mut().zip(self.points.row(row as usize)) {
                        *sum += f64::from(x);
                    }
                }
                for (centre, sum) in centre.iter_mut().zip(sums) {
                    *centre = (*sum / members.len() as f64) as f32;
                }
            },
        );
        Ok(())
    }
}

/// Compares a block of rows with all centres.
fn assign_block(rows: View<'_>, chunks: &[Chunk<'_>], nearest: &mut [u32]) {
    let mut best = vec![f32::NEG_INFINITY; nearest.len()];
    for chunk in chunks {
        let columns = chunk.offsets.len();
        let mut scores = Scratch::new(rows.rows() * columns);
        multiply_alone(rows, &chunk.centres, &mut scores, Then::Bias(chunk.offsets));
        for ((nearest, best), scores) in nearest.iter_mut().zip(&mut best).zip(scores.chunks(columns)) {
            let (place, greatest) = first_greatest(scores);
            // Of equal scores the first remains.
            if greatest > *best {
                (*nearest, *best) = (chunk.first + place as u32, greatest);
            }
        }
    }
}
