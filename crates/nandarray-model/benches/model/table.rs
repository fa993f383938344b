//! Tables: printed as text, or as one line of JSON each for `python -m bench model`.
#![allow(clippy::print_stdout, reason = "a benchmark prints")]

use serde::Serialize;

/// A table: a title, a header, rows of formatted texts, and notes below them.
#[derive(Debug, Serialize)]
pub struct Table {
    section: &'static str,
    title: String,
    header: Vec<&'static str>,
    rows: Vec<Vec<String>>,
    notes: Vec<String>,
}

impl Table {
    pub fn new(section: &'static str, title: impl Into<String>, header: &[&'static str]) -> Self {
        Self { section, title: title.into(), header: header.to_vec(), rows: Vec::new(), notes: Vec::new() }
    }

    pub fn row(&mut self, row: Vec<String>) {
        assert_eq!(row.len(), self.header.len(), "a cell for each heading");
        self.rows.push(row);
    }

    pub fn note(&mut self, note: impl Into<String>) {
        self.notes.push(note.into());
    }

    /// Prints the table as text, or with `json` as one line of JSON.
    pub fn print(&self, json: bool) {
        if json {
            println!("{}", serde_json::to_string(self).expect("texts serialise"));
            return;
        }
        let widths: Vec<usize> = (0..self.header.len())
            .map(|i| self.rows.iter().map(|r| r[i].len()).chain([self.header[i].len()]).max().unwrap_or(0))
            .collect();
        println!("\n{}", self.title);
        let header = self.header.iter().map(|s| (*s).to_owned()).collect();
        for row in std::iter::once(&header).chain(&self.rows) {
            let cells: Vec<String> = row.iter().zip(&widths).map(|(cell, &w)| format!("{cell:<w$}")).collect();
            println!("  {}", cells.join("  ").trim_end());
        }
        self.notes.iter().for_each(|note| println!("  {note}"));
    }
}

/// Formats a number without decimals, with commas between thousands: `12345.6` as `12,346`.
pub fn whole(number: f64) -> String {
    let digits = format!("{number:.0}");
    let mut text = String::new();
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i) % 3 == 0 {
            text.push(',');
        }
        text.push(c);
    }
    text
}

/// Formats this model's figure divided by the one that it is compared with.
pub fn ratio(ours: f64, theirs: f64) -> String {
    format!("{:.2}", ours / theirs)
}
