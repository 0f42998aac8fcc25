//! Thrift's compact protocol, in which Parquet describes itself: structs of numbered fields.

use std::collections::BTreeMap;

/// No description in a Parquet file has structs and lists in each other this deep.
const DEEPEST: usize = 16;

/// The fields of a struct by their numbers.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Struct(BTreeMap<i16, Value>);

/// What a field can be. Texts, numbers with a point and flags are read over: nobody here asks for them.
#[derive(Debug, PartialEq)]
enum Value {
    Int(i64),
    List(Vec<Value>),
    Struct(Struct),
    Other,
}

impl Struct {
    /// Reads a struct from the front of `input`, which then begins behind it.
    pub(super) fn read(input: &mut &[u8]) -> Result<Struct, String> {
        read_struct(input, 0)
    }

    /// The whole number in a field.
    pub(super) fn int(&self, field: i16) -> Option<i64> {
        match self.0.get(&field) {
            Some(Value::Int(value)) => Some(*value),
            _ => None,
        }
    }

    /// The struct in a field.
    pub(super) fn inner(&self, field: i16) -> Option<&Struct> {
        match self.0.get(&field) {
            Some(Value::Struct(inner)) => Some(inner),
            _ => None,
        }
    }

    /// The structs in the list in a field.
    pub(super) fn structs(&self, field: i16) -> Vec<&Struct> {
        let Some(Value::List(values)) = self.0.get(&field) else { return Vec::new() };
        let inner = values.iter().filter_map(|value| match value {
            Value::Struct(inner) => Some(inner),
            _ => None,
        });
        inner.collect()
    }
}

fn read_struct(input: &mut &[u8], depth: usize) -> Result<Struct, String> {
    let mut fields = Struct::default();
    let mut number = 0_i16;
    loop {
        let head = byte(input)?;
        if head == 0 {
            return Ok(fields);
        }
        number = match head >> 4 {
            0 => zigzag(varint(input)?) as i16,
            step => number.wrapping_add(i16::from(step)),
        };
        // The kinds 1 and 2 are a flag's two values, with nothing behind them.
        let value = match head & 15 {
            1 | 2 => Value::Other,
            kind => read_value(input, kind, depth)?,
        };
        fields.0.insert(number, value);
    }
}

fn read_value(input: &mut &[u8], kind: u8, depth: usize) -> Result<Value, String> {
    if depth > DEEPEST {
        return Err("its description is too deep".to_owned());
    }
    Ok(match kind {
        // A flag in a list, and a number of one byte.
        1..=3 => {
            byte(input)?;
            Value::Other
        }
        4..=6 => Value::Int(zigzag(varint(input)?)),
        7 => {
            take(input, 8)?;
            Value::Other
        }
        8 => {
            let length = varint(input)?;
            take(input, length)?;
            Value::Other
        }
        9 | 10 => {
            let head = byte(input)?;
            let count = if head >> 4 == 15 { varint(input)? } else { u64::from(head >> 4) };
            let mut values = Vec::new();
            // Each takes a byte at least, so that a count that is a lie comes to an end.
            for _ in 0..count {
                values.push(read_value(input, head & 15, depth + 1)?);
            }
            Value::List(values)
        }
        12 => Value::Struct(read_struct(input, depth + 1)?),
        _ => return Err(format!("its description has a field of the unknown kind {kind}")),
    })
}

/// The first `count` bytes of the input, which then begins behind them.
pub(super) fn take<'a>(input: &mut &'a [u8], count: u64) -> Result<&'a [u8], String> {
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    let (taken, rest) = input.split_at_checked(count).ok_or("it is cut short")?;
    *input = rest;
    Ok(taken)
}

/// The next byte.
pub(super) fn byte(input: &mut &[u8]) -> Result<u8, String> {
    Ok(take(input, 1)?[0])
}

/// A whole number of seven bits a byte, the lowest first.
pub(super) fn varint(input: &mut &[u8]) -> Result<u64, String> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let next = byte(input)?;
        value |= u64::from(next & 127) << shift;
        if next < 128 {
            return Ok(value);
        }
    }
    Err("it has a number that does not end".to_owned())
}

/// A number with its sign in the lowest bit.
fn zigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn fields_of_every_kind_are_read_or_read_over() {
        // 1: -3; 2: true; 4: "ab"; 5: 1.0; 6: [{1: 300}, {}]; 40: {1: 1}; then one byte that is not part of it.
        let bytes = [
            0x15, 5, 0x11, 0x28, 2, b'a', b'b', 0x17, 0, 0, 0, 0, 0, 0, 240, 63, 0x19, 0x2c, 0x16, 216, 4, 0,
            0, 0x0c, 80, 0x15, 2, 0, 0, 9,
        ];
        let mut input = &bytes[..];
        let read = Struct::read(&mut input).unwrap();
        assert_eq!(input, [9]);
        assert_eq!((read.int(1), read.int(2), read.int(3)), (Some(-3), None, None));
        let listed: Vec<Option<i64>> = read.structs(6).iter().map(|inner| inner.int(1)).collect();
        assert_eq!(listed, [Some(300), None]);
        assert_eq!(read.inner(40).and_then(|inner| inner.int(1)), Some(1));
        assert!(read.inner(6).is_none() && read.structs(40).is_empty());
    }

    #[test]
    fn lies_come_to_an_end() {
        for (bytes, part) in [
            (&[0x15][..], "cut short"),
            (&[0x18, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1], "cut short"),
            (&[0x19, 0xfc, 255, 255, 255, 255, 15], "cut short"),
            (&[0x15, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255], "does not end"),
            (&[0x1c; 100], "too deep"),
            (&[0x19; 100], "too deep"),
            (&[0x1b, 0], "unknown kind 11"),
        ] {
            let error = Struct::read(&mut &bytes[..]).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_make_a_struct_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            drop(Struct::read(&mut &bytes[..]));
        }
    }
}
