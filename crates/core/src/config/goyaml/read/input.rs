//! Cursor over the input text, with the position of every character.

use super::YamlError;

/// A position in the text. Line and column count from zero; column and index count characters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct YamlMark {
    pub index: usize,
    pub line: usize,
    pub column: usize,
}

impl YamlMark {
    pub(super) fn error(self, message: impl Into<String>) -> YamlError {
        YamlError {
            line: self.line as u64 + 1,
            column: self.column as u64 + 1,
            message: message.into(),
        }
    }
}

/// A cursor over the text. Past the end it returns NUL, which the text itself cannot contain.
#[derive(Debug)]
pub(super) struct Input<'a> {
    text: &'a str,
    at: usize,
    pub mark: YamlMark,
}

impl<'a> Input<'a> {
    /// Creates a cursor; rejects characters that YAML does not allow anywhere.
    pub(super) fn new(text: &'a str) -> Result<Self, YamlError> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let mut input = Self {
            text,
            at: 0,
            mark: YamlMark::default(),
        };
        if let Some(bad) = text.find(|c| !is_allowed(c)) {
            while input.at < bad {
                input.skip_any();
            }
            return Err(input.mark.error("control characters are not allowed"));
        }
        if text.starts_with('\u{feff}') {
            input.skip();
        }
        Ok(input)
    }

    pub(super) fn byte(&self, ahead: usize) -> u8 {
        self.text.as_bytes().get(self.at + ahead).copied().unwrap_or(0)
    }

    pub(super) fn is_end(&self) -> bool {
        self.at >= self.text.len()
    }

    pub(super) fn is_blank(&self, ahead: usize) -> bool {
        matches!(self.byte(ahead), b' ' | b'\t')
    }

    /// Whether the character is a line break: CR, LF, NEL, LS or PS.
    pub(super) fn is_break(&self, ahead: usize) -> bool {
        match self.byte(ahead) {
            b'\r' | b'\n' => true,
            0xc2 => self.byte(ahead + 1) == 0x85,
            0xe2 => self.byte(ahead + 1) == 0x80 && matches!(self.byte(ahead + 2), 0xa8 | 0xa9),
            _ => false,
        }
    }

    pub(super) fn is_break_or_end(&self, ahead: usize) -> bool {
        self.byte(ahead) == 0 || self.is_break(ahead)
    }

    /// Whether white space, a line break or the end follows, as required after an indicator.
    pub(super) fn is_space_or_end(&self, ahead: usize) -> bool {
        self.is_blank(ahead) || self.is_break_or_end(ahead)
    }

    /// Whether the character may occur in a name of an anchor, tag or directive: letters, digits, `_` and `-`.
    pub(super) fn is_word(&self) -> bool {
        matches!(self.byte(0), b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' | b'_' | b'-')
    }

    /// Whether the cursor is at `---` or `...` at the start of a line, followed by white space or the end.
    pub(super) fn is_document_indicator(&self) -> bool {
        self.starts_document(b'-') || self.starts_document(b'.')
    }

    pub(super) fn starts_document(&self, indicator: u8) -> bool {
        self.mark.column == 0 && (0..3).all(|ahead| self.byte(ahead) == indicator) && self.is_space_or_end(3)
    }

    /// Skips one character that is not a line break.
    pub(super) fn skip(&mut self) {
        if !self.is_end() {
            self.at += width(self.byte(0));
            self.mark.index += 1;
            self.mark.column += 1;
        }
    }

    /// Skips one line break, if there is one.
    pub(super) fn skip_line(&mut self) {
        if self.byte(0) == b'\r' && self.byte(1) == b'\n' {
            self.at += 2;
            self.mark.index += 2;
        } else if self.is_break(0) {
            self.at += width(self.byte(0));
            self.mark.index += 1;
        } else {
            return;
        }
        self.mark.line += 1;
        self.mark.column = 0;
    }

    fn skip_any(&mut self) {
        if self.is_break(0) {
            self.skip_line();
        } else {
            self.skip();
        }
    }

    pub(super) fn skip_blanks(&mut self) {
        while self.is_blank(0) {
            self.skip();
        }
    }

    /// Skips to the end of the line when a comment starts here.
    pub(super) fn skip_comment(&mut self) {
        if self.byte(0) == b'#' {
            while !self.is_break_or_end(0) {
                self.skip();
            }
        }
    }

    /// Copies one character.
    pub(super) fn take(&mut self, into: &mut String) {
        let from = self.at;
        self.skip();
        into.push_str(&self.text[from..self.at]);
    }

    /// Copies one line break; all but LS and PS become a line feed.
    pub(super) fn take_line(&mut self, into: &mut String) {
        match self.byte(0) {
            0xe2 if self.is_break(0) => into.push_str(&self.text[self.at..self.at + 3]),
            _ if self.is_break(0) => into.push('\n'),
            _ => {}
        }
        self.skip_line();
    }

    /// Copies a word; see [`Input::is_word`].
    pub(super) fn take_word(&mut self) -> String {
        let from = self.at;
        while self.is_word() {
            self.skip();
        }
        self.text[from..self.at].to_owned()
    }

    /// Moves to the start of the next line; the end of the text counts as one.
    pub(super) fn finish_line(&mut self) {
        if self.mark.column != 0 {
            self.mark.line += 1;
            self.mark.column = 0;
        }
    }
}

fn width(first: u8) -> usize {
    match first {
        0..0x80 => 1,
        0x80..0xe0 => 2,
        0xe0..0xf0 => 3,
        0xf0.. => 4,
    }
}

fn is_allowed(c: char) -> bool {
    matches!(c,
        '\t' | '\n' | '\r' | ' '..='~' | '\u{85}' | '\u{a0}'..='\u{d7ff}' | '\u{e000}'..='\u{fffd}' | '\u{10000}'..)
}
