//! Tables of what counts as what; the order of deletion as a property.

use proptest::prelude::*;

use super::*;
use crate::api::pod::{ContainerStatus, PodCondition};
use crate::api::shape::PodShape;
use crate::wire::splice::get;
use crate::wire::{Labels, Str, Value};

const NOW: i64 = 1_700_000_000;

fn now() -> Timestamp {
    Timestamp::from_second(NOW).unwrap()
}

fn ago(seconds: i64) -> Option<Time> {
    Time::from_seconds(NOW - seconds)
}

fn ready(since: Option<Time>) -> Vec<PodCondition> {
    vec![PodCondition {
        r#type: "Ready".into(),
        status: "True".into(),
        last_transition_time: since,
        ..PodCondition::default()
    }]
}

/// Running on a node, ready for 1000 seconds, 1100 seconds old.
fn pod(uid: &str) -> Pod {
    let mut pod = Pod::default();
    pod.metadata.uid = uid.into();
    pod.metadata.creation_timestamp = ago(1100);
    pod.spec.node_name = "node".into();
    pod.status.phase = "Running".into();
    pod.status.conditions = ready(ago(1000));
    pod
}

fn costing(pod: &mut Pod, cost: &str) {
    pod.metadata.annotations = [(DELETION_COST, cost)].into_iter().collect::<Labels>();
}

#[test]
fn active_and_terminating() {
    for (phase, deleting, active, terminating) in [
        ("Running", false, true, false),
        ("Pending", false, true, false),
        ("Unknown", false, true, false),
        ("", false, true, false),
        ("Failed", false, false, false),
        ("Succeeded", false, false, false),
        ("Running", true, false, true),
        ("Failed", true, false, false),
    ] {
        let mut pod = pod("a");
        pod.status.phase = phase.into();
        pod.metadata.deletion_timestamp = if deleting { ago(0) } else { None };
        assert_eq!((is_active(&pod), is_terminating(&pod)), (active, terminating), "{phase} {deleting}");
    }
}

#[test]
fn available_after_min_ready_seconds() {
    let seconds = |seconds| Some(Duration::from_secs(seconds));
    for (conditions, min_ready, expected) in [
        (ready(ago(10)), 0, seconds(0)),
        (ready(None), 0, seconds(0)),
        (ready(None), 5, None),
        (ready(ago(10)), 11, seconds(1)),
        (ready(ago(10)), 10, seconds(0)),
        (ready(ago(10)), 9, seconds(0)),
        (ready(ago(-60)), 10, seconds(70)),
        (ready(ago(10)), i32::MAX, seconds(i32::MAX as u64 - 10)),
        (ready(Time::from_seconds(i64::MAX)), i32::MAX, Some(Duration::from_nanos(u64::MAX))),
        (ready(Time::from_seconds(i64::MIN)), 1, seconds(0)),
        (Vec::new(), 0, None),
        (vec![PodCondition { status: "False".into(), ..ready(ago(10)).remove(0) }], 0, None),
    ] {
        let pod = Pod { status: crate::api::pod::PodStatus { conditions, ..pod("a").status }, ..pod("a") };
        assert_eq!(available_in(&pod, min_ready, now()), expected, "{:?} {min_ready}", pod.status.conditions);
        assert_eq!(is_available(&pod, min_ready, now()), expected == seconds(0));
    }
}

#[test]
fn the_next_to_become_available() {
    let since = |seconds| {
        let mut pod = pod("a");
        pod.status.conditions = ready(ago(seconds));
        pod
    };
    let pods = [since(5), since(8), since(50)];
    assert_eq!(next_availability(&pods, 20, now()), Some(Duration::from_secs(12)));
    assert_eq!(next_availability(&pods, 5, now()), None);
    assert_eq!(next_availability(&pods, 0, now()), None);
}

#[test]
fn generated_names_begin_with_the_owners() {
    let longest = "a".repeat(253);
    for owner in ["web", "w", "0", "web.v1", "a-b.c-d.0", longest.as_str()] {
        assert_eq!(generate_name(owner).strip_suffix('-'), Some(owner));
    }
}

#[test]
fn deletion_costs_that_are_not_numbers_are_none() {
    for (text, cost) in [
        ("10", 10),
        ("0", 0),
        ("-10", -10),
        ("-010", -10),
        ("2147483647", i32::MAX),
        ("-2147483648", i32::MIN),
        ("2147483648", 0),
        ("+10", 0),
        ("010", 0),
        ("1_0", 0),
        ("ten", 0),
        (" 1", 0),
        ("1.5", 0),
        ("-", 0),
        ("", 0),
    ] {
        let mut pod = pod("a");
        costing(&mut pod, text);
        assert_eq!(deletion_cost(&pod), cost, "{text:?}");
    }
    assert_eq!(deletion_cost(&pod("a")), 0);
}

