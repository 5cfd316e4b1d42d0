//! Golden responses: those of the real Kubernetes, as readable YAML, one file for each transcript.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The comparable response of one check.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recording {
    pub check: String,
    pub request: String,
    pub answer: Value,
}

#[derive(Debug, thiserror::Error)]
pub enum GoldenError {
    #[error("cannot access {path}")]
    File { path: PathBuf, source: std::io::Error },
    #[error("{path}: {message}")]
    Format { path: PathBuf, message: String },
}

const HEAD: &str = "# Recorded from a real kube-apiserver; do not edit. \"parity record\" writes it again.\n";

pub fn read(directory: &Path, transcript: &str) -> Result<Vec<Recording>, GoldenError> {
    let path = file(directory, transcript);
    let text = std::fs::read_to_string(&path).map_err(|source| GoldenError::File {
        path: path.clone(),
        source,
    })?;
    serde_saphyr::from_str(&text).map_err(|error| GoldenError::Format {
        path,
        message: error.to_string(),
    })
}

pub fn write(directory: &Path, transcript: &str, recordings: &[Recording]) -> Result<(), GoldenError> {
    let path = file(directory, transcript);
    let text = yaml(&recordings).map_err(|message| GoldenError::Format {
        path: path.clone(),
        message,
    })?;
    std::fs::write(&path, format!("{HEAD}{text}")).map_err(|source| GoldenError::File { path, source })
}

/// Returns canonical YAML: the same text for the same value, for files and differences.
pub fn yaml<T: Serialize>(value: &T) -> Result<String, String> {
    serde_saphyr::to_string(value).map_err(|error| error.to_string())
}

fn file(directory: &Path, transcript: &str) -> PathBuf {
    directory.join(format!("{transcript}.yaml"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_written_is_read_back_unchanged() {
        let directory = tempfile::tempdir().unwrap();
        let answer = json!({
            "status": 201,
            "body": {"text": "a: b\n# no comment\n", "yes": "yes", "number": "017", "time": "<time>", "empty": {},
                "list": [], "null": null, "on": true, "f:spec": {".": {}}, "k:{\"name\":\"x\"}": {}, "big": 9_007_199_254_740_993_i64,
                "tilde": "~", "spaces": "  two  ", "colon": ":", "dash": "- a", "multi": "one\n\n  two\n", "percent": "50%", "quote": "it's \"so\""}
        });
        let recordings = vec![Recording {
            check: "a check: with a colon".into(),
            request: "GET /".into(),
            answer,
        }];
        write(directory.path(), "case", &recordings).unwrap();
        assert_eq!(read(directory.path(), "case").unwrap(), recordings);
    }
}
