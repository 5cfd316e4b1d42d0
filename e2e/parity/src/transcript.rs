//! The transcripts: API conversations written as data, independent of any server and of expected responses.
//!
//! A transcript is a YAML file with a list of steps. A step with `check` is compared; one without is a preparation and
//! must succeed. `$ns` is a namespace of the transcript's own, `$run` a word that is different in every run, and `save`
//! names parts of a response for later steps.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::Value;

/// One file of steps that share a namespace, saved values and normalised identities.
#[derive(Debug, Clone)]
pub struct Transcript {
    /// The file's name without its extension; also the name of its golden file.
    pub name: String,
    pub steps: Vec<Step>,
}

#[derive(Debug, Clone)]
pub struct Step {
    /// A sentence that describes what must be the same on every server; `None` for a preparing step.
    pub check: Option<String>,
    /// The status code of a refusal, or the exit code of a failing line; success when absent.
    pub refused: Option<i64>,
    /// Values from the response by JSON pointer.
    pub save: BTreeMap<String, String>,
    pub view: View,
    pub action: Action,
}

#[derive(Debug, Clone)]
pub enum Action {
    /// One request and its response.
    Call(Call),
    /// The same request until the response matches; that last response is the step's.
    Poll(Call, Until),
    /// Opens a watch that later steps read from.
    OpenWatch { name: String, call: Call },
    /// Reads events from an open watch.
    ReadEvents {
        name: String,
        count: usize,
        marks: Marks,
        then: After,
    },
    /// Runs a shell line with `kubectl` on the path.
    Shell {
        line: String,
        files: BTreeMap<String, String>,
        mode: ShellMode,
    },
    /// Waits until a shell line in the background has printed so many lines in all, ends it and takes them.
    Collect { name: String, lines: usize },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ShellMode {
    /// Wait for the end.
    Wait,
    /// Repeat until it exits with 0.
    UntilSuccess,
    /// Leave it running under this name once it has printed so many lines.
    Background { name: String, lines: usize },
}

#[derive(Debug, Clone)]
pub struct Call {
    pub method: String,
    pub path: String,
    pub headers: BTreeMap<String, String>,
    pub body: Payload,
    pub credentials: Credentials,
}

#[derive(Debug, Clone)]
pub enum Payload {
    Empty,
    Json(Value),
    /// Sent as it stands, for bodies that are wrong on purpose.
    Text(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Credentials {
    #[default]
    Admin,
    None,
    WrongToken,
}

/// How bookmarks are treated, which may come at any time; only the one that ends the initial events is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Marks {
    /// Passed over.
    #[default]
    Skip,
    /// The first is an event like others, later ones are passed over.
    First,
}

/// What follows the events that a step reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum After {
    /// Further events belong to later steps.
    #[default]
    Open,
    /// Nothing more arrives for a moment.
    Quiet,
    /// The server ends the stream.
    Closed,
}

/// When a repeated request is done.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Until {
    pub status: Option<u16>,
    /// JSON pointers and the values they must have.
    #[serde(default)]
    pub at: BTreeMap<String, Value>,
}

/// The part of a response that is compared; all of it by default.
#[derive(Debug, Clone, Default)]
pub struct View {
    /// JSON pointers to leave out; `*` stands for any one key or index.
    pub ignore: Vec<String>,
    /// JSON pointers to compare; everything when empty.
    pub only: Vec<String>,
    /// JSON pointers of lists whose order is not deterministic.
    pub sort: Vec<String>,
    /// Lists of which only the named entries are compared: pointer of the list -> pointer in an entry -> values.
    pub keep: BTreeMap<String, BTreeMap<String, Vec<String>>>,
    /// Only the existence of a response is compared, not its body.
    pub without_body: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum TranscriptError {
    #[error("cannot read {path}")]
    Read { path: PathBuf, source: std::io::Error },
    #[error("{path}: {message}")]
    Parse { path: PathBuf, message: String },
    #[error("{path}: step {step}: {message}")]
    Step {
        path: PathBuf,
        step: usize,
        message: String,
    },
}

impl Transcript {
    /// Every transcript of a directory, by name.
    pub fn load_all(directory: &Path) -> Result<Vec<Self>, TranscriptError> {
        let read = |source| TranscriptError::Read {
            path: directory.to_owned(),
            source,
        };
        let mut paths = Vec::new();
        for entry in std::fs::read_dir(directory).map_err(read)? {
            let path = entry.map_err(read)?.path();
            if path.extension().is_some_and(|extension| extension == "yaml") {
                paths.push(path);
            }
        }
        paths.sort();
        paths.iter().map(|path| Self::load(path)).collect()
    }

