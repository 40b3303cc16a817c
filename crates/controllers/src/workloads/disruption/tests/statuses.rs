//! What the status says, and when it is written.

use std::time::Duration;

use super::super::granted::Granted;
use super::super::plan::plan;
use super::fixtures::{
    Bench, ago, bare, budget, decoded, deleting, labels, now, percent, pod, pods, says, told, unready,
};
use coxswain_machinery::api::kinds::{POD_DISRUPTION_BUDGETS, PODS};
use coxswain_machinery::api::meta::{Condition, LabelSelectorRequirement};
use coxswain_machinery::api::pod::Pod;
use coxswain_machinery::api::policy::PodDisruptionBudget;
use coxswain_machinery::informer::downcast;
use coxswain_machinery::model::Key;
use coxswain_machinery::model::plan::{Step, Verb};
use coxswain_machinery::wire::splice::put_varint_field;
use coxswain_machinery::wire::{IntOrString, Message as _, Raw, Str};

/// What the status of a budget over these four ready pods, of a `ReplicaSet` of four, is made to say.
fn over_four(change: impl FnOnce(&mut PodDisruptionBudget)) -> String {
    Bench::of(&budget(change), &pods(&["a", "b", "c", "d"])).status()
}

#[test]
fn a_number_counts_pods_and_everything_else_replicas() {
    let says = |min: Option<IntOrString>, max: Option<IntOrString>| {
        // Three pods where there should be four; one of them goes, one is finished.
        let held =
            [pod("a", |_| {}), pod("b", deleting), pod("c", |pod| pod.status.phase = "Succeeded".into())];
        let budget = budget(|budget| (budget.spec.min_available, budget.spec.max_unavailable) = (min, max));
        Bench::of(&budget, &held).status()
    };
    let number = |number| Some(IntOrString::Int(number));
    for (min, max, status) in [
        (number(1), None, "status 1 2/1/3 @3 True SufficientPods"),
        (number(2), None, "status 0 2/2/3 @3 False InsufficientPods"),
        (Some(percent("30%")), None, "status 0 2/2/4 @3 False InsufficientPods"),
        (Some(percent("25%")), None, "status 1 2/1/4 @3 True SufficientPods"),
        (None, number(3), "status 1 2/1/4 @3 True SufficientPods"),
        (None, Some(percent("26%")), "status 0 2/2/4 @3 False InsufficientPods"),
        (None, Some(percent("60%")), "status 1 2/1/4 @3 True SufficientPods"),
        (None, number(9), "status 2 2/0/4 @3 True SufficientPods"),
        (None, None, "status 0 2/0/0 @3 False InsufficientPods"),
    ] {
        assert_eq!(says(min.clone(), max.clone()), status, "{min:?} {max:?}");
    }
    let odd = says(None, Some(percent("half")));
    assert_eq!(odd, "status 0 0/0/0 @0 False SyncFailed: \"half\" is neither a number nor a percentage");
}

#[test]
fn nothing_is_allowed_where_nothing_is_expected() {
    let none = |budget: &mut PodDisruptionBudget| budget.spec.min_available = Some(IntOrString::Int(0));
    assert_eq!(Bench::of(&budget(none), &[]).status(), "status 0 0/0/0 @3 False InsufficientPods");
    assert_eq!(over_four(none), "status 4 4/0/4 @3 True SufficientPods");
    // Pods without a controller are healthy, and none of them is expected.
    let max = |budget: &mut PodDisruptionBudget| {
        budget.spec.min_available = None;
        budget.spec.max_unavailable = Some(IntOrString::Int(1));
    };
    let status = Bench::of(&budget(max), &[pod("a", bare)]).status();
    assert_eq!(status, "status 0 1/0/0 @3 False InsufficientPods");
}

#[test]
fn an_empty_selector_selects_all_and_an_absent_one_nothing() {
    let select = |change: fn(&mut PodDisruptionBudget)| {
        let held = [pod("a", |pod| pod.metadata.labels = labels(&[])), pod("b", |_| {})];
        Bench::of(&budget(change), &held).lines()
    };
    let none = ["Normal NoPods web: No matching pods found", "status 0 0/2/0 @3 False InsufficientPods"];
    assert_eq!(select(|budget| budget.spec.selector = None), none);
    let all = ["status 0 2/2/2 @3 False InsufficientPods"];
    assert_eq!(select(|budget| budget.spec.selector = Some(Box::default())), all);
    let unusable = select(|budget| {
        let odd = LabelSelectorRequirement { key: "a".into(), operator: "Odd".into(), ..Default::default() };
        budget.spec.selector.as_mut().unwrap().match_expressions = vec![odd].into();
    });
    let [event, status] = unusable.as_slice() else { panic!("{unusable:?}") };
    assert!(event.starts_with("Warning NoPods web: Failed to get pods: "), "{event}");
    assert!(status.starts_with("status 0 0/0/0 @0 False SyncFailed: invalid label selector"), "{status}");
}

