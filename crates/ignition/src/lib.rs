//! The Ignition configuration model.
