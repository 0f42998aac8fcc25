//! The page of `polytag serve` in a real browser: a demo model behind the real program, Chromium in front of it.
//!
//! Each test has a server and a browser of its own. Where there is no Chromium, or no driver for it, the tests say
//! that they were skipped. Pictures of the views are left in `target/page-screenshots`.

// Helpers are test code too.
#![allow(clippy::unwrap_used)]

mod process; // a program that runs beside the test
mod browser; // Chromium, by the WebDriver protocol
mod site; // a server, and a browser that looks at its page

mod tagging; // one text: labels, reasons, judgements, a label added
mod keyboard; // the same without a mouse
mod labels; // all labels: found as one types, renamed, retired
mod files; // a file in, the same file with labels out
mod looks; // the model's charts, narrow windows, dark ones, what the browser forbids
