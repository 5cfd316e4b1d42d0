//! Times as a person reads them.

use std::fmt::Write as _;

use jiff::{SignedDuration, Timestamp};

/// The time between two moments, in the two largest units that are not zero.
pub fn ago(now: Timestamp, then: Timestamp) -> String {
    lasting(now.duration_since(then).max(SignedDuration::ZERO).as_secs())
}

/// A number of seconds, in the two largest units that are not zero.
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

/// A moment to the second, in universal time like everything a cluster says.
pub fn moment(at: Timestamp) -> String {
    at.strftime("%Y-%m-%d %H:%M:%SZ").to_string()
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
        assert_eq!(moment(start), "1970-01-01 00:00:00Z");
    }
}
