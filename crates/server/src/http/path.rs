//! Request paths.

use std::borrow::Cow;

pub use mco_core::config::pools::is_name as is_pool_name;

/// The resource that a path names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestTarget {
    /// The configuration of a pool.
    Config {
        pool: String,
    },
    Health,
    Unknown,
}

impl RequestTarget {
    /// Parses a path. The last element of a path below `/config/` names the pool; elements before it are ignored.
    pub fn of(path: &str) -> Self {
        if path == "/healthz" {
            return Self::Health;
        }
        let decoded = decode(path);
        let mut elements = decoded.split('/').filter(|element| !element.is_empty());
        if elements.next() != Some("config") {
            return Self::Unknown;
        }
        match elements.next_back() {
            Some(pool) if is_pool_name(pool) => Self::Config {
                pool: pool.to_owned(),
            },
            _ => Self::Unknown,
        }
    }
}

fn decode(path: &str) -> Cow<'_, str> {
    if !path.contains('%') {
        return Cow::Borrowed(path);
    }
    let bytes = path.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let escaped = (byte == b'%')
            .then(|| path.get(at + 1..at + 3))
            .flatten()
            .and_then(|digits| u8::from_str_radix(digits, 16).ok());
        decoded.push(escaped.unwrap_or(byte));
        at += if escaped.is_some() { 3 } else { 1 };
    }
    Cow::Owned(String::from_utf8_lossy(&decoded).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_name_pools_by_their_last_element() {
        let pool = |name: &str| RequestTarget::Config {
            pool: name.to_owned(),
        };
        for (path, expected) in [
            ("/config/worker", pool("worker")),
            ("/config/worker/", pool("worker")),
            ("/config/a/b/worker", pool("worker")),
            ("/config/%77orker", pool("worker")),
            ("/config/a%2Fworker", pool("worker")),
            ("//config//worker", pool("worker")),
            ("/config/infra.example", pool("infra.example")),
            ("/config", RequestTarget::Unknown),
            ("/config/", RequestTarget::Unknown),
            ("/config/..", RequestTarget::Unknown),
            ("/config/No%20Pool", RequestTarget::Unknown),
            ("/config/%zz", RequestTarget::Unknown),
            ("/config/%", RequestTarget::Unknown),
            ("/configuration/worker", RequestTarget::Unknown),
            ("/healthz", RequestTarget::Health),
            ("/healthz/", RequestTarget::Unknown),
            ("/", RequestTarget::Unknown),
            ("", RequestTarget::Unknown),
        ] {
            assert_eq!(RequestTarget::of(path), expected, "{path}");
        }
    }
}
