//! Scanner for plain, quoted and block scalars.

use super::YamlError;
use super::input::YamlMark;
use super::scanner::Scanner;
use super::token::{TokenKind, YamlToken};

/// White space between two words of a scalar, which a line fold may replace.
#[derive(Debug, Default)]
struct Gap {
    blanks: String,
    /// The first line break of the gap; `more_breaks` holds the others.
    first_break: String,
    more_breaks: String,
    has_break: bool,
}

impl Gap {
    /// Appends the folded gap: one line break becomes a space, of several all but the first are kept.
    fn fold_into(&mut self, text: &mut String) {
        if !self.has_break {
            text.push_str(&self.blanks);
        } else if !self.first_break.starts_with('\n') {
            // LS and PS are kept; an escaped line break appends nothing.
            text.push_str(&self.first_break);
            text.push_str(&self.more_breaks);
        } else if self.more_breaks.is_empty() {
            text.push(' ');
        } else {
            text.push_str(&self.more_breaks);
        }
        *self = Self::default();
    }

    fn is_empty(&self) -> bool {
        !self.has_break && self.blanks.is_empty()
    }
}

/// Treatment of the line breaks at the end of a block scalar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Chomping {
    Strip,
    Clip,
    Keep,
}

impl Scanner<'_> {
    pub(super) fn scan_plain(&mut self) -> Result<YamlToken, YamlError> {
        let at = self.input.mark;
        let indent = self.indent + 1;
        let (mut text, mut gap) = (String::new(), Gap::default());
        while !self.input.is_document_indicator() && self.input.byte(0) != b'#' {
            while !self.input.is_space_or_end(0) && !self.ends_plain() {
                if !gap.is_empty() {
                    gap.fold_into(&mut text);
                }
                self.input.take(&mut text);
            }
            if !self.input.is_blank(0) && !self.input.is_break(0) {
                break;
            }
            self.plain_gap(&mut gap, indent, at)?;
            let column = isize::try_from(self.input.mark.column).unwrap_or(isize::MAX);
            if !self.in_flow() && column < indent {
                break;
            }
        }
        if gap.has_break {
            self.key_allowed = true;
        }
        Ok(scalar(text, true, at))
    }

    fn ends_plain(&self) -> bool {
        match self.input.byte(0) {
            b':' => self.input.is_space_or_end(1),
            b',' | b'?' | b'[' | b']' | b'{' | b'}' => self.in_flow(),
            _ => false,
        }
    }

    fn plain_gap(&mut self, gap: &mut Gap, indent: isize, at: YamlMark) -> Result<(), YamlError> {
        while self.input.is_blank(0) || self.input.is_break(0) {
            let column = isize::try_from(self.input.mark.column).unwrap_or(isize::MAX);
            if gap.has_break && column < indent && self.input.byte(0) == b'\t' {
                return Err(at.error("a tab is not allowed as indentation"));
            }
            self.gap_step(gap);
        }
        Ok(())
    }

    /// Consumes one blank or line break of a gap.
    fn gap_step(&mut self, gap: &mut Gap) {
        if self.input.is_blank(0) {
            if gap.has_break {
                self.input.skip();
            } else {
                self.input.take(&mut gap.blanks);
            }
        } else if gap.has_break {
            self.input.take_line(&mut gap.more_breaks);
        } else {
            gap.blanks.clear();
            self.input.take_line(&mut gap.first_break);
            gap.has_break = true;
        }
    }

    pub(super) fn scan_quoted(&mut self, single: bool) -> Result<YamlToken, YamlError> {
        let at = self.input.mark;
        let quote = if single { b'\'' } else { b'"' };
        self.input.skip();
        let mut text = String::new();
        loop {
            if self.input.is_document_indicator() {
                return Err(at.error("the quoted text does not end before the document does"));
            }
            if self.input.is_end() {
                return Err(at.error("the quoted text does not end"));
            }
            let mut gap = Gap::default();
            self.quoted_run(single, quote, &mut text, &mut gap, at)?;
            if self.input.byte(0) == quote {
                break;
            }
            while self.input.is_blank(0) || self.input.is_break(0) {
                self.gap_step(&mut gap);
            }
            gap.fold_into(&mut text);
        }
        self.input.skip();
        Ok(scalar(text, false, at))
    }

    /// Scans everything up to the next white space or the closing quote.
    fn quoted_run(
        &mut self,
        single: bool,
        quote: u8,
        text: &mut String,
        gap: &mut Gap,
        at: YamlMark,
    ) -> Result<(), YamlError> {
        while !self.input.is_space_or_end(0) {
            let byte = self.input.byte(0);
            if single && byte == quote && self.input.byte(1) == quote {
                text.push('\'');
                self.input.skip();
                self.input.skip();
            } else if byte == quote {
                return Ok(());
            } else if !single && byte == b'\\' && self.input.is_break(1) {
                self.input.skip();
                self.input.skip_line();
                gap.has_break = true;
                return Ok(());
            } else if !single && byte == b'\\' {
                self.escape(text, at)?;
            } else {
                self.input.take(text);
            }
        }
        Ok(())
    }

    fn escape(&mut self, text: &mut String, at: YamlMark) -> Result<(), YamlError> {
        let digits = match self.input.byte(1) {
            b'x' => 2,
            b'u' => 4,
            b'U' => 8,
            other => {
                let c = short_escape(other)
                    .ok_or_else(|| self.input.mark.error("unknown escape after the backslash"))?;
                text.push(c);
                0
            }
        };
        self.input.skip();
        self.input.skip();
        if digits == 0 {
            return Ok(());
        }
        let mut code: u64 = 0;
        for _ in 0..digits {
            let digit = char::from(self.input.byte(0))
                .to_digit(16)
                .ok_or_else(|| at.error("expected a hexadecimal number after the backslash"))?;
            code = code * 16 + u64::from(digit);
            self.input.skip();
        }
        let c = u32::try_from(code)
            .ok()
            .and_then(char::from_u32)
            .ok_or_else(|| at.error("the escape is not a Unicode character"))?;
        text.push(c);
        Ok(())
    }

    pub(super) fn scan_block_scalar(&mut self, literal: bool) -> Result<YamlToken, YamlError> {
        let at = self.input.mark;
        let (chomping, increment) = self.block_header(at)?;
        let mut indent = match increment {
            0 => 0,
            increment => self.outer_indent() + increment,
        };
        let mut text = String::new();
        let (mut line_break, mut blank_lines) = (String::new(), String::new());
        let mut after_indented_line = false;
        self.blank_lines(&mut indent, &mut blank_lines, at)?;
        while self.input.mark.column == indent && !self.input.is_end() {
            let indented = self.input.is_blank(0);
            let folds = !literal && !after_indented_line && !indented && line_break.starts_with('\n');
            if !folds {
                text.push_str(&line_break);
            } else if blank_lines.is_empty() {
                text.push(' ');
            }
            text.push_str(&blank_lines);
            line_break.clear();
            blank_lines.clear();
            after_indented_line = indented;
            while !self.input.is_break_or_end(0) {
                self.input.take(&mut text);
            }
            self.input.take_line(&mut line_break);
            self.blank_lines(&mut indent, &mut blank_lines, at)?;
        }
        if chomping != Chomping::Strip {
            text.push_str(&line_break);
        }
        if chomping == Chomping::Keep {
            text.push_str(&blank_lines);
        }
        Ok(scalar(text, false, at))
    }

    fn outer_indent(&self) -> usize {
        usize::try_from(self.indent).unwrap_or(0)
    }

    /// Scans the header of a block scalar: `|2-  # comment`.
    fn block_header(&mut self, at: YamlMark) -> Result<(Chomping, usize), YamlError> {
        self.input.skip();
        let mut chomping = self.chomping();
        let mut increment = 0;
        let digit = self.input.byte(0);
        if digit == b'0' {
            return Err(at.error("the indentation of a block scalar cannot be 0"));
        }
        if digit.is_ascii_digit() {
            increment = usize::from(digit - b'0');
            self.input.skip();
            chomping = chomping.or_else(|| self.chomping());
        }
        self.input.skip_blanks();
        self.input.skip_comment();
        if !self.input.is_break_or_end(0) {
            return Err(at.error("expected a comment or a line break after '|' or '>'"));
        }
        self.input.skip_line();
        Ok((chomping.unwrap_or(Chomping::Clip), increment))
    }

    fn chomping(&mut self) -> Option<Chomping> {
        let chomping = match self.input.byte(0) {
            b'+' => Chomping::Keep,
            b'-' => Chomping::Strip,
            _ => return None,
        };
        self.input.skip();
        Some(chomping)
    }

    /// Consumes empty lines and the indentation of the next line. An indentation of 0 means not yet determined; it is
    /// set to that of the deepest of these lines.
    fn blank_lines(
        &mut self,
        indent: &mut usize,
        breaks: &mut String,
        at: YamlMark,
    ) -> Result<(), YamlError> {
        let mut deepest = 0;
        loop {
            let inside = |column: usize| *indent == 0 || column < *indent;
            while inside(self.input.mark.column) && self.input.byte(0) == b' ' {
                self.input.skip();
            }
            deepest = deepest.max(self.input.mark.column);
            if inside(self.input.mark.column) && self.input.byte(0) == b'\t' {
                return Err(at.error("a tab is not allowed as indentation of a block scalar"));
            }
            if !self.input.is_break(0) {
                break;
            }
            self.input.take_line(breaks);
        }
        if *indent == 0 {
            let least = usize::try_from(self.indent + 1).unwrap_or(0).max(1);
            *indent = deepest.max(least);
        }
        Ok(())
    }
}

fn scalar(text: String, plain: bool, at: YamlMark) -> YamlToken {
    YamlToken {
        kind: TokenKind::Scalar { text, plain },
        at,
    }
}

fn short_escape(byte: u8) -> Option<char> {
    Some(match byte {
        b'0' => '\0',
        b'a' => '\u{07}',
        b'b' => '\u{08}',
        b't' | b'\t' => '\t',
        b'n' => '\n',
        b'v' => '\u{0b}',
        b'f' => '\u{0c}',
        b'r' => '\r',
        b'e' => '\u{1b}',
        b' ' => ' ',
        b'"' => '"',
        b'\'' => '\'',
        b'\\' => '\\',
        b'N' => '\u{85}',
        b'_' => '\u{a0}',
        b'L' => '\u{2028}',
        b'P' => '\u{2029}',
        _ => return None,
    })
}
