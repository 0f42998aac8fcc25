//! `polytag bench index`: an index over vectors of a file, so that a peer can search the same ones.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::{Args, ValueEnum};
use polytag::ids::LabelId;
use polytag::index::{Exact, GraphArrays, Hnsw, HnswConfig, LabelIndex, Precision};
use polytag::ranking::Ranking;
use serde::Serialize;

use super::super::{DONE, Done};
use super::{at_least_one, unless_stopped};
use crate::failure::user_error;
use crate::output;
use crate::settings::Session;

/// Measure an index over label vectors of a file
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  polytag bench index --labels labels.npy --queries queries.npy --kind exact-i8 --threads 2
  polytag bench index --labels labels.npy --queries queries.npy --kind hnsw --ef 128,192,256 --keep graph

Files are those that numpy.save makes of matrices of 32-bit floats. The best of the rounds counts. With --found, the labels
of each query go to a file, 32 bits each (FILE.EF for a graph). scripts/bench-index puts peers beside it.")]
pub(crate) struct Index {
    /// Label vectors (.npy)
    #[arg(long, value_name = "FILE")]
    labels: PathBuf,
    /// Queries (.npy)
    #[arg(long, value_name = "FILE")]
    queries: PathBuf,
    /// The index, and what it keeps vectors in
    #[arg(long, value_enum, default_value_t = Kind::Hnsw)]
    kind: Kind,
    /// How many labels a query is answered with
    #[arg(long, default_value_t = 100, value_name = "N", value_parser = at_least_one(1 << 20))]
    k: usize,
    /// Links of a label
    #[arg(long, default_value_t = HnswConfig::default().width, value_name = "N", value_parser = at_least_one(1 << 10))]
    width: usize,
    /// How many labels are looked at for them
    #[arg(long, default_value_t = HnswConfig::default().breadth, value_name = "N", value_parser = at_least_one(1 << 16))]
    breadth: usize,
    /// How wide walks go [default: what the graph was found to need]
    #[arg(long, value_delimiter = ',', value_name = "N")]
    ef: Vec<usize>,
    /// Folder that keeps the graph: made if it is not there, read if it is
    #[arg(long, value_name = "FOLDER")]
    keep: Option<PathBuf>,
    /// Where the labels that are found go
    #[arg(long, value_name = "FILE")]
    found: Option<PathBuf>,
    /// How often it is measured
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = at_least_one(1 << 16))]
    rounds: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
enum Kind {
    ExactF32,
    ExactF16,
    ExactI8,
    /// A graph, with vectors in 16 bits
    Hnsw,
}

/// What was measured, a line of JSON.
#[derive(Debug, Serialize)]
struct Figures {
    name: String,
    labels: usize,
    dim: usize,
    queries: usize,
    threads: usize,
    ef: Option<usize>,
    /// None where the graph lay in its folder.
    build_seconds: f64,
    seconds: f64,
    queries_per_second: f64,
    /// The least processor time of a round, over all threads: what a busy machine does not change as much.
    cpu_seconds: Option<f64>,
    /// Bytes of vectors, codes and links.
    index_bytes: usize,
    /// The most memory this process had, the file of vectors among it while it was read.
    peak_bytes: Option<u64>,
}

impl Index {
    pub(crate) fn run(&self, session: &Session) -> Done {
        let (dim, labels) = read_matrix(&self.labels)?;
        let (query_dim, queries) = read_matrix(&self.queries)?;
        if dim != query_dim {
            return Err(user_error(format!("queries of {query_dim} numbers do not fit labels of {dim}")));
        }
        let precision = match self.kind {
            Kind::ExactF32 => Precision::F32,
            Kind::ExactF16 => Precision::F16,
            Kind::ExactI8 | Kind::Hnsw => Precision::I8,
        };
        let started = Instant::now();
        let mut exact = Exact::new(dim, precision)?;
        exact.reserve(labels.len() / dim).map_err(|error| user_error(error.to_string()))?;
        for (label, vector) in labels.chunks_exact(dim).enumerate() {
            exact.set(LabelId::from_index(label), vector).map_err(|error| user_error(error.to_string()))?;
        }
        let count = labels.len() / dim;
        drop(labels);
        let rows = exact.rows();
        let mut bytes = rows.len() * rows.bytes_a_number();
        bytes += exact.codes().map_or(0, |codes| codes.parts().0.len() + codes.parts().1.len() * 4);
        drop(rows);
        if self.kind != Kind::Hnsw {
            let built = started.elapsed().as_secs_f64();
            let figures = self.measure(&exact, &queries, session, None)?;
            return self.report(Figures {
                build_seconds: built,
                index_bytes: bytes,
                labels: count,
                ..figures
            });
        }
        let (mut index, ef, made) = self.graph(exact, &queries, session)?;
        let built = if made { started.elapsed().as_secs_f64() } else { 0.0 };
        let arrays = index.arrays();
        bytes += (arrays.links.len() + arrays.nodes.len() + arrays.upper.len()) * 4;
        drop(arrays);
        for ef in if self.ef.is_empty() { vec![ef] } else { self.ef.clone() } {
            index = index.with_ef(ef);
            let figures = self.measure(&index, &queries, session, Some(ef))?;
            self.report(Figures { build_seconds: built, index_bytes: bytes, labels: count, ..figures })?;
        }
        Ok(DONE)
    }

