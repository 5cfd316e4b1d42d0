//! A daemon's drain request: `drain-<config>` or `uncordon-<config>`.

use mco_api::vocabulary::annotations::node::drain;
use thiserror::Error;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DrainVerb {
    Drain,
    Uncordon,
}

#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "node {node}: cannot read the drain request {request:?}: it starts with neither \"drain-\" nor \"uncordon-\""
)]
pub struct RequestError {
    pub node: String,
    pub request: String,
}

impl DrainVerb {
    /// Parses the verb, which is the text before the first dash.
    pub fn of(request: &str) -> Option<Self> {
        match request.split('-').next() {
            Some(drain::DRAIN) => Some(Self::Drain),
            Some(drain::UNCORDON) => Some(Self::Uncordon),
            _ => None,
        }
    }
}
