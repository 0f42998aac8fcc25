//! A model that is asked and changed at the same time.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use polytag::artifact::{EVALUATION, Manifest, ModelFolder};
use polytag::data::{LabelChange, LabelSpace, Passage};
use polytag::ids::LabelId;
use polytag::method::{LiveModel, fitted_vectors};
use polytag::picture::Plane;
use polytag::predict::Explanation;
use polytag::ranking::Scored;
use polytag_nn::device::Device;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::api::ApiError;
use crate::config::Server;
use crate::desk::Desk;
use crate::feedback::Feedback;
use crate::journal::{Event, Journal};
use crate::live::{Live, View};
use crate::metrics::Metrics;
pub use crate::neighbours::Neighbours;
use crate::store::{Engine, LabelStore, Place, Shared, StoreError};

/// How far up broader labels are followed.
const DEEPEST: usize = 16;
/// How many ways up are shown.
const MOST_PATHS: usize = 3;

/// A document as it comes in.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Document {
    /// Comes back with the answer.
    #[serde(default)]
    pub(crate) id: Option<String>,
    #[serde(default)]
    pub(crate) title: Option<String>,
    pub(crate) text: String,
}

impl Document {
    pub(crate) fn passage(&self) -> Passage<'_> {
        Passage { id: self.id.as_deref(), title: self.title.as_deref(), text: &self.text }
    }
}

/// A label of a document, as it goes out.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct Described {
    pub(crate) id: String,
    pub(crate) name: String,
    /// A probability, where the model gives such; else it orders labels of one document.
    pub(crate) score: f32,
    /// Whether a training document carries it.
    pub(crate) seen: bool,
    /// The names of broader labels, the broadest first; a list for each way up.
    pub(crate) path: Vec<Vec<String>>,
    /// What speaks for it, if that was asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub(crate) why: Option<Explanation>,
}

impl Described {
    /// What is said of a label that was found.
    pub(crate) fn new(space: &LabelSpace, entry: &Scored, why: Option<Explanation>) -> Described {
        let label = space.label(entry.label);
        Described {
            id: label.id.clone(),
            name: label.name.clone(),
            score: entry.score,
            seen: space.is_seen(entry.label),
            path: paths(space, entry.label),
            why,
        }
    }
}

/// The ways from the broadest labels down to a label, without itself.
fn paths(space: &LabelSpace, label: LabelId) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    let mut open = vec![vec![label]];
    while let Some(way) = open.pop() {
        let top = *way.last().unwrap_or(&label);
        // A label above itself leads nowhere.
        let above: Vec<LabelId> =
            space.parents(top).filter(|parent| !way.contains(parent)).take(MOST_PATHS).collect();
        if above.is_empty() || way.len() > DEEPEST {
            if way.len() > 1 {
                found.push(way[1..].iter().rev().map(|&id| space.label(id).name.clone()).collect());
            }
            if found.len() == MOST_PATHS {
                break;
            }
            continue;
        }
        open.extend(above.into_iter().rev().map(|parent| [way.as_slice(), &[parent]].concat()));
    }
    found
}

/// A place on the map of labels.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct Spot {
    pub(crate) x: f32,
    pub(crate) y: f32,
    pub(crate) seen: bool,
    pub(crate) id: String,
    pub(crate) name: String,
}

/// A model with everything that is needed to serve it.
pub struct Served {
    pub(crate) name: String,
    dir: PathBuf,
    pub(crate) live: Arc<Live>,
    pub(crate) store: LabelStore,
    pub(crate) facts: Facts,
    pub(crate) desk: Desk,
    pub(crate) feedback: Feedback,
    pub(crate) neighbours: Option<Arc<Neighbours>>,
    map: OnceLock<Option<Vec<Spot>>>,
}

/// What never changes about a model.
pub(crate) struct Facts {
    pub(crate) manifest: Manifest,
    pub(crate) gives_probabilities: bool,
    pub(crate) takes_new_labels: bool,
    /// How many tokens of a document it reads, where it does not read all.
    pub(crate) reads: Option<usize>,
}

/// A model folder to serve.
pub struct Model<'a> {
    /// What it is called in addresses.
    pub name: String,
    /// Where it lies.
    pub dir: &'a Path,
    /// Where its encoder works.
    pub device: &'a Device,
    /// The documents that it was trained on, to show.
    pub neighbours: Option<Arc<Neighbours>>,
}

/// Why a model cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The model.
    #[error(transparent)]
    Model(#[from] polytag::Error),
    /// The database of its labels.
    #[error("labels in {address}: {source}")]
    Store {
        /// Which database.
        address: String,
        /// What is wrong with it.
        source: Box<StoreError>,
    },
}

impl OpenError {
    /// What is wrong with a database, or with the model whose labels it has.
    pub(crate) fn of_store(address: String, source: StoreError) -> OpenError {
        match source {
            StoreError::Model(error) => OpenError::Model(error),
            source => OpenError::Store { address, source: Box::new(source) },
        }
    }
}

/// What models are served with.
pub(crate) struct Around<'a> {
    pub(crate) server: &'a Server,
    pub(crate) metrics: &'a Arc<Metrics>,
    pub(crate) journal: &'a Arc<Journal>,
    /// Where connections to a database of labels are read, if there is one.
    pub(crate) engine: Option<&'a Arc<Engine>>,
}

