//! What every drawing is made of: texts, lines, marks, and one look.
//!
//! Coordinates are pixels of a canvas [`WIDTH`] wide that scales with its place. Colours are variables, set
//! once for light and once for dark; series differ in the shape of their marks, too.

use std::fmt::{self, Display, Write};

use super::words::escape;

/// How wide a drawing is.
pub(super) const WIDTH: f64 = 760.0;
/// How many colours there are for series.
pub(super) const COLOURS: usize = 6;
/// From one line of text to the next.
pub(super) const LINE: f64 = 19.0;

/// The first two colours are blue and vermilion, which all kinds of colour blindness tell apart.
const STYLE: &str = "\
.polytag{--ink:#1c1d21;--soft:#5d6270;--grid:#e4e6eb;--paper:#fff;--c0:#0072b2;--c1:#c94f00;--c2:#00805c;\
--c3:#a8477f;--c4:#96680a;--c5:#5a5a66;background:var(--paper);font:13px system-ui,sans-serif}\
@media(prefers-color-scheme:dark){.polytag{--ink:#e8e9ee;--soft:#a0a6b5;--grid:#2b2e36;--paper:#16171b;\
--c0:#62b6ec;--c1:#ff9350;--c2:#35c79a;--c3:#e79ac8;--c4:#e8bd4a;--c5:#b4b8c4}}\
.polytag text{fill:var(--ink)}.polytag .soft{fill:var(--soft)}.polytag .heading{font-size:17px;font-weight:600}\
.polytag .grid{stroke:var(--grid)}.polytag .axis{stroke:var(--soft)}\
.polytag .curve{fill:none;stroke:currentColor;stroke-width:2;stroke-linejoin:round;stroke-linecap:round}\
.polytag .mark{fill:currentColor;stroke:var(--paper);stroke-width:.7}.polytag .faint{fill:currentColor;fill-opacity:.45}\
.polytag .dot{fill:currentColor}\
.polytag .mark:hover,.polytag .dot:hover,.polytag .faint:hover{stroke:var(--ink);stroke-width:2}\
.polytag .c0{color:var(--c0)}.polytag .c1{color:var(--c1)}.polytag .c2{color:var(--c2)}\
.polytag .c3{color:var(--c3)}.polytag .c4{color:var(--c4)}.polytag .c5{color:var(--c5)}";

/// A drawing that needs nothing else: an `<svg>` element that stands alone or in a [`Page`](super::Page).
///
/// Only this module's drawings make one, so all text in it is escaped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Svg(String);

impl Svg {
    /// The element, as a file holds it.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Display for Svg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Which end of a text its place names.
#[derive(Clone, Copy, Debug)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

/// What a mark looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    Circle,
    Diamond,
    Square,
    Triangle,
}

/// A drawing in the making.
#[derive(Debug, Default)]
pub(super) struct Drawing {
    body: String,
}

impl Drawing {
    fn push(&mut self, element: fmt::Arguments<'_>) {
        self.body.write_fmt(element).expect("a string takes any text");
        self.body.push('\n');
    }

    pub(super) fn text(&mut self, class: &str, at: [f64; 2], anchor: Anchor, words: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let ([x, y], words) = (at.map(Pixel), escape(words));
        self.push(format_args!(
            "<text class=\"{class}\" x=\"{x}\" y=\"{y}\" text-anchor=\"{anchor}\">{words}</text>"
        ));
    }

    /// Text that runs upwards, its middle at a place.
    pub(super) fn upright_text(&mut self, class: &str, at: [f64; 2], words: &str) {
        let ([x, y], words) = (at.map(Pixel), escape(words));
        self.push(format_args!(
            "<text class=\"{class}\" transform=\"translate({x} {y}) rotate(-90)\" text-anchor=\"middle\">{words}</text>"
        ));
    }

    pub(super) fn line(&mut self, class: &str, from: [f64; 2], to: [f64; 2]) {
        let ([x1, y1], [x2, y2]) = (from.map(Pixel), to.map(Pixel));
        self.push(format_args!("<line class=\"{class}\" x1=\"{x1}\" y1=\"{y1}\" x2=\"{x2}\" y2=\"{y2}\"/>"));
    }

    /// A line through places. `dash` is how long its dashes and gaps are; empty for none.
    pub(super) fn curve(&mut self, class: &str, dash: &str, places: &[[f64; 2]]) {
        let places: Vec<String> = places.iter().map(|&[x, y]| format!("{},{}", Pixel(x), Pixel(y))).collect();
        let dash = if dash.is_empty() { String::new() } else { format!(" stroke-dasharray=\"{dash}\"") };
        self.push(format_args!("<polyline class=\"curve {class}\"{dash} points=\"{}\"/>", places.join(" ")));
    }

