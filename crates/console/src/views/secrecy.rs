//! Which file contents may be shown to somebody who asks for them.

use mco_core::config::parsed_config::ParsedConfig;

/// As the daemon has it for its journal: what everybody on the machine may read is no secret.
const READABLE_BY_ALL: i64 = 0o004;
const DEFAULT_MODE: i64 = 0o644;

/// Files whose contents are credentials whatever their mode says.
const CREDENTIALS: &[&str] = &[
    "/var/lib/kubelet/config.json",
    "/etc/kubernetes/kubeconfig",
    "/etc/shadow",
];
const MARKS: &[&str] = &["PRIVATE KEY-----", "\"auths\"", "client-key-data", "password="];

/// Why a file's contents stay hidden; `None` if they may be shown.
pub fn hidden(entry: &ParsedConfig, path: &str, text: &str) -> Option<&'static str> {
    let file = entry.ignition.storage.files.iter().find(|file| file.path == path);
    let mode = file.and_then(|file| file.mode).unwrap_or(DEFAULT_MODE);
    if file.is_some() && mode & READABLE_BY_ALL == 0 {
        return Some("Not everybody on the machine may read it, so it is not shown here.");
    }
    let secret = CREDENTIALS.contains(&path) || MARKS.iter().any(|mark| text.contains(mark));
    secret.then_some("It looks like a secret, so it is not shown here.")
}