    pub fn load(path: &Path) -> Result<Self, TranscriptError> {
        let text = std::fs::read_to_string(path).map_err(|source| TranscriptError::Read {
            path: path.to_owned(),
            source,
        })?;
        let raw: Vec<RawStep> = serde_saphyr::from_str(&text).map_err(|error| TranscriptError::Parse {
            path: path.to_owned(),
            message: error.to_string(),
        })?;
        let steps = raw
            .into_iter()
            .enumerate()
            .map(|(index, step)| {
                step.into_step().map_err(|message| TranscriptError::Step {
                    path: path.to_owned(),
                    step: index + 1,
                    message,
                })
            })
            .collect::<Result<_, _>>()?;
        let name = path
            .file_stem()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        Ok(Self { name, steps })
    }

    pub fn checks(&self) -> usize {
        self.steps.iter().filter(|step| step.check.is_some()).count()
    }
}

impl Step {
    /// Returns a sentence if a response does not match the kind of the step.
    ///
    /// A golden response records what a server did, not what the author meant; this prevents an error of the author
    /// from becoming the specification.
    pub fn contradiction(&self, answer: &Value) -> Option<String> {
        if let Some(trouble) = answer.get("trouble") {
            return Some(format!("no answer: {trouble}"));
        }
        if let Some(end) = answer.get("then").and_then(Value::as_str)
            && (end.ends_with("too early") || end == "one more event")
        {
            return Some(format!("the watch was {end}"));
        }
        let refusal = match (answer.get("status"), answer.get("exit")) {
            (Some(status), _) => status.as_i64().filter(|code| *code >= 400),
            (None, exit) => exit.and_then(Value::as_i64).filter(|code| *code != 0),
        };
        match (self.refused, refusal) {
            (wanted, seen) if wanted == seen => None,
            (None, Some(seen)) => Some(format!(
                "refused with {seen}, which the transcript does not announce"
            )),
            (Some(wanted), seen) => Some(format!(
                "the transcript announces {wanted}, the answer is {seen:?}"
            )),
            (None, None) => None,
        }
    }
}

impl Action {
    /// Returns the name of the step in a recording.
    pub fn summary(&self) -> String {
        match self {
            Self::Call(call) | Self::Poll(call, _) | Self::OpenWatch { call, .. } => {
                format!("{} {}", call.method, call.path)
            }
            Self::ReadEvents { name, count, .. } => format!("{count} events of watch {name}"),
            Self::Shell { line, .. } => line.clone(),
            Self::Collect { name, lines } => format!("{lines} lines of {name}"),
        }
    }
}

/// A step as written: flat, because flat is easier to write and read.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawStep {
    check: Option<String>,
    refused: Option<i64>,
    /// `METHOD PATH`
    r#do: Option<String>,
    body: Option<Value>,
    text: Option<String>,
    /// Content type, or one of the short names of [`content_type`].
    r#type: Option<String>,
    /// Accept header, or one of the short names of [`accept`].
    accept: Option<String>,
    #[serde(default)]
    credentials: Credentials,
    #[serde(default)]
    save: BTreeMap<String, String>,
    until: Option<Until>,
    /// Opens the request as a watch under this name.
    watch: Option<String>,
    /// Reads from the watch of this name.
    events: Option<String>,
    count: Option<usize>,
    #[serde(default)]
    marks: Marks,
    #[serde(default)]
    then: After,
    /// A shell line.
    run: Option<String>,
    #[serde(default)]
    files: BTreeMap<String, String>,
    background: Option<String>,
    #[serde(default)]
    retry: bool,
    /// Takes the output of the background line of this name.
    collect: Option<String>,
    lines: Option<usize>,
    #[serde(default)]
    ignore: Vec<String>,
    #[serde(default)]
    only: Vec<String>,
    #[serde(default)]
    without_body: bool,
    #[serde(default)]
    sort: Vec<String>,
    #[serde(default)]
    keep: BTreeMap<String, BTreeMap<String, Vec<String>>>,
}

