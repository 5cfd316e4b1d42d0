//! Formatting of numbers, times and untrusted text, shared by terminal and browser output.

use std::fmt::Write as _;

use jiff::{SignedDuration, Timestamp};

/// Formats a count with its noun: `1 node`, `2 nodes`.
pub fn count(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// Formats the time between two timestamps, in the two largest units that are not zero.
pub fn ago(now: Timestamp, then: Timestamp) -> String {
    lasting(now.duration_since(then).max(SignedDuration::ZERO).as_secs())
}

/// Formats a timestamp in UTC, to the second.
pub fn moment(at: Timestamp) -> String {
    at.strftime("%Y-%m-%d %H:%M:%SZ").to_string()
}

/// Formats a number of seconds, in the two largest units that are not zero.
pub fn lasting(seconds: i64) -> String {
    let parts = [
        (seconds / 86_400, "d"),
        (seconds / 3600 % 24, "h"),
        (seconds / 60 % 60, "m"),
        (seconds % 60, "s"),
    ];
    let largest = parts
        .iter()
        .position(|(amount, _)| *amount > 0)
        .unwrap_or(parts.len() - 1);
    let shown = parts
        .iter()
        .skip(largest)
        .take(2)
        .filter(|(amount, _)| *amount > 0);
    let mut text = String::new();
    for (amount, unit) in shown {
        let _ = write!(text, "{amount}{unit}");
    }
    if text.is_empty() { "0s".to_owned() } else { text }
}

/// Escapes control characters, including those that change the text direction. Names and contents are untrusted, and
/// such characters must reach neither terminals nor pages.
pub fn escape_control_chars(text: &str) -> String {
    text.chars()
        .flat_map(|c| {
            let escape = c.is_control() && !matches!(c, '\n' | '\t') || is_bidi_control(c);
            let plain = (!escape).then_some(c);
            plain
                .into_iter()
                .chain(escape.then(|| c.escape_unicode()).into_iter().flatten())
        })
        .collect()
}

fn is_bidi_control(c: char) -> bool {
    matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_short_enough_to_read() {
        let start = Timestamp::UNIX_EPOCH;
        for (seconds, text) in [
            (0, "0s"),
            (59, "59s"),
            (61, "1m1s"),
            (3600, "1h"),
            (90_061, "1d1h"),
            (-5, "0s"),
        ] {
            let now = start + SignedDuration::from_secs(seconds);
            assert_eq!(ago(now, start), text);
        }
    }

    #[test]
    fn control_characters_are_seen_and_not_obeyed() {
        assert_eq!(
            escape_control_chars("a\u{1b}[31mb\n\tc\u{7f}"),
            "a\\u{1b}[31mb\n\tc\\u{7f}"
        );
        assert_eq!(escape_control_chars("a\u{202e}b"), "a\\u{202e}b");
    }
}
