//! Keeps the images of the node's PinnedImageSets on the machine, beside everything else the daemon does.
//!
//! It watches the sets, and the pools only as long as there is any set: a cluster that pins nothing costs one silent
//! watch. What goes wrong here never degrades the node's config, and a pull never holds up an update; both are told in
//! the node's `MachineConfigNode`.

mod facts;
mod keeper;
mod report;
mod sources;
mod voice;

pub(super) use facts::NodeFacts;
pub(super) use keeper::Keeper;
