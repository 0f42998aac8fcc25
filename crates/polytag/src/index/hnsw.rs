//! Dense vectors, searched through a graph of labels: a query is compared with a few thousand of a million.
//!
//! The graph leads to what is near by codes in 8 bits; what is answered is scored in full, by the vectors kept beside
//! them, so that a score is the same bits as in every other index. How wide walks go is found when the graph is made, by
//! comparing answers with those of a search through all labels.
//!
//! Labels that are given a vector after the graph was made are compared one and all, those taken out are walked past. Where only
//! some labels are allowed, walks go wider; where few are, or a walk does not come by enough of them, the allowed ones are
//! compared one and all instead.
//!
//! Memory: that of an index in 8 bits beside vectors in 16 or 32, and 4 bytes a link. All of it can lie in files.

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::build::{Plan, build};
use super::codes::CodedQuery;
use super::exact::more_than;
use super::graph::{Graph, Ground, Layer, NONE, Walker};
use super::{Allowed, Exact, IndexError, LabelIndex};
use crate::ids::LabelId;
use crate::progress::{Progress, Stop};
use crate::ranking::{Ranking, TopK};
use crate::storage::Array;

/// The share of labels below which the allowed ones are compared one and all.
const FEW: f64 = 0.1;

/// How many labels are asked for where recall is measured.
pub const MEASURED_AT: usize = 100;

/// Widths that are tried, the narrowest that suffices is taken.
const WIDTHS: [usize; 12] = [112, 128, 144, 160, 192, 224, 256, 320, 400, 512, 768, 1024];

/// How a graph is made.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct HnswConfig {
    /// Links of a label.
    pub width: usize,
    /// How many labels are looked at for them.
    pub breadth: usize,
    /// The recall at 100 that walks must have on the queries they are measured with.
    pub recall: f64,
    /// What chance there is in it.
    pub seed: u64,
}

impl Default for HnswConfig {
    fn default() -> HnswConfig {
        HnswConfig { width: 48, breadth: 200, recall: 0.985, seed: 0 }
    }
}

/// The arrays of a graph, as they are kept in a file.
#[derive(Debug, Default)]
pub struct GraphArrays {
    /// Links of the lowest layer, `width` a position.
    pub links: Array<u32>,
    /// The positions of the labels of each layer above, the lower layers first, rising in each.
    pub nodes: Array<u32>,
    /// Their links, half as many each.
    pub upper: Array<u32>,
    /// How wide a row of links is, how wide walks go, where they begin, and how many labels each layer above has.
    pub numbers: Array<u32>,
    /// The positions of labels that were given a vector after the graph was made, rising.
    pub outside: Array<u32>,
}

/// What a graph was found to be like when it was made.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// How wide walks go where 100 labels or fewer are asked for.
    pub ef: usize,
    /// Recall at 100 against a search through all labels, by their vectors in full.
    pub recall_at_100: f64,
    /// On how many queries.
    pub queries: usize,
}

/// An index that walks through a graph of its labels.
///
/// ```
/// use polytag::ids::LabelId;
/// use polytag::index::{Exact, Hnsw, HnswConfig, LabelIndex, Precision};
/// use polytag::progress::{Silent, Stop};
///
/// let mut all = Exact::new(2, Precision::I8)?;
/// for (label, vector) in [[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]].iter().enumerate() {
///     all.set(LabelId::from_index(label), vector)?;
/// }
/// let config = HnswConfig::default();
/// let (index, measured) = Hnsw::build(all, &config, &[0.8, 0.6], (&Silent, &Stop::default()))?.unwrap();
/// assert_eq!(measured.recall_at_100, 1.0);
/// let ranking = &index.search(&[1.0, 0.0], 2, None)?[0];
/// assert_eq!(ranking.labels().collect::<Vec<_>>(), [LabelId(0), LabelId(2)]);
/// # Ok::<(), polytag::index::IndexError>(())
/// ```
#[derive(Debug)]
pub struct Hnsw {
    exact: Exact,
    graph: Graph,
    ef: usize,
    /// How many labels the graph was made of.
    linked: usize,
    /// Labels whose vectors the graph does not know.
    outside: Allowed,
}

