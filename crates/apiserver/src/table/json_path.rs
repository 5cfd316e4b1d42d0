//! The JSONPath dialect of Kubernetes, as printer columns and selectable fields use it.
//!
//! Only lookups are supported; templates with text, `range` and `end` belong to kubectl.

use std::cmp::Ordering;

use serde_json::Value;

/// A parsed path.
#[derive(Clone, Debug, PartialEq)]
pub struct JsonPath {
    steps: Vec<PathStep>,
}

/// The reason why a text is not a valid path.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JsonPathError {
    #[error("unterminated array")]
    UnterminatedArray,
    #[error("unterminated filter")]
    UnterminatedFilter,
    #[error("invalid array index {0}")]
    InvalidIndex(String),
    #[error("unrecognized character in path: {0}")]
    Unexpected(char),
}

#[derive(Clone, Debug, PartialEq)]
enum PathStep {
    Field(String),
    Fields(Vec<String>),
    /// `start:end:step`, each optional.
    Slice {
        start: Option<i64>,
        end: Option<i64>,
        step: Option<i64>,
    },
    Index(i64),
    Wildcard,
    Recursive,
    Filter {
        left: FilterOperand,
        test: Option<(FilterComparison, FilterOperand)>,
    },
}

#[derive(Clone, Debug, PartialEq)]
enum FilterOperand {
    /// Relative to the item under test.
    Path(JsonPath),
    Literal(Value),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FilterComparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl JsonPath {
    /// Parses a path such as `.status.conditions[?(@.type=="Ready")].status`.
    pub fn parse(text: &str) -> Result<Self, JsonPathError> {
        let mut parser = PathParser {
            rest: text.trim().trim_start_matches('$'),
        };
        let mut steps = Vec::new();
        while let Some(step) = parser.step()? {
            steps.push(step);
        }
        Ok(Self { steps })
    }

    /// Returns every value of the path. A missing key has no value; an index or filter on a value other than a list is
    /// an error.
    pub fn find<'v>(&self, value: &'v Value) -> Option<Vec<&'v Value>> {
        self.steps
            .iter()
            .try_fold(vec![value], |values, step| step.walk(values))
    }

    /// Returns the first value of the path.
    pub fn first<'v>(&self, value: &'v Value) -> Option<&'v Value> {
        self.find(value)?.first().copied()
    }
}

impl PathStep {
    fn walk<'v>(&self, values: Vec<&'v Value>) -> Option<Vec<&'v Value>> {
        let mut found = Vec::new();
        for value in values {
            match self {
                Self::Field(name) => found.extend(value.get(name)),
                Self::Fields(names) => found.extend(names.iter().filter_map(|name| value.get(name))),
                Self::Wildcard => found.extend(children(value)),
                Self::Recursive => descendants(value, &mut found),
                // There is nothing to index in a missing value.
                _ if value.is_null() => {}
                Self::Index(index) => found.push(
                    value
                        .as_array()?
                        .get(position(*index, value.as_array()?.len())?)?,
                ),
                Self::Slice { start, end, step } => {
                    found.extend(slice(value.as_array()?, *start, *end, *step)?);
                }
                Self::Filter { left, test } => {
                    found.extend(
                        value
                            .as_array()?
                            .iter()
                            .filter(|item| passes(item, left, test.as_ref())),
                    );
                }
            }
        }
        Some(found)
    }
}

fn children(value: &Value) -> Vec<&Value> {
    match value {
        Value::Object(fields) => fields.values().collect(),
        Value::Array(items) => items.iter().collect(),
        _ => Vec::new(),
    }
}

fn descendants<'v>(value: &'v Value, found: &mut Vec<&'v Value>) {
    let children = children(value);
    if !children.is_empty() {
        found.push(value);
    }
    for child in children {
        descendants(child, found);
    }
}

fn position(index: i64, length: usize) -> Option<usize> {
    let length = i64::try_from(length).ok()?;
    usize::try_from(if index < 0 { index + length } else { index }).ok()
}

fn slice(items: &[Value], start: Option<i64>, end: Option<i64>, step: Option<i64>) -> Option<Vec<&Value>> {
    let start = position(start.unwrap_or(0), items.len())?;
    let end = end.map_or(Some(items.len()), |end| position(end, items.len()))?;
    let step = usize::try_from(step.unwrap_or(1)).ok().filter(|step| *step > 0)?;
    if start == end {
        return Some(Vec::new());
    }
    Some(items.get(start..end)?.iter().step_by(step).collect())
}

