//! From rows to answers: one thread reads, one tags, one writes, a batch or two apart.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use arrow_array::RecordBatch;
use serde::{Deserialize, Serialize};

use super::error::TablesError;
use super::rows::{RowBatch, Rows};
use crate::columns::Texts;
use crate::data::DataError;
use crate::predict::{BatchTagger, FoundColumns, TaggedBatch};
use crate::progress::{Event, Watch};

/// Rows of a piece: what is lost at most when the machine goes down, and a row group of the answer.
const PIECE_ROWS: usize = 16_384;
/// Bytes of text after which a piece ends, too.
const PIECE_BYTES: usize = 64 << 20;
/// Batches that wait between two threads.
const AHEAD: usize = 2;
/// How often Ctrl-C is looked for while there is nothing to do.
const HEARING: Duration = Duration::from_millis(100);

/// How many rows went through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// Rows that have an answer.
    pub rows: u64,
    /// Those among them that had no text, and so no labels.
    pub without_text: u64,
    /// Lines that could not be read and have no answer.
    pub unreadable: u64,
}

impl Tally {
    /// Counts another part in.
    pub fn add(&mut self, other: Tally) {
        self.rows += other.rows;
        self.without_text += other.without_text;
        self.unreadable += other.unreadable;
    }
}

/// The end of a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Mark {
    /// Where the file is read on.
    pub(super) position: u64,
    /// What the piece holds.
    pub(super) tally: Tally,
}

/// Who takes answers, piece by piece. There is always one, though it may be empty.
pub(super) trait PieceSink: Send {
    fn write(&mut self, batch: &RecordBatch) -> Result<(), TablesError>;
    fn end_piece(&mut self, mark: &Mark) -> Result<(), TablesError>;
}

/// Some rows on their way.
struct Part<T> {
    rows: T,
    /// The number of the first in the file, from one; of a line that could not be read, where there is none.
    first_row: u64,
    /// Where the file is read on behind them.
    position: u64,
    ends_piece: bool,
    /// The line behind them that could not be read.
    unreadable: Option<DataError>,
}

/// Tags all rows and hands the answers to `sink`.
pub(super) fn tag_rows(
    rows: Rows,
    tagger: &BatchTagger<'_>,
    watch: &Watch<'_>,
    sink: &mut dyn PieceSink,
) -> Result<Tally, TablesError> {
    let (path, found, start) = (rows.path().to_owned(), rows.found().clone(), rows.position());
    let (to_tag, read) = sync_channel(AHEAD);
    // Not one of the scope: it may wait for input for ever, and nobody waits for it then.
    let name = path.clone();
    thread::spawn(move || {
        // One that broke down must not look like the end of the file.
        if catch_unwind(AssertUnwindSafe(|| read_rows(rows, &to_tag))).is_err() {
            let _ = to_tag.send(Err(TablesError::Broken { path: name }));
        }
    });
    thread::scope(|scope| {
        let (to_write, tagged) = sync_channel(AHEAD);
        let writer = scope.spawn(move || write_answers(&tagged, start, sink));
        let tagging = Tagging { tagger, found: &found, path, watch };
        let told = tagging.tag(&read, &to_write);
        // Without this neither of the others would see the end.
        drop((read, to_write));
        let written = writer.join().expect("writing does not panic");
        // If the writer gave up, its reason is the one to tell.
        let tally = written?;
        told.map(|()| tally)
    })
}

/// Cuts the rows of a file into pieces and sends them on.
fn read_rows(mut rows: Rows, to_tag: &SyncSender<Result<Part<RecordBatch>, TablesError>>) {
    let found = rows.found().clone();
    let mut room = Room::default();
    loop {
        let parts = match rows.read() {
            Ok(Some(batch)) => Ok(cut(batch, &found, &mut room)),
            Ok(None) => return,
            Err(error) => Err(error),
        };
        match parts {
            Err(error) => {
                // Nobody may be there to hear it.
                let _ = to_tag.send(Err(error));
                return;
            }
            Ok(parts) => {
                for part in parts {
                    if to_tag.send(Ok(part)).is_err() {
                        return;
                    }
                }
            }
        }
    }
}

/// How full a piece is.
#[derive(Default)]
struct Room {
    rows: usize,
    bytes: usize,
}

