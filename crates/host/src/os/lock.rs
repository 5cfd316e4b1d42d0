//! The lock of a staged deployment: while it exists, a shutdown does not finalize the deployment.

use super::{OsError, OsHold};
use crate::path::RootedPath;
use crate::root::{Attributes, FsError, Root};

/// Read by `ostree-finalize-staged.service`.
const LOCK: &str = "/run/ostree/staged-deployment-locked";

pub(super) fn set(root: &Root, hold: OsHold) -> Result<(), OsError> {
    let path = RootedPath::new(LOCK).map_err(FsError::from)?;
    match hold {
        OsHold::Locked => {
            if let Some(parent) = path.parent() {
                root.create_directories(&parent, Attributes::root(0o755))?;
            }
            root.write_atomically(&path, Attributes::root(0o644), b"")?;
        }
        OsHold::Released => {
            root.remove_file(&path)?;
        }
    }
    Ok(())
}
