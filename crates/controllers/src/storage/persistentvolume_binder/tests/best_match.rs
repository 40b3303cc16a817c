//! Which volume a claim gets.

use super::super::matching::{Mismatch, best, mismatch};
use super::*;
use coxswain_machinery::api::meta::{LabelSelector, LabelSelectorRequirement};

fn found(claim: &PersistentVolumeClaim, waits: bool, volumes: &[PersistentVolume]) -> Option<String> {
    let volumes: Vec<_> = volumes.iter().cloned().map(Arc::new).collect();
    let forwards = best(claim, waits, &volumes).unwrap();
    let backwards: Vec<_> = volumes.iter().rev().cloned().collect();
    assert_eq!(forwards, best(claim, waits, &backwards).unwrap(), "the order does not matter");
    forwards.map(|volume| volume.metadata.name.to_string())
}

fn sized(name: &str, size: &str) -> PersistentVolume {
    let mut volume = volume(name);
    volume.spec.capacity.insert("storage", size);
    volume
}

fn used(name: &str, modes: &[&str]) -> PersistentVolume {
    let mut volume = volume(name);
    volume.spec.access_modes = modes.iter().map(|mode| Str::from(*mode)).collect();
    volume
}

fn meant(mut volume: PersistentVolume, claim: &PersistentVolumeClaim, with_uid: bool) -> PersistentVolume {
    volume.spec.claim_ref = reference(claim, with_uid);
    volume
}

#[test]
fn the_smallest_that_is_large_enough_wins() {
    let sizes = [sized("a", "5Gi"), sized("b", "2Gi"), sized("c", "3Gi"), sized("d", "1023Mi")];
    assert_eq!(found(&claim("data"), false, &sizes).as_deref(), Some("b"));
    assert_eq!(found(&claim("data"), false, &[sized("b", "2Gi"), sized("a", "2Gi")]).as_deref(), Some("a"));
    assert_eq!(
        found(&claim("data"), false, &[sized("a", "1073741824"), sized("b", "2Gi")]).as_deref(),
        Some("a")
    );
    assert_eq!(found(&claim("data"), false, &[sized("a", "1073741823")]), None);
    assert_eq!(found(&claim("data"), false, &[]), None);
}

#[test]
fn the_fewest_access_modes_come_first_then_who_is_meant_then_who_is_smallest() {
    let claim = claim("data");
    let [one, two] = [used("one", &["ReadWriteOnce"]), used("two", &["ReadOnlyMany", "ReadWriteOnce"])];
    assert_eq!(found(&claim, false, &[two.clone(), one.clone()]).as_deref(), Some("one"));
    let small = sized("small", "1Gi");
    let large = meant(sized("large", "9Gi"), &claim, true);
    assert_eq!(found(&claim, false, &[small.clone(), large]).as_deref(), Some("large"));
    let meant_and_more = meant(two.clone(), &claim, true);
    assert_eq!(
        found(&claim, false, &[meant_and_more, one]).as_deref(),
        Some("one"),
        "it loses to fewer modes"
    );
    let mut both = claim.clone();
    both.spec.access_modes = vec!["ReadOnlyMany".into(), "ReadWriteOnce".into()];
    assert_eq!(found(&both, false, &[two, small]).as_deref(), Some("two"));
}

#[test]
fn who_is_meant_wins_whatever_its_class_labels_or_phase() {
    let mut claim = claim("data");
    let selector = LabelSelector { match_labels: labels(&[("a", "b")]), ..LabelSelector::default() };
    claim.spec.selector = Some(Box::new(selector));
    let mut pending = meant(volume("vol"), &claim, false);
    pending.spec.storage_class_name = "other".into();
    pending.status.phase = "Pending".into();
    for waits in [false, true] {
        assert_eq!(found(&claim, waits, &[pending.clone()]).as_deref(), Some("vol"));
    }
    let mut other = claim.clone();
    other.metadata.uid = "another".into();
    let taken = meant(volume("vol"), &other, true);
    assert_eq!(found(&claim, false, &[taken]), None, "it is for one of that name which is gone");
    for (size, mode, is_deleting) in [("1Mi", "", false), ("1Gi", "Block", false), ("1Gi", "", true)] {
        let mut out = pending.clone();
        out.spec.capacity.insert("storage", size);
        out.spec.volume_mode = (!mode.is_empty()).then(|| mode.into());
        out.metadata.deletion_timestamp = if is_deleting { Time::from_seconds(1) } else { None };
        assert_eq!(found(&claim, false, &[out]), None, "{size} {mode} {is_deleting}");
    }
}