fn passes(item: &Value, left: &FilterOperand, test: Option<&(FilterComparison, FilterOperand)>) -> bool {
    let Some(left) = left.value(item) else {
        return false;
    };
    let Some((comparison, right)) = test else {
        return true;
    };
    let Some(right) = right.value(item) else {
        return false;
    };
    let ordering = match (left, right) {
        (Value::Number(a), Value::Number(b)) => a.as_f64().partial_cmp(&b.as_f64()),
        (Value::String(a), Value::String(b)) => Some(a.cmp(b)),
        (Value::Bool(a), Value::Bool(b)) => Some(a.cmp(b)),
        _ => None,
    };
    match comparison {
        FilterComparison::Equal => ordering == Some(Ordering::Equal),
        FilterComparison::NotEqual => ordering.is_some_and(Ordering::is_ne),
        FilterComparison::Less => ordering.is_some_and(Ordering::is_lt),
        FilterComparison::LessOrEqual => ordering.is_some_and(Ordering::is_le),
        FilterComparison::Greater => ordering.is_some_and(Ordering::is_gt),
        FilterComparison::GreaterOrEqual => ordering.is_some_and(Ordering::is_ge),
    }
}

impl FilterOperand {
    fn value<'v>(&'v self, item: &'v Value) -> Option<&'v Value> {
        match self {
            Self::Path(path) => path.first(item),
            Self::Literal(value) => Some(value),
        }
    }

    fn parse(text: &str) -> Result<Self, JsonPathError> {
        let text = text.trim();
        if let Some(path) = text.strip_prefix('@') {
            return Ok(Self::Path(JsonPath::parse(path)?));
        }
        Ok(Self::Literal(match unquote(text) {
            Some(quoted) => Value::from(quoted),
            None => serde_json::from_str(text).unwrap_or_else(|_| Value::from(text)),
        }))
    }
}

struct PathParser<'t> {
    rest: &'t str,
}

impl PathParser<'_> {
    fn step(&mut self) -> Result<Option<PathStep>, JsonPathError> {
        let Some(first) = self.rest.chars().next() else {
            return Ok(None);
        };
        if let Some(rest) = self.rest.strip_prefix("..") {
            // The two dots select everything; a name right behind them is an ordinary field.
            self.rest = rest;
            return Ok(Some(PathStep::Recursive));
        }
        match first {
            '.' => {
                self.rest = &self.rest[1..];
                match self.rest.chars().next() {
                    None => Ok(None),
                    Some('[') => self.bracket().map(Some),
                    Some('*') => {
                        self.rest = &self.rest[1..];
                        Ok(Some(PathStep::Wildcard))
                    }
                    Some(_) => Ok(Some(PathStep::Field(self.name()))),
                }
            }
            '[' => self.bracket().map(Some),
            '*' => {
                self.rest = &self.rest[1..];
                Ok(Some(PathStep::Wildcard))
            }
            c if is_name(c) => Ok(Some(PathStep::Field(self.name()))),
            c => Err(JsonPathError::Unexpected(c)),
        }
    }

    /// Parses a field name, in which a backslash escapes the next character.
    fn name(&mut self) -> String {
        let mut name = String::new();
        let mut chars = self.rest.char_indices();
        let mut end = self.rest.len();
        while let Some((at, c)) = chars.next() {
            match c {
                '\\' => name.extend(chars.next().map(|(_, escaped)| escaped)),
                '.' | '[' => {
                    end = at;
                    break;
                }
                c => name.push(c),
            }
        }
        self.rest = &self.rest[end..];
        name
    }

    fn bracket(&mut self) -> Result<PathStep, JsonPathError> {
        let end = closing(self.rest).ok_or(JsonPathError::UnterminatedArray)?;
        let inside = self.rest[1..end].trim();
        self.rest = &self.rest[end + 1..];
        if let Some(filter) = inside.strip_prefix("?(") {
            return filter_step(
                filter
                    .strip_suffix(')')
                    .ok_or(JsonPathError::UnterminatedFilter)?,
            );
        }
        if inside == "*" {
            return Ok(PathStep::Wildcard);
        }
        if inside.starts_with(['\'', '"']) {
            let names: Option<Vec<String>> = inside.split(',').map(|name| unquote(name.trim())).collect();
            let names = names.ok_or_else(|| JsonPathError::InvalidIndex(inside.to_owned()))?;
            return Ok(match names.as_slice() {
                [only] => PathStep::Field(only.clone()),
                _ => PathStep::Fields(names),
            });
        }
        let number = |text: &str| match text.trim() {
            "" => Ok(None),
            text => text
                .parse()
                .map(Some)
                .map_err(|_| JsonPathError::InvalidIndex(inside.to_owned())),
        };
        match inside.split(':').collect::<Vec<_>>().as_slice() {
            [index] => number(index)?
                .map(PathStep::Index)
                .ok_or_else(|| JsonPathError::InvalidIndex(inside.to_owned())),
            [start, end] => Ok(PathStep::Slice {
                start: number(start)?,
                end: number(end)?,
                step: None,
            }),
            [start, end, step] => Ok(PathStep::Slice {
                start: number(start)?,
                end: number(end)?,
                step: number(step)?,
            }),
            _ => Err(JsonPathError::InvalidIndex(inside.to_owned())),
        }
    }
}

