//! A Parquet file of one column of texts, without gaps: pages of numbers into a dictionary, of texts as they are, or
//! first these and then those, plain or packed with Snappy.

use super::thrift::{Struct, byte, take, varint};

/// More texts than any list of words has.
const MOST: u64 = 1 << 26;

/// No page is larger once it is unpacked.
const LARGEST_PAGE: usize = 1 << 28;

/// What the format calls things by number.
const BYTES: i64 = 6;
const OPTIONAL: i64 = 1;
const SNAPPY: i64 = 1;
const DATA_PAGE: i64 = 0;
const DICTIONARY_PAGE: i64 = 2;
const PLAIN: i64 = 0;
const OLD_DICTIONARY: i64 = 2;
const DICTIONARY: i64 = 8;

/// Calls `each` with the texts of the only column, in order, until it has an objection.
pub(super) fn each_string(
    file: &[u8],
    mut each: impl FnMut(&str) -> Result<(), String>,
) -> Result<(), String> {
    let body = file.strip_suffix(b"PAR1").filter(|_| file.starts_with(b"PAR1"));
    let (body, length) =
        body.and_then(|body| body.split_last_chunk::<4>()).ok_or("it is not a Parquet file")?;
    let start = body.len().checked_sub(u32::from_le_bytes(*length) as usize).ok_or("it is cut short")?;
    let about = Struct::read(&mut &body[start..])?;
    let schema = about.structs(2);
    let &[_, leaf] = &schema[..] else { return Err("it has other than one column".to_owned()) };
    if leaf.int(1) != Some(BYTES) {
        return Err("its column is not of texts".to_owned());
    }
    let has_gaps = leaf.int(3) == Some(OPTIONAL);
    for group in about.structs(4) {
        let columns = group.structs(1);
        let chunk = columns.first().and_then(|column| column.inner(3)).ok_or("a column is missing")?;
        let number = |field: i16| chunk.int(field).and_then(|number| u64::try_from(number).ok());
        let total = number(5).filter(|total| *total <= MOST).ok_or("its length makes no sense")?;
        let start = number(11).or(number(9)).and_then(|start| body.get(usize::try_from(start).ok()?..));
        let pages = start.ok_or("a page is out of its bounds")?;
        let mut column = Column { pages, codec: chunk.int(4), has_gaps, dictionary: Vec::new() };
        let mut left = total;
        while left > 0 {
            let came = column.read_page(left, &mut each)?;
            left -= came;
        }
    }
    Ok(())
}

/// A column being read.
struct Column<'a> {
    /// The pages that are left.
    pages: &'a [u8],
    codec: Option<i64>,
    has_gaps: bool,
    dictionary: Vec<String>,
}

impl Column<'_> {
    /// Reads the next page, which has at most `left` texts; gives how many it had.
    fn read_page(
        &mut self,
        left: u64,
        each: &mut impl FnMut(&str) -> Result<(), String>,
    ) -> Result<u64, String> {
        let header = Struct::read(&mut self.pages)?;
        let size = |field: i16| header.int(field).and_then(|size| u64::try_from(size).ok());
        let (unpacked, packed) = size(2).zip(size(3)).ok_or("a page has no size")?;
        let page = take(&mut self.pages, packed)?;
        let page = self.unpack(page, unpacked)?;
        let count = |about: &Struct| about.int(1).and_then(|count| u64::try_from(count).ok());
        match (header.int(1), header.inner(5), header.inner(7)) {
            (Some(DICTIONARY_PAGE), _, Some(about)) if self.dictionary.is_empty() => {
                let mut rest = &page[..];
                for _ in 0..count(about).ok_or("a dictionary has no length")? {
                    let text = text(&mut rest)?.to_owned();
                    self.dictionary.push(text);
                }
                Ok(0)
            }
            (Some(DATA_PAGE), Some(about), _) => {
                let count = count(about).filter(|count| (1..=left).contains(count));
                let count = count.ok_or("a page has too few texts or too many")?;
                self.read_texts(&page, (count, about.int(2)), each)?;
                Ok(count)
            }
            _ => Err("it has a page of an unknown kind".to_owned()),
        }
    }

    fn unpack(&self, page: &[u8], size: u64) -> Result<Vec<u8>, String> {
        let size =
            usize::try_from(size).ok().filter(|size| *size <= LARGEST_PAGE).ok_or("a page is too large")?;
        let page = match self.codec {
            Some(0) => page.to_vec(),
            // The size is in the packed bytes, too, and is what would be believed.
            Some(SNAPPY) if snap::raw::decompress_len(page).is_ok_and(|length| length == size) => {
                snap::raw::Decoder::new().decompress_vec(page).map_err(|error| error.to_string())?
            }
            Some(SNAPPY) => return Err("a page has another size than it says".to_owned()),
            _ => return Err("its pages are packed in an unknown way".to_owned()),
        };
        if page.len() == size { Ok(page) } else { Err("a page has another size than it says".to_owned()) }
    }

    /// Reads the texts of a page: `count`, in this encoding.
    fn read_texts(
        &self,
        mut page: &[u8],
        (count, encoding): (u64, Option<i64>),
        each: &mut impl FnMut(&str) -> Result<(), String>,
    ) -> Result<(), String> {
        let page = &mut page;
        if self.has_gaps {
            let length = length(page)?;
            // A one for each text that is there.
            each_number(take(page, length)?, 1, count, |there| match there {
                1 => Ok(()),
                _ => Err("a text is missing".to_owned()),
            })?;
        }
        match encoding {
            Some(PLAIN) => (0..count).try_for_each(|_| each(text(page)?)),
            Some(DICTIONARY | OLD_DICTIONARY) => {
                let bits = u32::from(byte(page)?);
                each_number(page, bits, count, |number| {
                    let word = self.dictionary.get(number as usize);
                    each(word.ok_or("a text is not in the dictionary")?)
                })
            }
            _ => Err("its texts are written in an unknown way".to_owned()),
        }
    }
}

