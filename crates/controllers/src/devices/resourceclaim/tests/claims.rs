//! Who uses a claim, and what becomes of it when nobody does.

use std::sync::Arc;

use super::fixtures::*;
use coxswain_machinery::api::AnyObject;
use coxswain_machinery::api::kinds::{POD_GROUPS, PODS};
use coxswain_machinery::api::pod::Pod;
use coxswain_machinery::api::resource::{ResourceClaim, ResourceClaimConsumer};
use coxswain_machinery::framework::{ApiError, Reads};
use coxswain_machinery::model::Key;
use coxswain_machinery::model::plan::Verb;

const KEEPER: &str = "resource.kubernetes.io/delete-protection";

fn none() -> Reads {
    Reads::default()
}

/// As a pod of this name is by a live read.
fn live(name: &str, found: Option<Arc<Pod>>) -> Reads {
    none().with_object(&PODS, Key::new("ns", name), Ok(found.map(|found| found as AnyObject)))
}

fn plain(_: &mut Pod) {}

fn other_uid(pod: &mut Pod) {
    pod.metadata.uid = "other-uid".into();
}

fn used_by(consumers: &[ResourceClaimConsumer]) -> impl FnOnce(&mut ResourceClaim) {
    let consumers = consumers.to_vec();
    move |claim| {
        allocated(claim);
        claim.status.reserved_for = consumers;
    }
}

#[test]
fn consumers_stay_as_long_as_they_need_it() {
    let unscheduled = |pod: &mut Pod| deleting(pod);
    let terminating = |pod: &mut Pod| {
        deleting(pod);
        bound(pod);
    };
    for (change, stays) in [
        (plain as fn(&mut Pod), true),
        (bound, true),
        (finished, false),
        (unscheduled, false),
        // What runs on a node has its devices until it has ended.
        (terminating, true),
    ] {
        let cluster = Cluster::new()
            .with(claim("c", used_by(&[consumer("p"), consumer("stays")])))
            .with(pod("p", &[], &[], change))
            .with(pod("stays", &[], &[], plain));
        let freed = format!("update resourceclaims/status c: allocated, for [stays], kept by [{KEEPER}]");
        let planned = if stays { Vec::new() } else { vec![freed] };
        assert_eq!(cluster.claim("c", &none()).unwrap(), planned);
    }
}

#[test]
fn of_a_consumer_that_the_cache_has_not_the_api_server_is_asked() {
    let freed = [
        "update resourceclaims/status c: free, for [], kept by [resource.kubernetes.io/delete-protection]"
            .to_owned(),
        "update resourceclaims c as answered, 1 edits".to_owned(),
    ];
    let absent = Cluster::new().with(claim("c", used_by(&[consumer("p")])));
    let replaced =
        Cluster::new().with(claim("c", used_by(&[consumer("p")]))).with(pod("p", &[], &[], other_uid));
    for cluster in [absent, replaced] {
        assert_eq!(cluster.claim("c", &none()).unwrap_err(), "read pods p");
        assert_eq!(cluster.claim("c", &live("p", None)).unwrap(), freed);
        assert_eq!(cluster.claim("c", &live("p", Some(pod("p", &[], &[], other_uid)))).unwrap(), freed);
        // The cache will hear of what it does.
        let there = live("p", Some(pod("p", &[], &[], plain)));
        assert_eq!(cluster.claim("c", &there).unwrap(), Vec::<String>::new());
        // The cache may never receive the end of the pod as a change.
        assert_eq!(cluster.claim("c", &live("p", Some(pod("p", &[], &[], finished)))).unwrap(), freed);
        let error = ApiError::Malformed { request: "GET".to_owned(), what: "nonsense".to_owned() };
        let silent = none().with_object(&PODS, Key::new("ns", "p"), Err(error));
        assert!(cluster.claim("c", &silent).unwrap_err().contains("nonsense"));
    }
}