#[test]
fn ready_pods_are_healthy_whatever_their_phase() {
    let held = [
        pod("done", |pod| pod.status.phase = "Succeeded".into()),
        pod("pending", |pod| pod.status.phase = "Pending".into()),
        pod("running", unready),
        pod("terminating", deleting),
    ];
    assert_eq!(Bench::of(&budget(|_| {}), &held).status(), "status 0 2/2/4 @3 False InsufficientPods");
}

#[test]
fn who_is_about_to_be_evicted_is_not_healthy_for_two_minutes() {
    let evicting = |seconds| {
        budget(|budget| {
            says(budget, [0, 3, 2, 4]);
            budget.status.disrupted_pods.insert("a", ago(seconds));
        })
    };
    let bench = |seconds| Bench::of(&evicting(seconds), &pods(&["a", "b", "c", "d"]));
    assert_eq!(bench(0).status(), "status 1 3/2/4 @3 True SufficientPods -a");
    assert_eq!(bench(0).plan().requeue_after, Some(Duration::from_mins(2)));
    assert_eq!(bench(119).plan().requeue_after, Some(Duration::from_secs(1)));
    let late = [
        "Warning NotDeleted a: Pod was expected by PDB default/web to be deleted but it wasn't",
        "status 2 4/2/4 @3 True SufficientPods",
    ];
    assert_eq!(bench(120).lines(), late);
    assert_eq!(bench(120).plan().requeue_after, None);
    // Those that are going or gone are not waited for.
    let held = [pod("a", deleting), pod("b", |_| {})];
    assert_eq!(Bench::of(&evicting(0), &held).status(), "status 0 1/2/2 @3 False InsufficientPods");
    let status = Bench::of(&evicting(500), &pods(&["b", "c"])).lines();
    assert_eq!(status, ["status 0 2/2/2 @3 False InsufficientPods"]);
}

#[test]
fn a_cache_of_pods_that_is_older_than_an_eviction_does_not_tell_that_its_pod_is_gone() {
    let evicting = |seconds| {
        budget(|budget| {
            says(budget, [0, 3, 2, 3]);
            for name in ["a", "new"] {
                budget.status.disrupted_pods.insert(name, ago(seconds));
            }
        })
    };
    // One of that name goes; the other was not seen yet, or is gone.
    let held = [pod("a", deleting), pod("b", |_| {}), pod("c", |_| {})];
    let bench = |version| Bench::at(version, &evicting(10), &held);
    assert_eq!(bench("99").status(), "status 0 2/2/3 @3 False InsufficientPods -a -new");
    assert_eq!(bench("99").plan().requeue_after, Some(Duration::from_secs(1)));
    assert_eq!(bench("100").status(), "status 0 2/2/3 @3 False InsufficientPods");
    assert_eq!(bench("100").plan().requeue_after, None);
    // When they are seen they do not count.
    let seen = Bench::at("99", &evicting(10), &pods(&["a", "b", "c", "new"]));
    assert_eq!(seen.status(), "status 0 2/2/4 @3 False InsufficientPods -a -new");
    // However late it is, but not for ever; and who is not there was not left out either.
    assert_eq!(
        Bench::at("99", &evicting(200), &held).status(),
        "status 0 2/2/3 @3 False InsufficientPods -a -new"
    );
    let seen = Bench::at("99", &evicting(200), &pods(&["a", "b", "c", "new"]));
    assert_eq!(seen.status(), "status 0 2/2/4 @3 False InsufficientPods -a -new");
    assert_eq!(seen.plan().requeue_after, Some(Duration::from_secs(1)));
    assert_eq!(Bench::at("99", &evicting(240), &held).lines(), ["status 0 2/2/3 @3 False InsufficientPods"]);
}

#[test]
fn an_entry_is_as_old_as_the_version_that_has_brought_it() {
    let at = |version: &str, entries: &[(&str, i64)]| {
        budget(|budget| {
            budget.metadata.resource_version = version.into();
            for (name, seconds) in entries {
                budget.status.disrupted_pods.insert(name, ago(*seconds));
            }
        })
    };
    let (granted, key) = (Granted::default(), Key::new("default", "web"));
    let versions = [
        at("100", &[]),
        at("101", &[("a", 90)]),
        at("102", &[("a", 90), ("b", 80)]),
        at("103", &[("a", 70), ("b", 80)]),
        at("104", &[("b", 80)]),
    ];
    let seen = versions.windows(2).map(|pair| {
        granted.note(Some(&pair[0]), Some(&pair[1]));
        ["a", "b"].map(|name| granted.since(&key, name))
    });
    let seen: Vec<_> = seen.collect();
    let expected = [[Some(101), None], [Some(101), Some(102)], [Some(103), Some(102)], [None, Some(102)]];
    assert_eq!(seen, expected);
    granted.note(Some(&versions[4]), None);
    assert_eq!(granted.since(&key, "b"), None, "with its budget");
}

