//! The tables: made, filled, read and written. Every function is a part of one transaction, which the caller opens.

use futures_util::future::try_join_all;
use polytag::data::LabelChange;
use sha2::{Digest as _, Sha256};
use tokio_postgres::Client;
use tokio_postgres::binary_copy::BinaryCopyInWriter;
use tokio_postgres::types::{ToSql, Type};

use super::error::StoreError;
use super::rows::{COLUMNS, Row};

/// The version of the tables that this program makes, and the latest it reads.
const VERSION: i32 = 1;

const TABLES: &str = include_str!("tables.sql");

/// Two servers that make the tables at once do so one after the other. Any number would do.
const MAKING: i64 = 0x70_6f6c_7974_6167;

/// How many changes are kept in the record: servers that are further behind read all labels anew.
const KEPT: i64 = 100_000;

/// What a table's row says of a model.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Entry {
    pub(super) number: i32,
    pub(super) key: String,
    pub(super) dimension: Option<i32>,
    pub(super) fitted: i32,
    pub(super) own_changes: String,
}

/// How far the labels of a model are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) revision: i64,
    pub(super) chain: Vec<u8>,
}

impl Head {
    /// Before any change.
    pub(super) fn start(key: &str) -> Head {
        Head { revision: 0, chain: Sha256::digest(key.as_bytes()).to_vec() }
    }

    /// After `changes`, as they are written.
    fn after(&self, changes: &str) -> Head {
        let revision = self.revision + 1;
        let mut hasher = Sha256::new();
        hasher.update(&self.chain);
        hasher.update(revision.to_be_bytes());
        hasher.update(changes.as_bytes());
        Head { revision, chain: hasher.finalize().to_vec() }
    }
}

/// What became of labels since a revision.
pub(super) struct News {
    pub(super) head: Head,
    pub(super) rows: Vec<Row>,
    /// Whether the database still has what was known of it; if not, `rows` are of all changes since the fit.
    pub(super) goes_on: bool,
}

/// The entry of a model, if it has one.
pub(super) async fn find(client: &Client, name: &str) -> Result<Option<Entry>, StoreError> {
    let there = client.query_one("SELECT to_regclass('polytag.store') IS NOT NULL", &[]).await?;
    if !there.try_get::<_, bool>(0)? {
        return Ok(None);
    }
    let version: i32 = client.query_one("SELECT version FROM polytag.store", &[]).await?.try_get(0)?;
    if version > VERSION {
        return Err(StoreError::Newer { found: version, known: VERSION });
    }
    let found = client
        .query_opt(
            "SELECT number, key, dimension, fitted, own_changes FROM polytag.models WHERE name = $1",
            &[&name],
        )
        .await?;
    let Some(row) = found else { return Ok(None) };
    Ok(Some(Entry {
        number: row.try_get(0)?,
        key: row.try_get(1)?,
        dimension: row.try_get(2)?,
        fitted: row.try_get(3)?,
        own_changes: row.try_get(4)?,
    }))
}

/// Makes the tables, where they are not there. Others who do the same wait until the transaction ends.
pub(super) async fn make(client: &Client) -> Result<(), StoreError> {
    alone(client).await?;
    let extension = client.query_opt("SELECT 1 FROM pg_extension WHERE extname = 'vector'", &[]).await?;
    if extension.is_none() {
        client.batch_execute("CREATE EXTENSION vector").await?;
    }
    let there = client.query_one("SELECT to_regclass('polytag.store') IS NOT NULL", &[]).await?;
    if !there.try_get::<_, bool>(0)? {
        client.batch_execute(TABLES).await?;
    }
    Ok(())
}

/// Waits until nobody else makes anything, and keeps others from it until the transaction ends.
pub(super) async fn alone(client: &Client) -> Result<(), StoreError> {
    client.execute("SELECT pg_advisory_xact_lock($1)", &[&MAKING]).await?;
    Ok(())
}

/// Enters a model with all its labels; `touched` tells which of them `changes` made what they are.
pub(super) async fn enter(
    client: &Client,
    name: &str,
    entry: &Entry,
    changes: &[LabelChange],
    rows: impl Iterator<Item = Result<(Row, bool), StoreError>>,
) -> Result<i32, StoreError> {
    let start = Head::start(&entry.key);
    let json = serde_json::to_string(changes).expect("strings always make JSON");
    let head = if changes.is_empty() { start.clone() } else { start.after(&json) };
    let number: i32 = client
        .query_one(
            "INSERT INTO polytag.models (name, key, dimension, fitted, own_changes, revision, chain) \
             VALUES ($1, $2, $3, $4, $5, $6, $7) RETURNING number",
            &[
                &name,
                &entry.key,
                &entry.dimension,
                &entry.fitted,
                &entry.own_changes,
                &head.revision,
                &head.chain,
            ],
        )
        .await?
        .try_get(0)?;
    record(client, number, &start, "fit", "[]").await?;
    if head != start {
        record(client, number, &head, "folder", &json).await?;
    }
    copy(client, number, head.revision, rows).await?;
    Ok(number)
}

