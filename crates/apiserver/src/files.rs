//! Atomic writes of small private files: keys, tokens, the kubeconfig.

pub use mco_http::write_private;
