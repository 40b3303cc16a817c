//! Amounts of resources, exactly: `500m`, `64Gi`, `1e3`. See "Quantity" in the Kubernetes API reference.
//!
//! An amount is a whole number of billionths, which is as fine as the API goes, and remembers in which of the three forms
//! it was written: a sum is written in the form of its first part that is not zero. What the API server sends is in
//! canonical form (the largest suffix that leaves no fraction), and so is what is written here.
//!
//! Nothing here panics or wraps: beyond 10^29 units amounts stay at the largest there is.

use std::fmt;

#[cfg(test)]
mod differential;
#[cfg(test)]
mod tests;

/// In which form an amount is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum QuantityFormat {
    /// With a suffix for a power of 1024: `Ki` … `Ei`. Where that needs a fraction, or the amount is below 1024, the
    /// decimal form is used.
    Binary,
    /// With a suffix for a power of 1000: `n`, `u`, `m`, none, `k` … `E`.
    #[default]
    Decimal,
    /// With an exponent that is a multiple of three: `12e6`.
    Exponent,
}

/// An amount. `==` compares the form too; see [`Quantity::equals`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Quantity {
    billionths: i128,
    format: QuantityFormat,
}

/// A text is not an amount.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a quantity")]
pub struct ParseQuantityError(String);

const UNIT: i128 = 1_000_000_000;
/// Decimal suffixes from billionths on, each a thousand times the one before.
const DECIMAL: [&str; 10] = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];
/// Binary suffixes from units on.
const BINARY: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

impl Quantity {
    /// Nothing, in decimal form.
    pub const ZERO: Self = Self { billionths: 0, format: QuantityFormat::Decimal };

    /// That many, in decimal form.
    pub fn count(number: impl Into<i128>) -> Self {
        Self { billionths: number.into().saturating_mul(UNIT), format: QuantityFormat::Decimal }
    }

    /// Reads the quantity of an object in JSON. White space around it is ignored, as in Kubernetes, but control characters are errors: JSON
    /// has them only as escapes, which Kubernetes does not trim. Other escaped spaces are ignored, because the decoded text does not show them.
    ///
    /// # Errors
    /// The text is no quantity.
    pub fn of_json(text: &str) -> Result<Self, ParseQuantityError> {
        text.trim_matches(|char: char| char.is_whitespace() && char >= ' ').parse()
    }

    /// How many billionths it is.
    pub fn billionths(self) -> i128 {
        self.billionths
    }

    /// Whether it is nothing.
    pub fn is_zero(self) -> bool {
        self.billionths == 0
    }

    /// Whether it is more than nothing.
    pub fn is_positive(self) -> bool {
        self.billionths > 0
    }

    /// Whether it is as much, in whatever form.
    pub fn equals(self, other: Self) -> bool {
        self.billionths == other.billionths
    }

    /// Whether it is more than `other`.
    pub fn exceeds(self, other: Self) -> bool {
        self.billionths > other.billionths
    }

    /// The sum; in its own form, or in that of `other` if it is nothing.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        let format = if self.is_zero() { other.format } else { self.format };
        Self { billionths: self.billionths.saturating_add(other.billionths), format }
    }

    /// Returns this quantity less `other`, in the form of this quantity, or of `other` if this quantity is zero.
    #[must_use]
    pub fn minus(self, other: Self) -> Self {
        let format = if self.is_zero() { other.format } else { self.format };
        Self { billionths: self.billionths.saturating_sub(other.billionths), format }
    }

    /// The larger of both; of equals this one.
    #[must_use]
    pub fn or_more(self, other: Self) -> Self {
        if other.exceeds(self) { other } else { self }
    }

    /// The smaller of both; of equals this one.
    #[must_use]
    pub fn or_less(self, other: Self) -> Self {
        if self.exceeds(other) { other } else { self }
    }

    /// How many thousandths it is, rounded up; 0 for what is less than nothing.
    pub fn thousandths(self) -> u64 {
        let whole = self.billionths.max(0).div_euclid(UNIT / 1000);
        let rest = i128::from(self.billionths.max(0) % (UNIT / 1000) != 0);
        u64::try_from(whole.saturating_add(rest)).unwrap_or(u64::MAX)
    }

    /// How many thousandths it is, rounded away from zero; at most, or at least, what there is room for.
    pub fn milli(self) -> i64 {
        let whole = self.billionths / (UNIT / 1000);
        let rest = (self.billionths % (UNIT / 1000)).signum();
        let limit = if self.billionths < 0 { i64::MIN } else { i64::MAX };
        i64::try_from(whole.saturating_add(rest)).unwrap_or(limit)
    }

    /// So many thousandths, in this form.
    pub fn from_milli(thousandths: i64, format: QuantityFormat) -> Self {
        Self { billionths: i128::from(thousandths) * (UNIT / 1000), format }
    }

    /// The double that is nearest to it.
    pub fn to_f64(self) -> f64 {
        self.billionths as f64 / UNIT as f64
    }

    /// The next whole number, away from zero.
    #[must_use]
    pub fn rounded_up(self) -> Self {
        let up = |part: i128| if part == 0 { 0 } else { part.signum().saturating_mul(UNIT) - part };
        Self { billionths: self.billionths.saturating_add(up(self.billionths % UNIT)), ..self }
    }
}

impl std::str::FromStr for Quantity {
    type Err = ParseQuantityError;

    /// Reads `[+-]DIGITS[.DIGITS][SUFFIX]`. A text without digits, such as `Gi` or `.`, is 0, except that `Pi`, `Ei` and
    /// exponents below -9 without digits are errors, both as in Kubernetes. Fractions of a billionth are rounded away from zero.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse(text).ok_or_else(|| ParseQuantityError(text.to_owned()))
    }
}

