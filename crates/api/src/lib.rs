//! Resource types.
