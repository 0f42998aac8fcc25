//! Random numbers without a state: a number is a function of a key and a place.
//!
//! Dropout asks for the same mask twice, forward and backward, on whichever device; initial weights
//! must not depend on the order in which they are made. So a number is looked up, not drawn. The
//! kernels in `random.cu` compute the very same bits.

/// What a stream of random numbers is a function of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    low: u32,
    high: u32,
}

impl Key {
    /// The key of `seed`.
    pub fn new(seed: u64) -> Key {
        let mixed = mix(seed);
        Key { low: mixed as u32, high: (mixed >> 32) as u32 }
    }

    /// A key of its own for a part of the work: a step, an op, a parameter.
    pub fn part(self, index: u64) -> Key {
        Key::new((u64::from(self.high) << 32 | u64::from(self.low)) ^ mix(index.wrapping_add(1)))
    }

    /// The two halves, as kernels take them.
    pub fn halves(self) -> (u32, u32) {
        (self.low, self.high)
    }

    /// Thirty-two random bits for a place in a matrix.
    #[inline(always)]
    pub fn bits(self, row: u32, column: u32) -> u32 {
        let mut x = row.wrapping_mul(0x9e37_79b1).wrapping_add(self.low);
        x ^= x >> 16;
        x = x.wrapping_mul(0x7feb_352d);
        x ^= column.wrapping_mul(0x85eb_ca6b).wrapping_add(self.high);
        x ^= x >> 15;
        x = x.wrapping_mul(0x846c_a68b);
        x ^= x >> 16;
        x = x.wrapping_mul(0x7feb_352d);
        x ^ (x >> 15)
    }

    /// A number from `[0, 1)` for a place in a matrix.
    #[inline(always)]
    pub fn uniform(self, row: u32, column: u32) -> f32 {
        (self.bits(row, column) >> 8) as f32 * (1.0 / 16_777_216.0)
    }

    /// A number of the standard normal distribution for a place in a matrix.
    pub fn normal(self, row: u32, column: u32) -> f32 {
        let first = 1.0 - f64::from(self.uniform(row, column));
        let second = f64::from(self.part(1).uniform(row, column));
        ((-2.0 * first.ln()).sqrt() * (2.0 * std::f64::consts::PI * second).cos()) as f32
    }

    /// A matrix of such numbers, row by row, with a deviation of 0.02: what BERT's classifiers begin with.
    pub fn small_normals(self, (rows, columns): (usize, usize)) -> Vec<f32> {
        let places = (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column)));
        places.map(|(row, column)| 0.02 * self.normal(row as u32, column as u32)).collect()
    }
}

/// Which values are dropped, and what the others are multiplied by.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dropout {
    /// What the mask is a function of, besides the place.
    pub key: Key,
    /// Bits below this drop the value.
    pub threshold: u32,
    /// What kept values are multiplied by, so that the mean stays.
    pub scale: f32,
}

impl Dropout {
    /// Drops each value with probability `rate`; `None` where nothing is dropped.
    ///
    /// # Panics
    /// If `rate` is not in `[0, 1)`; configurations are checked before they come here.
    pub fn new(rate: f32, key: Key) -> Option<Dropout> {
        assert!((0.0..1.0).contains(&rate), "a dropout rate lies in [0, 1)");
        let threshold = (f64::from(rate) * 4_294_967_296.0) as u32;
        (threshold > 0).then(|| Dropout { key, threshold, scale: 1.0 / (1.0 - rate) })
    }

    /// What the value at a place is multiplied by: zero or [`Dropout::scale`].
    #[inline(always)]
    pub fn factor(&self, row: u32, column: u32) -> f32 {
        if self.key.bits(row, column) < self.threshold { 0.0 } else { self.scale }
    }
}

/// Dropout that looks up one number for two columns: those whose places differ only in the bit worth eight.
///
/// Attention has more places than all other ops together, and finding the number is most of what dropping
/// costs. The tensor cores hand a thread columns eight apart, whichever way the matrix lies, so that both
/// places of a number are in the same thread. A place has fifteen bits of the number's low or high half: the
/// rate is a multiple of 1/32768, and the scale is that of the rounded rate, so that the mean stays.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PairedDropout {
    /// What the mask is a function of, besides the place.
    pub key: Key,
    /// Bits below this, of fifteen, drop the value.
    pub threshold: u32,
    /// What kept values are multiplied by.
    pub scale: f32,
}

