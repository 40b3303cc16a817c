//! What is told of conflicts, to whom and when, and which series there are.

use super::super::conflict::Property;
use super::super::metrics::Conflict;
use super::super::mounts::Mount;
use super::*;

const LABELS: [&str; 2] = [
    "ns/b: Normal SELinuxLabelConflict SELinuxLabel \":::s0:c2\" conflicts with pod a that uses the same volume as this pod \
     with SELinuxLabel \":::s0:c1\".",
    "ns/a: Normal SELinuxLabelConflict SELinuxLabel \":::s0:c1\" conflicts with pod b that uses the same volume as this pod \
     with SELinuxLabel \":::s0:c2\".",
];
const POLICIES: [&str; 2] = [
    "ns/b: Normal SELinuxChangePolicyConflict SELinuxChangePolicy \"Recursive\" conflicts with pod a that uses the same \
     volume as this pod with SELinuxChangePolicy \"MountOption\".",
    "ns/a: Normal SELinuxChangePolicyConflict SELinuxChangePolicy \"MountOption\" conflicts with pod b that uses the same \
     volume as this pod with SELinuxChangePolicy \"Recursive\".",
];

fn world() -> World {
    let world = World::new();
    world.bind_csi("ns", "data", "labels", "h");
    world
}

#[test]
fn a_conflict_is_told_to_both_pods_once() {
    let world = world();
    assert_eq!(world.pod(pod("a", "", &["data :::s0:c1"])), [""; 0]);
    assert_eq!(world.pod(pod("b", "", &["data :::s0:c2"])), LABELS);
    for name in ["a", "b"] {
        assert_eq!(world.look(&Key::new("ns", name)), [""; 0], "nothing has changed");
    }
    let series = ["SELinuxLabel ns/a=:::s0:c1 ns/b=:::s0:c2", "SELinuxLabel ns/b=:::s0:c2 ns/a=:::s0:c1"];
    assert_eq!(world.series(), series);
}

#[test]
fn policy_comes_before_label_and_the_empty_label_conflicts_too() {
    let world = world();
    world.pod(pod("a", "", &["data :::s0:c1"]));
    let told = world.pod(pod("b", "Recursive", &["data :::s0:c1"]));
    assert_eq!(told[..2], POLICIES);
    assert!(told[2].contains("SELinuxLabel \"\" conflicts with pod a") && told.len() == 4, "{told:?}");
    assert_eq!(world.series().len(), 4);
}

#[test]
fn pods_of_other_namespaces_are_not_named() {
    let world = world();
    world.bind_csi("other", "data", "labels", "h");
    world.pod(pod("a", "", &["data :::s0:c1"]));
    let told = world.pod(pod("other/b", "", &["data :::s0:c2"]));
    let expected = |pod: &str, label: &str| {
        format!(
            "{pod}: Normal SELinuxLabelConflict SELinuxLabel\"{label}\" conflicts with another pod that uses the same volume as \
             this pod with a different SELinuxLabel."
        )
    };
    assert_eq!(told, [expected("other/b", ":::s0:c2"), expected("ns/a", ":::s0:c1")]);
    assert_eq!(world.series()[0], "SELinuxLabel ns/a=:::s0:c1 other/b=:::s0:c2");
}

#[test]
fn what_changes_is_told_anew_and_replaces_what_was() {
    let world = world();
    world.pod(pod("a", "", &["data :::s0:c1"]));
    world.pod(pod("b", "", &["data :::s0:c2"]));
    // As if the driver ceased to mount with labels, and each pod is looked at.
    world.driver("labels", Some(false));
    let told = world.look(&Key::new("ns", "a"));
    assert!(
        told.iter().any(|told| told.contains("SELinuxChangePolicy \"Recursive\" conflicts with pod b")),
        "{told:?}"
    );
    assert_eq!(world.look(&Key::new("ns", "b")), [""; 0], "neither has a label now");
    assert_eq!(world.series(), [""; 0]);
    world.driver("labels", Some(true));
    world.look(&Key::new("ns", "a"));
    assert_eq!(world.look(&Key::new("ns", "b")), LABELS, "and it begins again");
    assert_eq!(world.series().len(), 2);
}

#[test]
fn pods_that_end_or_go_take_their_series_along() {
    for ending in [Some("Failed"), Some("Succeeded"), None] {
        let world = world();
        for (name, level) in [("a", "c1"), ("b", "c2"), ("c", "c1")] {
            world.pod(pod(name, "", &[&format!("data :::s0:{level}")]));
        }
        assert_eq!(world.series().len(), 4);
        let key = Key::new("ns", "b");
        if let Some(phase) = ending {
            let mut ended = pod("b", "", &["data :::s0:c2"]);
            ended.status.phase = phase.into();
            assert_eq!(world.pod(ended), [""; 0]);
        } else {
            world.gone(0, &key);
            assert_eq!(world.look(&key), [""; 0]);
        }
        assert_eq!(world.series(), [""; 0], "{ending:?}");
        assert_eq!(world.record.others(&Key::new("ns", "a"), &"kubernetes.io/csi/labels^h".into()).len(), 1);
    }
}

