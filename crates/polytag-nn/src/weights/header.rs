//! What a safetensors file says it holds, checked.
//!
//! The format: eight bytes of header length, a JSON object of tensors by name, then the values. Tensors
//! must lie end to end without gaps or overlaps, their shapes must fit their bytes, and the last one must
//! end where the file does.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};

/// The bytes before the header, which say how long it is.
pub(super) const LENGTH_BYTES: u64 = 8;

/// The longest header that is read: thousands of times what an encoder needs.
pub(super) const LONGEST_HEADER: u64 = 16 << 20;

/// What is known of a tensor in a file.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct TensorInfo {
    /// What it is made of, as the format calls it, such as `F32`.
    pub dtype: String,
    /// Its size in each direction.
    pub shape: Vec<usize>,
    /// Where its bytes begin and end, counted from the end of the header.
    #[serde(rename = "data_offsets")]
    pub(super) bytes: (u64, u64),
}

impl TensorInfo {
    /// How many values it has. Checked when the header was read.
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// Whether it has no values.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// How many bytes a value takes, for the types that are known.
fn value_bytes(dtype: &str) -> Option<u64> {
    match dtype {
        "BOOL" | "U8" | "I8" | "F8_E4M3" | "F8_E5M2" => Some(1),
        "U16" | "I16" | "F16" | "BF16" => Some(2),
        "U32" | "I32" | "F32" => Some(4),
        "U64" | "I64" | "F64" => Some(8),
        _ => None,
    }
}

/// The tensors of a header, for a file with `data_bytes` bytes after it; or what is wrong with it.
pub(super) fn parse(json: &[u8], data_bytes: u64) -> Result<BTreeMap<String, TensorInfo>, String> {
    let Header(tensors) =
        serde_json::from_slice(json).map_err(|problem| format!("the header cannot be read: {problem}"))?;
    for (name, info) in &tensors {
        check_shape(name, info)?;
    }
    check_places(&tensors, data_bytes)?;
    Ok(tensors)
}

fn check_shape(name: &str, info: &TensorInfo) -> Result<(), String> {
    let (begin, end) = info.bytes;
    if begin > end {
        return Err(format!("tensor {name} ends at byte {end}, before it begins at {begin}"));
    }
    let count = info
        .shape
        .iter()
        .try_fold(1_usize, |product, &size| product.checked_mul(size))
        .and_then(|count| u64::try_from(count).ok());
    let needed = match (count, value_bytes(&info.dtype)) {
        (Some(_), None) => return Ok(()), // It can be skipped; reading it is refused.
        (Some(count), Some(bytes)) => count.checked_mul(bytes),
        (None, _) => None,
    };
    match needed {
        None => Err(format!("tensor {name} has a shape that no file can hold: {:?}", info.shape)),
        Some(needed) if needed != end - begin => Err(format!(
            "tensor {name} of {} {:?} takes {needed} bytes, but the header gives it {}",
            info.dtype,
            info.shape,
            end - begin
        )),
        Some(_) => Ok(()),
    }
}

fn check_places(tensors: &BTreeMap<String, TensorInfo>, data_bytes: u64) -> Result<(), String> {
    let mut places: Vec<_> = tensors.iter().map(|(name, info)| (info.bytes, name)).collect();
    places.sort_unstable();
    let mut expected = 0;
    for ((begin, end), name) in places {
        match begin.cmp(&expected) {
            std::cmp::Ordering::Less => {
                return Err(format!("tensor {name} begins at byte {begin}, inside the one before it"));
            }
            std::cmp::Ordering::Greater => {
                return Err(format!(
                    "bytes {expected} to {begin}, before tensor {name}, belong to no tensor"
                ));
            }
            std::cmp::Ordering::Equal => {}
        }
        if end > data_bytes {
            return Err(format!(
                "tensor {name} ends at byte {end}, but there are only {data_bytes}: the file is cut short"
            ));
        }
        expected = end;
    }
    if expected != data_bytes {
        return Err(format!("{} bytes after the last tensor belong to none", data_bytes - expected));
    }
    Ok(())
}

/// The header's object. Read by hand, because a map would keep the last of two tensors of one name and
/// say nothing.
struct Header(BTreeMap<String, TensorInfo>);

impl<'de> Deserialize<'de> for Header {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Header, D::Error> {
        struct Entries;

