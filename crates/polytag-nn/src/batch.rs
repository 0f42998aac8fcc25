//! Texts of a batch, packed: their tokens lie end to end, and no work is done on padding.

use std::sync::Arc;

use crate::cuda::{Buffer, Cuda};
use crate::device::Device;
use crate::error::Error;

/// How many rows of a sequence one block of the GPU's attention works on.
const TILE: usize = 64;

/// The longest sequence that one block of the GPU's attention can hold whole on the way back.
const SHORT: u32 = 128;

/// No vocabulary is larger than this.
const MOST_VALUES: u32 = 1 << 24;

/// The longest sequence that attention takes.
pub const LONGEST: usize = 512;

/// Token sequences end to end. Clones are the same batch: ops keep one for their way back.
#[derive(Clone)]
pub struct Batch {
    packed: Arc<Packed>,
}

struct Packed {
    ids: Vec<u32>,
    positions: Vec<u32>,
    offsets: Vec<u32>,
    on_gpu: Option<OnGpu>,
}

/// The same on a GPU, in one piece of memory; each part's place in it, in bytes.
struct OnGpu {
    memory: Buffer,
    positions: u64,
    offsets: u64,
    tiles: Tiles,
    by_id: Occurrences,
    by_position: Occurrences,
}

/// How attention is cut into blocks on the GPU.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tiles {
    /// Where the tiles lie: pairs of a sequence and its first row in the tile, those of long sequences
    /// first.
    pub(crate) all: u64,
    /// How many tiles.
    pub(crate) count: usize,
    /// How many of them are of long sequences.
    pub(crate) long: usize,
    /// The sequences of which a block takes all.
    pub(crate) short_sequences: Sequences,
    /// The others, the longest first.
    pub(crate) long_sequences: Sequences,
}

/// Numbers of sequences, on the GPU.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sequences {
    /// Where they lie.
    pub(crate) address: u64,
    /// How many they are.
    pub(crate) count: usize,
}

/// Which tokens have a value (a word or a position): for the sums of embedding gradients, which are
/// made in a fixed order.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Occurrences {
    /// How many values occur.
    pub(crate) count: usize,
    /// Where the values lie.
    pub(crate) values: u64,
    /// Where the first of each value's tokens stands among `tokens`; one more at the end.
    pub(crate) starts: u64,
    /// Where the tokens lie, grouped by value.
    pub(crate) tokens: u64,
}

