//! Pulls and pins the images of the node's PinnedImageSets, independently of config updates.
//!
//! It watches the sets, and the pools only while there is a set: a cluster that pins nothing costs one idle watch. A
//! failure here never degrades the node's config, and a pull never delays an update; both are reported in the node's
//! `MachineConfigNode`.

mod facts;
mod puller;
mod report;
mod sources;
mod status;

pub(super) use facts::NodeFacts;
pub(super) use puller::Keeper;
