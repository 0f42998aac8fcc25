//! Which examples a step sees: a function of the seed and the step, so that a run that was broken
//! off goes on with the very next examples.

use crate::random::Key;

/// The order in which examples are gone through: another one in every epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    examples: usize,
    key: Key,
}

impl Order {
    /// An order of `examples` examples.
    ///
    /// # Panics
    /// If there are none.
    pub fn new(examples: usize, seed: u64) -> Order {
        assert!(examples > 0, "there is something to train on");
        Order { examples, key: Key::new(seed).part(0x6f72_6465) }
    }

    /// How many steps of `batch` examples an epoch has; the last one may run into the next epoch.
    ///
    /// # Panics
    /// If a batch has none.
    pub fn steps_per_epoch(&self, batch: usize) -> u64 {
        (self.examples as u64).div_ceil(batch as u64)
    }

    /// The examples from the `first`-th of the whole training on, `count` of them.
    pub fn examples(&self, first: u64, count: usize) -> Vec<usize> {
        let mut chosen = Vec::with_capacity(count);
        let mut next = first;
        while chosen.len() < count {
            let (epoch, place) = (next / self.examples as u64, (next % self.examples as u64) as usize);
            let taken = (count - chosen.len()).min(self.examples - place);
            let shuffle = Shuffle::new(self.examples as u64, self.key.part(epoch));
            chosen.extend((place..place + taken).map(|place| shuffle.at(place as u64) as usize));
            next += taken as u64;
        }
        chosen
    }
}

/// A shuffle that is looked up place by place, without a table: a Feistel network over the next
/// power of four, walked until it lands inside.
struct Shuffle {
    length: u64,
    half_bits: u32,
    key: Key,
}

impl Shuffle {
    const ROUNDS: u32 = 6;

    fn new(length: u64, key: Key) -> Shuffle {
        let bits = u64::BITS - length.saturating_sub(1).leading_zeros();
        Shuffle { length, half_bits: bits.div_ceil(2).max(1), key }
    }

    fn at(&self, place: u64) -> u64 {
        let mut value = self.mixed(place);
        // The network permutes a range at most four times as long, so this ends after few rounds.
        while value >= self.length {
            value = self.mixed(value);
        }
        value
    }

    fn mixed(&self, value: u64) -> u64 {
        let mask = (1 << self.half_bits) - 1;
        let (mut left, mut right) = (value >> self.half_bits, value & mask);
        for round in 0..Shuffle::ROUNDS {
            let noise = u64::from(self.key.bits(right as u32, round ^ (right >> 32) as u32)) & mask;
            (left, right) = (right, left ^ noise);
        }
        left << self.half_bits | right
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_epoch_sees_every_example_once() {
        for examples in [1, 2, 3, 10, 257, 1000] {
            let order = Order::new(examples, 5);
            for epoch in 0..3 {
                let mut seen = order.examples(epoch * examples as u64, examples);
                seen.sort_unstable();
                assert_eq!(seen, (0..examples).collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn steps_join_up_whatever_their_size() {
        let order = Order::new(100, 1);
        let whole = order.examples(0, 250);
        let parts: Vec<usize> = (0..10).flat_map(|step| order.examples(step * 25, 25)).collect();
        assert_eq!(whole, parts);
        assert_ne!(whole[..100], whole[100..200], "epochs differ");
        assert_ne!(whole[..50], (0..50).collect::<Vec<_>>()[..], "it is shuffled");
        assert_ne!(order.examples(0, 20), Order::new(100, 2).examples(0, 20), "seeds differ");
    }
}
