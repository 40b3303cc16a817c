//! Numbers and names as sentences say them, for what explanations tell
//! ([`Room::reasons`](crate::framework::Room::reasons)). Nothing here is in a message of the original.

use std::fmt::Display;
use std::time::Duration;

/// Names that a sentence says at most.
const MOST_NAMES: usize = 3;

/// `no pods`, `1 pod`, `2 pods`: for things whose plural ends with an s.
pub fn count(number: usize, thing: &str) -> String {
    match number {
        0 => format!("no {thing}s"),
        1 => format!("1 {thing}"),
        _ => format!("{number} {thing}s"),
    }
}

/// `singular` after a count of one, or else `plural`: `is` and `are`, `goes` and `go`.
pub fn verb<'a>(number: usize, singular: &'a str, plural: &'a str) -> &'a str {
    if number == 1 { singular } else { plural }
}

/// `a`, `a and b`, `a, b and c`, `a, b, c and 4 more`.
pub fn names<T: Display>(names: impl IntoIterator<Item = T>) -> String {
    let all: Vec<String> = names.into_iter().map(|name| name.to_string()).collect();
    let (shown, last) = match all.len() {
        0 => return "none".to_owned(),
        1 => return all[0].clone(),
        count if count <= MOST_NAMES => (&all[..count - 1], all[count - 1].clone()),
        count => (&all[..MOST_NAMES], format!("{} more", count - MOST_NAMES)),
    };
    format!("{} and {last}", shown.join(", "))
}

/// What is told of objects that a controller adopts and releases, by their names.
pub fn membership<'a>(
    adopted: impl IntoIterator<Item = &'a str>,
    released: impl IntoIterator<Item = &'a str>,
) -> Vec<String> {
    let (adopted, released): (Vec<_>, Vec<_>) =
        (adopted.into_iter().collect(), released.into_iter().collect());
    let mut told = Vec::new();
    if !adopted.is_empty() {
        let (number, all) = (adopted.len(), names(adopted));
        let (matches, has, they) = (
            verb(number, "matches", "match"),
            verb(number, "has", "have"),
            verb(number, "it is", "they are"),
        );
        told.push(format!("{all} {matches} the selector and {has} no controller: {they} adopted."));
    }
    if !released.is_empty() {
        let (number, all) = (released.len(), names(released));
        let (matches, they) = (verb(number, "matches", "match"), verb(number, "it is", "they are"));
        told.push(format!("{all} no longer {matches} the selector: {they} released."));
    }
    told
}

/// A time to wait or that has passed, in full seconds, the begun one counted: `40s`, `2m 5s`, `3h 10m`, `2d 1h`.
pub fn time(duration: Duration) -> String {
    let seconds = duration.as_secs() + u64::from(duration.subsec_nanos() > 0);
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86400);
    let pair = |large: u64, unit: &str, small: u64, small_unit: &str| {
        if small == 0 { format!("{large}{unit}") } else { format!("{large}{unit} {small}{small_unit}") }
    };
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, _) => pair(minutes, "m", seconds % 60, "s"),
        (0, _, _) => pair(hours, "h", minutes % 60, "m"),
        _ => pair(days, "d", hours % 24, "h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_names_are_said() {
        assert_eq!([0, 1, 7].map(|number| count(number, "pod")), ["no pods", "1 pod", "7 pods"]);
        assert_eq!([0, 1, 2].map(|number| verb(number, "is", "are")), ["are", "is", "are"]);
        let some = |count: usize| names(["a", "b", "c", "d", "e"].into_iter().take(count));
        assert_eq!([0, 1, 2, 3, 5].map(some), ["none", "a", "a and b", "a, b and c", "a, b, c and 2 more"]);
    }

    #[test]
    fn adoptions_and_releases_are_said() {
        assert_eq!(membership([], []), Vec::<String>::new());
        assert_eq!(
            membership(["a"], ["b", "c"]),
            [
                "a matches the selector and has no controller: it is adopted.",
                "b and c no longer match the selector: they are released."
            ]
        );
    }

    #[test]
    fn times_are_said_in_two_units() {
        for (millis, expected) in [
            (0, "0s"),
            (1, "1s"),
            (40_000, "40s"),
            (59_001, "1m"),
            (125_000, "2m 5s"),
            (11_400_000, "3h 10m"),
            (86_400_000, "1d"),
            (176_400_000, "2d 1h"),
        ] {
            assert_eq!(time(Duration::from_millis(millis)), expected);
        }
    }
}
