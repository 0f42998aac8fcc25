//! Our side of `scripts/bench-peers`: TF-IDF of a task's train split, timed and written out.
//!
//! usage: tfidf TASK OUT NGRAMS MIN_DF PASSES
//!
//! Texts are in memory before the clock starts, as they are for the peer. Words are cut as Python
//! does, so that the matrices can be compared number by number.

#![allow(clippy::print_stdout)]

use std::borrow::Cow;
use std::path::Path;
use std::time::Instant;

use polytag::Error;
use polytag::data::{ReadOptions, Split, Task};
use polytag::method::MethodError;
use polytag::sparse::{Csr, Tfidf, TfidfConfig};
use polytag::storage::create;
use polytag::text::{AnalyzerConfig, WordRule};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [task, out, ngrams, min_df, passes] = &arguments[..] else {
        return Err("usage: tfidf TASK OUT NGRAMS MIN_DF PASSES".into());
    };
    let task = Task::open(Path::new(task), &ReadOptions::with_spool(std::env::temp_dir()))?;
    let texts: Vec<String> =
        task.documents(Split::Train)?.map(|document| Ok(document?.text)).collect::<Result<_, Error>>()?;
    let analyzer =
        AnalyzerConfig { words: WordRule::Python, ngrams: (1, ngrams.parse()?), ..AnalyzerConfig::default() };
    let config = TfidfConfig { analyzer, min_df: min_df.parse()?, ..TfidfConfig::default() };
    let text = |index: usize| Ok::<_, MethodError>(Cow::from(&texts[index]));
    let mut last = None;
    for pass in 0..passes.parse::<usize>()? {
        let started = Instant::now();
        let tfidf = Tfidf::fit(&config, texts.len(), text)?;
        let fitted = started.elapsed().as_secs_f64();
        let matrix = tfidf.transform(texts.len(), text)?;
        let seconds = started.elapsed().as_secs_f64();
        let threads = rayon::current_num_threads();
        println!(
            "RESULT polytag tfidf pass={pass} threads={threads} fit_s={fitted:.3} fit_transform_s={seconds:.3}"
        );
        last = Some((tfidf, matrix));
    }
    if let Some((tfidf, matrix)) = last {
        write(Path::new(out), &tfidf, &matrix)?;
    }
    Ok(())
}

/// The matrix as plain little-endian arrays, and the terms as lines.
fn write(out: &Path, tfidf: &Tfidf, matrix: &Csr) -> Result<(), Error> {
    let (starts, indices, values) = matrix.parts();
    let file = |name: &str, bytes: Vec<u8>| {
        let mut sink = create(&out.join(name))?;
        sink.write(&bytes)?;
        sink.finish()
    };
    file("starts.u64", starts.iter().flat_map(|start| (*start as u64).to_le_bytes()).collect())?;
    file("indices.u32", indices.iter().flat_map(|index| index.to_le_bytes()).collect())?;
    file("values.f32", values.iter().flat_map(|value| value.to_le_bytes()).collect())?;
    file("terms.txt", tfidf.vocabulary().to_lines().into_bytes())?;
    Ok(())
}
