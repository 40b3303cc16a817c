//! How the value of a flag is read and shown: one implementation of [`FlagValue`] per type of the original's flags,
//! with the syntax of its command line (Go's numbers and booleans, comma lists that grow when the flag is repeated).

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use super::duration;

/// A value that a flag can't take: what was expected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ValueError(String);

impl ValueError {
    /// Says what was expected.
    pub fn new(expected: impl Into<String>) -> Self {
        Self(expected.into())
    }
}

/// Whether a flag was given before on the same command line. Lists replace their default the first time and grow
/// after that; all else is replaced each time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repetition {
    /// The first time.
    First,
    /// Given before.
    Again,
}

/// A type of flag value.
pub trait FlagValue {
    /// What `--help` calls the type.
    const TYPE: &'static str;
    /// The value that the bare flag stands for.
    const IMPLIED: Option<&'static str> = None;
    /// Takes a value from the command line.
    fn set(&mut self, text: &str, repetition: Repetition) -> Result<(), ValueError>;
    /// The value as it could be written on the command line.
    fn show(&self) -> String;
}

impl FlagValue for bool {
    const TYPE: &'static str = "bool";
    const IMPLIED: Option<&'static str> = Some("true");

    fn set(&mut self, text: &str, _: Repetition) -> Result<(), ValueError> {
        *self = parse_bool(text)?;
        Ok(())
    }

    fn show(&self) -> String {
        self.to_string()
    }
}

/// Reads a boolean as Go does.
pub(super) fn parse_bool(text: &str) -> Result<bool, ValueError> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err(ValueError::new("expected true or false")),
    }
}

/// Reads a whole number as Go does with base 0: decimal, or `0x`, `0o`, `0b`, or octal after a leading zero, and
/// underscores between digits.
fn parse_int(text: &str, min: i64, max: i64) -> Result<i64, ValueError> {
    let expected = || ValueError::new(format!("expected a whole number from {min} to {max}"));
    let (negative, digits) = match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    let lower = digits.to_ascii_lowercase();
    let (radix, body) = if let Some(body) = lower.strip_prefix("0x") {
        (16, body)
    } else if let Some(body) = lower.strip_prefix("0o") {
        (8, body)
    } else if let Some(body) = lower.strip_prefix("0b") {
        (2, body)
    } else if lower.len() > 1 && lower.starts_with('0') {
        (8, &lower[1..])
    } else {
        (10, lower.as_str())
    };
    // Between two digits, or between a prefix and a digit.
    let bare = radix == 10 || body.is_empty();
    let stray = body.ends_with('_') || body.contains("__") || bare && body.starts_with('_');
    if stray || body.contains(['+', '-']) {
        return Err(expected());
    }
    let magnitude = i128::from_str_radix(&body.replace('_', ""), radix).map_err(|_| expected())?;
    let value = if negative { -magnitude } else { magnitude };
    i64::try_from(value).ok().filter(|v| (min..=max).contains(v)).ok_or_else(expected)
}

impl FlagValue for i32 {
    const TYPE: &'static str = "int32";

    fn set(&mut self, text: &str, _: Repetition) -> Result<(), ValueError> {
        *self = parse_int(text, i32::MIN.into(), i32::MAX.into())? as Self;
        Ok(())
    }

    fn show(&self) -> String {
        self.to_string()
    }
}

impl FlagValue for i64 {
    const TYPE: &'static str = "int";

    fn set(&mut self, text: &str, _: Repetition) -> Result<(), ValueError> {
        *self = parse_int(text, Self::MIN, Self::MAX)?;
        Ok(())
    }

    fn show(&self) -> String {
        self.to_string()
    }
}

macro_rules! float {
    ($ty:ty, $name:literal) => {
        impl FlagValue for $ty {
            const TYPE: &'static str = $name;

            fn set(&mut self, text: &str, _: Repetition) -> Result<(), ValueError> {
                // No flag means anything at infinity or at "not a number".
                *self = text
                    .parse()
                    .ok()
                    .filter(|value: &Self| value.is_finite())
                    .ok_or_else(|| ValueError::new("expected a number such as 20 or 0.5"))?;
                Ok(())
            }

            fn show(&self) -> String {
                self.to_string()
            }
        }
    };
}
float!(f32, "float32");
float!(f64, "float");

impl FlagValue for String {
    const TYPE: &'static str = "string";

    fn set(&mut self, text: &str, _: Repetition) -> Result<(), ValueError> {
        text.clone_into(self);
        Ok(())
    }

    fn show(&self) -> String {
        self.clone()
    }
}

impl FlagValue for Duration {
    const TYPE: &'static str = "duration";

    fn set(&mut self, text: &str, _: Repetition) -> Result<(), ValueError> {
        *self = duration::parse(text)?;
        Ok(())
    }

    fn show(&self) -> String {
        duration::format(*self)
    }
}

/// A time limit: 0 on the command line means that there is none.
impl FlagValue for Option<Duration> {
    const TYPE: &'static str = Duration::TYPE;

    fn set(&mut self, text: &str, _: Repetition) -> Result<(), ValueError> {
        *self = Some(duration::parse(text)?).filter(|limit| !limit.is_zero());
        Ok(())
    }

    fn show(&self) -> String {
        self.unwrap_or_default().show()
    }
}