    /// The graph of all labels, how wide walks should go, and whether it was made or lay in its folder.
    fn graph(&self, exact: Exact, queries: &[f32], session: &Session) -> anyhow::Result<(Hnsw, usize, bool)> {
        let files =
            ["links", "nodes", "upper", "walks"].map(|name| self.keep.as_ref().map(|keep| keep.join(name)));
        if let [Some(links), Some(nodes), Some(upper), Some(walks)] = &files
            && walks.is_file()
        {
            let arrays = GraphArrays {
                links: read_numbers(links)?.into(),
                nodes: read_numbers(nodes)?.into(),
                upper: read_numbers(upper)?.into(),
                numbers: read_numbers(walks)?.into(),
                ..GraphArrays::default()
            };
            let ef = arrays.numbers.get(1).copied().unwrap_or(1) as usize;
            let index = Hnsw::from_parts(exact, arrays);
            return Ok((
                index.map_err(|error| user_error(format!("{}: {error}", links.display())))?,
                ef,
                false,
            ));
        }
        let config = HnswConfig { width: self.width, breadth: self.breadth, ..HnswConfig::default() };
        let sample = &queries[..queries.len().min(200 * exact.dim())];
        let built = Hnsw::build(exact, &config, sample, (session.progress.as_ref(), &session.stop))?;
        unless_stopped(session)?;
        let (index, measured) = built.ok_or_else(|| user_error("there is no label to index"))?;
        if let Some(keep) = &self.keep {
            fs::create_dir_all(keep).map_err(|error| user_error(format!("{}: {error}", keep.display())))?;
            let arrays = index.arrays();
            for (path, numbers) in
                files.iter().flatten().zip([&arrays.links, &arrays.nodes, &arrays.upper, &arrays.numbers])
            {
                write_numbers(path, numbers)?;
            }
        }
        Ok((index, measured.ef, true))
    }

    fn measure(
        &self,
        index: &dyn LabelIndex,
        queries: &[f32],
        session: &Session,
        ef: Option<usize>,
    ) -> anyhow::Result<Figures> {
        let (mut best, mut work, mut rankings) = (f64::INFINITY, None::<f64>, Vec::new());
        for _ in 0..self.rounds {
            unless_stopped(session)?;
            let (started, worked) = (Instant::now(), cpu_seconds());
            rankings = index.search(queries, self.k, None)?;
            best = best.min(started.elapsed().as_secs_f64());
            let taken = cpu_seconds().zip(worked).map(|(after, before)| after - before);
            work = work.into_iter().chain(taken).reduce(f64::min);
        }
        if let Some(found) = &self.found {
            let mut name = found.clone().into_os_string();
            if let Some(ef) = ef {
                name.push(format!(".{ef}"));
            }
            write_numbers(Path::new(&name), &flat(&rankings, self.k))?;
        }
        let kind = self.kind.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default();
        Ok(Figures {
            name: format!("polytag {kind}"),
            labels: 0,
            dim: index.dim(),
            queries: rankings.len(),
            threads: rayon::current_num_threads(),
            ef,
            build_seconds: 0.0,
            seconds: best,
            queries_per_second: rankings.len() as f64 / best,
            cpu_seconds: work,
            index_bytes: 0,
            peak_bytes: peak_bytes(),
        })
    }

    fn report(&self, figures: Figures) -> Done {
        let line = serde_json::to_string(&figures)?;
        output::print_text(&format!("{line}\n"))?;
        Ok(DONE)
    }
}

