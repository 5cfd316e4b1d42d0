//! Tables as kubectl prints them.

use std::fmt;

use crate::style::Severity;

#[derive(Debug)]
pub struct Table<const COLUMNS: usize> {
    rows: Vec<[(String, Severity); COLUMNS]>,
}

impl<const COLUMNS: usize> Table<COLUMNS> {
    pub fn new(header: [&str; COLUMNS]) -> Self {
        Self {
            rows: vec![header.map(|cell| (cell.to_owned(), Severity::Plain))],
        }
    }

    pub fn row(&mut self, row: [String; COLUMNS]) {
        self.row_with(row, |_| Severity::Plain);
    }

    /// Adds a row whose cells are coloured by their column.
    pub fn row_with(&mut self, row: [String; COLUMNS], severity: impl Fn(usize) -> Severity) {
        let mut column = 0;
        self.rows.push(row.map(|cell| {
            let severity = severity(column);
            column += 1;
            (crate::output::escape_control_chars(&cell), severity)
        }));
    }
}

impl<const COLUMNS: usize> fmt::Display for Table<COLUMNS> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut widths = [0; COLUMNS];
        for row in &self.rows {
            for (width, (cell, _)) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        for row in &self.rows {
            let mut line = String::new();
            let mut gap = 0;
            for ((cell, severity), width) in row.iter().zip(widths) {
                if !cell.is_empty() {
                    line.push_str(&" ".repeat(gap));
                    line.push_str(&severity.paint(cell));
                    gap = 0;
                }
                gap += width.saturating_sub(cell.chars().count()) + 3;
            }
            writeln!(f, "{line}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_with_and_without_colours() {
        let mut table = Table::new(["A", "STATE", "C"]);
        table.row_with(["x".to_owned(), "Bad".to_owned(), "1".to_owned()], |column| {
            if column == 1 {
                Severity::Bad
            } else {
                Severity::Plain
            }
        });
        table.row(["long".to_owned(), String::new(), "2".to_owned()]);
        table.row(["y".to_owned(), String::new(), String::new()]);
        let coloured = table.to_string();
        assert!(coloured.contains('\u{1b}'));
        let plain = anstream::adapter::strip_str(&coloured).to_string();
        assert_eq!(plain, "A      STATE   C\nx      Bad     1\nlong           2\ny\n");
    }
}
