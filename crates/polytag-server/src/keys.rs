//! Who may do what. Keys are long and random, and only their hashes are kept: whoever reads the settings cannot ask.

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// What a key opens. Each opens what the ones before it do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scope {
    /// Tagging, explaining, looking at labels.
    Read,
    /// Changing labels, and saying which fit.
    LabelWrite,
    /// Reading what people said, which holds their texts.
    Admin,
}

/// A key, as it is kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeyConfig {
    /// What it is called in the journal.
    pub name: String,
    /// The SHA-256 of the key, in hexadecimal.
    pub sha256: String,
    /// What it opens.
    pub scope: Scope,
}

impl KeyConfig {
    /// A new key that nobody can guess, and how it is kept.
    pub fn random(name: &str, scope: Scope) -> (String, KeyConfig) {
        let key = to_hex(&rand::random::<[u8; 32]>());
        let kept = KeyConfig::of(&key, name, scope);
        (key, kept)
    }

    /// How `key` is kept.
    pub fn of(key: &str, name: &str, scope: Scope) -> KeyConfig {
        let sha256 = to_hex(&Sha256::digest(key.as_bytes()));
        KeyConfig { name: name.to_owned(), sha256, scope }
    }
}

/// All keys that open something.
#[derive(Clone, Debug, Default)]
pub(crate) struct Keys(Vec<Key>);

#[derive(Clone, Debug)]
struct Key {
    name: String,
    digest: [u8; 32],
    scope: Scope,
}

impl Keys {
    /// Checks what was kept.
    pub(crate) fn new(kept: &[KeyConfig]) -> Result<Keys, String> {
        let key = |kept: &KeyConfig| {
            let digest = from_hex(&kept.sha256).ok_or_else(|| {
                format!(
                    "{:?} has a sha256 that is not 64 hexadecimal digits; `polytag serve-key` makes one",
                    kept.name
                )
            })?;
            Ok(Key { name: kept.name.clone(), digest, scope: kept.scope })
        };
        kept.iter().map(key).collect::<Result<_, String>>().map(Keys)
    }

    /// Whether everybody may ask.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The name of a key, and what it opens. How long this takes does not depend on how much of a key is right.
    pub(crate) fn find(&self, key: &str) -> Option<(&str, Scope)> {
        let asked: [u8; 32] = Sha256::digest(key.as_bytes()).into();
        let mut found = None;
        for key in &self.0 {
            let difference = key.digest.iter().zip(&asked).fold(0, |sum, (a, b)| sum | (a ^ b));
            if std::hint::black_box(difference) == 0 {
                found = Some((key.name.as_str(), key.scope));
            }
        }
        found
    }
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex(text: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    if text.len() != 64 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    for (place, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * place..2 * place + 2], 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_keys_open() {
        let kept =
            [KeyConfig::of("one", "reader", Scope::Read), KeyConfig::of("two", "editor", Scope::LabelWrite)];
        let keys = Keys::new(&kept).unwrap();
        assert_eq!(keys.find("two"), Some(("editor", Scope::LabelWrite)));
        assert_eq!(keys.find("one"), Some(("reader", Scope::Read)));
        for wrong in ["", "on", "onee", "One", &kept[0].sha256] {
            assert_eq!(keys.find(wrong), None, "{wrong:?}");
        }
        assert!(Scope::Read < Scope::LabelWrite && Scope::LabelWrite < Scope::Admin);
    }

    #[test]
    fn hashes_that_are_none_are_refused() {
        for bad in ["", "zz", &"é".repeat(32), &"+1".repeat(32)] {
            let kept = KeyConfig { name: "k".into(), sha256: bad.to_owned(), scope: Scope::Read };
            assert!(Keys::new(&[kept]).unwrap_err().contains("64 hexadecimal"), "{bad}");
        }
    }
}