impl PairedDropout {
    /// The greatest threshold. The kernels compare the bits as positive 16-bit floats: this is infinity, and
    /// what lies above is not a number. A rate is thus at most 31/32.
    const MOST: u32 = 0x7c00;

    /// The same rate, rounded; `None` where nothing is left to drop.
    pub fn new(dropout: Dropout) -> Option<PairedDropout> {
        let rounded = (u64::from(dropout.threshold) + (1 << 16)) >> 17;
        let threshold = PairedDropout::MOST.min(rounded as u32);
        let scale = (32_768.0 / f64::from(32_768 - threshold)) as f32;
        (threshold > 0).then_some(PairedDropout { key: dropout.key, threshold, scale })
    }

    /// What the value at a place is multiplied by: zero or [`PairedDropout::scale`].
    #[inline(always)]
    pub fn factor(&self, row: u32, column: u32) -> f32 {
        self.half_factor(self.key.bits(row, column & !8), column >> 3 & 1)
    }

    /// What the low (0) or high (1) half of a pair's number makes of its place.
    #[inline(always)]
    pub(crate) fn half_factor(&self, bits: u32, half: u32) -> f32 {
        if (bits >> (16 * half)) & 0x7fff < self.threshold { 0.0 } else { self.scale }
    }
}

fn mix(x: u64) -> u64 {
    let mut x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_always_has_the_same_number_and_keys_differ() {
        let key = Key::new(7);
        assert_eq!(key.bits(3, 4), Key::new(7).bits(3, 4));
        assert_ne!(key.bits(3, 4), key.bits(4, 3));
        assert_ne!(key.bits(3, 4), key.part(0).bits(3, 4));
        assert_ne!(key.part(0), key.part(1));
    }

    #[test]
    fn dropout_keeps_the_mean_and_neighbours_are_independent() {
        let dropout = Dropout::new(0.1, Key::new(1)).unwrap();
        let (rows, columns) = (400, 500);
        let (mut sum, mut both) = (0.0, 0);
        for row in 0..rows {
            for column in 0..columns {
                let factor = dropout.factor(row, column);
                sum += f64::from(factor);
                both += u32::from(factor == 0.0 && dropout.factor(row, column + 1) == 0.0);
            }
        }
        let places = f64::from(rows * columns);
        assert!((sum / places - 1.0).abs() < 0.005, "{}", sum / places);
        assert!((f64::from(both) / places - 0.01).abs() < 0.001, "{both}");
        assert!(Dropout::new(0.0, Key::new(1)).is_none());
    }

    #[test]
    fn paired_dropout_keeps_the_mean_and_partners_are_independent() {
        for rate in [0.1, 0.5, 0.01] {
            let dropout = PairedDropout::new(Dropout::new(rate, Key::new(1)).unwrap()).unwrap();
            let (rows, columns) = (2000, 512);
            let (mut sum, mut dropped, mut both) = (0.0, 0, [0; 2]);
            for row in 0..rows {
                for column in 0..columns {
                    let factor = dropout.factor(row, column);
                    sum += f64::from(factor);
                    dropped += u32::from(factor == 0.0);
                    for (both, other) in both.iter_mut().zip([column ^ 8, column ^ 1]) {
                        *both += u32::from(factor == 0.0 && dropout.factor(row, other) == 0.0);
                    }
                }
            }
            let (places, rate) = (f64::from(rows * columns), f64::from(rate));
            assert!((sum / places - 1.0).abs() < 0.005, "{}", sum / places);
            assert!((f64::from(dropped) / places - rate).abs() < 0.002, "{dropped}");
            for both in both {
                assert!((f64::from(both) / places - rate * rate).abs() < 0.002, "{both}");
            }
        }
    }

    #[test]
    fn a_paired_rate_is_rounded_and_bounded() {
        let paired = |rate| PairedDropout::new(Dropout::new(rate, Key::new(1)).unwrap());
        let tenth = paired(0.1).unwrap();
        assert_eq!((tenth.threshold, tenth.scale), (3277, 32_768.0 / (32_768.0 - 3277.0)));
        assert_eq!(paired(1e-6), None);
        assert_eq!(paired(0.999).unwrap().scale, 32.0);
    }

    #[test]
    fn normal_numbers_have_mean_zero_and_variance_one() {
        let key = Key::new(3);
        let values: Vec<f64> = (0..100_000).map(|i| f64::from(key.normal(i / 100, i % 100))).collect();
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / values.len() as f64;
        assert!(mean.abs() < 0.02 && (variance - 1.0).abs() < 0.02, "{mean} {variance}");
    }
}
