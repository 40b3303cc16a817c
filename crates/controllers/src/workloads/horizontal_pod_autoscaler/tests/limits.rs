//! Windows, bounds and rates as tables.

use std::time::Duration;

use super::super::history::{History, Recommendation, Step};
use super::super::plan::limits::{Limit, Limited, Stabilization, limited};
use super::fixtures::settings;
use coxswain_machinery::api::autoscaling::{
    HorizontalPodAutoscalerBehavior, HorizontalPodAutoscalerSpec, ScalingPolicy, ScalingRules,
};
use coxswain_machinery::model::clock::SteadyTime;

/// A time before [`NOW`].
fn ago(seconds: u64) -> SteadyTime {
    SteadyTime::default().plus(NOW.saturating_sub(Duration::from_secs(seconds)))
}

const NOW: Duration = Duration::from_hours(1);

fn asked(recommendations: &[(u64, i32)]) -> History {
    let of = |&(seconds, replicas)| Recommendation { at: ago(seconds), replicas };
    History { recommendations: recommendations.iter().map(of).collect(), ..History::default() }
}

fn rules(policies: &[(&str, i32, i32)]) -> ScalingRules {
    let of = |&(kind, value, period_seconds): &(&str, i32, i32)| ScalingPolicy {
        r#type: kind.into(),
        value,
        period_seconds,
    };
    ScalingRules { policies: policies.iter().map(of).collect(), ..ScalingRules::default() }
}

/// These policies up, and as the API fills in down.
pub(super) fn behavior(up: &[(&str, i32, i32)]) -> HorizontalPodAutoscalerBehavior {
    HorizontalPodAutoscalerBehavior {
        scale_up: Some(Box::new(rules(up))),
        scale_down: Some(Box::new(rules(&[("Percent", 100, 15)]))),
    }
}

fn spec(
    min: i32,
    max: i32,
    behavior: Option<HorizontalPodAutoscalerBehavior>,
) -> HorizontalPodAutoscalerSpec {
    HorizontalPodAutoscalerSpec {
        min_replicas: Some(min),
        max_replicas: max,
        behavior: behavior.map(Box::new),
        ..HorizontalPodAutoscalerSpec::default()
    }
}

fn of(spec: &HorizontalPodAutoscalerSpec, history: &History, current: i32, desired: i32) -> Limited {
    limited(spec, &settings(), history, (current, desired), ago(0))
}

#[test]
fn without_behavior_the_highest_of_the_window_counts_and_growth_is_twofold() {
    for (history, current, desired, replicas, stabilization, limit) in [
        (asked(&[]), 3, 5, 5, Stabilization::None, Limit::None),
        (asked(&[(10, 8)]), 8, 5, 8, Stabilization::Down, Limit::None),
        (asked(&[(299, 7), (300, 9)]), 8, 5, 7, Stabilization::Down, Limit::None),
        (asked(&[(300, 9)]), 8, 5, 5, Stabilization::None, Limit::None),
        (asked(&[]), 1, 9, 4, Stabilization::None, Limit::UpRate),
        (asked(&[]), 3, 9, 6, Stabilization::None, Limit::UpRate),
        (asked(&[]), 9, 30, 18, Stabilization::None, Limit::UpRate),
        (asked(&[]), 12, 30, 20, Stabilization::None, Limit::TooMany),
        (asked(&[]), 10, 20, 20, Stabilization::None, Limit::None),
        (asked(&[]), 5, 1, 2, Stabilization::None, Limit::TooFew),
        (asked(&[]), 5, 0, 2, Stabilization::None, Limit::TooFew),
    ] {
        let limited = of(&spec(2, 20, None), &history, current, desired);
        assert_eq!(
            (limited.replicas, limited.stabilization, limited.limit),
            (replicas, stabilization, limit),
            "{desired} of {current}"
        );
    }
}

#[test]
fn with_behavior_each_direction_has_a_window() {
    let mut both = behavior(&[("Percent", 900, 15)]);
    both.scale_up.as_mut().unwrap().stabilization_window_seconds = Some(60);
    both.scale_down.as_mut().unwrap().stabilization_window_seconds = Some(30);
    let spec = spec(1, 100, Some(both));
    for (history, current, desired, replicas, stabilization) in [
        // The lowest of a minute counts to grow, the highest of half a minute to shrink.
        (asked(&[(59, 6), (60, 2)]), 5, 9, 6, Stabilization::Up),
        (asked(&[(59, 4)]), 5, 9, 5, Stabilization::Up),
        (asked(&[(29, 4), (30, 5)]), 5, 2, 4, Stabilization::Down),
        (asked(&[(29, 7)]), 5, 2, 5, Stabilization::Down),
        (asked(&[]), 5, 2, 2, Stabilization::None),
    ] {
        let limited = of(&spec, &history, current, desired);
        assert_eq!(
            (limited.replicas, limited.stabilization),
            (replicas, stabilization),
            "{desired} of {current}"
        );
    }
    // The flag's window where none is given.
    let spec = self::spec(1, 100, Some(behavior(&[("Pods", 4, 15)])));
    assert_eq!(of(&spec, &asked(&[(299, 5)]), 5, 2).replicas, 5);
    assert_eq!(of(&spec, &asked(&[(300, 5)]), 5, 2).replicas, 2);
}