#[test]
fn consumer_whose_deletion_was_seen_is_not_read() {
    let uid = pod("p", &[], &[], plain).metadata.uid.clone();
    for cluster in [
        Cluster::new().with(claim("c", used_by(&[consumer("p")]))),
        Cluster::new().with(claim("c", used_by(&[consumer("p")]))).with(pod("p", &[], &[], other_uid)),
    ] {
        cluster.departed.add(&uid);
        assert_eq!(cluster.claim("c", &none()).unwrap().len(), 2, "it is freed");
    }
}

#[test]
fn consumers_of_other_sorts_stay() {
    let sort = |group: &str, resource: &str| ResourceClaimConsumer {
        api_group: group.into(),
        resource: resource.into(),
        ..consumer("g")
    };
    let of_group = || claim("c", used_by(&[sort("scheduling.k8s.io", "podgroups")]));
    let nothing = Vec::<String>::new();
    let foreign = Cluster::new().with(claim("c", used_by(&[sort("example.com", "pods")])));
    assert_eq!(foreign.claim("c", &none()).unwrap(), nothing);
    let mut cluster = Cluster::new().with(of_group());
    assert_eq!(cluster.claim("c", &none()).unwrap(), nothing);
    // Where groups have claims they are consumers like pods.
    cluster.with_groups = true;
    assert_eq!(cluster.claim("c", &none()).unwrap_err(), "read podgroups.scheduling.k8s.io g");
    let gone = none().with_object(&POD_GROUPS, Key::new("ns", "g"), Ok(None));
    assert_eq!(cluster.claim("c", &gone).unwrap().len(), 2);
    assert_eq!(cluster.with(group("g", &[])).claim("c", &none()).unwrap(), nothing);
}

#[test]
fn what_nobody_uses_any_more_is_freed_once() {
    let nothing = Vec::<String>::new();
    let unused = |change: fn(&mut ResourceClaim)| Cluster::new().with(claim("c", change));
    // Nobody has used it yet.
    assert_eq!(unused(allocated).claim("c", &none()).unwrap(), nothing);
    // It is being deleted.
    let going = |claim: &mut ResourceClaim| {
        claim.metadata.deletion_timestamp = coxswain_machinery::wire::Time::from_seconds(1);
    };
    let both = unused(|claim| {
        allocated(claim);
        claim.metadata.finalizers.push("example.com/other".into());
        claim.metadata.deletion_timestamp = coxswain_machinery::wire::Time::from_seconds(1);
    });
    let freed = [
        format!("update resourceclaims/status c: free, for [], kept by [{KEEPER} example.com/other]"),
        "update resourceclaims c as answered, 2 edits".to_owned(),
    ];
    assert_eq!(both.claim("c", &none()).unwrap(), freed);
    let cleared = Cluster::new().with(claim("c", |claim| {
        allocated(claim);
        going(claim);
        claim.status.allocation = None;
    }));
    assert_eq!(cleared.claim("c", &none()).unwrap(), ["update resourceclaims c: free, for [], kept by []"]);
    // Without the finalizer the allocation is somebody else's business.
    let unprotected = Cluster::new().with(claim("c", |claim| {
        used_by(&[consumer("p")])(claim);
        claim.metadata.finalizers.clear();
    }));
    let left = ["update resourceclaims/status c: allocated, for [], kept by []"];
    assert_eq!(unprotected.claim("c", &live("p", None)).unwrap(), left);
    let going = unused(|claim| {
        claim.metadata.deletion_timestamp = coxswain_machinery::wire::Time::from_seconds(1);
    });
    assert_eq!(going.claim("c", &none()).unwrap(), nothing);
}