impl Batch {
    /// Packs sequences of token ids. The first token of each stands at `first_position`; see
    /// [`Batch::counting_past`] for encoders that count otherwise.
    ///
    /// # Errors
    /// If a sequence is empty or longer than [`LONGEST`].
    pub fn new<'a>(
        device: &Device,
        sequences: impl IntoIterator<Item = &'a [u32]>,
        first_position: u32,
    ) -> Result<Batch, Error> {
        Batch::pack(device, sequences, |sequence, positions| {
            positions.extend((0..sequence.len() as u32).map(|position| position + first_position));
        })
    }

    /// Packs sequences of token ids whose positions are counted as RoBERTa and MPNet do: from one past
    /// `padding`, each padding token in the text standing at `padding` itself and not being counted.
    ///
    /// # Errors
    /// If a sequence is empty or longer than [`LONGEST`].
    pub fn counting_past<'a>(
        device: &Device,
        sequences: impl IntoIterator<Item = &'a [u32]>,
        padding: u32,
    ) -> Result<Batch, Error> {
        Batch::pack(device, sequences, |sequence, positions| {
            let mut last = padding;
            positions.extend(sequence.iter().map(|&id| {
                let counts = id != padding;
                last += u32::from(counts);
                if counts { last } else { padding }
            }));
        })
    }

    fn pack<'a>(
        device: &Device,
        sequences: impl IntoIterator<Item = &'a [u32]>,
        place: impl Fn(&[u32], &mut Vec<u32>),
    ) -> Result<Batch, Error> {
        let (mut ids, mut positions, mut offsets) = (Vec::new(), Vec::new(), vec![0]);
        for sequence in sequences {
            if sequence.is_empty() || sequence.len() > LONGEST {
                let length = sequence.len();
                return Err(Error::Unfit(format!(
                    "a sequence has {length} tokens; 1 to {LONGEST} are possible"
                )));
            }
            if let Some(id) = sequence.iter().find(|&&id| id >= MOST_VALUES) {
                return Err(Error::Unfit(format!("there is no token {id} in any vocabulary")));
            }
            ids.extend_from_slice(sequence);
            place(sequence, &mut positions);
            offsets.push(ids.len() as u32);
        }
        let mut packed = Packed { ids, positions, offsets, on_gpu: None };
        if let Device::Cuda(cuda) = device {
            packed.on_gpu = Some(packed.upload(cuda)?);
        }
        Ok(Batch { packed: Arc::new(packed) })
    }

    /// The same batch for another device.
    pub fn on(&self, device: &Device) -> Result<Batch, Error> {
        let Packed { ids, positions, offsets, .. } = &*self.packed;
        let (ids, positions, offsets) = (ids.clone(), positions.clone(), offsets.clone());
        let mut packed = Packed { ids, positions, offsets, on_gpu: None };
        if let Device::Cuda(cuda) = device {
            packed.on_gpu = Some(packed.upload(cuda)?);
        }
        Ok(Batch { packed: Arc::new(packed) })
    }

    /// How many sequences.
    pub fn len(&self) -> usize {
        self.offsets().len() - 1
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many tokens in all.
    pub fn tokens(&self) -> usize {
        self.ids().len()
    }

    /// The tokens.
    pub fn ids(&self) -> &[u32] {
        &self.packed.ids
    }

    /// The place of each token in its sequence, plus the first position.
    pub fn positions(&self) -> &[u32] {
        &self.packed.positions
    }

    /// Where each sequence begins; one more at the end.
    pub fn offsets(&self) -> &[u32] {
        &self.packed.offsets
    }

    /// Where the GPU has the tokens.
    pub(crate) fn ids_address(&self) -> u64 {
        self.on_gpu().memory.pointer()
    }

    /// Where the GPU has the positions.
    pub(crate) fn positions_address(&self) -> u64 {
        self.on_gpu().positions
    }

    /// Where the GPU has the offsets.
    pub(crate) fn offsets_address(&self) -> u64 {
        self.on_gpu().offsets
    }

    /// How attention is cut into blocks on the GPU.
    pub(crate) fn tiles(&self) -> Tiles {
        self.on_gpu().tiles
    }

    /// Which tokens have which id, on the GPU.
    pub(crate) fn by_id(&self) -> Occurrences {
        self.on_gpu().by_id
    }

    /// Which tokens have which position, on the GPU.
    pub(crate) fn by_position(&self) -> Occurrences {
        self.on_gpu().by_position
    }

    fn on_gpu(&self) -> &OnGpu {
        self.packed.on_gpu.as_ref().expect("a batch made for a GPU is asked for its memory")
    }
}

impl Packed {
    fn upload(&self, cuda: &Cuda) -> Result<OnGpu, Error> {
        let mut all = self.ids.clone();
        let mut append = |part: &[u32]| {
            let place = 4 * all.len() as u64;
            all.extend_from_slice(part);
            place
        };
        let positions = append(&self.positions);
        let offsets = append(&self.offsets);
        let TileList { tiles, long, short_sequences, long_sequences } = self.tile_list();
        // Pairs are read as one word of eight bytes.
        if !(self.ids.len() + self.positions.len() + self.offsets.len()).is_multiple_of(2) {
            append(&[0]);
        }
        let tiles_at = append(&tiles);
        let [short_sequences, long_sequences] = [short_sequences, long_sequences]
            .map(|sequences| Sequences { address: append(&sequences), count: sequences.len() });
        let mut groups = [&self.ids, &self.positions].map(|values| {
            let (values, starts, tokens) = occurrences(values);
            let count = values.len();
            Occurrences { count, values: append(&values), starts: append(&starts), tokens: append(&tokens) }
        });
        let memory = Buffer::upload(cuda, &all)?;
        let base = memory.pointer();
        for group in &mut groups {
            group.values += base;
            group.starts += base;
            group.tokens += base;
        }
        let [by_id, by_position] = groups;
        Ok(OnGpu {
            positions: base + positions,
            offsets: base + offsets,
            tiles: Tiles {
                all: base + tiles_at,
                count: tiles.len() / 2,
                long,
                short_sequences: short_sequences.at(base),
                long_sequences: long_sequences.at(base),
            },
            by_id,
            by_position,
            memory,
        })
    }

