//! How often pods have failed lately.

use proptest::prelude::*;

use super::super::backoff::{Backoffs, Record};
use super::fixtures::ago;
use coxswain_machinery::model::Key;
use coxswain_machinery::wire::{Time, Uid, WallTime};

fn times(seconds: &[i64]) -> Vec<Time> {
    seconds.iter().map(|seconds| ago(*seconds).unwrap()).collect()
}

#[test]
fn a_success_forgets_the_failures_before_it() {
    let held = Record { failures: 3, last: ago(50) };
    let after = |failed: &[i64], succeeded: &[i64]| held.after(&times(failed), &times(succeeded));
    assert_eq!(after(&[], &[]), held);
    assert_eq!(after(&[20, 30], &[]), Record { failures: 5, last: ago(20) });
    assert_eq!(after(&[], &[40]), Record::default());
    assert_eq!(after(&[20, 30, 60], &[40, 70]), Record { failures: 2, last: ago(20) });
    assert_eq!(after(&[40], &[40]), Record::default());
    // Failures that are told late do not set it back.
    assert_eq!(after(&[60], &[]), Record { failures: 4, last: ago(50) });
}

/// `finishedAt` of a container comes from its node.
#[test]
fn job_backoff_does_not_wait_for_a_failure_at_the_end_of_the_calendar() {
    let wait = |last: Time| Record { failures: 1, last: Some(last) }.wait(super::fixtures::now());
    let end: Time = "9999-12-31T23:59:59Z"
        .parse::<WallTime>()
        .map(|at| Time::from_seconds(at.seconds()))
        .unwrap()
        .unwrap();
    assert_eq!(wait(end), None);
    assert_eq!(wait(Time::from_seconds(i64::MAX).unwrap()), None);
    assert_eq!(wait(Time::from_seconds(i64::MIN).unwrap()), None);
    assert!(wait(ago(-5).unwrap()).is_some(), "the clock of a node may be ahead");
}

#[test]
fn a_record_is_of_one_job_and_ends_with_it() {
    let (key, uid) = (Key::new("default", "work"), Uid::from("a"));
    let held = Record { failures: 3, last: ago(50) };
    let backoffs = Backoffs::default();
    backoffs.set(&key, &uid, held);
    assert_eq!(backoffs.of(&key, &uid), held);
    assert_eq!(backoffs.of(&key, &Uid::from("b")), Record::default());
    backoffs.forget(&key);
    assert_eq!(backoffs.of(&key, &uid), Record::default());
}

proptest! {
    /// Whatever has failed: the wait is over ten minutes after the last failure at the latest.
    #[test]
    fn a_wait_has_an_end(failures: u32, since in 0..2_000_i64) {
        let record = Record { failures, last: ago(since) };
        let wait = record.wait(super::fixtures::now());
        prop_assert_eq!(wait.is_some(), failures > 0 && i128::from(since) < 10_i128 * (1_i128 << (failures - 1).min(6)).min(60));
    }
}