#[test]
fn the_earliest_of_those_who_are_waited_for_says_when_to_look_again() {
    let budget = budget(|budget| {
        says(budget, [0, 1, 2, 4]);
        for (name, since) in [("a", 10), ("b", 100), ("c", 50), ("gone", 119)] {
            budget.status.disrupted_pods.insert(name, ago(since));
        }
    });
    let plan = Bench::of(&budget, &pods(&["a", "b", "c", "d"])).plan();
    assert_eq!(plan.requeue_after, Some(Duration::from_secs(20)));
}

#[test]
fn what_is_said_already_is_not_written_again() {
    type Change = fn(&mut PodDisruptionBudget);
    assert_eq!(over_four(|budget| says(budget, [2, 4, 2, 4])), "");
    let each: [Change; 8] = [
        |budget| budget.status.disruptions_allowed = 1,
        |budget| budget.status.current_healthy = 3,
        |budget| budget.status.desired_healthy = 1,
        |budget| budget.status.expected_pods = 3,
        |budget| budget.status.observed_generation = 2,
        |budget| budget.status.disrupted_pods.insert("gone", ago(1)),
        |budget| budget.status.conditions[0].reason = "SyncFailed".into(),
        |budget| budget.status.conditions.clear(),
    ];
    for (at, change) in each.into_iter().enumerate() {
        let status = over_four(|budget| {
            says(budget, [2, 4, 2, 4]);
            change(budget);
        });
        assert_eq!(status, "status 2 4/2/4 @3 True SufficientPods", "{at}");
    }
}

#[test]
fn the_bytes_keep_what_is_not_ours() {
    let mut held = PodDisruptionBudget::clone(&budget(|budget| {
        says(budget, [1, 3, 2, 4]);
        let other = Condition { r#type: "Other".into(), status: "True".into(), ..Condition::default() };
        budget.status.conditions.insert(0, other);
        for name in ["a", "gone"] {
            budget.status.disrupted_pods.insert(name, ago(7));
        }
        budget.metadata.annotations = labels(&[("note", "kept")]);
    }));
    held.raw = Raw::default();
    let mut bytes = held.to_bytes();
    put_varint_field(&mut bytes, 99, 1);
    let bench = Bench::of(&decoded(bytes), &pods(&["a", "b", "c", "d"]));
    let plan = bench.plan();
    let [Step::Write(write)] = plan.steps.as_slice() else { panic!("{plan:?}") };
    let Verb::Update(object) = &write.verb else { panic!("{write:?}") };
    assert_eq!((write.kind, write.subresource), (&POD_DISRUPTION_BUDGETS, "status"));
    assert!(object.windows(3).any(|window| window == [0x98, 0x06, 0x01]), "the unknown field");
    let written = decoded(object.to_vec());
    assert_eq!(told(&written), "status 1 3/2/4 @3 True SufficientPods -a");
    assert_eq!(written.status.disrupted_pods.get("a"), Some(&ago(7)));
    assert_eq!(written.metadata.resource_version, "100");
    assert_eq!(written.metadata.annotations, labels(&[("note", "kept")]));
    assert_eq!(written.spec, held.spec);
    assert_eq!(written.status.conditions[0], held.status.conditions[0]);
    assert_eq!(written.status.conditions[1].last_transition_time, ago(500), "its status is the same");
}

#[test]
fn the_conditions_time_changes_with_its_status() {
    let at = |allowed: i32, names: &[&str]| {
        let budget = budget(|budget| {
            says(budget, [allowed, 0, 2, 4]);
            budget.metadata.generation = 4;
        });
        let view = Bench::of(&budget, &pods(names)).view(&[]);
        let plan = plan(&view, now());
        let write = plan.writes().next().unwrap();
        let Verb::Update(object) = &write.verb else { panic!("{write:?}") };
        let condition = decoded(object.to_vec()).status.conditions[0].clone();
        (condition.last_transition_time, condition.observed_generation)
    };
    assert_eq!(at(1, &["a", "b", "c"]), (ago(500), 4));
    assert_eq!(at(0, &["a", "b", "c"]), (ago(0), 4));
    assert_eq!(at(1, &["a", "b"]), (ago(0), 4));
}

#[test]
fn pods_of_any_bytes_are_counted_like_others() {
    let byte = Str::of_bytes(b"\xff");
    let held = ["a", "b", "c", "d"].map(|name| {
        let mut whole = Pod::clone(&pod(name, |_| {}));
        whole.metadata.annotations = [(Str::from("a"), byte.clone())].into_iter().collect();
        whole.metadata.finalizers = vec![byte.clone()];
        downcast::<Pod>((PODS.decode)(&whole.to_bytes().into()).unwrap()).unwrap()
    });
    assert_eq!(Bench::of(&budget(|_| {}), &held).status(), over_four(|_| {}));
}
