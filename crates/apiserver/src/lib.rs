//! The embedded control plane.

pub mod kinds;
