//! Validation of MachineConfigs and pools. All problems are reported, not only the first.

use std::sync::Arc;

use mco_api::MachineConfig;
use mco_api::vocabulary::labels;
use mco_ignition::{Config, ParseError};
use serde_json::Value;

use crate::config::applicability;
use crate::config::extensions::{self, KernelType};
use crate::config::node_files;
use crate::config::parsed_config::ParsedConfig;
use crate::config::problem::{InvalidObject, Problem};
use crate::config::remote::{self, RemoteContents, Resolution};

/// The highest file mode that a MachineConfig may set: it excludes setuid, setgid and sticky bits.
const HIGHEST_FILE_MODE: i64 = 0o777;

/// Validates a MachineConfig to the extent that rendering requires. Accepts what the reference implementation renders,
/// except for what every node would refuse.
pub fn check(config: &Arc<MachineConfig>) -> Result<ParsedConfig, InvalidObject> {
    check_resolved(config, &resolve(config, &RemoteContents::default()))
}

/// Validates a MachineConfig whose references to remote contents were resolved. The result has the contents embedded;
/// missing ones are problems.
pub fn check_resolved(
    config: &Arc<MachineConfig>,
    resolution: &Resolution,
) -> Result<ParsedConfig, InvalidObject> {
    let with = |ignition: &Value| {
        let mut config = MachineConfig::clone(config);
        config.spec.config = Some(ignition.clone());
        Arc::new(config)
    };
    let embedded = resolution.embedded.as_ref().map(with);
    let validated = resolution.validated.as_ref().map(with);
    let config = embedded.as_ref().unwrap_or(config);
    let Inspection {
        mut ignition,
        mut problems,
        mut warnings,
        refused,
        unusable,
    } = Inspection::of(validated.as_ref().unwrap_or(config));
    if validated.is_some()
        && let Some(raw) = &config.spec.config
    {
        ignition = mco_ignition::parse(raw).ok().map(|parsed| parsed.config);
    }
    problems.extend(refused);
    problems.extend(resolution.refused.iter().cloned());
    problems.extend(resolution.missing.iter().cloned());
    warnings.extend(unusable);
    verdict(config, ignition, problems, warnings)
}

/// Resolves the references of a MachineConfig to remote contents and to Secrets, and its per-node values. An invalid
/// Ignition config has none: it is reported before anything is fetched.
pub fn resolve(config: &MachineConfig, contents: &RemoteContents) -> Resolution {
    let resolution = match config.spec.config.as_ref() {
        None => Resolution::default(),
        Some(raw) => {
            let resolution = remote::resolve(raw, contents);
            if resolution.references.is_empty() || mco_ignition::parse(raw).is_ok() {
                resolution
            } else {
                Resolution::default()
            }
        }
    };
    with_node_files(config, resolution, contents)
}

/// Resolves what differs between nodes, once everything else is embedded.
fn with_node_files(
    config: &MachineConfig,
    mut resolution: Resolution,
    contents: &RemoteContents,
) -> Resolution {
    if !resolution.refused.is_empty() || !resolution.missing.is_empty() {
        return resolution;
    }
    let raw = resolution.embedded.as_ref().or(config.spec.config.as_ref());
    let annotations = config.metadata.annotations.as_ref();
    let Some(embedding) = node_files::embed(&name_of(config), annotations, raw, &contents.secrets) else {
        return resolution;
    };
    // A Secret that is missing is reported at once, unlike contents that are still being fetched.
    resolution.failed |= !embedding.missing.is_empty();
    resolution.refused = embedding.refused;
    resolution.missing = embedding.missing;
    resolution.embedded = embedding.config;
    resolution.validated = embedding.validated;
    resolution
}

/// Parses and validates a config that is applied to a node. It needs no role label, so rendered configs are accepted:
/// labels select pools and have no meaning on a node.
///
/// It also accepts what a node refuses, because that may be the config that a node has and has to leave; the refusals
/// are obstacles of a change to such a config ([`crate::config::reconcilable::obstacles`]).
pub fn check_applicable(config: &Arc<MachineConfig>) -> Result<ParsedConfig, InvalidObject> {
    let mut inspection = Inspection::default();
    check_kernel_type(config, &mut inspection.problems);
    inspection.check_ignition(config);
    let Inspection {
        ignition,
        problems,
        warnings,
        ..
    } = inspection;
    verdict(config, ignition, problems, warnings)
}

