//! The vocabulary of the system: every label, annotation, finalizer, condition type and reason, defined once. Modules
//! are named after the kind of word, their submodules after the object it is used on. No behaviour beyond building and
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
