//! Configures which images the container runtime never garbage-collects.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use mco_core::rollout::pinned_images_on_node::{CRIO_DROP_IN, crio_drop_in};
use mco_host::runtime::{Pinning, RuntimeError};
use mco_host::systemd::ServiceAction;
use mco_host::{Attributes, FsError, Machine, Root, RootedPath};

use super::ImagesError;
use crate::custody::Custody;
use crate::{live, paths};

const RUNTIME: &str = "crio.service";
const LARGEST: u64 = 16 << 20;

/// A release must not be overtaken by a pull that has begun before it.
static PINNING: Mutex<()> = Mutex::new(());

fn lock() -> MutexGuard<'static, ()> {
    PINNING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Pins exactly these images. Writes the file and reloads the runtime only on a change; returns whether there was one.
/// A reload that was pending when the daemon stopped is retried; after a boot none is pending.
pub fn pin(machine: &Machine, images: &BTreeSet<String>) -> Result<bool, ImagesError> {
    let _locked = lock();
    let root = &machine.root;
    if root.exists(&path(paths::RELEASED)?)? {
        return Ok(false);
    }
    if let Pinning::Done { changed } = machine.runtime.pin(root, images)? {
        return Ok(changed);
    }
    set_drop_in(machine, crio_drop_in(images).as_deref(), Custody::of(root)?)
}

/// Unpins all images of a machine that is released, and restores the file of its administrator.
pub fn unpin(machine: &Machine) -> Result<(), ImagesError> {
    let _locked = lock();
    match machine.runtime.pin(&machine.root, &BTreeSet::new()) {
        // Without a runtime nothing is pinned.
        Ok(_) | Err(RuntimeError::Absent(_)) => {}
        Err(error) => return Err(error.into()),
    }
    set_drop_in(machine, None, Custody::Adopted)?;
    Ok(())
}

/// Writes, restores or removes the file, and reloads the runtime if that changed anything.
fn set_drop_in(machine: &Machine, wanted: Option<&str>, custody: Custody) -> Result<bool, ImagesError> {
    let root = &machine.root;
    let (drop_in, owed) = (path(CRIO_DROP_IN)?, path(paths::CRIO_RELOAD_OWED)?);
    let present = root.read_text(&drop_in, LARGEST)?;
    let differs = match wanted {
        None if !custody.is_installed() => live::is_recorded(root, &drop_in)?,
        wanted => present.as_deref() != wanted,
    };
    if !differs && root.entry(&owed)?.is_none() {
        return Ok(false);
    }
    put(root, &owed, b"")?;
    match wanted {
        _ if !differs => {}
        Some(text) if custody.is_installed() => put(root, &drop_in, text.as_bytes())?,
        Some(text) => {
            live::write_recorded(root, &drop_in, text.as_bytes(), custody)?;
        }
        None if custody.is_installed() => {
            root.remove_file(&drop_in)?;
            root.sync_parent(&drop_in)?;
        }
        None => {
            live::restore_recorded(root, &drop_in)?;
        }
    }
    machine
        .services
        .perform(&ServiceAction::Reload(RUNTIME.to_owned()))?;
    root.remove_file(&owed)?;
    Ok(true)
}

fn path(path: &str) -> Result<RootedPath, FsError> {
    Ok(RootedPath::new(path)?)
}

fn put(root: &Root, path: &RootedPath, contents: &[u8]) -> Result<(), FsError> {
    if let Some(parent) = path.parent() {
        root.create_directories(&parent, Attributes::root(0o755))?;
    }
    root.write_atomically(path, Attributes::root(0o644), contents)
}
