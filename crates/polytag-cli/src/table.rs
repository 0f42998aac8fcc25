//! Plain tables: columns that line up, nothing else.

/// Rows of text whose columns line up; columns of numbers are set to the right, their heads too.
#[derive(Debug, Default)]
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn row<T: Into<String>>(&mut self, cells: impl IntoIterator<Item = T>) -> &mut Table {
        self.rows.push(cells.into_iter().map(Into::into).collect());
        self
    }

    /// The cells, row by row.
    pub(crate) fn rows(&self) -> &[Vec<String>] {
        &self.rows
    }

    /// The rows as lines, each begun with `indent` spaces.
    pub(crate) fn render(&self, indent: usize) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let cell = |row: &Vec<String>, column: usize| row.get(column).cloned().unwrap_or_default();
        let width = |column| self.rows.iter().map(|row| cell(row, column).chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let is_number =
            |cell: &str| cell.is_empty() || cell == "–" || cell.starts_with(|c: char| c.is_ascii_digit());
        let numeric = |column| self.rows.iter().skip(1).all(|row| is_number(&cell(row, column)));
        let numeric: Vec<bool> = (0..columns).map(numeric).collect();
        let mut text = String::new();
        for row in &self.rows {
            let mut line = " ".repeat(indent);
            for (column, &width) in widths.iter().enumerate() {
                let cell = cell(row, column);
                let space = " ".repeat(width - cell.chars().count());
                line.push_str(&if numeric[column] { space + &cell } else { cell + &space });
                line.push_str("  ");
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

/// A count with its thousands set apart: 45,000.
pub(crate) fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let mut table = Table::default();
        table.row(["", "train"]).row(["labels", "163,000"]).row(["é", "1", "x"]);
        assert_eq!(table.render(1), "           train\n labels  163,000\n é             1  x\n");
    }

    #[test]
    fn thousands_are_set_apart() {
        assert_eq!([0, 999, 1000, 1234567].map(count), ["0", "999", "1,000", "1,234,567"]);
    }
}