        impl<'de> Visitor<'de> for Entries {
            type Value = Header;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of tensors by name")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Header, A::Error> {
                use serde::de::Error as _;

                let mut tensors = BTreeMap::new();
                while let Some(name) = map.next_key::<String>()? {
                    if name == "__metadata__" {
                        map.next_value::<IgnoredAny>()?;
                        continue;
                    }
                    let info: TensorInfo = map
                        .next_value()
                        .map_err(|problem| A::Error::custom(format!("tensor {name}: {problem}")))?;
                    if tensors.contains_key(&name) {
                        return Err(A::Error::custom(format!("there are two tensors {name}")));
                    }
                    tensors.insert(name, info);
                }
                Ok(Header(tensors))
            }
        }

        deserializer.deserialize_map(Entries)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(json: &str, bytes: u64) -> String {
        parse(json.as_bytes(), bytes).unwrap_err()
    }

    #[test]
    fn tensors_lie_end_to_end() {
        let json = r#"{"__metadata__": {"format": "pt"},
            "b": {"dtype": "F32", "shape": [2], "data_offsets": [4, 12]},
            "empty": {"dtype": "F32", "shape": [0, 7], "data_offsets": [4, 4]},
            "a": {"dtype": "F16", "shape": [1, 2], "data_offsets": [0, 4]}}  "#;
        let tensors = parse(json.as_bytes(), 12).unwrap();
        assert_eq!(tensors["b"].bytes, (4, 12));
        assert_eq!((tensors["a"].len(), tensors["empty"].is_empty()), (2, true));
    }

    #[test]
    fn places_that_do_not_fit_are_named() {
        let two = |a: &str, b: &str| {
            format!(
                r#"{{"a": {{"dtype": "U8", "shape": [4], "data_offsets": {a}}},
                    "b": {{"dtype": "U8", "shape": [4], "data_offsets": {b}}}}}"#
            )
        };
        for (a, b, bytes, expected) in [
            ("[0, 4]", "[2, 6]", 6, "tensor b begins at byte 2, inside"),
            ("[0, 4]", "[0, 4]", 4, "tensor b begins at byte 0, inside"),
            ("[0, 4]", "[6, 10]", 10, "before tensor b, belong to no tensor"),
            ("[5, 9]", "[0, 4]", 9, "before tensor a, belong to no tensor"),
            ("[0, 4]", "[4, 8]", 7, "tensor b ends at byte 8, but there are only 7"),
            ("[0, 4]", "[4, 8]", 9, "1 bytes after the last tensor"),
            ("[4, 0]", "[4, 8]", 8, "tensor a ends at byte 0, before"),
            ("[0, 3]", "[3, 7]", 7, "tensor a of U8 [4] takes 4 bytes, but the header gives it 3"),
            ("[0, 18446744073709551615]", "[4, 8]", 8, "tensor a"),
            ("[-1, 3]", "[4, 8]", 8, "tensor a"),
        ] {
            let found = problem(&two(a, b), bytes);
            assert!(found.contains(expected), "{a} {b}: {found}");
        }
    }

    #[test]
    fn shapes_that_overflow_are_named() {
        for shape in ["[4294967296, 4294967296]", "[18446744073709551615, 2]", "[9223372036854775807]"] {
            let json = format!(r#"{{"a": {{"dtype": "F32", "shape": {shape}, "data_offsets": [0, 4]}}}}"#);
            let found = problem(&json, 4);
            assert!(found.contains("tensor a has a shape that no file can hold"), "{found}");
        }
        let json =
            r#"{"a": {"dtype": "F32", "shape": [0, 18446744073709551615, 2], "data_offsets": [0, 0]}}"#;
        assert_eq!(parse(json.as_bytes(), 0).unwrap()["a"].len(), 0);
    }

    #[test]
    fn two_of_a_name_and_bad_json_are_refused() {
        let entry = r#""a": {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]}"#;
        assert!(problem(&format!("{{{entry}, {entry}}}"), 4).contains("two tensors a"));
        for json in
            ["", "[]", "{", "{\"a\": 3}", "{\"a\": {\"dtype\": \"F32\"}}", "\u{0}", &"[".repeat(100_000)]
        {
            assert!(problem(json, 4).contains("the header cannot be read"), "{json:.20}");
        }
        assert!(problem(r#"{"weird": {"dtype": 7}}"#, 0).contains("tensor weird"));
    }
}
