//! Parses the text of systemd units and drop-ins as Ignition does: enough to reject text that is not a unit.
//!
//! This is not systemd's own parser: it accepts unknown sections and options.

use std::iter::Peekable;
use std::str::Chars;

use thiserror::Error;

/// Ignition counts the preceding line break as part of a line, so all lines but the first have one byte less.
const MAX_LINE: usize = 2048;

/// What is wrong with the text. The text itself is not included, because units may contain secrets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(crate) enum UnitError {
    #[error("line too long (max 2048 bytes)")]
    LineTooLong,
    #[error("unable to find end of section")]
    SectionUnfinished,
    #[error("found garbage after section name")]
    SectionGarbage,
    #[error("unexpected newline encountered while parsing option name")]
    OptionWithoutValue,
    #[error("EOF")]
    OptionUnfinished,
}

/// The properties of a unit that the rules check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct UnitText {
    /// Whether there is any option in an `[Install]` section, so that enabling the unit has an effect.
    pub(crate) installs: bool,
}

pub(crate) fn parse(text: &str) -> Result<UnitText, UnitError> {
    check_line_lengths(text)?;
    let mut lexer = Lexer {
        rest: text.chars().peekable(),
    };
    let mut unit = UnitText::default();
    if !lexer.find_section() {
        return Ok(unit);
    }
    let mut section = lexer.section_name()?;
    while let Some(next) = lexer.next_significant() {
        if next == '[' {
            section = lexer.section_name()?;
        } else {
            lexer.option(next)?;
            unit.installs |= section == "Install";
        }
    }
    Ok(unit)
}

fn check_line_lengths(text: &str) -> Result<(), UnitError> {
    let too_long = |(index, line): (usize, &str)| line.len() + usize::from(index > 0) > MAX_LINE;
    if text.split('\n').enumerate().any(too_long) {
        Err(UnitError::LineTooLong)
    } else {
        Ok(())
    }
}

struct Lexer<'a> {
    rest: Peekable<Chars<'a>>,
}

impl Lexer<'_> {
    /// Skips everything up to the first section and consumes its bracket; returns whether there is one.
    fn find_section(&mut self) -> bool {
        while let Some(next) = self.rest.next() {
            match next {
                '[' => return true,
                '#' | ';' => self.skip_line(),
                _ => {}
            }
        }
        false
    }

    fn section_name(&mut self) -> Result<String, UnitError> {
        let mut name = String::new();
        loop {
            match self.rest.next() {
                None => return Err(UnitError::SectionUnfinished),
                Some(']') => break,
                Some(other) => name.push(other),
            }
        }
        for next in self.rest.by_ref() {
            match next {
                '\n' => break,
                space if space.is_whitespace() => {}
                _ => return Err(UnitError::SectionGarbage),
            }
        }
        Ok(name)
    }

    /// Returns the first character of the next section or option.
    fn next_significant(&mut self) -> Option<char> {
        while let Some(next) = self.rest.next() {
            match next {
                '#' | ';' => self.skip_line(),
                space if space.is_whitespace() => {}
                other => return Some(other),
            }
        }
        None
    }

    /// Parses an option whose first character has been read, with a value that may continue over several lines.
    fn option(&mut self, first: char) -> Result<(), UnitError> {
        let mut next = Some(first);
        loop {
            match next {
                None => return Err(UnitError::OptionUnfinished),
                Some('\n') => return Err(UnitError::OptionWithoutValue),
                Some('=') => break,
                Some(_) => next = self.rest.next(),
            }
        }
        self.skip_line();
        Ok(())
    }

    /// Skips the rest of a line, and the lines that a backslash at its end adds to it. Comments continue, too.
    fn skip_line(&mut self) {
        let mut previous = '\n';
        for character in self.rest.by_ref() {
            if character == '\n' && previous != '\\' {
                break;
            }
            previous = character;
        }
    }
}
