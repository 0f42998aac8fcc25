//! Packages labelled with their debtags.
//!
//! Documents are the packages that somebody tagged; a label is a tag `facet::tag`, described by the
//! vocabulary that the package debtags installs. The whole vocabulary becomes labels, those that no
//! package carries too: a tag somebody may need tomorrow is an unseen label today.
//!
//! Notes of the people who tag, to each other, are left out, as they say nothing about the package:
//! `special::*` ("needs review") and `*::TODO` ("the right tag is missing").
//!
//! Facets are not labels, as nobody tags with them, so labels have no parents. The facet's name
//! stands in an alias instead ("Implemented in: C"), because names repeat between facets.

use std::collections::BTreeSet;
use std::path::Path;

use rustc_hash::FxHashMap;

use super::control::{Paragraphs, malformed, short_and_long};
use super::lists::Lists;
use super::{DEFAULT_VOCABULARY, Debian, document_of};
use crate::data::error::DataError;
use crate::data::import::ImportContext;
use crate::data::import::intake::Intake;
use crate::data::label::Label;
use crate::data::writer::TaskWriter;

const VOCABULARY_FIELDS: &[&str] = &["Facet", "Tag", "Description"];

/// Writes tagged packages and their tags to `task`.
pub(super) fn import(
    debian: &Debian,
    lists: &Lists,
    task: &mut TaskWriter,
    context: &ImportContext<'_>,
) -> Result<(), DataError> {
    let vocabulary = read_vocabulary(debian, context)?;
    let mut intake = Intake::new(task, context);
    for label in vocabulary {
        intake.label(label)?;
    }
    lists.visit(context, |package, entry| {
        let Some(field) = entry.field("Tag") else { return Ok(()) };
        let tags = parse_tags(&field.value).map_err(|problem| entry.malformed(field, problem))?;
        if tags.is_empty() {
            return Ok(());
        }
        let split = debian.shares.split_of(&package.name);
        intake.document(split, document_of(package, tags.into_iter().collect()), &entry.place())
    })?;
    // Tags older or newer than the vocabulary have to speak for themselves.
    intake.describe_rest(|tag| Label::new(tag, spelled_out(tag)))?;
    intake.finish(
        lists.dir(),
        "packages with a field Tag, as those of Debian's own archive; add that archive and run `apt-get \
         update`, or take --labels related",
    )
}

/// The labels of the vocabulary in its order; none, with a warning, where it is not installed.
fn read_vocabulary(debian: &Debian, context: &ImportContext<'_>) -> Result<Vec<Label>, DataError> {
    let default = Path::new(DEFAULT_VOCABULARY);
    let path = debian.vocabulary.as_deref().unwrap_or(default);
    // A file that was asked for must be there; one that was not need not.
    if debian.vocabulary.is_none() && !path.exists() {
        let warning = format!(
            "{}: not there, so tags are named by their ids and have no description; run `apt-get install \
             debtags`, or say where the vocabulary is with --vocabulary FILE",
            path.display()
        );
        context.warn(&warning);
        return Ok(Vec::new());
    }
    let mut facets = FxHashMap::default();
    let mut labels = Vec::new();
    let mut paragraphs = Paragraphs::open(path, VOCABULARY_FIELDS, context.max_line)?;
    while let Some(paragraph) = paragraphs.read()? {
        context.check_stop()?;
        let (short, long) = short_and_long(paragraph.value("Description").unwrap_or_default());
        match (paragraph.value("Facet"), paragraph.value("Tag")) {
            (Some(facet), None) => {
                facets.insert(facet.to_owned(), short.to_owned());
            }
            (None, Some(tag)) if is_note(tag) => {}
            (None, Some(tag)) if !tag.is_empty() => labels.push(Label {
                id: tag.to_owned(),
                name: if short.is_empty() { spelled_out(tag) } else { short.to_owned() },
                description: long,
                ..Label::default()
            }),
            _ => {
                let problem = "the paragraph is neither of a Facet nor of a Tag";
                return Err(malformed(paragraphs.path(), paragraph.line, problem));
            }
        }
    }
    for label in &mut labels {
        let facet = label.id.split_once("::").and_then(|(facet, _)| facets.get(facet));
        if let Some(facet) = facet.filter(|facet| !facet.is_empty()) {
            label.aliases.push(format!("{facet}: {}", label.name));
        }
    }
    Ok(labels)
}

/// The tags of a `Tag` field, each once, in order; what is wrong with it otherwise.
///
/// Lists of old write `role::{program,data}` for two tags of one facet.
fn parse_tags(value: &str) -> Result<BTreeSet<String>, String> {
    let mut tags = BTreeSet::new();
    for item in split_outside_braces(value) {
        let item = item.trim();
        let expanded = match item.split_once('{') {
            None if item.contains('}') => {
                return Err(format!("the tag {item:?} closes a brace it never opened"));
            }
            None => vec![item.to_owned()],
            Some((before, rest)) => match rest.split_once('}') {
                Some((inside, after))
                    if !(before.contains('}') || inside.contains('{') || after.contains(['{', '}'])) =>
                {
                    inside.split(',').map(|part| format!("{before}{}{after}", part.trim())).collect()
                }
                _ => return Err(format!("the braces of the tag {item:?} do not match, or it has several")),
            },
        };
        tags.extend(expanded.into_iter().filter(|tag| !tag.is_empty() && !is_note(tag)));
    }
    Ok(tags)
}

