//! The brain.
