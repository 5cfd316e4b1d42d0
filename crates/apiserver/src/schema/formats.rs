//! The string formats that are enforced for custom resources. Any other format is documentation only.
//!
//! Kubernetes also enforces `bsonobjectid`, `isbn`, `creditcard`, `ssn`, `hexcolor` and `rgbcolor`. No definition that
//! this server is meant for uses them, so values with these formats are not checked.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::LazyLock;

use base64::Engine as _;
use regex::Regex;

use crate::names;

/// Returns whether a text has a format. Formats that are not enforced accept any text.
pub fn satisfies(format: &str, text: &str) -> bool {
    match format.replace('-', "").as_str() {
        "uri" => is_request_uri(text),
        "email" => is_email(text),
        "hostname" => is_hostname(text),
        "ipv4" => text.parse::<Ipv4Addr>().is_ok(),
        "ipv6" => text.parse::<Ipv6Addr>().is_ok(),
        "cidr" => is_cidr(text),
        "mac" => is_mac(text),
        "uuid" => matches(&UUID, text),
        "uuid3" => matches(&UUID3, text),
        "uuid4" => matches(&UUID4, text),
        "uuid5" => matches(&UUID5, text),
        "byte" => base64::engine::general_purpose::STANDARD.decode(text).is_ok(),
        "date" => is_date(text),
        "datetime" => is_date_time(text),
        "duration" => is_duration(text),
        "k8sshortname" => names::dns1123_label(text).is_empty(),
        "k8slongname" => names::dns1123_subdomain(text).is_empty(),
        _ => true,
    }
}

type Lazy = LazyLock<Option<Regex>>;

/// Compiles a constant expression on first use; a test compiles every one.
const fn lazy(compile: fn() -> Option<Regex>) -> Lazy {
    LazyLock::new(compile)
}

fn matches(pattern: &Lazy, text: &str) -> bool {
    pattern.as_ref().is_some_and(|pattern| pattern.is_match(text))
}

static UUID: Lazy =
    lazy(|| Regex::new("(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}$").ok());
static UUID3: Lazy =
    lazy(|| Regex::new("(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?3[0-9a-f]{3}-?[0-9a-f]{4}-?[0-9a-f]{12}$").ok());
static UUID4: Lazy =
    lazy(|| Regex::new("(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?4[0-9a-f]{3}-?[89ab][0-9a-f]{3}-?[0-9a-f]{12}$").ok());
static UUID5: Lazy =
    lazy(|| Regex::new("(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?5[0-9a-f]{3}-?[89ab][0-9a-f]{3}-?[0-9a-f]{12}$").ok());
static HOSTNAME: Lazy = lazy(|| {
    Regex::new(r"^([a-zA-Z0-9\p{S}\p{L}]((-?[a-zA-Z0-9\p{S}\p{L}]{0,62})?)|([a-zA-Z0-9\p{S}\p{L}](([a-zA-Z0-9\-\p{S}\p{L}]{0,61}[a-zA-Z0-9\p{S}\p{L}])?)(\.)){1,}([a-zA-Z\p{L}]){2,63})$").ok()
});
static TIME_OF_DAY: Lazy = lazy(|| {
    Regex::new("^([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](.[0-9]+)?(z|([+-][0-9]{2}:[0-9]{2}))$").ok()
});
static DURATION_WORDS: Lazy = lazy(|| {
    Regex::new("(?i)[0-9]+\\s*(ns|nano[a-z]*|us|\u{b5}s|micro[a-z]*|ms|milli[a-z]*|s|sec[a-z]*|m|min[a-z]*|h|hr|hour[a-z]*|d|day[a-z]*|w|wk|week[a-z]*)").ok()
});
static GO_DURATION: Lazy =
    lazy(|| Regex::new("^[-+]?(0|(([0-9]+\\.?[0-9]*|\\.[0-9]+)(ns|us|\u{b5}s|\u{3bc}s|ms|s|m|h))+)$").ok());

fn is_hostname(text: &str) -> bool {
    // The length first: the expression is large, and slow for a long text.
    text.len() <= 255 && matches(&HOSTNAME, text) && text.split('.').all(|label| label.len() <= 63)
}

/// Returns whether a text is an absolute URI or an absolute path, as in an HTTP request line.
fn is_request_uri(text: &str) -> bool {
    if text.is_empty() || text.bytes().any(|b| b.is_ascii_control() || b == b' ') {
        return false;
    }
    if text.starts_with('/') {
        return valid_escapes(text);
    }
    let Some((scheme, rest)) = text.split_once(':') else {
        return false;
    };
    let scheme_is_fine = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.'));
    scheme_is_fine && rest.starts_with('/') && valid_escapes(rest)
}

fn valid_escapes(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes
        .iter()
        .enumerate()
        .filter(|(_, b)| **b == b'%')
        .all(|(at, _)| {
            bytes
                .get(at + 1..at + 3)
                .is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
        })
}

