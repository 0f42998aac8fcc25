//! Any bytes through the importers.
//!
//! The first byte, `a` and onward, chooses a format. Small letters feed the parsers of lines and
//! rows; from `j` on a whole source is laid out and imported, its files parted by the record
//! separator (0x1e), and what was imported must read back as a task.

#![no_main]

use std::fs;
use std::io::Cursor;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use polytag::data::import::annif::{Annif, corpus};
use polytag::data::import::csv::Csv;
use polytag::data::import::csv::table::{Dialect, Table};
use polytag::data::import::debian::{Debian, DebianLabels};
use polytag::data::import::eurlex57k::{self, Eurlex57k};
use polytag::data::import::lightxml::{self, LightXml};
use polytag::data::import::skos::{Choice, Skos, Syntax, Vocabulary};
use polytag::data::import::wordnet::Wordnet;
use polytag::data::import::xc::{Xc, raw, sparse};
use polytag::data::import::{DocumentRows, ImportContext, Importer, import};
use polytag::data::{Place, ReadOptions, Split, Task};
use polytag::progress::{Silent, Stop};

/// The longest line, row or record.
const LIMIT: usize = 2048;

fuzz_target!(|data: &[u8]| {
    let Some((&format, bytes)) = data.split_first() else { return };
    match format {
        b'a' => {
            if let Ok(record) = eurlex57k::parse_document(bytes, Path::new("x.json")) {
                assert!(!record.id.is_empty());
            }
        }
        b'b' => {
            if let Ok(concepts) = eurlex57k::parse_concepts(bytes, Path::new("x.json")) {
                assert!(
                    concepts.iter().all(|(id, label)| label.as_ref().is_none_or(|label| label.id == *id))
                );
            }
        }
        b'c' => each_line(bytes, sparse_rows),
        b'd' => each_line(bytes, |lines| {
            for (number, line) in lines {
                if let Ok(raw) = raw::parse_line(line, "mend it", || place(*number)) {
                    assert!(!raw.uid.is_empty());
                }
            }
        }),
        b'e' => each_line(bytes, |lines| {
            for pair in lines.windows(2) {
                let record = lightxml::parse_document("x".to_owned(), pair[0].1, pair[1].1);
                assert!(record.labels.is_some_and(|labels| labels.iter().all(|label| !label.is_empty())));
            }
        }),
        b'f' => thesaurus(bytes, Syntax::Turtle),
        b'g' => thesaurus(bytes, Syntax::Xml),
        b'h' => each_line(bytes, |lines| {
            for (number, line) in lines {
                if let Ok((_, subjects)) = corpus::parse_document(line, || place(*number)) {
                    assert!(subjects.iter().all(|subject| !subject.is_empty()));
                }
                if let Ok((address, name)) = corpus::parse_subject(line, || place(*number)) {
                    assert!(!address.is_empty() && name.is_none_or(|name| !name.is_empty()));
                }
                let _ = corpus::parse_address(line);
            }
        }),
        b'i' => table(bytes),
        b'j' => whole(&Eurlex57k::default(), &["train/a.json", "EURLEX57K.json", "test/b.json"], bytes),
        b'k' => whole(&Xc::default(), &["train.txt", "Xf.txt", "Y.txt", "test.txt"], bytes),
        b'l' => whole(&Xc::default(), &["trn.json", "lbl.json", "tst.json"], bytes),
        b'm' => whole(&LightXml::default(), &["train_texts.txt", "train_labels.txt", "label_map.txt"], bytes),
        b'n' => whole(&Skos::default(), &["t.ttl"], bytes),
        b'o' => whole(&Skos::default(), &["t.rdf"], bytes),
        b'p' => whole(&Annif::default(), &["c-train.tsv", "v.ttl", "c-test.tsv"], bytes),
        b'q' => whole(&Annif::default(), &["train/a.txt", "train/a.tsv", "test/b.txt", "test/b.key"], bytes),
        b'r' => {
            let vocabulary = Some(FOLDER.join("in/v.csv"));
            whole(&Annif { vocabulary, ..Annif::default() }, &["c.tsv", "v.csv"], bytes);
        }
        b's' => whole(&Csv::default(), &["t.csv"], bytes),
        b't' => {
            let label_file = Some(FOLDER.join("in/labels.csv"));
            let split = Some("split".to_owned());
            let rows = DocumentRows { label_file, split, ..DocumentRows::default() };
            whole(&Csv { rows, ..Csv::default() }, &["t.tsv", "labels.csv"], bytes);
        }
        b'u' | b'v' => {
            let labels = if format == b'u' { DebianLabels::Tags } else { DebianLabels::Related };
            let vocabulary = Some(FOLDER.join("in/vocabulary"));
            let debian = Debian { labels, vocabulary, ..Debian::default() };
            whole(&debian, &["x_Packages", "x_i18n_Translation-en", "vocabulary"], bytes);
        }
        b'w' => {
            let wordnet = Wordnet::default();
            whole(&wordnet, &["data.noun", "data.verb", "data.adj", "data.adv"], bytes);
        }
        _ => {}
    }
});

