//! What a machine keeps about its membership: two files that nobody but root can read.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use mco_host::{Attributes, FsError, Root, RootedPath};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::paths;

const LARGEST: u64 = 1 << 20;
const PRIVATE: u32 = 0o600;

/// Who a machine is in its cluster.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Membership {
    pub server: String,
    pub node: String,
    /// Made by the machine itself and kept before it is ever sent, so that a join can be repeated.
    pub(super) credential: String,
    /// None until the server has said yes.
    pub pool: Option<String>,
}

/// Keeps the credential out of logs.
impl std::fmt::Debug for Membership {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Membership")
            .field("server", &self.server)
            .field("node", &self.node)
            .field("pool", &self.pool)
            .finish_non_exhaustive()
    }
}

#[derive(Debug, Error)]
pub enum RecordError {
    #[error(transparent)]
    Fs(#[from] FsError),
    #[error("{path} is damaged: {source}; remove it and join again", path = paths::MEMBERSHIP)]
    Damaged { source: serde_json::Error },
    #[error("there is no randomness for a credential: {0}")]
    Random(getrandom::Error),
}

impl Membership {
    /// What the machine has noted; none if it never asked to join.
    pub fn read(root: &Root) -> Result<Option<Self>, RecordError> {
        let bytes = root.read(
            &RootedPath::new(paths::MEMBERSHIP).map_err(FsError::from)?,
            LARGEST,
        )?;
        bytes
            .map(|bytes| serde_json::from_slice(&bytes).map_err(|source| RecordError::Damaged { source }))
            .transpose()
    }

    /// Whether the machine was let in there under this name.
    pub fn is_complete(&self, server: &str, node: &str) -> bool {
        self.pool.is_some() && self.server == server.trim_end_matches('/') && self.node == node
    }

    /// The note of a machine that is about to ask; one that has asked this before goes on with the credential it has.
    pub(super) fn begin(root: &Root, server: &str, node: &str) -> Result<Self, RecordError> {
        if let Some(earlier) = Self::read(root)?
            && earlier.server == server
            && earlier.node == node
        {
            return Ok(earlier);
        }
        let mut random = [0; 32];
        getrandom::fill(&mut random).map_err(RecordError::Random)?;
        let new = Self {
            server: server.to_owned(),
            node: node.to_owned(),
            credential: URL_SAFE_NO_PAD.encode(random),
            pool: None,
        };
        new.write(root)?;
        Ok(new)
    }

    /// The credentials first: a machine that says it has joined must be able to show it.
    pub(super) fn complete(
        mut self,
        root: &Root,
        pool: String,
        authority: &str,
    ) -> Result<Self, RecordError> {
        write_private(
            root,
            paths::MEMBER_KUBECONFIG,
            self.kubeconfig(authority).as_bytes(),
        )?;
        self.pool = Some(pool);
        self.write(root)?;
        Ok(self)
    }

    fn write(&self, root: &Root) -> Result<(), RecordError> {
        let text = serde_json::to_vec(self).map_err(|source| RecordError::Damaged { source })?;
        Ok(write_private(root, paths::MEMBERSHIP, &text)?)
    }

    fn kubeconfig(&self, authority: &str) -> String {
        let (server, node, credential) = (&self.server, &self.node, &self.credential);
        let authority = STANDARD.encode(authority);
        format!(
            "apiVersion: v1\nkind: Config\nclusters:\n- name: mco\n  cluster:\n    server: {server}\n    \
             certificate-authority-data: {authority}\nusers:\n- name: system:node:{node}\n  user:\n    token: {credential}\n\
             contexts:\n- name: mco\n  context:\n    cluster: mco\n    user: system:node:{node}\ncurrent-context: mco\n"
        )
    }
}

/// The kubeconfig of a machine that has joined.
pub fn kubeconfig(root: &Root) -> Result<Option<String>, FsError> {
    root.read_text(&RootedPath::new(paths::MEMBER_KUBECONFIG)?, LARGEST)
}

fn write_private(root: &Root, path: &str, contents: &[u8]) -> Result<(), FsError> {
    let path = RootedPath::new(path)?;
    if let Some(parent) = path.parent() {
        root.create_directories(&parent, Attributes::root(0o755))?;
    }
    root.write_atomically(&path, Attributes::root(PRIVATE), contents)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use mco_host::Ownership;

    use super::*;

    #[test]
    fn asking_again_uses_the_same_credential_and_asking_elsewhere_another() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::open(directory.path(), Ownership::Recorded).unwrap();
        assert_eq!(Membership::read(&root).unwrap(), None);
        let first = Membership::begin(&root, "https://one", "a").unwrap();
        assert_eq!(Membership::begin(&root, "https://one", "a").unwrap(), first);
        let joined = first.clone().complete(&root, "worker".to_owned(), "CA").unwrap();
        assert_eq!(Membership::begin(&root, "https://one", "a").unwrap(), joined);
        assert!(!format!("{joined:?}").contains(&joined.credential));
        for path in [paths::MEMBERSHIP, paths::MEMBER_KUBECONFIG] {
            let file = directory.path().join(path.trim_start_matches('/'));
            assert_eq!(
                file.metadata().unwrap().permissions().mode() & 0o777,
                0o600,
                "{path}"
            );
        }
        assert!(kubeconfig(&root).unwrap().unwrap().contains(&first.credential));
        let other = Membership::begin(&root, "https://one", "b").unwrap();
        assert_ne!(other.credential, first.credential);
        assert_eq!(other.pool, None);
    }
}
