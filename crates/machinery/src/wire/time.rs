//! Wall-clock times as API objects hold them.
//!
//! Users write `9999-12-31T23:59:59Z` for "never", and protobuf holds any number of seconds. jiff's `Timestamp` ends a day and
//! two hours earlier. [`WallTime`] and [`Time`] hold, read and print every time that the API server accepts; the conversion to
//! `Timestamp`, for arithmetic, clamps to jiff's range. Nothing else in the project converts.

use std::cmp::Ordering;
use std::fmt;
use std::num::NonZeroI64;
use std::str::FromStr;

use jiff::Timestamp;
use jiff::civil::Date;

use super::reader::{Reader, Value, WireError};
use super::splice::{put_bytes, put_varint_field};
use super::{Field, Source};

const SECONDS_PER_DAY: i64 = 86_400;

/// The seconds of Go's zero time.
const UNSET_SECONDS: i64 = -62_135_596_800;

/// Digits of a second in the text of a `MicroTime`.
const MICRO_DIGITS: usize = 6;

/// A wall-clock time that somebody wrote into an object, without a limit of the calendar.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WallTime {
    seconds: i64,
    /// Less than a second, towards the future.
    nanoseconds: u32,
}

/// A text that is no time of RFC 3339 as the API server reads it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not an RFC 3339 time")]
pub struct MalformedTime(String);

impl MalformedTime {
    fn new(text: &str) -> Self {
        Self(text.chars().take(64).collect())
    }
}

impl WallTime {
    /// Creates the time of a protobuf `Time` or `MicroTime`: seconds since 1970 and nanoseconds. Nanoseconds of any number and
    /// sign are carried over into the seconds.
    pub fn new(seconds: i64, nanoseconds: i32) -> Self {
        const SECOND: i32 = 1_000_000_000;
        let carried = i64::from(nanoseconds.div_euclid(SECOND));
        Self {
            seconds: seconds.saturating_add(carried),
            nanoseconds: nanoseconds.rem_euclid(SECOND).unsigned_abs(),
        }
    }

    /// Reads a `MicroTime`, whose fraction has exactly six digits.
    ///
    /// # Errors
    /// The API server refuses the text.
    pub fn parse_micro(text: &str) -> Result<Self, MalformedTime> {
        let fraction = text.split(['.', ',']).nth(1).unwrap_or_default();
        let digits = fraction.bytes().take_while(u8::is_ascii_digit).count();
        if digits == MICRO_DIGITS { text.parse() } else { Err(MalformedTime::new(text)) }
    }

    /// Whether it is the first second of the year 1, which Go and the API server treat as unset.
    pub fn is_unset(self) -> bool {
        self == Self { seconds: UNSET_SECONDS, nanoseconds: 0 }
    }

    /// Seconds since 1970.
    pub fn seconds(self) -> i64 {
        self.seconds
    }

    /// Nanoseconds of the second.
    pub fn subsec_nanoseconds(self) -> u32 {
        self.nanoseconds
    }
}

impl From<WallTime> for Timestamp {
    /// Clamps to the first and the last time that jiff has.
    fn from(at: WallTime) -> Self {
        let nanoseconds = i32::try_from(at.nanoseconds).unwrap_or_default();
        let end = if at.seconds < 0 { Self::MIN } else { Self::MAX };
        Self::new(at.seconds, nanoseconds).unwrap_or(end)
    }
}

impl FromStr for WallTime {
    type Err = MalformedTime;

    /// Reads RFC 3339 as the API server does: capitals, all parts, one or two digits of the hour, a fraction of any length after
    /// a dot or a comma, offsets up to 24 hours and 60 minutes, and no leap seconds.
    fn from_str(text: &str) -> Result<Self, MalformedTime> {
        parse(text.as_bytes()).ok_or_else(|| MalformedTime::new(text))
    }
}