fn place(line: u64) -> Place {
    Place::line(Path::new("x"), line)
}

fn each_line(bytes: &[u8], take: impl Fn(&[(u64, &str)])) {
    let text = String::from_utf8_lossy(bytes);
    take(&(1..).zip(text.lines()).collect::<Vec<_>>());
}

fn sparse_rows(lines: &[(u64, &str)]) {
    let Some(((number, first), rows)) = lines.split_first() else { return };
    let Ok(header) = sparse::parse_header(first, || place(*number)) else { return };
    let names = [String::from("glue"), String::new(), "x".repeat(300)];
    for (number, line) in rows {
        let Ok(row) = sparse::parse_row(line, &header, || place(*number)) else { continue };
        assert!(row.labels.iter().all(|&label| label < header.labels));
        assert!(row.features.iter().all(|&(index, value)| index < header.features && value.is_finite()));
        for names in [None, Some(&names[..])] {
            assert!(row.text(names, LIMIT).is_none_or(|text| text.len() <= LIMIT));
        }
    }
}

fn thesaurus(bytes: &[u8], syntax: Syntax) {
    let choice = Choice { language: "en", limit: LIMIT, stop: &Stop::default() };
    let Ok(read) = Vocabulary::read(Path::new("x"), bytes, syntax, &choice) else { return };
    for label in read.labels.iter().chain(&read.retired) {
        assert!(!label.aliases.contains(&label.name));
    }
    assert!(read.unnamed + read.in_other_language <= read.labels.len());
}

fn table(bytes: &[u8]) {
    let Some((&options, bytes)) = bytes.split_first() else { return };
    let dialect = Dialect {
        delimiter: [b',', b'\t', b';', b'|'][usize::from(options & 3)],
        quoting: options & 4 == 0,
        limit: LIMIT,
    };
    let Ok(mut table) = Table::new(Path::new("x"), Box::new(Cursor::new(bytes.to_vec())), dialect) else {
        return;
    };
    let columns = table.header().len();
    let mut last = 0;
    while let Ok(Some(row)) = table.next_row() {
        assert!(row.line >= last && row.line > 0, "line {} after {last}", row.line);
        last = row.line;
        (0..columns).for_each(|column| assert_eq!(row.field(column), row.field(column).trim()));
    }
}

/// Where sources are laid out; on a disk in memory if `TMPDIR` names one.
static FOLDER: LazyLock<PathBuf> = LazyLock::new(|| tempfile::tempdir().expect("a temporary folder").keep());

/// Lays `bytes` out as the files `names`, imports them, and reads the task back.
fn whole(importer: &dyn Importer, names: &[&str], bytes: &[u8]) {
    let (source, target) = (FOLDER.join("in"), FOLDER.join("out"));
    let _ = fs::remove_dir_all(&source);
    fs::create_dir(&source).expect("room for the source");
    for (name, content) in names.iter().zip(bytes.split(|&byte| byte == 0x1e)) {
        let path = source.join(name);
        fs::create_dir_all(path.parent().expect("it lies in the source")).expect("room for the source");
        fs::write(path, content).expect("room for the source");
    }
    // Tables and thesauri are files; the other sources are folders.
    let source = if names[0].starts_with("t.") { source.join(names[0]) } else { source };
    let context = ImportContext { progress: &Silent, stop: &Stop::default(), max_line: LIMIT };
    match import(importer, &source, &target, &context) {
        Err(error) => {
            assert!(!error.to_string().is_empty());
            assert!(!target.exists(), "a failed import leaves nothing behind: {error}");
        }
        Ok(summary) => {
            let task = Task::open(&target, &ReadOptions::with_spool(&*FOLDER)).expect("labels read back");
            assert_eq!(task.labels().len(), summary.labels);
            for (split, count) in summary.documents {
                let split: Split = split.parse().expect("a split's own name");
                let documents = task.documents(split).expect("the split is there");
                let read = documents.map(|document| document.expect("documents read back")).count();
                assert_eq!(read as u64, count);
            }
            fs::remove_dir_all(&target).expect("the task is ours");
        }
    }
}
