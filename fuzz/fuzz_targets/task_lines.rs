//! Bytes as the files of a task folder: lines, documents, labels.
//!
//! The first byte chooses the longest line and whether blank lines are kept; the rest is the file.
//! What `Lines` hands out is compared with the same bytes split at line breaks.

#![no_main]

use std::io::Cursor;
use std::path::Path;

use libfuzzer_sys::fuzz_target;
use polytag::data::{DocumentReader, DocumentRecord, Label, LabelSpace, Place};
use polytag::storage::{Lines, StorageError};

fuzz_target!(|data: &[u8]| {
    let Some((&options, bytes)) = data.split_first() else { return };
    let max_line = [4, 64, 1 << 10, 1 << 20][usize::from(options & 3)];
    lines_are_those_of_the_file(bytes, max_line, options & 4 != 0);
    documents_are_in_order(bytes, max_line);
});

fn lines_are_those_of_the_file(bytes: &[u8], max_line: usize, keeps_blank: bool) {
    let path = Path::new("x.jsonl");
    let mut lines = Lines::new(path, Box::new(Cursor::new(bytes.to_vec())), max_line);
    if keeps_blank {
        lines = lines.keeping_blank();
    }
    let mut expected = (1..).zip(bytes.split_inclusive(|&byte| byte == b'\n'));
    loop {
        let read = lines.next_line();
        // The next line that the file has to give.
        let next = expected.find(|(number, line)| {
            let whole = line.strip_suffix(b"\n").unwrap_or(line);
            let bare = content(*number, line);
            keeps_blank || whole.len() > max_line || !bare.iter().all(u8::is_ascii_whitespace)
        });
        match (read, next) {
            (Ok(None), None) => return,
            (Ok(Some(line)), Some((number, raw))) => {
                assert_eq!((line.number, line.text.as_bytes()), (number, content(number, raw)));
                assert!(line.text.len() <= max_line);
                records_come_back(line.text, line.number);
            }
            (Err(StorageError::LineTooLong { line, .. }), Some((number, raw))) => {
                assert_eq!(line, number);
                assert!(raw.strip_suffix(b"\n").unwrap_or(raw).len() > max_line);
            }
            (Err(StorageError::NotUtf8 { line, byte, .. }), Some((number, raw))) => {
                assert_eq!(line, number);
                let bad = std::str::from_utf8(content(number, raw)).expect_err("it was refused");
                assert_eq!(bad.valid_up_to() + 1, byte);
            }
            (read, next) => panic!("{read:?} where the file has {next:?}"),
        }
    }
}

/// A line as it should be handed out: without its break, and the first without a byte order mark.
fn content(number: u64, line: &[u8]) -> &[u8] {
    let bare = match line.strip_suffix(b"\n") {
        Some(bare) => bare.strip_suffix(b"\r").unwrap_or(bare),
        None => line,
    };
    if number == 1 { bare.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bare) } else { bare }
}

/// What is accepted is written and read back as it was.
fn records_come_back(line: &str, number: u64) {
    let place = || Place::line(Path::new("x.jsonl"), number);
    match DocumentRecord::parse(line, place) {
        Ok(record) => {
            let json = serde_json::to_string(&record).expect("strings always make JSON");
            assert_eq!(DocumentRecord::parse(&json, place).expect("our own line"), record);
        }
        Err(error) => assert!(error.to_string().contains("x.jsonl, line ")),
    }
    if let Ok(label) = Label::parse(line, place) {
        assert!(!label.name.trim().is_empty() && !label.id.is_empty());
        let json = serde_json::to_string(&label).expect("strings always make JSON");
        assert_eq!(Label::parse(&json, place).expect("our own line"), label);
        assert_eq!(serde_json::from_str::<Label>(&json).expect("our own line"), label);
    }
}

fn documents_are_in_order(bytes: &[u8], max_line: usize) {
    let mut space = LabelSpace::default();
    for id in ["a", "b", "7"] {
        space.add(Label::new(id, id)).expect("ids differ");
    }
    let input = Box::new(Cursor::new(bytes.to_vec()));
    let lines = bytes.split_inclusive(|&byte| byte == b'\n').count();
    let mut ids = std::collections::BTreeSet::new();
    let mut read = 0;
    for document in DocumentReader::new(Path::new("x.jsonl"), input, &space, max_line) {
        read += 1;
        assert!(read <= lines, "more documents than lines");
        match document {
            Ok(document) => {
                assert!(document.gold().windows(2).all(|pair| pair[0] < pair[1]));
                assert!(document.gold().iter().all(|label| label.index() < space.positions()));
                assert!(ids.insert(document.id), "an id came twice");
            }
            Err(error) => assert!(error.is_of_one_line(), "memory does not fail: {error}"),
        }
    }
}
