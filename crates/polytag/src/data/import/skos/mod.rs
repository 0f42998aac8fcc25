//! SKOS thesauri, in Turtle, N-Triples or RDF/XML, as labels.
//!
//! A file enters triple by triple; what leaves is a [`Vocabulary`]: a label for each concept, in the
//! order in which the file first speaks of them. The id is the concept's address, the name its
//! `prefLabel`, aliases its `altLabel`s, the description its `definition` or else its `scopeNote`,
//! and parents what it is narrower than. Memory: the labels, in one language.
//!
//! Names come in many languages. The one asked for is taken, then one of its regions (`en-GB` for
//! `en`), then one without a language; only a name may then be in any other, since a label must have
//! one. Among other languages the first in the alphabet is taken, so that order does not matter.

mod concepts; // triples in, labels out, in one language
mod entities; // keeps XML from growing beyond the limit

use std::io::{self, BufRead};
use std::path::Path;

use oxrdfxml::{RdfXmlParseError, RdfXmlParser};
use oxttl::{TurtleParseError, TurtleParser};
use serde::{Deserialize, Serialize};

use concepts::Concepts;
use entities::EntityGuard;

use super::intake::{malformed, plain_name};
use super::{ImportContext, Importer};
use crate::data::error::{DataError, Place};
use crate::data::label::Label;
use crate::data::writer::TaskWriter;
use crate::progress::{Event, Stop};
use crate::storage::{Metered, decode_error, open};

/// Imports a thesaurus as a task of labels without documents.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Skos {
    /// The language of names, as a tag like `en`.
    pub language: String,
}

impl Default for Skos {
    fn default() -> Skos {
        Skos { language: "en".to_owned() }
    }
}

impl Importer for Skos {
    fn import(
        &self,
        source: &Path,
        task: &mut TaskWriter,
        context: &ImportContext<'_>,
    ) -> Result<(), DataError> {
        context.progress.report(Event::Started { stage: "reading the thesaurus", total: None });
        let vocabulary = Vocabulary::open(source, &Choice::new(&self.language, context))?;
        vocabulary.warn(source, &self.language, context);
        if vocabulary.labels.is_empty() {
            return Err(DataError::Empty { path: source.to_owned(), expected: "skos:Concept entries" });
        }
        for label in vocabulary.labels {
            task.label(label)?;
        }
        context.progress.report(Event::Finished);
        Ok(())
    }
}

/// How a thesaurus is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Syntax {
    /// Turtle, of which N-Triples is a part.
    Turtle,
    /// RDF/XML.
    Xml,
}

impl Syntax {
    /// The syntax that a file's name speaks of.
    pub fn of(path: &Path) -> Option<Syntax> {
        let name = plain_name(path).to_lowercase();
        match name.rsplit_once('.')?.1 {
            "ttl" | "nt" => Some(Syntax::Turtle),
            "rdf" | "xml" | "owl" => Some(Syntax::Xml),
            _ => None,
        }
    }
}

/// The concepts of a thesaurus.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Vocabulary {
    /// Those in force.
    pub labels: Vec<Label>,
    /// Those that the file calls deprecated; old documents may still carry them.
    pub retired: Vec<Label>,
    /// How many names are in a language that was not asked for.
    pub in_other_language: usize,
    /// How many have no name, and are called by the end of their address.
    pub unnamed: usize,
}

impl Vocabulary {
    /// Reads the file `path`, in the syntax its name speaks of.
    pub fn open(path: &Path, choice: &Choice<'_>) -> Result<Vocabulary, DataError> {
        let Some(syntax) = Syntax::of(path) else {
            return Err(malformed(
                Place::file(path),
                "the ending of the name says nothing of a thesaurus",
                "name a file in Turtle (.ttl), N-Triples (.nt) or RDF/XML (.rdf, .xml)",
            ));
        };
        Vocabulary::read(path, open(path)?, syntax, choice)
    }

    /// Reads `input`; `path` is only its name in errors.
    pub fn read(
        path: &Path,
        input: impl BufRead,
        syntax: Syntax,
        choice: &Choice<'_>,
    ) -> Result<Vocabulary, DataError> {
        let mut concepts = Concepts::new(choice.language);
        match syntax {
            Syntax::Turtle => {
                for triple in TurtleParser::new().for_reader(input) {
                    choice.check_stop()?;
                    concepts.add(&triple.map_err(|error| turtle_error(path, error))?);
                }
            }
            Syntax::Xml => {
                let input = Metered::new(input, choice.limit);
                let meter = input.meter();
                for triple in RdfXmlParser::new().for_reader(EntityGuard::new(input)) {
                    let triple = triple.map_err(|error| match error {
                        RdfXmlParseError::Io(error) if error.kind() == io::ErrorKind::InvalidInput => {
                            let place = Place::line(path, meter.line());
                            malformed(place, error.to_string(), "write it out where it is used")
                        }
                        RdfXmlParseError::Io(error) => meter.error(path, error).into(),
                        RdfXmlParseError::Syntax(error) => {
                            syntax_error(path, meter.line(), error.to_string())
                        }
                    })?;
                    choice.check_stop()?;
                    meter.mark();
                    concepts.add(&triple);
                }
            }
        }
        Ok(concepts.finish())
    }