    fn tile_list(&self) -> TileList {
        let lengths = self.offsets.windows(2).map(|ends| ends[1] - ends[0]);
        let (mut long, short): (Vec<_>, Vec<_>) =
            (0u32..).zip(lengths).partition(|&(_, length)| length > SHORT);
        let tiles = |sequences: &[(u32, u32)]| -> Vec<u32> {
            let rows = |&(sequence, length): &(u32, u32)| {
                (0..length).step_by(TILE).flat_map(move |row| [sequence, row])
            };
            sequences.iter().flat_map(rows).collect()
        };
        let mut all = tiles(&long);
        let long_tiles = all.len() / 2;
        all.extend(tiles(&short));
        long.sort_by_key(|&(_, length)| std::cmp::Reverse(length));
        let numbers = |sequences: &[(u32, u32)]| sequences.iter().map(|&(sequence, _)| sequence).collect();
        TileList {
            tiles: all,
            long: long_tiles,
            short_sequences: numbers(&short),
            long_sequences: numbers(&long),
        }
    }
}

/// What of [`Tiles`] is to be brought to the GPU.
#[derive(Debug, PartialEq)]
struct TileList {
    /// Pairs of a sequence and the first row of a tile in it, those of long sequences first.
    tiles: Vec<u32>,
    /// How many of those are of long sequences.
    long: usize,
    short_sequences: Vec<u32>,
    /// The longest first.
    long_sequences: Vec<u32>,
}

impl Sequences {
    fn at(self, base: u64) -> Sequences {
        Sequences { address: base + self.address, ..self }
    }
}

/// The different values, where each one's places start, and the places grouped by value. Counted, not
/// sorted: a device that waits for the next batch waits for this.
fn occurrences(values: &[u32]) -> (Vec<u32>, Vec<u32>, Vec<u32>) {
    let range = values.iter().max().map_or(0, |&most| most as usize + 1);
    let mut next = vec![0u32; range];
    for &value in values {
        next[value as usize] += 1;
    }
    let (mut distinct, mut starts, mut start) = (Vec::new(), Vec::new(), 0);
    for (value, next) in next.iter_mut().enumerate().filter(|(_, count)| **count > 0) {
        distinct.push(value as u32);
        starts.push(start);
        start += std::mem::replace(next, start);
    }
    starts.push(start);
    let mut places = vec![0; values.len()];
    for (place, &value) in values.iter().enumerate() {
        places[next[value as usize] as usize] = place as u32;
        next[value as usize] += 1;
    }
    (distinct, starts, places)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequences_lie_end_to_end() {
        let batch = Batch::new(&Device::cpu(), [&[5, 6, 7][..], &[8][..]], 2).unwrap();
        assert_eq!((batch.len(), batch.tokens()), (2, 4));
        assert_eq!(batch.offsets(), [0, 3, 4]);
        assert_eq!(batch.positions(), [2, 3, 4, 2]);
        let (long, longer) = (vec![1; 130], vec![1; 193]);
        let batch = Batch::new(&Device::cpu(), [&[1][..], &long, &longer], 0).unwrap();
        let expected = TileList {
            tiles: vec![1, 0, 1, 64, 1, 128, 2, 0, 2, 64, 2, 128, 2, 192, 0, 0],
            long: 7,
            short_sequences: vec![0],
            long_sequences: vec![2, 1],
        };
        assert_eq!(batch.packed.tile_list(), expected, "long sequences come first");
    }

    #[test]
    fn padding_in_a_text_is_not_counted() {
        let batch = Batch::counting_past(&Device::cpu(), [&[0, 7, 1, 8, 1, 2][..], &[0, 2][..]], 1).unwrap();
        assert_eq!(batch.positions(), [2, 3, 1, 4, 1, 5, 2, 3]);
    }

    #[test]
    fn sequences_that_attention_cannot_take_are_refused() {
        assert!(Batch::new(&Device::cpu(), [&[][..]], 0).is_err());
        assert!(Batch::new(&Device::cpu(), [&[u32::MAX][..]], 0).is_err());
        let error = Batch::new(&Device::cpu(), [&vec![1; 513][..]], 0).err().unwrap().to_string();
        assert!(error.contains("513"), "{error}");
    }

    #[test]
    fn tokens_are_grouped_by_value_in_order() {
        let (values, starts, tokens) = occurrences(&[7, 3, 7, 7, 3]);
        assert_eq!((values, starts, tokens), (vec![3, 7], vec![0, 2, 5], vec![1, 4, 0, 2, 3]));
    }
}