fn parse(text: &[u8]) -> Option<WallTime> {
    let mut text = Cursor(text);
    let (year, month, day) = (text.number(4)?, text.after(b'-', 2)?, text.after(b'-', 2)?);
    text.expect(b"T")?;
    let hour = text.number(2).or_else(|| text.number(1)).filter(|hour| *hour < 24)?;
    let (minute, second) = (text.after(b':', 2)?, text.after(b':', 2)?);
    let nanoseconds = text.fraction()?;
    let offset = text.offset()?;
    if minute >= 60 || second >= 60 || !text.0.is_empty() {
        return None;
    }
    let small = |number: i32| i8::try_from(number).ok();
    let date = Date::new(i16::try_from(year).ok()?, small(month)?, small(day)?).ok()?;
    let epoch = Date::constant(1970, 1, 1);
    let days = date.duration_since(epoch).as_hours() / 24;
    let seconds = i64::from((hour * 60 + minute - offset) * 60 + second);
    Some(WallTime::new(days * SECONDS_PER_DAY + seconds, nanoseconds))
}

/// The rest of a text. A method that returns `None` has taken nothing.
struct Cursor<'a>(&'a [u8]);

impl Cursor<'_> {
    fn expect(&mut self, word: &[u8]) -> Option<()> {
        self.0 = self.0.strip_prefix(word)?;
        Some(())
    }

    /// A number of exactly as many digits.
    fn number(&mut self, digits: usize) -> Option<i32> {
        let (number, rest) = self.0.split_at_checked(digits)?;
        if !number.iter().all(u8::is_ascii_digit) {
            return None;
        }
        self.0 = rest;
        Some(number.iter().fold(0, |value, digit| value * 10 + i32::from(digit - b'0')))
    }

    fn after(&mut self, separator: u8, digits: usize) -> Option<i32> {
        self.expect(&[separator])?;
        self.number(digits)
    }

    /// The nanoseconds of a fraction, 0 without one. Digits beyond the ninth are dropped.
    fn fraction(&mut self) -> Option<i32> {
        if self.expect(b".").or_else(|| self.expect(b",")).is_none() {
            return Some(0);
        }
        let digits = self.0.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (fraction, rest) = self.0.split_at_checked(digits).filter(|_| digits > 0)?;
        self.0 = rest;
        let padded = fraction.iter().copied().chain(std::iter::repeat(b'0')).take(9);
        Some(padded.fold(0, |value, digit| value * 10 + i32::from(digit - b'0')))
    }

    /// Minutes east of Greenwich.
    fn offset(&mut self) -> Option<i32> {
        if self.expect(b"Z").is_some() {
            return Some(0);
        }
        let sign = if self.expect(b"+").is_some() { 1 } else { self.expect(b"-").map(|()| -1)? };
        let (hours, minutes) = (self.number(2)?, self.after(b':', 2)?);
        (hours <= 24 && minutes <= 60).then_some(sign * (hours * 60 + minutes))
    }
}

impl fmt::Display for WallTime {
    /// Prints RFC 3339 in UTC, with as many digits of a second as the precision demands (`{:.6}`), and none without one. Years
    /// beyond 9999 and before 0 are printed as the API server prints them, with more digits or a sign.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month, day) = civil(self.seconds.div_euclid(SECONDS_PER_DAY));
        let second = self.seconds.rem_euclid(SECONDS_PER_DAY);
        let sign = if year < 0 { "-" } else { "" };
        let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
        let year = year.unsigned_abs();
        write!(f, "{sign}{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}")?;
        if let Some(digits) = f.precision().filter(|digits| *digits > 0) {
            let nanoseconds = format!("{:09}", self.nanoseconds);
            write!(f, ".{}", nanoseconds.get(..digits).unwrap_or(&nanoseconds))?;
        }
        f.write_str("Z")
    }
}

/// Returns year, month and day of a number of days since 1970, in the proleptic Gregorian calendar. Years begin in March here, so
/// that the leap day is the last one.
fn civil(days: i64) -> (i64, i64, i64) {
    const DAYS_PER_ERA: i64 = 146_097;
    const YEARS_PER_ERA: i64 = 400;
    /// From 1 March of the year 0 to 1970.
    const OFFSET: i64 = 719_468;
    let days = days + OFFSET;
    let (era, day) = (days.div_euclid(DAYS_PER_ERA), days.rem_euclid(DAYS_PER_ERA));
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (year, month) = (era * YEARS_PER_ERA + year, month + 3);
    if month > 12 { (year + 1, month - 12, day) } else { (year, month, day) }
}

