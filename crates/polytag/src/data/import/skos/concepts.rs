//! What triples say of concepts, gathered until the file ends.
//!
//! Triples enter in any order; labels leave in the order in which their concepts were first spoken
//! of. Memory: the texts of the best language so far for each concept, not those of all languages.

use oxrdf::{NamedOrBlankNode, Term, Triple};
use rustc_hash::FxHashMap;

use super::{Vocabulary, end_of_address};
use crate::data::label::Label;

const SKOS: &str = "http://www.w3.org/2004/02/skos/core#";
const RDF_TYPE: &str = "http://www.w3.org/1999/02/22-rdf-syntax-ns#type";
const DEPRECATED: &str = "http://www.w3.org/2002/07/owl#deprecated";

/// Texts of which those in the best language are kept.
#[derive(Debug, Default)]
struct Chosen {
    /// How far from the language asked for, and which; smaller is better.
    rank: Option<(u8, String)>,
    texts: Vec<String>,
}

/// The rank of a text in another language.
const OTHER: u8 = 3;

impl Chosen {
    fn offer(&mut self, rank: (u8, String), text: &str) {
        if text.trim().is_empty() || self.rank.as_ref().is_some_and(|best| *best < rank) {
            return;
        }
        if self.rank.as_ref() != Some(&rank) {
            self.texts.clear();
            self.rank = Some(rank);
        }
        if !self.texts.iter().any(|known| known == text.trim()) {
            self.texts.push(text.trim().to_owned());
        }
    }

    fn is_other(&self) -> bool {
        self.rank.as_ref().is_some_and(|rank| rank.0 == OTHER)
    }
}

#[derive(Debug, Default)]
struct Concept {
    names: Chosen,
    aliases: Chosen,
    definitions: Chosen,
    notes: Chosen,
    parents: Vec<String>,
    is_concept: bool,
    is_other_kind: bool,
    is_deprecated: bool,
}

/// Concepts, as far as the triples so far speak of them.
#[derive(Default)]
pub(super) struct Concepts {
    language: String,
    order: Vec<(String, Concept)>,
    by_id: FxHashMap<String, usize>,
}

impl Concepts {
    pub(super) fn new(language: &str) -> Concepts {
        Concepts { language: language.to_lowercase(), ..Concepts::default() }
    }

    fn entry(&mut self, id: &str) -> &mut Concept {
        let index = match self.by_id.get(id) {
            Some(&index) => index,
            None => {
                self.by_id.insert(id.to_owned(), self.order.len());
                self.order.push((id.to_owned(), Concept::default()));
                self.order.len() - 1
            }
        };
        &mut self.order[index].1
    }

    fn rank(&self, tag: Option<&str>) -> (u8, String) {
        let Some(tag) = tag.map(str::to_lowercase) else { return (2, String::new()) };
        if tag == self.language {
            (0, String::new())
        } else if tag.split('-').next() == Some(&self.language) {
            (1, tag)
        } else {
            (OTHER, tag)
        }
    }

    /// Takes note of a triple; those that say nothing of concepts are passed over.
    pub(super) fn add(&mut self, triple: &Triple) {
        let NamedOrBlankNode::NamedNode(subject) = &triple.subject else { return };
        let (subject, predicate) = (subject.as_str(), triple.predicate.as_str());
        match &triple.object {
            Term::Literal(literal) if predicate == DEPRECATED => {
                self.entry(subject).is_deprecated = matches!(literal.value(), "true" | "1");
            }
            Term::Literal(literal) => {
                let Some(property) = predicate.strip_prefix(SKOS) else { return };
                let rank = self.rank(literal.language());
                let field: fn(&mut Concept) -> &mut Chosen = match property {
                    "prefLabel" => |concept| &mut concept.names,
                    "altLabel" => |concept| &mut concept.aliases,
                    "definition" => |concept| &mut concept.definitions,
                    "scopeNote" => |concept| &mut concept.notes,
                    _ => return,
                };
                field(self.entry(subject)).offer(rank, literal.value());
            }
            Term::NamedNode(object) if predicate == RDF_TYPE => match object.as_str().strip_prefix(SKOS) {
                Some("Concept") => self.entry(subject).is_concept = true,
                Some(_) => self.entry(subject).is_other_kind = true,
                None => {}
            },
            Term::NamedNode(object) => match predicate.strip_prefix(SKOS) {
                Some("broader") => push_once(&mut self.entry(subject).parents, object.as_str()),
                Some("narrower") => push_once(&mut self.entry(object.as_str()).parents, subject),
                _ => {}
            },
            _ => {}
        }
    }

    pub(super) fn finish(self) -> Vocabulary {
        let mut vocabulary = Vocabulary::default();
        for (id, concept) in self.order {
            // Some thesauri leave the type out; then a name makes a concept, unless it names a scheme.
            let named = !concept.names.texts.is_empty() && !concept.is_other_kind;
            if !concept.is_concept && !named {
                continue;
            }
            let is_deprecated = concept.is_deprecated;
            vocabulary.in_other_language += usize::from(concept.names.is_other() && !is_deprecated);
            vocabulary.unnamed += usize::from(concept.names.texts.is_empty() && !is_deprecated);
            let label = concept.into_label(id);
            if is_deprecated { &mut vocabulary.retired } else { &mut vocabulary.labels }.push(label);
        }
        vocabulary
    }
}

impl Concept {
    fn into_label(self, id: String) -> Label {
        let own = |chosen: Chosen| if chosen.is_other() { Vec::new() } else { chosen.texts };
        // A thesaurus should have one name a language; where it has two, the second is an alias.
        let mut names = self.names.texts.into_iter();
        let name = names.next().unwrap_or_else(|| end_of_address(&id).to_owned());
        let mut aliases: Vec<String> = names.collect();
        aliases.extend(own(self.aliases));
        aliases.retain(|alias| *alias != name);
        let description = own(self.definitions).into_iter().chain(own(self.notes)).next();
        Label { id, name, description, aliases, parents: self.parents }
    }
}

fn push_once(list: &mut Vec<String>, item: &str) {
    if !list.iter().any(|known| known == item) {
        list.push(item.to_owned());
    }
}