impl RawStep {
    fn into_step(mut self) -> Result<Step, String> {
        let action = self.action()?;
        Ok(Step {
            check: self.check,
            refused: self.refused,
            save: self.save,
            view: View {
                ignore: self.ignore,
                only: self.only,
                sort: self.sort,
                keep: self.keep,
                without_body: self.without_body,
            },
            action,
        })
    }

    fn action(&mut self) -> Result<Action, String> {
        if let Some(name) = self.events.take() {
            let count = self.count.ok_or("`events` needs `count`")?;
            return Ok(Action::ReadEvents {
                name,
                count,
                marks: self.marks,
                then: self.then,
            });
        }
        if let Some(name) = self.collect.take() {
            let lines = self.lines.ok_or("`collect` needs `lines`")?;
            return Ok(Action::Collect { name, lines });
        }
        if let Some(line) = self.run.take() {
            let files = std::mem::take(&mut self.files);
            let mode = match self.background.take() {
                Some(name) => ShellMode::Background {
                    name,
                    lines: self.lines.unwrap_or_default(),
                },
                None if self.retry => ShellMode::UntilSuccess,
                None => ShellMode::Wait,
            };
            return Ok(Action::Shell { line, files, mode });
        }
        let call = self.call()?;
        Ok(match (self.watch.take(), self.until.take()) {
            (Some(name), None) => Action::OpenWatch { name, call },
            (None, Some(until)) => Action::Poll(call, until),
            (None, None) => Action::Call(call),
            (Some(_), Some(_)) => return Err("`watch` and `until` do not go together".into()),
        })
    }

    fn call(&mut self) -> Result<Call, String> {
        let request = self
            .r#do
            .take()
            .ok_or("one of `do`, `events`, `run` and `collect` is needed")?;
        let (method, path) = request.split_once(' ').ok_or("`do` is `METHOD PATH`")?;
        let body = match (self.body.take(), self.text.take()) {
            (None, None) => Payload::Empty,
            (Some(value), None) => Payload::Json(value),
            (None, Some(text)) => Payload::Text(text),
            (Some(_), Some(_)) => return Err("`body` and `text` do not go together".into()),
        };
        let mut headers = BTreeMap::new();
        if let Some(given) = &self.r#type {
            headers.insert("content-type".into(), content_type(given).to_owned());
        } else if method == "PATCH" {
            return Err("a patch needs `type`".into());
        } else if !matches!(body, Payload::Empty) {
            headers.insert("content-type".into(), "application/json".into());
        }
        let wanted = self.accept.as_deref().unwrap_or("application/json");
        headers.insert("accept".into(), accept(wanted).to_owned());
        Ok(Call {
            method: method.to_owned(),
            path: path.trim().to_owned(),
            headers,
            body,
            credentials: self.credentials,
        })
    }
}

fn content_type(given: &str) -> &str {
    match given {
        "json-patch" => "application/json-patch+json",
        "merge" => "application/merge-patch+json",
        "strategic" => "application/strategic-merge-patch+json",
        "apply" => "application/apply-patch+yaml",
        other => other,
    }
}

fn accept(given: &str) -> &str {
    match given {
        "table" => "application/json;as=Table;v=v1;g=meta.k8s.io",
        "partial" => "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
        "partial-list" => "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
        "discovery" => "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
        other => other,
    }
}
