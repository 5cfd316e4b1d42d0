//! Checks that a node's container runtime exists in its operating system: EL 10 no longer has `runc`.

use mco_ignition::Config;
use mco_ignition::resource::{self, DecodeError};
use thiserror::Error;
use toml_edit::{DocumentMut, Item};

const DROPINS: &str = "/etc/crio/crio.conf.d/";
/// Maximum size of a drop-in that is parsed; real ones are far smaller.
const LARGEST_DROPIN: usize = 1 << 20;
const WITHOUT_RUNC: [&str; 2] = ["rhel-10", "centos-10"];

#[derive(Debug, Error)]
pub enum RuntimeCheckError {
    #[error(
        "MachineConfigPool {pool} targets a RHEL 10 OS image where runc is not available. It is chosen by {file}; \
         use crun, which is the default"
    )]
    NoRunc { pool: String, file: String },
    #[error("{file}: {source}")]
    Unreadable { file: String, source: DecodeError },
    #[error("{file}: not valid TOML: {message}")]
    NotToml { file: String, message: String },
}

/// The runtime that CRI-O would use, and the file that sets it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EffectiveRuntime {
    pub runtime: String,
    pub file: String,
}

/// Rejects a pool whose nodes would have no container runtime. `stream` is the OS image's stream, if it can be
/// determined.
pub fn check(pool: &str, config: &Config, stream: Option<&str>) -> Result<(), RuntimeCheckError> {
    if !stream.is_some_and(|stream| WITHOUT_RUNC.contains(&stream)) {
        return Ok(());
    }
    match effective(config)? {
        Some(chosen) if chosen.runtime == "runc" => Err(RuntimeCheckError::NoRunc {
            pool: pool.to_owned(),
            file: chosen.file,
        }),
        _ => Ok(()),
    }
}

/// Returns the effective runtime: the last drop-in, by name, that sets a runtime wins.
pub fn effective(config: &Config) -> Result<Option<EffectiveRuntime>, RuntimeCheckError> {
    let mut files: Vec<_> = config
        .storage
        .files
        .iter()
        .filter(|file| file.path.starts_with(DROPINS))
        .collect();
    files.sort_by(|a, b| a.path.cmp(&b.path));
    let mut chosen = None;
    for file in files {
        let contents = resource::decode(
            file.contents.source.as_deref(),
            file.contents.compression.as_deref(),
            LARGEST_DROPIN,
        )
        .map_err(|source| RuntimeCheckError::Unreadable {
            file: file.path.clone(),
            source,
        })?;
        let runtime = default_runtime(&String::from_utf8_lossy(&contents)).map_err(|message| {
            RuntimeCheckError::NotToml {
                file: file.path.clone(),
                message,
            }
        })?;
        if let Some(runtime) = runtime {
            chosen = Some(EffectiveRuntime {
                runtime,
                file: file.path.clone(),
            });
        }
    }
    Ok(chosen)
}

fn default_runtime(toml: &str) -> Result<Option<String>, String> {
    let document: DocumentMut = toml
        .parse()
        .map_err(|error: toml_edit::TomlError| error.message().to_owned())?;
    let runtime = document
        .get("crio")
        .and_then(|crio| crio.get("runtime"))
        .and_then(|runtime| runtime.get("default_runtime"))
        .and_then(Item::as_str);
    Ok(runtime.filter(|name| !name.is_empty()).map(str::to_owned))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Name, drop-ins with their runtimes, stream, and whether the check passes.
    type Case<'a> = (&'a str, &'a [(&'a str, &'a str)], Option<&'a str>, bool);

    fn config(files: &[(&str, &str)]) -> Config {
        let files: Vec<_> = files
            .iter()
            .map(|(name, runtime)| {
                let text = format!("[crio.runtime]\ndefault_runtime = \"{runtime}\"\n");
                json!({"path": format!("{DROPINS}{name}"), "contents": {"source": resource::encode(text.as_bytes())}})
            })
            .collect();
        let value = json!({"ignition": {"version": "3.5.0"}, "storage": {"files": files}});
        mco_ignition::parse(&value).unwrap().config
    }

    #[test]
    fn the_last_dropin_decides_and_only_el10_has_no_runc() {
        let cases: [Case<'_>; 6] = [
            (
                "runc then crun",
                &[("00-default", "runc"), ("01-crun", "crun")],
                Some("rhel-10"),
                true,
            ),
            (
                "crun then runc",
                &[("00-default", "crun"), ("01-runc", "runc")],
                Some("rhel-10"),
                false,
            ),
            (
                "order of names, not of the list",
                &[("01-runc", "runc"), ("00-default", "crun")],
                Some("centos-10"),
                false,
            ),
            (
                "an empty choice is none",
                &[("00-default", "runc"), ("01-none", "")],
                Some("rhel-10"),
                false,
            ),
            ("EL 9 has runc", &[("00-default", "runc")], Some("rhel-9"), true),
            (
                "an unknown image is not judged",
                &[("00-default", "runc")],
                None,
                true,
            ),
        ];
        for (name, files, stream, passes) in cases {
            assert_eq!(check("worker", &config(files), stream).is_ok(), passes, "{name}");
        }
    }
}
