//! A report for people: plain text for a terminal, Markdown for a page.

use std::fmt::Write;

use super::bootstrap::Interval;
use super::report::{Measured, Report};

/// The least width of the column of names, so that tables of two models line up.
const NAME_WIDTH: usize = 24;

impl Report {
    /// Aligned plain text, a table a group, within 100 columns.
    pub fn to_table(&self) -> String {
        let longest = self.metrics.iter().map(|measured| measured.name.len()).max().unwrap_or(0);
        let width = longest.max(NAME_WIDTH);
        let mut text = format!("{}\n", self.counts().join("\n"));
        for (group, metrics) in self.groups() {
            let title = group.to_string();
            line(&mut text, format_args!("\n{title:<width$}  {:>7}  {:>16}", "%", "95 % interval"));
            for measured in metrics {
                let row =
                    format!("{:<width$}  {:>7.2}  {}", measured.name, measured.value, interval(measured, 6));
                line(&mut text, format_args!("{}", row.trim_end()));
            }
        }
        text
    }

    /// Markdown, a heading and a table a group.
    pub fn to_markdown(&self) -> String {
        let mut text = String::new();
        for count in self.counts() {
            line(&mut text, format_args!("- {count}"));
        }
        for (group, metrics) in self.groups() {
            line(
                &mut text,
                format_args!("\n### {group}\n\n| metric | % | 95 % interval |\n| --- | ---: | ---: |"),
            );
            for measured in metrics {
                let interval = interval(measured, 0);
                line(&mut text, format_args!("| {} | {:.2} | {interval} |", measured.name, measured.value));
            }
        }
        text
    }

    /// What was measured, as phrases; what there is none of is not mentioned.
    fn counts(&self) -> Vec<String> {
        let mut documents = format!("{} measured", number(self.documents, "document"));
        if self.documents_with_unseen_gold > 0 {
            documents += &format!(", {} with an unseen gold label", self.documents_with_unseen_gold);
        }
        if self.documents_without_gold > 0 {
            documents += &format!("; {} left out for want of gold labels", self.documents_without_gold);
        }
        let mut labels = format!("{}, {} of them unseen", number(self.labels, "label"), self.unseen_labels);
        if self.unknown_gold_labels > 0 {
            labels += &format!("; {} unknown to the model", number(self.unknown_gold_labels, "gold label"));
        }
        vec![documents, labels]
    }
}

fn line(text: &mut String, line: std::fmt::Arguments<'_>) {
    writeln!(text, "{line}").expect("writing to a string cannot fail");
}

fn number(count: u64, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// Both ends, each at least `width` wide; blank where there is no interval.
fn interval(measured: &Measured, width: usize) -> String {
    let show = |Interval { low, high }| format!("[{low:>width$.2}, {high:>width$.2}]");
    measured.interval.map_or_else(String::new, show)
}

#[cfg(test)]
mod tests {
    use crate::metric::fixture::small_report;

    #[test]
    fn plain_text_is_aligned() {
        let expected = "\
9 documents measured, 2 with an unseen gold label; 1 left out for want of gold labels
40 labels, 5 of them unseen; 1 gold label unknown to the model

Overall ranking                 %     95 % interval
P@1                         61.11  [ 59.88,  62.30]

Tail of the label set           %     95 % interval
PSP@1                        7.00  [  0.00, 100.00]

Unseen labels                   %     95 % interval
ZSR@100                      0.50
";
        assert_eq!(small_report().to_table(), expected);
        assert!(expected.lines().all(|line| line.len() <= 100));
    }

    #[test]
    fn markdown_has_a_table_a_group() {
        let text = small_report().to_markdown();
        assert!(text.starts_with("- 9 documents measured"));
        assert!(
            text.contains("### Overall ranking\n\n| metric | % | 95 % interval |\n| --- | ---: | ---: |\n")
        );
        assert!(text.contains("| P@1 | 61.11 | [59.88, 62.30] |\n"));
        assert!(text.contains("| ZSR@100 | 0.50 |  |\n"));
    }
}