/// `metav1.Time`: whole seconds, as the API serves it. Upstream's zero time, the first second of the year 1, is `None`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Time(NonZeroI64);

impl Time {
    /// From seconds since 1970; `None` for the zero time, which upstream treats as unset.
    pub fn from_seconds(seconds: i64) -> Option<Self> {
        NonZeroI64::new(seconds.wrapping_sub(UNSET_SECONDS)).map(Self)
    }

    /// Decodes the contents of a field. An empty message is the zero time; any other one without seconds is 1970, as in Go.
    ///
    /// # Errors
    /// The contents are malformed.
    pub fn decode(bytes: &[u8]) -> Result<Option<Self>, WireError> {
        let mut reader = Reader::new(bytes);
        let mut seconds = if bytes.is_empty() { UNSET_SECONDS } else { 0 };
        while let Some((number, value)) = reader.next_field()? {
            if number == 1 {
                seconds = value.varint()? as i64;
            }
        }
        Ok(Self::from_seconds(seconds))
    }

    /// The zero time is unset: the next second stands for it.
    fn nearest(seconds: i64) -> Self {
        let next = NonZeroI64::new(1).unwrap_or(NonZeroI64::MAX);
        Self::from_seconds(seconds).unwrap_or(Self(next))
    }

    /// Seconds since 1970.
    pub fn seconds(self) -> i64 {
        self.0.get().wrapping_add(UNSET_SECONDS)
    }

    /// Seconds from `earlier` to `self`; negative when `self` is the earlier one.
    pub fn seconds_since(self, earlier: Time) -> i64 {
        self.seconds().saturating_sub(earlier.seconds())
    }

    /// The time `seconds` later; saturating.
    #[must_use]
    pub fn plus_seconds(self, seconds: i64) -> Self {
        Self::nearest(self.seconds().saturating_add(seconds))
    }

    /// Appends what a field that holds it contains.
    pub fn encode_fields(self, out: &mut Vec<u8>) {
        put_varint_field(out, 1, self.seconds() as u64);
    }
}

impl PartialOrd for Time {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Time {
    fn cmp(&self, other: &Self) -> Ordering {
        self.seconds().cmp(&other.seconds())
    }
}

impl From<Timestamp> for Time {
    /// Truncates to the second, as the API does.
    fn from(at: Timestamp) -> Self {
        Self::nearest(at.as_second())
    }
}

impl From<Time> for WallTime {
    fn from(at: Time) -> Self {
        Self::new(at.seconds(), 0)
    }
}

impl From<Time> for Timestamp {
    /// Clamps to the first and the last time that jiff has.
    fn from(at: Time) -> Self {
        WallTime::from(at).into()
    }
}

impl fmt::Display for Time {
    /// RFC 3339, as in an object's JSON.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", WallTime::from(*self))
    }
}

impl fmt::Debug for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Field for Option<Time> {
    fn merge(&mut self, value: Value<'_>, _: Source<'_>) -> Result<(), WireError> {
        *self = Time::decode(value.bytes()?)?;
        Ok(())
    }

    fn encode(&self, number: u32, out: &mut Vec<u8>) {
        if let Some(time) = self {
            let mut body = Vec::with_capacity(12);
            time.encode_fields(&mut body);
            put_bytes(out, number, &body);
        }
    }
}

