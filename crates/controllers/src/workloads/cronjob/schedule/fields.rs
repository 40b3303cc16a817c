//! The five fields of a schedule, and which local times they match.

use jiff::civil::{Date, DateTime};

use super::ScheduleError;
use super::quote::quoted;

/// Values that a field can have, and names for them.
struct Bounds {
    least: u64,
    most: u64,
    /// Names of values, from the least one on.
    names: &'static [&'static str],
}

const MINUTES: Bounds = Bounds { least: 0, most: 59, names: &[] };
const HOURS: Bounds = Bounds { least: 0, most: 23, names: &[] };
const DAYS: Bounds = Bounds { least: 1, most: 31, names: &[] };
const MONTHS: Bounds = Bounds {
    least: 1,
    most: 12,
    names: &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"],
};
const WEEKDAYS: Bounds =
    Bounds { least: 0, most: 6, names: &["sun", "mon", "tue", "wed", "thu", "fri", "sat"] };

/// The values that a field matches, a bit each, and whether one of its items was a star.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Values {
    bits: u64,
    is_open: bool,
}

/// The fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct Fields {
    minutes: Values,
    hours: Values,
    days: Values,
    months: Values,
    weekdays: Values,
}

impl Values {
    fn has(self, value: i8) -> bool {
        self.bits & (1 << value) != 0
    }

    /// The first of them that is not below `from`.
    fn first(self, from: i8) -> Option<i8> {
        let rest = self.bits.checked_shr(u32::try_from(from).ok()?)?;
        (rest != 0).then(|| from + rest.trailing_zeros() as i8)
    }
}

impl Fields {
    pub(super) fn parse(text: &str) -> Result<Self, ScheduleError> {
        let fields: Vec<&str> = text.split_whitespace().collect();
        let [minutes, hours, days, months, weekdays] = fields[..] else {
            let (found, held) = (fields.len(), fields.join(" "));
            return Err(ScheduleError(format!("expected exactly 5 fields, found {found}: [{held}]")));
        };
        Ok(Self {
            minutes: field(minutes, &MINUTES)?,
            hours: field(hours, &HOURS)?,
            days: field(days, &DAYS)?,
            months: field(months, &MONTHS)?,
            weekdays: field(weekdays, &WEEKDAYS)?,
        })
    }

    /// The first whole minute that matches, not before `from`, which is one, and before `end`.
    pub(super) fn first(&self, from: DateTime, end: DateTime) -> Option<DateTime> {
        let mut date = from.date();
        while DateTime::from_parts(date, jiff::civil::Time::midnight()) < end {
            if !self.months.has(date.month()) {
                date = date.last_of_month().tomorrow().ok()?;
                continue;
            }
            if self.matches_day(date) {
                let (hour, minute) = if date == from.date() { (from.hour(), from.minute()) } else { (0, 0) };
                if let Some((hour, minute)) = self.first_of_day(hour, minute) {
                    let found = date.at(hour, minute, 0, 0);
                    return (found < end).then_some(found);
                }
            }
            date = date.tomorrow().ok()?;
        }
        None
    }

    fn first_of_day(&self, hour: i8, minute: i8) -> Option<(i8, i8)> {
        if self.hours.has(hour)
            && let Some(minute) = self.minutes.first(minute)
        {
            return Some((hour, minute));
        }
        Some((self.hours.first(hour + 1)?, self.minutes.first(0)?))
    }

    /// If one of both fields is open, both must match; otherwise one is enough.
    fn matches_day(&self, date: Date) -> bool {
        let day = self.days.has(date.day());
        let weekday = self.weekdays.has(date.weekday().to_sunday_zero_offset());
        if self.days.is_open || self.weekdays.is_open { day && weekday } else { day || weekday }
    }
}

fn field(text: &str, bounds: &Bounds) -> Result<Values, ScheduleError> {
    let mut values = Values::default();
    for item in text.split(',').filter(|item| !item.is_empty()) {
        let found = self::item(item, bounds)?;
        values.bits |= found.bits;
        values.is_open |= found.is_open;
    }
    Ok(values)
}

/// `*`, `N` or `N-M`, each with `/STEP`.
fn item(text: &str, bounds: &Bounds) -> Result<Values, ScheduleError> {
    let parts: Vec<&str> = text.split('/').collect();
    let ends: Vec<&str> = parts[0].split('-').collect();
    let is_star = matches!(ends[0], "*" | "?");
    let (first, mut last) = if is_star {
        // Whatever follows it makes no difference.
        (bounds.least, bounds.most)
    } else {
        let first = value(ends[0], bounds)?;
        match ends[..] {
            [_] => (first, first),
            [_, last] => (first, value(last, bounds)?),
            _ => return Err(ScheduleError(format!("too many hyphens: {text}"))),
        }
    };
    let step = match parts[..] {
        [_] => 1,
        [_, step] => {
            let step = number(step)?;
            if ends.len() == 1 {
                last = bounds.most;
            }
            step
        }
        _ => return Err(ScheduleError(format!("too many slashes: {text}"))),
    };
    let Bounds { least, most, .. } = bounds;
    let complaint = if first < *least {
        Some(format!("beginning of range ({first}) below minimum ({least}): {text}"))
    } else if last > *most {
        Some(format!("end of range ({last}) above maximum ({most}): {text}"))
    } else if first > last {
        Some(format!("beginning of range ({first}) beyond end of range ({last}): {text}"))
    } else if step == 0 {
        Some(format!("step of range should be a positive number: {text}"))
    } else {
        None
    };
    if let Some(complaint) = complaint {
        return Err(ScheduleError(complaint));
    }
    let mut bits = 0;
    let mut at = first;
    while at <= last {
        bits |= 1 << at;
        at = at.saturating_add(step);
    }
    Ok(Values { bits, is_open: is_star && step == 1 })
}

/// A number, or a name of one.
fn value(text: &str, bounds: &Bounds) -> Result<u64, ScheduleError> {
    let named = bounds.names.iter().position(|name| name.eq_ignore_ascii_case(text));
    named.map_or_else(|| number(text), |at| Ok(bounds.least + at as u64))
}

fn number(text: &str) -> Result<u64, ScheduleError> {
    let failed = |reason: &str| {
        let quoted = quoted(text);
        ScheduleError(format!("failed to parse int from {text}: strconv.Atoi: parsing {quoted}: {reason}"))
    };
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let mut number = 0_u64;
    if unsigned.is_empty() {
        return Err(failed("invalid syntax"));
    }
    // The error is that of the first character that is no digit or makes the number overflow.
    for byte in unsigned.bytes() {
        if !byte.is_ascii_digit() {
            return Err(failed("invalid syntax"));
        }
        let longer = number.checked_mul(10).and_then(|number| number.checked_add(u64::from(byte - b'0')));
        number = longer.ok_or_else(|| failed("value out of range"))?;
    }
    let is_negative = text.starts_with('-');
    let number = if is_negative { 0_i64.checked_sub_unsigned(number) } else { i64::try_from(number).ok() };
    let number = number.ok_or_else(|| failed("value out of range"))?;
    u64::try_from(number)
        .map_err(|_| ScheduleError(format!("negative number ({number}) not allowed: {text}")))
}
