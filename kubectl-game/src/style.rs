//! How things look: symbols and colours where somebody looks at a terminal, bare text in a pipe.

use std::io::IsTerminal;

/// What a text says about the state of things.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tone {
    /// Nothing.
    #[default]
    Plain,
    /// All is well.
    Good,
    /// Something is under way.
    Busy,
    /// Something waits for a person.
    Held,
    /// Something went wrong.
    Bad,
    /// Worth less attention.
    Faint,
}

impl Tone {
    /// What a terminal calls its colour.
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

/// How to print.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    /// Whether to use symbols and lines beyond ASCII.
    pub symbols: bool,
    /// Whether to colour.
    pub colour: bool,
}

impl Style {
    /// For a pipe or a file.
    pub const PLAIN: Style = Style {
        symbols: false,
        colour: false,
    };

    /// For stdout: <https://no-color.org> is kept to.
    pub fn of_stdout() -> Self {
        let is_terminal = std::io::stdout().is_terminal();
        let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let is_dumb = set("TERM").is_none_or(|term| term == "dumb");
        Style {
            symbols: is_terminal && !is_dumb,
            colour: is_terminal && !is_dumb && set("NO_COLOR").is_none(),
        }
    }

    /// The symbol of a tone, with the space after it.
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

    /// What leads to a child in a tree, and what goes on below it.
    pub fn branch(self, is_last: bool) -> (&'static str, &'static str) {
        match (self.symbols, is_last) {
            (true, false) => ("├─ ", "│  "),
            (true, true) => ("└─ ", "   "),
            (false, false) => ("|- ", "|  "),
            (false, true) => ("`- ", "   "),
        }
    }
}
