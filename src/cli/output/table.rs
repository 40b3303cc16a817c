//! Tables as kubectl makes them: columns three spaces apart, as wide as they must be.

use std::fmt::Write as _;

use anstyle::Style;

/// Between two columns.
const GAP: usize = 3;

/// A cell and how it looks.
#[derive(Clone, Debug)]
pub(in crate::cli) struct Cell {
    text: String,
    style: Style,
}

impl Cell {
    /// A cell that stands out.
    pub(in crate::cli) fn styled(text: impl Into<String>, style: Style) -> Self {
        Self { text: text.into(), style }
    }
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self::styled(text, Style::new())
    }
}

/// The widths of a table's columns. They only ever grow, so that rows which come later line up with those before, as
/// far as that can be.
#[derive(Debug, Default)]
pub(in crate::cli) struct Columns(Vec<usize>);

impl Columns {
    /// Columns that are at least so wide.
    pub(in crate::cli) fn at_least(widths: &[usize]) -> Self {
        Self(widths.to_vec())
    }

    /// Rows as lines.
    pub(in crate::cli) fn lines(&mut self, rows: &[Vec<Cell>]) -> String {
        for row in rows {
            self.0.resize(self.0.len().max(row.len()), 0);
            for (width, cell) in self.0.iter_mut().zip(row) {
                *width = (*width).max(cell.text.chars().count());
            }
        }
        rows.iter().map(|row| self.line(row)).collect()
    }

    fn line(&self, row: &[Cell]) -> String {
        let mut line = String::new();
        // Nothing follows the last cell that holds anything, and so nothing is filled up to there.
        let filled = row.iter().rposition(|cell| !cell.text.is_empty()).map_or(0, |last| last + 1);
        for (at, (cell, width)) in row.iter().zip(&self.0).take(filled).enumerate() {
            let Cell { text, style } = cell;
            let _ = write!(line, "{style}{text}{style:#}");
            if at + 1 < filled {
                line.extend(std::iter::repeat_n(' ', width + GAP - text.chars().count()));
            }
        }
        line.push('\n');
        line
    }
}

/// A table with its headings.
pub(in crate::cli) fn table(headings: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut all: Vec<Vec<Cell>> = vec![headings.iter().map(|heading| Cell::from(*heading)).collect()];
    all.extend(rows.into_iter().map(cells));
    Columns::default().lines(&all)
}

/// Cells without any style.
pub(in crate::cli) fn cells(row: Vec<String>) -> Vec<Cell> {
    row.into_iter().map(Cell::from).collect()
}
