//! Which quotas a change makes worth counting anew.

use std::sync::Arc;

use super::super::Gates;
use super::super::keys::{Others, Priority, of_pods, of_quotas, of_services, of_volume_claims};
use super::super::memory::{Recount, Recounts};
use super::fixtures::{asking, hard, meta, pod, quantities, quota, service, volume_claim};
use coxswain_machinery::api::charge::PodCharge;
use coxswain_machinery::api::kinds::{DEVICE_CLASSES, RESOURCE_CLAIMS, RESOURCE_QUOTAS};
use coxswain_machinery::api::meta::PartialObjectMetadata;
use coxswain_machinery::api::pod::Pod;
use coxswain_machinery::api::quota::ResourceQuota;
use coxswain_machinery::api::{AnyObject, dynamic};
use coxswain_machinery::framework::{ApiResource, DynamicRoom, KeyMap, Memory as _};
use coxswain_machinery::informer::{Delta, Lister, Store};
use coxswain_machinery::model::Key;
use coxswain_machinery::wire::Str;

fn named(name: &str, namespace: &str, hard: &[(&str, &str)]) -> AnyObject {
    quota(hard, |quota| {
        quota.metadata.name = name.into();
        quota.metadata.namespace = namespace.into();
        quota.status.hard = quota.spec.hard.clone();
        quota.status.used = quota.spec.hard.clone();
    })
}

/// Quotas named after what they count.
fn quotas() -> Lister<ResourceQuota> {
    let store = Store::new(&RESOURCE_QUOTAS);
    let quotas = vec![
        named("cpu", "team", &hard(&["limits.cpu"])),
        named("gpu", "team", &hard(&["requests.example.com/gpu"])),
        named("ports", "team", &hard(&["services.nodeports"])),
        named("volumes", "team", &hard(&["fast.storageclass.storage.k8s.io/requests.storage"])),
        named("secrets", "team", &hard(&["secrets"])),
        named("foos", "team", &hard(&["count/foos.example.com", "count/resourcequotas"])),
        named("nothing", "team", &hard(&["example.com/x"])),
        named(
            "all",
            "other",
            &hard(&["pods", "services", "persistentvolumeclaims", "secrets", "count/foos.example.com"]),
        ),
    ];
    store.replace(quotas, "9");
    Lister::new(Arc::new(store))
}

#[expect(clippy::needless_pass_by_value, reason = "changes are written where they are told")]
fn told(map: &KeyMap, old: Option<AnyObject>, new: Option<AnyObject>, initial: bool) -> Vec<String> {
    let mut keys = Vec::new();
    let delta = Delta { old: old.as_ref(), new: new.as_ref(), initial, resync: false };
    map(delta, &mut |key| keys.push(key.to_string()));
    keys.sort();
    keys
}

const NONE: &[&str] = &[];

#[test]
fn a_quota_takes_its_turn_by_what_its_status_lacks() {
    // None of them is to be counted yet.
    let turns = |old: Option<&AnyObject>, new: &AnyObject| {
        let map = |priority| of_quotas(priority, quotas(), Recounts::default());
        let told = |map| told(&map, old.cloned(), Some(Arc::clone(new)), false).len();
        (told(map(Priority::First)), told(map(Priority::InTurn)))
    };
    let of = |hard: &[(&str, &str)], status: &[(&str, &str)], used: &[(&str, &str)]| -> AnyObject {
        quota(hard, |quota| {
            quota.status.hard = quantities(status);
            quota.status.used = quantities(used);
        })
    };
    let (five, zero) = (&[("pods", "5")][..], &[("pods", "0")][..]);
    let done = of(five, five, zero);
    assert_eq!(turns(None, &of(five, &[], &[])), (1, 0));
    assert_eq!(turns(None, &of(five, &[("pods", "4")], zero)), (1, 0));
    assert_eq!(turns(None, &of(five, five, &[])), (1, 0));
    assert_eq!(turns(None, &done), (0, 1));
    // Nobody can count it.
    let unknown = &[("example.com/x", "5")][..];
    assert_eq!(turns(None, &of(unknown, unknown, &[])), (0, 1));
    // Updates of a status say nothing.
    assert_eq!(turns(Some(&done), &of(five, five, &[("pods", "3")])), (0, 0));
    assert_eq!(turns(Some(&done), &of(&[("pods", "5000m")], five, zero)), (0, 0));
    assert_eq!(turns(Some(&done), &of(&[("pods", "6")], five, zero)), (1, 0));
    assert_eq!(turns(Some(&of(&[("pods", "6")], five, zero)), &done), (0, 1));
}

