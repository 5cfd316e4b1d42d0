//! Parses Kubernetes objects from YAML or JSON with the rules of the Kubernetes tools (YAML 1.1: `0644` is 420, `yes`
//! is true; of duplicate keys the last one wins), within fixed memory bounds.

use std::fmt;
use std::path::Path;

use serde::de::DeserializeOwned;
use serde_json::Value;
use thiserror::Error;

use crate::config::butane;
use crate::config::goyaml::read::{self as yaml, Document, Rest, YamlError};
use crate::config::problem::Problem;

/// Maximum size of one manifest file; a full export of a large cluster is well below it.
pub const LARGEST_FILE: usize = 64 << 20;

/// One object and its location in a file.
#[derive(Debug, Clone, PartialEq)]
pub struct Manifest {
    pub origin: ManifestOrigin,
    pub api_version: String,
    pub kind: String,
    pub name: String,
    pub value: Value,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ManifestOrigin {
    pub file: String,
    pub line: u64,
}

impl ManifestOrigin {
    /// The name of a MachineConfig whose Butane config has none: that of its file, `50-ntp` for `50-ntp.bu`.
    fn name_of_butane(&self) -> Option<String> {
        let path = Path::new(&self.file);
        path.extension()?;
        Some(path.file_stem()?.to_str()?.to_owned())
    }
}

impl fmt::Display for ManifestOrigin {
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
    NotAnObject {
        origin: ManifestOrigin,
        missing: &'static str,
    },
    #[error("{origin}: Butane config: {}", list(.problems))]
    Butane {
        origin: ManifestOrigin,
        problems: Vec<Problem>,
    },
    #[error("{origin}: {kind} {name:?}: {path}: {message}")]
    WrongShape {
        origin: ManifestOrigin,
        kind: String,
        name: String,
        path: String,
        message: String,
    },
}

/// The objects of one file, with warnings about text that probably does not mean what its author intended.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Reading {
    pub manifests: Vec<Manifest>,
    pub warnings: Vec<ReadWarning>,
}

/// A warning about text that the Kubernetes tools silently accept, though with a meaning that its author may not
/// expect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadWarning {
    pub origin: ManifestOrigin,
    pub message: String,
}

impl fmt::Display for ReadWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.origin, self.message)
    }
}

fn list(problems: &[Problem]) -> String {
    let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
    lines.join("\n  ")
}

/// Parses all objects of one file. Empty documents are skipped, `List` objects are flattened, and Butane configs are
/// translated to MachineConfigs.
pub fn read(file: &str, bytes: &[u8]) -> Result<Vec<Manifest>, ManifestError> {
    read_with_warnings(file, bytes).map(|reading| reading.manifests)
}

/// Parses all objects of one file like [`read`] and also returns warnings for the author of the file.
pub fn read_with_warnings(file: &str, bytes: &[u8]) -> Result<Reading, ManifestError> {
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
    let mut reading = Reading::default();
    let (documents, ignored) = match json_documents(text) {
        Some(documents) => (documents, Vec::new()),
        None => yaml_documents(text).map_err(|error| ManifestError::NotYaml {
            file: file.to_owned(),
            line: error.line,
            column: error.column,
            message: error.message,
        })?,
    };
    let origin = |line| ManifestOrigin {
        file: file.to_owned(),
        line,
    };
    for Document {
        line,
        value,
        repeated,
    } in documents
    {
        for key in repeated {
            reading.warnings.push(ReadWarning {
                origin: origin(key.line),
                message: format!(
                    "key {:?} is repeated in its mapping; the last value is used",
                    key.key
                ),
            });
        }
        collect(origin(line), value, &mut reading.manifests)?;
    }
    for line in ignored {
        reading.warnings.push(ReadWarning {
            origin: origin(line),
            message: "text after the end of this document is ignored; separate documents with '---'"
                .to_owned(),
        });
    }
    Ok(reading)
}

/// Returns the value of the first YAML document of a text, of any shape; for templates and embedded texts.
pub fn value(text: &str) -> Result<Value, String> {
    let (document, _) = yaml::first_document(text).map_err(|error| error.to_string())?;
    Ok(document.map_or(Value::Null, |document| document.value))
}

impl Manifest {
    /// Deserializes the object into a typed resource; an error names the invalid field.
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

    /// Deserializes like [`Manifest::decode`], for callers that collect the problems of several objects.
    pub fn decode_or_problem<T: DeserializeOwned>(&self) -> Result<T, Problem> {
        serde_path_to_error::deserialize(&self.value)
            .map_err(|error| Problem::new(error.path().to_string(), error.inner().to_string()))
    }
}

/// Returns the objects of a JSON text, which may hold several values in sequence; `None` if it is not JSON.
fn json_documents(text: &str) -> Option<Vec<Document>> {
    if !text.trim_start().starts_with('{') {
        return None;
    }
    let mut documents = Vec::new();
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<Value>();
    let (mut line, mut counted) = (1, 0);
    loop {
        let before = &text[values.byte_offset()..];
        let start = text.len() - before.trim_start().len();
        line += text[counted..start].matches('\n').count() as u64;
        counted = start;
        match values.next() {
            None => return Some(documents),
            Some(Err(_)) => return None,
            Some(Ok(value)) => documents.push(Document {
                line,
                value: whole_numbers(value),
                repeated: Vec::new(),
            }),
        }
    }
}

