//! Rankings as a sparse matrix in text, as score files of the XC repository are: `rows columns`, then
//! `column:score …` for each row.

use super::rankings::{Rankings, Row};
use crate::data::{DataError, Place};
use crate::storage::Lines;

/// Reads a file of which the first line was read already; its rows are `documents`.
pub(super) fn read(
    header: &str,
    mut lines: Lines,
    documents: &[String],
    rankings: &mut Rankings<'_>,
) -> Result<(), DataError> {
    let (rows, columns) = parse_header(header).ok_or_else(|| {
        let remedy = "begin with the numbers of rows and columns, like `6000 4271`, or write JSON lines";
        rankings.malformed(rankings.line(1), "the first line is neither JSON nor two whole numbers", remedy)
    })?;
    check_shape((rows, columns), documents.len(), rankings, rankings.line(1))?;
    let mut found = 0;
    while let Some(line) = lines.next_line()? {
        let place = rankings.line(line.number);
        let Some(document) = documents.get(found) else {
            if line.text.trim().is_empty() {
                continue; // Empty lines at the end are nobody's rows.
            }
            let problem = format!("there are more rows than the {rows} that the first line says");
            return Err(rankings.malformed(place, problem, "write one row a document"));
        };
        let mut row = Row::default();
        for word in line.text.split_ascii_whitespace() {
            let (column, score) = parse_score(word, columns).ok_or_else(|| {
                let remedy = format!("write a column below {columns}, a colon and a score, like `17:0.93`");
                rankings.malformed(place.clone(), format!("{word:?} is no score of a column"), remedy)
            })?;
            rankings.column(&mut row, column, score, place.clone())?;
        }
        rankings.finish(document, row, place)?;
        found += 1;
    }
    if found < documents.len() {
        let problem = format!("it ends after {found} of {rows} rows");
        let remedy = "write one row a document, an empty line for a document without labels";
        return Err(rankings.malformed(Place::file(&rankings.path()), problem, remedy));
    }
    Ok(())
}

/// Complains of a matrix that is not of the split's documents by the task's labels.
pub(super) fn check_shape(
    (rows, columns): (usize, usize),
    documents: usize,
    rankings: &Rankings<'_>,
    place: Place,
) -> Result<(), DataError> {
    if rows != documents {
        let problem = format!("there are {rows} rows, and the split has {documents} documents");
        return Err(rankings.malformed(
            place,
            problem,
            "name the split that they belong to, with --set split=",
        ));
    }
    let labels = rankings.labels();
    if columns != labels {
        let problem = format!("there are {columns} columns, and the task has {labels} labels");
        let remedy =
            "columns are the labels of labels.jsonl in their order; write JSON lines if they are others";
        return Err(rankings.malformed(place, problem, remedy));
    }
    Ok(())
}

fn parse_header(line: &str) -> Option<(usize, usize)> {
    let mut words = line.split_ascii_whitespace().map(|word| word.parse().ok());
    match (words.next(), words.next(), words.next()) {
        (Some(rows), Some(columns), None) => Some((rows?, columns?)),
        _ => None,
    }
}

fn parse_score(word: &str, columns: usize) -> Option<(usize, f64)> {
    let (column, score) = word.split_once(':')?;
    let column = column.parse().ok().filter(|column| *column < columns)?;
    Some((column, score.parse().ok()?))
}
