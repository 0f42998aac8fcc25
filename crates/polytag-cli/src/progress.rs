//! Progress for people: bars on a terminal, plain lines elsewhere, always on standard error.

use std::io::IsTerminal;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use indicatif::{HumanCount, ProgressBar, ProgressStyle as BarStyle};
use polytag::progress::{Event, Progress, Silent};

use crate::failure::say;

/// How often a log hears of long work.
const EVERY: Duration = Duration::from_secs(30);

/// How progress is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProgressStyle {
    Quiet,
    Lines,
    Bars,
}

impl ProgressStyle {
    /// Bars for a person, lines for a log.
    pub(crate) fn for_stderr() -> ProgressStyle {
        if std::io::stderr().is_terminal() { ProgressStyle::Bars } else { ProgressStyle::Lines }
    }
}

/// A receiver of events that shows them in this style.
pub(crate) fn shown(style: ProgressStyle) -> Box<dyn Progress> {
    match style {
        ProgressStyle::Quiet => Box::new(Silent),
        ProgressStyle::Lines => Box::new(Lines::default()),
        ProgressStyle::Bars => Box::new(Bars::default()),
    }
}

#[derive(Default)]
struct Bars {
    current: Mutex<Option<ProgressBar>>,
    rows: GrowingTable,
}

impl Progress for Bars {
    fn report(&self, event: Event<'_>) {
        let Ok(mut current) = self.current.lock() else { return };
        match event {
            Event::Started { stage, total } => {
                let bar = total.map_or_else(ProgressBar::new_spinner, ProgressBar::new);
                let template = match total {
                    Some(_) => "{msg:22} {wide_bar} {human_pos}/{human_len} {per_sec:.0} {eta:>4}",
                    None => "{spinner} {msg:20} {human_pos}  {elapsed}",
                };
                if let Ok(style) = BarStyle::with_template(template) {
                    bar.set_style(style);
                }
                bar.set_message(stage.to_owned());
                *current = Some(bar);
            }
            Event::Advanced(steps) => {
                if let Some(bar) = &*current {
                    bar.inc(steps);
                }
            }
            Event::Finished => {
                if let Some(bar) = current.take() {
                    bar.finish_and_clear();
                }
            }
            Event::Measured { name, value } => say_over(&current, &format!("{name} {value:.4}")),
            Event::Row { title, values } => {
                self.rows.lines(title, values).iter().for_each(|line| say_over(&current, line));
            }
            Event::Warned(message) => say_over(&current, &format!("warning: {message}")),
        }
    }
}

/// Prints a line without tearing the bar.
fn say_over(bar: &Option<ProgressBar>, line: &str) {
    match bar {
        Some(bar) => bar.suspend(|| say(line)),
        None => say(line),
    }
}

#[derive(Default)]
struct Lines {
    current: Mutex<Option<Stage>>,
    rows: GrowingTable,
}

/// A table that is printed as it grows: its head before the first row.
#[derive(Default)]
struct GrowingTable(AtomicBool);

impl GrowingTable {
    fn lines(&self, title: &str, values: &[(&str, f64)]) -> Vec<String> {
        let mut lines = Vec::new();
        if !self.0.swap(true, Ordering::Relaxed) {
            let names = values.iter().map(|(name, _)| format!("{name:>9}"));
            lines.push(format!("{:14}{}", "", names.collect::<String>()));
        }
        let values = values.iter().map(|(_, value)| format!("{value:>9.2}"));
        lines.push(format!("{title:14}{}", values.collect::<String>()));
        lines
    }
}

struct Stage {
    name: String,
    started: Instant,
    steps: u64,
    total: Option<u64>,
    /// When a line was last printed, and how many steps there were then.
    told: (Instant, u64),
}

impl Stage {
    fn start(name: &str, total: Option<u64>) -> Stage {
        let now = Instant::now();
        Stage { name: name.to_owned(), started: now, steps: 0, total, told: (now, 0) }
    }

    /// A line now and then, so that a log shows that long work goes on, and how fast.
    fn advance(&mut self, steps: u64) {
        self.steps += steps;
        let (then, before) = self.told;
        if then.elapsed() < EVERY {
            return;
        }
        let total = self.total.map_or_else(String::new, |total| format!(" of {}", HumanCount(total)));
        let rate = (self.steps - before) as f64 / then.elapsed().as_secs_f64();
        say(&format!(
            "{}: {}{total}, {} a second",
            self.name,
            HumanCount(self.steps),
            HumanCount(rate as u64)
        ));
        self.told = (Instant::now(), self.steps);
    }
}

impl Progress for Lines {
    fn report(&self, event: Event<'_>) {
        let Ok(mut current) = self.current.lock() else { return };
        match event {
            Event::Started { stage, total } => *current = Some(Stage::start(stage, total)),
            Event::Advanced(steps) => {
                if let Some(stage) = &mut *current {
                    stage.advance(steps);
                }
            }
            Event::Finished => {
                if let Some(stage) = current.take() {
                    let seconds = stage.started.elapsed().as_secs_f64();
                    match stage.steps {
                        0 => say(&format!("{}: {seconds:.1} s", stage.name)),
                        steps => {
                            say(&format!("{}: {} in {seconds:.1} s", stage.name, HumanCount(steps)));
                        }
                    }
                }
            }
            Event::Measured { name, value } => say(&format!("{name} {value:.4}")),
            Event::Row { title, values } => self.rows.lines(title, values).iter().for_each(|line| say(line)),
            Event::Warned(message) => say(&format!("warning: {message}")),
        }
    }
}
