//! Where the labels of a model are searched: by this server, or by the database where their vectors do not fit in memory.

use std::sync::Arc;

use polytag::artifact::Manifest;
use polytag::method::label_vector_bytes;
use polytag::predict::PredictError;
use polytag_nn::host_memory;

use super::Place;
use super::address::{Address, LabelSearch};
use super::error::StoreError;
use super::graph::{self, Graph};
use super::link::{CREATION, Engine, Link};
use super::search::Searchers;
use crate::journal::Event;

/// The share of free memory that vectors may take.
const SHARE: u64 = 2;

/// Has the labels of a model searched in the database, if that is wanted; what searches them then.
pub(super) fn searchers(
    (engine, address): (&Arc<Engine>, &Address),
    link: &mut Link,
    place: &Place<'_>,
    (number, dim): (i32, Option<usize>),
) -> Result<Option<Arc<Searchers>>, StoreError> {
    let Place { name, live, journal, .. } = place;
    let tell = |state: &str| journal.write(Event::Store { model: name, state });
    let is_asked = address.search == LabelSearch::Database;
    if !is_asked {
        let (fits, words) = fits_in_memory(live.read().manifest());
        if address.search == LabelSearch::Memory || fits {
            return Ok(None);
        }
        tell(&format!("auto: {words}"));
    }
    match open((engine, address), link, place, (number, dim)) {
        Ok((searchers, graph)) => {
            let Graph { ef, recall_at_100, queries } = graph;
            tell(&format!(
                "labels are searched in the database, {ef} wide: recall@100 was {recall_at_100:.3} on {queries} queries when its \
                 index was made"
            ));
            Ok(Some(searchers))
        }
        Err(error) if is_asked => Err(error),
        Err(error) => {
            tell(&format!("labels are searched in memory all the same: {error}"));
            Ok(None)
        }
    }
}

/// Has the labels of a model searched in the database; an index is made only where somebody asked for both.
fn open(
    (engine, address): (&Arc<Engine>, &Address),
    link: &mut Link,
    Place { name, live, journal, .. }: &Place<'_>,
    (number, dim): (i32, Option<usize>),
) -> Result<(Arc<Searchers>, Graph), StoreError> {
    let only_here = live.read().predictor().search_only_here();
    let refused = |why| StoreError::Model(polytag::Error::Predict(PredictError::OnlyHere { why }));
    let dim = match (only_here, dim) {
        (None, Some(dim)) => dim,
        (why, _) => return Err(refused(why.unwrap_or("its labels have no vectors"))),
    };
    let mut found = engine.wait(link.begin(async |client| graph::find(client, number).await))?;
    if found.is_none() && address.create && address.search == LabelSearch::Database {
        journal.write(Event::Store { model: name, state: "an index is made to search labels by" });
        let patience = std::mem::replace(&mut link.patience, CREATION);
        let made = engine.wait(async {
            link.begin(async |client| client.batch_execute("BEGIN").await).await?;
            let made = link.go_on(async |client| graph::make(client, number, dim).await).await?;
            link.commit().await?;
            Ok::<Graph, StoreError>(made)
        });
        link.patience = patience;
        found = Some(made?);
    }
    let graph = found.ok_or_else(|| StoreError::NotIndexed { model: (*name).to_owned() })?;
    let searchers = Searchers::new(engine, address, (number, dim), &graph)?;
    let index = searchers.index()?;
    live.write().search_elsewhere(Box::new(index))?;
    Ok((searchers, graph))
}

/// Whether the label vectors of a model fit in the memory that is free; and how much they take and there is, in words.
/// They do where nobody knows how much there is.
fn fits_in_memory(manifest: &Manifest) -> (bool, String) {
    let wanted = label_vector_bytes(manifest);
    let Some(free) = host_memory::free() else {
        return (true, "nobody knows how much memory is free".to_owned());
    };
    let words = format!("label vectors take {} MB, and {} MB of memory are free", wanted >> 20, free >> 20);
    (wanted <= free / SHARE, words)
}
