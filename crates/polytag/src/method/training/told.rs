//! What the user is told while it trains.

use polytag_nn::op::ChunkMemory;
use polytag_nn::train::{Point, TrainConfig};

use crate::progress::{Event, Progress};

/// Reports the points of a curve, and keeps them.
pub(in crate::method) struct Told<'a> {
    progress: &'a dyn Progress,
    /// What of the measures is shown, in this order.
    measures: &'static [&'static str],
    memory: Option<(ChunkMemory, usize)>,
    done: u64,
    points: Vec<Point>,
}

impl<'a> Told<'a> {
    /// Begins a stage.
    pub(in crate::method) fn begin(
        progress: &'a dyn Progress,
        stage: &str,
        measures: &'static [&'static str],
        config: &TrainConfig,
    ) -> Told<'a> {
        progress.report(Event::Started { stage, total: Some(config.steps) });
        Told { progress, measures, memory: None, done: 0, points: Vec::new() }
    }

    /// The same, with a warning when these chunks have to become smaller.
    pub(in crate::method) fn of_chunks(self, memory: &ChunkMemory) -> Told<'a> {
        Told { memory: Some((memory.clone(), memory.bytes())), ..self }
    }

    /// Tells of a point of the curve.
    pub(in crate::method) fn point(&mut self, point: &Point) {
        self.progress.report(Event::Advanced(point.step.saturating_sub(self.done)));
        self.done = point.step;
        if let Some((memory, before)) = &mut self.memory
            && memory.bytes() < *before
        {
            *before = memory.bytes();
            let mib = memory.bytes() >> 20;
            let words = format!(
                "the device has too little memory: labels are worked on in smaller chunks, of {mib} MiB \
                 (--set chunk_mib={mib} begins so)"
            );
            self.progress.report(Event::Warned(&words));
        }
        if !point.measures.is_empty() {
            let title = format!("step {}", point.step);
            let measured = self.measures.iter().filter_map(|&name| Some((name, *point.measures.get(name)?)));
            let values: Vec<(&str, f64)> = [("loss", point.loss)].into_iter().chain(measured).collect();
            self.progress.report(Event::Row { title: &title, values: &values });
        }
        self.points.push(point.clone());
    }

    /// Ends the stage; all points.
    pub(in crate::method) fn end(self) -> Vec<Point> {
        self.progress.report(Event::Finished);
        self.points
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::progress::Heard;
    use std::collections::BTreeMap;

    fn point(step: u64, measures: &[(&str, f64)]) -> Point {
        let measures: BTreeMap<String, f64> =
            measures.iter().map(|&(name, value)| (name.into(), value)).collect();
        Point { step, loss: 1.0, rate: 1.0, gradient_norm: 1.0, measured: None, measures }
    }

    #[test]
    fn chunks_that_had_to_shrink_are_told_of_once() {
        let heard = Heard::default();
        let memory = ChunkMemory::new(64 << 20);
        let mut told = Told::begin(&heard, "training", &["nDCG@5"], &TrainConfig::default());
        told = told.of_chunks(&memory);
        told.point(&point(10, &[]));
        assert!(memory.lower());
        told.point(&point(20, &[("nDCG@5", 50.0)]));
        told.point(&point(30, &[]));
        assert_eq!(told.end().len(), 3);
        let heard = heard.0.into_inner().unwrap();
        let warnings: Vec<&String> = heard.iter().filter(|event| event.starts_with("Warned")).collect();
        assert!(warnings.len() == 1 && warnings[0].contains("32 MiB"), "{warnings:?}");
        let row = heard.iter().find(|event| event.starts_with("Row")).unwrap();
        assert!(row.contains("step 20") && row.contains("nDCG@5"), "{row}");
    }
}