impl Hnsw {
    /// Makes the graph of all labels of `exact`, whose vectors are put in 8 bits beside those it has, if they are not
    /// yet. Walks go as wide as answers to `queries` want, which lie end to end. None if there is no label, or it was
    /// stopped.
    pub fn build(
        exact: Exact,
        config: &HnswConfig,
        queries: &[f32],
        (progress, stop): (&dyn Progress, &Stop),
    ) -> Result<Option<(Hnsw, Measured)>, IndexError> {
        exact.check_queries(queries)?;
        let mut exact = if exact.is_coded() { exact } else { exact.coded()? };
        // Walks go by the codes that the graph was made of, whatever labels are given later.
        exact.vectors.seal();
        let plan = Plan { width: config.width.max(4), breadth: config.breadth.max(1), seed: config.seed };
        let Some(graph) = build(ground(&exact)?, exact.labels(), plan, (progress, stop)) else {
            return Ok(None);
        };
        let linked = exact.len();
        let mut index = Hnsw { exact, graph, ef: WIDTHS[0], linked, outside: Allowed::default() };
        let measured = index.measure(queries, config.recall)?;
        index.ef = measured.ef;
        Ok(Some((index, measured)))
    }

    /// Puts together what was kept: vectors with their codes, and a graph, of which nothing is believed.
    pub fn from_parts(mut exact: Exact, graph: GraphArrays) -> Result<Hnsw, IndexError> {
        let unfit = |problem: String| IndexError::Unfit { problem };
        ground(&exact)?;
        exact.vectors.seal();
        let positions = exact.vectors.positions();
        let &[width, ef, entry, ref counts @ ..] = &graph.numbers[..] else {
            return Err(unfit("it does not say how wide it is".to_owned()));
        };
        if ef == 0 || counts.len() > 64 {
            return Err(unfit(format!("walks of {ef} labels through {} layers lead nowhere", counts.len())));
        }
        let width = width as usize;
        let mut layers = vec![Layer { nodes: Array::default(), links: graph.links, width }];
        let (mut nodes, mut upper, half) = (&graph.nodes[..], &graph.upper[..], width / 2);
        for &count in counts {
            let (Some(first), Some(links)) = (
                nodes.split_off(..count as usize),
                (count as usize).checked_mul(half).and_then(|links| upper.split_off(..links)),
            ) else {
                return Err(unfit("a layer is cut short".to_owned()));
            };
            if first.is_empty() {
                return Err(unfit("a layer has no label".to_owned()));
            }
            layers.push(Layer { nodes: first.to_vec().into(), links: links.to_vec().into(), width: half });
        }
        if !nodes.is_empty() || !upper.is_empty() {
            return Err(unfit("there is more of it than its layers".to_owned()));
        }
        if graph.outside.iter().any(|&position| position as usize >= positions) {
            return Err(unfit("a label outside of it is none".to_owned()));
        }
        let outside: Allowed = graph.outside.iter().map(|&position| LabelId(position)).collect();
        let graph = Graph::checked(layers, entry, positions).map_err(unfit)?;
        let outside = exact.labels().intersected(Some(&outside));
        // Labels that were removed are in it still.
        let links = &graph.layers[0].links;
        let is_linked = |&position: &usize| links[position * width] != NONE || position == entry as usize;
        let linked = (0..positions).filter(is_linked).count();
        Ok(Hnsw { exact, graph, ef: ef as usize, linked, outside })
    }

    /// The arrays of the graph, to be kept beside the vectors and codes of all labels.
    pub fn arrays(&self) -> GraphArrays {
        let Graph { layers, entry } = &self.graph;
        // Positions that came later have no links.
        let mut links = layers[0].links.to_vec();
        links.resize(self.exact.vectors.all_positions() * layers[0].width, NONE);
        let above = &layers[1..];
        let counts = above.iter().map(|layer| layer.nodes.len() as u32);
        let numbers = [layers[0].width as u32, self.ef as u32, *entry].into_iter().chain(counts);
        GraphArrays {
            links: links.into(),
            nodes: above.iter().flat_map(|layer| layer.nodes.iter().copied()).collect::<Vec<u32>>().into(),
            upper: above.iter().flat_map(|layer| layer.links.iter().copied()).collect::<Vec<u32>>().into(),
            numbers: numbers.collect::<Vec<u32>>().into(),
            outside: self.outside.iter().map(|label| label.0).collect::<Vec<u32>>().into(),
        }
    }

    /// The vectors, searched one and all.
    pub fn exact(&self) -> &Exact {
        &self.exact
    }

    /// The same index with walks of another width.
    pub fn with_ef(self, ef: usize) -> Hnsw {
        Hnsw { ef: ef.max(1), ..self }
    }

    /// The narrowest walks whose recall at 100 on `queries` suffices, or the widest there are.
    fn measure(&self, queries: &[f32], wanted: f64) -> Result<Measured, IndexError> {
        let truth = self.exact.search_in_full(queries, MEASURED_AT, None)?;
        let mut measured = Measured { ef: WIDTHS[0], recall_at_100: 1.0, queries: truth.len() };
        for ef in WIDTHS {
            let found = self.search_wide(queries, MEASURED_AT, None, ef)?;
            measured = Measured { ef, recall_at_100: recall(&truth, &found), ..measured };
            if measured.recall_at_100 >= wanted {
                break;
            }
        }
        Ok(measured)
    }