fn restarted(pod: &mut Pod, containers: &[i32], sidecar: i32, other_init: i32) {
    let containers = containers.iter();
    pod.status.container_statuses = containers
        .map(|&restart_count| ContainerStatus { restart_count, ..ContainerStatus::default() })
        .collect();
    pod.shape = PodShape { sidecars: vec!["sidecar".into()], ..PodShape::default() }.into();
    let status = |name: &str, restart_count| ContainerStatus {
        name: name.into(),
        restart_count,
        ..ContainerStatus::default()
    };
    let statuses = [status("sidecar", sidecar), status("setup", other_init)];
    pod.status.init_container_statuses = statuses.into_iter().collect();
}

/// Each criterion, in order: what makes a pod go first, and its opposite. Later ones may be all against it.
type Criterion = fn(pod: &mut Pod, crowd: &mut usize, goes: bool);
const CRITERIA: &[Criterion] = &[
    |pod, _, goes| pod.spec.node_name = if goes { Str::EMPTY } else { "node".into() },
    |pod, _, goes| pod.status.phase = if goes { "Pending" } else { "Unknown" }.into(),
    |pod, _, goes| {
        if goes {
            pod.status.conditions.clear();
        }
    },
    |pod, _, goes| costing(pod, if goes { "-1" } else { "0" }),
    |_, crowd, goes| *crowd = if goes { 2 } else { 1 },
    |pod, _, goes| {
        if pod.is_ready() {
            pod.status.conditions = ready(if goes { ago(10) } else { ago(1000) });
        }
    },
    |pod, _, goes| restarted(pod, if goes { &[0, 2] } else { &[1, 1] }, i32::from(goes), i32::from(!goes)),
    |pod, _, goes| pod.metadata.creation_timestamp = if goes { ago(10) } else { ago(1000) },
    |pod, _, goes| pod.metadata.uid = if goes { "a" } else { "b" }.into(),
];

#[test]
fn an_earlier_criterion_outweighs_all_later_ones() {
    let ranking = Ranking { now: now(), by_cost: true };
    for at in 0..CRITERIA.len() {
        for later_agree in [true, false] {
            let built = |goes: bool| {
                let (mut pod, mut crowd) = (pod("same"), 1);
                for (index, criterion) in CRITERIA.iter().enumerate().skip(at) {
                    criterion(&mut pod, &mut crowd, if index == at || later_agree { goes } else { !goes });
                }
                ranking.rank(&pod, crowd)
            };
            assert!(built(true) < built(false), "criterion {at}, later ones agree: {later_agree}");
        }
    }
}

#[test]
fn the_finer_points_of_the_order() {
    let order = |goes: Pod, stays: Pod| {
        let ranking = Ranking { now: now(), by_cost: true };
        assert!(ranking.rank(&goes, 1) < ranking.rank(&stays, 1), "{goes:?} before {stays:?}");
    };
    let with = |uid: &str, change: &dyn Fn(&mut Pod)| {
        let mut pod = pod(uid);
        change(&mut pod);
        pod
    };
    // Unknown phase before running.
    order(with("b", &|pod| pod.status.phase = "Unknown".into()), pod("a"));
    // A time that is not known comes before any other; one in the future is the youngest.
    order(
        with("b", &|pod| pod.status.conditions = ready(None)),
        with("a", &|pod| pod.status.conditions = ready(ago(0))),
    );
    order(
        with("b", &|pod| pod.status.conditions = ready(ago(-5))),
        with("a", &|pod| pod.status.conditions = ready(ago(1))),
    );
    order(
        with("b", &|pod| pod.metadata.creation_timestamp = None),
        with("a", &|pod| pod.metadata.creation_timestamp = ago(0)),
    );
    // Ages of one bucket (2³⁹ to 2⁴⁰ ns are 549.8 to 1099.5 s) are equal: the UID decides. Of two buckets, they are not.
    order(
        with("a", &|pod| pod.status.conditions = ready(ago(1099))),
        with("b", &|pod| pod.status.conditions = ready(ago(550))),
    );
    order(
        with("b", &|pod| pod.status.conditions = ready(ago(549))),
        with("a", &|pod| pod.status.conditions = ready(ago(550))),
    );
    // Regular containers count before sidecars, and finished init containers not at all.
    order(with("b", &|pod| restarted(pod, &[1], 0, 0)), with("a", &|pod| restarted(pod, &[0], 9, 0)));
    order(with("b", &|pod| restarted(pod, &[1], 1, 0)), with("a", &|pod| restarted(pod, &[1], 0, 9)));
    // The cost is nothing while its gate is off.
    let ranking = Ranking { now: now(), by_cost: false };
    assert!(ranking.rank(&pod("a"), 0) < ranking.rank(&with("b", &|pod| costing(pod, "-7")), 0));
}

