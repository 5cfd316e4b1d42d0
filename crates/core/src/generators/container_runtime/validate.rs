//! Validation of ContainerRuntimeConfigs.

use mco_api::ContainerRuntimeConfig;
use mco_api::container_runtime_config::AdditionalStore;
use thiserror::Error;

use crate::generators::quantity::{Quantity, QuantityError};

const LOG_LEVELS: [&str; 7] = ["error", "fatal", "panic", "warn", "info", "debug", "trace"];
/// Minimum log size: CRI-O reads and writes logs in chunks of this size.
const SMALLEST_LOG: i128 = 8192;
/// Minimum number of processes with which a container starts.
const SMALLEST_PIDS_LIMIT: i64 = 20;

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ContainerRuntimeProblem {
    #[error("invalid PidsLimit {0}")]
    PidsLimit(i64),
    #[error("invalid LogLevel {0:?}, must be one of error, fatal, panic, warn, info, debug, or trace")]
    LogLevel(String),
    #[error("invalid LogSizeMax {0:?}, cannot be less than 8kB")]
    LogSizeMax(String),
    #[error("invalid overlaySize {0:?}, cannot be less than 0")]
    OverlaySize(String),
    #[error("invalid DefaultRuntime {0:?}, must be one of crun, runc")]
    DefaultRuntime(String),
    #[error("invalid {field}: path must not be empty")]
    EmptyPath { field: &'static str },
    #[error(
        "invalid {field} path {path:?}: must be an absolute path containing only alphanumeric characters, '/', '.', '_', and '-'"
    )]
    PathCharacters { field: &'static str, path: String },
    #[error("invalid {field} path {path:?}: must not contain consecutive forward slashes")]
    PathSlashes { field: &'static str, path: String },
    #[error("{field}: {source}")]
    NotAQuantity {
        field: &'static str,
        source: QuantityError,
    },
}

/// Validates the whole object and returns all problems.
pub fn validate(object: &ContainerRuntimeConfig) -> Result<(), Vec<ContainerRuntimeProblem>> {
    use ContainerRuntimeProblem::{DefaultRuntime, LogLevel, LogSizeMax, OverlaySize, PidsLimit};
    let wishes = &object.spec.container_runtime_config;
    let mut problems = Vec::new();
    if let Some(limit) = wishes
        .pids_limit
        .filter(|limit| *limit != 0 && *limit < SMALLEST_PIDS_LIMIT)
    {
        problems.push(PidsLimit(limit));
    }
    if !wishes.log_level.is_empty() && !LOG_LEVELS.contains(&wishes.log_level.as_str()) {
        problems.push(LogLevel(wishes.log_level.clone()));
    }
    let sizes = [
        ("logSizeMax", &wishes.log_size_max),
        ("overlaySize", &wishes.overlay_size),
    ];
    for (field, given) in sizes {
        let Some(given) = given else { continue };
        match Quantity::parse(&given.0) {
            Err(source) => problems.push(ContainerRuntimeProblem::NotAQuantity { field, source }),
            Ok(size) if field == "logSizeMax" && (1..=SMALLEST_LOG).contains(&size.value()) => {
                problems.push(LogSizeMax(size.canonical()));
            }
            Ok(size) if field == "overlaySize" && size.is_negative() => {
                problems.push(OverlaySize(size.canonical()));
            }
            Ok(_) => {}
        }
    }
    if !matches!(wishes.default_runtime.as_str(), "" | "crun" | "runc") {
        problems.push(DefaultRuntime(wishes.default_runtime.clone()));
    }
    let stores = [
        ("AdditionalLayerStores", &wishes.additional_layer_stores),
        ("AdditionalImageStores", &wishes.additional_image_stores),
        ("AdditionalArtifactStores", &wishes.additional_artifact_stores),
    ];
    for (field, stores) in stores {
        problems.extend(stores.iter().filter_map(|store| check_path(field, store)));
    }
    if problems.is_empty() {
        Ok(())
    } else {
        Err(problems)
    }
}

fn check_path(field: &'static str, store: &AdditionalStore) -> Option<ContainerRuntimeProblem> {
    let path = store.path.clone();
    if path.is_empty() {
        return Some(ContainerRuntimeProblem::EmptyPath { field });
    }
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-".contains(&byte);
    let rest = path.strip_prefix('/').unwrap_or_default();
    if rest.is_empty() || !rest.bytes().all(allowed) {
        return Some(ContainerRuntimeProblem::PathCharacters { field, path });
    }
    if path.contains("//") {
        return Some(ContainerRuntimeProblem::PathSlashes { field, path });
    }
    None
}