    /// How wide a walk goes for `k` labels.
    fn ef(&self, k: usize) -> usize {
        self.ef.max((self.ef as f64 * k as f64 / MEASURED_AT as f64) as usize).max(k)
    }

    fn search_wide(
        &self,
        queries: &[f32],
        k: usize,
        allowed: Option<&Allowed>,
        ef: usize,
    ) -> Result<Vec<Ranking>, IndexError> {
        // What walks may answer with: labels that are there, allowed and in the graph as they are now.
        let untouched = self.outside.is_empty() && self.exact.len() == self.linked;
        let inside = match allowed {
            None if untouched => None,
            _ => Some(self.exact.labels().intersected(allowed).without(&self.outside)),
        };
        let eligible = inside.as_ref().map_or(self.linked, Allowed::len);
        let share = eligible as f64 / self.linked.max(1) as f64;
        if share < FEW || eligible <= more_than(k).saturating_mul(2) {
            return self.exact.search(queries, k, allowed);
        }
        let ef = (ef as f64 / share) as usize;
        let (dim, ground) = (self.exact.dim(), ground(&self.exact)?);
        let found = queries.par_chunks_exact(dim).map_init(Scratch::default, |scratch, query| {
            let Scratch { coded, walker } = scratch;
            coded.set(query);
            let near = self.graph.search(ground, coded, ef, walker);
            let labels = near.iter().map(|near| LabelId(near.position));
            let labels = labels.filter(|&label| inside.as_ref().is_none_or(|inside| inside.contains(label)));
            let labels: Vec<LabelId> = labels.take(k + k / 4 + 16).collect();
            if labels.len() < k {
                // The walk came by too few of them.
                return Ok(self.exact.search(query, k, inside.as_ref())?.remove(0));
            }
            Ok(self.exact.scored_again(query, labels.into_iter(), k)?)
        });
        let found: Vec<Ranking> = found.collect::<Result<_, IndexError>>()?;
        if self.outside.is_empty() {
            return Ok(found);
        }
        let outside = self.exact.search(queries, k, Some(&self.outside.intersected(allowed)))?;
        found.into_iter().zip(outside).map(|(one, other)| better_of(k, [&one, &other])).collect()
    }
}

/// What a walk needs, kept for the next one.
#[derive(Default)]
struct Scratch {
    coded: CodedQuery,
    walker: Walker,
}

fn ground(exact: &Exact) -> Result<Ground<'_>, IndexError> {
    let none = || IndexError::Unfit { problem: "a graph needs vectors in 8 bits".to_owned() };
    let codes = exact.vectors.base_codes().ok_or_else(none)?;
    Ok(Ground { codes, integers: exact.integers })
}

/// The best of rankings of different labels.
fn better_of(k: usize, rankings: [&Ranking; 2]) -> Result<Ranking, IndexError> {
    let mut top = TopK::new(k);
    for entry in rankings.into_iter().flat_map(Ranking::entries) {
        top.push(*entry)?;
    }
    Ok(top.into_ranking())
}

/// The share of what is right that was found.
pub fn recall(truth: &[Ranking], found: &[Ranking]) -> f64 {
    let (mut shared, mut all) = (0, 0);
    for (truth, found) in truth.iter().zip(found) {
        let found: Allowed = found.labels().collect();
        shared += truth.labels().filter(|label| found.contains(*label)).count();
        all += truth.len();
    }
    if all == 0 { 1.0 } else { shared as f64 / all as f64 }
}

impl LabelIndex for Hnsw {
    fn dim(&self) -> usize {
        self.exact.dim()
    }

    fn labels(&self) -> &Allowed {
        self.exact.labels()
    }

    fn vector(&self, label: LabelId) -> Result<Option<Vec<f32>>, IndexError> {
        self.exact.vector(label)
    }

    fn check(&self, label: LabelId, vector: &[f32]) -> Result<(), IndexError> {
        self.exact.check(label, vector)
    }

    fn set(&mut self, label: LabelId, vector: &[f32]) -> Result<(), IndexError> {
        self.exact.set(label, vector)?;
        self.outside.insert(label);
        Ok(())
    }

    fn remove(&mut self, label: LabelId) {
        self.exact.remove(label);
        self.outside.remove(label);
    }

    fn search(
        &self,
        queries: &[f32],
        k: usize,
        allowed: Option<&Allowed>,
    ) -> Result<Vec<Ranking>, IndexError> {
        self.exact.check_queries(queries)?;
        let count = queries.len() / self.exact.dim();
        if k == 0 || count == 0 {
            return Ok(vec![Ranking::default(); count]);
        }
        self.search_wide(queries, k, allowed, self.ef(k))
    }
}
