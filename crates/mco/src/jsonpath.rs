//! Templates of `-o jsonpath=`: text with `{...}` actions, as kubectl has them.

use mco_apiserver::table::JsonPath;
use serde_json::Value;

/// A parsed template.
#[derive(Debug, Clone, PartialEq)]
pub struct JsonPathTemplate {
    parts: Vec<Part>,
}

#[derive(Debug, Clone, PartialEq)]
enum Part {
    Text(String),
    /// The values of a path, separated by spaces.
    Values(JsonPath),
    /// The parts between `{range PATH}` and `{end}`, once for each value.
    Range(JsonPath, Vec<Part>),
}

impl JsonPathTemplate {
    /// Parses a template. One without braces is a path, as `kubectl get -o jsonpath=.metadata.name` accepts it.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.contains('{') {
            let mut rest = text;
            let parts = parts(&mut rest, false)?;
            return Ok(Self { parts });
        }
        let bare = if text.starts_with(['.', '[', '$', '@']) {
            text.to_owned()
        } else {
            format!(".{text}")
        };
        Ok(Self {
            parts: vec![Part::Values(path(&bare)?)],
        })
    }

    /// Fills in a value. A path that leads nowhere is empty.
    pub fn fill(&self, value: &Value) -> String {
        let mut text = String::new();
        fill(&self.parts, value, &mut text);
        text
    }
}

fn fill(parts: &[Part], value: &Value, text: &mut String) {
    for part in parts {
        match part {
            Part::Text(literal) => text.push_str(literal),
            Part::Values(path) => {
                let found = path.find(value).unwrap_or_default();
                let shown: Vec<String> = found.into_iter().map(shown).collect();
                text.push_str(&shown.join(" "));
            }
            Part::Range(path, inner) => {
                for item in path.find(value).unwrap_or_default() {
                    fill(inner, item, text);
                }
            }
        }
    }
}

fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

/// Parses up to the end, or up to `{end}`.
fn parts(rest: &mut &str, in_range: bool) -> Result<Vec<Part>, String> {
    let mut parts = Vec::new();
    while !rest.is_empty() {
        let Some(open) = rest.find('{') else {
            parts.push(Part::Text(std::mem::take(rest).to_owned()));
            break;
        };
        if open > 0 {
            parts.push(Part::Text(rest[..open].to_owned()));
        }
        let close = closing(&rest[open..]).ok_or("jsonpath: a { is not closed with }")? + open;
        let action = rest[open + 1..close].trim();
        *rest = &rest[close + 1..];
        if action == "end" {
            return if in_range {
                Ok(parts)
            } else {
                Err("jsonpath: {end} without {range}".to_owned())
            };
        }
        if let Some(over) = action.strip_prefix("range ") {
            let over = path(over.trim())?;
            parts.push(Part::Range(over, self::parts(rest, true)?));
        } else {
            for word in words(action) {
                parts.push(match literal(word) {
                    Some(text) => Part::Text(text),
                    None => Part::Values(path(word)?),
                });
            }
        }
    }
    if in_range {
        Err("jsonpath: {range} without {end}".to_owned())
    } else {
        Ok(parts)
    }
}

fn path(text: &str) -> Result<JsonPath, String> {
    // `{@}` is the current value.
    let text = text.strip_prefix('@').unwrap_or(text);
    JsonPath::parse(text).map_err(|error| format!("jsonpath: {text}: {error}"))
}

/// Returns the position of the brace that closes the first one.
fn closing(text: &str) -> Option<usize> {
    let mut quote = None;
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        match (quote, c) {
            _ if escaped => escaped = false,
            (Some(_), '\\') => escaped = true,
            (Some(open), _) if c == open => quote = None,
            (None, '"' | '\'') => quote = Some(c),
            (None, '}') => return Some(at),
            (Some(_) | None, _) => {}
        }
    }
    None
}

/// Splits an action at spaces outside quotes and brackets.
fn words(action: &str) -> Vec<&str> {
    let mut words = Vec::new();
    let (mut start, mut depth, mut quote) = (0, 0_usize, None);
    for (at, c) in action.char_indices() {
        match (quote, c) {
            (Some(open), _) if c == open => quote = None,
            (None, '"' | '\'') => quote = Some(c),
            (None, '[' | '(') => depth += 1,
            (None, ']' | ')') => depth = depth.saturating_sub(1),
            (None, ' ') if depth == 0 => {
                words.push(&action[start..at]);
                start = at + 1;
            }
            (Some(_) | None, _) => {}
        }
    }
    words.push(&action[start..]);
    words.retain(|word| !word.is_empty());
    words
}

/// Returns the text of a quoted word.
fn literal(word: &str) -> Option<String> {
    let quote = word.chars().next().filter(|c| matches!(c, '"' | '\''))?;
    let inner = word.strip_prefix(quote)?.strip_suffix(quote)?;
    let mut text = String::new();
    let mut chars = inner.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some('n') => text.push('\n'),
                Some('t') => text.push('\t'),
                Some('r') => text.push('\r'),
                Some(other) => text.push(other),
                None => text.push('\\'),
            },
            c => text.push(c),
        }
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn templates_print_what_kubectl_prints() {
        let value = json!([
            {"name": "master", "updated": 1, "nodes": [{"name": "m0"}]},
            {"name": "worker", "updated": 3, "nodes": [{"name": "w0"}, {"name": "w1"}]},
        ]);
        for (template, expected) in [
            ("{[*].name}", "master worker"),
            ("{[0].name}{\"\\n\"}", "master\n"),
            ("[0].updated", "1"),
            (
                "first: {[0].name}, last: {[-1].name}",
                "first: master, last: worker",
            ),
            (
                "{range [*]}{.name}={.updated}{\"\\n\"}{end}",
                "master=1\nworker=3\n",
            ),
            ("{range [*]}{range .nodes[*]}{@.name} {end}{end}", "m0 w0 w1 "),
            ("{[?(@.name==\"worker\")].updated}", "3"),
            ("{[0].missing}", ""),
            (
                "{[0].name} {[1].nodes}",
                "master [{\"name\":\"w0\"},{\"name\":\"w1\"}]",
            ),
            ("{'}'}", "}"),
            ("{[0].name \"/\" [0].updated}", "master/1"),
        ] {
            let parsed =
                JsonPathTemplate::parse(template).unwrap_or_else(|error| panic!("{template}: {error}"));
            assert_eq!(parsed.fill(&value), expected, "{template}");
        }
        assert_eq!(
            JsonPathTemplate::parse("spec.paused")
                .unwrap()
                .fill(&json!({"spec": {"paused": true}})),
            "true"
        );
    }

    #[test]
    fn a_template_that_does_not_end_is_refused() {
        for template in ["{.a", "{range .a}{.b}", "{.a}{end}", "{.a[}", "{.a[x]}"] {
            assert!(JsonPathTemplate::parse(template).is_err(), "{template}");
        }
    }
}