    /// Says what the names lack.
    pub(super) fn warn(&self, path: &Path, language: &str, context: &ImportContext<'_>) {
        let path = path.display();
        if self.in_other_language > 0 {
            let count = self.in_other_language;
            context
                .warn(&format!("{path}: {count} concepts have no name in {language:?}, so another is used"));
        }
        if self.unnamed > 0 {
            let count = self.unnamed;
            context.warn(&format!("{path}: {count} concepts have no name and are called by their address"));
        }
    }
}

/// What to take from a thesaurus.
#[derive(Clone, Copy, Debug)]
pub struct Choice<'a> {
    /// The language of names.
    pub language: &'a str,
    /// The most bytes an entry may take.
    pub limit: usize,
    /// Whether to end early.
    pub stop: &'a Stop,
}

impl<'a> Choice<'a> {
    /// This language, within what the context allows.
    pub(super) fn new(language: &'a str, context: &ImportContext<'a>) -> Choice<'a> {
        Choice { language, limit: context.max_line, stop: context.stop }
    }

    fn check_stop(&self) -> Result<(), DataError> {
        if self.stop.is_asked() { Err(DataError::Stopped) } else { Ok(()) }
    }
}

fn turtle_error(path: &Path, error: TurtleParseError) -> DataError {
    match error {
        TurtleParseError::Io(error) => decode_error(path, error).into(),
        TurtleParseError::Syntax(error) => {
            syntax_error(path, error.location().start.line + 1, error.message().to_owned())
        }
    }
}

fn syntax_error(path: &Path, line: u64, problem: String) -> DataError {
    malformed(Place::line(path, line), problem, "correct the file or export the thesaurus again")
}

