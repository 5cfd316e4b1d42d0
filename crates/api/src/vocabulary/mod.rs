//! The words of the system: every label, annotation, finalizer, condition type and reason, once.
//! Modules are named after what a word is, their submodules after what it is on. No behaviour beyond building and
//! updating conditions.

pub mod annotations;
pub mod conditions;
pub mod events;
pub mod finalizers;
pub mod labels;
pub mod names;
pub mod node_state;
pub mod reasons;
pub mod taints;
pub mod topology;