#[test]
fn rates_count_from_what_there_was_when_their_period_began() {
    let up = |policies: &[(&str, i32, i32)],
              select: Option<&str>,
              added: &[(u64, i32)],
              removed: &[(u64, i32)]| {
        let mut held = behavior(policies);
        held.scale_up.as_mut().unwrap().select_policy = select.map(Into::into);
        let steps =
            |all: &[(u64, i32)]| all.iter().map(|&(seconds, by)| Step { at: ago(seconds), by }).collect();
        let history = History { added: steps(added), removed: steps(removed), ..History::default() };
        let limited = of(&spec(1, 100, Some(held)), &history, 10, 90);
        (limited.replicas, limited.limit)
    };
    let both: &[(&str, i32, i32)] = &[("Pods", 4, 15), ("Percent", 100, 15)];
    assert_eq!(up(both, None, &[], &[]), (20, Limit::UpRate));
    assert_eq!(up(both, Some("Max"), &[], &[]), (20, Limit::UpRate));
    assert_eq!(up(both, Some("Min"), &[], &[]), (14, Limit::UpRate));
    assert_eq!(up(both, Some("Disabled"), &[], &[]), (10, Limit::UpRate));
    assert_eq!(up(both, None, &[(14, 4)], &[]), (12, Limit::UpRate), "6 there were");
    assert_eq!(up(both, None, &[(15, 4)], &[]), (20, Limit::UpRate));
    assert_eq!(up(both, None, &[], &[(14, 2)]), (24, Limit::UpRate), "12 there were");
    assert_eq!(
        up(&[("Pods", 4, 15)], None, &[(14, 9)], &[]),
        (10, Limit::UpRate),
        "never fewer than there are"
    );
    // As the original's doubles have it: a tenth more than 100 would be a little more than 110.
    assert_eq!(up(&[("Percent", 10, 15)], None, &[], &[]), (11, Limit::UpRate));
    assert_eq!(up(&[("Percent", 1000, 15)], None, &[], &[]), (90, Limit::None));
    assert_eq!(up(&[("Percent", 100_000, 15)], None, &[], &[]), (90, Limit::None));
}

#[test]
fn shrinking_has_rates_too_and_bounds_win_where_they_are_narrower() {
    let down = |policies: &[(&str, i32, i32)], select: Option<&str>, min: i32, desired: i32| {
        let mut held = behavior(&[]);
        let mut rules = rules(policies);
        rules.stabilization_window_seconds = Some(0);
        rules.select_policy = select.map(Into::into);
        held.scale_down = Some(Box::new(rules));
        let limited = of(&spec(min, 100, Some(held)), &History::default(), 10, desired);
        (limited.replicas, limited.limit)
    };
    let both: &[(&str, i32, i32)] = &[("Pods", 3, 15), ("Percent", 15, 15)];
    assert_eq!(down(both, None, 1, 2), (7, Limit::DownRate));
    assert_eq!(down(both, Some("Min"), 1, 2), (8, Limit::DownRate), "8.5 is cut");
    assert_eq!(down(both, Some("Disabled"), 1, 2), (10, Limit::DownRate));
    assert_eq!(down(both, None, 9, 2), (9, Limit::TooFew));
    assert_eq!(down(both, None, 1, 8), (8, Limit::None));
    assert_eq!(down(&[("Percent", 100, 15)], None, 1, 0), (1, Limit::TooFew));
    assert_eq!(down(&[], None, 1, 2), (10, Limit::DownRate), "no policy allows anything");
    // Growing stops at the bound as well.
    let held = behavior(&[("Pods", 50, 15)]);
    let limited = of(&spec(1, 12, Some(held)), &History::default(), 10, 90);
    assert_eq!((limited.replicas, limited.limit), (12, Limit::TooMany));
    let window = Duration::from_mins(5);
    assert_eq!(super::super::plan::limits::longest_window(&spec(1, 1, None), &settings()), window);
}
