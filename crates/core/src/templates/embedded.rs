//! Our own base templates, compiled in.

pub(super) const FILES: &[(&str, &[u8])] = &[];