/// Returns the documents of a YAML text, and the lines of those documents that are followed by ignored text.
fn yaml_documents(text: &str) -> Result<(Vec<Document>, Vec<u64>), YamlError> {
    let (mut documents, mut ignored) = (Vec::new(), Vec::new());
    for (first_line, chunk) in chunks(text) {
        let shifted = |line| line + first_line;
        let (document, rest) = yaml::first_document(chunk).map_err(|error| YamlError {
            line: shifted(error.line),
            ..error
        })?;
        let Some(mut document) = document else { continue };
        document.line = shifted(document.line);
        for key in &mut document.repeated {
            key.line = shifted(key.line);
        }
        if rest == Rest::Ignored {
            ignored.push(document.line);
        }
        documents.push(document);
    }
    Ok((documents, ignored))
}

/// Splits the text before each line that starts with `---`; each part comes with the number of lines before it.
fn chunks(text: &str) -> Vec<(u64, &str)> {
    let mut chunks = Vec::new();
    let (mut start, mut start_line) = (0, 0);
    let mut has_content = false;
    let mut at = 0;
    for (number, line) in (0..).zip(text.split_inclusive('\n')) {
        let separates = line
            .strip_prefix("---")
            .is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '\t', '\r', '\n']));
        // Directives and comments belong to the document that follows.
        if separates && has_content {
            chunks.push((start_line, &text[start..at]));
            (start, start_line) = (at, number);
        }
        let bare = line.trim_start_matches('\u{feff}').trim();
        has_content = separates || has_content || !(bare.is_empty() || bare.starts_with(['#', '%']));
        at += line.len();
    }
    chunks.push((start_line, &text[start..]));
    chunks
}

/// Turns whole floats into integers: the Kubernetes tools read `1.0` as an integer.
fn whole_numbers(value: Value) -> Value {
    match value {
        Value::Number(number) => Value::Number(yaml::whole(number)),
        Value::Array(items) => Value::Array(items.into_iter().map(whole_numbers).collect()),
        Value::Object(map) => Value::Object(
            map.into_iter()
                .map(|(key, value)| (key, whole_numbers(value)))
                .collect(),
        ),
        other => other,
    }
}

fn collect(origin: ManifestOrigin, value: Value, manifests: &mut Vec<Manifest>) -> Result<(), ManifestError> {
    if value.is_null() {
        return Ok(());
    }
    let value = if butane::is_butane(&value) {
        let name = origin.name_of_butane();
        butane::translate(&value, name.as_deref()).map_err(|problems| ManifestError::Butane {
            origin: origin.clone(),
            problems,
        })?
    } else {
        value
    };
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
    fn a_butane_config_is_read_as_a_machine_config_with_the_name_of_its_file() {
        let text = "variant: fcos\nversion: 1.5.0\nmetadata:\n  labels:\n    machineconfiguration.openshift.io/role: worker\n";
        let found = read("configs/50-ntp.bu", text.as_bytes()).unwrap();
        assert_eq!(
            (found[0].kind.as_str(), found[0].name.as_str()),
            ("MachineConfig", "50-ntp")
        );
        let config: MachineConfig = found[0].decode().unwrap();
        assert!(config.spec.config.is_some());
        let error = read("standard input", b"variant: fcos\nversion: 1.5.0\n")
            .unwrap_err()
            .to_string();
        assert!(
            error.starts_with("standard input:1: Butane config: metadata.name: "),
            "{error}"
        );
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
        let cases: [(&str, &[u8], &str); 4] = [
            (
                "broken YAML",
                b"a: 1\nb: [1,\nc: 2\n",
                "x.yaml:2:4: not valid YAML: unclosed bracket",
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
    fn of_a_repeated_key_the_last_one_counts() {
        let text = b"apiVersion: v1\nkind: A\nmetadata: {name: x}\n---\napiVersion: v1\nkind: A\nmetadata:\n  name: y\nkind: B\n";
        let reading = read_with_warnings("x.yaml", text).unwrap();
        assert_eq!(reading.manifests[1].kind, "B");
        let warnings: Vec<String> = reading.warnings.iter().map(ToString::to_string).collect();
        assert_eq!(
            warnings,
            ["x.yaml:9: key \"kind\" is repeated in its mapping; the last value is used"]
        );
    }

    #[test]
    fn a_block_at_the_end_of_the_file_gets_no_line_feed() {
        let text = "apiVersion: v1\nkind: A\ndata: |\n  a\n---\napiVersion: v1\nkind: A\ndata: |\n  a";
        let found = read("x.yaml", text.as_bytes()).unwrap();
        assert_eq!(found[0].value["data"], json!("a\n"));
        assert_eq!(found[1].value["data"], json!("a"));
    }

    #[test]
    fn what_follows_a_document_without_a_separator_is_ignored_with_a_warning() {
        let text = b"apiVersion: v1\nkind: A\n...\napiVersion: v1\nkind: B\n";
        let reading = read_with_warnings("x.yaml", text).unwrap();
        assert_eq!(reading.manifests.len(), 1);
        assert_eq!(reading.warnings.len(), 1, "{:?}", reading.warnings);
    }

    #[test]
    fn json_is_read_as_json() {
        let text = b"\n{\"apiVersion\": \"v1\", \"kind\": \"A\", \"data\": \"\\ud83d\\ude80\", \"n\": 1.0}\n\n{\"apiVersion\": \"v1\", \"kind\": \"B\"}\n";
        let found = read("x.json", text).unwrap();
        assert_eq!(found[0].value["data"], json!("\u{1f680}"));
        assert_eq!(found[0].value["n"], json!(1));
        assert_eq!((found[0].origin.line, found[1].origin.line), (2, 4));
    }

    #[test]
    fn directives_belong_to_the_document_that_follows() {
        let text = b"%YAML 1.1\n# about\n---\napiVersion: v1\nkind: A\n--- # next\napiVersion: v1\nkind: [\n";
        let error = read("x.yaml", text).unwrap_err().to_string();
        assert!(error.starts_with("x.yaml:8:7: not valid YAML: "), "{error}");
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
