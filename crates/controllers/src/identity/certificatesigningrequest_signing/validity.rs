//! From when until when a certificate is valid. Reads no clock.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

use coxswain_machinery::wire::WallTime;

/// So long before its signing a certificate begins, for clocks that are late.
const BACKDATED: i64 = 5 * 60;
/// Certificates that last longer than this end so much earlier as they begin earlier.
const LONG: i64 = 8 * 3600;
/// No request has less, unless the flag says less.
const SHORTEST: i64 = 10 * 60;

/// When a certificate is signed, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Order {
    /// The moment, in seconds since 1970.
    at: i64,
    /// Seconds for which it is to last.
    lasts: i64,
}

/// From when until when, in seconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Validity {
    pub(super) from: i64,
    pub(super) until: i64,
}

/// An authority that signs no more.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Expired {
    /// It has ended before certificates would begin.
    #[error("the signer has expired: NotAfter={0}")]
    Long(String),
    /// It has ended a moment ago.
    #[error("refusing to sign a certificate that expired in the past: NotAfter={0}")]
    Lately(String),
}

impl Order {
    /// For a request that asks for so many seconds, if it does, of a signer that gives `longest` at most.
    pub(super) fn new(now: Timestamp, longest: Duration, asked: Option<i32>) -> Self {
        let longest = i64::try_from(longest.as_secs()).unwrap_or(i64::MAX);
        let lasts = match asked.map(i64::from) {
            None => longest,
            Some(asked) if asked > longest => longest,
            Some(asked) => asked.max(SHORTEST),
        };
        Self { at: now.as_second(), lasts }
    }

    /// For how long.
    pub(super) fn lasts(self) -> Duration {
        Duration::from_secs(self.lasts.unsigned_abs())
    }

    /// As an order's details.
    pub(super) fn to_json(self) -> Value {
        json!({ "at": self.at, "lasts": self.lasts })
    }

    /// Of an order's details.
    pub(super) fn of_json(details: &Value) -> Option<Self> {
        Some(Self { at: details["at"].as_i64()?, lasts: details["lasts"].as_i64()? })
    }

    /// The validity, by an authority that ends at `end`.
    pub(super) fn validity(self, end: i64) -> Result<Validity, Expired> {
        let when = || WallTime::new(end, 0).to_string();
        let from = self.at.saturating_sub(BACKDATED);
        let earlier = if self.lasts < LONG { 0 } else { BACKDATED };
        let until = self.at.saturating_add(self.lasts).saturating_sub(earlier).min(end);
        if end <= from {
            Err(Expired::Long(when()))
        } else if end <= self.at {
            Err(Expired::Lately(when()))
        } else {
            Ok(Validity { from, until })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_800_000_000;
    const YEAR: i64 = 365 * 24 * 3600;

    fn order(longest: i64, asked: Option<i32>) -> Order {
        Order::new(Timestamp::from_second(NOW).unwrap(), Duration::from_secs(longest as u64), asked)
    }

    #[test]
    fn a_certificate_lasts_as_long_as_is_asked_for_within_bounds() {
        // Until when, counted from now.
        for (longest, asked, expected) in [
            (YEAR, None, YEAR - 300),
            (YEAR, Some(600), 600),
            (YEAR, Some(3600), 3600),
            (YEAR, Some(28_799), 28_799),
            (YEAR, Some(28_800), 28_500),
            (YEAR, Some(i32::MAX), YEAR - 300),
            (YEAR, Some(1), 600),
            (YEAR, Some(-5), 600),
            (300, Some(600), 300),
            (300, None, 300),
            (300, Some(100), 600),
            (3600, Some(3601), 3600),
        ] {
            let validity = order(longest, asked).validity(i64::MAX).unwrap();
            assert_eq!(validity, Validity { from: NOW - 300, until: NOW + expected }, "{longest} {asked:?}");
        }
    }

    #[test]
    fn no_certificate_outlives_its_authority() {
        let text = |at: i64| Timestamp::from_second(NOW + at).unwrap().to_string();
        for (end, expected) in [
            (7200, Ok(7200)),
            (1, Ok(1)),
            (0, Err(Expired::Lately(text(0)))),
            (-299, Err(Expired::Lately(text(-299)))),
            (-300, Err(Expired::Long(text(-300)))),
            (-YEAR, Err(Expired::Long(text(-YEAR)))),
        ] {
            let until = order(YEAR, None).validity(NOW + end).map(|validity| validity.until - NOW);
            assert_eq!(until, expected, "{end}");
        }
        // As with kube-controller-manager: of no use, and the operator has asked for it.
        let none = order(0, None).validity(i64::MAX);
        assert_eq!(none, Ok(Validity { from: NOW - 300, until: NOW }), "--cluster-signing-duration=0");
    }

    #[test]
    fn orders_travel_as_json() {
        let order = order(YEAR, Some(700));
        assert_eq!(Order::of_json(&order.to_json()), Some(order));
        assert_eq!(Order::of_json(&json!({ "at": 1 })), None);
    }
}
