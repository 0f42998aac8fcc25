//! Documents as rows of words weighed by TF-IDF: counted, kept in a model folder, and told of in explanations.

use rayon::prelude::*;
use rustc_hash::FxHashMap;

use super::TrainContext;
use super::error::MethodError;
use crate::artifact::{ArtifactError, ModelFolder, ModelWriter, TensorsBuilder};
use crate::data::{Dataset, Document, Passage};
use crate::ids::DocId;
use crate::predict::{Field, Reason};
use crate::progress::{Event, Stage};
use crate::sparse::{Entry, Room, RowStore, Tfidf, TfidfConfig, Vocabulary, Weighing};
use crate::text::{AnalyzerConfig, Language, Scratch};

/// Documents that are made into rows at once.
const WAVE: usize = 4096;

/// The words.
const WORDS: &str = "words.txt";

/// How rare they are, in a file of its own.
const RARITY: (&str, &str) = ("weights.safetensors", "idf");

/// How words are counted and weighed: stems, runs of up to `ngrams`, those that enough documents have.
pub(super) fn tfidf(stem: Option<Language>, ngrams: usize, min_df: u32) -> TfidfConfig {
    let analyzer = AnalyzerConfig { stem, ngrams: (1, ngrams), ..AnalyzerConfig::default() };
    TfidfConfig { analyzer, min_df, ..TfidfConfig::default() }
}

/// Counts the words of `dataset`, and says if there were too many.
pub(super) fn count(
    config: &TfidfConfig,
    dataset: &dyn Dataset,
    context: &TrainContext<'_>,
) -> Result<Tfidf, MethodError> {
    let stage = Stage::start(context.progress, "counting words", Some(dataset.len() as u64));
    let counted = Tfidf::fit::<MethodError>(config, dataset.len(), |index| {
        if context.stop.is_asked() {
            return Err(MethodError::Stopped);
        }
        stage.step();
        Ok(dataset.document(DocId(index as u32))?.passage().whole().into_owned().into())
    })?;
    stage.finish();
    if counted.forgotten() > 0 {
        let message = format!(
            "{} rare terms did not fit in the table and are not used; raise table_limit to keep them",
            counted.forgotten()
        );
        context.progress.report(Event::Warned(&message));
    }
    Ok(counted)
}

/// The documents that carry a label; says how many do not.
pub(super) fn labelled(dataset: &dyn Dataset, context: &TrainContext<'_>) -> Vec<u32> {
    let all = dataset.len();
    let documents: Vec<u32> =
        (0..all as u32).filter(|&id| !dataset.labels_of(DocId(id)).is_empty()).collect();
    if documents.len() < all {
        let without = all - documents.len();
        let message = format!("{without} of {all} documents carry no label and are left out");
        context.progress.report(Event::Warned(&message));
    }
    documents
}

/// A third of the memory there may be for documents, and the disk of the task for the rest.
pub(super) fn room(context: &TrainContext<'_>) -> Room {
    match (context.memory_limit, context.task) {
        (Some(bytes), Some(task)) => Room {
            memory: Some(usize::try_from(bytes / 3).unwrap_or(usize::MAX)),
            spool: task.options().spool.clone(),
        },
        (Some(_), None) => {
            let message =
                "without a task there is no place on the disk, so that the memory limit is not kept";
            context.progress.report(Event::Warned(message));
            Room::unlimited()
        }
        (None, _) => Room::unlimited(),
    }
}

/// The rows of passages.
pub(super) fn weigh(words: &Tfidf, passages: &[Passage<'_>]) -> Vec<Vec<Entry>> {
    let row = |weighing: &mut Weighing, passage: &Passage<'_>| {
        let weighed = words.weigh(&passage.whole(), weighing);
        weighed.into_iter().map(|(column, value)| Entry { column, value }).collect()
    };
    passages.par_iter().with_min_len(16).map_init(Weighing::default, row).collect()
}

/// The rows of documents, in their order, as `weigh` makes them of passages.
pub(super) fn rows(
    (dataset, documents): (&dyn Dataset, &[u32]),
    (columns, room): (usize, &Room),
    context: &TrainContext<'_>,
    weigh: impl Fn(&[Passage<'_>]) -> Result<Vec<Vec<Entry>>, MethodError>,
) -> Result<RowStore, MethodError> {
    let stage = Stage::start(context.progress, "weighing words", Some(documents.len() as u64));
    let mut rows = RowStore::new(columns, room);
    for part in documents.chunks(WAVE) {
        if context.stop.is_asked() {
            return Err(MethodError::Stopped);
        }
        let read: Vec<Document> =
            part.iter().map(|&id| dataset.document(DocId(id))).collect::<Result<_, _>>()?;
        let passages: Vec<Passage<'_>> = read.iter().map(Document::passage).collect();
        let weighed = weigh(&passages)?;
        let lengths: Vec<usize> = weighed.iter().map(Vec::len).collect();
        rows.extend(&weighed.concat(), &lengths)?;
        stage.advance(part.len() as u64);
    }
    stage.finish();
    Ok(rows)
}

/// Writes the words and how rare they are.
pub(super) fn save(words: &Tfidf, model: &mut ModelWriter) -> Result<(), ArtifactError> {
    model.file(WORDS, words.vocabulary().to_lines().as_bytes())?;
    model.tensors(RARITY.0, &TensorsBuilder::default().f64(RARITY.1, words.idf()))
}

/// Reads what [`save`] wrote.
pub(super) fn load(folder: &ModelFolder, config: &TfidfConfig) -> Result<Tfidf, crate::Error> {
    let lines = folder.read_text(WORDS)?;
    let words = Vocabulary::from_lines(&lines).map_err(|error| folder.damaged(WORDS, error))?;
    let idf = folder.tensors(RARITY.0)?.f64(RARITY.1)?;
    if words.len() != idf.len() || !idf.iter().all(|idf| (1.0..=1e3).contains(idf)) {
        return Err(folder.damaged(RARITY.0, "its weights are not those of the words").into());
    }
    Ok(Tfidf::from_parts(config, words, idf).map_err(MethodError::from)?)
}

/// The terms of a passage that have weights, as its own words: a term that stands in title and text, by how often in
/// each. The most important come first.
pub(super) fn reasons(words: &Tfidf, passage: Passage<'_>, weights: &FxHashMap<u32, f32>) -> Vec<Reason> {
    // How often each term stands in each field, and the words it stands for there first.
    let mut uses: FxHashMap<(u32, Field), (u32, String)> = FxHashMap::default();
    let mut times: FxHashMap<u32, u32> = FxHashMap::default();
    let mut scratch = Scratch::default();
    for (field, text) in [(Field::Title, passage.title.unwrap_or_default()), (Field::Text, passage.text)] {
        words.analyzer().each_term_and_source(text, &mut scratch, |term, source| {
            if let Some(term) = words.vocabulary().find(term).filter(|term| weights.contains_key(term)) {
                let source = || (0, source.split_whitespace().collect::<Vec<_>>().join(" "));
                uses.entry((term, field)).or_insert_with(source).0 += 1;
                *times.entry(term).or_default() += 1;
            }
        });
    }
    let share = |((term, field), (count, source)): (&(u32, Field), &(u32, String))| {
        let weight = weights[term] * *count as f32 / times[term] as f32;
        Reason { words: source.clone(), field: *field, weight, attention: None }
    };
    let mut reasons: Vec<Reason> = uses.iter().map(share).filter(|reason| reason.weight != 0.0).collect();
    reasons.sort_by(|a, b| a.order(b).then((a.field == Field::Text).cmp(&(b.field == Field::Text))));
    reasons
}