#[test]
fn one_that_is_being_deleted_still_counts() {
    let world = world();
    world.pod(pod("a", "", &["data :::s0:c1"]));
    let mut going = pod("b", "", &["data :::s0:c2"]);
    going.metadata.deletion_timestamp = coxswain_machinery::wire::Time::from_seconds(1);
    assert_eq!(world.pod(going), LABELS);
}

#[test]
fn conflicts_of_a_thousand_pods_on_one_volume_have_a_bounded_number_of_series() {
    let registry = Registry::new();
    let series = Series::register(&RoomMetrics::new(registry.clone())).unwrap();
    let conflict = |one: usize, other: usize| Conflict {
        property: Property::Label,
        one: (Key::new("ns", format!("a{one}")), "c1".into()),
        other: (Key::new("ns", format!("b{other}")), "c2".into()),
    };
    let all = || (0..500).flat_map(|one| (0..500).map(move |other| (one, other)));
    let count = || registry.gather().iter().map(|family| family.get_metric().len()).sum::<usize>();
    all().for_each(|(one, other)| series.begin(conflict(one, other)));
    assert_eq!(count(), 10_000);
    all().for_each(|(one, other)| series.end(&conflict(one, other)));
    assert_eq!(count(), 0);
}

/// Conflicts that got no series at the limit get them when others have ended, and lose them only when they end on their last volume.
#[test]
fn series_at_their_limit_are_given_to_conflicts_that_last() {
    let registry = Registry::new();
    let record = Record::new(Series::register(&RoomMetrics::new(registry.clone())).unwrap());
    let see = |name: String, label: &str| {
        let mount = |volume: &str| Mount {
            unique: volume.into(),
            driver: None,
            mounted: Mounted { label: label.into(), policy: Str::EMPTY },
        };
        let mounts = vec![mount("data"), mount("more")];
        record.commit(&Key::new("ns", name), Note::Seen("uid".into(), mounts));
    };
    let count = || registry.gather().iter().map(|family| family.get_metric().len()).sum::<usize>();
    for at in 0..100 {
        see(format!("a{at}"), ":::s0:c1");
        see(format!("b{at}"), ":::s0:c2");
    }
    assert_eq!(count(), 10_000);
    (0..60).for_each(|at| record.commit(&Key::new("ns", format!("a{at}")), Note::Forget));
    assert_eq!(count(), 2 * 40 * 100);
    (0..100).for_each(|at| record.commit(&Key::new("ns", format!("b{at}")), Note::Forget));
    assert_eq!(count(), 0);
}

#[test]
fn equal_conflicts_on_two_volumes_are_one_series_until_both_end() {
    let world = world();
    world.bind_csi("ns", "more", "labels", "i");
    world.pod(pod("a", "", &["data :::s0:c1", "more :::s0:c1"]));
    assert_eq!(world.pod(pod("b", "", &["data :::s0:c2", "more :::s0:c2"])).len(), 4);
    assert_eq!(world.series().len(), 2);
    // Of one that takes its name nothing was seen.
    let mut anew = pod("b", "", &["more :::s0:c2"]);
    anew.metadata.uid = "another".into();
    assert_eq!(world.pod(anew), LABELS);
    assert_eq!(world.series().len(), 2);
    world.gone(0, &Key::new("ns", "b"));
    world.look(&Key::new("ns", "b"));
    assert_eq!(world.series(), [""; 0]);
}

#[test]
fn a_volume_stays_seen_though_its_claim_is_gone() {
    let world = world();
    world.pod(pod("a", "", &["data :::s0:c1"]));
    world.pod(pod("b", "", &["data :::s0:c2"]));
    world.gone(1, &Key::new("ns", "data"));
    assert_eq!(world.look(&Key::new("ns", "a")), ["again: volume data: claim ns/data not found"]);
    assert_eq!(world.series().len(), 2);
}

#[test]
fn what_would_follow_for_a_pod_that_is_gone_is_not_told() {
    let world = world();
    world.pod(pod("a", "", &["data :::s0:c1"]));
    world.pod(pod("c", "", &["data :::s0:c1"]));
    // Its end has not been looked at yet.
    world.gone(0, &Key::new("ns", "a"));
    let told = world.pod(pod("b", "", &["data :::s0:c2"]));
    assert_eq!(told, [LABELS[0]]);
    assert_eq!(world.series().len(), 4);
}