impl Served {
    /// Opens a model. Nobody else can change its labels in its folder from now on.
    pub(crate) fn open(model: Model<'_>, around: &Around<'_>) -> Result<Served, OpenError> {
        let Model { name, dir, device, neighbours } = model;
        let shared = around.server.labels.as_ref().zip(around.engine);
        let live = match shared {
            None => LiveModel::open(dir, device)?,
            Some(_) => LiveModel::open_shared(dir, device)?,
        };
        let feedback = Feedback::open(dir).map_err(polytag::Error::from)?;
        let facts = Facts {
            manifest: live.manifest().clone(),
            gives_probabilities: live.predictor().gives_probabilities(),
            takes_new_labels: live.predictor().takes_new_labels(),
            reads: live.predictor().reads(),
        };
        let live = Arc::new(Live::new(live));
        let store = match shared {
            None => LabelStore::Embedded,
            Some((address, engine)) => {
                let place = Place { name: &name, dir, live: &live, journal: around.journal };
                let opened = Shared::open(engine, address, place);
                LabelStore::Shared(opened.map_err(|source| OpenError::of_store(address.in_words(), source))?)
            }
        };
        // It is known by now where its labels are searched, and which they are.
        live.write().place();
        if let Some(notice) = live.notice() {
            around.journal.write(Event::Fault { place: &name, problem: &notice });
        }
        let limits = &around.server.limits;
        let desk = Desk::open(
            Arc::clone(live.model()),
            (limits.batch_tokens, limits.queue_tokens),
            Arc::clone(around.metrics),
        )
        .map_err(polytag::storage::StorageError::io(dir, "begin to serve"))
        .map_err(polytag::Error::from)?;
        let (dir, map) = (dir.to_owned(), OnceLock::new());
        Ok(Served { name, dir, live, store, facts, desk, feedback, neighbours, map })
    }

    /// Its labels as they are now.
    pub(crate) fn view(&self) -> Arc<View> {
        self.live.view()
    }

    /// Makes the changes that `make` wants of its labels, for `by`; what `told` says of them before anybody else can
    /// change them again. When this returns, the changes are kept and in the next answer. It may take long.
    pub(crate) fn change<T>(
        &self,
        by: &str,
        make: impl Fn(&LabelSpace) -> Result<Vec<LabelChange>, ApiError>,
        told: impl FnOnce(&LabelSpace, &[LabelChange]) -> T,
    ) -> Result<T, ApiError> {
        self.store.change(&self.live, by, make, told)
    }

    /// Finishes what was taken, and takes no more.
    pub(crate) fn close(&self) {
        self.desk.close();
        self.store.close();
    }

    /// A file of the training, if there is one.
    pub(crate) fn file(&self, name: &str) -> Option<String> {
        ModelFolder::open(&self.dir).ok()?.read_text(name).ok()
    }

    /// How good it was found to be, if that was kept with it.
    pub(crate) fn evaluation(&self) -> Option<serde_json::Value> {
        serde_json::from_slice(&std::fs::read(self.dir.join(EVALUATION)).ok()?).ok()
    }

    /// Where its labels lie, if they have vectors: those that it was fitted with.
    pub(crate) fn map(&self) -> Option<&[Spot]> {
        self.map.get_or_init(|| self.draw_map()).as_deref()
    }

    fn draw_map(&self) -> Option<Vec<Spot>> {
        if self.store.answers() {
            // Vectors that do not fit in memory are not read for a picture.
            return None;
        }
        let folder = ModelFolder::open(&self.dir).ok()?;
        let space = folder.labels().ok()?;
        let (dim, rows) = fitted_vectors(&folder).ok()?;
        let rows = rows.to_f32();
        let plane = Plane::of(&rows, dim).ok()?;
        let spots = space.iter().filter_map(|(label, text)| {
            let &[x, y] = plane.points.get(label.index())?;
            let (id, name) = (text.id.clone(), text.name.clone());
            Some(Spot { x: x as f32, y: y as f32, seen: space.is_seen(label), id, name })
        });
        Some(spots.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use polytag::data::Label;

    #[test]
    fn ways_up_end_even_where_labels_are_above_themselves() {
        let mut space = LabelSpace::default();
        let with = |id: &str, parents: &[&str]| Label {
            parents: parents.iter().map(|&parent| parent.to_owned()).collect(),
            ..Label::new(id, id.to_uppercase())
        };
        for label in [
            with("a", &[]),
            with("b", &["a"]),
            with("c", &["b", "d", "gone"]),
            with("d", &["c"]),
            with("e", &["e"]),
        ] {
            space.add(label).unwrap();
        }
        let of = |id: &str| paths(&space, space.find(id).unwrap());
        assert_eq!(of("a"), Vec::<Vec<String>>::new());
        assert_eq!(of("b"), [["A"]]);
        assert_eq!(of("c"), [vec!["A".to_owned(), "B".to_owned()], vec!["D".to_owned()]]);
        assert_eq!(of("e"), Vec::<Vec<String>>::new());
    }
}
