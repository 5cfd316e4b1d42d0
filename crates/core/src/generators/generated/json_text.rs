//! JSON text in the bytes of Go's `encoding/json`: indented by two spaces, `<`, `>`, `&` and the two Unicode line
//! separators escaped.
//!
//! Callers choose the order of keys: Go writes the fields of a structure in the order of its declaration and the keys
//! of a map sorted.

use std::io;

use serde::Serialize;
use serde_json::ser::{Formatter, PrettyFormatter};

/// Returns the text that `json.MarshalIndent(value, "", "  ")` writes.
pub(crate) fn indented(value: &impl Serialize) -> String {
    let mut text = Vec::new();
    let mut serializer = serde_json::Serializer::with_formatter(&mut text, GoEscapes(PrettyFormatter::new()));
    let _ = value.serialize(&mut serializer);
    String::from_utf8(text).unwrap_or_default()
}

/// Adds Go's escapes to the layout of another formatter.
#[derive(Debug)]
pub struct GoEscapes<F>(pub F);

macro_rules! delegate {
    ($($method:ident($($argument:ident: $ty:ty),*);)*) => {
        $(
            fn $method<W: ?Sized + io::Write>(&mut self, writer: &mut W $(, $argument: $ty)*) -> io::Result<()> {
                self.0.$method(writer $(, $argument)*)
            }
        )*
    };
}

impl<F: Formatter> Formatter for GoEscapes<F> {
    delegate! {
        begin_array();
        end_array();
        begin_array_value(first: bool);
        end_array_value();
        begin_object();
        end_object();
        begin_object_key(first: bool);
        end_object_key();
        begin_object_value();
        end_object_value();
    }

    fn write_string_fragment<W: ?Sized + io::Write>(&mut self, writer: &mut W, text: &str) -> io::Result<()> {
        let mut rest = text;
        while let Some(at) = rest.find(['<', '>', '&', '\u{2028}', '\u{2029}']) {
            let (plain, tail) = rest.split_at(at);
            writer.write_all(plain.as_bytes())?;
            let mut characters = tail.chars();
            if let Some(special) = characters.next() {
                write!(writer, "\\u{:04x}", u32::from(special))?;
            }
            rest = characters.as_str();
        }
        writer.write_all(rest.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn ampersands_and_angle_brackets_are_escaped_as_go_does() {
        assert_eq!(
            indented(&json!({"a<b": ["x&y", ">\u{2028}\u{2029}é\t"]})),
            "{\n  \"a\\u003cb\": [\n    \"x\\u0026y\",\n    \"\\u003e\\u2028\\u2029é\\t\"\n  ]\n}"
        );
    }
}
