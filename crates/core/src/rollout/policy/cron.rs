//! The five fields of a cron schedule: minute, hour, day of month, month, day of week.
//!
//! As in cron, a day matches if the day of month *or* the day of week matches when both are restricted.

use jiff::civil::{Date, Time, Weekday};

/// A parsed schedule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CronSchedule {
    minutes: Field,
    hours: Field,
    days: Field,
    months: Field,
    weekdays: Field,
}

/// The allowed values of one field, as a bit set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Field {
    bits: u64,
    /// Whether the field is `*`, which restricts nothing.
    any: bool,
}

const MONTHS: [&str; 12] = [
    "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
];
const WEEKDAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

impl CronSchedule {
    /// Parses a schedule; the error names the field.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let fields: Vec<&str> = text.split_whitespace().collect();
        let [minutes, hours, days, months, weekdays] = fields.as_slice() else {
            return Err(format!(
                "{text:?} has {} fields instead of five: minute, hour, day of month, month and day of week",
                fields.len()
            ));
        };
        let mut weekdays = Field::parse("day of week", weekdays, 0..=7, &WEEKDAYS, 0)?;
        if weekdays.has(7) {
            weekdays.bits |= 1;
        }
        Ok(Self {
            minutes: Field::parse("minute", minutes, 0..=59, &[], 0)?,
            hours: Field::parse("hour", hours, 0..=23, &[], 0)?,
            days: Field::parse("day of month", days, 1..=31, &[], 1)?,
            months: Field::parse("month", months, 1..=12, &MONTHS, 1)?,
            weekdays,
        })
    }

    /// Returns a schedule of one time on some days.
    pub(super) fn daily(time: Time, weekdays: &[Weekday]) -> Self {
        let any = |bits| Field { bits, any: true };
        let bits = weekdays
            .iter()
            .fold(0, |bits, day| bits | 1 << day.to_sunday_zero_offset());
        Self {
            minutes: Field::one(time.minute()),
            hours: Field::one(time.hour()),
            days: any(u64::MAX),
            months: any(u64::MAX),
            weekdays: if bits == 0 {
                any(u64::MAX)
            } else {
                Field { bits, any: false }
            },
        }
    }

    pub(super) fn matches_day(&self, date: Date) -> bool {
        let day = self.days.has(date.day());
        let weekday = self.weekdays.has(date.weekday().to_sunday_zero_offset());
        let fits = match (self.days.any, self.weekdays.any) {
            (false, false) => day || weekday,
            _ => day && weekday,
        };
        fits && self.months.has(date.month())
    }

    /// Returns the times of a matching day, in order.
    pub(super) fn times(&self) -> impl DoubleEndedIterator<Item = Time> {
        let (hours, minutes) = (self.hours, self.minutes);
        (0..24_i8)
            .filter(move |hour| hours.has(*hour))
            .flat_map(move |hour| {
                (0..60_i8)
                    .filter(move |minute| minutes.has(*minute))
                    .filter_map(move |minute| Time::new(hour, minute, 0, 0).ok())
            })
    }
}

impl Field {
    fn one(value: i8) -> Self {
        let shift = u32::try_from(value).unwrap_or_default();
        Self {
            bits: 1_u64.checked_shl(shift).unwrap_or_default(),
            any: false,
        }
    }

    fn has(self, value: i8) -> bool {
        u32::try_from(value).is_ok_and(|value| value < 64 && self.bits >> value & 1 == 1)
    }

    fn parse(
        what: &str,
        text: &str,
        range: std::ops::RangeInclusive<u32>,
        names: &[&str],
        first: u32,
    ) -> Result<Self, String> {
        let (low, high) = (*range.start(), *range.end());
        let wrong = || format!("the {what} {text:?} is not a value, range, list or step of {low} to {high}");
        let value = |text: &str| -> Option<u32> {
            let named = names.iter().position(|name| text.eq_ignore_ascii_case(name));
            let named = named.and_then(|index| u32::try_from(index).ok()?.checked_add(first));
            named
                .or_else(|| {
                    text.parse()
                        .ok()
                        .filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()))
                })
                .filter(|value| range.contains(value))
        };
        let mut bits = 0_u64;
        for part in text.split(',') {
            let (span, step) = match part.split_once('/') {
                Some((span, step)) => (
                    span,
                    step.parse().ok().filter(|step| *step > 0).ok_or_else(wrong)?,
                ),
                None => (part, 1),
            };
            let (from, to) = match span.split_once('-') {
                _ if span == "*" => (low, high),
                Some((from, to)) => (value(from).ok_or_else(wrong)?, value(to).ok_or_else(wrong)?),
                None => {
                    let from = value(span).ok_or_else(wrong)?;
                    (from, if part.contains('/') { high } else { from })
                }
            };
            if from > to {
                return Err(wrong());
            }
            for value in (from..=to).step_by(step) {
                bits |= 1_u64 << value;
            }
        }
        Ok(Self {
            bits,
            any: text == "*",
        })
    }
}

#[cfg(test)]
mod tests {
    use jiff::civil::date;

    use super::*;

    #[test]
    fn days_match_as_in_cron() {
        // 2026-11-18 is a Wednesday.
        let wednesday = date(2026, 11, 18);
        for (schedule, expected) in [
            ("0 0 * * *", true),
            ("0 0 * * 3", true),
            ("0 0 * * wed", true),
            ("0 0 * * 1-5", true),
            ("0 0 * * 0", false),
            ("0 0 * * 7", false),
            ("0 0 18 * *", true),
            ("0 0 18 nov *", true),
            ("0 0 18 oct *", false),
            ("0 0 1 * wed", true),
            ("0 0 18 * sun", true),
            ("0 0 1 * sun", false),
            ("0 0 */9 * *", false),
            ("0 0 */17 * *", true),
        ] {
            let parsed = CronSchedule::parse(schedule).unwrap();
            assert_eq!(parsed.matches_day(wednesday), expected, "{schedule}");
        }
    }

    #[test]
    fn times_are_lists_ranges_and_steps() {
        let times = |text: &str| {
            let schedule = CronSchedule::parse(text).unwrap();
            let times: Vec<String> = schedule
                .times()
                .map(|time| time.strftime("%H:%M").to_string())
                .collect();
            times.join(" ")
        };
        assert_eq!(times("30 22 * * *"), "22:30");
        assert_eq!(times("0,30 1-2 * * *"), "01:00 01:30 02:00 02:30");
        assert_eq!(times("5/20 7 * * *"), "07:05 07:25 07:45");
    }

    #[test]
    fn errors_name_the_field() {
        for (text, expected) in [
            ("0 22 * *", "4 fields instead of five"),
            ("60 22 * * *", "the minute \"60\""),
            ("0 24 * * *", "the hour \"24\""),
            ("0 0 0 * *", "the day of month \"0\""),
            ("0 0 * 13 *", "the month \"13\""),
            ("0 0 * * 8", "the day of week \"8\""),
            ("0 0 5-1 * *", "the day of month \"5-1\""),
            ("*/0 0 * * *", "the minute \"*/0\""),
            ("+1 0 * * *", "the minute \"+1\""),
        ] {
            let error = CronSchedule::parse(text).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
