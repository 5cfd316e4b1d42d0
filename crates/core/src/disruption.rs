//! disruption
