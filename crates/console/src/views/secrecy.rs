//! Decides which file contents may be shown on request.

use mco_core::config::parsed_config::ParsedConfig;

/// The same rule as in the daemon's journal: a world-readable file is not secret.
const READABLE_BY_ALL: i64 = 0o004;
const DEFAULT_MODE: i64 = 0o644;

/// Files with credentials, independent of their mode.
const CREDENTIALS: &[&str] = &[
    "/var/lib/kubelet/config.json",
    "/etc/kubernetes/kubeconfig",
    "/etc/shadow",
];
const MARKS: &[&str] = &["PRIVATE KEY-----", "\"auths\"", "client-key-data", "password="];

/// Returns why a file's contents are hidden, or `None` if they may be shown.
pub fn hidden(entry: &ParsedConfig, path: &str, text: &str) -> Option<&'static str> {
    let file = entry.ignition.storage.files.iter().find(|file| file.path == path);
    let mode = file.and_then(|file| file.mode).unwrap_or(DEFAULT_MODE);
    if file.is_some() && mode & READABLE_BY_ALL == 0 {
        return Some("It is not world-readable, so it is not shown here.");
    }
    let secret = CREDENTIALS.contains(&path) || MARKS.iter().any(|mark| text.contains(mark));
    secret.then_some("It may contain a secret, so it is not shown here.")
}