/// Validates a MachineConfig at admission: like [`check`], and also rejects what would render but could never be
/// applied to a node. Remote contents are fetched later, so a reference is accepted if it can be.
pub fn admit(config: &Arc<MachineConfig>) -> Result<ParsedConfig, InvalidObject> {
    let resolution = resolve(config, &RemoteContents::default());
    let validated = resolution.validated.as_ref().map(|ignition| {
        let mut config = MachineConfig::clone(config);
        config.spec.config = Some(ignition.clone());
        config
    });
    let Inspection {
        ignition,
        mut problems,
        warnings,
        refused,
        unusable,
    } = Inspection::of(validated.as_ref().unwrap_or(config));
    problems.extend(refused);
    problems.extend(resolution.refused);
    problems.extend(
        ignition
            .as_ref()
            .map(node_files::reserved_paths)
            .unwrap_or_default(),
    );
    if let Some(raw) = config.spec.config.as_ref().filter(|_| ignition.is_some()) {
        let known: Vec<String> = problems.iter().map(|problem| problem.path.clone()).collect();
        let unverified = remote::unverified_configs(raw).into_iter();
        problems.extend(unverified.filter(|problem| !known.contains(&problem.path)));
    }
    if name_of(config).is_empty() {
        problems.push(Problem::new("metadata.name", "a MachineConfig needs a name"));
    }
    problems.extend(unusable);
    verdict(config, ignition, problems, warnings)
}

fn verdict(
    config: &Arc<MachineConfig>,
    ignition: Option<Config>,
    problems: Vec<Problem>,
    warnings: Vec<Problem>,
) -> Result<ParsedConfig, InvalidObject> {
    if problems.is_empty() {
        Ok(ParsedConfig {
            object: Arc::clone(config),
            ignition: ignition.unwrap_or_default(),
            warnings,
        })
    } else {
        Err(InvalidObject {
            kind: "MachineConfig".to_owned(),
            name: name_of(config),
            problems,
        })
    }
}

/// All validation results of one MachineConfig.
#[derive(Default)]
struct Inspection {
    ignition: Option<Config>,
    problems: Vec<Problem>,
    warnings: Vec<Problem>,
    /// What every node would refuse to apply.
    refused: Vec<Problem>,
    /// Problems that only surface on the node, after every other check has passed.
    unusable: Vec<Problem>,
}

impl Inspection {
    fn of(config: &MachineConfig) -> Self {
        let mut inspection = Self::default();
        check_metadata(config, &mut inspection.problems);
        check_kernel_type(config, &mut inspection.problems);
        inspection.check_ignition(config);
        match check_extensions(config) {
            // The reference does not validate extensions without an Ignition config, and clusters may rely on that.
            Some(problem) if config.spec.config.is_none() => inspection.unusable.push(problem),
            problem => inspection.problems.extend(problem),
        }
        inspection
    }

    fn check_ignition(&mut self, config: &MachineConfig) {
        let Some(raw) = config.spec.config.as_ref().filter(|value| !value.is_null()) else {
            return;
        };
        match mco_ignition::parse(raw) {
            Ok(parsed) => {
                self.warnings.extend(
                    parsed
                        .warnings
                        .iter()
                        .map(|finding| Problem::in_config(finding, raw)),
                );
                self.refused = applicability::refusals_of_embedded(&parsed.config);
                self.ignition = Some(parsed.config);
            }
            Err(error) => self.problems.extend(ignition_problems(&error, raw)),
        }
        // Checked in the raw document, so that these problems are reported together with all others.
        for problem in special_mode_bits(raw) {
            if self.problems.iter().all(|other| other.path != problem.path) {
                self.problems.push(problem);
            }
        }
    }
}

fn name_of(config: &MachineConfig) -> String {
    config.metadata.name.clone().unwrap_or_default()
}