#[test]
fn a_claim_that_was_made_for_a_pod_goes_with_what_the_pod_does() {
    let made = |claim: &mut ResourceClaim| made_for(claim, "p", "gpu");
    let delete = vec!["delete resourceclaims c c-uid 7".to_owned()];
    let nothing = Vec::<String>::new();
    for (change, planned) in
        [(plain as fn(&mut Pod), &nothing), (bound, &nothing), (finished, &delete), (deleting, &delete)]
    {
        let cluster = Cluster::new().with(claim("c", made)).with(pod("p", &[], &[], change));
        assert_eq!(cluster.claim("c", &none()).unwrap(), *planned);
    }
    // Another pod has its name: the API server knows best.
    let cluster = Cluster::new().with(claim("c", made)).with(pod("p", &[], &[], other_uid));
    assert_eq!(cluster.claim("c", &none()).unwrap_err(), "read pods p");
    assert_eq!(cluster.claim("c", &live("p", Some(pod("p", &[], &[], other_uid)))).unwrap(), delete);
    assert_eq!(cluster.claim("c", &live("p", Some(pod("p", &[], &[], plain)))).unwrap(), nothing);
    // Pods that are gone are left to garbage collection, and what is being deleted goes.
    assert_eq!(Cluster::new().with(claim("c", made)).claim("c", &none()).unwrap(), nothing);
    let going = claim("c", |claim| {
        made(claim);
        claim.metadata.deletion_timestamp = coxswain_machinery::wire::Time::from_seconds(1);
    });
    assert_eq!(
        Cluster::new().with(going).with(pod("p", &[], &[], finished)).claim("c", &none()).unwrap(),
        nothing
    );
    // Somebody else's stays, though the pod is done.
    let shared =
        Cluster::new().with(claim("c", used_by(&[consumer("p")]))).with(pod("p", &[], &[], finished));
    let freed = shared.claim("c", &none()).unwrap();
    assert!(freed.len() == 2 && freed.iter().all(|line| !line.starts_with("delete")), "{freed:?}");
    assert_eq!(Cluster::new().claim("c", &none()).unwrap(), ["nothing"]);
}

#[test]
fn all_three_follow_from_one_look_and_the_delete_is_of_the_object() {
    let cluster = Cluster::new().with(pod("p", &[], &[], finished)).with(claim("c", |claim| {
        used_by(&[consumer("p")])(claim);
        made_for(claim, "p", "gpu");
    }));
    let writes = cluster.writes_to_claim("c", &none());
    let [free, release, delete] = writes.as_slice() else { panic!("{writes:?}") };
    assert_eq!((free.subresource, release.subresource), ("status", ""));
    let Verb::Delete { uid, resource_version, .. } = &delete.verb else { panic!("no delete") };
    assert_eq!((uid.to_string().as_str(), resource_version), ("c-uid", &None));
}

#[test]
fn it_says_why() {
    let used = Cluster::new()
        .with(claim("c", used_by(&[consumer("p"), consumer("q")])))
        .with(pod("p", &[], &[], finished))
        .with(pod("q", &[], &[], plain));
    let why = [
        "q uses the claim; it is not changed.",
        "The claim is reserved for 1 consumer that is finished or deleted (p); the reservation is removed.",
    ];
    assert_eq!(used.reasons_of_claim("c"), why);
    let freed = Cluster::new().with(pod("p", &[], &[], finished)).with(claim("c", |claim| {
        used_by(&[consumer("p")])(claim);
        made_for(claim, "p", "gpu");
    }));
    let why = [
        "The claim is reserved for 1 consumer that is finished or deleted (p); the reservation is removed.",
        "No consumer uses the claim; its devices are deallocated.",
        "The claim was created for the pod p, which has finished; the claim is deleted.",
    ];
    assert_eq!(freed.reasons_of_claim("c"), why);
    let waiting = Cluster::new().with(claim("c", allocated));
    let why =
        ["Devices are allocated for the claim, and it has had no consumer yet; the allocation is kept."];
    assert_eq!(waiting.reasons_of_claim("c"), why);
    let idle = Cluster::new().with(claim("c", |_| {}));
    assert_eq!(
        idle.reasons_of_claim("c"),
        ["No consumer uses the claim, and no device is allocated for it."]
    );
}
