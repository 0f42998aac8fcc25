//! WordNet as a task: its data files in, glosses labelled with related meanings out.
//!
//! The source is the folder of `data.noun`, `data.verb`, `data.adj` and `data.adv` that the package
//! wordnet-base installs. A document is the gloss of a synset (a set of words with one meaning): its
//! definition and examples, without its words, which would give the answer away. Its labels are the
//! synsets that it points to, and each label has its words as names, its gloss as description and
//! its hypernyms as parents. A synset `n00001740` is the noun at byte 1740 of its file.
//!
//! All pointers of the wninput(5WN) manual page count, whether they tie meanings or words, but those
//! from a domain to its members (`-c`, `-r`, `-u`): law has 598, of which its gloss says nothing. The files
//! are read twice, first to learn what points where. Memory: 32 bytes a synset, besides the labels that
//! the writer holds.

use std::path::Path;

use rustc_hash::FxHashSet;
use serde::{Deserialize, Serialize};

use super::intake::{Intake, malformed};
use super::{ImportContext, Importer, Shares};
use crate::data::error::{DataError, Place};
use crate::data::label::Label;
use crate::data::record::DocumentRecord;
use crate::data::writer::TaskWriter;
use crate::progress::Stage;
use crate::storage::Lines;

/// Where the package wordnet-base installs its files.
pub const DEFAULT_WORDNET: &str = "/usr/share/wordnet";

/// The files, with the letter of the part of speech that each holds.
const FILES: [(&str, char); 4] =
    [("data.noun", 'n'), ("data.verb", 'v'), ("data.adj", 'a'), ("data.adv", 'r')];

/// Pointers that are not followed: from a domain to its members.
const DOMAIN_MEMBERS: [&str; 3] = ["-c", "-r", "-u"];

/// Pointers to broader meanings: of a kind, and of an instance.
const HYPERNYMS: [&str; 2] = ["@", "@i"];

/// Imports WordNet.
///
/// ```no_run
/// use polytag::data::import::wordnet::{DEFAULT_WORDNET, Wordnet};
/// use polytag::data::import::{ImportContext, import};
/// use polytag::progress::{Silent, Stop};
///
/// let context = ImportContext { progress: &Silent, stop: &Stop::default(), max_line: 1 << 20 };
/// import(&Wordnet::default(), DEFAULT_WORDNET.as_ref(), "tasks/wordnet".as_ref(), &context)?;
/// # Ok::<(), polytag::data::DataError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Wordnet {
    /// Which synsets go to dev and test.
    pub shares: Shares,
}

impl Importer for Wordnet {
    fn import(
        &self,
        source: &Path,
        task: &mut TaskWriter,
        context: &ImportContext<'_>,
    ) -> Result<(), DataError> {
        self.shares.check()?;
        let mut known = FxHashSet::default();
        let mut targets = FxHashSet::default();
        let stage = Stage::start(context.progress, "finding related synsets", None);
        visit(source, context, |synset, _| {
            known.insert(synset.id);
            targets.extend(synset.related.iter().map(|pointer| pointer.target));
            stage.step();
            Ok(())
        })?;
        stage.finish();
        let missing = targets.difference(&known).count();
        if missing > 0 {
            context.warn(&format!(
                "{}: {missing} synsets are pointed to but not there, and are left out; install wordnet-base \
                 again if that surprises you",
                source.display()
            ));
        }
        let mut intake = Intake::new(task, context);
        visit(source, context, |mut synset, place| {
            synset.related.retain(|pointer| known.contains(&pointer.target) && pointer.target != synset.id);
            if targets.contains(&synset.id) {
                intake.label(synset.label())?;
            }
            if synset.related.is_empty() {
                return Ok(());
            }
            let document = synset.document();
            intake.document(self.shares.split_of(&document.id), document, place)
        })?;
        intake.finish(source, "synsets that point to each other; install wordnet-base again")
    }
}

/// Hands each synset of the files in `source` to `take`, in order, with its place.
fn visit(
    source: &Path,
    context: &ImportContext<'_>,
    mut take: impl FnMut(Synset, &Place) -> Result<(), DataError>,
) -> Result<(), DataError> {
    for (name, part) in FILES {
        let path = source.join(name);
        if !path.is_file() {
            return Err(malformed(
                Place::file(source),
                format!("holds no {name}"),
                format!(
                    "install it with `apt-get install wordnet-base`, which puts it into {DEFAULT_WORDNET}"
                ),
            ));
        }
        let mut lines = Lines::open(&path, context.max_line)?;
        while let Some(line) = lines.next_line()? {
            context.check_stop()?;
            // The licence at the top is indented.
            if line.text.starts_with(' ') {
                continue;
            }
            let place = Place::line(&path, line.number);
            let synset = Synset::parse(line.text, part)
                .map_err(|problem| malformed(place.clone(), problem, "install wordnet-base again"))?;
            take(synset, &place)?;
        }
    }
    Ok(())
}

