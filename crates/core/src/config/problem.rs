//! Validation problems: what is wrong with an object, where, and how to fix it.

use std::fmt;

use mco_ignition::Finding;
use serde::Serialize;
use serde_json::Value;

/// One validation problem. Its text never contains file contents, keys or password hashes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// The field path in the object, such as `spec.config.storage.files[2].mode`.
    pub path: String,
    /// The name of the list entry at that path, such as `/etc/chrony.conf`, where the path only has an index.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    pub message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

impl Problem {
    pub fn new(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            subject: None,
            message: message.into(),
            hint: None,
        }
    }

    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    #[must_use]
    pub fn about(mut self, subject: impl Into<String>) -> Self {
        self.subject = Some(subject.into());
        self
    }

    /// Converts a finding in the Ignition config at `spec.config` of an object.
    pub fn in_config(finding: &Finding, config: &Value) -> Self {
        let path = if finding.path.is_empty() {
            "spec.config".to_owned()
        } else {
            format!("spec.config.{}", finding.path)
        };
        Self {
            path,
            subject: subject(config, &finding.path),
            message: finding.message.clone(),
            hint: finding.hint.clone(),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.path)?;
        if let Some(subject) = &self.subject {
            write!(f, " ({subject:?})")?;
        }
        write!(f, ": {}", self.message)?;
        if let Some(hint) = &self.hint {
            write!(f, "\n  hint: {hint}")?;
        }
        Ok(())
    }
}

/// An invalid object, with all of its problems.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct InvalidObject {
    pub kind: String,
    pub name: String,
    pub problems: Vec<Problem>,
}

impl fmt::Display for InvalidObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.problems.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{} {:?}: {problem}", self.kind, self.name)?;
        }
        Ok(())
    }
}

impl std::error::Error for InvalidObject {}

/// Returns the path, name or device of the innermost list entry on the way to `path`.
fn subject(config: &Value, path: &str) -> Option<String> {
    let mut value = config;
    let mut subject = None;
    for step in path.split('.') {
        let (key, indices) = step.split_once('[').map_or((step, ""), |(key, rest)| (key, rest));
        value = value.get(key)?;
        for index in indices.split('[').filter(|part| !part.is_empty()) {
            value = value.get(index.trim_end_matches(']').parse::<usize>().ok()?)?;
            let name = ["path", "name", "device"]
                .into_iter()
                .find_map(|key| value.get(key).and_then(Value::as_str));
            subject = name.map(str::to_owned).or(subject);
        }
        if value.is_null() {
            break;
        }
    }
    subject
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_finding_deep_in_a_list_names_the_innermost_thing() {
        let config = json!({"systemd": {"units": [{"name": "a.service", "dropins": [{"name": "10.conf"}, {"name": "20.conf"}]}]}});
        for (path, expected) in [
            ("systemd.units[0].dropins[1].contents", Some("20.conf")),
            ("systemd.units[0].name", Some("a.service")),
            ("systemd.units[7].name", None),
            ("ignition.version", None),
            ("", None),
        ] {
            let shortened = path.rsplit_once('.').map_or(path, |(parent, _)| parent);
            assert_eq!(subject(&config, shortened).as_deref(), expected, "{path}");
        }
    }
}