#[test]
fn a_quota_that_goes_concerns_those_that_count_quotas() {
    let gone = named("gone", "team", &hard(&["pods"]));
    assert_eq!(
        told(
            &of_quotas(Priority::InTurn, quotas(), Recounts::default()),
            Some(Arc::clone(&gone)),
            None,
            false
        ),
        ["team/foos"]
    );
    assert_eq!(
        told(&of_quotas(Priority::First, quotas(), Recounts::default()), Some(gone), None, false),
        NONE
    );
}

fn charged(change: impl FnOnce(&mut PodCharge)) -> AnyObject {
    let mut charge = asking(&[("cpu", "1"), ("example.com/gpu", "1")], &[("cpu", "2")]);
    change(&mut charge);
    pod("p", charge, |_| {})
}

#[test]
fn pods_that_charge_less_are_told() {
    let map = of_pods(quotas(), Gates::default());
    let was = charged(|_| {});
    let becomes = |new: AnyObject| told(&map, Some(Arc::clone(&was)), Some(new), false);
    assert_eq!(told(&map, None, Some(Arc::clone(&was)), true), NONE);
    assert_eq!(told(&map, Some(Arc::clone(&was)), None, false), ["team/cpu", "team/gpu"]);
    assert_eq!(becomes(charged(|_| {})), NONE);
    assert_eq!(
        becomes(charged(
            |charge| charge.requests = [("cpu", "2"), ("example.com/gpu", "1")].into_iter().collect()
        )),
        NONE
    );
    for less in [
        charged(|charge| charge.requests = [("cpu", "999m"), ("example.com/gpu", "1")].into_iter().collect()),
        charged(|charge| charge.requests = [("cpu", "1")].into_iter().collect()),
        charged(|charge| charge.limits = [("cpu", "1")].into_iter().collect()),
        charged(|charge| charge.terminating = true),
        charged(|charge| charge.asks = false),
        charged(|charge| charge.crosses_namespaces = true),
        charged(|charge| charge.priority_class = "high".into()),
    ] {
        assert_eq!(becomes(less), ["team/cpu", "team/gpu"]);
    }
    let phase = |phase: &'static str| -> AnyObject {
        pod("p", PodCharge::default(), |pod: &mut Pod| pod.status.phase = phase.into())
    };
    assert_eq!(told(&map, Some(phase("Pending")), Some(phase("Running")), false), NONE);
    assert_eq!(told(&map, Some(phase("Running")), Some(phase("Failed")), false), ["team/cpu", "team/gpu"]);
    assert_eq!(told(&map, Some(phase("Failed")), Some(phase("Failed")), false), NONE);
}

#[test]
fn what_happens_while_a_quota_is_counted_is_not_lost() {
    let key = Key::new("team", "cpu");
    let pods = |recounts: &Recounts| {
        told(&recounts.noting(of_pods(quotas(), Gates::default())), Some(charged(|_| {})), None, false);
    };
    let used = |used: &'static str| -> AnyObject {
        quota(&hard(&["limits.cpu"]), |quota| {
            quota.metadata.name = "cpu".into();
            quota.status.hard = quota.spec.hard.clone();
            quota.status.used = quantities(&[("limits.cpu", used)]);
        })
    };
    let says = |recounts: &Recounts| {
        let map = of_quotas(Priority::InTurn, quotas(), recounts.clone());
        told(&map, Some(used("1")), Some(used("2")), false)
    };
    let recounts = Recounts::default();
    pods(&recounts);
    let seen = recounts.of(&key);
    assert_eq!(recounts.of(&key), seen, "a look changes nothing");
    assert_eq!(says(&recounts), ["team/cpu"]);
    recounts.commit(&key, seen);
    assert_eq!(recounts.of(&key), Some(Recount::Late));

    pods(&recounts);
    let seen = recounts.of(&key);
    pods(&recounts);
    let due = recounts.of(&key);
    recounts.commit(&key, seen);
    assert_eq!(recounts.of(&key), due, "it is due for the other change");
    recounts.commit(&key, due);
    assert_eq!(recounts.of(&key), Some(Recount::Counted));

    // A late look that a change overtakes.
    assert_eq!(says(&recounts), ["team/cpu"]);
    let seen = recounts.of(&key);
    pods(&recounts);
    recounts.commit(&key, seen);
    assert!(matches!(recounts.of(&key), Some(Recount::Due { .. })));
}

