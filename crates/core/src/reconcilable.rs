//! reconcilable
