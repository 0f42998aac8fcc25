//! How rare words are in the documents.

use super::LexicalConfig;
use crate::artifact::{ArtifactError, ModelFolder, ModelWriter, TensorsBuilder};
use crate::data::Dataset;
use crate::ids::DocId;
use crate::method::TrainContext;
use crate::method::error::MethodError;
use crate::progress::{Event, Stage};
use crate::sparse::{Tfidf, TfidfConfig, Vocabulary};

const WORDS: &str = "words.txt";
const WEIGHTS: &str = "weights.safetensors";

/// Inverse document frequencies of words: ln((n + 1) / (df + 1)) + 1.
#[derive(Debug, Default)]
pub(super) struct Rarity {
    words: Vocabulary,
    idf: Vec<f64>,
    documents: u64,
}

impl Rarity {
    /// Counts the words of `dataset`, titles and texts together.
    pub(super) fn count(
        config: &LexicalConfig,
        dataset: &dyn Dataset,
        context: &TrainContext<'_>,
    ) -> Result<Rarity, MethodError> {
        let tfidf = TfidfConfig {
            analyzer: config.analyzer(1)?.config().clone(),
            table_limit: config.table_limit,
            ..TfidfConfig::default()
        };
        let stage = Stage::start(context.progress, "counting words", Some(dataset.len() as u64));
        let counted = Tfidf::fit::<MethodError>(&tfidf, dataset.len(), |index| {
            if context.stop.is_asked() {
                return Err(MethodError::Stopped);
            }
            stage.step();
            let document = dataset.document(DocId(index as u32))?;
            Ok(document.whole().into_owned().into())
        })?;
        stage.finish();
        if counted.forgotten() > 0 {
            let message = format!(
                "{} rare words did not fit in the table and count as new; raise table_limit to keep them",
                counted.forgotten()
            );
            context.progress.report(Event::Warned(&message));
        }
        let (words, idf) = counted.into_parts();
        Ok(Rarity { words, idf, documents: dataset.len() as u64 })
    }

    /// How rare a term is. The rarity of a run of words follows from its words, as if they met by
    /// chance, but nothing is rarer than a word that no document has.
    pub(super) fn of(&self, term: &str) -> f64 {
        let rarest = self.rarest();
        let word = |word: &str| self.words.find(word).map_or(rarest, |number| self.idf[number as usize]);
        let surplus: f64 = term.split(' ').map(|part| word(part) - 1.0).sum();
        (surplus + 1.0).min(rarest)
    }

    /// The rarity of a word that no document has.
    fn rarest(&self) -> f64 {
        (self.documents as f64 + 1.0).ln() + 1.0
    }

    pub(super) fn save(&self, model: &mut ModelWriter) -> Result<(), ArtifactError> {
        model.file(WORDS, self.words.to_lines().as_bytes())?;
        let documents = [self.documents as f64];
        model.tensors(WEIGHTS, &TensorsBuilder::default().f64("idf", &self.idf).f64("documents", &documents))
    }

    pub(super) fn load(folder: &ModelFolder) -> Result<Rarity, ArtifactError> {
        let words =
            Vocabulary::from_lines(&folder.read_text(WORDS)?).map_err(|e| folder.damaged(WORDS, e))?;
        let tensors = folder.tensors(WEIGHTS)?;
        let (idf, documents) = (tensors.f64("idf")?, tensors.f64("documents")?);
        let [documents] = documents[..] else {
            return Err(folder.damaged(WEIGHTS, "it does not say how many documents there were"));
        };
        let rarity = Rarity { words, idf, documents: documents as u64 };
        if rarity.words.len() != rarity.idf.len() {
            let problem = format!("{} weights for {} words", rarity.idf.len(), rarity.words.len());
            return Err(folder.damaged(WEIGHTS, problem));
        }
        if !rarity.idf.iter().all(|idf| (1.0..=rarity.rarest()).contains(idf)) {
            return Err(folder.damaged(WEIGHTS, "a word is rarer, or less rare, than any can be"));
        }
        Ok(rarity)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_number_of_documents_is_too_large() {
        // A manifest may claim any.
        let rarity = Rarity { documents: u64::MAX, ..Rarity::default() };
        assert!((rarity.of("word") - (64.0 * 2f64.ln() + 1.0)).abs() < 1e-12);
    }
}