/// What comes last in an address: `p123` of `http://www.yso.fi/onto/yso/p123`.
pub(super) fn end_of_address(address: &str) -> &str {
    let trimmed = address.trim_end_matches(['/', '#']);
    let end = trimmed.rsplit(['/', '#']).next().unwrap_or(trimmed);
    if end.is_empty() { address } else { end }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{complaint, folder, run};
    use super::*;
    use proptest::prelude::*;

    const TURTLE: &str = r#"@prefix skos: <http://www.w3.org/2004/02/skos/core#> .
@prefix ex: <http://example.org/> .
ex:scheme a skos:ConceptScheme ; skos:prefLabel "Scheme"@en .
ex:1 a skos:Concept ; skos:prefLabel "Kissa"@fi, "Cat"@en, "Cat (GB)"@en-GB ;
  skos:altLabel "kitty"@en, "kisu"@fi, "kitty"@en ; skos:scopeNote "A note."@en ;
  skos:definition "A pet."@en ; skos:broader ex:2 .
ex:2 a skos:Concept ; skos:prefLabel "Eläin"@fi, "Djur"@sv ; skos:altLabel "otus"@fi ; skos:narrower ex:3 .
ex:3 skos:prefLabel "Dog" .
ex:4 a skos:Concept .
ex:5 a skos:Concept ; skos:prefLabel "Old"@en ; <http://www.w3.org/2002/07/owl#deprecated> true .
"#;

    const XML: &str = r#"<?xml version="1.0"?>
<!DOCTYPE rdf:RDF [ <!ENTITY ex "http://example.org/"> ]>
<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#"
         xmlns:skos="http://www.w3.org/2004/02/skos/core#">
  <skos:Concept rdf:about="&ex;1">
    <skos:prefLabel xml:lang="en">Cat</skos:prefLabel>
    <skos:broader rdf:resource="&ex;2"/>
  </skos:Concept>
  <skos:Concept rdf:about="&ex;2"><skos:prefLabel xml:lang="en">Animal</skos:prefLabel></skos:Concept>
</rdf:RDF>
"#;

    #[test]
    fn turtle_becomes_labels_in_one_language() {
        let dir = folder(&[("t.ttl", TURTLE)]);
        let imported = run(&Skos::default(), &dir, "t.ttl").unwrap();
        let ex = "http://example.org/";
        let names = ["1=Cat", "2=Eläin", "3=Dog", "4=4"].map(|name| format!("{ex}{name}"));
        assert_eq!(imported.names(), names);
        let cat = &imported.labels[0];
        assert_eq!(cat.aliases, ["kitty"]);
        assert_eq!(cat.description.as_deref(), Some("A pet."));
        assert_eq!(cat.parents, [format!("{ex}2")]);
        assert_eq!(imported.labels[1].aliases, [""; 0]);
        assert_eq!(imported.labels[2].parents, [format!("{ex}2")]);
        assert_eq!(imported.warnings.len(), 2);
        let finnish =
            run(&Skos { language: "fi".to_owned() }, &folder(&[("t.ttl", TURTLE)]), "t.ttl").unwrap();
        assert_eq!(
            (finnish.labels[0].name.as_str(), &finnish.labels[0].aliases[..]),
            ("Kissa", &["kisu".to_owned()][..])
        );
    }

    #[test]
    fn xml_says_the_same() {
        let dir = folder(&[("t.rdf", XML)]);
        let imported = run(&Skos::default(), &dir, "t.rdf").unwrap();
        assert_eq!(imported.names(), ["http://example.org/1=Cat", "http://example.org/2=Animal"]);
        assert_eq!(imported.labels[0].parents, ["http://example.org/2"]);
    }

    #[test]
    fn complaints_name_file_and_line() {
        let with = |name: &str, content: &str| complaint(&Skos::default(), &folder(&[(name, content)]), name);
        assert!(with("t.ttl", &TURTLE.replace("ex:4 a", "ex:4 &")).starts_with("t.ttl, line 9: "));
        assert!(with("t.ttl", "").contains("it should hold skos:Concept entries"));
        assert!(with("t.doc", "").contains("the ending of the name"));
        let broken = with("t.xml", &XML.replace("</skos:prefLabel>\n", "</skos:wrong>\n"));
        assert!(broken.starts_with("t.xml, line 6: "), "{broken}");
        let growing = with("t.xml", &XML.replace("[ <", "[ <!ENTITY a \"&lol;&lol;\"> <"));
        assert!(growing.starts_with("t.xml, line 2: an entity is made of others"), "{growing}");
        let long = XML.replace("Cat", &"cat\n".repeat(1 << 15));
        assert!(with("t.rdf", &long).starts_with("t.rdf, line 6: longer than"));
    }

    #[test]
    fn entities_cannot_grow() {
        let with = |xml: &str| complaint(&Skos::default(), &folder(&[("t.rdf", xml)]), "t.rdf");
        for declarations in [
            "< <!ENTITY a \"xxxxxxxxxx\"> <!ENTITY b \">&a;&a;&a;&a;\">",
            "<!ENTITY \"\" \"&ex;&ex;\">",
            "<!ENTITY b '>' \"&ex;&ex;\">",
            "<!ENTITY % b \">>>>&ex;&ex;\">",
            "<!ENTITYb \"&ex;&ex;\">",
        ] {
            let complaint = with(&XML.replacen("[ ", &format!("[ {declarations} "), 1));
            assert!(complaint.starts_with("t.rdf, line 2: an entity is made of others"), "{complaint}");
        }
        // A short entity, named often enough, would make a text too long.
        let entity = format!("[ <!ENTITY a \"{}\"> ", "x".repeat(200));
        let many = |count: usize| XML.replacen("[ ", &entity, 1).replacen("Cat", &"&a;".repeat(count), 1);
        assert!(with(&many(400)).starts_with("t.rdf, line 6: longer than"));
        let imported = run(&Skos::default(), &folder(&[("t.rdf", &many(200))]), "t.rdf").unwrap();
        assert_eq!(imported.labels[0].name.len(), 40_000);
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(
            bytes in proptest::collection::vec(any::<u8>(), 0..200),
            text in "[<>&;!ENTIY\"@a-c:/#.\\[\\] \n]{0,80}",
            at in 0usize..600,
        ) {
            let stop = Stop::default();
            let choice = Choice { language: "en", limit: 1000, stop: &stop };
            let cut = |whole: &str| [&whole.as_bytes()[..at.min(whole.len())], text.as_bytes()].concat();
            for bytes in [bytes, text.clone().into_bytes(), cut(TURTLE), cut(XML)] {
                for syntax in [Syntax::Turtle, Syntax::Xml] {
                    let _ = Vocabulary::read(Path::new("x"), &bytes[..], syntax, &choice);
                }
            }
        }
    }
}
