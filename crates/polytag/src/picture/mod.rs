//! Pictures out of numbers.
//!
//! Label vectors and curves enter; what leaves are drawings ([`Svg`]) and pages ([`Page`]) that need nothing
//! else: no script, no font, no request, readable by light and by dark, and without telling colours apart.
//! [`Plane`] lays vectors flat, [`Collapse`] says in numbers what the eye looks for in that picture: whether
//! training has pressed unseen labels together. [`Scatter`] and [`Lines`] draw.
//!
//! The same input gives the same bytes: sums are cut where the shapes say, samples are every so many'th, and
//! numbers are written with fixed decimals. All text is escaped, and only this module can make an [`Svg`], so
//! no name of a label can break out of a page.
//!
//! ```
//! use polytag::picture::{Collapse, LabelPoint, Page, Part, Plane, Scatter};
//!
//! let vectors = [1.0, 0.0, 0.0, 1.0, 0.8, 0.6, 0.6, 0.8];
//! let (names, seen) = (["tax", "fish", "customs", "boats"], [true, true, false, false]);
//! let plane = Plane::of(&vectors, 2)?;
//! let points = plane.points.iter().zip(names).zip(seen);
//! let scatter = Scatter {
//!     title: "Labels".to_owned(),
//!     points: points.map(|((&at, name), seen)| LabelPoint { at, name, seen }).collect(),
//!     shares: plane.shares,
//!     collapse: Collapse::of(&vectors, 2, &seen)?,
//! };
//! let figure = Part::Figure { svg: scatter.to_svg(), note: String::new() };
//! let page = Page { heading: "A model".to_owned(), paragraph: String::new(), parts: vec![figure] };
//! assert!(page.to_html().contains("<title>customs</title>"));
//! # Ok::<(), polytag::picture::PictureError>(())
//! ```

mod error; // vectors that cannot be drawn
mod vectors; // vectors end to end, checked
mod eigen; // the directions in which a matrix stretches most
mod projection; // vectors laid flat
mod collapse; // how far unseen labels have been pressed together
mod words; // texts escaped and cut to fit, numbers with fixed decimals
mod markup; // shapes, and the look of every drawing
mod axis; // numbers to places, ticks at round numbers
mod scatter; // labels in the plane
mod lines; // curves
mod page; // drawings and tables in one file

#[cfg(test)]
mod well_formed;

pub use collapse::Collapse;
pub use error::PictureError;
pub use lines::{Lines, Series};
pub use markup::Svg;
pub use page::{Page, Part};
pub use projection::Plane;
pub use scatter::{LabelPoint, Scatter};
