//! What people read: lines of text in tones.
//!
//! Every text of an object passes here on its way to a terminal. Whoever may write a change cause, or be
//! measured, shall not move the cursor, forge a line or turn the writing around: such characters are shown.

use std::borrow::Cow;

use crate::style::{Style, Tone};

/// Lines of text.
pub struct Page {
    style: Style,
    text: String,
}

impl Page {
    /// An empty one.
    pub fn new(style: Style) -> Self {
        Page {
            style,
            text: String::new(),
        }
    }

    /// Goes on in the line.
    pub fn write(&mut self, tone: Tone, text: &str) {
        let text = inert(text);
        match tone
            .code()
            .filter(|_| self.style.colour && !text.is_empty())
        {
            Some(code) => self.text += &format!("\x1b[{code}m{text}\x1b[0m"),
            None => self.text += &text,
        }
    }

    /// Ends the line.
    pub fn end_line(&mut self) {
        self.text.push('\n');
    }

    /// A line in one tone.
    pub fn line(&mut self, tone: Tone, text: &str) {
        self.write(tone, text);
        self.end_line();
    }

    /// What stands on it.
    pub fn text(self) -> String {
        self.text
    }
}

/// A text as a part of a line: its line breaks and tabs are spaces, and nothing in it does anything.
pub fn inert(text: &str) -> Cow<'_, str> {
    shown(text, |it| matches!(it, '\n' | '\r' | '\t').then_some(' '))
}

/// A text of several lines, in which nothing else does anything.
pub fn inert_lines(text: &str) -> Cow<'_, str> {
    shown(text, |it| (it == '\n').then_some('\n'))
}

fn shown(text: &str, white: impl Fn(char) -> Option<char>) -> Cow<'_, str> {
    if !text.contains(acts) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        match white(character) {
            Some(space) => shown.push(space),
            None if acts(character) => shown.extend(character.escape_default()),
            None => shown.push(character),
        }
    }
    Cow::Owned(shown)
}

/// Whether a terminal does something else than to show it: control characters, and those that turn the
/// direction of what follows.
fn acts(character: char) -> bool {
    let turns = matches!(character, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    character.is_control() || turns
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_act_on_a_terminal_is_shown() {
        for (text, expected) in [
            ("game:v1, für 3 €", "game:v1, für 3 €"),
            ("\x1b[2J", "\\u{1b}[2J"),
            ("\x1b]0;title\x07", "\\u{1b}]0;title\\u{7}"),
            ("\u{9b}31m", "\\u{9b}31m"),
            ("fine\ngd/game: Complete", "fine gd/game: Complete"),
            ("bad\rgood", "bad good"),
            ("a\u{202e}b", "a\\u{202e}b"),
        ] {
            assert_eq!(inert(text), expected);
            assert_eq!(inert(&inert(text)), expected);
        }
        assert_eq!(inert_lines("a\n\x1b[2Jb\r"), "a\n\\u{1b}[2Jb\\r");
    }

    #[test]
    fn colours_are_the_only_thing_that_acts() {
        let mut page = Page::new(Style {
            symbols: true,
            colour: true,
        });
        page.line(Tone::Bad, "a\x1b[2J");
        assert_eq!(page.text(), "\x1b[31ma\\u{1b}[2J\x1b[0m\n");
    }
}