fn check_metadata(config: &MachineConfig, problems: &mut Vec<Problem>) {
    if config.metadata.labels.is_none() {
        problems.push(
            Problem::new(
                "metadata.labels",
                format!("cannot find label in MachineConfig {}", name_of(config)),
            )
            .with_hint(format!(
                "add the label {} with the name of a pool, for example worker",
                labels::ROLE
            )),
        );
    }
}

fn check_kernel_type(config: &MachineConfig, problems: &mut Vec<Problem>) {
    let kernel_type = config.spec.kernel_type.as_str();
    if !KernelType::ACCEPTED.contains(&kernel_type) {
        problems.push(
            Problem::new("spec.kernelType", format!("kernelType={kernel_type} is invalid"))
                .with_hint("use default, realtime or 64k-pages"),
        );
    }
}

fn check_extensions(config: &MachineConfig) -> Option<Problem> {
    let unknown = extensions::unknown(&config.spec.extensions);
    (!unknown.is_empty()).then(|| {
        Problem::new(
            "spec.extensions",
            format!("invalid extensions found: [{}]", unknown.join(" ")),
        )
        .with_hint(format!("supported extensions are {}", extensions::known_names()))
    })
}

fn ignition_problems(error: &ParseError, raw: &Value) -> Vec<Problem> {
    if !error.findings().is_empty() {
        return error
            .findings()
            .iter()
            .map(|finding| Problem::in_config(finding, raw))
            .collect();
    }
    let hint = "set ignition.version to 3.5.0, or to the version the config was written for";
    let path = if raw.is_object() {
        "spec.config.ignition.version"
    } else {
        "spec.config"
    };
    vec![Problem::new(path, error.to_string()).with_hint(hint)]
}

fn special_mode_bits(config: &Value) -> Vec<Problem> {
    let files = config.pointer("/storage/files").and_then(Value::as_array);
    let problem = |(index, file): (usize, &Value)| {
        let mode = file
            .get("mode")
            .and_then(Value::as_i64)
            .filter(|mode| *mode > HIGHEST_FILE_MODE)?;
        let path = file.get("path").and_then(Value::as_str).unwrap_or_default();
        let hint = octal_written_as_decimal(mode).map_or_else(
            || {
                "use a mode up to 0777 (511 in decimal); setuid, setgid and sticky bits are not allowed"
                    .to_owned()
            },
            |meant| {
                format!(
                    "modes are decimal here: if octal {mode} was meant, write {meant} (or 0{mode} in YAML)"
                )
            },
        );
        Some(
            Problem::new(
                format!("spec.config.storage.files[{index}].mode"),
                format!("invalid mode {} for {path}, cannot exceed 0777", go_octal(mode)),
            )
            .about(path)
            .with_hint(hint),
        )
    };
    files
        .into_iter()
        .flatten()
        .enumerate()
        .filter_map(problem)
        .collect()
}

/// Formats a mode like Go's `%#o`.
fn go_octal(mode: i64) -> String {
    format!("0{mode:o}")
}