/// The parts of a batch, cut where pieces end. That depends on the rows since the last piece alone.
fn cut(batch: RowBatch, found: &FoundColumns, room: &mut Room) -> Vec<Part<RecordBatch>> {
    let rows = batch.rows.num_rows();
    let mut parts = Vec::new();
    let column = batch.rows.column(found.text()).clone();
    let texts = Texts::of("text", column.as_ref()).expect("the type was checked when the file was opened");
    let mut start = 0;
    for row in 0..rows {
        room.rows += 1;
        room.bytes += texts.get(row).map_or(0, str::len);
        let ends_piece = room.rows == PIECE_ROWS || room.bytes >= PIECE_BYTES;
        if ends_piece || row + 1 == rows {
            let (slice, first_row) = batch.slice(start, row + 1);
            let position = batch.end(row + 1);
            parts.push(Part { rows: slice, first_row, position, ends_piece, unreadable: None });
            start = row + 1;
        }
        if ends_piece {
            *room = Room::default();
        }
    }
    if let Some((error, position)) = batch.unreadable {
        let rows = batch.rows.slice(0, 0);
        parts.push(Part { rows, first_row: position, position, ends_piece: false, unreadable: Some(error) });
    }
    parts
}

struct Tagging<'a> {
    tagger: &'a BatchTagger<'a>,
    found: &'a FoundColumns,
    path: PathBuf,
    watch: &'a Watch<'a>,
}

impl Tagging<'_> {
    fn tag(
        &self,
        read: &Receiver<Result<Part<RecordBatch>, TablesError>>,
        to_write: &SyncSender<Option<Part<TaggedBatch>>>,
    ) -> Result<(), TablesError> {
        loop {
            let part = match read.recv_timeout(HEARING) {
                _ if self.watch.stop.is_asked() => return Err(TablesError::Stopped { done: 0 }),
                Err(RecvTimeoutError::Timeout) => continue,
                Err(RecvTimeoutError::Disconnected) => break,
                Ok(part) => part?,
            };
            if let Some(error) = &part.unreadable {
                self.watch.progress.report(Event::Warned(&error.to_string()));
            }
            let tagged = self.tagger.tag_found(&part.rows, self.found, part.first_row);
            let tagged = tagged.map_err(|source| TablesError::Predict {
                path: self.path.clone(),
                row: part.first_row.saturating_sub(1),
                source,
            })?;
            let rows = part.rows.num_rows() as u64;
            let part = Part {
                rows: tagged,
                first_row: part.first_row,
                position: part.position,
                ends_piece: part.ends_piece,
                unreadable: part.unreadable,
            };
            if to_write.send(Some(part)).is_err() {
                return Ok(());
            }
            self.watch.progress.report(Event::Advanced(rows));
        }
        // All rows are there: the last piece may end.
        let _ = to_write.send(None);
        Ok(())
    }
}

