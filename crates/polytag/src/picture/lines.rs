//! Curves: how numbers went, step by step.

use super::axis::Axis;
use super::markup::{Anchor, COLOURS, Drawing, LINE, Shape, Svg, WIDTH};
use super::words::{count, shorten, text_width};

/// Most points of a series that are drawn.
const MOST: usize = 1000;
/// A series of more points than this has dots for marks, hardly wider than its line.
const SPARSE: usize = 60;
const LEFT: f64 = 78.0;
const PLOT_WIDTH: f64 = 642.0;
const PLOT_HEIGHT: f64 = 320.0;
const SHAPES: [Shape; 4] = [Shape::Circle, Shape::Square, Shape::Diamond, Shape::Triangle];
/// Past the colours, series have them again with other dashes.
const DASHES: [&str; 3] = ["", "7 5", "2 5"];

/// A named curve.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Series {
    /// What it is called in the legend.
    pub name: String,
    /// Its points, joined in this order. Where one is not finite, the curve has a gap.
    pub points: Vec<(f64, f64)>,
}

/// A line chart of some series.
///
/// Series differ in colour and in the shape of their marks, past six also in dashes. Of a series of more than
/// 1,000 points, so many are drawn, evenly taken, the first and the last among them; a line under the picture
/// says so.
#[derive(Clone, Debug, Default)]
pub struct Lines {
    /// What the picture is called.
    pub title: String,
    /// What goes to the right: `step`, `epoch`.
    pub x_name: String,
    /// What goes up: `nDCG@5`.
    pub y_name: String,
    /// The least and the greatest number of the upward axis; curves are cut off there. Without it, and if it
    /// is no range, the axis covers the points.
    pub y_range: Option<(f64, f64)>,
    /// The curves.
    pub series: Vec<Series>,
}

impl Lines {
    /// Draws it.
    pub fn to_svg(&self) -> Svg {
        let mut drawing = Drawing::default();
        drawing.text("heading", [LEFT, 26.0], Anchor::Start, &shorten(&self.title, 560.0));
        let top = self.draw_legend(&mut drawing) + 16.0;
        let frame = self.frame(top);
        frame.draw(&mut drawing);
        let mut bottom = top + PLOT_HEIGHT + 40.0;
        drawing.text("", [LEFT + PLOT_WIDTH / 2.0, bottom], Anchor::Middle, &self.x_name);
        drawing.upright_text("", [18.0, top + PLOT_HEIGHT / 2.0], &self.y_name);
        for (at, series) in self.series.iter().enumerate() {
            draw_series(&mut drawing, &frame, (at, series));
        }
        if self.series.iter().all(|series| runs(&series.points).is_empty()) {
            let middle = [LEFT + PLOT_WIDTH / 2.0, top + PLOT_HEIGHT / 2.0];
            drawing.text("soft", middle, Anchor::Middle, "No points yet");
        }
        if let Some(longest) =
            self.series.iter().map(|series| series.points.len()).max().filter(|&n| n > MOST)
        {
            bottom += 24.0;
            let note = format!("{} of up to {} points of a series are drawn.", count(MOST), count(longest));
            drawing.text("soft", [LEFT, bottom], Anchor::Start, &note);
        }
        drawing.finish(&self.title, &self.description(&frame), bottom + LINE)
    }

    fn frame(&self, top: f64) -> Frame {
        let points = || self.series.iter().flat_map(|series| &series.points).filter(|point| is_finite(point));
        let x = Axis::of(points().map(|point| point.0), 5.0);
        let whole = points().all(|point| point.0.fract() == 0.0);
        let range = self.y_range.filter(|(low, high)| low.is_finite() && high.is_finite() && low < high);
        let y = match range {
            Some((low, high)) => Axis::of([low, high].into_iter(), 5.0),
            None => Axis::of(points().map(|point| point.1), 5.0).widened(),
        };
        Frame { x: if whole { x.whole() } else { x }, y, top }
    }

