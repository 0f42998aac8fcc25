//! Training documents like a text, to show beside a label: what people gave it to before.

use std::collections::HashMap;

use polytag::data::{Dataset, Document, Passage};
use polytag::ids::DocId;
use polytag::sparse::{Csr, Tfidf, TfidfConfig, Weighing};
use serde::Serialize;
use utoipa::ToSchema;

/// Characters of a document that are shown.
const SHOWN: usize = 300;

/// A training document like a text.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct Neighbour {
    id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    title: Option<String>,
    /// How it begins.
    text: String,
    /// The cosine of the words of both, weighed by how rare they are.
    similarity: f32,
}

/// Training documents by label. Memory: eight bytes for each different word of each document, and 300 characters of it.
pub struct Neighbours {
    tfidf: Tfidf,
    rows: Csr,
    documents: Vec<Neighbour>,
    carried: HashMap<String, Vec<u32>>,
}

impl Neighbours {
    /// Reads the documents of a train split.
    ///
    /// # Errors
    /// If one cannot be read.
    pub fn read(dataset: &dyn Dataset) -> Result<Neighbours, polytag::Error> {
        let read = |place: usize| dataset.document(DocId(place as u32)).map_err(polytag::Error::from);
        let config = TfidfConfig { min_df: 2, ..TfidfConfig::default() };
        let whole = |document: Document| document.passage().whole().into_owned().into();
        let fail = polytag::method::MethodError::from;
        let tfidf = Tfidf::fit::<polytag::method::MethodError>(&config, dataset.len(), |place| {
            Ok(whole(dataset.document(DocId(place as u32)).map_err(fail)?))
        })?;
        let rows = tfidf.transform::<polytag::Error>(dataset.len(), |place| Ok(whole(read(place)?)))?;
        let (mut documents, mut carried) = (Vec::with_capacity(dataset.len()), HashMap::new());
        for place in 0..dataset.len() {
            let document = read(place)?;
            for label in dataset.labels_of(DocId(place as u32)) {
                let id = dataset.label_space().label(*label).id.clone();
                carried.entry(id).or_insert_with(Vec::new).push(place as u32);
            }
            let text = document.text.chars().take(SHOWN).collect();
            documents.push(Neighbour { id: document.id, title: document.title, text, similarity: 0.0 });
        }
        Ok(Neighbours { tfidf, rows, documents, carried })
    }

    /// The documents with the label that are most like a passage, the most alike first.
    pub(crate) fn nearest(&self, passage: Passage<'_>, label: &str, count: usize) -> Vec<Neighbour> {
        let mut words = Csr::empty(self.rows.columns());
        words.push(self.tfidf.weigh(&passage.whole(), &mut Weighing::default()));
        let carried = self.carried.get(label).map(Vec::as_slice).unwrap_or_default();
        let mut alike: Vec<(f32, u32)> =
            carried.iter().map(|&place| (self.rows.row(place as usize).dot(words.row(0)), place)).collect();
        alike.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        let shown = alike.into_iter().take(count).filter(|(similarity, _)| *similarity > 0.0);
        shown
            .map(|(similarity, place)| Neighbour { similarity, ..self.documents[place as usize].clone() })
            .collect()
    }
}