impl FlagValue for IpAddr {
    const TYPE: &'static str = "ip";

    fn set(&mut self, text: &str, _: Repetition) -> Result<(), ValueError> {
        // An empty address changes nothing, as in kube-controller-manager.
        if !text.is_empty() {
            let address: IpAddr =
                text.trim().parse().map_err(|_| ValueError::new("expected an IPv4 or IPv6 address"))?;
            // An IPv4-mapped IPv6 address is the IPv4 address.
            *self = address.to_canonical();
        }
        Ok(())
    }

    fn show(&self) -> String {
        self.to_string()
    }
}

impl FlagValue for Vec<String> {
    const TYPE: &'static str = "strings";

    fn set(&mut self, text: &str, repetition: Repetition) -> Result<(), ValueError> {
        let fields = split_csv(text)?;
        if repetition == Repetition::First {
            self.clear();
        }
        self.extend(fields);
        Ok(())
    }

    fn show(&self) -> String {
        format!("[{}]", self.join(","))
    }
}

impl FlagValue for Vec<i32> {
    const TYPE: &'static str = "int32Slice";

    fn set(&mut self, text: &str, repetition: Repetition) -> Result<(), ValueError> {
        let numbers: Vec<i32> = text
            .split(',')
            .map(|part| parse_int(part, i32::MIN.into(), i32::MAX.into()).map(|n| n as i32))
            .collect::<Result<_, _>>()?;
        if repetition == Repetition::First {
            self.clear();
        }
        self.extend(numbers);
        Ok(())
    }

    fn show(&self) -> String {
        format!("[{}]", self.iter().map(ToString::to_string).collect::<Vec<_>>().join(","))
    }
}

impl FlagValue for BTreeMap<String, String> {
    const TYPE: &'static str = "stringToString";

    fn set(&mut self, text: &str, repetition: Repetition) -> Result<(), ValueError> {
        let expected = || ValueError::new("expected key=value pairs, separated by commas");
        // One pair is taken whole, so that its key and its value may hold commas; several are comma-separated.
        let pairs = match text.matches('=').count() {
            0 => return Err(expected()),
            1 => vec![text.trim_matches('"').to_owned()],
            _ => split_csv(text)?,
        };
        let pairs: Vec<(String, String)> = pairs
            .iter()
            .map(|pair| pair.split_once('=').map(|(k, v)| (k.to_owned(), v.to_owned())).ok_or_else(expected))
            .collect::<Result<_, _>>()?;
        if repetition == Repetition::First {
            self.clear();
        }
        self.extend(pairs);
        Ok(())
    }

    fn show(&self) -> String {
        format!("[{}]", self.iter().map(|(k, v)| format!("{k}={v}")).collect::<Vec<_>>().join(","))
    }
}

/// Splits comma-separated values; a field in double quotes may hold commas and line breaks, and `""` within it a quote. As in
/// kube-controller-manager, empty lines in front and everything after the first line with values are skipped.
pub(super) fn split_csv(text: &str) -> Result<Vec<String>, ValueError> {
    let expected = || ValueError::new("expected a comma-separated list; quotes must enclose a whole element");
    if text.is_empty() {
        return Ok(Vec::new());
    }
    let text = text.replace("\r\n", "\n");
    let mut rest = text.strip_suffix('\r').unwrap_or(&text).trim_start_matches('\n');
    if rest.is_empty() {
        return Err(expected());
    }
    let mut fields = Vec::new();
    loop {
        let after = if let Some(mut quoted) = rest.strip_prefix('"') {
            let mut field = String::new();
            loop {
                let end = quoted.find('"').ok_or_else(expected)?;
                field.push_str(&quoted[..end]);
                quoted = &quoted[end + 1..];
                match quoted.strip_prefix('"') {
                    Some(after) => {
                        field.push('"');
                        quoted = after;
                    }
                    None => break,
                }
            }
            fields.push(field);
            quoted
        } else {
            let (field, after) = rest.split_at(rest.find([',', '\n']).unwrap_or(rest.len()));
            if field.contains('"') {
                return Err(expected());
            }
            fields.push(field.to_owned());
            after
        };
        if after.is_empty() || after.starts_with('\n') {
            return Ok(fields);
        }
        rest = after.strip_prefix(',').ok_or_else(expected)?;
    }
}

/// How much is logged: 0 for what an operator must see, 2 for what is usually wanted, 4 to debug, 6 and up for all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Verbosity(pub u32);

impl From<u32> for Verbosity {
    fn from(level: u32) -> Self {
        Self(level)
    }
}

impl Verbosity {
    pub(super) fn parse(text: &str) -> Result<Self, ValueError> {
        // Rust reads a leading plus sign and Go doesn't.
        let number = text.parse().ok().filter(|n| i32::try_from(*n).is_ok() && !text.starts_with('+'));
        number.map(Self).ok_or_else(|| ValueError::new("expected a level: 0, 1, 2, ..."))
    }
}

impl FlagValue for Verbosity {
    const TYPE: &'static str = "Level";

    fn set(&mut self, text: &str, _: Repetition) -> Result<(), ValueError> {
        *self = Self::parse(text)?;
        Ok(())
    }

    fn show(&self) -> String {
        self.0.to_string()
    }
}

impl fmt::Display for Verbosity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
