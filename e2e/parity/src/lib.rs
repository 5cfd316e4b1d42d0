//! One set of API transcripts, played against a real Kubernetes and against the embedded control plane.
//!
//! The real kube-apiserver is the reference: its responses are recorded as golden files, and every server must return
//! the same ones. This crate uses the API only as requests and responses; it must never import the embedded server's
//! types, or it could not disagree with it.

pub mod compare;
pub mod golden;
pub mod normalise;
pub mod play;
pub mod server;
pub mod shell;
pub mod suite;
pub mod transcript;
pub mod variables;