/// Returns the mode that was probably intended: writing 644 for 0644 is a common mistake, which shows when the
/// decimal digits form an ordinary octal mode.
fn octal_written_as_decimal(mode: i64) -> Option<i64> {
    i64::from_str_radix(&mode.to_string(), 8)
        .ok()
        .filter(|meant| *meant <= HIGHEST_FILE_MODE)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn machine_config(spec: &Value) -> Arc<MachineConfig> {
        let config = serde_json::from_value(
            json!({"metadata": {"name": "50-x", "labels": {"role": "worker"}}, "spec": spec}),
        );
        Arc::new(config.unwrap())
    }

    fn texts(result: Result<ParsedConfig, InvalidObject>) -> Vec<String> {
        match result {
            Ok(_) => Vec::new(),
            Err(invalid) => invalid
                .problems
                .iter()
                .map(|p| format!("{}: {}", p.path, p.message))
                .collect(),
        }
    }

    #[test]
    fn all_problems_are_reported_at_once() {
        let config = machine_config(&json!({
            "kernelType": "turbo",
            "extensions": ["usbguard", "bogus"],
            "config": {"ignition": {"version": "3.5.0"}, "storage": {"files": [
                {"path": "/etc/fine", "contents": {"source": "data:,"}},
                {"path": "/etc/suid", "mode": 0o4755, "contents": {"source": "data:,"}},
            ]}},
        }));
        assert_eq!(
            texts(check(&config)),
            [
                "spec.kernelType: kernelType=turbo is invalid",
                "spec.config.storage.files[1].mode: invalid mode 04755 for /etc/suid, cannot exceed 0777",
                "spec.extensions: invalid extensions found: [bogus]",
            ]
        );
    }

    #[test]
    fn a_broken_document_does_not_hide_other_problems() {
        let config = machine_config(
            &json!({"kernelType": "turbo", "config": {"ignition": {"version": "3.5.0"}, "storage": {"files": [
                {"path": "relative", "contents": {"source": "data:,"}},
                {"path": "/etc/suid", "mode": 0o4755, "contents": {"source": "data:,"}},
            ]}}}),
        );
        let paths: Vec<_> = check(&config)
            .unwrap_err()
            .problems
            .into_iter()
            .map(|problem| problem.path)
            .collect();
        assert_eq!(
            paths,
            [
                "spec.kernelType",
                "spec.config.storage.files[0].path",
                "spec.config.storage.files[1].mode"
            ]
        );
    }

    #[test]
    fn a_decimal_mode_that_looks_octal_is_recognised() {
        let config = machine_config(
            &json!({"config": {"ignition": {"version": "3.5.0"}, "storage": {"files": [
                {"path": "/etc/x", "mode": 644, "contents": {"source": "data:,"}},
            ]}}}),
        );
        let invalid = check(&config).unwrap_err();
        assert!(
            invalid.to_string().contains("if octal 644 was meant, write 420"),
            "{invalid}"
        );
    }

    #[test]
    fn an_unknown_extension_without_a_config_is_refused_only_when_written() {
        let config = machine_config(&json!({"extensions": ["bogus"]}));
        assert_eq!(check(&config).unwrap().warnings.len(), 1);
        assert_eq!(admit(&config).unwrap_err().problems.len(), 1);
    }

    #[test]
    fn rendering_and_admission_reject_what_every_node_refuses() {
        let cases = [
            (
                "a remote file",
                json!({"config": {"ignition": {"version": "3.5.0"}, "storage": {"files": [{"path": "/a", "contents": {"source": "https://x.example/a"}}]}}}),
            ),
            (
                "a file in a directory of the kernel",
                json!({"config": {"ignition": {"version": "3.5.0"}, "storage": {"files": [{"path": "/proc/a"}]}}}),
            ),
            (
                "a unit whose name has a line break",
                json!({"config": {"ignition": {"version": "3.5.0"}, "systemd": {"units": [{"name": "a\nb.service"}]}}}),
            ),
            (
                "contents with another hash",
                json!({"config": {"ignition": {"version": "3.5.0"}, "storage": {"files": [{"path": "/a", "contents":
                    {"source": "data:,a", "verification": {"hash": format!("sha256-{}", "0".repeat(64))}}}]}}}),
            ),
            (
                "an appended file",
                json!({"config": {"ignition": {"version": "3.5.0"}, "storage": {"files": [{"path": "/a", "append": [{"source": "data:,a"}]}]}}}),
            ),
        ];
        for (name, spec) in cases {
            let config = machine_config(&spec);
            let rejected = check(&config).unwrap_err();
            assert_eq!(rejected.problems.len(), 1, "{name}");
            assert_eq!(admit(&config).unwrap_err(), rejected, "{name}");
            // A node that has such a config can still leave it.
            check_applicable(&config).unwrap();
        }
    }

    #[test]
    fn a_config_without_a_version_says_which_ones_there_are() {
        let config = machine_config(&json!({"config": {}}));
        assert_eq!(
            texts(check(&config)),
            [
                "spec.config.ignition.version: invalid version. Supported spec versions: 2.2,3.0,3.1,3.2,3.3,3.4,3.5"
            ]
        );
    }
}