#[test]
fn a_quota_that_says_something_new_after_it_was_counted_is_told_once() {
    let recounts = Recounts::default();
    let pods = recounts.noting(of_pods(quotas(), Gates::default()));
    let [first, in_turn] =
        [Priority::First, Priority::InTurn].map(|priority| of_quotas(priority, quotas(), recounts.clone()));
    let key = Key::new("team", "cpu");
    let said = |used: &'static str| -> AnyObject {
        quota(&hard(&["limits.cpu"]), |quota| {
            quota.metadata.name = "cpu".into();
            quota.status.hard = quota.spec.hard.clone();
            quota.status.used = quantities(&[("limits.cpu", used)]);
        })
    };
    let says = |old: &'static str, new: &'static str| {
        assert_eq!(told(&first, Some(said(old)), Some(said(new)), false), NONE);
        told(&in_turn, Some(said(old)), Some(said(new)), false)
    };
    // Looks at it, and counts it unless it is late; whether it was.
    let counts = || {
        let seen = recounts.of(&key);
        recounts.commit(&key, seen);
        seen == Some(Recount::Late)
    };
    assert!(!counts());
    assert_eq!(says("1", "2"), NONE, "nothing went");
    told(&pods, Some(charged(|_| {})), None, false);
    assert_eq!(says("2", "3"), ["team/cpu"], "it may just be counted");
    assert!(!counts());
    assert_eq!(says("3", "3000m"), NONE);
    assert_eq!(says("3", "4"), ["team/cpu"]);
    assert_eq!(says("4", "5"), NONE, "it is about to be counted again");
    assert!(counts() && !counts());
    assert_eq!(says("5", "6"), NONE);
    // Counted for a change, and then for nothing.
    told(&pods, Some(charged(|_| {})), None, false);
    assert!(!counts() && !counts());
    assert_eq!(says("6", "7"), ["team/cpu"]);
    // A change comes first.
    told(&pods, Some(charged(|_| {})), None, false);
    assert!(!counts());
    told(&in_turn, Some(said("7")), None, false);
    assert_eq!(says("7", "8"), NONE, "it has gone");
}

#[test]
fn services_that_take_less_are_told() {
    let map = of_services(quotas());
    let changed = |old: AnyObject, new: AnyObject| told(&map, Some(old), Some(new), false);
    let (plain, ports): (AnyObject, AnyObject) =
        (service("ClusterIP", &[0], None), service("NodePort", &[1, 2], None));
    let fewer: AnyObject = service("NodePort", &[1], None);
    let balanced: AnyObject = service("LoadBalancer", &[1, 2], None);
    assert_eq!(changed(Arc::clone(&ports), Arc::clone(&plain)), ["team/ports"]);
    assert_eq!(changed(Arc::clone(&ports), fewer), ["team/ports"]);
    assert_eq!(changed(Arc::clone(&balanced), Arc::clone(&ports)), ["team/ports"]);
    assert_eq!(changed(Arc::clone(&ports), balanced), NONE);
    assert_eq!(changed(plain, Arc::clone(&ports)), NONE);
    assert_eq!(told(&map, Some(ports), None, false), ["team/ports"]);
}

#[test]
fn volume_claims_that_ask_for_less_are_told() {
    let map = of_volume_claims(quotas(), Gates::default());
    let was = volume_claim("c", "2Gi", |claim| claim.spec.storage_class_name = Some("fast".into()));
    let becomes = |change: &dyn Fn(&mut coxswain_machinery::api::storage::PersistentVolumeClaim)| {
        let mut claim = (*was).clone();
        change(&mut claim);
        told(&map, Some(Arc::clone(&was) as AnyObject), Some(Arc::new(claim)), false)
    };
    assert_eq!(becomes(&|_| {}), NONE);
    assert_eq!(becomes(&|claim| claim.spec.resources.requests = quantities(&[("storage", "3Gi")])), NONE);
    assert_eq!(
        becomes(&|claim| claim.spec.resources.requests = quantities(&[("storage", "1Gi")])),
        ["team/volumes"]
    );
    assert_eq!(becomes(&|claim| claim.spec.storage_class_name = None), ["team/volumes"]);
    assert_eq!(becomes(&|claim| claim.spec.volume_attributes_class_name = "gold".into()), ["team/volumes"]);
    assert_eq!(told(&map, Some(Arc::clone(&was) as AnyObject), None, false), ["team/volumes"]);
}

