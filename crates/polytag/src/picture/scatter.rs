//! Labels in the plane: which lie where, seen and unseen.

use super::axis::Axis;
use super::markup::{Anchor, Drawing, LINE, Shape, Svg, WIDTH};
use super::words::{count, number, shorten, text_width, wrap};
use super::{Collapse, LabelPoint as Point};

/// Most labels that are drawn; more would be a blot, and slow to show.
const MOST: usize = 6000;
const LEFT: f64 = 70.0;
const TOP: f64 = 66.0;
const PLOT_WIDTH: f64 = 670.0;
const PLOT_HEIGHT: f64 = 460.0;

/// A label in the plane.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LabelPoint<'a> {
    /// Where it lies.
    pub at: [f64; 2],
    /// What it is called.
    pub name: &'a str,
    /// Whether training documents carry it.
    pub seen: bool,
}

/// A scatter plot of seen and unseen labels, the unseen ones on top.
///
/// At most 6,000 labels are drawn, evenly taken from all; of seen and unseen labels neither gives way to
/// the other beyond half. The caption says how many. Both axes have the same scale.
#[derive(Clone, Debug, Default)]
pub struct Scatter<'a> {
    /// What the picture is called.
    pub title: String,
    /// The labels; one that lies at no finite place is not drawn.
    pub points: Vec<LabelPoint<'a>>,
    /// The share of all variance along each axis: [`Plane::shares`](super::Plane::shares).
    pub shares: [f64; 2],
    /// The measure for the caption, if there is one.
    pub collapse: Option<Collapse>,
}

impl Scatter<'_> {
    /// Draws it.
    pub fn to_svg(&self) -> Svg {
        let finite = |point: &&Point<'_>| point.at.iter().all(|value| value.is_finite());
        let (seen, unseen): (Vec<&Point<'_>>, Vec<&Point<'_>>) =
            self.points.iter().filter(finite).partition(|point| point.seen);
        let drawn_unseen = unseen.len().min((MOST / 2).max(MOST.saturating_sub(seen.len())));
        let layers = [
            Layer::new(&seen, MOST - drawn_unseen, ("seen", "faint c0", Shape::Circle, 2.2)),
            Layer::new(&unseen, drawn_unseen, ("unseen", "mark c1", Shape::Diamond, 2.3)),
        ];
        let mut drawing = Drawing::default();
        drawing.text("heading", [LEFT, 26.0], Anchor::Start, &shorten(&self.title, 560.0));
        draw_legend(&mut drawing, &layers);
        let frame = Frame::around(layers.iter().flat_map(|layer| &layer.points).map(|point| point.at));
        frame.draw(&mut drawing, self.shares);
        for layer in &layers {
            for point in &layer.points {
                let place = (frame.place(point.at), layer.size);
                drawing.mark(layer.class, layer.shape, place, point.name);
            }
        }
        let caption = self.caption(&layers);
        let mut bottom = TOP + PLOT_HEIGHT + 66.0;
        for line in wrap(&caption, WIDTH - LEFT) {
            drawing.text("soft", [LEFT, bottom], Anchor::Start, &line);
            bottom += LINE;
        }
        drawing.finish(&self.title, &caption, bottom)
    }

    fn caption(&self, layers: &[Layer<'_>]) -> String {
        let part = |layer: &Layer<'_>| {
            let (drawn, all) = (layer.points.len(), layer.all);
            let drawn = if drawn < all { format!("{} of {}", count(drawn), count(all)) } else { count(all) };
            format!("{drawn} {} labels", layer.name)
        };
        let parts: Vec<String> = layers.iter().map(part).collect();
        let mut caption = format!("Drawn: {}.", parts.join(", "));
        if let Some(collapse) = &self.collapse {
            caption += &format!(
                " Mean cosine distance: {} among unseen labels, {} among seen ones, {} between both; {} from an \
                 unseen label to the nearest seen one{}.",
                number(collapse.among_unseen, 3),
                number(collapse.among_seen, 3),
                number(collapse.between, 3),
                number(collapse.to_seen, 3),
                if collapse.compared < collapse.unseen {
                    format!(" (over {} unseen labels)", count(collapse.compared))
                } else {
                    String::new()
                },
            );
            if let Some(ratio) = collapse.ratio {
                let ratio = number(ratio, 2);
                caption += &format!(
                    " Unseen labels are spread {ratio} times as far as seen ones (near 0: collapsed)."
                );
            }
        }
        caption
    }
}