fn any_pod() -> impl Strategy<Value = (Pod, usize)> {
    let looks = (0..2_u8, 0..4_u8, any::<bool>(), 0..3_i32, 0..3_usize);
    let times = (0..6_usize, 0..6_usize, 0..3_i32, 0..2_i32);
    (looks, times).prop_map(|((node, phase, is_ready, cost, crowd), (since, created, restarts, sidecar))| {
        let moments = [None, ago(-1), ago(0), ago(600), ago(900), ago(2000)];
        let mut pod = pod("");
        pod.spec.node_name = ["", "node"][usize::from(node)].into();
        pod.status.phase = ["Pending", "Running", "Unknown", "odd"][usize::from(phase)].into();
        pod.status.conditions = if is_ready { ready(moments[since]) } else { Vec::new() };
        costing(&mut pod, &(cost - 1).to_string());
        restarted(&mut pod, &[restarts], sidecar, 0);
        pod.metadata.creation_timestamp = moments[created];
        (pod, crowd)
    })
}

proptest! {
    /// A strict total order: of any two pods exactly one goes first, and no three run in a circle; so the pods that
    /// go first do not depend on the order in which they were found.
    #[test]
    fn the_order_is_total(pods in prop::collection::vec(any_pod(), 3..8), nanos in 0..1_000_000_000_i32, turn in 0..8_usize) {
        let ranking = Ranking { now: Timestamp::new(NOW, nanos).unwrap(), by_cost: true };
        let ranks: Vec<DeletionRank> = pods
            .into_iter()
            .enumerate()
            .map(|(index, (mut pod, crowd))| {
                pod.metadata.uid = format!("uid-{index}").into();
                ranking.rank(&pod, crowd)
            })
            .collect();
        for (i, a) in ranks.iter().enumerate() {
            for (j, b) in ranks.iter().enumerate() {
                prop_assert_eq!(u8::from(a < b) + u8::from(b < a), u8::from(i != j));
                for c in &ranks {
                    prop_assert!(!(a < b && b < c && c < a));
                    prop_assert!(!(a < b && b < c) || a < c);
                }
            }
        }
        let mut sorted = ranks.clone();
        sorted.sort();
        let mut turned = ranks;
        let by = turn % turned.len();
        turned.rotate_left(by);
        turned.reverse();
        turned.sort();
        prop_assert_eq!(sorted, turned);
    }

    /// A pod's bytes are the template's, field by field, and the same whatever is in there.
    #[test]
    fn templates_are_copied_unparsed(
        inherited in prop::collection::vec((prop_oneof![Just(11_u32), Just(12), 18..40_u32], prop::collection::vec(any::<u8>(), 0..20)), 0..8),
        own in prop::collection::vec(prop::sample::select(NOT_INHERITED.to_vec()), 0..4),
        spec in prop::collection::vec(any::<u8>(), 0..60),
        cut in 0..60_usize,
    ) {
        let mut metadata = Vec::new();
        let mut expected = Vec::new();
        for (number, content) in &inherited {
            put_bytes(&mut metadata, *number, content);
            put_bytes(&mut expected, *number, content);
        }
        for number in own {
            put_bytes(&mut metadata, number, b"own");
        }
        // Protobuf lets a message arrive in pieces.
        let (first, second) = spec.split_at(cut.min(spec.len()));
        let mut template = Vec::new();
        put_bytes(&mut template, 2, first);
        put_bytes(&mut template, 1, &metadata);
        put_bytes(&mut template, 2, second);
        put_bytes(&mut template, 3, b"is no status");

        let owner = OwnerReference { uid: "owner".into(), ..OwnerReference::default() };
        let pod = from_template(&Raw(template.into()), "space", "web-", &owner).unwrap();
        prop_assert_eq!(get(&pod, &[2]).unwrap(), Some(Value::Bytes(&spec)));
        prop_assert_eq!(get(&pod, &[3]).unwrap(), None);
        let mut copied = Vec::new();
        let Some(Value::Bytes(made)) = get(&pod, &[1]).unwrap() else { panic!("no metadata") };
        let mut reader = Reader::new(made);
        while let Some((number, value, raw)) = reader.next_raw().unwrap() {
            match number {
                2 => prop_assert_eq!(value, Value::Bytes(b"web-")),
                3 => prop_assert_eq!(value, Value::Bytes(b"space")),
                13 => prop_assert_eq!(value, Value::Bytes(&owner.to_bytes())),
                _ => copied.extend_from_slice(raw),
            }
        }
        prop_assert_eq!(copied, expected);
    }
}
