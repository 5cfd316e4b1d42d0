//! URLs of pages, with percent-encoded names.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// Characters that need no encoding, in a path or a query.
const NAME: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

pub fn pool(name: &str) -> String {
    format!("/pools/{}", encoded(name))
}

pub fn policy(name: &str) -> String {
    format!("/policies/{}", encoded(name))
}

pub fn node(name: &str) -> String {
    format!("/nodes/{}", encoded(name))
}

pub fn adoption(name: &str) -> String {
    format!("/nodes/{}/adoption", encoded(name))
}

/// The page of OS image builds.
pub const BUILDS: &str = "/builds";

pub fn config(name: &str) -> String {
    format!("/configs/{}", encoded(name))
}

pub fn search(query: &str) -> String {
    format!("/search?q={}", encoded(query))
}

pub fn encoded(text: &str) -> String {
    utf8_percent_encode(text, NAME).to_string()
}
