//! YAML emitter: columns, indentation and line folds.

use serde_json::Value;

use super::keys;
use super::number;
use super::scalar::{self, ScalarPosition, Style};
use super::sorting;

/// Lines beyond this width are folded at the next single space.
const BEST_WIDTH: usize = 80;
const INDENT: usize = 2;
/// Longer keys are written in the explicit `? key` form.
const LONGEST_SIMPLE_KEY: usize = 128;

#[derive(Debug)]
pub(super) struct Emitter {
    out: String,
    /// Number of characters, not bytes, since the last line break.
    column: usize,
    /// Whether the last character written was white space or an indicator that counts as such.
    whitespace: bool,
    /// Whether only indentation (and `-`, `?`) has been written on this line.
    indention: bool,
}

/// Whether a collection continues the line of the indicator before it (`- a: 1`) or the key before it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Parent {
    Root,
    Sequence,
    Mapping,
}

impl Emitter {
    pub(super) fn new() -> Self {
        Self {
            out: String::new(),
            column: 0,
            whitespace: true,
            indention: true,
        }
    }

    pub(super) fn document(mut self, value: &Value) -> String {
        self.node(value, None, Parent::Root);
        if self.column > 0 {
            self.line_break();
        }
        self.out
    }

    fn node(&mut self, value: &Value, indent: Option<usize>, parent: Parent) {
        match value {
            Value::Null => self.plain_word("null"),
            Value::Bool(b) => self.plain_word(if *b { "true" } else { "false" }),
            Value::Number(n) => self.plain_word(&number::text(n)),
            Value::String(s) => self.string(s, indent, ScalarPosition::Value),
            Value::Array(items) if items.is_empty() => self.plain_word("[]"),
            Value::Array(items) => self.sequence(items, indent, parent),
            Value::Object(map) if map.is_empty() => self.plain_word("{}"),
            Value::Object(map) => self.mapping(map, indent),
        }
    }

    fn sequence(&mut self, items: &[Value], indent: Option<usize>, parent: Parent) {
        // A list under a key stays at the key's own column; a list in a list is indented.
        let own = match indent {
            None => 0,
            Some(outer) if parent == Parent::Mapping && !self.indention => outer,
            Some(outer) => outer + INDENT,
        };
        for item in items {
            self.start_line(own);
            self.indicator("-", true, false, true);
            self.node(item, Some(own), Parent::Sequence);
        }
    }

    fn mapping(&mut self, map: &serde_json::Map<String, Value>, indent: Option<usize>) {
        let own = indent.map_or(0, |outer| outer + INDENT);
        let mut entries: Vec<(&String, &Value)> = map.iter().collect();
        sorting::sort(&mut entries, |a, b| keys::less(a.0, b.0));
        for (key, value) in entries {
            self.start_line(own);
            if key.len() > LONGEST_SIMPLE_KEY || scalar::is_multiline(key) {
                self.indicator("?", true, false, true);
                self.string(key, Some(own), ScalarPosition::Value);
                self.start_line(own);
                self.indicator(":", true, false, true);
            } else {
                self.string(key, Some(own), ScalarPosition::Key);
                self.indicator(":", false, false, false);
            }
            self.node(value, Some(own), Parent::Mapping);
        }
    }

    fn plain_word(&mut self, word: &str) {
        self.separate();
        self.text(word);
    }

    fn string(&mut self, text: &str, indent: Option<usize>, place: ScalarPosition) {
        let continuation = indent.map_or(INDENT, |outer| outer + INDENT);
        match scalar::style(text, place) {
            Style::Plain => self.plain(text, continuation, place),
            Style::SingleQuoted => self.single_quoted(text, continuation, place),
            Style::DoubleQuoted => self.double_quoted(text, continuation, place),
            Style::Literal => self.literal(text, continuation),
        }
    }

    fn plain(&mut self, text: &str, indent: usize, place: ScalarPosition) {
        self.separate();
        let mut spaces = false;
        let mut chars = text.chars().peekable();
        while let Some(c) = chars.next() {
            if c == ' ' {
                self.space_or_fold(
                    indent,
                    place == ScalarPosition::Value && !spaces && chars.peek() != Some(&' '),
                );
                spaces = true;
            } else {
                self.put(c);
                self.indention = false;
                spaces = false;
            }
        }
        self.whitespace = false;
        self.indention = false;
    }

