//! Ages and durations in the format of kubectl.

use jiff::Timestamp;
use serde_json::Value;

const MINUTE: i64 = 60;
const HOUR: i64 = 60 * MINUTE;

/// Returns a duration with two or three significant figures.
pub fn human_duration(seconds: i64) -> String {
    // Clocks differ a little: a short time in the future counts as now.
    if seconds < -1 {
        return "<invalid>".to_owned();
    }
    if seconds < 2 * MINUTE {
        return format!("{}s", seconds.max(0));
    }
    let minutes = seconds / MINUTE;
    if minutes < 10 {
        return two_units(minutes, "m", seconds % MINUTE, "s");
    }
    if minutes < 3 * 60 {
        return format!("{minutes}m");
    }
    let hours = seconds / HOUR;
    if hours < 8 {
        return two_units(hours, "h", minutes % 60, "m");
    }
    if hours < 48 {
        return format!("{hours}h");
    }
    let days = hours / 24;
    if days < 8 {
        return two_units(days, "d", hours % 24, "h");
    }
    if days < 2 * 365 {
        return format!("{days}d");
    }
    if days < 8 * 365 {
        return two_units(days / 365, "y", days % 365, "d");
    }
    format!("{}y", days / 365)
}

/// Returns the age since a time; `<unknown>` without one.
pub(super) fn since(moment: Option<&Value>, now: Timestamp) -> String {
    let Some(text) = moment.and_then(Value::as_str).filter(|text| !text.is_empty()) else {
        return "<unknown>".to_owned();
    };
    parse(text).map_or_else(
        || "<invalid>".to_owned(),
        |moment| human_duration(elapsed(moment, now)),
    )
}

pub(super) fn parse(text: &str) -> Option<Timestamp> {
    text.parse().ok()
}

pub(super) fn elapsed(from: Timestamp, to: Timestamp) -> i64 {
    to.duration_since(from).as_secs()
}

fn two_units(large: i64, large_unit: &str, small: i64, small_unit: &str) -> String {
    if small == 0 {
        format!("{large}{large_unit}")
    } else {
        format!("{large}{large_unit}{small}{small_unit}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_like_kubectl() {
        const DAY: i64 = 24 * HOUR;
        for (seconds, expected) in [
            (-5, "<invalid>"),
            (-1, "0s"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (125, "2m5s"),
            (10 * MINUTE, "10m"),
            (179 * MINUTE, "179m"),
            (3 * HOUR, "3h"),
            (3 * HOUR + 20 * MINUTE, "3h20m"),
            (8 * HOUR + 20 * MINUTE, "8h"),
            (47 * HOUR, "47h"),
            (48 * HOUR, "2d"),
            (50 * HOUR, "2d2h"),
            (8 * DAY, "8d"),
            (700 * DAY, "700d"),
            (2 * 365 * DAY, "2y"),
            (2 * 365 * DAY + DAY, "2y1d"),
            (9 * 365 * DAY, "9y"),
        ] {
            assert_eq!(human_duration(seconds), expected, "{seconds}");
        }
    }
}
