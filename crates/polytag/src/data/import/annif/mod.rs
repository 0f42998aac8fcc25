//! Annif's corpora (Suominen, LIBER Quarterly 2019), with their vocabulary.
//!
//! A folder or a file enters. Files `.tsv` (or `.tsv.gz`) are short texts, one a line with its
//! subjects; files `.txt` are full texts, each with its subjects in a file of the same stem: `.tsv`
//! with addresses, or `.key` with names. A text without either is one nobody labelled. Folders and
//! `.tsv` files whose names speak of train, dev (or validate) and test are those splits; other
//! documents are drawn by [`Shares`]. Ids are the stem of the file, and for short texts its line.
//! Memory: one document, the vocabulary, and the file names of one folder.

pub mod corpus; // lines taken apart
pub mod vocabulary; // SKOS, TSV or CSV in, labels out

use std::path::{Path, PathBuf};

use rustc_hash::{FxHashMap, FxHashSet};
use serde::{Deserialize, Serialize};

use super::intake::{Intake, file_name, plain_name, sorted_entries, split_in_name, split_named, utf8};
use super::skos::{Choice, Syntax, Vocabulary, end_of_address};
use super::{ImportContext, Importer, Shares};
use crate::data::error::{DataError, Place};
use crate::data::label::Label;
use crate::data::record::DocumentRecord;
use crate::data::task::{Split, find};
use crate::data::writer::TaskWriter;
use crate::storage::{Lines, read_bounded};
use vocabulary::ByName;

/// Imports a corpus of Annif.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Annif {
    /// The vocabulary. Unless it is named here, the one SKOS file that lies in the source, if any.
    pub vocabulary: Option<PathBuf>,
    /// The language of names, as a tag like `en`.
    pub language: String,
    /// How splits are drawn for documents whose place says nothing of one.
    pub shares: Shares,
}

impl Default for Annif {
    fn default() -> Annif {
        Annif { vocabulary: None, language: "en".to_owned(), shares: Shares::default() }
    }
}

impl Importer for Annif {
    fn import(
        &self,
        source: &Path,
        task: &mut TaskWriter,
        context: &ImportContext<'_>,
    ) -> Result<(), DataError> {
        self.shares.check()?;
        let path = match &self.vocabulary {
            Some(path) => Some(path.clone()),
            None => find_vocabulary(source)?,
        };
        let vocabulary = match &path {
            Some(path) => {
                let vocabulary = vocabulary::read(path, &Choice::new(&self.language, context))?;
                vocabulary.warn(path, &self.language, context);
                vocabulary
            }
            None => Vocabulary::default(),
        };
        let mut walk = Walk {
            intake: Intake::new(task, context),
            shares: self.shares,
            // As the walk will come upon it, however the user spelled it.
            vocabulary: path.map(|path| path.canonicalize().unwrap_or(path)),
            by_name: ByName::of(&vocabulary),
            names: FxHashMap::default(),
        };
        for label in vocabulary.labels {
            walk.intake.label(label)?;
        }
        if source.is_dir() {
            walk.folder(source, None)?;
        } else {
            walk.short_texts(source, split_in_name(&plain_name(source)))?;
        }
        walk.finish(source, vocabulary.retired)
    }
}

fn find_vocabulary(source: &Path) -> Result<Option<PathBuf>, DataError> {
    if !source.is_dir() {
        return Ok(None);
    }
    let mut found = sorted_entries(source)?;
    found.retain(|path| path.is_file() && Syntax::of(path).is_some());
    match &found[..] {
        [] => Ok(None),
        [one] => Ok(Some(one.clone())),
        [first, second, ..] => {
            let (first, second) = (file_name(first), file_name(second));
            Err(DataError::Ambiguous { dir: source.to_owned(), first, second })
        }
    }
}

/// An error if the file is there both plain and compressed: its documents would come twice.
fn refuse_twice(path: &Path, dir: &Path) -> Result<(), DataError> {
    find(dir, &plain_name(path)).map(drop)
}

