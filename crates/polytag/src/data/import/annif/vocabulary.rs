//! Annif's vocabularies, in each of the forms that Annif takes.
//!
//! A file enters: SKOS, TSV of `<address><TAB>name`, or CSV with the columns `uri` and `label_en`,
//! `label_fi` and so on. What leaves is a [`Vocabulary`]. Memory: the labels.

use std::path::Path;

use rustc_hash::FxHashMap;

use super::corpus::{parse_address, parse_subject};
use crate::data::error::{DataError, Place};
use crate::data::import::csv::table::{Dialect, Table};
use crate::data::import::intake::{malformed, plain_name};
use crate::data::import::skos::{Choice, Syntax, Vocabulary, end_of_address};
use crate::data::label::Label;
use crate::data::reader::FirstLines;
use crate::storage::Lines;

/// Reads a vocabulary in the form that the ending of its name speaks of.
pub fn read(path: &Path, choice: &Choice<'_>) -> Result<Vocabulary, DataError> {
    if Syntax::of(path).is_some() {
        return Vocabulary::open(path, choice);
    }
    match plain_name(path).to_lowercase().rsplit_once('.') {
        Some((_, "tsv" | "txt")) => read_tsv(path, choice),
        Some((_, "csv")) => read_csv(path, choice),
        _ => Err(malformed(
            Place::file(path),
            "the ending of the name says nothing of a vocabulary",
            "name a file in SKOS (.ttl, .nt, .rdf, .xml), .tsv or .csv",
        )),
    }
}

fn read_tsv(path: &Path, choice: &Choice<'_>) -> Result<Vocabulary, DataError> {
    let mut lines = Lines::open(path, choice.limit)?;
    let mut gathered = Gathered::default();
    while let Some(line) = lines.next_line()? {
        let place = || Place::line(path, line.number);
        let (address, name) = parse_subject(line.text, place)?;
        gathered.add(address, name, place())?;
    }
    Ok(gathered.vocabulary)
}

fn read_csv(path: &Path, choice: &Choice<'_>) -> Result<Vocabulary, DataError> {
    let mut table = Table::open(path, Dialect::of(path, choice.limit))?;
    let uri = table.required_column("uri")?;
    let language = choice.language;
    let own = table.column(&format!("label_{language}")).or_else(|| table.column("label"));
    // Names in other languages, in the order of their columns, for subjects without one of their own.
    let others: Vec<usize> = (0..table.header().len())
        .filter(|&column| table.header()[column].starts_with("label_") && Some(column) != own)
        .collect();
    if own.is_none() && others.is_empty() {
        return Err(table.required_column(&format!("label_{language}")).err().unwrap_or_else(|| {
            malformed(Place::file(path), "no column of labels", "add a column of labels")
        }));
    }
    let mut gathered = Gathered::default();
    while let Some(row) = table.next_row()? {
        let place = || Place::line(path, row.line);
        let address = parse_address(row.field(uri)).ok_or_else(|| {
            let problem = format!("{:?} in the column \"uri\" is no address", row.field(uri));
            malformed(place(), problem, "write an address like http://example.org/1")
        })?;
        let name = own.map(|column| row.field(column)).filter(|name| !name.is_empty());
        let other = || others.iter().map(|&column| row.field(column)).find(|name| !name.is_empty());
        let name = name.or_else(|| {
            let other = other();
            gathered.vocabulary.in_other_language += usize::from(other.is_some());
            other
        });
        gathered.add(address.to_owned(), name.map(str::to_owned), place())?;
    }
    Ok(gathered.vocabulary)
}

#[derive(Default)]
struct Gathered {
    vocabulary: Vocabulary,
    seen: FirstLines,
}

impl Gathered {
    fn add(&mut self, address: String, name: Option<String>, place: Place) -> Result<(), DataError> {
        if let Some(first) = self.seen.note(&address, place.line.unwrap_or_default()) {
            return Err(DataError::DuplicateId { place, id: address, first });
        }
        self.vocabulary.unnamed += usize::from(name.is_none());
        let name = name.unwrap_or_else(|| end_of_address(&address).to_owned());
        self.vocabulary.labels.push(Label::new(address, name));
        Ok(())
    }
}

