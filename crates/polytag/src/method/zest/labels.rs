//! What labels are made of: words, and a feature of their own.

use crate::data::LabelSpace;
use crate::ids::LabelId;
use crate::method::error::MethodError;
use crate::method::label_text::LabelText;
use crate::sparse::{Csr, Row, Tfidf, TfidfError, Weighing};
use crate::text::{Analyzer, Scratch};

/// The features of all labels. Words come first; behind them every label that documents carry has one of its own.
pub(super) struct LabelFeatures {
    kind: LabelText,
    own: f32,
    words: usize,
    /// The place of each label's own feature among those, by the label's position; none for labels without.
    own_places: Vec<Option<u32>>,
    /// How many have one.
    owners: usize,
    /// A row a label.
    rows: Csr,
    /// The same by feature: which labels have it.
    having: Csr,
}

/// The same words, and those of labels that they are not, as rare as the rarest of them.
pub(super) fn with_words_of(words: Tfidf, kind: LabelText, space: &LabelSpace) -> Result<Tfidf, MethodError> {
    let config = words.config().clone();
    let texts = texts(kind, space, &space.iter().map(|(label, _)| label).collect::<Vec<_>>());
    let analyzer = Analyzer::try_from(config.analyzer.clone()).map_err(TfidfError::from)?;
    let (mut vocabulary, mut idf) = words.into_parts();
    let rarest = idf.iter().copied().fold(1.0, f64::max);
    let mut scratch = Scratch::default();
    for text in texts {
        analyzer.each_term(&text, &mut scratch, |term| {
            if vocabulary.intern(term) as usize == idf.len() {
                idf.push(rarest);
            }
        });
    }
    Ok(Tfidf::from_parts(&config, vocabulary, idf)?)
}

/// What stands for labels, title and text as one.
fn texts(kind: LabelText, space: &LabelSpace, labels: &[LabelId]) -> Vec<String> {
    kind.with_texts(space, labels, |texts| {
        texts.iter().map(|text| format!("{}\n{}", text.title.unwrap_or_default(), text.text)).collect()
    })
}

impl LabelFeatures {
    /// The features of the labels of `space`, of which those that documents carry have one of their own.
    pub(super) fn new((kind, own): (LabelText, f32), words: &Tfidf, space: &LabelSpace) -> LabelFeatures {
        let mut owners = 0;
        let own_places: Vec<Option<u32>> = (0..space.positions() as u32)
            .map(|label| {
                let has = own > 0.0 && space.is_seen(LabelId(label));
                owners += u32::from(has);
                has.then(|| owners - 1)
            })
            .collect();
        let mut features = LabelFeatures {
            kind,
            own,
            words: words.vocabulary().len(),
            own_places,
            owners: owners as usize,
            rows: Csr::empty(0),
            having: Csr::empty(0),
        };
        features.read(words, space);
        features
    }

    /// Reads all labels anew, as they are now.
    pub(super) fn read(&mut self, words: &Tfidf, space: &LabelSpace) {
        let labels: Vec<LabelId> = (0..space.positions() as u32).map(LabelId).collect();
        self.own_places.resize(labels.len(), None);
        let mut rows = Csr::empty(self.len());
        let mut weighing = Weighing::default();
        for (label, text) in labels.iter().zip(texts(self.kind, space, &labels)) {
            if !space.is_active(*label) {
                rows.push([]);
                continue;
            }
            let own = self.own_places[label.index()].map(|place| (self.words as u32 + place, self.own));
            rows.push(words.weigh(&text, &mut weighing).into_iter().chain(own));
        }
        self.having = rows.transpose();
        self.rows = rows;
    }

    /// How many features there are.
    pub(super) fn len(&self) -> usize {
        self.words + self.owners
    }

    /// How many of them are words.
    pub(super) fn words(&self) -> usize {
        self.words
    }

    /// How many labels there are, by position.
    pub(super) fn labels(&self) -> usize {
        self.rows.rows()
    }

    /// Whether a label has a feature of its own.
    pub(super) fn has_own(&self, label: u32) -> bool {
        self.own_places[label as usize].is_some()
    }

    /// The features of a label.
    pub(super) fn of(&self, label: u32) -> Row<'_> {
        self.rows.row(label as usize)
    }

    /// The labels that have a feature.
    pub(super) fn having(&self, feature: u32) -> Row<'_> {
        self.having.row(feature as usize)
    }
}