#[test]
fn what_discovery_finds_is_wanted_if_it_can_be_counted() {
    let others = Others::new(quotas(), Recounts::default());
    let wants = |group: &str, name: &str, namespaced: bool, verbs: &[&str]| {
        others.wants(&ApiResource {
            group: group.into(),
            version: "v1".into(),
            resource: name.into(),
            namespaced,
            verbs: verbs.iter().map(|verb| Str::from(*verb)).collect(),
            ..ApiResource::default()
        })
    };
    let all = &["create", "delete", "get", "list", "watch"][..];
    assert!(wants("example.com", "foos", true, all) && wants("", "secrets", true, all));
    assert!(
        wants("resource.k8s.io", "resourceclaims", true, all) && wants("metrics.k8s.io", "pods", true, all)
    );
    assert!(wants("resource.k8s.io", "deviceclasses", false, all));
    assert!(
        !wants("example.com", "foos", false, all)
            && !wants("example.com", "foos", true, &["get", "list", "watch"])
    );
    assert!(!wants("", "events", true, all) && !wants("events.k8s.io", "events", true, all));
    assert!(!wants("", "pods", true, all) && !wants("", "resourcequotas", true, all));
    let row = |group, version, kind, resource, namespaced| {
        others.in_full(dynamic::kind(group, version, kind, resource, namespaced))
    };
    assert_eq!(row("resource.k8s.io", "v1", "ResourceClaim", "resourceclaims", true), Some(&RESOURCE_CLAIMS));
    assert_eq!(row("resource.k8s.io", "v1", "DeviceClass", "deviceclasses", false), Some(&DEVICE_CLASSES));
    assert_eq!(row("resource.k8s.io", "v1beta1", "ResourceClaim", "resourceclaims", true), None);
}

#[test]
fn other_objects_that_go_are_told() {
    let others = Others::new(quotas(), Recounts::default());
    let foos = dynamic::kind("example.com", "v1", "Foo", "foos", true);
    let secrets = dynamic::kind("", "v1", "Secret", "secrets", true);
    let claims = dynamic::kind("resource.k8s.io", "v1", "ResourceClaim", "resourceclaims", true);
    let object: AnyObject = Arc::new(PartialObjectMetadata { metadata: meta("a") });
    let changed = |kind, old: Option<&AnyObject>, new: Option<&AnyObject>| {
        let mut keys = Vec::new();
        let delta = Delta { old, new, initial: false, resync: false };
        others.changed(kind, delta, &mut |queue, key| keys.push(format!("{queue} {key}")));
        keys
    };
    assert_eq!(changed(foos, Some(&object), None), ["resourcequota_primary team/foos"]);
    assert_eq!(changed(secrets, Some(&object), None), ["resourcequota_primary team/secrets"]);
    assert_eq!(changed(claims, Some(&object), None), ["resourcequota_primary team/gpu"]);
    assert_eq!(changed(foos, None, Some(&object)), NONE);
    assert_eq!(changed(foos, Some(&object), Some(&object)), NONE);
}

#[test]
fn a_resource_that_goes_or_is_served_again_concerns_all_who_count_it() {
    let others = Others::new(quotas(), Recounts::default());
    let foos = dynamic::kind("example.com", "v1", "Foo", "foos", true);
    for is_served in [false, true] {
        let mut keys = Vec::new();
        let enqueue = &mut |queue: &str, key: Key| keys.push(format!("{queue} {key}"));
        if is_served {
            others.synced(foos, enqueue);
        } else {
            others.forgotten(foos, enqueue);
        }
        keys.sort();
        assert_eq!(keys, ["resourcequota_primary other/all", "resourcequota_primary team/foos"]);
    }
}