/// Writes rows at once, however many there are.
async fn copy(
    client: &Client,
    number: i32,
    revision: i64,
    rows: impl Iterator<Item = Result<(Row, bool), StoreError>>,
) -> Result<(), StoreError> {
    let statement = client.prepare("SELECT NULL::vector").await?;
    let vector = statement.columns().first().map_or(Type::UNKNOWN, |column| column.type_().clone());
    let sink = client
        .copy_in(&format!("COPY polytag.labels (model, {COLUMNS}, revision) FROM STDIN BINARY"))
        .await?;
    let kinds = [
        Type::INT4,
        Type::INT4,
        Type::TEXT,
        Type::TEXT,
        Type::TEXT,
        Type::TEXT_ARRAY,
        Type::TEXT_ARRAY,
        Type::BOOL,
        vector,
        Type::INT8,
    ];
    let writer = BinaryCopyInWriter::new(sink, &kinds);
    futures_util::pin_mut!(writer);
    for row in rows {
        let (row, touched) = row?;
        let revision = if touched { revision } else { 0 };
        writer.as_mut().write(&values(&row, &number, &revision)).await?;
    }
    writer.finish().await?;
    Ok(())
}

/// How far a model is.
pub(super) async fn head(client: &Client, number: i32) -> Result<Head, StoreError> {
    let row =
        client.query_opt("SELECT revision, chain FROM polytag.models WHERE number = $1", &[&number]).await?;
    of_head(row)
}

/// The same, and nobody else can change its labels until the transaction ends. Waits for whoever does for a while.
pub(super) async fn lock(client: &Client, number: i32, at_most_ms: u128) -> Result<Head, StoreError> {
    client
        .batch_execute(&format!(
            "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL lock_timeout = {at_most_ms}"
        ))
        .await?;
    let row = client
        .query_opt("SELECT revision, chain FROM polytag.models WHERE number = $1 FOR UPDATE", &[&number])
        .await?;
    of_head(row)
}

fn of_head(row: Option<tokio_postgres::Row>) -> Result<Head, StoreError> {
    let row = row.ok_or_else(|| StoreError::Unfit { problem: "the model is gone from it".to_owned() })?;
    Ok(Head { revision: row.try_get(0)?, chain: row.try_get(1)? })
}

/// What is new since `known`.
pub(super) async fn news(client: &Client, number: i32, known: &Head) -> Result<News, StoreError> {
    let head = head(client, number).await?;
    let same = client
        .query_opt(
            "SELECT 1 FROM polytag.changes WHERE model = $1 AND revision = $2 AND chain = $3",
            &[&number, &known.revision, &known.chain],
        )
        .await?;
    // Who knows of no change yet takes any.
    let goes_on = known.revision == 0 || (same.is_some() && head.revision >= known.revision);
    let since = if goes_on { known.revision } else { 0 };
    Ok(News { head, rows: rows(client, number, since).await?, goes_on })
}

/// The labels that were written after a revision, by position.
pub(super) async fn rows(client: &Client, number: i32, since: i64) -> Result<Vec<Row>, StoreError> {
    let sql =
        format!("SELECT {COLUMNS} FROM polytag.labels WHERE model = $1 AND revision > $2 ORDER BY position");
    let found = client.query(&sql, &[&number, &since]).await?;
    Ok(found.iter().map(Row::read).collect::<Result<_, _>>()?)
}

/// Writes labels that were changed together after `known`, and tells everybody; how far the model is then. It holds once
/// the transaction is committed.
pub(super) async fn write(
    client: &Client,
    number: i32,
    known: &Head,
    (by, changes): (&str, &[LabelChange]),
    rows: &[Row],
) -> Result<Head, StoreError> {
    let json = serde_json::to_string(changes).expect("strings always make JSON");
    let head = known.after(&json);
    let statement = client
        .prepare(&format!(
            "INSERT INTO polytag.labels AS old (model, {COLUMNS}, revision) \
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) \
             ON CONFLICT (model, position) DO UPDATE SET name = excluded.name, \
             description = excluded.description, removed = excluded.removed, revision = excluded.revision, \
             embedding = CASE WHEN excluded.removed THEN NULL ELSE coalesce(excluded.embedding, old.embedding) END"
        ))
        .await?;
    let revision = head.revision;
    // By position, and those that go first: an id may be given anew in the same change.
    let (removed, rest): (Vec<&Row>, Vec<&Row>) = rows.iter().partition(|row| row.removed);
    for some in [removed, rest] {
        try_join_all(some.into_iter().map(|row| {
            let statement = &statement;
            async move { client.execute(statement, &values(row, &number, &revision)).await }
        }))
        .await?;
    }
    record(client, number, &head, by, &json).await?;
    client
        .execute(
            "DELETE FROM polytag.changes WHERE model = $1 AND revision <= $2",
            &[&number, &(revision - KEPT)],
        )
        .await?;
    client
        .execute(
            "UPDATE polytag.models SET revision = $2, chain = $3 WHERE number = $1",
            &[&number, &head.revision, &head.chain],
        )
        .await?;
    client.execute("SELECT pg_notify($1, $2)", &[&channel(number), &revision.to_string()]).await?;
    Ok(head)
}

/// What servers of a model listen to.
pub(super) fn channel(number: i32) -> String {
    format!("polytag_labels_{number}")
}

async fn record(
    client: &Client,
    number: i32,
    head: &Head,
    by: &str,
    changes: &str,
) -> Result<(), tokio_postgres::Error> {
    client
        .execute(
            "INSERT INTO polytag.changes (model, revision, chain, by, changes) \
             VALUES ($1, $2, $3, $4, $5::text::jsonb)",
            &[&number, &head.revision, &head.chain, &by, &changes],
        )
        .await?;
    Ok(())
}

/// A row as the columns of its table, in their order.
fn values<'a>(row: &'a Row, number: &'a i32, revision: &'a i64) -> [&'a (dyn ToSql + Sync); 10] {
    let Row { position, label, removed, vector } = row;
    [
        number,
        position,
        &label.id,
        &label.name,
        &label.description,
        &label.aliases,
        &label.parents,
        removed,
        vector,
        revision,
    ]
}
