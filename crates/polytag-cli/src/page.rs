//! Pages for a browser: one file, no script, no outside request, light and dark.

use polytag::data::Statistics;

use crate::commands::inspect;
use crate::table::{Table, count};

const STYLE: &str = "\
:root{color-scheme:light dark;--ink:#1c1d21;--soft:#5d6270;--line:#d8dae1;--bar:#3563c9;--paper:#fff}\
@media(prefers-color-scheme:dark){:root{--ink:#e8e9ee;--soft:#a0a6b5;--line:#3a3d47;--bar:#7fa3f5;--paper:#16171b}}\
body{font:16px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);max-width:56rem;\
margin:2rem auto;padding:0 1rem}\
h1{font-size:1.5rem}h2{font-size:1.1rem;margin-top:2rem}\
table{border-collapse:collapse;display:block;overflow-x:auto}\
th,td{padding:.25rem .9rem .25rem 0;text-align:left;border-bottom:1px solid var(--line)}\
td+td,th+th{text-align:right;font-variant-numeric:tabular-nums}th{font-weight:600}\
svg{width:100%;height:auto}svg text{fill:var(--ink);font:13px system-ui,sans-serif}\
svg .soft{fill:var(--soft)}svg rect{fill:var(--bar)}li{margin:.3rem 0}";

const ROW: u64 = 26;
const LEFT: u64 = 120;
const WIDTH: u64 = 760;

/// The page of a task's statistics.
pub(crate) fn statistics(name: &str, statistics: &Statistics) -> String {
    let mut body = format!("<h1>{}</h1>\n", escape(name));
    body.push_str("<h2>Splits</h2>\n");
    body.push_str(&table(&inspect::splits(&statistics.splits), true));
    body.push_str("<h2>Labels</h2>\n");
    body.push_str(&table(&inspect::labels(statistics), false));
    body.push_str("<h2>Labels by the number of training documents that carry them</h2>\n");
    body.push_str(&histogram(statistics));
    let notes = inspect::notes(statistics);
    if !notes.is_empty() {
        body.push_str("<h2>Notes</h2>\n");
        body.push_str(&list(&notes));
    }
    if statistics.problem_count > 0 {
        body.push_str(&format!("<h2>{} problems</h2>\n", count(statistics.problem_count)));
        body.push_str(&list(&statistics.problems));
    }
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n<title>{}</title>\n\
         <style>{STYLE}</style>\n</head>\n<body>\n{body}</body>\n</html>\n",
        escape(name)
    )
}

fn list(items: &[String]) -> String {
    let items: String = items.iter().map(|item| format!("<li>{}</li>\n", escape(item))).collect();
    format!("<ul>\n{items}</ul>\n")
}

fn table(table: &Table, head: bool) -> String {
    let mut html = String::from("<table>\n");
    for (index, row) in table.rows().iter().enumerate() {
        let cell = if head && index == 0 { "th" } else { "td" };
        let cells: String = row.iter().map(|text| format!("<{cell}>{}</{cell}>", escape(text))).collect();
        html.push_str(&format!("<tr>{cells}</tr>\n"));
    }
    html + "</table>\n"
}

fn histogram(statistics: &Statistics) -> String {
    let most = statistics.tail.iter().map(|bin| bin.labels).max().unwrap_or(1).max(1);
    let height = statistics.tail.len() as u64 * ROW + 8;
    let mut svg = format!(
        "<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"Histogram of labels by training documents\">\n"
    );
    for (index, bin) in statistics.tail.iter().enumerate() {
        let top = index as u64 * ROW + 4;
        let middle = top + ROW / 2 + 2;
        // Room for the count behind the longest bar.
        let length = (bin.labels as f64 / most as f64 * (WIDTH - LEFT - 80) as f64).max(1.0);
        let end = LEFT as f64 + length + 8.0;
        svg.push_str(&format!(
            "<text x=\"{}\" y=\"{middle}\" text-anchor=\"end\">{}</text>\
             <rect x=\"{LEFT}\" y=\"{top}\" width=\"{length:.1}\" height=\"{}\" rx=\"2\"/>\
             <text class=\"soft\" x=\"{end:.1}\" y=\"{middle}\">{}</text>\n",
            LEFT - 10,
            escape(&inspect::bin_name(bin)),
            ROW - 6,
            count(bin.labels)
        ));
    }
    svg + "</svg>\n"
}

/// Text made safe to stand in a page.
fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use polytag::data::{SplitStatistics, TailBin};

    #[test]
    fn notes_are_those_of_the_text() {
        let train = SplitStatistics { split: "train", empty: 2, ..SplitStatistics::default() };
        let statistics = Statistics {
            unknown_label_fields: [("<code>".to_owned(), 3)].into(),
            splits: vec![train],
            ..Statistics::default()
        };
        let page = super::statistics("task", &statistics);
        let text = inspect::describe("task", &statistics);
        for note in [
            "labels.jsonl has a field \"<code>\" on 3 of its first 1,000 lines, which is not read",
            "2 documents of train say nothing",
        ] {
            assert!(text.contains(&format!("note: {note}\n")), "{text}");
            assert!(page.contains(&format!("<li>{}</li>", escape(note))), "{page}");
        }
    }

    #[test]
    fn names_cannot_break_out_of_the_page() {
        let statistics = Statistics {
            problems: vec!["<img src=x>".to_owned()],
            problem_count: 1,
            tail: vec![TailBin { from: 0, to: 0, labels: 3 }],
            ..Statistics::default()
        };
        let page = super::statistics("<script>alert(\"1\")</script>", &statistics);
        assert!(!page.contains("<script") && !page.contains("<img"));
        assert!(page.contains("0 (unseen)") && page.contains(">3</text>"));
    }
}
