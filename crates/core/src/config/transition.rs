//! Whether a pool can change from its current config to a newly rendered one, and if not, which MachineConfig causes
//! it.

use mco_api::MachineConfig;
use thiserror::Error;

use crate::config::merge::SourcedProblem;
use crate::config::parsed_config::ParsedConfig;
use crate::config::problem::Problem;
use crate::config::reconcilable::{self, Overrides};
use crate::config::render::Rendered;

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum TransitionError {
    #[error("{}", lines(.0))]
    Contradiction(Vec<SourcedProblem>),
    #[error("reconciliation failed between current config {current:?} and base config {base:?}: {reason}")]
    Blamed {
        current: String,
        base: String,
        reason: String,
    },
    #[error(
        "render reconciliation error: {reason}; component errors: no single MachineConfig causes it (current config \
         {current:?})"
    )]
    Unblamed { current: String, reason: String },
}

fn lines(problems: &[SourcedProblem]) -> String {
    let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
    lines.join("\n")
}

/// Checks that running nodes can change from `current` to `rendered`.
pub fn check(
    current: &ParsedConfig,
    rendered: &Rendered,
    sources: &[&ParsedConfig],
    overrides: Overrides,
) -> Result<(), TransitionError> {
    if !rendered.contradictions.is_empty() {
        return Err(TransitionError::Contradiction(rendered.contradictions.clone()));
    }
    let problems = reconcilable::obstacles(current, &rendered.config, overrides);
    let Some(first) = problems.first() else {
        return Ok(());
    };
    let name = current.name().to_owned();
    let blamed = sources.iter().rev().find(|source| {
        // A MachineConfig without the section also differs from the current config, but is not the cause.
        let brings = |problem: &Problem| {
            problem.message == first.message && !matters_only_by_absence(&problem.path, &source.object)
        };
        source.has_ignition()
            && reconcilable::obstacles(current, source, overrides)
                .iter()
                .any(brings)
    });
    let reason = problems
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join("; ");
    Err(match blamed {
        Some(source) => TransitionError::Blamed {
            current: name,
            base: source.name().to_owned(),
            reason,
        },
        None => TransitionError::Unblamed {
            current: name,
            reason,
        },
    })
}

/// Whether a MachineConfig has no value at the path of a problem.
fn matters_only_by_absence(path: &str, config: &MachineConfig) -> bool {
    let Some(rest) = path.strip_prefix("spec.config.") else {
        return path == "spec.fips" && !config.spec.fips;
    };
    let section = rest.split('[').next().unwrap_or(rest);
    let pointer = format!("/{}", section.replace('.', "/"));
    let found = config
        .spec
        .config
        .as_ref()
        .and_then(|config| config.pointer(&pointer));
    found.is_none_or(|value| value.is_null() || value.as_array().is_some_and(Vec::is_empty))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use mco_api::MachineConfigPool;
    use serde_json::{Value, json};

    use super::*;
    use crate::config::merge::DefaultImages;
    use crate::config::render::{self, RenderIdentity};
    use crate::config::validate;

    fn config(name: &str, spec: &Value) -> MachineConfig {
        serde_json::from_value(json!({
            "metadata": {"name": name, "labels": {"machineconfiguration.openshift.io/role": "worker"}},
            "spec": spec,
        }))
        .unwrap()
    }

    fn go(from: &MachineConfig, to: &[MachineConfig], overrides: Overrides) -> Result<(), TransitionError> {
        let pool = MachineConfigPool::new("worker", serde_json::from_value(json!({})).unwrap());
        let parsed: Vec<_> = to
            .iter()
            .map(|config| validate::check(&Arc::new(config.clone())).unwrap())
            .collect();
        let sources: Vec<&ParsedConfig> = parsed.iter().collect();
        let rendered = render::render(
            &pool,
            &sources,
            DefaultImages::default(),
            RenderIdentity::default(),
        )
        .unwrap();
        check(
            &ParsedConfig::applicable(from.clone()).unwrap(),
            &rendered,
            &sources,
            overrides,
        )
    }

    fn ignition(storage: &Value) -> Value {
        json!({"config": {"ignition": {"version": "3.4.0"}, "storage": storage}})
    }

    #[test]
    fn the_config_with_an_irreconcilable_change_is_named() {
        let file = || ignition(&json!({"files": [{"path": "/etc/a", "contents": {"source": "data:,a"}}]}));
        let directory = || ignition(&json!({"directories": [{"path": "/etc/d"}]}));
        let base = config("00-base", &file());
        let with_directory = [config("00-base", &file()), config("50-dir", &directory())];
        let error = go(
            &config("rendered-1", &file()),
            &with_directory,
            Overrides::default(),
        )
        .unwrap_err();
        assert_eq!(
            error.to_string().lines().next().unwrap(),
            "reconciliation failed between current config \"rendered-1\" and base config \"50-dir\": \
             spec.config.storage.directories: ignition directories section contains changes"
        );
        assert_eq!(
            go(&config("rendered-1", &json!({})), &[base], Overrides::default()),
            Ok(())
        );
    }

    #[test]
    fn a_section_that_is_removed_is_blamed_on_no_machine_config() {
        let raid = ignition(
            &json!({"raid": [{"name": "md0", "level": "raid1", "devices": ["/dev/sda", "/dev/sdb"]}]}),
        );
        let plain = || [config("00-base", &json!({"kernelArguments": ["a"]}))];
        let error = go(&config("rendered-1", &raid), &plain(), Overrides::default()).unwrap_err();
        assert!(matches!(error, TransitionError::Unblamed { .. }), "{error}");
        let accepted = Overrides {
            raid: true,
            ..Overrides::default()
        };
        assert_eq!(go(&config("rendered-1", &raid), &plain(), accepted), Ok(()));
    }

    #[test]
    fn configs_that_contradict_each_other_were_not_even_rendered() {
        let owned = |name: &str, user: &Value| {
            let files = json!([{"path": "/etc/x", "contents": {"source": "data:,x"}, "user": user}]);
            config(
                name,
                &json!({"config": {"ignition": {"version": "3.5.0"}, "storage": {"files": files}}}),
            )
        };
        let to = [
            owned("10-a", &json!({"id": 0})),
            owned("20-b", &json!({"name": "core"})),
        ];
        let from = config(
            "rendered-worker-0",
            &json!({"config": {"ignition": {"version": "3.5.0"}}}),
        );
        let error = go(&from, &to, Overrides::default()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "MachineConfigs \"10-a\" and \"20-b\": spec.config.storage.files[0].user (\"/etc/x\"): merged config is not valid: cannot set both id and name\n  hint: keep either id or name"
        );
    }
}
