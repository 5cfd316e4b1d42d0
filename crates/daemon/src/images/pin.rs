//! Configures which images the container runtime never garbage-collects.

use std::collections::BTreeSet;

use mco_core::rollout::pinned_images_on_node::{CRIO_DROP_IN, crio_drop_in};
use mco_host::runtime::Pinning;
use mco_host::systemd::ServiceAction;
use mco_host::{Attributes, FsError, Machine, Root, RootedPath};

use super::ImagesError;
use crate::paths;

const RUNTIME: &str = "crio.service";
const LARGEST: u64 = 16 << 20;

/// Pins exactly these images. Writes the file and reloads the runtime only on a change; returns whether there was one.
/// A reload that was pending when the daemon stopped is retried; after a boot none is pending.
pub fn pin(machine: &Machine, images: &BTreeSet<String>) -> Result<bool, ImagesError> {
    let root = &machine.root;
    if let Pinning::Done { changed } = machine.runtime.pin(root, images)? {
        return Ok(changed);
    }
    let path = RootedPath::new(CRIO_DROP_IN).map_err(FsError::from)?;
    let owed = RootedPath::new(paths::CRIO_RELOAD_OWED).map_err(FsError::from)?;
    let wanted = crio_drop_in(images);
    let differs = root.read_text(&path, LARGEST)? != wanted;
    if !differs && root.entry(&owed)?.is_none() {
        return Ok(false);
    }
    put(root, &owed, b"")?;
    if differs {
        if let Some(text) = &wanted {
            put(root, &path, text.as_bytes())?;
        } else {
            root.remove_file(&path)?;
            root.sync_parent(&path)?;
        }
    }
    machine
        .services
        .perform(&ServiceAction::Reload(RUNTIME.to_owned()))?;
    root.remove_file(&owed)?;
    Ok(true)
}

fn put(root: &Root, path: &RootedPath, contents: &[u8]) -> Result<(), FsError> {
    if let Some(parent) = path.parent() {
        root.create_directories(&parent, Attributes::root(0o755))?;
    }
    root.write_atomically(path, Attributes::root(0o644), contents)
}
