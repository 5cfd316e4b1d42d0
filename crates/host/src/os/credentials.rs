//! Registry credentials and the proxy of the tools that pull OS images.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use super::OsError;
use crate::path::RootedPath;
use crate::root::{Attributes, FileKind, FsError, Root};

/// The credentials of the cluster, with those of its own registry. Synced from the cluster.
const MERGED_SECRET: &str = "/etc/mco/internal-registry-pull-secret.json";
const KUBELET_SECRET: &str = "/var/lib/kubelet/config.json";
/// Where rpm-ostree and bootc look. Below `/run`, so that nothing is left on the machine.
const OSTREE_SECRET: &str = "/run/ostree/auth.json";
const PROXY_FILE: &str = "/etc/mco/proxy.env";
const LARGEST_SECRET: u64 = 8 << 20;

/// Returns the file with the machine's registry credentials, if there is one. The merged one counts only if it is
/// complete: it is synced while the machine runs.
pub(super) fn secret(root: &Root) -> Result<Option<&'static str>, OsError> {
    let merged = root.read(
        &RootedPath::new(MERGED_SECRET).map_err(FsError::from)?,
        LARGEST_SECRET,
    )?;
    if merged.is_some_and(|bytes| serde_json::from_slice::<serde_json::Value>(&bytes).is_ok()) {
        return Ok(Some(MERGED_SECRET));
    }
    let kubelet = RootedPath::new(KUBELET_SECRET).map_err(FsError::from)?;
    Ok(root.exists(&kubelet)?.then_some(KUBELET_SECRET))
}

/// Links the credentials to where the OS tools look for them. A file that an administrator has put there stays.
pub(super) fn link(root: &Root) -> Result<(), OsError> {
    let path = RootedPath::new(OSTREE_SECRET).map_err(FsError::from)?;
    let entry = root.entry(&path)?;
    if entry.is_some_and(|entry| entry.kind != FileKind::Symlink) {
        return Ok(());
    }
    let Some(secret) = secret(root)? else {
        return Ok(());
    };
    if root.read_link(&path)?.as_deref() == Some(secret) {
        return Ok(());
    }
    if let Some(parent) = path.parent() {
        root.create_directories(&parent, Attributes::root(0o755))?;
    }
    let temporary = Root::temporary_of(&path)?;
    root.remove_file(&temporary)?;
    root.symlink(secret, &temporary)?;
    Ok(root.rename(&temporary, &path)?)
}

/// Returns whether the cluster has a proxy.
pub(super) fn has_proxy(root: &Root) -> Result<bool, OsError> {
    Ok(root.exists(&RootedPath::new(PROXY_FILE).map_err(FsError::from)?)?)
}

/// Returns the environment of a process that pulls images itself.
pub(super) fn proxy(root: &Root) -> Result<Vec<(String, String)>, OsError> {
    let path = RootedPath::new(PROXY_FILE).map_err(FsError::from)?;
    let text = root.read_text(&path, 1 << 20)?.unwrap_or_default();
    let variable = |line: &str| {
        let (name, value) = line.trim().split_once('=')?;
        let known = matches!(name, "HTTP_PROXY" | "HTTPS_PROXY" | "NO_PROXY");
        known.then(|| (name.to_owned(), value.trim_matches('"').to_owned()))
    };
    Ok(text.lines().filter_map(variable).collect())
}

/// Returns the drop-in for services that pull images, if the cluster has a proxy: `-` because the proxy may be removed
/// later. It differs when the proxy changes, because a running service has to be restarted then.
pub(super) fn proxy_drop_in(root: &Root) -> Result<Option<String>, OsError> {
    let path = RootedPath::new(PROXY_FILE).map_err(FsError::from)?;
    let contents = root.read(&path, 1 << 20)?;
    Ok(contents.map(|contents| {
        let mut hasher = DefaultHasher::new();
        contents.hash(&mut hasher);
        format!(
            "# {:016x}\n[Service]\nEnvironmentFile=-{PROXY_FILE}\n",
            hasher.finish()
        )
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::Ownership;

    fn machine() -> (tempfile::TempDir, Root) {
        let directory = tempfile::tempdir().unwrap();
        for path in ["etc/mco", "var/lib/kubelet", "run"] {
            std::fs::create_dir_all(directory.path().join(path)).unwrap();
        }
        let root = Root::open(directory.path(), Ownership::Recorded).unwrap();
        (directory, root)
    }

    #[test]
    fn the_merged_secret_is_used_once_it_is_complete() {
        let (directory, root) = machine();
        let linked = || {
            link(&root).unwrap();
            root.read_link(&RootedPath::new(OSTREE_SECRET).unwrap()).unwrap()
        };
        assert_eq!(linked(), None, "there are no credentials yet");
        std::fs::write(directory.path().join("var/lib/kubelet/config.json"), "{}").unwrap();
        assert_eq!(linked().as_deref(), Some(KUBELET_SECRET));
        let merged = directory
            .path()
            .join("etc/mco/internal-registry-pull-secret.json");
        std::fs::write(&merged, "{\"auths\":").unwrap();
        assert_eq!(linked().as_deref(), Some(KUBELET_SECRET), "cut off");
        std::fs::write(&merged, "{\"auths\":{}}").unwrap();
        assert_eq!(linked().as_deref(), Some(MERGED_SECRET));
        assert_eq!(linked().as_deref(), Some(MERGED_SECRET));
    }

    #[test]
    fn an_administrators_own_credentials_stay() {
        let (directory, root) = machine();
        std::fs::write(directory.path().join("var/lib/kubelet/config.json"), "{}").unwrap();
        std::fs::create_dir(directory.path().join("run/ostree")).unwrap();
        let own = directory.path().join("run/ostree/auth.json");
        std::fs::write(&own, "{\"auths\":{\"mine\":{}}}").unwrap();
        link(&root).unwrap();
        assert_eq!(std::fs::read_to_string(own).unwrap(), "{\"auths\":{\"mine\":{}}}");
    }

    #[test]
    fn the_proxy_is_read_from_the_clusters_file() {
        let (directory, root) = machine();
        assert!(proxy(&root).unwrap().is_empty() && !has_proxy(&root).unwrap());
        let text = "HTTP_PROXY=http://p:1\nNO_PROXY=\".cluster\"\nPATH=/evil\n# x\n";
        std::fs::write(directory.path().join("etc/mco/proxy.env"), text).unwrap();
        let variable = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(
            proxy(&root).unwrap(),
            [
                variable("HTTP_PROXY", "http://p:1"),
                variable("NO_PROXY", ".cluster")
            ]
        );
        assert!(has_proxy(&root).unwrap());
    }
}
