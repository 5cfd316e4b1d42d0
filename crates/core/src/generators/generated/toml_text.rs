//! TOML text in the layout of the Go encoder of other implementations: two spaces of indentation per table level, an
//! empty line before a top-level table and before every element of an array of tables.
//!
//! A general TOML writer would produce equivalent text with other bytes, and other bytes mean another rendered
//! config.

use std::fmt::Write as _;

/// A TOML document builder. Callers add keys in the order of the Go struct, plain values before tables.
#[derive(Debug, Default)]
pub(crate) struct TomlText {
    text: String,
    depth: usize,
}

impl TomlText {
    pub fn finish(self) -> String {
        self.text
    }

    pub fn string(&mut self, key: &str, value: &str) {
        self.entry(key, &quoted(value));
    }

    pub fn boolean(&mut self, key: &str, value: bool) {
        self.entry(key, if value { "true" } else { "false" });
    }

    pub fn integer(&mut self, key: &str, value: i128) {
        self.entry(key, &value.to_string());
    }

    pub fn strings<S: AsRef<str>>(&mut self, key: &str, values: &[S]) {
        let values: Vec<String> = values.iter().map(|value| quoted(value.as_ref())).collect();
        self.entry(key, &format!("[{}]", values.join(", ")));
    }

    /// Starts a table; its entries follow, indented by the table's depth.
    pub fn table(&mut self, path: &[&str]) {
        if path.len() == 1 {
            self.blank_line();
        }
        self.header(path, "[", "]");
    }

    /// Starts one element of an array of tables.
    pub fn element(&mut self, path: &[&str]) {
        self.blank_line();
        self.header(path, "[[", "]]");
    }

    fn header(&mut self, path: &[&str], open: &str, close: &str) {
        let name: Vec<String> = path.iter().map(|part| key(part)).collect();
        let indent = "  ".repeat(path.len().saturating_sub(1));
        let _ = writeln!(self.text, "{indent}{open}{}{close}", name.join("."));
        self.depth = path.len();
    }

    fn entry(&mut self, name: &str, value: &str) {
        let indent = "  ".repeat(self.depth);
        let _ = writeln!(self.text, "{indent}{} = {value}", key(name));
    }

    fn blank_line(&mut self) {
        if !self.text.is_empty() {
            self.text.push('\n');
        }
    }
}

fn key(name: &str) -> String {
    let bare = !name.is_empty()
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-');
    if bare { name.to_owned() } else { quoted(name) }
}

fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for character in text.chars() {
        match character {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\t' => quoted.push_str("\\t"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\u{8}' => quoted.push_str("\\b"),
            '\u{c}' => quoted.push_str("\\f"),
            '\0'..='\u{1f}' | '\u{7f}' => {
                let _ = write!(quoted, "\\u{:04x}", u32::from(character));
            }
            other => quoted.push(other),
        }
    }
    quoted.push('"');
    quoted
}