/// The labels of one kind that are drawn.
struct Layer<'a> {
    name: &'static str,
    class: &'static str,
    shape: Shape,
    size: f64,
    points: Vec<&'a Point<'a>>,
    /// How many there are, drawn or not.
    all: usize,
}

impl<'a> Layer<'a> {
    fn new(all: &[&'a Point<'a>], most: usize, look: (&'static str, &'static str, Shape, f64)) -> Layer<'a> {
        let (name, class, shape, size) = look;
        let drawn = all.len().min(most);
        let points = (0..drawn).map(|at| all[at * all.len() / drawn]).collect();
        Layer { name, class, shape, size, points, all: all.len() }
    }
}

fn draw_legend(drawing: &mut Drawing, layers: &[Layer<'_>]) {
    let mut x = LEFT + 6.0;
    for layer in layers {
        drawing.mark(layer.class, layer.shape, ([x, 45.5], 4.0), "");
        let words = format!("{} ({})", layer.name, count(layer.all));
        drawing.text("", [x + 12.0, 50.0], Anchor::Start, &words);
        x += 12.0 + text_width(&words) + 20.0;
    }
}

/// The axes, of one scale.
struct Frame {
    x: Axis,
    y: Axis,
}

impl Frame {
    fn around(points: impl Iterator<Item = [f64; 2]>) -> Frame {
        let (mut low, mut high) = ([f64::INFINITY; 2], [f64::NEG_INFINITY; 2]);
        for point in points {
            for axis in 0..2 {
                // Half of what would overflow, so that there is room around.
                let value = point[axis].clamp(-1e300, 1e300);
                (low[axis], high[axis]) = (low[axis].min(value), high[axis].max(value));
            }
        }
        if low[0] > high[0] {
            (low, high) = ([-1.0; 2], [1.0; 2]);
        }
        let unit = ((high[0] - low[0]) / PLOT_WIDTH).max((high[1] - low[1]) / PLOT_HEIGHT) * 1.06;
        let unit = if unit > 0.0 { unit } else { 2.0 / PLOT_HEIGHT };
        let axis = |at: usize, length: f64, ticks: f64| {
            let middle = low[at] / 2.0 + high[at] / 2.0;
            let reach = unit * length / 2.0;
            Axis::of([middle - reach, middle + reach].into_iter(), ticks)
        };
        Frame { x: axis(0, PLOT_WIDTH, 7.0), y: axis(1, PLOT_HEIGHT, 7.0 * PLOT_HEIGHT / PLOT_WIDTH) }
    }

    fn place(&self, at: [f64; 2]) -> [f64; 2] {
        [LEFT + self.x.share(at[0]) * PLOT_WIDTH, TOP + (1.0 - self.y.share(at[1])) * PLOT_HEIGHT]
    }

    fn draw(&self, drawing: &mut Drawing, shares: [f64; 2]) {
        let (right, bottom) = (LEFT + PLOT_WIDTH, TOP + PLOT_HEIGHT);
        for tick in self.x.ticks() {
            let x = LEFT + self.x.share(tick) * PLOT_WIDTH;
            drawing.line("grid", [x, TOP], [x, bottom]);
            drawing.text("soft", [x, bottom + 18.0], Anchor::Middle, &self.x.text(tick, 0));
        }
        for tick in self.y.ticks() {
            let y = bottom - self.y.share(tick) * PLOT_HEIGHT;
            drawing.line("grid", [LEFT, y], [right, y]);
            drawing.text("soft", [LEFT - 8.0, y + 4.5], Anchor::End, &self.y.text(tick, 0));
        }
        let name = |which: &str, share: f64| {
            format!("{which} component, {} % of variance", number(share * 100.0, 1))
        };
        let middle = LEFT + PLOT_WIDTH / 2.0;
        drawing.text("", [middle, bottom + 40.0], Anchor::Middle, &name("first", shares[0]));
        drawing.upright_text("", [18.0, TOP + PLOT_HEIGHT / 2.0], &name("second", shares[1]));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::picture::well_formed;

    fn circle(n: usize, name: &str, seen: impl Fn(usize) -> bool) -> Vec<Point<'_>> {
        let at = |at: usize| [(at as f64).cos(), (at as f64).sin()];
        (0..n).map(|point| Point { at: at(point), name, seen: seen(point) }).collect()
    }

    fn draw(points: Vec<Point<'_>>) -> String {
        let scatter =
            Scatter { title: "a <b> & 'c'".to_owned(), points, shares: [0.4, 0.25], collapse: None };
        let svg = scatter.to_svg().to_string();
        well_formed::check(&svg);
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        svg
    }

    #[test]
    fn unseen_labels_come_last_with_their_names() {
        let points =
            [("later", false), ("first", true)].map(|(name, seen)| Point { at: [0.5, 0.5], name, seen });
        let svg = draw(points.to_vec());
        assert!(svg.find("<title>first</title>").unwrap() < svg.find("<title>later</title>").unwrap());
        assert!(svg.contains("first component, 40.0 % of variance"), "{svg}");
        assert!(svg.contains("Drawn: 1 seen labels, 1 unseen labels."), "{svg}");
    }

    #[test]
    fn names_cannot_break_out() {
        let svg = draw(circle(1, "</title><script>\"'&\u{0}\u{b}", |_| true));
        assert!(
            svg.contains("<title>&lt;/title&gt;&lt;script&gt;&quot;&#39;&amp;\u{fffd}\u{fffd}</title>"),
            "{svg}"
        );
    }

    #[test]
    fn many_labels_are_sampled_evenly() {
        let marks = |svg: &str, class: &str| svg.matches(&format!("class=\"{class}\"")).count() - 1;
        for (n, every, seen, unseen) in
            [(9000, 2, 3000, 3000), (9000, 9, 5000, 1000), (9000, 9000, 5999, 1), (7000, 1, 0, 6000)]
        {
            let svg = draw(circle(n, "a", |at| at % every != 0));
            assert_eq!((marks(&svg, "faint c0"), marks(&svg, "mark c1")), (seen, unseen));
        }
        let svg = draw(circle(9000, "a", |at| at % 9 != 0));
        assert!(svg.contains("Drawn: 5,000 of 8,000 seen labels, 1,000 unseen labels."));
    }

    #[test]
    fn points_without_extent_are_drawn_all_the_same() {
        draw(Vec::new());
        draw(vec![Point { at: [0.0; 2], name: "", seen: true }; 3]);
        draw(vec![Point { at: [f64::MAX, f64::MIN], name: "far", seen: true }; 2]);
        let svg = draw(vec![Point { at: [f64::NAN, 0.0], name: "nowhere", seen: true }]);
        assert!(!svg.contains("nowhere"));
    }

    #[test]
    fn the_caption_holds_the_measure() {
        let rows = [1.0, 0.0, 0.0, 1.0, 0.6, 0.8, 0.8, 0.6];
        let collapse = Collapse::of(&rows, 2, &[true, true, false, false]).unwrap();
        let svg = Scatter { collapse, ..Scatter::default() }.to_svg();
        assert!(svg.as_str().contains("Unseen labels are spread 0.04 times as far as seen ones"), "{svg}");
    }
}
