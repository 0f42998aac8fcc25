//! What of a label an encoder reads.

use std::collections::BTreeSet;

use polytag_nn::tokenizer::{Text, Tokenizer};
use serde::{Deserialize, Serialize};

use crate::data::{Changed, Label, LabelSpace, Passage};
use crate::ids::LabelId;

/// What of a label is made into its vector.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LabelText {
    /// Its name.
    Name,
    /// Its name and its aliases.
    Names,
    /// Its name, its aliases and its description.
    #[default]
    Full,
    /// The same, and the names of the labels it is narrower than.
    Broader,
}

impl LabelText {
    /// The title and the text that stand for a label.
    fn of(self, space: &LabelSpace, id: LabelId) -> (String, String) {
        let label = space.label(id);
        let mut text = Vec::new();
        if self != LabelText::Name {
            text.extend(label.aliases.iter().cloned());
        }
        if matches!(self, LabelText::Full | LabelText::Broader) {
            text.extend(label.description.clone());
        }
        if self == LabelText::Broader {
            text.extend(space.parents(id).map(|parent| space.label(parent).name.clone()));
        }
        (label.name.clone(), text.join("; "))
    }

    /// The labels whose texts are others after a change: those that are written, and where a label reads the
    /// names of broader ones those under what was written or removed.
    pub(super) fn rewritten(self, space: &LabelSpace, changed: &Changed) -> Vec<LabelId> {
        let mut labels: BTreeSet<LabelId> = changed.written.iter().copied().collect();
        if self == LabelText::Broader {
            let touched =
                changed.written.iter().chain(&changed.removed).map(|&label| &space.label(label).id[..]);
            let touched: BTreeSet<&str> = touched.collect();
            let is_under = |label: &Label| label.parents.iter().any(|parent| touched.contains(&parent[..]));
            labels.extend(space.iter().filter(|(_, label)| is_under(label)).map(|(id, _)| id));
        }
        labels.into_iter().collect()
    }

    /// The token ids of labels, at most `max_tokens` each.
    pub(super) fn tokens(
        self,
        space: &LabelSpace,
        labels: &[LabelId],
        tokenizer: &Tokenizer,
        max_tokens: usize,
    ) -> Result<Vec<Vec<u32>>, polytag_nn::Error> {
        self.with_texts(space, labels, |texts| tokenizer.encode(texts, max_tokens))
    }

    /// Calls `read` with the texts of labels.
    pub(super) fn with_texts<R>(
        self,
        space: &LabelSpace,
        labels: &[LabelId],
        read: impl FnOnce(&[Text<'_>]) -> R,
    ) -> R {
        let texts: Vec<(String, String)> = labels.iter().map(|&label| self.of(space, label)).collect();
        let texts: Vec<Text<'_>> =
            texts.iter().map(|(title, text)| Text { title: Some(title), text }).collect();
        read(&texts)
    }
}

/// A passage as an encoder reads it.
pub(super) fn text_of<'a>(passage: &Passage<'a>) -> Text<'a> {
    Text { title: passage.title, text: passage.text }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::LabelChange;

    #[test]
    fn labels_under_a_changed_one_read_otherwise_where_they_name_it() {
        let mut space = LabelSpace::default();
        space.add(Label { parents: vec!["2".into()], ..Label::new("1", "tariff") }).unwrap();
        space.add(Label::new("3", "book")).unwrap();
        let add = LabelChange::Add { label: Label::new("2", "trade") };
        let (after, changed) = space.changed(&[add]).unwrap();
        assert_eq!(LabelText::Full.rewritten(&after, &changed), [LabelId(2)]);
        assert_eq!(LabelText::Broader.rewritten(&after, &changed), [LabelId(0), LabelId(2)]);
        let (gone, changed) = after.changed(&[LabelChange::Remove { id: "2".into() }]).unwrap();
        assert_eq!(LabelText::Broader.rewritten(&gone, &changed), [LabelId(0)]);
    }

    #[test]
    fn a_label_is_as_much_text_as_asked_for() {
        let mut space = LabelSpace::default();
        space.add(Label::new("2", "trade")).unwrap();
        let label = Label {
            aliases: vec!["duty".into(), "levy".into()],
            description: Some("What goods pay.".into()),
            parents: vec!["2".into(), "gone".into()],
            ..Label::new("1", "tariff")
        };
        let id = space.add(label).unwrap();
        let text = |kind: LabelText| kind.of(&space, id).1;
        assert_eq!(LabelText::Name.of(&space, id), ("tariff".into(), String::new()));
        assert_eq!(text(LabelText::Names), "duty; levy");
        assert_eq!(text(LabelText::Full), "duty; levy; What goods pay.");
        assert_eq!(text(LabelText::Broader), "duty; levy; What goods pay.; trade");
    }
}
