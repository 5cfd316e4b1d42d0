//! Tables as kubectl prints them.

use std::fmt;

#[derive(Debug)]
pub struct Table<const COLUMNS: usize> {
    rows: Vec<[String; COLUMNS]>,
}

impl<const COLUMNS: usize> Table<COLUMNS> {
    pub fn new(header: [&str; COLUMNS]) -> Self {
        Self {
            rows: vec![header.map(str::to_owned)],
        }
    }

    pub fn row(&mut self, row: [String; COLUMNS]) {
        self.rows
            .push(row.map(|cell| crate::output::escape_control_chars(&cell)));
    }
}

impl<const COLUMNS: usize> fmt::Display for Table<COLUMNS> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut widths = [0; COLUMNS];
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        for row in &self.rows {
            let cells = row
                .iter()
                .zip(widths)
                .map(|(cell, width)| format!("{cell:width$}"));
            writeln!(f, "{}", cells.collect::<Vec<_>>().join("   ").trim_end())?;
        }
        Ok(())
    }
}
