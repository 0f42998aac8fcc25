//! What an expert reads of a document, as a word: `cls@last`, `mean@6`, `cls@last10`, `labels@1`.

use std::fmt;
use std::str::FromStr;

use polytag_nn::op::Pooling;
use serde::{Deserialize, Serialize};

/// One judge of all labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Expert {
    /// How the tokens of a layer become what labels are compared with.
    pub reads: Reads,
    /// Of which layers.
    pub layers: Layers,
}

/// How tokens become what labels are compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reads {
    /// One vector for all labels.
    Pooled(Pooling),
    /// Each label looks for itself (paper 004, eq. 2 to 4).
    Labels,
}

/// Layers of an encoder; 0 is the embeddings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layers {
    /// One of them.
    Number(usize),
    /// So many at the end, or all where there are fewer: their vectors are joined.
    Last(usize),
}

impl Expert {
    /// The numbers of its layers in an encoder that has so many.
    pub(super) fn layers(self, of: usize) -> Result<Vec<usize>, String> {
        match self.layers {
            Layers::Number(number) if number > of => {
                Err(format!("experts: {self}: the encoder has {of} layers; say at most that"))
            }
            Layers::Number(number) => Ok(vec![number]),
            Layers::Last(count) => Ok(((of + 1).saturating_sub(count).max(1)..=of).collect()),
        }
    }
}

impl FromStr for Expert {
    type Err = String;

    fn from_str(word: &str) -> Result<Expert, String> {
        let unknown = || {
            format!(
                "`{word}` is no expert; say cls@LAYER, mean@LAYER or labels@LAYER, with a number, `last` or, for the \
                 last ones together, such as `last5`"
            )
        };
        let (reads, layers) = word.split_once('@').ok_or_else(unknown)?;
        let reads = match reads {
            "cls" => Reads::Pooled(Pooling::Cls),
            "mean" => Reads::Pooled(Pooling::Mean),
            "labels" => Reads::Labels,
            _ => return Err(unknown()),
        };
        let number = |text: &str| text.parse().map_err(|_| unknown());
        let layers = match layers.strip_prefix("last") {
            None => Layers::Number(number(layers)?),
            Some("") => Layers::Last(1),
            Some(count) => Layers::Last(number(count)?),
        };
        match (reads, layers) {
            (_, Layers::Last(0)) => Err(unknown()),
            (Reads::Labels, Layers::Last(2..)) => {
                Err(format!("`{word}`: labels look at one layer; say labels@last, or an expert for each"))
            }
            _ => Ok(Expert { reads, layers }),
        }
    }
}

impl fmt::Display for Expert {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reads = match self.reads {
            Reads::Pooled(Pooling::Cls) => "cls",
            Reads::Pooled(Pooling::Mean) => "mean",
            Reads::Labels => "labels",
        };
        match self.layers {
            Layers::Number(number) => write!(f, "{reads}@{number}"),
            Layers::Last(1) => write!(f, "{reads}@last"),
            Layers::Last(count) => write!(f, "{reads}@last{count}"),
        }
    }
}

impl TryFrom<String> for Expert {
    type Error = String;

    fn try_from(word: String) -> Result<Expert, String> {
        word.parse()
    }
}

impl From<Expert> for String {
    fn from(expert: Expert) -> String {
        expert.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn experts_are_words() {
        for word in ["cls@last", "mean@0", "cls@last10", "labels@1", "labels@last"] {
            assert_eq!(word.parse::<Expert>().unwrap().to_string(), word);
        }
        for (word, said) in [
            ("cls", "no expert"),
            ("max@1", "no expert"),
            ("cls@first", "no expert"),
            ("cls@last0", "no expert"),
            ("labels@last2", "one layer"),
        ] {
            assert!(word.parse::<Expert>().unwrap_err().contains(said), "{word}");
        }
    }

    #[test]
    fn layers_are_counted_from_the_first() {
        let layers = |word: &str| word.parse::<Expert>().unwrap().layers(6);
        assert_eq!(layers("cls@last").unwrap(), [6]);
        assert_eq!(layers("cls@last2").unwrap(), [5, 6]);
        assert_eq!(layers("cls@last10").unwrap(), [1, 2, 3, 4, 5, 6]);
        assert_eq!(layers("labels@0").unwrap(), [0]);
        assert!(layers("mean@7").unwrap_err().contains("6 layers"));
    }
}