fn split_outside_braces(value: &str) -> impl Iterator<Item = &str> {
    let mut inside = false;
    value.split(move |letter| {
        match letter {
            '{' => inside = true,
            '}' => inside = false,
            _ => {}
        }
        letter == ',' && !inside
    })
}

/// Whether a tag is a note between those who tag.
fn is_note(tag: &str) -> bool {
    tag.starts_with("special::") || tag.ends_with(":TODO")
}

/// A name for a tag that nobody described: `use::gameplaying` is "use: gameplaying".
fn spelled_out(tag: &str) -> String {
    tag.replace("::", ": ")
}

#[cfg(test)]
mod tests {
    use std::fs;

    use proptest::prelude::*;

    use super::*;
    use crate::data::import::testing::{complaint, folder, run, source_of};

    const PACKAGES: &str = "\
Package: 0ad
Description: Strategy game
Tag: game::strategy, role::program,
 use::gameplaying, special::unreviewed

Package: untagged
Description: Nobody tagged it

Package: noted
Description: Only noted
Tag: culture::TODO

Package: old
Description: Of the days of braces
Tag: role::{data,program}, implemented-in::c
";

    const VOCABULARY: &str = "\
Facet: role
Description: Role

Tag: role::program
Description: Program
 A program.
 .
 To run.

Tag: role::data
Description: Data

Tag: role::unused
Description: Not in use

Tag: special::unreviewed
Description: Needs review
";

    #[test]
    fn tags_become_labels_with_the_words_of_the_vocabulary() {
        let dir = folder(&[("x_Packages.lz4", PACKAGES), ("vocabulary", VOCABULARY)]);
        let debian = Debian { vocabulary: Some(source_of(&dir).join("vocabulary")), ..Debian::default() };
        let imported = run(&debian, &dir, "").unwrap();
        let game = "use::gameplaying role::program game::strategy";
        let documents: Vec<(&str, BTreeSet<String>)> = imported
            .all()
            .into_iter()
            .map(|(id, _, _, labels)| (id, labels.split(' ').map(str::to_owned).collect()))
            .collect();
        let expected = [("0ad", game), ("old", "implemented-in::c role::data role::program")];
        assert_eq!(
            documents,
            expected.map(|(id, labels)| (id, labels.split(' ').map(str::to_owned).collect()))
        );
        assert_eq!(imported.labels.len(), 6);
        let program = imported.label("role::program");
        assert_eq!(program.description.as_deref(), Some("A program.\n\nTo run."));
        assert_eq!(
            (program.name.as_str(), &program.aliases[..]),
            ("Program", &["Role: Program".to_owned()][..])
        );
        assert_eq!(imported.label("role::unused").name, "Not in use");
        assert!(imported.labels.iter().all(|label| label.id != "special::unreviewed"));
        assert_eq!(*imported.label("use::gameplaying"), Label::new("use::gameplaying", "use: gameplaying"));
        // The lists have no translations, and that is said; the vocabulary is there.
        assert_eq!(imported.warnings.len(), 1);
    }

    #[test]
    fn lists_without_tags_make_no_task() {
        let dir = folder(&[("x_Packages", "Package: a\nDescription: A\n"), ("vocabulary", VOCABULARY)]);
        let debian = Debian { vocabulary: Some(source_of(&dir).join("vocabulary")), ..Debian::default() };
        let complaint = complaint(&debian, &dir, "");
        assert!(complaint.contains("no document was found; it should hold packages with a field Tag"));
        assert!(complaint.contains("--labels related"));
    }

    #[test]
    fn a_vocabulary_that_was_asked_for_must_be_there_and_in_order() {
        let dir = folder(&[("x_Packages", PACKAGES)]);
        let path = source_of(&dir).join("vocabulary");
        let debian = Debian { vocabulary: Some(path.clone()), ..Debian::default() };
        assert!(complaint(&debian, &dir, "").starts_with("vocabulary: cannot open"));
        for (text, line) in [("Facet: role\n\nDescription: whose?\n", 3), ("Tag:\nDescription: x\n", 1)] {
            fs::write(&path, text).unwrap();
            let expected = format!("vocabulary, line {line}: the paragraph is neither");
            assert!(complaint(&debian, &dir, "").starts_with(&expected));
        }
    }

    #[test]
    fn braces_that_do_not_match_are_named_with_their_line() {
        for tag in ["a::{b,c", "a::b}", "a::{b}{c}", "a::{b,{c}}", "}a::{b}"] {
            let dir = folder(&[("x_Packages", &format!("Package: p\nDescription: P\nTag: {tag}\n"))]);
            let complaint = complaint(&Debian::default(), &dir, "");
            assert!(complaint.starts_with("x_Packages, line 3: the "), "{tag}: {complaint}");
        }
    }

    proptest! {
        #[test]
        fn any_field_gives_tags_or_an_error(value in "[a-z:,{} \\n]{0,80}") {
            if let Ok(tags) = parse_tags(&value) {
                let clean = tags.iter().all(|tag| !tag.contains(['{', '}', ',']));
                prop_assert!(clean);
            }
        }
    }
}
