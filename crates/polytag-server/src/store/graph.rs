//! The graph over a model's labels in the database: made once, measured then, and found by every server.
//!
//! It is an index of the table of labels, over those of one model, and is kept up by the database. What it was found to
//! be like when it was made is written into its comment.

use std::time::Duration;

use polytag::ids::LabelId;
use polytag::index::recall;
use polytag::ranking::{Ranking, Scored};
use serde::{Deserialize, Serialize};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Statement};

use super::error::StoreError;
use super::rows::Vector;
use super::tables;

/// The longest vectors that such a graph takes, in 16 bits.
const MOST_NUMBERS: usize = 4000;

/// Links of a label (twice as many in the lowest layer), and how many labels are looked at for them.
const LINKS: usize = 24;
const BREADTH: usize = 200;

/// Widths that are tried; the narrowest whose recall suffices is taken, or the widest that there can be.
const WIDTHS: [usize; 5] = [100, 200, 400, 700, 1000];
const WANTED: f64 = 0.98;

/// How many queries it is measured with, and how many labels are asked for.
const QUERIES: usize = 20;
const MEASURED_AT: i64 = 100;

/// Memory that the database may take to make one, in megabytes; with less it takes far longer.
const MEMORY: (usize, usize) = (64, 2048);

/// What a graph is like.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Graph {
    /// How wide it is searched.
    pub(super) ef: usize,
    /// The share of the best 100 labels that it found when it was made.
    pub(super) recall_at_100: f64,
    /// With how many queries.
    pub(super) queries: usize,
}

impl Graph {
    /// What a connection that searches it is told first. Beyond its width a search goes on, as long as more is wanted; and the
    /// database gives up when we do.
    pub(super) fn settings(&self, patience: Duration) -> String {
        let (ef, limit) = (self.ef, patience.as_millis().max(1));
        format!(
            "SET hnsw.ef_search = {ef}; SET hnsw.iterative_scan = relaxed_order; SET jit = off; SET statement_timeout = {limit}"
        )
    }
}

fn name(number: i32) -> String {
    format!("labels_near_{number}")
}

/// The question for the labels that the graph finds for a query, `$1`, and no more than `$2`.
pub(super) fn near_sql(number: i32, dim: usize) -> String {
    format!(
        "SELECT position, embedding <#> $1::vector FROM (SELECT position, embedding FROM polytag.labels \
         WHERE model = {number} AND NOT removed AND embedding IS NOT NULL \
         ORDER BY embedding::halfvec({dim}) <#> $1::vector::halfvec({dim}) LIMIT $2) AS near"
    )
}

/// The first pgvector whose searches go on beyond their width.
const PGVECTOR: (u32, u32) = (0, 8);

/// An error if pgvector is older than what is needed here.
async fn check_version(client: &Client) -> Result<(), StoreError> {
    let row = client.query_one("SELECT extversion FROM pg_extension WHERE extname = 'vector'", &[]).await?;
    let version: String = row.try_get(0)?;
    let mut numbers = version.split('.').map(|number| number.parse::<u32>().unwrap_or(0));
    let found = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    match found >= PGVECTOR {
        true => Ok(()),
        false => {
            let problem =
                format!("pgvector {version} is too old to search labels; update it to 0.8, or say memory");
            Err(StoreError::Setting { setting: "labels_search", problem })
        }
    }
}

/// The graph of a model's labels, if there is one that is whole.
pub(super) async fn find(client: &Client, number: i32) -> Result<Option<Graph>, StoreError> {
    check_version(client).await?;
    let sql = "SELECT obj_description(indexrelid, 'pg_class') FROM pg_index \
               WHERE indexrelid = to_regclass($1::text) AND indisvalid";
    let found = client.query_opt(sql, &[&format!("polytag.{}", name(number))]).await?;
    let Some(row) = found else { return Ok(None) };
    let told: Option<String> = row.try_get(0)?;
    // Whoever made it by hand did not measure it.
    let known = told.and_then(|told| serde_json::from_str::<Graph>(&told).ok());
    let unknown = Graph { ef: 400, recall_at_100: 0.0, queries: 0 };
    Ok(Some(known.filter(|graph| (1..=1000).contains(&graph.ef)).unwrap_or(unknown)))
}