fn parse(text: &str) -> Option<Quantity> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let is_part_of_number = |char: char| char.is_ascii_digit() || char == '.';
    let end = unsigned.find(|char| !is_part_of_number(char)).unwrap_or(unsigned.len());
    let (number, suffix) = unsigned.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if fraction.contains('.') || text.is_empty() {
        return None;
    }
    let (format, decimal, binary) = scale(suffix)?;
    let has_digits = whole.len() + fraction.len() > 0;
    if !has_digits && (suffix == "Pi" || suffix == "Ei" || decimal < -9) {
        return None;
    }
    let mut mantissa = Mantissa::default();
    for digit in whole.bytes().chain(fraction.bytes()) {
        mantissa.push(digit - b'0');
    }
    // In billionths.
    mantissa.exponent = mantissa.exponent.saturating_add(decimal).saturating_add(9);
    mantissa.exponent = mantissa.exponent.saturating_sub(i64::try_from(fraction.len()).ok()?);
    let size = mantissa.whole(binary);
    // Kubernetes keeps amounts with binary suffixes within 64 bits, and no others.
    let size = if format == QuantityFormat::Binary { size.min(i128::from(i64::MAX) * UNIT) } else { size };
    let billionths = if text.starts_with('-') { size.saturating_neg() } else { size };
    Some(Quantity { billionths, format })
}

/// Form, power of ten and power of two of a suffix.
fn scale(suffix: &str) -> Option<(QuantityFormat, i64, u32)> {
    if let Some(at) = DECIMAL.iter().position(|held| *held == suffix) {
        return Some((QuantityFormat::Decimal, i64::try_from(at).ok()? * 3 - 9, 0));
    }
    if let Some(at) = BINARY.iter().position(|held| *held == suffix) {
        return Some((QuantityFormat::Binary, 0, u32::try_from(at).ok()? * 10));
    }
    let exponent = suffix.strip_prefix(['e', 'E'])?;
    let exponent: i32 = exponent.parse().ok()?;
    Some((QuantityFormat::Exponent, exponent.into(), 0))
}

/// `digits * 10^exponent`, and a little more if `inexact`.
#[derive(Default)]
struct Mantissa {
    digits: i128,
    /// Whether there is no room for more digits: the rest of them rounds it up.
    full: bool,
    exponent: i64,
    inexact: bool,
}

impl Mantissa {
    fn push(&mut self, digit: u8) {
        let longer = self.digits.checked_mul(10).and_then(|digits| digits.checked_add(digit.into()));
        if let Some(digits) = longer.filter(|_| !self.full) {
            self.digits = digits;
        } else {
            self.full = true;
            self.inexact |= digit > 0;
            self.exponent = self.exponent.saturating_add(1);
        }
    }

    /// Returns the number times two to this power, rounded up to a whole number; `i128::MAX` if that is too large.
    fn whole(mut self, power_of_two: u32) -> i128 {
        /// The exponent of the highest power of ten in 128 bits.
        const MOST: i64 = 38;
        if self.digits == 0 {
            return 0;
        }
        if self.exponent >= 0 {
            let power = u32::try_from(self.exponent).ok().and_then(|by| 10_i128.checked_pow(by));
            let factor = power.and_then(|power| power.checked_mul(1 << power_of_two));
            let whole = factor.and_then(|factor| self.digits.checked_mul(factor)).unwrap_or(i128::MAX);
            return whole.saturating_add(i128::from(self.inexact));
        }
        while self.exponent < -MOST && self.digits > 0 {
            self.inexact |= self.digits % 10 > 0;
            self.digits /= 10;
            self.exponent += 1;
        }
        if self.digits == 0 {
            return 1;
        }
        let divisor = 10_u128.pow(u32::try_from(-self.exponent).unwrap_or_default());
        let digits = self.digits.unsigned_abs();
        let (mut whole, mut rest) = ((digits / divisor).cast_signed(), digits % divisor);
        // Doubling both parts keeps every digit; the product of all digits and the power has no room.
        for _ in 0..power_of_two {
            rest *= 2;
            whole = whole.saturating_mul(2).saturating_add(i128::from(rest >= divisor));
            if rest >= divisor {
                rest -= divisor;
            }
        }
        whole.saturating_add(i128::from(rest > 0 || self.inexact))
    }
}

impl fmt::Display for Quantity {
    /// In canonical form.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_zero() {
            return f.write_str("0");
        }
        let units = self.billionths / UNIT;
        let is_binary =
            self.format == QuantityFormat::Binary && self.billionths % UNIT == 0 && units.abs() >= 1024;
        if is_binary {
            let (number, times) = without_factor(units, 1024, BINARY.len() - 1);
            return write!(f, "{number}{}", BINARY[times]);
        }
        if self.format == QuantityFormat::Exponent {
            let (number, times) = without_factor(self.billionths, 1000, usize::MAX);
            return match times {
                3 => write!(f, "{number}"),
                // There are but twelve factors of 1000 in the largest number.
                times => write!(f, "{number}e{}", i64::try_from(times).unwrap_or(0) * 3 - 9),
            };
        }
        let (number, times) = without_factor(self.billionths, 1000, DECIMAL.len() - 1);
        write!(f, "{number}{}", DECIMAL[times])
    }
}

/// The number divided by `factor` as often as it goes, `most` times at most.
fn without_factor(mut number: i128, factor: i128, most: usize) -> (i128, usize) {
    let mut times = 0;
    while times < most && number % factor == 0 {
        number /= factor;
        times += 1;
    }
    (number, times)
}