/// Hands answers on until the end; what came of it. Without a word of the end, the last piece is left as it is.
fn write_answers(
    tagged: &Receiver<Option<Part<TaggedBatch>>>,
    start: u64,
    sink: &mut dyn PieceSink,
) -> Result<Tally, TablesError> {
    let mut all = Tally::default();
    let mut piece = Mark { position: start, tally: Tally::default() };
    let mut pieces = 0;
    for part in tagged {
        let Some(part) = part else {
            if piece.tally != Tally::default() || pieces == 0 {
                sink.end_piece(&piece)?;
                all.add(piece.tally);
            }
            return Ok(all);
        };
        let batch = &part.rows.batch;
        if batch.num_rows() > 0 {
            sink.write(batch)?;
        }
        piece.position = part.position;
        piece.tally.add(Tally {
            rows: batch.num_rows() as u64,
            without_text: part.rows.without_text as u64,
            unreadable: u64::from(part.unreadable.is_some()),
        });
        if part.ends_piece {
            sink.end_piece(&piece)?;
            all.add(piece.tally);
            pieces += 1;
            piece = Mark { position: piece.position, tally: Tally::default() };
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::super::rows::RowsConfig;
    use super::*;
    use crate::artifact::{ArtifactError, ModelWriter};
    use crate::data::{LabelChange, LabelSpace, Passage};
    use crate::ids::LabelId;
    use crate::predict::{Ask, Columns, Explanation, PredictError, Predictor};
    use crate::progress::{Silent, Stop};
    use crate::ranking::Ranking;
    use arrow_array::types::Int32Type;
    use arrow_array::{ArrayRef, DictionaryArray};
    use std::sync::Arc;

    /// Where pieces end in so many rows of a text this long, read in batches of so many.
    fn ends(rows: usize, text: usize, batch: usize) -> Vec<u64> {
        let word = "x".repeat(text);
        let texts: DictionaryArray<Int32Type> = (0..rows).map(|_| Some(word.as_str())).collect();
        let all = RecordBatch::try_from_iter([("text", Arc::new(texts) as ArrayRef)]).unwrap();
        let found = Columns::default().find(all.schema_ref()).unwrap();
        let (mut room, mut ends, mut seen) = (Room::default(), Vec::new(), 0);
        for start in (0..rows).step_by(batch) {
            let some = RowBatch::of_table(all.slice(start, batch.min(rows - start)), start as u64);
            for part in cut(some, &found, &mut room) {
                assert_eq!(part.first_row, seen + 1);
                seen += part.rows.num_rows() as u64;
                assert_eq!(part.position, seen);
                ends.extend(part.ends_piece.then_some(part.position));
            }
        }
        assert_eq!(seen, rows as u64);
        ends
    }

    /// A model that knows no answer to a text without a word.
    struct Choosy(LabelSpace);

    impl Predictor for Choosy {
        fn label_space(&self) -> &LabelSpace {
            &self.0
        }

        fn predict(&self, passages: &[Passage<'_>], _: &Ask<'_>) -> Result<Vec<Ranking>, PredictError> {
            match passages.iter().any(|passage| passage.text.is_empty()) {
                true => Err(PredictError::NoId),
                false => Ok(passages.iter().map(|_| Ranking::default()).collect()),
            }
        }

        fn apply(&mut self, _: &[LabelChange]) -> Result<(), PredictError> {
            Ok(())
        }

        fn explain(&self, _: Passage<'_>, _: LabelId) -> Result<Explanation, PredictError> {
            Err(PredictError::NoId)
        }

        fn save(&self, _: &mut ModelWriter) -> Result<(), ArtifactError> {
            Ok(())
        }
    }

    /// Who keeps nothing.
    struct Nowhere;

    impl PieceSink for Nowhere {
        fn write(&mut self, _: &RecordBatch) -> Result<(), TablesError> {
            Ok(())
        }

        fn end_piece(&mut self, _: &Mark) -> Result<(), TablesError> {
            Ok(())
        }
    }

    #[test]
    fn a_row_without_an_answer_is_told_by_its_place_in_the_file_wherever_reading_began() {
        let dir = tempfile::tempdir().unwrap();
        // A blank line is no row, but counts; batches are of 2048 rows.
        let lines: String = (0..5000)
            .map(|row| match row {
                10 => "\n".to_owned(),
                4500 => "{\"id\":\"4500\",\"text\":\"\"}\n".to_owned(),
                row => format!("{{\"id\":\"{row}\",\"text\":\"tea\"}}\n"),
            })
            .collect();
        let path = dir.path().join("a.jsonl");
        std::fs::write(&path, lines).unwrap();
        let columns = Columns::default();
        let config = RowsConfig { columns: columns.clone(), max_line: 1000, plain: false, keep_going: false };
        let model = Choosy(LabelSpace::default());
        let tagger = BatchTagger {
            model: &model,
            columns: &columns,
            ask: Ask { k: 1, allowed: None },
            threshold: None,
        };
        let watch = Watch { progress: &Silent, stop: &Stop::default() };
        for (start, expected) in [(0, 4097), (4097, 4097), (4200, 4200)] {
            let rows = Rows::open(&path, &config, start).unwrap();
            match tag_rows(rows, &tagger, &watch, &mut Nowhere) {
                Err(TablesError::Predict { row, .. }) => assert_eq!(row, expected, "from {start}"),
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn pieces_end_by_rows_or_bytes_however_they_are_read() {
        for batch in [1, 1000, 2048, 50_000] {
            assert_eq!(ends(40_000, 10, batch), [16_384, 32_768]);
            assert_eq!(ends(16_384, 10, batch), [16_384]);
            assert_eq!(ends(150, 1 << 20, batch), [64, 128]);
        }
    }
}
