//! Lines of text, colored by tone.
//!
//! Text from objects must not control the terminal: control characters in a change cause or in a measured value
//! could move the cursor, forge a line or reverse the text direction. They are escaped.

use std::borrow::Cow;

use crate::style::{Style, Tone};

/// The width of the labels of a header.
pub const INDENT: usize = 12;

pub struct Page {
    style: Style,
    text: String,
}

impl Page {
    pub fn new(style: Style) -> Self {
        Page { style, text: String::new() }
    }

    /// Appends to the current line.
    pub fn write(&mut self, tone: Tone, text: &str) {
        let text = sanitize(text);
        match tone.code().filter(|_| self.style.color && !text.is_empty()) {
            Some(code) => self.text += &format!("\x1b[{code}m{text}\x1b[0m"),
            None => self.text += &text,
        }
    }

    pub fn end_line(&mut self) {
        self.text.push('\n');
    }

    pub fn line(&mut self, tone: Tone, text: &str) {
        self.write(tone, text);
        self.end_line();
    }

    /// Appends a line of a header: a label, and parts with their tones. Without a label, the line reads as the
    /// continuation of the one above.
    pub fn row(&mut self, label: &str, parts: &[(Tone, String)]) {
        let colon = if label.is_empty() { "" } else { ":" };
        self.write(Tone::Plain, &format!("{:<INDENT$}", format!("{label}{colon}")));
        let mut column = INDENT;
        for (tone, part) in parts {
            column = self.wrapped(*tone, part, column, INDENT);
        }
        self.end_line();
    }

    /// A line that continues below, indented, where the terminal ends.
    pub fn sentence(&mut self, tone: Tone, text: &str) {
        self.wrapped(tone, text, 0, 2);
        self.end_line();
    }

    /// Appends to the current line, which is already this long, and breaks it between words where the terminal ends.
    /// Returns the length of the last line.
    pub fn wrapped(&mut self, tone: Tone, text: &str, mut column: usize, indent: usize) -> usize {
        let text = sanitize(text);
        let Some(limit) = self.style.width else {
            self.write(tone, &text);
            return column + text.chars().count();
        };
        let mut line = String::new();
        for word in text.split_inclusive(' ') {
            let length = word.trim_end().chars().count();
            if column + length > limit && column > indent {
                self.write(tone, line.trim_end());
                self.end_line();
                self.write(Tone::Plain, &" ".repeat(indent));
                (line, column) = (String::new(), indent);
            }
            line.push_str(word);
            column += word.chars().count();
        }
        self.write(tone, &line);
        column
    }

    pub fn text(self) -> String {
        self.text
    }
}

/// Makes a string fit on one line: line breaks and tabs become spaces, and other control characters are escaped.
pub fn sanitize(text: &str) -> Cow<'_, str> {
    escape(text, |it| matches!(it, '\n' | '\r' | '\t').then_some(' '))
}

/// Escapes all control characters except line feeds.
pub fn sanitize_lines(text: &str) -> Cow<'_, str> {
    escape(text, |it| (it == '\n').then_some('\n'))
}

fn escape(text: &str, whitespace: impl Fn(char) -> Option<char>) -> Cow<'_, str> {
    if !text.contains(is_control) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match whitespace(character) {
            Some(space) => escaped.push(space),
            None if is_control(character) => escaped.extend(character.escape_default()),
            None => escaped.push(character),
        }
    }
    Cow::Owned(escaped)
}

/// Whether a character is a control character, or changes the text direction.
fn is_control(character: char) -> bool {
    let is_bidi = matches!(character, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    character.is_control() || is_bidi
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped() {
        for (text, expected) in [
            ("game:v1, für 3 €", "game:v1, für 3 €"),
            ("\x1b[2J", "\\u{1b}[2J"),
            ("\x1b]0;title\x07", "\\u{1b}]0;title\\u{7}"),
            ("\u{9b}31m", "\\u{9b}31m"),
            ("fine\ngd/game: Complete", "fine gd/game: Complete"),
            ("bad\rgood", "bad good"),
            ("a\u{202e}b", "a\\u{202e}b"),
        ] {
            assert_eq!(sanitize(text), expected);
            assert_eq!(sanitize(&sanitize(text)), expected);
        }
        assert_eq!(sanitize_lines("a\n\x1b[2Jb\r"), "a\n\\u{1b}[2Jb\\r");
    }

    #[test]
    fn colors_are_the_only_escape_sequences() {
        let mut page = Page::new(Style { symbols: true, color: true, width: None });
        page.line(Tone::Bad, "a\x1b[2J");
        assert_eq!(page.text(), "\x1b[31ma\\u{1b}[2J\x1b[0m\n");
    }
}
