//! `polytag curves`: the courses of several trainings in one picture.

use std::path::{Path, PathBuf};

use clap::Args;
use polytag::picture::{Lines, Page, Part, Series};
use polytag_nn::train::{CURVE, Point};

use super::{DONE, Done};
use crate::failure::user_error;
use crate::output;

/// Draw the courses of trainings in one picture
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  polytag curves models/of-lan models/dpr --out compare.html
  polytag curves ours=models/of-lan/curve.jsonl theirs=dpr.jsonl --measure ZSR@100 --out zsr.html")]
pub(crate) struct Curves {
    /// Model folders or curve.jsonl files of trainings, each NAME=PATH or a path
    #[arg(required = true, value_name = "[NAME=]PATH")]
    trainings: Vec<String>,
    /// What to draw; one picture each
    /// [default: nDCG@5, PSP@5, ZSR@10 and ZSR@100, where they were measured]
    #[arg(long, value_name = "NAME")]
    measure: Vec<String>,
    /// The page to write; - prints it
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
}

/// What is drawn unless something else is asked for.
const USUAL: [&str; 4] = ["nDCG@5", "PSP@5", "ZSR@10", "ZSR@100"];

struct Training {
    name: String,
    points: Vec<Point>,
}

impl Curves {
    pub(crate) fn run(&self) -> Done {
        let trainings = self.trainings.iter().map(|from| read(from)).collect::<anyhow::Result<Vec<_>>>()?;
        let mut parts = Vec::new();
        let usual = || USUAL.iter().map(|&name| name.to_owned()).collect();
        let asked: Vec<String> = if self.measure.is_empty() { usual() } else { self.measure.clone() };
        for measure in &asked {
            let series: Vec<Series> = trainings.iter().map(|training| training.series(measure)).collect();
            if series.iter().all(|series| series.points.is_empty()) {
                if self.measure.is_empty() {
                    continue;
                }
                let known = trainings.iter().flat_map(|training| &training.points);
                let mut known: Vec<&str> =
                    known.flat_map(|point| point.measures.keys()).map(String::as_str).collect();
                known.sort_unstable();
                known.dedup();
                let known = known.join(", ");
                return Err(user_error(format!("no training measured {measure}; there are: {known}")));
            }
            let lines = Lines {
                title: measure.clone(),
                x_name: "step".to_owned(),
                y_name: "percent, dev split".to_owned(),
                y_range: None,
                series,
            };
            parts.push(Part::Figure { svg: lines.to_svg(), note: String::new() });
        }
        let names: Vec<&str> = trainings.iter().map(|training| &training.name[..]).collect();
        let page = Page { heading: "Trainings".to_owned(), paragraph: names.join(", "), parts };
        let inputs: Vec<PathBuf> = self.trainings.iter().map(|from| place(from).1).collect();
        let inputs: Vec<&Path> = inputs.iter().map(PathBuf::as_path).collect();
        output::write_or_print(&self.out, &page.to_html(), &inputs)?;
        Ok(DONE)
    }
}

impl Training {
    fn series(&self, measure: &str) -> Series {
        let value = |point: &Point| Some((point.step as f64, *point.measures.get(measure)?));
        Series { name: self.name.clone(), points: self.points.iter().filter_map(value).collect() }
    }
}

/// The name of a training, and its file.
fn place(from: &str) -> (String, PathBuf) {
    let (name, path) = match from.split_once('=') {
        Some((name, path)) if !Path::new(from).exists() => (Some(name.to_owned()), PathBuf::from(path)),
        _ => (None, PathBuf::from(from)),
    };
    let file = if path.is_dir() { path.join(CURVE) } else { path };
    // A curve in a model folder is called as the folder is.
    let in_folder = file.file_name().is_some_and(|name| name == CURVE);
    let own = if in_folder { file.parent().and_then(Path::file_name) } else { file.file_stem() };
    let own = own.unwrap_or_default().to_string_lossy().into_owned();
    (name.unwrap_or(own), file)
}

fn read(from: &str) -> anyhow::Result<Training> {
    let (name, path) = place(from);
    let text = output::read_text(&path)?;
    let line = |(number, line): (usize, &str)| {
        serde_json::from_str(line).map_err(|error| {
            let place = format!("{}:{}", path.display(), number + 1);
            user_error(format!("{place}: this is not a point of a training: {error}"))
        })
    };
    let points = text.lines().enumerate().map(line).collect::<anyhow::Result<_>>()?;
    Ok(Training { name, points })
}