/// Finds labels by their names, as subject files of names need it.
#[derive(Default)]
pub(super) struct ByName(FxHashMap<String, String>);

impl ByName {
    pub(super) fn of(vocabulary: &Vocabulary) -> ByName {
        let mut by_name = FxHashMap::default();
        let mut add = |name: &str, id: &str| {
            by_name.entry(name.trim().to_lowercase()).or_insert_with(|| id.to_owned());
        };
        let all = || vocabulary.labels.iter().chain(&vocabulary.retired);
        // A name before an alias: "bank" the institution before "bank" for "river bank".
        for label in all() {
            add(&label.name, &label.id);
        }
        for label in all() {
            label.aliases.iter().for_each(|alias| add(alias, &label.id));
        }
        ByName(by_name)
    }

    pub(super) fn find(&self, name: &str) -> Option<&String> {
        self.0.get(&name.trim().to_lowercase())
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::folder;
    use super::*;
    use crate::progress::Stop;

    fn read_as(name: &str, content: &str, language: &str) -> Result<Vocabulary, String> {
        let dir = folder(&[(name, content)]);
        let path = dir.path().join("in").join(name);
        read(&path, &Choice { language, limit: 1 << 16, stop: &Stop::default() })
            .map_err(|error| error.to_string().replace(&format!("{}/", dir.path().join("in").display()), ""))
    }

    #[test]
    fn each_form_is_read() {
        let tsv = read_as("v.tsv", "<urn:1>\tone\n<urn:2>\n", "en").unwrap();
        assert_eq!(tsv.labels, [Label::new("urn:1", "one"), Label::new("urn:2", "urn:2")]);
        assert_eq!(tsv.unnamed, 1);
        let csv = "uri,label_fi,label_en,notation\nhttp://x/1,yksi,one,1\n<http://x/2>,kaksi,,\n";
        let read = read_as("v.csv", csv, "en").unwrap();
        assert_eq!(read.labels, [Label::new("http://x/1", "one"), Label::new("http://x/2", "kaksi")]);
        assert_eq!(read.in_other_language, 1);
        assert_eq!(read_as("v.csv", csv, "sv").unwrap().labels[0].name, "yksi");
        let turtle = "<urn:1> <http://www.w3.org/2004/02/skos/core#prefLabel> \"one\"@en .";
        assert_eq!(read_as("v.ttl", turtle, "en").unwrap().labels, [Label::new("urn:1", "one")]);
    }

    #[test]
    fn complaints_name_file_and_line() {
        let complaint = |name: &str, content: &str| read_as(name, content, "en").unwrap_err();
        assert!(complaint("v.tsv", "<urn:1>\ta\nb\n").starts_with("v.tsv, line 2: \"b\" is no address"));
        assert!(
            complaint("v.tsv", "<urn:1>\ta\n<urn:1>\tb\n")
                .starts_with("v.tsv, line 2: the id \"urn:1\" was used before, on line 1")
        );
        assert!(
            complaint("v.csv", "uri,name\nurn:1,a\n")
                .starts_with("v.csv, line 1: no column is called \"label_en\"")
        );
        assert!(
            complaint("v.csv", "uri,label\nx,a\n").starts_with("v.csv, line 2: \"x\" in the column \"uri\"")
        );
        assert!(complaint("v.pdf", "").contains("says nothing of a vocabulary"));
    }

    #[test]
    fn names_come_before_aliases() {
        let vocabulary = Vocabulary {
            labels: vec![
                Label { aliases: vec!["Bank".to_owned()], ..Label::new("1", "river bank") },
                Label::new("2", "bank"),
            ],
            ..Vocabulary::default()
        };
        let by_name = ByName::of(&vocabulary);
        assert_eq!(by_name.find(" BANK "), Some(&"2".to_owned()));
        assert_eq!(by_name.find("bench"), None);
    }
}
