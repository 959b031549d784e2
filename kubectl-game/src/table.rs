//! Tables as kubectl prints them: columns separated by three spaces, without borders.

use crate::page::{Page, sanitize};
use crate::style::{Style, Tone};

#[derive(Clone, Debug, Default)]
pub struct Cell {
    text: String,
    tone: Tone,
    marked: bool,
}

impl Cell {
    /// A string in a tone, preceded by the tone's symbol.
    pub fn state(tone: Tone, text: impl Into<String>) -> Self {
        Cell { text: text.into(), tone, marked: true }
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    fn shown(&self, style: Style) -> String {
        let mark = if self.marked { style.mark(self.tone) } else { "" };
        format!("{mark}{}", sanitize(&self.text))
    }
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Self {
        Cell { text: text.into(), ..Cell::default() }
    }
}

pub struct Table {
    headings: Vec<&'static str>,
    lines: Vec<Vec<Cell>>,
}

impl Table {
    pub fn new(headings: impl IntoIterator<Item = &'static str>) -> Self {
        Table { headings: headings.into_iter().collect(), lines: Vec::new() }
    }

    pub fn push(&mut self, line: impl IntoIterator<Item = Cell>) {
        self.lines.push(line.into_iter().collect());
    }

    pub fn render(&self, style: Style) -> String {
        let width = |text: &str| text.chars().count();
        let widths: Vec<usize> = (0..self.headings.len())
            .map(|column| {
                let cells = self.lines.iter().filter_map(|line| line.get(column));
                let widest = cells.map(|cell| width(&cell.shown(style))).max();
                widest.unwrap_or(0).max(width(self.headings[column]))
            })
            .collect();
        let headings: Vec<Cell> = self.headings.iter().map(|it| Cell::from(*it)).collect();
        let mut page = Page::new(style);
        for line in std::iter::once(&headings).chain(&self.lines) {
            let mut padding = 0;
            for (cell, width_of_column) in line.iter().zip(&widths) {
                let shown = cell.shown(style);
                // Padding is written before the next cell, so no line ends in spaces.
                if !shown.is_empty() {
                    page.write(Tone::Plain, &" ".repeat(padding));
                    page.write(cell.tone, &shown);
                    padding = 0;
                }
                padding += width_of_column + 3 - width(&shown);
            }
            page.end_line();
        }
        page.text()
    }
}
