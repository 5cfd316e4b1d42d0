//! Durations and lists as the sentences of a policy spell them.

use jiff::{SignedDuration, Timestamp};

use crate::config::go_duration;

const ELLIPSIS: &str = "...";

/// Parses a duration such as `1h30m`; `None` if it is invalid.
pub(super) fn parse_duration(text: &str) -> Option<SignedDuration> {
    go_duration::parse(text)
        .filter(|nanos| *nanos >= 0)
        .map(SignedDuration::from_nanos)
}

/// Returns the parsed duration, or `default` if it is empty or invalid; admission has refused invalid ones.
pub(super) fn duration_or(text: &str, default: SignedDuration) -> SignedDuration {
    parse_duration(text).unwrap_or(default)
}

/// Parses a duration of a policy; `None` if it is empty or invalid.
pub fn duration_of(text: &str) -> Option<std::time::Duration> {
    parse_duration(text).and_then(|duration| duration.try_into().ok())
}

/// Formats a duration for people: `3 h 12 min`, `2 d 4 h`, `40 s`.
pub fn in_words(duration: SignedDuration) -> String {
    let seconds = duration.as_secs().max(0);
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60);
    let parts = match (days, hours, minutes) {
        (0, 0, 0) => vec![(seconds, "s")],
        (0, 0, minutes) => vec![(minutes, "min")],
        (0, hours, minutes) => vec![(hours, "h"), (minutes, "min")],
        (days, hours, _) => vec![(days, "d"), (hours, "h")],
    };
    let parts: Vec<String> = parts
        .iter()
        .enumerate()
        .filter(|(index, (value, _))| *index == 0 || *value > 0)
        .map(|(_, (value, unit))| format!("{value} {unit}"))
        .collect();
    parts.join(" ")
}

/// Formats how long it is from `now` until `then`.
pub(super) fn until(now: Timestamp, then: Timestamp) -> String {
    in_words(then.duration_since(now))
}

/// Joins names: `a`, `a and b`, `a, b and 3 more`.
pub(super) fn names(all: &[&str]) -> String {
    match all {
        [] => String::new(),
        [one] => (*one).to_owned(),
        [one, two] => format!("{one} and {two}"),
        [one, two, rest @ ..] => format!("{one}, {two} and {} more", rest.len()),
    }
}

/// Returns the first line of a text from outside, without control characters and at most this long.
pub(super) fn first_line(text: &str, limit: usize) -> String {
    let line = text.trim().lines().next().unwrap_or_default();
    // No more than this many can be shown, and the text may be long.
    let escaped: String = line.chars().take(limit + 1).flat_map(escaped).collect();
    shortened(&escaped, limit)
}

fn escaped(character: char) -> impl Iterator<Item = char> {
    let is_control = character.is_control();
    let plain = (!is_control).then_some(character);
    let escape = is_control.then(|| character.escape_default());
    plain.into_iter().chain(escape.into_iter().flatten())
}

/// Returns a text of at most this many characters.
pub(super) fn shortened(text: &str, limit: usize) -> String {
    if text.chars().nth(limit).is_none() {
        return text.to_owned();
    }
    let start = text.chars().take(limit.saturating_sub(ELLIPSIS.len()));
    start.chain(ELLIPSIS.chars()).collect()
}

/// Returns `1 node` or `5 nodes`.
pub(super) fn nodes(count: usize) -> String {
    match count {
        1 => "1 node".to_owned(),
        count => format!("{count} nodes"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_well() {
        for (seconds, text) in [
            (0, "0 s"),
            (59, "59 s"),
            (60, "1 min"),
            (3_600, "1 h"),
            (11_520, "3 h 12 min"),
            (86_400, "1 d"),
            (190_000, "2 d 4 h"),
        ] {
            assert_eq!(in_words(SignedDuration::from_secs(seconds)), text);
        }
        assert_eq!(names(&["a", "b", "c", "d"]), "a, b and 2 more");
    }

    #[test]
    fn texts_from_outside_are_one_short_line() {
        for (text, expected) in [
            ("", ""),
            ("short", "short"),
            ("12345678", "12345678"),
            ("123456789", "12345..."),
            ("\n\r\n first\r\nsecond", "first"),
            ("a\u{1b}[1m", "a\\u{1..."),
            ("a\tb", "a\\tb"),
            ("ääääääää", "ääääääää"),
            ("äääääääää", "äääää..."),
        ] {
            assert_eq!(first_line(text, 8), expected, "{text:?}");
        }
    }
}
