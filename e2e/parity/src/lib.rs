//! One set of API transcripts, played against a real Kubernetes and against the embedded control plane.
//!
//! The real kube-apiserver is the reference: its answers are recorded as golden files, and every server must give the
//! same ones. This crate knows the API only as requests and answers; it must never import the embedded server's types,
//! or it would stop being able to disagree with it.

pub mod compare;
pub mod golden;
pub mod normalise;
pub mod play;
pub mod server;
pub mod shell;
pub mod suite;
pub mod transcript;
pub mod variables;
