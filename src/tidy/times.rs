//! Times of objects become times of the library in one place, which clamps: `wire::time`.

use super::complain;
use super::requests::{lines_with, of_the_manager};

/// Conversions of a number of seconds, which fail for times that the API server accepts.
const CONVERSIONS: &[&str] = &[
    "Timestamp::from_second(",
    "Timestamp::from_millisecond(",
    "Timestamp::from_microsecond(",
    "Timestamp::from_nanosecond(",
    "Timestamp::from_duration(",
    "Timestamp::new(",
];

/// Files that convert, and why. (`WallTime` itself does by `Self::new`.)
const ELSEWHERE: &[(&str, &str)] = &[
    ("crates/controllers/src/fixtures.rs", "fixtures of tests"),
    (
        "crates/controllers/src/workloads/cronjob/schedule/mod.rs",
        "there is no activation beyond the calendar",
    ),
    ("src/cli/output/human.rs", "prints times of the admin API"),
];

#[test]
fn times_of_objects_are_converted_by_wall_time_alone() {
    let (mut complaints, mut used) = (Vec::new(), vec![false; ELSEWHERE.len()]);
    for (path, text) in of_the_manager().filter(|(path, _)| !path.ends_with("fixture.rs")) {
        let lines = lines_with(&text, CONVERSIONS);
        match ELSEWHERE.iter().position(|(allowed, _)| path == *allowed) {
            Some(at) => used[at] |= !lines.is_empty(),
            None => complaints.extend(
                lines.into_iter().map(|(at, line)| format!("{path}:{at}: use WallTime in place of `{line}`")),
            ),
        }
    }
    let unused = ELSEWHERE.iter().zip(used).filter(|(_, used)| !used);
    complaints.extend(unused.map(|((path, why), _)| format!("{path}: converts nothing any longer ({why})")));
    complain(&complaints);
}