/// The length before a text or a list.
fn length(input: &mut &[u8]) -> Result<u64, String> {
    let bytes = take(input, 4)?;
    Ok(bytes.iter().rev().fold(0, |length, &byte| length << 8 | u64::from(byte)))
}

/// A text with its length before it.
fn text<'a>(input: &mut &'a [u8]) -> Result<&'a str, String> {
    let length = length(input)?;
    std::str::from_utf8(take(input, length)?).map_err(|error| error.to_string())
}

/// Calls `each` with the first `count` numbers of so many bits, which lie in runs of one value and in groups of eight
/// that are packed bit by bit.
fn each_number(
    mut input: &[u8],
    bits: u32,
    count: u64,
    mut each: impl FnMut(u32) -> Result<(), String>,
) -> Result<(), String> {
    if bits > 32 {
        return Err("it has numbers of too many bits".to_owned());
    }
    let mut left = count;
    while left > 0 {
        let head = varint(&mut input)?;
        if head & 1 == 0 {
            let bytes = take(&mut input, u64::from(bits.div_ceil(8)))?;
            let value = bytes.iter().rev().fold(0, |value, &byte| value << 8 | u32::from(byte));
            let run = (head >> 1).min(left);
            (0..run).try_for_each(|_| each(value))?;
            left -= run;
        } else {
            let packed = take(&mut input, (head >> 1).saturating_mul(u64::from(bits)))?;
            let held = (head >> 1).saturating_mul(8).min(left);
            (0..held).try_for_each(|place| each(bits_at(packed, place as usize * bits as usize, bits)))?;
            left -= held;
        }
    }
    Ok(())
}

/// The number in the bits from `place` on, the lowest first.
fn bits_at(bytes: &[u8], place: usize, bits: u32) -> u32 {
    let bit = |offset: u32| {
        let place = place + offset as usize;
        u32::from(bytes[place / 8] >> (place % 8) & 1) << offset
    };
    (0..bits).map(bit).sum()
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::*;
    use proptest::prelude::*;

    fn strings(file: &[u8]) -> Result<Vec<String>, String> {
        let mut strings = Vec::new();
        each_string(file, |text| {
            strings.push(text.to_owned());
            Ok(())
        })?;
        Ok(strings)
    }

    #[test]
    fn texts_come_out_in_order_whichever_way_they_are_written() {
        let first = ["the", "tea", "trade", "Größe", "日", "bee", "honey", "rail"].map(str::to_owned);
        let expected: Vec<String> =
            first.into_iter().chain((0..292).map(|number| format!("word{number}"))).collect();
        assert_eq!(strings(sample::WORDS).unwrap(), expected);
        assert_eq!(strings(sample::PLAIN).unwrap(), expected);
    }

    #[test]
    fn gaps_objections_and_other_files_are_errors() {
        assert_eq!(strings(sample::BAD).unwrap_err(), "a text is missing");
        assert_eq!(each_string(sample::PLAIN, |_| Err("no".to_owned())).unwrap_err(), "no");
        assert!(strings(sample::ROWS).unwrap_err().contains("not a Parquet file"));
        assert!(strings(b"PAR1").unwrap_err().contains("not a Parquet file"));
        assert!(strings(b"PAR1\xff\xff\xff\xffPAR1").unwrap_err().contains("cut short"));
    }

    #[test]
    fn numbers_lie_in_runs_and_in_groups() {
        let read = |bytes: &[u8], bits, count| {
            let mut numbers = Vec::new();
            each_number(bytes, bits, count, |number| {
                numbers.push(number);
                Ok(())
            })
            .map(|()| numbers)
        };
        // Three fives; then 0 to 7 in three bits each, as the format's own example has it.
        let bytes = [6, 5, 3, 0b1000_1000, 0b1100_0110, 0b1111_1010];
        assert_eq!(read(&bytes, 3, 11).unwrap(), [5, 5, 5, 0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(read(&bytes, 3, 5).unwrap(), [5, 5, 5, 0, 1]);
        assert_eq!(read(&[6], 0, 3).unwrap(), [0, 0, 0]);
        for (bytes, bits) in [(&[][..], 1), (&[0], 33), (&[0; 9], 8), (&[255, 1], 8)] {
            assert!(read(bytes, bits, 12).is_err(), "{bytes:?}");
        }
    }

    proptest! {
        #[test]
        fn no_damage_makes_a_panic(
            place in any::<prop::sample::Index>(), value in any::<u8>(), cut in any::<prop::sample::Index>(), whole: bool,
        ) {
            for file in [sample::WORDS, sample::PLAIN, sample::BAD] {
                let mut bytes = file.to_vec();
                bytes[place.index(file.len())] = value;
                if !whole {
                    bytes.drain(cut.index(file.len())..);
                    bytes.extend_from_slice(&file[file.len() - 8..]);
                }
                drop(strings(&bytes));
            }
        }
    }
}