    /// Draws the names of the series, in as many lines as they need; returns where the last one stands.
    fn draw_legend(&self, drawing: &mut Drawing) -> f64 {
        let (mut x, mut y) = (LEFT, 50.0);
        for (at, series) in self.series.iter().enumerate() {
            let name = shorten(&series.name, 420.0);
            let width = 34.0 + text_width(&name) + 18.0;
            if x > LEFT && x + width > WIDTH {
                (x, y) = (LEFT, y + LINE);
            }
            let look = Look::of(at);
            drawing.curve(&look.colour, look.dash, &[[x, y - 4.5], [x + 26.0, y - 4.5]]);
            drawing.mark(&format!("mark {}", look.colour), look.shape, ([x + 13.0, y - 4.5], 4.0), "");
            drawing.text("", [x + 34.0, y], Anchor::Start, &name);
            x += width;
        }
        y
    }

    /// The picture in words: where each curve ends.
    fn description(&self, frame: &Frame) -> String {
        let words = |series: &Series| match series.points.iter().rev().find(|point| is_finite(point)) {
            None => format!("{}: no points.", series.name),
            Some(&(x, y)) => {
                let (x, y) = frame.texts(x, y);
                format!("{}: {} points, the last one {y} at {x}.", series.name, count(series.points.len()))
            }
        };
        let curves: Vec<String> = self.series.iter().map(words).collect();
        format!("{} by {}. {}", self.y_name, self.x_name, curves.join(" "))
    }
}

fn is_finite(point: &(f64, f64)) -> bool {
    point.0.is_finite() && point.1.is_finite()
}

/// The finite stretches of a series.
fn runs(points: &[(f64, f64)]) -> Vec<&[(f64, f64)]> {
    points.split(|point| !is_finite(point)).filter(|run| !run.is_empty()).collect()
}

/// How a series is drawn.
struct Look {
    colour: String,
    dash: &'static str,
    shape: Shape,
}

impl Look {
    fn of(at: usize) -> Look {
        Look {
            colour: format!("c{}", at % COLOURS),
            dash: DASHES[at / COLOURS % DASHES.len()],
            shape: SHAPES[at % SHAPES.len()],
        }
    }
}

fn draw_series(drawing: &mut Drawing, frame: &Frame, (at, series): (usize, &Series)) {
    let look = Look::of(at);
    let all = &series.points;
    let drawn = all.len().min(MOST);
    // From the first to the last.
    let points: Vec<(f64, f64)> =
        (0..drawn).map(|at| all[at * (all.len() - 1) / (drawn - 1).max(1)]).collect();
    drawing.clipped([LEFT, frame.top - 2.0, PLOT_WIDTH, PLOT_HEIGHT + 4.0], |drawing| {
        for run in runs(&points) {
            let places: Vec<[f64; 2]> = run.iter().map(|&(x, y)| frame.place(x, y)).collect();
            drawing.curve(&look.colour, look.dash, &places);
        }
    });
    let (kind, shape, size) =
        if drawn > SPARSE { ("dot", Shape::Circle, 1.6) } else { ("mark", look.shape, 4.0) };
    let class = format!("{kind} {}", look.colour);
    for &(x, y) in points.iter().filter(|point| is_finite(point) && frame.y.holds(point.1)) {
        let (x_text, y_text) = frame.texts(x, y);
        drawing.mark(
            &class,
            shape,
            (frame.place(x, y), size),
            &format!("{}: {y_text} at {x_text}", series.name),
        );
    }
}

/// The axes and where they stand.
struct Frame {
    x: Axis,
    y: Axis,
    top: f64,
}

impl Frame {
    fn place(&self, x: f64, y: f64) -> [f64; 2] {
        [LEFT + self.x.share(x) * PLOT_WIDTH, self.top + (1.0 - self.y.share(y)) * PLOT_HEIGHT]
    }

    /// A point in words: a little finer than the ticks.
    fn texts(&self, x: f64, y: f64) -> (String, String) {
        (self.x.text(x, if x.fract() == 0.0 { 0 } else { 2 }), self.y.text(y, 2))
    }

