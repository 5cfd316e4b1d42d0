//! The brain: what a pool's machines should look like, and what it costs to get there. Pure functions only.

pub mod goyaml;
