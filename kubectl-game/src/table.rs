//! Tables as kubectl prints them: columns separated by three spaces, without borders.

use crate::page::{Page, sanitize};
use crate::style::{Style, Tone};
use crate::view::cut;

/// The number of spaces between columns.
const SPACE: usize = 3;
/// The smallest width of the last column.
const MIN_LAST: usize = 10;

fn width(text: &str) -> usize {
    text.chars().count()
}

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

    /// Removes a column if the table is wider than the terminal.
    pub fn without_if_narrow(mut self, heading: &str, style: Style) -> Self {
        let is_narrow = style.width.is_some_and(|width| self.width(style) > width);
        if let Some(column) = self.headings.iter().position(|it| *it == heading && is_narrow) {
            self.headings.remove(column);
            for line in self.lines.iter_mut().filter(|line| line.len() > column) {
                line.remove(column);
            }
        }
        self
    }

    fn width(&self, style: Style) -> usize {
        let widths = self.widths(style);
        widths.iter().sum::<usize>() + SPACE * widths.len().saturating_sub(1)
    }

    fn widths(&self, style: Style) -> Vec<usize> {
        (0..self.headings.len())
            .map(|column| {
                let cells = self.lines.iter().filter_map(|line| line.get(column));
                let widest = cells.map(|cell| width(&cell.shown(style))).max();
                widest.unwrap_or(0).max(width(self.headings[column]))
            })
            .collect()
    }

    /// Cuts the last column so that the table is not wider than the terminal.
    fn cut(&self, style: Style, widths: &mut [usize]) -> Vec<Vec<Cell>> {
        let mut lines = self.lines.clone();
        let (Some(limit), Some((last, others))) = (style.width, widths.split_last_mut()) else {
            return lines;
        };
        let before = others.iter().map(|it| it + SPACE).sum();
        let room = limit.saturating_sub(before).max(MIN_LAST);
        if *last > room {
            *last = room;
            let column = others.len();
            for cell in lines.iter_mut().filter_map(|line| line.get_mut(column)) {
                cell.text = cut(&cell.text, room);
            }
        }
        lines
    }

    pub fn render(&self, style: Style) -> String {
        let mut widths = self.widths(style);
        let lines = self.cut(style, &mut widths);
        let headings: Vec<Cell> = self.headings.iter().map(|it| Cell::from(*it)).collect();
        let mut page = Page::new(style);
        for line in std::iter::once(&headings).chain(&lines) {
            let mut padding = 0;
            for (cell, width_of_column) in line.iter().zip(&widths) {
                let shown = cell.shown(style);
                // Padding is written before the next cell, so no line ends in spaces.
                if !shown.is_empty() {
                    page.write(Tone::Plain, &" ".repeat(padding));
                    page.write(cell.tone, &shown);
                    padding = 0;
                }
                padding += (width_of_column + SPACE).saturating_sub(width(&shown));
            }
            page.end_line();
        }
        page.text()
    }
}
