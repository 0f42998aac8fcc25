//! The labels of a task as texts: which row is whose, which say the same, which say nothing.

use polytag_nn::sentence::SentenceEncoder;

use super::config::MaclrConfig;
use super::pairs::{firsts, is_bare};
use crate::data::LabelSpace;
use crate::ids::LabelId;
use crate::method::error::MethodError;
use crate::method::training::Texts;

/// The texts of labels, row by row.
pub(super) struct Labels {
    pub(super) texts: Texts,
    /// Whose they are.
    pub(super) ids: Vec<LabelId>,
    /// The row of each position of the label space; none where the label was removed.
    rows: Vec<Option<u32>>,
    /// The first row with the same text.
    same: Vec<u32>,
    /// The rows that say something.
    pub(super) readable: Vec<u32>,
}

impl Labels {
    /// The labels of `space`, as the encoder reads them.
    pub(super) fn read(
        space: &LabelSpace,
        config: &MaclrConfig,
        encoder: &SentenceEncoder,
    ) -> Result<Labels, MethodError> {
        let ids: Vec<LabelId> = space.iter().map(|(id, _)| id).collect();
        let longest = config.label_tokens.min(encoder.settings().max_tokens);
        let mut texts = Texts::default();
        texts.extend(config.label_text.tokens(space, &ids, encoder.tokenizer(), longest)?);
        let mut rows = vec![None; space.positions()];
        ids.iter().zip(0..).for_each(|(label, row)| rows[label.index()] = Some(row));
        let same = firsts(&texts);
        let readable = texts.iter().zip(0..).filter(|(text, _)| !is_bare(text)).map(|(_, row)| row).collect();
        Ok(Labels { texts, ids, rows, same, readable })
    }

    /// How many labels.
    pub(super) fn len(&self) -> usize {
        self.ids.len()
    }

    /// The row of a label, if it has one and says something.
    pub(super) fn row(&self, label: LabelId) -> Option<u32> {
        let row = self.rows.get(label.index()).copied().flatten()?;
        self.readable.binary_search(&row).is_ok().then_some(row)
    }

    /// What all rows with the same text as this one share.
    pub(super) fn text_of(&self, row: u32) -> u32 {
        self.same[row as usize]
    }
}
