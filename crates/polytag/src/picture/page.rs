//! Drawings and tables in one HTML file: no script, no outside request, light and dark.

use super::markup::Svg;
use super::words::escape;

const STYLE: &str = "\
:root{color-scheme:light dark;--ink:#1c1d21;--soft:#5d6270;--grid:#d8dae1;--paper:#fff}\
@media(prefers-color-scheme:dark){:root{--ink:#e8e9ee;--soft:#a0a6b5;--grid:#3a3d47;--paper:#16171b}}\
body{font:16px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);max-width:760px;\
margin:2rem auto;padding:0 1rem}\
h1{font-size:1.5rem;line-height:1.25}h2{font-size:17px;margin:2.5rem 0 .5rem}h1,h2,p{overflow-wrap:anywhere}\
figure{margin:2.5rem 0}svg{max-width:100%;height:auto}figcaption{color:var(--soft)}\
.scroll{overflow-x:auto}table{border-collapse:collapse}\
th,td{padding:.3rem 1.2rem .3rem 0;text-align:left;vertical-align:top;border-bottom:1px solid var(--grid)}\
.note{color:var(--soft)}.marked{white-space:pre-wrap}\
mark{color:inherit;background:rgb(255 160 0/calc(.75*var(--strength)))}\
th{font-weight:600}.number{text-align:right;font-variant-numeric:tabular-nums}";

/// A page that needs nothing else. All text in it is escaped.
#[derive(Clone, Debug, Default)]
pub struct Page {
    /// What the page is called.
    pub heading: String,
    /// What it is about.
    pub paragraph: String,
    /// What it shows, from top to bottom.
    pub parts: Vec<Part>,
}

/// Something that a page shows.
#[derive(Clone, Debug)]
pub enum Part {
    /// A drawing, which has its title in it.
    Figure {
        /// The drawing.
        svg: Svg,
        /// What there is to say about it; may be empty.
        note: String,
    },
    /// A table. A column whose cells are all numbers is set flush right.
    Table {
        /// What it is called.
        title: String,
        /// The names of the columns.
        head: Vec<String>,
        /// The rows; cells that a row lacks are empty.
        rows: Vec<Vec<String>>,
    },
    /// A text, parts of which stand out.
    Marked {
        /// What it is called.
        title: String,
        /// What there is to say about it; may be empty.
        note: String,
        /// Its parts in order, and how strongly each stands out, from 0 to 1.
        runs: Vec<(String, f32)>,
    },
}

impl Page {
    /// The file.
    pub fn to_html(&self) -> String {
        let heading = escape(&self.heading);
        let mut html = format!(
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n\
             <meta name=\"viewport\" content=\"width=device-width\"/>\n<title>{heading}</title>\n\
             <style>{STYLE}</style>\n</head>\n<body>\n<h1>{heading}</h1>\n"
        );
        if !self.paragraph.is_empty() {
            html += &format!("<p>{}</p>\n", escape(&self.paragraph));
        }
        for part in &self.parts {
            match part {
                Part::Figure { svg, note } => html += &figure(svg, note),
                Part::Table { title, head, rows } => html += &table(title, head, rows),
                Part::Marked { title, note, runs } => html += &marked(title, note, runs),
            }
        }
        html + "</body>\n</html>\n"
    }
}

fn figure(svg: &Svg, note: &str) -> String {
    let note =
        if note.is_empty() { String::new() } else { format!("<figcaption>{}</figcaption>\n", escape(note)) };
    format!("<figure>\n{svg}{note}</figure>\n")
}

fn marked(title: &str, note: &str, runs: &[(String, f32)]) -> String {
    let run = |(text, strength): &(String, f32)| {
        let text = escape(text);
        // Fainter than this nobody sees it.
        if *strength < 0.02 {
            return text.to_string();
        }
        format!("<mark style=\"--strength:{strength:.2}\">{text}</mark>")
    };
    let note =
        if note.is_empty() { String::new() } else { format!("<p class=\"note\">{}</p>\n", escape(note)) };
    let text: String = runs.iter().map(run).collect();
    format!("<h2>{}</h2>\n{note}<p class=\"marked\">{text}</p>\n", escape(title))
}

fn table(title: &str, head: &[String], rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).chain([head.len()]).max().unwrap_or(0);
    let numeric: Vec<bool> = (0..columns)
        .map(|column| rows.iter().filter_map(|row| row.get(column)).all(|cell| is_number(cell)))
        .collect();
    let line = |cells: &[String], tag: &str| {
        let mut html = String::from("<tr>");
        for (column, &numeric) in numeric.iter().enumerate() {
            let class = if numeric { " class=\"number\"" } else { "" };
            let cell = cells.get(column).map(|cell| escape(cell)).unwrap_or_default();
            html += &format!("<{tag}{class}>{cell}</{tag}>");
        }
        html + "</tr>\n"
    };
    let head =
        if head.is_empty() { String::new() } else { format!("<thead>\n{}</thead>\n", line(head, "th")) };
    let rows: String = rows.iter().map(|row| line(row, "td")).collect();
    format!(
        "<h2>{}</h2>\n<div class=\"scroll\"><table>\n{head}<tbody>\n{rows}</tbody>\n</table></div>\n",
        escape(title)
    )
}

/// Whether a cell is a number as people write it, or empty: `1,234.5`, `−3 %`, `12 ± 1`, `[1, 2]`, `–`.
fn is_number(cell: &str) -> bool {
    cell.chars().all(|letter| letter.is_ascii_digit() || " .,+-−±%[]()–".contains(letter))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::picture::{Lines, Scatter, well_formed};

    fn texts<const N: usize>(texts: [&str; N]) -> Vec<String> {
        texts.map(str::to_owned).to_vec()
    }

    #[test]
    fn a_page_of_everything_is_well_formed() {
        let page = Page {
            heading: "<h1> & \"more\"".to_owned(),
            paragraph: "It's <b>\u{7}</b>".to_owned(),
            parts: vec![
                Part::Figure { svg: Lines::default().to_svg(), note: "a < b".to_owned() },
                Part::Figure { svg: Scatter::default().to_svg(), note: String::new() },
                Part::Table {
                    title: "<table>".to_owned(),
                    head: texts(["name", "value"]),
                    rows: vec![texts(["<td>", "1,234.5"]), texts(["short"]), texts(["long", "−1", "2", "x"])],
                },
                Part::Table { title: String::new(), head: Vec::new(), rows: Vec::new() },
                Part::Marked {
                    title: "a < b".to_owned(),
                    note: "\"&\"".to_owned(),
                    runs: vec![("tea & <b>".to_owned(), 0.5), (" milk".to_owned(), 0.0)],
                },
            ],
        };
        let html = page.to_html();
        well_formed::check(&html);
        assert!(html.contains("<td>&lt;td&gt;</td><td class=\"number\">1,234.5</td>"), "{html}");
        assert!(html.contains("<th>name</th><th class=\"number\">value</th>"), "{html}");
        assert!(html.contains("It&#39;s &lt;b&gt;\u{fffd}&lt;/b&gt;"), "{html}");
        assert!(!html.contains("http://") || html.matches("http://").count() == 2, "only the two namespaces");
        assert!(!html.contains("<script") && !html.contains("src=") && !html.contains("url("));
    }

    #[test]
    fn an_empty_page_is_one() {
        well_formed::check(&Page::default().to_html());
    }
}
