//! Kubernetes objects from YAML or JSON text, read as the Kubernetes tools read it (YAML 1.1: `0644` is 420,
//! `yes` is true), within fixed bounds of memory.

use std::fmt;

use serde::de::DeserializeOwned;
use serde_json::{Number, Value};
use serde_saphyr::{DuplicateKeyPolicy, NonFiniteFloatPolicy, Options, Spanned};
use thiserror::Error;

use crate::problem::Problem;

/// More text than this in one file is no manifest; a full export of a large cluster is well below it.
pub const LARGEST_FILE: usize = 64 << 20;

/// One object and where it was found.
#[derive(Debug, Clone, PartialEq)]
pub struct Manifest {
    pub origin: Origin,
    pub api_version: String,
    pub kind: String,
    pub name: String,
    pub value: Value,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    pub file: String,
    pub line: u64,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ManifestError {
    #[error("{file}: {size} bytes are too much for a manifest; the limit is {LARGEST_FILE} bytes")]
    TooLarge { file: String, size: usize },
    #[error("{file}: not text: byte {at} is not UTF-8")]
    NotText { file: String, at: usize },
    #[error("{file}:{line}:{column}: not valid YAML: {message}")]
    NotYaml {
        file: String,
        line: u64,
        column: u64,
        message: String,
    },
    #[error("{origin}: not a Kubernetes object: {missing} is missing")]
    NotAnObject { origin: Origin, missing: &'static str },
    #[error("{origin}: {kind} {name:?}: {path}: {message}")]
    WrongShape {
        origin: Origin,
        kind: String,
        name: String,
        path: String,
        message: String,
    },
}

/// Reads all objects of one file. Empty documents are skipped and lists are taken apart.
pub fn read(file: &str, bytes: &[u8]) -> Result<Vec<Manifest>, ManifestError> {
    if bytes.len() > LARGEST_FILE {
        return Err(ManifestError::TooLarge {
            file: file.to_owned(),
            size: bytes.len(),
        });
    }
    let text = std::str::from_utf8(bytes).map_err(|error| ManifestError::NotText {
        file: file.to_owned(),
        at: error.valid_up_to(),
    })?;
    let documents = documents(text).map_err(|error| {
        let at = error.location();
        ManifestError::NotYaml {
            file: file.to_owned(),
            line: at.map_or(1, |at| at.line()),
            column: at.map_or(1, |at| at.column()),
            message: plain_message(&error),
        }
    })?;
    let mut manifests = Vec::with_capacity(documents.len());
    for document in documents {
        let origin = Origin {
            file: file.to_owned(),
            line: document.referenced.line(),
        };
        collect(origin, normalise(document.value), &mut manifests)?;
    }
    Ok(manifests)
}

/// One YAML value of any shape, read by the same rules; for templates and embedded texts.
pub fn value(text: &str) -> Result<Value, String> {
    serde_saphyr::from_str_with_options(text, options())
        .map(normalise)
        .map_err(|error| error.without_snippet().to_string())
}

impl Manifest {
    /// The object as a type of ours; an error names the field that does not fit.
    pub fn decode<T: DeserializeOwned>(&self) -> Result<T, ManifestError> {
        self.decode_or_problem()
            .map_err(|Problem { path, message, .. }| ManifestError::WrongShape {
                origin: self.origin.clone(),
                kind: self.kind.clone(),
                name: self.name.clone(),
                path,
                message,
            })
    }

    /// Like [`Manifest::decode`], for a caller that reports problems of several objects.
    pub fn decode_or_problem<T: DeserializeOwned>(&self) -> Result<T, Problem> {
        serde_path_to_error::deserialize(&self.value)
            .map_err(|error| Problem::new(error.path().to_string(), error.inner().to_string()))
    }
}

fn documents(text: &str) -> Result<Vec<Spanned<Value>>, serde_saphyr::Error> {
    serde_saphyr::from_multiple_with_options(text, options())
}

fn options() -> Options {
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            // A whole cluster in one file has some hundred thousand values.
            max_events: 8_000_000,
            max_nodes: 4_000_000,
            max_documents: 20_000,
            max_depth: 128,
            // Nobody repeats megabytes by reference in a manifest, except to exhaust memory.
            max_recorded_anchor_bytes: 1 << 20,
            max_recorded_anchor_events: 20_000,
        },
        legacy_octal_numbers: true,
        strict_booleans: false,
        // kubectl takes the last of two equal keys too, but says nothing; an unnoticed typo here reboots machines.
        duplicate_keys: DuplicateKeyPolicy::Error,
        non_finite_float_policy: NonFiniteFloatPolicy::Reject,
    }
}

/// The first line of the message without its place, which we print ourselves.
fn plain_message(error: &serde_saphyr::Error) -> String {
    let text = error.without_snippet().to_string();
    let line = text.lines().next().unwrap_or_default();
    line.rsplit_once(" at line ")
        .map_or(line, |(message, _)| message)
        .to_owned()
}

