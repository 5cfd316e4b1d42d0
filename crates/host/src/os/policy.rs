//! `policy.json`: which images may be pulled.
//!
//! An image in the local container storage was verified when it was pulled. Where the policy rejects that storage as a
//! source, a copy of the policy that accepts this one image is bound into rpm-ostree's service while it is staged.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::OsError;
use super::podman::{LocalImage, Podman};
use crate::command::{Commands, succeed};
use crate::path::RootedPath;
use crate::root::{Attributes, FsError, Root};

const POLICY: &str = "/etc/containers/policy.json";
const TEMPORARY: &str = "/run/tmp-rpm-ostree-policy.json";
const DROP_IN_DIRECTORY: &str = "/run/systemd/system/rpm-ostreed.service.d";
const DROP_IN: &str = "/run/systemd/system/rpm-ostreed.service.d/temporal-policy-binding.conf";
const ACCEPT: &str = "insecureAcceptAnything";

/// A policy that is in force until this value is dropped.
#[derive(Debug)]
pub(super) struct TemporaryPolicy<'a> {
    root: &'a Root,
    commands: Arc<dyn Commands>,
}

impl Drop for TemporaryPolicy<'_> {
    fn drop(&mut self) {
        if let Err(error) = remove(self.root, self.commands.as_ref()) {
            tracing::warn!(%error, "could not remove the temporary signature policy; the next start does");
        }
    }
}

/// Puts a policy in force that accepts one local image; `None` if the machine's own policy accepts it.
pub(super) fn accept_local<'a>(
    root: &'a Root,
    commands: &Arc<dyn Commands>,
    image: &LocalImage,
) -> Result<Option<TemporaryPolicy<'a>>, OsError> {
    let Some(policy) = read(root)? else {
        return Ok(None);
    };
    if accepts_storage(&policy) {
        return Ok(None);
    }
    let store = Podman::new(Arc::clone(commands)).store()?;
    let scope = format!(
        "[{}@{}]{}@{}",
        store.driver, store.root, image.reference, image.id
    );
    let text = serde_json::to_vec(&with_accepted(policy, &scope)).unwrap_or_default();
    let binding = format!("[Service]\nBindReadOnlyPaths={TEMPORARY}:{POLICY}\n");
    let guard = TemporaryPolicy {
        root,
        commands: Arc::clone(commands),
    };
    let path = |path| RootedPath::new(path).map_err(FsError::from);
    root.create_directories(&path(DROP_IN_DIRECTORY)?, Attributes::root(0o755))?;
    root.write_atomically(&path(TEMPORARY)?, Attributes::root(0o644), &text)?;
    root.write_atomically(&path(DROP_IN)?, Attributes::root(0o644), binding.as_bytes())?;
    reload(commands.as_ref())?;
    Ok(Some(guard))
}

/// Removes a temporary policy, also one that an interrupted change has left.
pub(super) fn remove(root: &Root, commands: &dyn Commands) -> Result<(), OsError> {
    let path = |path| RootedPath::new(path).map_err(FsError::from);
    let bound = root.remove_file(&path(DROP_IN)?)?;
    let written = root.remove_file(&path(TEMPORARY)?)?;
    if bound || written {
        reload(commands)?;
    }
    Ok(())
}

/// Returns an error if the machine's policy rejects every image of this name. Signatures are verified by the pull.
pub(super) fn check(root: &Root, image: &str) -> Result<(), OsError> {
    let Some(policy) = read(root)? else {
        return Ok(());
    };
    let rejects = requirements(&policy, image)
        .and_then(Value::as_array)
        .is_some_and(|list| list.iter().any(|one| one["type"] == "reject"));
    if rejects {
        return Err(OsError::Rejected {
            image: image.to_owned(),
            why: format!("the signature policy {POLICY} rejects it; add its registry to the policy"),
        });
    }
    Ok(())
}

fn reload(commands: &dyn Commands) -> Result<(), OsError> {
    succeed(commands, "systemctl", &["daemon-reload"])?;
    succeed(commands, "systemctl", &["try-restart", "rpm-ostreed.service"])?;
    Ok(())
}

