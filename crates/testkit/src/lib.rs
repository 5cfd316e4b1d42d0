//! Test-only helpers shared by every crate.

#![allow(clippy::print_stderr, reason = "tests print notes")]

pub mod metrics;
pub mod os_double;

use std::path::{Path, PathBuf};

/// Returns the root of this repository, for tests that read examples, manifests or the workspace's own files.
pub fn repository_root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns a file or directory of the shared reference data beside a developer's checkout.
///
/// `None` on a user's machine, where that data does not exist; the caller's test then covers only the project's own
/// cases, and this function prints a note. `MCO_REFERENCE_DATA` names another directory that has it, and its absence is
/// then an error.
///
/// # Panics
///
/// If the directory that `MCO_REFERENCE_DATA` names does not have the data.
pub fn reference_data(relative: &str) -> Option<PathBuf> {
    let directory = std::env::var_os("MCO_REFERENCE_DATA");
    let beside = || repository_root().join("../shared");
    let path = directory
        .as_ref()
        .map_or_else(beside, PathBuf::from)
        .join(relative);
    if path.exists() {
        return Some(path);
    }
    assert!(directory.is_none(), "MCO_REFERENCE_DATA has no {relative:?}");
    eprintln!(
        "note: reference data {relative:?} is not beside this checkout; only the project's own cases run"
    );
    None
}
