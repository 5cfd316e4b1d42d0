//! The Ignition configuration model: strict parsing of every spec version in use, validation, merge, conversion.
//!
//! Pure functions over values: no I/O, no clock, no knowledge of Kubernetes or of MachineConfigs. Nothing here panics on
//! any input, and the work grows with the input, not with its square.
//!
//! ```
//! use mco_ignition::{SpecVersion, convert, merge, parse, validate};
//! use serde_json::json;
//!
//! let base = parse(&json!({
//!     "ignition": {"version": "3.2.0"},
//!     "storage": {"files": [{"path": "/etc/motd", "contents": {"source": "data:,hello"}, "mode": 420}]},
//! }))?;
//! let change = parse(&json!({
//!     "ignition": {"version": "3.5.0"},
//!     "storage": {"files": [{"path": "/etc/motd", "mode": 384}]},
//! }))?;
//! let merged = merge(base.config, change.config, &mut ());
//! assert_eq!(merged.storage.files[0].mode, Some(384));
//! assert!(validate(&merged).is_valid());
//! assert_eq!(convert::down(&merged, SpecVersion::V3_1)?["ignition"]["version"], "3.1.0");
//!
//! let error = parse(&json!({"ignition": {"version": "3.5.0"}, "storage": {"files": [{"path": "etc/motd"}]}})).unwrap_err();
//! let finding = &error.findings()[0];
//! assert_eq!(finding.to_string(), "storage.files[0].path: path not absolute");
//! assert_eq!(finding.hint.as_deref(), Some("start the path with \"/\""));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod convert;
mod finding;
pub mod merge;
pub mod model;
pub mod parse;
mod place;
pub mod resource;
mod v2;
pub mod validate;
mod version;

pub use finding::{Finding, FindingReport};
pub use merge::{KernelArgumentList, MergeChange, MergeEvent, MergeObserver, MergedItem, merge};
pub use model::Config;
pub use parse::{ParseError, Parsed, parse, parse_bytes, parse_unvalidated};
pub use validate::validate;
pub use version::SpecVersion;