fn read(root: &Root) -> Result<Option<Value>, OsError> {
    let bytes = root.read(&RootedPath::new(POLICY).map_err(FsError::from)?, 16 << 20)?;
    // The tools report a malformed policy better than we can.
    Ok(bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok()))
}

fn accepts_storage(policy: &Value) -> bool {
    let default = policy["default"].as_array();
    let accepts = default.is_some_and(|list| list.len() == 1 && list.iter().all(|one| one["type"] == ACCEPT));
    accepts && policy["transports"]["containers-storage"].is_null()
}

fn with_accepted(mut policy: Value, scope: &str) -> Value {
    let object = |value: &mut Value| {
        if !value.is_object() {
            *value = Value::Object(Map::new());
        }
    };
    let transports = &mut policy["transports"];
    object(transports);
    let storage = &mut transports["containers-storage"];
    object(storage);
    storage[scope] = json!([{"type": ACCEPT}]);
    policy
}

/// Returns the requirements for an image: those of the most specific scope, then of the transport, then the default.
fn requirements<'p>(policy: &'p Value, image: &str) -> Option<&'p Value> {
    let scopes = policy["transports"]["docker"].as_object();
    let find = |scope: &str| scopes.and_then(|scopes| scopes.get(scope));
    let repository = super::image::repository(image);
    let mut candidates = vec![image.to_owned(), repository.to_owned()];
    let mut above = repository;
    while let Some((parent, _)) = above.rsplit_once('/') {
        candidates.push(parent.to_owned());
        above = parent;
    }
    let mut host = above.split(':').next().unwrap_or_default();
    while let Some((_, domain)) = host.split_once('.') {
        candidates.push(format!("*.{domain}"));
        host = domain;
    }
    candidates.push(String::new());
    candidates
        .iter()
        .find_map(|scope| find(scope))
        .or_else(|| policy.get("default"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::Ownership;

    #[test]
    fn the_most_specific_scope_decides() {
        let policy = json!({
            "default": [{"type": "reject"}],
            "transports": {"docker": {
                "quay.io/openshift": [{"type": ACCEPT}],
                "quay.io/openshift/bad": [{"type": "reject"}],
                "*.example.com": [{"type": "signedBy"}],
                "plain.example:5000": [{"type": ACCEPT}],
            }},
        });
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(directory.path().join("etc/containers")).unwrap();
        std::fs::write(
            directory.path().join("etc/containers/policy.json"),
            policy.to_string(),
        )
        .unwrap();
        let root = Root::open(directory.path(), Ownership::Recorded).unwrap();
        for (image, allowed) in [
            ("quay.io/openshift/os@sha256:1", true),
            ("quay.io/openshift/bad:1", false),
            ("quay.io/other/os:1", false),
            ("registry.example.com/os:1", true),
            ("plain.example:5000/os:1", true),
            ("unknown.example/os:1", false),
        ] {
            assert_eq!(check(&root, image).is_ok(), allowed, "{image}");
        }
    }

    #[test]
    fn a_copy_of_the_policy_accepts_one_image_more() {
        let strict = json!({"default": [{"type": "reject"}], "transports": {"docker": {"a": []}}});
        assert!(!accepts_storage(&strict));
        let open = json!({"default": [{"type": ACCEPT}], "transports": {"docker-daemon": {}}});
        assert!(accepts_storage(&open));
        let closed = json!({"default": [{"type": ACCEPT}], "transports": {"containers-storage": {"": []}}});
        assert!(!accepts_storage(&closed));
        let copy = with_accepted(strict, "[overlay@/s]a@sha256:1@id");
        assert_eq!(copy["transports"]["docker"]["a"], json!([]));
        let storage = &copy["transports"]["containers-storage"]["[overlay@/s]a@sha256:1@id"];
        assert_eq!(*storage, json!([{"type": ACCEPT}]));
        assert_eq!(
            with_accepted(json!({"default": []}), "x")["transports"]["containers-storage"]["x"][0]["type"],
            ACCEPT
        );
    }
}
