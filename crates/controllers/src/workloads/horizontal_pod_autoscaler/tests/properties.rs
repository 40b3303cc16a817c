//! What holds whatever the metrics say: bounds, windows and rates.

use jiff::SignedDuration;
use proptest::prelude::*;

use super::super::history::Step;
use super::fixtures::{Bench, autoscaler, pod};
use coxswain_machinery::api::AnyObject;
use coxswain_machinery::api::autoscaling::{HorizontalPodAutoscalerBehavior, ScalingPolicy, ScalingRules};
use coxswain_machinery::model::Key;

#[derive(Clone, Debug)]
struct Setting {
    min: i32,
    max: i32,
    behavior: Option<(i32, i32, i32, i32)>,
    /// What each pod uses at each look, in thousandths, and whether the metrics API answers.
    uses: Vec<Option<u16>>,
}

fn setting() -> impl Strategy<Value = Setting> {
    let behavior = prop::option::of((0_i32..60, 0_i32..90, 1_i32..6, 1_i32..80));
    let uses = prop::collection::vec(prop::option::weighted(0.9, 0_u16..300), 1..30);
    (1_i32..4, 0_i32..12, behavior, uses).prop_map(|(min, more, behavior, uses)| Setting {
        min,
        max: min + more,
        behavior,
        uses,
    })
}

#[expect(clippy::unnecessary_wraps, reason = "as a spec holds them")]
fn rules(window: i32, pods: i32, period: i32) -> Option<Box<ScalingRules>> {
    let policy = ScalingPolicy { r#type: "Pods".into(), value: pods, period_seconds: period };
    Some(Box::new(ScalingRules {
        policies: vec![policy],
        stabilization_window_seconds: Some(window),
        ..ScalingRules::default()
    }))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn a_target_stays_within_bounds_windows_and_rates(setting in setting()) {
        let mut bench = Bench::of(
            &autoscaler(|held| {
                held.spec.min_replicas = Some(setting.min);
                held.spec.max_replicas = setting.max;
                held.spec.behavior = setting.behavior.map(|(up, down, pods, period)| {
                    Box::new(HorizontalPodAutoscalerBehavior {
                        scale_up: rules(up, pods, period),
                        scale_down: rules(down, pods, period),
                    })
                });
            }),
            &["a", "b"],
        );
        let mut seen: Vec<(jiff::Timestamp, i32)> = vec![(bench.now, 2)];
        for (at, used) in setting.uses.iter().enumerate() {
            if let Some(used) = used {
                bench.all_use(&format!("{used}m"));
            } else {
                bench.answers.clear();
            }
            let before = bench.replicas.unwrap();
            bench.reconcile();
            let after = bench.replicas.unwrap();
            prop_assert!(after == before || (setting.min..=setting.max).contains(&after));
            prop_assert!(used.is_some() || after == before || before < setting.min || before > setting.max);
            seen.push((bench.now, after));
            let lowest = |window: i32| {
                let since = bench.now - SignedDuration::from_secs(window.into());
                seen.iter().filter(move |(at, _)| *at > since).map(|(_, count)| *count)
            };
            if let Some((_, _, pods, period)) = setting.behavior
                && (setting.min..=setting.max).contains(&before)
            {
                let recent: Vec<i32> = lowest(period).collect();
                let (least, most) = (recent.iter().min().unwrap(), recent.iter().max().unwrap());
                // What somebody takes away and adds again is counted from what there was when the period began.
                prop_assert!(after - before <= pods + (most - least) && before - after <= pods + (most - least));
            }
            let history = bench.remembering.history(&Key::new("default", "web"));
            prop_assert!(history.recommendations.len() <= 32 && history.added.len() <= 32);
            let of = |steps: &[Step]| steps.iter().all(|step| step.by > 0);
            prop_assert!(of(&history.added) && of(&history.removed));
            for number in before..after {
                bench.pods.upsert(&(pod(&format!("p{at}-{number}"), |_| {}) as AnyObject));
            }
            bench.later(15);
        }
    }

    /// A view gives the same plan each time, and what was done is not done again.
    #[test]
    fn what_is_settled_stays(used in 0_u16..300, max in 1_i32..12) {
        let mut bench = Bench::of(&autoscaler(|held| held.spec.max_replicas = max), &["a", "b"]);
        bench.all_use(&format!("{used}m")).reconcile();
        let replicas = bench.replicas.unwrap();
        // The metrics say that all is well from here on.
        for number in 2..replicas {
            bench.pods.upsert(&(pod(&format!("p{number}"), |_| {}) as AnyObject));
        }
        bench.all_use("50m");
        // What was asked for before is still followed, as fast as it may.
        for _ in 0..3 {
            bench.later(15).reconcile();
        }
        prop_assert_eq!(bench.later(15).reconcile(), Vec::<String>::new());
    }
}
