//! Symbols and colors on a terminal, plain text in a pipe.

use std::io::IsTerminal;

/// The kind of state that a string describes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tone {
    #[default]
    Plain,
    Good,
    /// Something is in progress.
    Busy,
    /// Something waits for a user.
    Held,
    Bad,
    Faint,
}

impl Tone {
    /// The tone's color, as an ANSI code.
    pub fn code(self) -> Option<&'static str> {
        match self {
            Tone::Plain => None,
            Tone::Good => Some("32"),
            Tone::Busy => Some("36"),
            Tone::Held => Some("33"),
            Tone::Bad => Some("31"),
            Tone::Faint => Some("2"),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    /// Whether to use symbols and lines beyond ASCII.
    pub symbols: bool,
    pub color: bool,
    /// The width of the terminal, in characters; None if lines may have any length.
    pub width: Option<usize>,
}

impl Style {
    /// For a pipe or a file.
    pub const PLAIN: Style = Style { symbols: false, color: false, width: None };

    /// For stdout; respects <https://no-color.org>.
    pub fn of_stdout() -> Self {
        let is_terminal = std::io::stdout().is_terminal();
        let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let is_dumb = variable("TERM").is_none_or(|term| term == "dumb");
        Style {
            symbols: is_terminal && !is_dumb,
            color: is_terminal && !is_dumb && variable("NO_COLOR").is_none(),
            width: is_terminal.then(terminal_width).flatten(),
        }
    }

    /// The symbol of a tone, followed by a space.
    pub fn mark(self, tone: Tone) -> &'static str {
        match tone {
            _ if !self.symbols => "",
            Tone::Plain | Tone::Faint => "",
            Tone::Good => "✔ ",
            Tone::Busy => "◌ ",
            Tone::Held => "‖ ",
            Tone::Bad => "✖ ",
        }
    }

    /// The lines in front of a child in a tree, and in front of the child's own children.
    pub fn branch(self, is_last: bool) -> (&'static str, &'static str) {
        match (self.symbols, is_last) {
            (true, false) => ("├─ ", "│  "),
            (true, true) => ("└─ ", "   "),
            (false, false) => ("|- ", "|  "),
            (false, true) => ("`- ", "   "),
        }
    }
}

/// The width of the terminal that stdout is.
#[cfg(unix)]
fn terminal_width() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok()?;
    (size.ws_col > 0).then(|| size.ws_col.into())
}

#[cfg(not(unix))]
fn terminal_width() -> Option<usize> {
    None
}
