//! May a pool go from the config its machines have to a newly rendered one, and if not, which MachineConfig is to blame?

use mco_api::MachineConfig;
use thiserror::Error;

use crate::problem::Problem;
use crate::reconcilable::{self, Overrides, Side};
use crate::render::Rendered;
use crate::validate::{self, CheckedConfig};

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum TransitionError {
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

/// Whether running machines can follow from `current` to `rendered`. A current config that cannot be read stands in
/// nobody's way: refusing would keep a pool on it for ever.
pub fn check(
    current: &MachineConfig,
    rendered: &Rendered,
    sources: &[&CheckedConfig<'_>],
    overrides: Overrides,
) -> Result<(), TransitionError> {
    let Ok(ignition) = validate::check_applicable(current) else {
        return Ok(());
    };
    let old = Side {
        ignition: &ignition,
        fips: current.spec.fips,
    };
    let new = Side {
        ignition: &rendered.ignition,
        fips: rendered.config.spec.fips,
    };
    let problems = reconcilable::obstacles(old, new, overrides);
    let Some(first) = problems.first() else {
        return Ok(());
    };
    let name = current.metadata.name.clone().unwrap_or_default();
    let blamed = sources.iter().rev().find(|source| {
        let Some(ignition) = &source.ignition else {
            return false;
        };
        let alone = Side {
            ignition,
            fips: source.source.spec.fips,
        };
        // A MachineConfig that brings nothing to the section differs from the current config, and is not to blame.
        let brings = |problem: &Problem| {
            problem.message == first.message && !matters_only_by_absence(&problem.path, source.source)
        };
        reconcilable::obstacles(old, alone, overrides).iter().any(brings)
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

/// Whether a MachineConfig has nothing at the place of a problem.
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