    fn draw(&self, drawing: &mut Drawing) {
        let (right, bottom) = (LEFT + PLOT_WIDTH, self.top + PLOT_HEIGHT);
        for tick in self.y.ticks() {
            let y = bottom - self.y.share(tick) * PLOT_HEIGHT;
            drawing.line("grid", [LEFT, y], [right, y]);
            drawing.text("soft", [LEFT - 8.0, y + 4.5], Anchor::End, &self.y.text(tick, 0));
        }
        for tick in self.x.ticks() {
            let x = LEFT + self.x.share(tick) * PLOT_WIDTH;
            drawing.line("axis", [x, bottom], [x, bottom + 5.0]);
            drawing.text("soft", [x, bottom + 19.0], Anchor::Middle, &self.x.text(tick, 0));
        }
        drawing.line("axis", [LEFT, bottom], [right, bottom]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::picture::well_formed;

    fn draw(y_range: Option<(f64, f64)>, series: &[(&str, &[(f64, f64)])]) -> String {
        let one = |&(name, points): &(&str, &[(f64, f64)])| Series {
            name: name.to_owned(),
            points: points.to_vec(),
        };
        let lines = Lines {
            title: "Curves <&\"'>".to_owned(),
            x_name: "epoch".to_owned(),
            y_name: "nDCG@5".to_owned(),
            y_range,
            series: series.iter().map(one).collect(),
        };
        let svg = lines.to_svg().to_string();
        well_formed::check(&svg);
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        svg
    }

    #[test]
    fn curves_marks_and_legend() {
        let svg = draw(None, &[("a", &[(1.0, 10.0), (2.0, 20.0), (3.0, 15.0)]), ("b", &[(1.0, 12.25)])]);
        assert!(svg.contains("<title>a: 20.00 at 2</title>"), "{svg}");
        assert!(svg.contains("<title>b: 12.25 at 1</title>"), "{svg}");
        // The axis reaches from 10 to 20, so the first curve from its bottom to its top.
        assert!(svg.contains("points=\"78,386 399,66 720,226\""), "{svg}");
        assert!(svg.contains("a: 3 points, the last one 15.00 at 3."), "{svg}");
        assert!(!svg.contains(">1.5<"), "epochs are whole: {svg}");
    }

    #[test]
    fn nothing_to_draw_is_said() {
        for svg in [draw(None, &[]), draw(None, &[("a", &[])]), draw(None, &[("a", &[(f64::NAN, 1.0)])])] {
            assert!(svg.contains("No points yet"), "{svg}");
        }
        assert!(draw(None, &[("none", &[])]).contains("none: no points."));
    }

    #[test]
    fn what_is_not_finite_is_a_gap() {
        let points = [(0.0, 1.0), (1.0, 2.0), (2.0, f64::NAN), (3.0, f64::INFINITY), (4.0, 1.0), (5.0, 1.5)];
        let svg = draw(None, &[("a", &points)]);
        assert_eq!(svg.matches("<polyline").count(), 3, "two stretches, one in the legend: {svg}");
        assert_eq!(svg.matches("<circle").count(), 5, "four points, one in the legend");
    }

    #[test]
    fn a_range_cuts_curves_off() {
        let points = [(0.0, 0.5), (1.0, 7.0), (2.0, 0.7)];
        let svg = draw(Some((0.0, 1.0)), &[("a", &points)]);
        assert!(svg.contains("<title>a: 0.500 at 0</title>") && !svg.contains("7.000"), "{svg}");
        let without = draw(None, &[("a", &points)]);
        for no_range in [(1.0, 0.0), (0.0, f64::NAN), (2.0, 2.0)] {
            assert_eq!(draw(Some(no_range), &[("a", &points)]), without);
        }
    }

    #[test]
    fn long_series_are_thinned() {
        let points: Vec<(f64, f64)> = (0..5001).map(|at| (f64::from(at), f64::from(at).sqrt())).collect();
        let svg = draw(None, &[("loss", &points)]);
        assert_eq!(svg.matches("<circle").count(), MOST + 1);
        assert!(svg.contains("at 0</title>") && svg.contains("at 5,000</title>"));
        assert!(svg.contains("1,000 of up to 5,001 points of a series are drawn."));
    }

    #[test]
    fn names_are_escaped_and_wrap() {
        let name = "</text><script>\u{1}".repeat(6);
        let series: Vec<(&str, &[(f64, f64)])> =
            (0..20).map(|_| (&name[..], &[(1.0, f64::MAX)][..])).collect();
        let svg = draw(None, &series);
        assert!(!svg.contains("<script"));
        assert!(svg.contains("stroke-dasharray=\"2 5\""), "the thirteenth series");
    }
}