    fn single_quoted(&mut self, text: &str, indent: usize, place: ScalarPosition) {
        self.indicator("'", true, false, false);
        let (mut spaces, mut breaks) = (false, false);
        let mut first = true;
        let mut chars = text.chars().peekable();
        while let Some(c) = chars.next() {
            if c == ' ' {
                let inner = !first && chars.peek().is_some_and(|next| *next != ' ');
                self.space_or_fold(indent, place == ScalarPosition::Value && !spaces && inner);
                spaces = true;
            } else if scalar::is_break(c) {
                self.put_break(c);
                self.indention = true;
                breaks = true;
            } else {
                if breaks {
                    self.start_line(indent);
                }
                if c == '\'' {
                    self.put('\'');
                }
                self.put(c);
                self.indention = false;
                (spaces, breaks) = (false, false);
            }
            first = false;
        }
        self.indicator("'", false, false, false);
    }

    fn double_quoted(&mut self, text: &str, indent: usize, place: ScalarPosition) {
        self.indicator("\"", true, false, false);
        let mut spaces = false;
        let mut first = true;
        let mut chars = text.chars().peekable();
        while let Some(c) = chars.next() {
            if !scalar::is_printable(c) || scalar::is_break(c) || matches!(c, '"' | '\\') {
                self.escape(c);
                spaces = false;
            } else if c == ' ' {
                let fold = place == ScalarPosition::Value
                    && !spaces
                    && self.column > BEST_WIDTH
                    && !first
                    && chars.peek().is_some();
                if fold {
                    self.start_line(indent);
                    if chars.peek() == Some(&' ') {
                        self.put('\\');
                    }
                } else {
                    self.put(' ');
                }
                spaces = true;
            } else {
                self.put(c);
                spaces = false;
            }
            first = false;
        }
        self.indicator("\"", false, false, false);
    }

    fn literal(&mut self, text: &str, indent: usize) {
        self.indicator("|", true, false, false);
        if text.starts_with(|c| c == ' ' || scalar::is_break(c)) {
            self.text("2");
        }
        let mut from_end = text.chars().rev();
        match (from_end.next().is_some_and(scalar::is_break), from_end.next()) {
            (false, _) => self.text("-"),
            (true, None) => self.text("+"),
            (true, Some(previous)) if scalar::is_break(previous) => self.text("+"),
            (true, Some(_)) => {}
        }
        self.line_break();
        self.indention = true;
        self.whitespace = true;
        let mut at_line_start = true;
        for c in text.chars() {
            if scalar::is_break(c) {
                self.put_break(c);
                self.indention = true;
                at_line_start = true;
            } else {
                if at_line_start {
                    self.start_line(indent);
                }
                self.put(c);
                self.indention = false;
                at_line_start = false;
            }
        }
    }

    fn space_or_fold(&mut self, indent: usize, may_fold: bool) {
        if may_fold && self.column > BEST_WIDTH {
            self.start_line(indent);
        } else {
            self.put(' ');
        }
    }

    fn escape(&mut self, c: char) {
        self.put('\\');
        let short = match c {
            '\0' => '0',
            '\u{07}' => 'a',
            '\u{08}' => 'b',
            '\t' => 't',
            '\n' => 'n',
            '\u{0b}' => 'v',
            '\u{0c}' => 'f',
            '\r' => 'r',
            '\u{1b}' => 'e',
            '"' => '"',
            '\\' => '\\',
            '\u{85}' => 'N',
            '\u{2028}' => 'L',
            '\u{2029}' => 'P',
            other => {
                let code = u32::from(other);
                let hex = match code {
                    0..=0xff => format!("x{code:02X}"),
                    0x100..=0xffff => format!("u{code:04X}"),
                    _ => format!("U{code:08X}"),
                };
                self.text(&hex);
                return;
            }
        };
        self.put(short);
    }

    fn indicator(&mut self, indicator: &str, needs_space: bool, is_space: bool, keeps_indention: bool) {
        if needs_space {
            self.separate();
        }
        let indention = self.indention && keeps_indention;
        self.text(indicator);
        self.whitespace = is_space;
        self.indention = indention;
    }

    fn separate(&mut self) {
        if !self.whitespace {
            self.put(' ');
        }
    }

    fn start_line(&mut self, indent: usize) {
        if !self.indention || self.column > indent || (self.column == indent && !self.whitespace) {
            self.line_break();
        }
        while self.column < indent {
            self.put(' ');
        }
        self.whitespace = true;
        self.indention = true;
    }

    fn put_break(&mut self, c: char) {
        if c == '\n' {
            self.line_break();
        } else {
            self.out.push(c);
            self.column = 0;
        }
    }

    fn line_break(&mut self) {
        self.out.push('\n');
        self.column = 0;
    }

    fn text(&mut self, text: &str) {
        for c in text.chars() {
            self.put(c);
        }
        self.whitespace = false;
        self.indention = false;
    }

    fn put(&mut self, c: char) {
        self.out.push(c);
        self.column += 1;
    }
}