#[cfg(test)]
mod differential;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::api::meta::ObjectMeta;
    use crate::wire::Message as _;

    /// Texts and what the API server reads: seconds and nanoseconds, as Go's `time.Parse` with `time.RFC3339` was seen to return.
    const RECORDED: &[(&str, Option<(i64, u32)>)] = &[
        ("2026-01-01T12:00:00Z", Some((1_767_268_800, 0))),
        ("2026-01-01T12:00:00-00:00", Some((1_767_268_800, 0))),
        ("2026-01-01T12:00:00-23:59", Some((1_767_355_140, 0))),
        ("2026-01-01T12:00:00+24:00", Some((1_767_182_400, 0))),
        ("2026-01-01T12:00:00+24:60", Some((1_767_178_800, 0))),
        ("2026-01-01T7:00:00Z", Some((1_767_250_800, 0))),
        ("2026-01-01T7:00:00+24:60", Some((1_767_160_800, 0))),
        ("2026-01-01T7:00:00,5Z", Some((1_767_250_800, 500_000_000))),
        ("2026-01-01T12:00:00.25+01:00", Some((1_767_265_200, 250_000_000))),
        ("2026-01-01T12:00:00,5Z", Some((1_767_268_800, 500_000_000))),
        ("2026-01-01T12:00:00.1234567899Z", Some((1_767_268_800, 123_456_789))),
        ("2026-01-01T12:00:00.000000000000000000001Z", Some((1_767_268_800, 0))),
        ("2028-02-29T12:00:00Z", Some((1_835_438_400, 0))),
        ("9999-12-30T22:00:00.999999999Z", Some((253_402_207_200, 999_999_999))),
        ("9999-12-30T22:00:01Z", Some((253_402_207_201, 0))),
        ("9999-12-31T23:59:59Z", Some((253_402_300_799, 0))),
        ("9999-12-31T23:59:59.999999999Z", Some((253_402_300_799, 999_999_999))),
        ("9999-12-31T23:59:59-01:00", Some((253_402_304_399, 0))),
        ("9999-12-31T23:59:59-24:00", Some((253_402_387_199, 0))),
        ("0000-01-01T00:00:00Z", Some((-62_167_219_200, 0))),
        ("0000-01-01T00:00:00+01:00", Some((-62_167_222_800, 0))),
        ("2026-01-01T7:00:00+1:00", None),
        ("2026-01-01T7:00:00+23:61", None),
        ("2026-01-01T12:00:00+25:00", None),
        ("2026-01-01T12:00:00+0130", None),
        ("2026-01-01T12:00:00+01:0", None),
        ("2026-01-01T12:00:00.25-1:00", None),
        ("2026-01-01T07:0:00Z", None),
        ("2026-1-01T07:00:00Z", None),
        ("2026-01-1T07:00:00Z", None),
        ("2026-01-01T12:00:0Z", None),
        ("2026-01-01T12:00:5.5Z", None),
        ("2026-01-01T12:00Z", None),
        ("2026-01-01T12:00:00.Z", None),
        ("2026-01-01T12:00:00,Z", None),
        ("2026-01-01T7:00:00.Z", None),
        ("2026-01-01t12:00:00z", None),
        ("2026-01-01 12:00:00Z", None),
        (" 2026-01-01T12:00:00Z", None),
        ("2026-01-01T12:00:00ZZ", None),
        ("2026-01-01T12:00:00", None),
        ("2026-01-01T12:00:60Z", None),
        ("2026-01-01T23:60:00Z", None),
        ("2026-01-01T24:00:00Z", None),
        ("2026-01-01T012:00:00Z", None),
        ("2026-01-01T1a:00:00Z", None),
        ("2026-01-01T:00:00Z", None),
        ("2026-02-30T12:00:00Z", None),
        ("2026-00-10T12:00:00Z", None),
        ("2026-13-10T12:00:00Z", None),
        ("2026-01-00T12:00:00Z", None),
        ("10000-01-01T00:00:00Z", None),
        ("-001-01-01T00:00:00Z", None),
        ("20260101T120000Z", None),
        ("1767268800", None),
        ("", None),
    ];

    #[test]
    fn wall_time_texts_mean_what_the_api_server_reads() {
        for (text, expected) in RECORDED {
            let read = text.parse::<WallTime>().ok().map(|at| (at.seconds(), at.subsec_nanoseconds()));
            assert_eq!(read, *expected, "{text:?}");
        }
    }

    #[test]
    fn wall_time_beyond_jiff_is_printed_exactly_and_clamped_for_arithmetic() {
        for (seconds, text) in [
            (253_402_207_201, "9999-12-30T22:00:01Z"),
            (253_402_300_799, "9999-12-31T23:59:59Z"),
            (253_402_300_800, "10000-01-01T00:00:00Z"),
            (1 << 40, "36812-02-20T00:36:16Z"),
            (-62_135_596_801, "0000-12-31T23:59:59Z"),
            (-62_167_219_201, "-0001-12-31T23:59:59Z"),
            (-377_705_116_800, "-9999-01-01T00:00:00Z"),
        ] {
            assert_eq!(Time::from_seconds(seconds).unwrap().to_string(), text);
        }
        for seconds in [i64::MAX, i64::MIN, 253_402_300_799, -377_705_116_800] {
            let time = Time::from_seconds(seconds).unwrap();
            let clamped = if seconds < 0 { Timestamp::MIN } else { Timestamp::MAX };
            assert_eq!(Timestamp::from(time), clamped, "{time}");
            let meta = ObjectMeta { creation_timestamp: Some(time), ..ObjectMeta::default() };
            let read = ObjectMeta::decode(&meta.to_bytes().into()).unwrap();
            assert_eq!(read.creation_timestamp, Some(time), "the bytes are those of the time that was read");
        }
        assert_eq!(WallTime::new(i64::MAX, i32::MAX).seconds(), i64::MAX);
        assert_eq!(WallTime::new(0, -1), WallTime::new(-1, 999_999_999));
    }

    /// Kubernetes' types were seen to read these messages so.
    #[test]
    fn time_of_1970_is_set_and_go_s_zero_time_is_not() {
        let unset = |seconds: i64| {
            let mut bytes = Vec::new();
            put_varint_field(&mut bytes, 1, seconds as u64);
            bytes
        };
        for (bytes, expected) in [
            (Vec::new(), None),
            (vec![8, 0], Some("1970-01-01T00:00:00Z")),
            (vec![16, 5], Some("1970-01-01T00:00:00Z")),
            (vec![8, 5, 16, 5], Some("1970-01-01T00:00:05Z")),
            (unset(UNSET_SECONDS), None),
            (unset(UNSET_SECONDS + 1), Some("0001-01-01T00:00:01Z")),
        ] {
            let read = Time::decode(&bytes).unwrap();
            assert_eq!(read.map(|time| time.to_string()).as_deref(), expected, "{bytes:?}");
        }
        let epoch = Time::from(Timestamp::UNIX_EPOCH);
        assert_eq!(epoch.seconds(), 0);
        let meta = ObjectMeta { creation_timestamp: Some(epoch), ..ObjectMeta::default() };
        assert_eq!(ObjectMeta::decode(&meta.to_bytes().into()).unwrap().creation_timestamp, Some(epoch));
        let first = epoch.plus_seconds(UNSET_SECONDS);
        assert_eq!(first.to_string(), "0001-01-01T00:00:01Z", "the zero time is unset");
        let mut times =
            [i64::MAX, 0, i64::MIN, UNSET_SECONDS - 1].map(|seconds| Time::from_seconds(seconds).unwrap());
        times.sort();
        assert_eq!(times.map(Time::seconds), [i64::MIN, UNSET_SECONDS - 1, 0, i64::MAX]);
    }

    proptest! {
        #[test]
        fn wall_time_within_jiff_is_the_same_as_jiffs(seconds in -62_167_219_200_i64..253_402_207_200, nanoseconds in 0..1_000_000_000_i32) {
            let (ours, theirs) = (WallTime::new(seconds, nanoseconds), Timestamp::new(seconds, nanoseconds).unwrap());
            prop_assert_eq!(Timestamp::from(ours), theirs);
            for digits in [0, 6, 9] {
                let text = format!("{ours:.digits$}");
                prop_assert_eq!(&text, &format!("{theirs:.digits$}"));
            }
            prop_assert_eq!(format!("{ours:.9}").parse::<WallTime>().unwrap(), ours);
        }

        #[test]
        fn wall_time_any_text_is_read_or_refused(text in "[0-9TZ:+.,-]{0,40}") {
            if let Ok(at) = text.parse::<WallTime>() {
                prop_assert!(at.seconds() > -62_168_000_000 && at.seconds() < 253_403_000_000);
            }
        }
    }
}
