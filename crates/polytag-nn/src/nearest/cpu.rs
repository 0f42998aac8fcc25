//! Plain loops, to test with.

use super::{Near, Numbers};

/// Vectors in the memory of the program.
pub(super) struct CpuVectors {
    numbers: Vec<f32>,
    offsets: Vec<f32>,
}

impl CpuVectors {
    pub(super) fn new(vectors: Numbers<'_>, offsets: &[f32]) -> CpuVectors {
        let numbers = match vectors {
            Numbers::F32(numbers) => numbers.to_vec(),
            Numbers::F16(numbers) => numbers.iter().map(|number| number.to_f32()).collect(),
        };
        CpuVectors { numbers, offsets: offsets.to_vec() }
    }

    pub(super) fn hide(&mut self, position: usize) {
        self.offsets[position] = f32::NEG_INFINITY;
    }

    pub(super) fn best(
        &self,
        (queries, dimension): (&[f32], usize),
        most: usize,
        offsets: Option<&[f32]>,
    ) -> Vec<Vec<Near>> {
        let offsets = offsets.unwrap_or(&self.offsets);
        let of_query = |query: &[f32]| {
            let vectors = self.numbers.chunks_exact(dimension).zip(offsets).enumerate();
            let near = vectors.map(|(position, (vector, offset))| {
                let product = vector.iter().zip(query).map(|(a, b)| a * b).sum::<f32>();
                Near { position: position as u32, score: product + offset + 0.0 }
            });
            let mut near: Vec<Near> = near.filter(|near| near.score > f32::NEG_INFINITY).collect();
            near.sort_by(|a, b| b.score.total_cmp(&a.score).then(a.position.cmp(&b.position)));
            near.truncate(most);
            near
        };
        queries.chunks_exact(dimension).map(of_query).collect()
    }
}