/// Returns whether a text is an address, with or without a display name.
fn is_email(text: &str) -> bool {
    let address = match (text.rfind('<'), text.strip_suffix('>')) {
        (Some(open), Some(inner)) => &inner[open + 1..],
        _ => text.trim(),
    };
    let Some((local, domain)) = address.rsplit_once('@') else {
        return false;
    };
    let atom = |c: char| !c.is_control() && !c.is_whitespace() && !"()<>[]:;@\\,\"".contains(c);
    let dotted = |part: &str| {
        part.split('.')
            .all(|word| !word.is_empty() && word.chars().all(atom))
    };
    let quoted = local.len() > 1 && local.starts_with('"') && local.ends_with('"');
    (quoted || dotted(local)) && dotted(domain)
}

fn is_cidr(text: &str) -> bool {
    let Some((address, length)) = text.split_once('/') else {
        return false;
    };
    let max = match address.parse::<IpAddr>() {
        Ok(IpAddr::V4(_)) => 32,
        Ok(IpAddr::V6(_)) => 128,
        Err(_) => return false,
    };
    !length.is_empty()
        && length.bytes().all(|b| b.is_ascii_digit())
        && (length == "0" || !length.starts_with('0'))
        && length.parse::<u8>().is_ok_and(|length| length <= max)
}

fn is_mac(text: &str) -> bool {
    let octets = |separator: char| {
        let parts: Vec<_> = text.split(separator).collect();
        matches!(parts.len(), 6 | 8 | 20)
            && parts
                .iter()
                .all(|part| part.len() == 2 && part.bytes().all(|b| b.is_ascii_hexdigit()))
    };
    let words: Vec<_> = text.split('.').collect();
    let dotted = matches!(words.len(), 3 | 4 | 10)
        && words
            .iter()
            .all(|word| word.len() == 4 && word.bytes().all(|b| b.is_ascii_hexdigit()));
    octets(':') || octets('-') || dotted
}

fn is_date(text: &str) -> bool {
    text.len() == 10 && text.parse::<jiff::civil::Date>().is_ok()
}

fn is_date_time(text: &str) -> bool {
    let lower = text.to_ascii_lowercase();
    lower
        .split_once('t')
        .is_some_and(|(date, time)| is_date(date) && matches(&TIME_OF_DAY, time))
}

fn is_duration(text: &str) -> bool {
    matches(&GO_DURATION, text) || matches(&DURATION_WORDS, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn enforced_formats_accept_valid_and_reject_invalid_texts() {
        let cases: &[(&str, &[&str], &[&str])] = &[
            (
                "uri",
                &["http://a/b?c=%20", "/path", "x:/y"],
                &["", "a b", "relative", "mailto:x", "http://a/%zz"],
            ),
            (
                "email",
                &["a@b.c", "Name <a@b.c>", "\"x y\"@b"],
                &["a", "@b", "a@", "a b@c", "a@b..c"],
            ),
            (
                "hostname",
                &["a", "a.example", "1host"],
                &["", "-a", "a_b", "a..b"],
            ),
            ("ipv4", &["10.0.0.1"], &["10.0.0", "::1", "256.0.0.1"]),
            ("ipv6", &["::1", "2001:db8::"], &["10.0.0.1", ":::"]),
            (
                "cidr",
                &["10.0.0.0/8", "::/0"],
                &["10.0.0.0", "10.0.0.0/33", "10.0.0.0/08"],
            ),
            (
                "mac",
                &["00:11:22:33:44:55", "00-11-22-33-44-55", "0011.2233.4455"],
                &["00:11", "zz:11:22:33:44:55"],
            ),
            ("uuid", &["123e4567-e89b-12d3-a456-426614174000"], &["123"]),
            (
                "uuid4",
                &["123e4567-e89b-42d3-a456-426614174000"],
                &["123e4567-e89b-12d3-a456-426614174000"],
            ),
            ("byte", &["aGk=", ""], &["###"]),
            ("date", &["2026-02-28"], &["2026-02-30", "2026-2-28"]),
            (
                "date-time",
                &["2026-01-02T03:04:05Z", "2026-01-02t03:04:05.123+01:00"],
                &["2026-01-02", "2026-01-02T24:00:00Z", "2026-01-02 03:04:05Z"],
            ),
            (
                "duration",
                &["1h30m", "-1.5s", "0", "22 ns", "3 days"],
                &["", "x", "1"],
            ),
            ("k8s-short-name", &["a-b"], &["a.b", "A"]),
            ("k8s-long-name", &["a.b"], &["A", "a_b"]),
            ("password", &["anything"], &[]),
            ("isbn", &["anything"], &[]),
            ("int32", &["anything"], &[]),
        ];
        for (format, good, bad) in cases {
            for text in *good {
                assert!(satisfies(format, text), "{format} should accept {text:?}");
            }
            for text in *bad {
                assert!(!satisfies(format, text), "{format} should reject {text:?}");
            }
        }
    }
}