#[test]
fn what_is_free_must_be_available_and_of_the_class_and_have_the_labels() {
    let free = |change: fn(&mut PersistentVolume)| {
        let mut volume = volume("vol");
        volume.metadata.labels = labels(&[("a", "b")]);
        change(&mut volume);
        volume
    };
    let mut wants = claim("data");
    let selector = LabelSelector { match_labels: labels(&[("a", "b")]), ..LabelSelector::default() };
    wants.spec.selector = Some(Box::new(selector));
    assert_eq!(found(&wants, false, &[free(|_| {})]).as_deref(), Some("vol"));
    assert_eq!(found(&wants, true, &[free(|_| {})]), None, "the scheduler says which");
    let table: [fn(&mut PersistentVolume); 7] = [
        |volume| volume.status.phase = "Pending".into(),
        |volume| volume.status.phase = "Released".into(),
        |volume| volume.spec.storage_class_name = "".into(),
        |volume| volume.metadata.annotations = labels(&[("volume.beta.kubernetes.io/storage-class", "x")]),
        |volume| volume.metadata.labels = labels(&[("a", "c")]),
        |volume| volume.spec.volume_attributes_class_name = Some("gold".into()),
        |volume| volume.spec.access_modes = vec!["ReadOnlyMany".into()],
    ];
    for (at, change) in table.into_iter().enumerate() {
        assert_eq!(found(&wants, false, &[free(change)]), None, "{at}");
    }
    wants.metadata.annotations = labels(&[("volume.beta.kubernetes.io/storage-class", "")]);
    let classless = free(|volume| volume.spec.storage_class_name = "".into());
    assert_eq!(found(&wants, false, &[classless]).as_deref(), Some("vol"), "the annotation counts first");
    wants.spec.selector.as_mut().unwrap().match_expressions = vec![LabelSelectorRequirement {
        key: "a".into(),
        operator: "Near".into(),
        ..LabelSelectorRequirement::default()
    }]
    .into();
    assert!(best(&wants, false, &[]).is_err());
}

#[test]
fn a_volume_that_a_claim_names_has_one_reason_not_to_suit() {
    type Row = (fn(&mut PersistentVolume), Option<Mismatch>, &'static str);
    let table: [Row; 7] = [
        (|_| {}, None, ""),
        (
            |volume| {
                volume.metadata.deletion_timestamp = Time::from_seconds(1);
                volume.spec.storage_class_name = "x".into();
            },
            Some(Mismatch::Deleting),
            "the volume is marked for deletion \"vol\"",
        ),
        (
            |volume| {
                volume.spec.capacity.insert("storage", "1023Mi");
                volume.spec.storage_class_name = "x".into();
            },
            Some(Mismatch::Size),
            "requested PV is too small",
        ),
        (
            |volume| volume.spec.storage_class_name = "x".into(),
            Some(Mismatch::Class),
            "storageClassName does not match",
        ),
        (
            |volume| volume.spec.volume_attributes_class_name = Some("x".into()),
            Some(Mismatch::Attributes),
            "volumeAttributesClassName does not match",
        ),
        (
            |volume| volume.spec.volume_mode = Some("Block".into()),
            Some(Mismatch::Mode),
            "incompatible volumeMode",
        ),
        (
            |volume| volume.spec.access_modes = vec!["ReadOnlyMany".into()],
            Some(Mismatch::Access),
            "incompatible accessMode",
        ),
    ];
    for (change, expected, text) in table {
        let mut volume = volume("vol");
        change(&mut volume);
        let found = mismatch(&volume, &claim("data"));
        assert_eq!(found, expected);
        assert_eq!(found.map(|why| why.text("vol")).unwrap_or_default(), text);
    }
    let mut wants = claim("data");
    wants.spec.resources.requests.insert("storage", "999500m");
    let mut holds = volume("vol");
    holds.spec.capacity.insert("storage", "999100m");
    assert_eq!(mismatch(&holds, &wants), None, "both are rounded up");
}

#[test]
fn the_newest_default_class_counts_then_the_first_by_name() {
    let class = |name: &str, at: i64, says: &str| {
        let mut class = class(name, "p", "");
        class.metadata.creation_timestamp = Time::from_seconds(at);
        class.metadata.annotations = labels(&[("storageclass.kubernetes.io/is-default-class", says)]);
        class
    };
    let mut beta = self::class("beta", "p", "");
    beta.metadata.creation_timestamp = Time::from_seconds(9);
    beta.metadata.annotations = labels(&[("storageclass.beta.kubernetes.io/is-default-class", "true")]);
    let (old, new) = (class("a", 1, "true"), class("z", 2, "true"));
    let (same, no) = (class("y", 2, "true"), class("n", 99, "True"));
    let of = |classes: &[&StorageClass]| facts::default_class(classes.iter().copied());
    assert_eq!(of(&[&old, &new]).unwrap(), "z");
    assert_eq!(of(&[&new, &old, &same]).unwrap(), "y");
    assert_eq!(of(&[&old, &beta, &no]).unwrap(), "beta");
    assert_eq!(of(&[&no]), None);
}