/// The part of speech and the place of a synset in its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct SynsetId {
    part: char,
    offset: u32,
}

impl SynsetId {
    fn parse(part: &str, offset: &str) -> Result<SynsetId, String> {
        let part = match part {
            "n" => 'n',
            "v" => 'v',
            // Satellites lie in the same file as the adjectives they belong to.
            "a" | "s" => 'a',
            "r" => 'r',
            _ => return Err(format!("{part:?} is no part of speech")),
        };
        let offset = offset.parse().map_err(|_| format!("{offset:?} is no place of a synset"))?;
        Ok(SynsetId { part, offset })
    }

    fn name(self) -> String {
        format!("{}{:08}", self.part, self.offset)
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Pointer {
    is_hypernym: bool,
    target: SynsetId,
}

#[derive(Debug, PartialEq, Eq)]
struct Synset {
    id: SynsetId,
    /// Its words, spelled with spaces; at least one.
    words: Vec<String>,
    /// Where its followed pointers lead, in their order.
    related: Vec<Pointer>,
    gloss: String,
}

impl Synset {
    /// Reads a line of a data file, as wndb(5WN) lays it out:
    /// `offset file type w_cnt (word lex_id)… p_cnt (symbol offset part source/target)… | gloss`.
    fn parse(line: &str, part: char) -> Result<Synset, String> {
        let (data, gloss) = line.split_once(" | ").ok_or("no gloss behind a bar")?;
        let mut columns = data.split(' ');
        let mut column = |what: &str| columns.next().ok_or_else(|| format!("ends before its {what}"));
        let offset = column("place")?;
        column("lexicographer file")?;
        let id = SynsetId::parse(column("type")?, offset)?;
        if id.part != part {
            return Err(format!("a synset of type {:?} in the file of {part:?}", id.part));
        }
        let word_count = column("number of words")?;
        let word_count = u8::from_str_radix(word_count, 16)
            .map_err(|_| format!("{word_count:?} is no hexadecimal number of words"))?;
        let mut words: Vec<String> = Vec::new();
        for _ in 0..word_count {
            let word = spelled(column("words")?);
            column("lexical ids")?;
            if !words.contains(&word) {
                words.push(word);
            }
        }
        if words.first().is_none_or(|word| word.trim().is_empty()) {
            return Err("a synset without words".to_owned());
        }
        let pointer_count = column("number of pointers")?;
        let pointer_count: u16 =
            pointer_count.parse().map_err(|_| format!("{pointer_count:?} is no number of pointers"))?;
        let mut related: Vec<Pointer> = Vec::new();
        for _ in 0..pointer_count {
            let symbol = column("pointers")?;
            let offset = column("pointers")?;
            let target = SynsetId::parse(column("pointers")?, offset)?;
            column("pointers")?;
            if DOMAIN_MEMBERS.contains(&symbol) {
                continue;
            }
            let is_hypernym = HYPERNYMS.contains(&symbol);
            match related.iter_mut().find(|pointer| pointer.target == target) {
                Some(pointer) => pointer.is_hypernym |= is_hypernym,
                None => related.push(Pointer { is_hypernym, target }),
            }
        }
        Ok(Synset { id, words, related, gloss: gloss.trim().to_owned() })
    }

    fn document(&self) -> DocumentRecord {
        DocumentRecord {
            id: self.id.name(),
            title: None,
            text: self.gloss.clone(),
            labels: Some(self.related.iter().map(|pointer| pointer.target.name()).collect()),
        }
    }

    fn label(&self) -> Label {
        let hypernyms = self.related.iter().filter(|pointer| pointer.is_hypernym);
        Label {
            id: self.id.name(),
            name: self.words[0].clone(),
            description: Some(self.gloss.clone()).filter(|gloss| !gloss.is_empty()),
            aliases: self.words[1..].to_vec(),
            parents: hypernyms.map(|pointer| pointer.target.name()).collect(),
        }
    }
}

/// A word as people write it: spaces for underscores, and without the mark of where an adjective may
/// stand, as in `ready(p)`.
fn spelled(word: &str) -> String {
    let word = ["(p)", "(a)", "(ip)"].iter().find_map(|mark| word.strip_suffix(mark)).unwrap_or(word);
    word.replace('_', " ")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::data::import::testing::{complaint, folder, run};

    const NOUNS: &str = "  1 This software and database is being provided to you, the LICENSEE, by  \n\
        00001740 03 n 01 entity 0 002 ~ 00001930 n 0000 -c 00001930 n 0000 | that which is perceived  \n\
        00001930 03 n 02 physical_entity 0 thing 1 003 @ 00001740 n 0000 + 00001740 v 0101 = 00009999 a 0000 | \
        an entity; \"there it is\"  \n";
    const VERBS: &str =
        "00001740 29 v 01 breathe 0 001 + 00001930 n 0101 01 + 02 00 | draw air into the lungs  \n";
    const ADJECTIVES: &str = "00003131 00 s 01 ready(p) 0 001 & 00003131 a 0000 | prepared  \n";

    fn wordnet(nouns: &str) -> tempfile::TempDir {
        folder(&[
            ("data.noun", nouns),
            ("data.verb", VERBS),
            ("data.adj", ADJECTIVES),
            ("data.adv", "00001740 02 r 01 a_cappella 0 000 | without musical accompaniment  \n"),
        ])
    }

    #[test]
    fn glosses_are_labelled_with_what_they_point_to() {
        let imported = run(&Wordnet::default(), &wordnet(NOUNS), "").unwrap();
        let documents = imported.all();
        let ids: Vec<&str> = documents.iter().map(|document| document.0).collect();
        assert_eq!(ids, ["n00001740", "n00001930", "v00001740"]);
        let gloss = "an entity; \"there it is\"";
        assert_eq!(documents[1], ("n00001930", "-", gloss, "n00001740 v00001740".to_owned()));
        let expected = Label {
            description: Some(gloss.into()),
            aliases: vec!["thing".into()],
            parents: vec!["n00001740".into()],
            ..Label::new("n00001930", "physical entity")
        };
        assert_eq!(*imported.label("n00001930"), expected);
        assert_eq!(imported.label("a00003131").name, "ready");
        assert!(imported.labels.iter().all(|label| label.id != "r00001740"));
        assert_eq!(imported.warnings.len(), 1);
        assert!(imported.warnings[0].contains("1 synsets are pointed to but not there"));
    }

    #[test]
    fn what_is_wrong_is_said_with_file_line_and_remedy() {
        for (line, problem) in [
            ("00001740 03 n 01 entity 0 000 that which", "no gloss"),
            ("00001740 03 n 01 entity 0 001 ~ 00001930 | that which", "ends before its pointers"),
            ("00001740 03 n xx entity 0 000 | that which", "is no hexadecimal number"),
            ("00001740 03 v 01 entity 0 000 | that which", "in the file of 'n'"),
            ("00001740 03 n 00 000 | that which", "without words"),
            ("x 03 n 01 entity 0 000 | that which", "is no place"),
        ] {
            let error = complaint(&Wordnet::default(), &wordnet(&format!("{NOUNS}{line}\n")), "");
            assert!(error.starts_with("data.noun, line 4: "), "{error}");
            assert!(error.contains(problem) && error.contains("install wordnet-base again"), "{error}");
        }
        let error = complaint(&Wordnet::default(), &folder(&[]), "");
        assert!(error.contains("holds no data.noun; install it"), "{error}");
        let twice = format!("{NOUNS}{}\n", NOUNS.lines().nth(1).unwrap());
        let error = complaint(&Wordnet::default(), &wordnet(&twice), "");
        assert!(error.starts_with("data.noun, line 4: the id \"n00001740\" was used before, on line 2"));
        let alone = "00001740 03 n 01 entity 0 000 | that which is perceived  \n";
        let error = complaint(&Wordnet::default(), &wordnet(alone), "");
        assert!(error.contains("no document was found; it should hold synsets that point"), "{error}");
    }

    #[test]
    fn shares_are_checked() {
        let shares = Shares { dev: 0.6, test: 0.6, seed: 0 };
        let error = complaint(&Wordnet { shares }, &wordnet(NOUNS), "");
        assert!(error.starts_with("dev cannot take 0.6 and test 0.6"), "{error}");
    }

    proptest! {
        #[test]
        fn any_line_is_read_or_refused(line in "[0-9a-z@~ |(]{0,60}|\\PC{0,60}") {
            let _ = Synset::parse(&line, 'n');
        }
    }
}