/// Makes the graph of a model's labels of `dim` numbers, and measures it, in a transaction that the caller opened; unless
/// another server just did. It may take long, and nobody changes labels meanwhile.
pub(super) async fn make(client: &Client, number: i32, dim: usize) -> Result<Graph, StoreError> {
    if dim > MOST_NUMBERS {
        let problem = format!(
            "vectors of {dim} numbers are too long for a search in the database, which takes {MOST_NUMBERS}; say memory"
        );
        return Err(StoreError::Setting { setting: "labels_search", problem });
    }
    tables::alone(client).await?;
    if let Some(graph) = find(client, number).await? {
        return Ok(graph);
    }
    let labels = positions(client, number).await?;
    // A vector and its links, and some room.
    let megabytes = ((labels.len() * (2 * dim + 16 * LINKS + 200)) >> 20).clamp(MEMORY.0, MEMORY.1);
    let index = name(number);
    client
        .batch_execute(&format!(
            "SET LOCAL maintenance_work_mem = '{megabytes}MB'; DROP INDEX IF EXISTS polytag.{index}; \
             CREATE INDEX {index} ON polytag.labels USING hnsw ((embedding::halfvec({dim})) halfvec_ip_ops) \
             WITH (m = {LINKS}, ef_construction = {BREADTH}) WHERE model = {number} AND NOT removed"
        ))
        .await?;
    let graph = measure(client, (number, dim), &labels).await?;
    let told = serde_json::to_string(&graph).expect("numbers always make JSON");
    client.batch_execute(&format!("COMMENT ON INDEX polytag.{index} IS '{told}'")).await?;
    Ok(graph)
}

/// The positions of labels that have a vector.
async fn positions(client: &Client, number: i32) -> Result<Vec<i32>, StoreError> {
    let sql = "SELECT position FROM polytag.labels WHERE model = $1 AND NOT removed AND embedding IS NOT NULL \
               ORDER BY position";
    let rows = client.query(sql, &[&number]).await?;
    Ok(rows.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?)
}

/// Compares what the graph finds with what a look at all labels finds, for what documents with three labels each might be
/// like.
async fn measure(client: &Client, (number, dim): (i32, usize), labels: &[i32]) -> Result<Graph, StoreError> {
    let vectors = client
        .prepare(&format!(
            "SELECT embedding FROM polytag.labels WHERE model = {number} AND position = ANY($1)"
        ))
        .await?;
    let all = client
        .prepare(&format!(
            "SELECT position, embedding <#> $1::vector FROM polytag.labels WHERE model = {number} AND NOT removed \
             AND embedding IS NOT NULL ORDER BY 2 LIMIT $2"
        ))
        .await?;
    let (mut queries, mut truth) = (Vec::new(), Vec::new());
    for query in 0..QUERIES.min(labels.len()) {
        // Steps through the labels that meet none twice for long.
        let place = |turn: usize| labels[(query * 3 + turn).wrapping_mul(0x9E37_79B1) % labels.len()];
        let rows = client.query(&vectors, &[&(0..3).map(place).collect::<Vec<i32>>()]).await?;
        let mut sum = vec![0f32; dim];
        for row in &rows {
            let Vector(numbers) = row.try_get(0)?;
            sum.iter_mut().zip(numbers).for_each(|(sum, value)| *sum += value);
        }
        let query = Vector(sum);
        truth.push(found(client, &all, &query).await?);
        queries.push(query);
    }
    let near = client.prepare(&near_sql(number, dim)).await?;
    let mut graph = Graph { ef: WIDTHS[0], recall_at_100: 1.0, queries: queries.len() };
    for ef in WIDTHS {
        client.batch_execute(&format!("SET LOCAL hnsw.ef_search = {ef}")).await?;
        let mut answers = Vec::with_capacity(queries.len());
        for query in &queries {
            answers.push(found(client, &near, query).await?);
        }
        graph = Graph { ef, recall_at_100: recall(&truth, &answers), ..graph };
        if graph.recall_at_100 >= WANTED {
            break;
        }
    }
    Ok(graph)
}

/// The best labels that a question gives for a query.
async fn found(client: &Client, question: &Statement, query: &Vector) -> Result<Ranking, StoreError> {
    let entries = scored(client, question, &[query, &MEASURED_AT]).await?;
    ranking(entries, MEASURED_AT as usize)
}

/// Labels with their scores.
pub(super) async fn scored(
    client: &Client,
    question: &Statement,
    values: &[&(dyn ToSql + Sync)],
) -> Result<Vec<Scored>, tokio_postgres::Error> {
    let rows = client.query(question, values).await?;
    let entry = |row: &tokio_postgres::Row| {
        let (position, distance): (i32, f64) = (row.try_get(0)?, row.try_get(1)?);
        // Distances are products with the sign turned.
        Ok(Scored { label: LabelId(position as u32), score: -distance as f32 })
    };
    rows.iter().map(entry).collect()
}

pub(super) fn ranking(scored: Vec<Scored>, k: usize) -> Result<Ranking, StoreError> {
    Ranking::new(scored, k).map_err(|error| StoreError::Unfit { problem: error.to_string() })
}
