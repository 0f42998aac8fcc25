//! The course of a training: as JSON lines for programs, and as a page for people.

use polytag_nn::train::Point;

use super::course::MEASURES;
use super::run::Trained;
use crate::data::LabelSpace;
use crate::method::error::MethodError;
use crate::picture::{Collapse, LabelPoint, Lines, Page, Part, Plane, Scatter, Series};

/// The curve as JSON lines, and a page of it with a map of the labels (paper 003, figures 4, 7 and 8).
pub(super) fn of(method: &str, trained: &Trained, space: &LabelSpace) -> Result<[String; 2], MethodError> {
    let note = "nDCG@5 and PSP@5 are over all labels, ZSR over those that no training document carries.";
    Ok(record(method, &trained.points, space, (&MEASURES, note), Some(map(trained, space)?)))
}

/// The curve as JSON lines, and a page of it: what was measured, in this order, and a word on it; the loss; and perhaps
/// more.
pub(in crate::method) fn record(
    method: &str,
    points: &[Point],
    space: &LabelSpace,
    (measures, note): (&[&str], &str),
    more: Option<Part>,
) -> [String; 2] {
    let mut parts = Vec::new();
    let measured: Vec<&Point> = points.iter().filter(|point| !point.measures.is_empty()).collect();
    if !measured.is_empty() {
        parts.push(quality(&measured, measures, note));
        parts.push(table(&measured, measures));
    }
    let losses = points.iter().map(|point| (point.step as f64, point.loss)).collect();
    parts.push(Part::Figure {
        svg: Lines {
            title: "Loss".to_owned(),
            x_name: "step".to_owned(),
            y_name: "loss".to_owned(),
            y_range: None,
            series: vec![Series { name: "loss".to_owned(), points: losses }],
        }
        .to_svg(),
        note: "The mean since the point before.".to_owned(),
    });
    parts.extend(more);
    let page = Page {
        heading: format!("{method}: the course of the training"),
        paragraph: format!(
            "{} labels, {} of them in no training document; {} training documents.",
            space.len(),
            space.iter().filter(|&(label, _)| !space.is_seen(label)).count(),
            space.train_documents()
        ),
        parts,
    };
    [as_lines(points), page.to_html()]
}

/// The course of a training, a point a line.
pub(in crate::method) fn as_lines(points: &[Point]) -> String {
    points
        .iter()
        .map(|point| serde_json::to_string(point).expect("points are plain numbers") + "\n")
        .collect()
}

fn quality(measured: &[&Point], measures: &[&str], note: &str) -> Part {
    let values = |name: &str| -> Vec<(f64, f64)> {
        let value = |point: &&Point| Some((point.step as f64, *point.measures.get(name)?));
        measured.iter().filter_map(value).collect()
    };
    let series = measures.iter().map(|&name| Series { name: name.to_owned(), points: values(name) });
    let lines = Lines {
        title: "On the dev split".to_owned(),
        x_name: "step".to_owned(),
        y_name: "percent".to_owned(),
        y_range: Some((0.0, 100.0)),
        series: series.filter(|series| !series.points.is_empty()).collect(),
    };
    Part::Figure { svg: lines.to_svg(), note: note.to_owned() }
}

fn table(measured: &[&Point], measures: &[&str]) -> Part {
    let cell = |value: Option<&f64>| value.map_or(String::new(), |value| format!("{value:.2}"));
    let row = |point: &&Point| {
        let measures = measures.iter().map(|&name| cell(point.measures.get(name)));
        [point.step.to_string(), format!("{:.3}", point.loss)].into_iter().chain(measures).collect()
    };
    let head = ["step", "loss"].iter().chain(measures).map(|&name| name.to_owned()).collect();
    Part::Table { title: "Measured".to_owned(), head, rows: measured.iter().map(row).collect() }
}

/// The labels as points of a plane.
fn map(trained: &Trained, space: &LabelSpace) -> Result<Part, MethodError> {
    let dimension = trained.encoder.dimension();
    let rows = &trained.vectors.outputs;
    let seen: Vec<bool> = trained.order.iter().map(|&label| space.is_seen(label)).collect();
    let plane = Plane::of(rows, dimension)?;
    let labels = plane.points.iter().zip(&trained.order);
    let point = |(&at, &label)| LabelPoint { at, name: &space.label(label).name, seen: space.is_seen(label) };
    let scatter = Scatter {
        title: "Label vectors".to_owned(),
        points: labels.map(point).collect(),
        shares: plane.shares,
        collapse: Collapse::of(rows, dimension, &seen)?,
    };
    let note = "Their two main directions. Where unseen labels lie apart in a clump of their own, documents \
                cannot find them.";
    Ok(Part::Figure { svg: scatter.to_svg(), note: note.to_owned() })
}