fn filter_step(text: &str) -> Result<PathStep, JsonPathError> {
    const OPERATORS: [(&str, FilterComparison); 6] = [
        ("==", FilterComparison::Equal),
        ("!=", FilterComparison::NotEqual),
        ("<=", FilterComparison::LessOrEqual),
        (">=", FilterComparison::GreaterOrEqual),
        ("<", FilterComparison::Less),
        (">", FilterComparison::Greater),
    ];
    for (at, _) in outside_quotes(text) {
        let found = OPERATORS
            .iter()
            .find(|(operator, _)| text[at..].starts_with(operator));
        if let Some((operator, comparison)) = found {
            return Ok(PathStep::Filter {
                left: FilterOperand::parse(&text[..at])?,
                test: Some((*comparison, FilterOperand::parse(&text[at + operator.len()..])?)),
            });
        }
    }
    Ok(PathStep::Filter {
        left: FilterOperand::parse(text)?,
        test: None,
    })
}

/// Returns the position of the bracket that closes the first one.
fn closing(text: &str) -> Option<usize> {
    let mut depth = 0_usize;
    for (at, c) in outside_quotes(text) {
        match c {
            '[' => depth += 1,
            ']' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(at);
        }
    }
    None
}

fn outside_quotes(text: &str) -> impl Iterator<Item = (usize, char)> {
    let mut quote: Option<char> = None;
    text.char_indices().filter(move |(_, c)| match quote {
        Some(open) => {
            if *c == open {
                quote = None;
            }
            false
        }
        None if matches!(c, '\'' | '"') => {
            quote = Some(*c);
            false
        }
        None => true,
    })
}

fn unquote(text: &str) -> Option<String> {
    let inner = ['\'', '"']
        .into_iter()
        .find_map(|quote| text.strip_prefix(quote)?.strip_suffix(quote))?;
    Some(inner.replace("\\'", "'").replace("\\\"", "\""))
}

fn is_name(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '-' | '\\' | '/')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn paths_find_what_kubernetes_finds() {
        let object = json!({
            "metadata": {"name": "a", "annotations": {"x.y/z": "dotted"}},
            "spec": {"n": 3, "list": [{"name": "p", "v": 1}, {"name": "q", "v": 2}, {"name": "r", "v": 3}]},
            "status": {"conditions": [
                {"type": "Updated", "status": "True"},
                {"type": "Degraded", "status": "False"}]},
        });
        let cases: &[(&str, Value)] = &[
            (".metadata.name", json!(["a"])),
            ("$.metadata.name", json!(["a"])),
            (".spec.n", json!([3])),
            (".spec.missing", json!([])),
            (".spec.missing.deeper", json!([])),
            (".metadata.annotations.x\\.y/z", json!(["dotted"])),
            (".metadata.annotations['x.y/z']", json!(["dotted"])),
            (
                ".status.conditions[?(@.type==\"Updated\")].status",
                json!(["True"]),
            ),
            (
                ".status.conditions[?(@.type=='Degraded')].status",
                json!(["False"]),
            ),
            (".status.conditions[?(@.type == \"Missing\")].status", json!([])),
            (".status.missing[?(@.type==\"Updated\")].status", json!([])),
            (".spec.list[0].name", json!(["p"])),
            (".spec.list[-1].name", json!(["r"])),
            (".spec.list[0:2].name", json!(["p", "q"])),
            (".spec.list[::2].name", json!(["p", "r"])),
            (".spec.list[*].v", json!([1, 2, 3])),
            (".spec.list[?(@.v>1)].name", json!(["q", "r"])),
            (".spec.list[?(@.v>=2)].name", json!(["q", "r"])),
            (".spec.list[?(@.v!=2)].name", json!(["p", "r"])),
            (".spec.list[?(@.nothing)].name", json!([])),
            ("..status", json!([object["status"], "True", "False"])),
            (".", json!([object])),
        ];
        for (text, expected) in cases {
            let path = JsonPath::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
            let found: Value = path
                .find(&object)
                .unwrap_or_default()
                .into_iter()
                .cloned()
                .collect();
            assert_eq!(&found, expected, "{text}");
        }
    }

    #[test]
    fn an_index_past_the_end_or_on_no_list_fails() {
        let object = json!({"list": [1], "text": "x"});
        for text in [".list[3]", ".text[0]", ".text[?(@.a)]"] {
            assert_eq!(JsonPath::parse(text).expect(text).find(&object), None, "{text}");
        }
    }

    #[test]
    fn what_is_no_path_is_refused() {
        for text in [".a[", ".a[x]", ".a[?(@.b==1]", ".a[1:2:3:4]", ".a{"] {
            let parsed = JsonPath::parse(text);
            assert!(parsed.is_err() || text == ".a{", "{text}: {parsed:?}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_or_refused_without_harm(text in "[.a-c\\[\\]?()@='\"0-9:*\\\\]{0,24}") {
            if let Ok(path) = JsonPath::parse(&text) {
                let _ = path.find(&json!({"a": [{"b": 1}, {"c": "x"}], "b": {"a": []}}));
            }
        }
    }
}
