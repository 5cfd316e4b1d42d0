//! The words of the system: every label, annotation, finalizer, condition type and reason, once.
//! Modules are named after what the words are on. No behaviour beyond building and updating conditions.

pub mod annotations;
pub mod conditions;
pub mod labels;
pub mod topology;