/// Labels by query, `k` each, filled up with the largest number.
fn flat(rankings: &[Ranking], k: usize) -> Vec<u32> {
    let one = |ranking: &Ranking| {
        let labels: Vec<u32> = ranking.labels().map(|label| label.0).collect();
        labels.into_iter().chain(std::iter::repeat(u32::MAX)).take(k).collect::<Vec<_>>()
    };
    rankings.iter().flat_map(one).collect()
}

/// The processor time this process took, in hundredths of a second, where the system tells.
fn cpu_seconds() -> Option<f64> {
    let status = fs::read_to_string("/proc/self/stat").ok()?;
    // The name of the program may hold anything, but ends with the last parenthesis.
    let fields: Vec<&str> = status.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = fields.get(11)?.parse::<f64>().ok()? + fields.get(12)?.parse::<f64>().ok()?;
    Some(ticks / 100.0)
}

/// The most memory this process had, where the system tells.
fn peak_bytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
}

fn read_file(path: &Path) -> anyhow::Result<Vec<u8>> {
    fs::read(path).map_err(|error| user_error(format!("{}: cannot be read: {error}", path.display())))
}

fn read_numbers(path: &Path) -> anyhow::Result<Vec<u32>> {
    Ok(read_file(path)?.as_chunks::<4>().0.iter().map(|bytes| u32::from_le_bytes(*bytes)).collect())
}

fn write_numbers(path: &Path, numbers: &[u32]) -> anyhow::Result<()> {
    let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
    fs::write(path, bytes)
        .map_err(|error| user_error(format!("{}: cannot be written: {error}", path.display())))
}

/// How many numbers a row has, and the numbers, of a matrix that numpy.save wrote.
fn read_matrix(path: &Path) -> anyhow::Result<(usize, Vec<f32>)> {
    let bytes = read_file(path)?;
    let (dim, data) = matrix(&bytes).ok_or_else(|| {
        user_error(format!("{}: is no matrix of 32-bit floats that numpy.save wrote", path.display()))
    })?;
    Ok((dim, data.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()))
}

/// The columns and the bytes of a .npy file of little-endian 32-bit floats, row by row.
fn matrix(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let rest = bytes.strip_prefix(b"\x93NUMPY")?;
    let (start, length): (usize, usize) = match rest.first()? {
        1 => (4, usize::from(u16::from_le_bytes(rest.get(2..4)?.try_into().ok()?))),
        _ => (6, u32::from_le_bytes(rest.get(2..6)?.try_into().ok()?) as usize),
    };
    let header = std::str::from_utf8(rest.get(start..start.checked_add(length)?)?).ok()?;
    let data = &rest[start + length..];
    let plain = header.contains("'<f4'") && header.contains("'fortran_order': False");
    let shape = header.split_once("'shape': (")?.1.split_once(')')?.0;
    let shape: Vec<usize> = shape.split(',').map(|part| part.trim().parse().ok()).collect::<Option<_>>()?;
    match shape[..] {
        [rows, dim] if plain && dim > 0 && rows.checked_mul(dim)?.checked_mul(4)? == data.len() => {
            Some((dim, data))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use polytag::ranking::Scored;

    fn file(header: &str, numbers: &[f32]) -> Vec<u8> {
        let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
        bytes.extend((header.len() as u16).to_le_bytes());
        bytes.extend(header.as_bytes());
        bytes.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
        bytes
    }

    #[test]
    fn matrices_are_read_and_nothing_else() {
        let header = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 1), }\n";
        let whole = file(header, &[1.0, 2.0]);
        assert_eq!(matrix(&whole), Some((1, &whole[whole.len() - 8..])));
        assert_eq!(matrix(&whole[..whole.len() - 1]), None);
        for (from, to) in [("<f4", "<f8"), ("False", "True"), ("(2, 1)", "(2,)"), ("(2, 1)", "(2, 0)")] {
            assert_eq!(matrix(&file(&header.replace(from, to), &[1.0, 2.0])), None, "{to}");
        }
        assert_eq!(matrix(b"\x93NUMPY\x01\x00\xff\xff"), None);
    }

    #[test]
    fn short_rankings_are_filled_up() {
        let one = Ranking::new(vec![Scored { label: LabelId(7), score: 1.0 }], 2).unwrap();
        assert_eq!(flat(&[one, Ranking::default()], 2), [7, u32::MAX, u32::MAX, u32::MAX]);
    }
}
