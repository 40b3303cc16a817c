//! Numbers that objects give as a share of a whole: `maxSurge: 25%`.

use crate::wire::IntOrString;

/// The direction in which a share is rounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rounding {
    /// Towards positive infinity.
    Up,
    /// Towards negative infinity.
    Down,
}

/// Returns an integer as it is, and for a percentage its share of `total`; `None` for a text that is no percentage.
///
/// The caller clamps the result.
pub fn scaled(value: &IntOrString, total: i64, rounding: Rounding) -> Option<i64> {
    let text = match value {
        IntOrString::Int(number) => return Some(i64::from(*number)),
        IntOrString::Str(text) => text,
    };
    let percent: i64 = text.strip_suffix('%')?.parse().ok()?;
    let hundredths = i128::from(percent) * i128::from(total);
    let share = match rounding {
        Rounding::Up => -(-hundredths).div_euclid(100),
        Rounding::Down => hundredths.div_euclid(100),
    };
    Some(i64::try_from(share).unwrap_or(if share < 0 { i64::MIN } else { i64::MAX }))
}

#[cfg(test)]
mod differential;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages_are_rounded_in_both_directions() {
        for (text, total, shares) in [
            ("25%", 10, Some((3, 2))),
            ("25%", 0, Some((0, 0))),
            ("100%", 7, Some((7, 7))),
            ("+25%", 10, Some((3, 2))),
            ("-25%", 10, Some((-2, -3))),
            ("007%", 100, Some((7, 7))),
            ("5000000000%", 3, Some((150_000_000, 150_000_000))),
            ("9223372036854775808%", 3, None),
            ("25", 10, None),
            ("%", 10, None),
            ("25 %", 10, None),
            ("25%%", 10, None),
            ("2.5%", 10, None),
        ] {
            let value = IntOrString::Str(text.into());
            let up = scaled(&value, total, Rounding::Up);
            assert_eq!(up.zip(scaled(&value, total, Rounding::Down)), shares, "{text} of {total}");
        }
        assert_eq!(scaled(&IntOrString::Int(-3), 10, Rounding::Up), Some(-3));
    }
}