struct Walk<'a> {
    intake: Intake<'a>,
    shares: Shares,
    vocabulary: Option<PathBuf>,
    by_name: ByName,
    /// Names that subject files give to subjects outside the vocabulary.
    names: FxHashMap<String, String>,
}

impl Walk<'_> {
    fn folder(&mut self, dir: &Path, split: Option<Split>) -> Result<(), DataError> {
        let entries = sorted_entries(dir)?;
        let stem = |path: &Path, ending: &str| plain_name(path).strip_suffix(ending).map(str::to_owned);
        let texts: FxHashSet<String> = entries.iter().filter_map(|path| stem(path, ".txt")).collect();
        for path in &entries {
            if path.is_dir() {
                // Splits are folders of the source, and have no folders of their own.
                if let (None, Some(split)) = (split, split_named(&file_name(path))) {
                    self.folder(path, Some(split))?;
                }
            } else if self.vocabulary.is_some() && path.canonicalize().ok() == self.vocabulary {
                continue;
            } else if let Some(id) = stem(path, ".txt") {
                refuse_twice(path, dir)?;
                self.full_text(path, id, split)?;
            } else if stem(path, ".tsv").is_some_and(|stem| !texts.contains(&stem)) {
                refuse_twice(path, dir)?;
                self.short_texts(path, split.or_else(|| split_in_name(&plain_name(path))))?;
            }
        }
        Ok(())
    }

    fn short_texts(&mut self, path: &Path, split: Option<Split>) -> Result<(), DataError> {
        let name = plain_name(path);
        let stem = name.strip_suffix(".tsv").unwrap_or(&name);
        let mut lines = Lines::open(path, self.intake.context.max_line)?;
        while let Some(line) = lines.next_line()? {
            let (text, subjects) = corpus::parse_document(line.text, || Place::line(path, line.number))?;
            let id = format!("{stem}-{}", line.number);
            let split = split.unwrap_or_else(|| self.shares.split_of(&id));
            let (text, labels) = (text.to_owned(), Some(subjects));
            let record = DocumentRecord { id, title: None, text, labels };
            self.intake.document(split, record, &Place::line(path, line.number))?;
        }
        Ok(())
    }

    fn full_text(&mut self, path: &Path, id: String, split: Option<Split>) -> Result<(), DataError> {
        let bytes = read_bounded(path, self.intake.context.max_line as u64)?;
        let text = utf8(&bytes, path)?.trim().to_owned();
        let dir = path.parent().unwrap_or(path);
        let labels = if let Some(addresses) = find(dir, &format!("{id}.tsv"))? {
            Some(self.subjects_by_address(&addresses)?)
        } else if let Some(names) = find(dir, &format!("{id}.key"))? {
            Some(self.subjects_by_name(&names)?)
        } else {
            None
        };
        let split = split.unwrap_or_else(|| self.shares.split_of(&id));
        self.intake.document(split, DocumentRecord { id, title: None, text, labels }, &Place::file(path))
    }

    fn subjects_by_address(&mut self, path: &Path) -> Result<Vec<String>, DataError> {
        let mut lines = Lines::open(path, self.intake.context.max_line)?;
        let mut subjects = Vec::new();
        while let Some(line) = lines.next_line()? {
            let (address, name) = corpus::parse_subject(line.text, || Place::line(path, line.number))?;
            if let Some(name) = name.filter(|_| !self.intake.has_label(&address)) {
                self.names.entry(address.clone()).or_insert(name);
            }
            subjects.push(address);
        }
        Ok(subjects)
    }

    fn subjects_by_name(&mut self, path: &Path) -> Result<Vec<String>, DataError> {
        let mut lines = Lines::open(path, self.intake.context.max_line)?;
        let mut subjects = Vec::new();
        while let Some(line) = lines.next_line()? {
            let name = line.text.trim();
            // A name that the vocabulary does not know is its own id.
            subjects.push(self.by_name.find(name).cloned().unwrap_or_else(|| {
                self.names.entry(name.to_owned()).or_insert_with(|| name.to_owned()).clone()
            }));
        }
        Ok(subjects)
    }

    /// Describes the subjects that are in use but not in force.
    fn finish(mut self, source: &Path, retired: Vec<Label>) -> Result<(), DataError> {
        let mut retired: FxHashMap<String, Label> =
            retired.into_iter().map(|label| (label.id.clone(), label)).collect();
        let (mut outside, mut unnamed) = (0, 0);
        self.intake.describe_rest(|id| {
            if let Some(label) = retired.remove(id) {
                return label;
            }
            outside += 1;
            unnamed += usize::from(!self.names.contains_key(id));
            Label::new(id, self.names.get(id).map_or_else(|| end_of_address(id), String::as_str))
        })?;
        let context = self.intake.context;
        if outside > 0 && self.vocabulary.is_some() {
            context.warn(&format!("{outside} subjects in use are not in the vocabulary; they were added"));
        }
        if unnamed > 0 {
            context.warn(&format!(
                "{unnamed} subjects have no name and are called by the end of their address, which zero-shot \
                 methods cannot read; name the vocabulary with --vocabulary"
            ));
        }
        self.intake.finish(source, "documents as .tsv or .txt files")
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{complaint, folder, run, source_of};
    use super::*;

    const VOCABULARY: &str = "@prefix skos: <http://www.w3.org/2004/02/skos/core#> .\n\
        <http://x/1> a skos:Concept ; skos:prefLabel \"Cats\"@en ; skos:altLabel \"felines\"@en .\n\
        <http://x/2> a skos:Concept ; skos:prefLabel \"Dogs\"@en .\n\
        <http://x/9> a skos:Concept ; skos:prefLabel \"Old\"@en ;\n\
        <http://www.w3.org/2002/07/owl#deprecated> true .\n";

    #[test]
    fn short_texts_go_to_the_splits_of_their_names() {
        let dir = folder(&[
            ("pets-train.tsv", "about cats\t<http://x/1> <http://x/1>\n\nold\t<http://x/9>\n"),
            ("pets-validate.tsv", "x\t\n"),
            ("pets-test.tsv", "odd\t<http://x/7> <http://x/2>\n"),
            ("pets.ttl", VOCABULARY),
        ]);
        let imported = run(&Annif::default(), &dir, "").unwrap();
        let train = [
            ("pets-train-1", "-", "about cats", "http://x/1".to_owned()),
            ("pets-train-3", "-", "old", "http://x/9".to_owned()),
        ];
        assert_eq!(imported.split(Split::Train), train);
        assert_eq!(imported.split(Split::Dev), [("pets-validate-1", "-", "x", String::new())]);
        assert_eq!(
            imported.split(Split::Test),
            [("pets-test-1", "-", "odd", "http://x/2 http://x/7".to_owned())]
        );
        let names = ["http://x/1=Cats", "http://x/2=Dogs", "http://x/7=7", "http://x/9=Old"];
        assert_eq!(imported.names(), names);
        assert_eq!(imported.warnings.len(), 2);
    }

    #[test]
    fn full_texts_take_subjects_from_beside_them() {
        let dir = folder(&[
            ("docs/train/a.txt", "On felines.\nAnd more.\n"),
            ("docs/train/a.key", "Felines\nBirds\n"),
            ("docs/train/b.txt", "b"),
            ("docs/train/b.tsv", "<http://x/2>\tDogs\n<http://x/3>\tMice\n"),
            ("docs/validate/c.txt", "c"),
            ("docs/notes/d.txt", "not a split"),
            ("v.tsv", "<http://x/2>\tDogs\n<http://x/1>\tfelines\n"),
        ]);
        let importer = Annif { vocabulary: Some(dir.path().join("in/v.tsv")), ..Annif::default() };
        let imported = run(&importer, &dir, "docs").unwrap();
        let train = [
            ("a", "-", "On felines.\nAnd more.", "http://x/1 Birds".to_owned()),
            ("b", "-", "b", "http://x/2 http://x/3".to_owned()),
        ];
        assert_eq!(imported.split(Split::Train), train);
        assert_eq!(imported.split(Split::Dev), [("c", "-", "c", "?".to_owned())]);
        assert_eq!(imported.names()[2..], ["Birds=Birds", "http://x/3=Mice"]);
        assert!(imported.warnings[0].starts_with("2 subjects in use are not in the vocabulary"));
    }

    #[test]
    fn subjects_may_be_compressed() {
        let dir = folder(&[
            ("train/a.txt", "a"),
            ("train/a.tsv.gz", "<http://x/2>\tDogs\n"),
            ("train/b.txt.gz", "b"),
            ("train/b.key.zst", "Cats\n"),
        ]);
        let imported = run(&Annif::default(), &dir, "").unwrap();
        let train = [("a", "-", "a", "http://x/2".to_owned()), ("b", "-", "b", "Cats".to_owned())];
        assert_eq!(imported.split(Split::Train), train);
        let dir = folder(&[("a.txt", "a"), ("a.key", "x"), ("a.key.gz", "y")]);
        assert!(complaint(&Annif::default(), &dir, "").contains("holds both a.key and a.key.gz"));
    }

    #[test]
    fn the_vocabulary_is_no_corpus_however_it_is_spelled() {
        let dir = folder(&[("docs/a.txt", "a"), ("docs/v.tsv", "<http://x/2>\tDogs\n")]);
        let vocabulary = source_of(&dir).join("docs/../docs/./v.tsv");
        let importer = Annif { vocabulary: Some(vocabulary), ..Annif::default() };
        let imported = run(&importer, &dir, "docs").unwrap();
        assert_eq!(imported.all(), [("a", "-", "a", "?".to_owned())]);
        assert_eq!(imported.names(), ["http://x/2=Dogs"]);
    }

    #[test]
    fn documents_without_a_split_are_drawn() {
        let lines: String = (0..100).map(|n| format!("text {n}\t<urn:{}>\n", n % 7)).collect();
        let dir = folder(&[("all.tsv", &lines)]);
        let shares = Shares { dev: 0.3, test: 0.3, seed: 4 };
        let imported = run(&Annif { shares, ..Annif::default() }, &dir, "all.tsv").unwrap();
        let sizes = Split::ALL.map(|split| imported.split(split).len());
        assert!(sizes.iter().all(|&size| size > 10) && sizes.iter().sum::<usize>() == 100, "{sizes:?}");
        assert!(imported.warnings[0].starts_with("7 subjects have no name"));
    }

    #[test]
    fn complaints_name_file_and_line() {
        let with = |files: &[(&str, &str)]| complaint(&Annif::default(), &folder(files), "");
        assert!(with(&[("a.tsv", "x\t<urn:1>\nno tab\n")]).starts_with("a.tsv, line 2: no tab"));
        assert!(
            with(&[("a.txt", "x"), ("a.tsv", "<urn:1>\n\nbad\n")])
                .starts_with("a.tsv, line 3: \"bad\" is no address")
        );
        assert!(with(&[("a.tsv", "x\t<urn:1>\n"), ("v.ttl", "<a")]).starts_with("v.ttl, line 1: "));
        assert!(with(&[("v.ttl", VOCABULARY), ("w.rdf", "")]).contains("holds both v.ttl and w.rdf"));
        assert!(with(&[("v.ttl", VOCABULARY)]).contains("it should hold documents"));
        assert!(
            with(&[("a.tsv", "x\t<urn:1>\n"), ("a.tsv.gz", "")]).contains("holds both a.tsv and a.tsv.gz")
        );
        assert!(
            complaint(&Annif::default(), &folder(&[("a.tsv", "")]), "none.tsv").contains("check the path")
        );
        // Nothing is drawn for dev or test, so both are of train.
        let importer = Annif { shares: Shares { dev: 0.0, test: 0.0, seed: 0 }, ..Annif::default() };
        let twice = complaint(&importer, &folder(&[("a.txt", "x"), ("train/a.txt", "y")]), "");
        assert!(twice.starts_with("train/a.txt: the id \"a\" was used before, in a.txt; "), "{twice}");
    }
}