    /// A mark of `size` pixels to each side, with a text that shows when it is pointed at.
    pub(super) fn mark(&mut self, class: &str, shape: Shape, place: ([f64; 2], f64), tooltip: &str) {
        let ([x, y], size) = place;
        let title =
            if tooltip.is_empty() { String::new() } else { format!("<title>{}</title>", escape(tooltip)) };
        if shape == Shape::Circle {
            let (x, y, size) = (Pixel(x), Pixel(y), Pixel(size));
            self.push(format_args!(
                "<circle class=\"{class}\" cx=\"{x}\" cy=\"{y}\" r=\"{size}\">{title}</circle>"
            ));
            return;
        }
        // Corners as wide as make all shapes look equally large.
        let corners: &[[f64; 2]] = match shape {
            Shape::Diamond => &[[0.0, -1.35], [1.35, 0.0], [0.0, 1.35], [-1.35, 0.0]],
            Shape::Square => &[[-0.95, -0.95], [0.95, -0.95], [0.95, 0.95], [-0.95, 0.95]],
            Shape::Triangle | Shape::Circle => &[[0.0, -1.3], [1.3, 1.0], [-1.3, 1.0]],
        };
        let place =
            |[right, down]: &[f64; 2]| format!("{} {}", Pixel(x + right * size), Pixel(y + down * size));
        let corners: Vec<String> = corners.iter().map(place).collect();
        self.push(format_args!("<path class=\"{class}\" d=\"M{}z\">{title}</path>", corners.join("L")));
    }

    /// Draws with places as they are, but shows only what lies in a rectangle: left, top, width, height.
    pub(super) fn clipped(&mut self, rectangle: [f64; 4], draw: impl FnOnce(&mut Drawing)) {
        let [x, y, width, height] = rectangle.map(Pixel);
        self.push(format_args!(
            "<svg x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" viewBox=\"{x} {y} {width} {height}\">"
        ));
        draw(self);
        self.push(format_args!("</svg>"));
    }

    /// The drawing, with what it is called and what it shows for those who do not see it.
    pub(super) fn finish(self, title: &str, description: &str, height: f64) -> Svg {
        let (title, description, width, height) =
            (escape(title), escape(description), Pixel(WIDTH), Pixel(height));
        Svg(format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"polytag\" role=\"img\" aria-label=\"{title}\" \
             width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\">\n\
             <title>{title}</title>\n<desc>{description}</desc>\n<style>{STYLE}</style>\n{}</svg>\n",
            self.body
        ))
    }
}

/// A coordinate, as a file holds it: tenths of a pixel, never far outside, always a number.
#[derive(Clone, Copy)]
struct Pixel(f64);

impl Display for Pixel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tenths = if self.0.is_nan() { 0 } else { (self.0.clamp(-1e5, 1e5) * 10.0).round() as i64 };
        let (sign, tenths) = (if tenths < 0 { "-" } else { "" }, tenths.unsigned_abs());
        match tenths % 10 {
            0 => write!(f, "{sign}{}", tenths / 10),
            tenth => write!(f, "{sign}{}.{tenth}", tenths / 10),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::picture::well_formed;

    #[test]
    fn pixels_are_always_numbers() {
        let texts = [-0.01, 1.25, -2.06, f64::NAN, f64::INFINITY].map(|value| Pixel(value).to_string());
        assert_eq!(texts, ["0", "1.3", "-2.1", "0", "100000"]);
    }

    #[test]
    fn every_element_is_well_formed() {
        let mut drawing = Drawing::default();
        drawing.text("soft", [1.0, 2.0], Anchor::End, "a < b");
        drawing.upright_text("soft", [1.0, 2.0], "a & b");
        drawing.clipped([0.0, 0.0, 5.0, 5.0], |drawing| drawing.curve("c0", "4 2", &[[0.0, f64::NAN]]));
        for shape in [Shape::Circle, Shape::Diamond, Shape::Square, Shape::Triangle] {
            drawing.mark("mark", shape, ([3.0, 4.0], 2.0), "\"'");
        }
        let svg = drawing.finish("a \"title\"", "a <desc>", 100.0);
        well_formed::check(svg.as_str());
        assert!(!svg.as_str().contains("NaN"));
    }
}
