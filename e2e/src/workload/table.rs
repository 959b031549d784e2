//! Tables printed by kubectl.

use anyhow::{Context, Result};

/// The columns of both kinds of workloads.
pub const WORKLOAD_COLUMNS: [&str; 7] =
    ["NAME", "DESIRED", "UPDATED", "UPDATED_READY", "READY", "TOTAL", "AGE"];

/// A table.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    /// Column headings.
    pub headings: Vec<String>,
    /// Rows of cells.
    pub lines: Vec<Vec<String>>,
}

impl Table {
    /// Parses kubectl's output. Columns start at their headings, so cells may be empty.
    pub fn parse(text: &str) -> Self {
        let mut lines = text.lines().filter(|line| !line.trim().is_empty());
        let head = lines.next().unwrap_or_default();
        let mut starts: Vec<usize> = Vec::new();
        let mut spaces = 2;
        for (index, letter) in head.char_indices() {
            match letter {
                ' ' => spaces += 1,
                _ => {
                    if spaces >= 2 {
                        starts.push(index);
                    }
                    spaces = 0;
                }
            }
        }
        let cells = |line: &str| -> Vec<String> {
            let ends = starts.iter().skip(1).copied().chain([line.len()]);
            let cut = |(from, to): (usize, usize)| line.get(from..to.max(from)).unwrap_or("");
            let cells = starts.iter().copied().zip(ends);
            cells.map(|range| cut(range).trim().to_owned()).collect()
        };
        Table { headings: cells(head), lines: lines.map(cells).collect() }
    }

    /// One column, by its heading.
    pub fn column(&self, heading: &str) -> Result<Vec<&str>> {
        let position = self.headings.iter().position(|found| found == heading);
        let position =
            position.with_context(|| format!("no column {heading} in {:?}", self.headings))?;
        Ok(self.lines.iter().map(|line| line[position].as_str()).collect())
    }

    /// The table without a column, such as one with ages.
    pub fn without(mut self, heading: &str) -> Self {
        if let Some(index) = self.headings.iter().position(|found| found == heading) {
            self.headings.remove(index);
            for line in &mut self.lines {
                line.remove(index);
            }
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_may_be_empty_and_headings_may_have_spaces() {
        let text = "NAME   NODE NAME   AGE\na                  3m\nbb     n 1         4m\n";
        let table = Table::parse(text);
        assert_eq!(table.headings, ["NAME", "NODE NAME", "AGE"]);
        assert_eq!(table.column("NODE NAME").expect("a column"), ["", "n 1"]);
        assert_eq!(table.without("AGE").lines, [["a", ""], ["bb", "n 1"]]);
    }
}