/// `1e3` is an integer to the Kubernetes tools.
fn normalise(value: Value) -> Value {
    match value {
        Value::Number(number) => Value::Number(whole(&number).unwrap_or(number)),
        Value::Array(items) => Value::Array(items.into_iter().map(normalise).collect()),
        Value::Object(map) => Value::Object(
            map.into_iter()
                .map(|(key, value)| (key, normalise(value)))
                .collect(),
        ),
        other => other,
    }
}

fn whole(number: &Number) -> Option<Number> {
    let float = number.as_f64().filter(|_| number.is_f64())?;
    // Beyond 2^53 a float no longer says which integer it is.
    if float.fract() != 0.0 || float.abs() > 9_007_199_254_740_992.0 {
        return None;
    }
    format!("{float:.0}").parse::<i64>().ok().map(Number::from)
}

fn collect(origin: Origin, value: Value, manifests: &mut Vec<Manifest>) -> Result<(), ManifestError> {
    if value.is_null() {
        return Ok(());
    }
    let text = |path: &str| {
        value
            .pointer(path)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    let (api_version, kind, name) = (text("/apiVersion"), text("/kind"), text("/metadata/name"));
    if api_version.is_empty() {
        return Err(ManifestError::NotAnObject {
            origin,
            missing: "apiVersion",
        });
    }
    if kind.is_empty() {
        return Err(ManifestError::NotAnObject {
            origin,
            missing: "kind",
        });
    }
    if kind.ends_with("List")
        && let Some(Value::Array(items)) = value.get("items")
    {
        for item in items {
            collect(origin.clone(), item.clone(), manifests)?;
        }
        return Ok(());
    }
    manifests.push(Manifest {
        origin,
        api_version,
        kind,
        name,
        value,
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use mco_api::MachineConfig;
    use serde_json::json;

    use super::*;

    #[test]
    fn reads_scalars_as_the_kubernetes_tools_do() {
        for (text, expected) in [
            ("0644", json!(420)),
            ("'0644'", json!("0644")),
            ("yes", json!(true)),
            ("Off", json!(false)),
            ("1e3", json!(1000)),
            ("0x1f", json!(31)),
            ("2020-01-02", json!("2020-01-02")),
            ("12:30", json!("12:30")),
            ("~", json!(null)),
        ] {
            assert_eq!(value(text).unwrap(), expected, "{text}");
        }
    }

    #[test]
    fn several_documents_and_lists_become_objects_with_their_lines() {
        let text = "# heading\n---\napiVersion: v1\nkind: A\nmetadata: {name: one}\n---\n---\napiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: B, metadata: {name: two}}\n";
        let found: Vec<_> = read("x.yaml", text.as_bytes())
            .unwrap()
            .into_iter()
            .map(|m| (m.kind, m.name, m.origin.line))
            .collect();
        assert_eq!(
            found,
            [
                ("A".to_owned(), "one".to_owned(), 3),
                ("B".to_owned(), "two".to_owned(), 8)
            ]
        );
    }

    #[test]
    fn errors_say_where() {
        let cases: [(&str, &[u8], &str); 5] = [
            (
                "broken YAML",
                b"a: 1\nb: [1,\nc: 2\n",
                "x.yaml:2:4: not valid YAML: unclosed bracket",
            ),
            (
                "a repeated key",
                b"apiVersion: v1\nkind: A\nkind: B\n",
                "x.yaml:3:1: not valid YAML: duplicate mapping key: kind",
            ),
            (
                "no kind",
                b"apiVersion: v1\n",
                "x.yaml:1: not a Kubernetes object: kind is missing",
            ),
            (
                "not an object",
                b"just text\n",
                "x.yaml:1: not a Kubernetes object: apiVersion is missing",
            ),
            ("not text", b"a: \xff\n", "x.yaml: not text: byte 3 is not UTF-8"),
        ];
        for (name, bytes, expected) in cases {
            let error = read("x.yaml", bytes).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{name}: {error}");
        }
    }

    #[test]
    fn a_field_of_the_wrong_type_is_named() {
        let text = b"apiVersion: machineconfiguration.openshift.io/v1\nkind: MachineConfig\nmetadata: {name: x}\nspec: {fips: maybe}\n";
        let error = read("x.yaml", text).unwrap()[0]
            .decode::<MachineConfig>()
            .unwrap_err()
            .to_string();
        assert!(
            error.starts_with("x.yaml:1: MachineConfig \"x\": spec.fips: "),
            "{error}"
        );
    }

    #[test]
    fn a_bomb_is_refused() {
        let mut text = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
        for i in 1..12 {
            let references = vec![format!("*a{}", i - 1); 10].join(", ");
            let _ = writeln!(text, "a{i}: &a{i} [{references}]");
        }
        assert!(matches!(
            read("bomb.yaml", text.as_bytes()),
            Err(ManifestError::NotYaml { .. })
        ));
        let deep = "[".repeat(100_000);
        assert!(matches!(
            read("deep.yaml", deep.as_bytes()),
            Err(ManifestError::NotYaml { .. })
        ));
    }
}
