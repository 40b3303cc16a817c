//! What is made for pods, recorded and reserved.

use std::cell::Cell;
use std::sync::Arc;

use super::fixtures::*;
use coxswain_machinery::api::AnyObject;
use coxswain_machinery::api::kinds::{POD_GROUPS, PODS, RESOURCE_CLAIMS};
use coxswain_machinery::api::pod::Pod;
use coxswain_machinery::api::resource::{ResourceClaim, ResourceClaimConsumer};
use coxswain_machinery::api::scheduling::PodGroup;
use coxswain_machinery::executor::{Effect, WriteEffect};
use coxswain_machinery::framework::{ApiError, Reads};
use coxswain_machinery::model::Key;
use coxswain_machinery::model::plan::Verb;
use coxswain_machinery::wire::Message as _;

use super::super::by_entry::ClaimsByEntry;
use super::super::names::prefix;

fn none() -> Reads {
    Reads::default()
}

/// As the claim of this name is by a live read.
fn live(name: &str, found: Option<Arc<ResourceClaim>>) -> Reads {
    let found = found.map(|found| found as AnyObject);
    Reads::default().with_object(&RESOURCE_CLAIMS, Key::new("ns", name), Ok(found))
}

fn plain(_: &mut Pod) {}

#[test]
fn a_claim_is_made_from_its_template_and_recorded_under_the_name_that_it_got() {
    let cluster = Cluster::new()
        .with(pod("p", &[("own", "by-hand"), ("gpu", "from t"), ("net", "from t")], &[], plain))
        .with(template("t", false));
    let made = ["create resourceclaims p-gpu-", "create resourceclaims p-net-", "look again"];
    assert_eq!(cluster.pod("p", &none()).unwrap(), made);

    let writes = cluster.writes_for_pod("p", &none());
    let Verb::Create(body) = &writes[0].verb else { panic!("no create") };
    let body = ResourceClaim::decode(body).unwrap();
    assert_eq!(body.metadata.labels, [("team", "a")].into_iter().collect());
    let annotations = [("note", "b"), ("resource.kubernetes.io/pod-claim-name", "gpu")];
    assert_eq!(body.metadata.annotations, annotations.into_iter().collect());
    let owner = body.metadata.controller().unwrap();
    assert_eq!((owner.kind.as_str(), owner.name.as_str(), owner.block_owner_deletion), ("Pod", "p", None));
    assert_eq!((body.metadata.name.as_str(), body.spec.devices.requests.len()), ("", 1));

    // The next look has the answers, whatever the cache has.
    let answered = |name: &str, entry: &str| Effect {
        kind: &RESOURCE_CLAIMS,
        key: Key::new("ns", name),
        subresource: "",
        change: WriteEffect::Stored("8".into()),
        answer: Some(claim(name, |claim| made_for(claim, "p", entry))),
    };
    let read = Reads::default().after(answered("p-gpu-x", "gpu")).after(answered("p-net-y", "net"));
    let recorded = r#"apply pods/status p as ResourceClaimController: [{"name":"gpu","resourceClaimName":"p-gpu-x"},{"name":"net","resourceClaimName":"p-net-y"}]"#;
    assert_eq!(cluster.pod("p", &read).unwrap(), [recorded]);
}

#[test]
fn what_was_made_before_is_found_again_and_all_names_are_recorded() {
    let entries = [("gpu", "from t"), ("net", "from t"), ("no", "from t")];
    let cluster = Cluster::new()
        .with(pod("p", &entries, &[("gpu", "p-gpu-1"), ("no", "")], plain))
        .with(claim("p-gpu-1", |claim| made_for(claim, "p", "gpu")))
        .with(claim("p-net-2", |claim| made_for(claim, "p", "net")))
        .with(claim("p-net-1", |claim| made_for(claim, "p", "net")));
    // The first of two, and no template is needed.
    let recorded = r#"apply pods/status p as ResourceClaimController: [{"name":"gpu","resourceClaimName":"p-gpu-1"},{"name":"net","resourceClaimName":"p-net-1"}]"#;
    assert_eq!(cluster.pod("p", &none()).unwrap(), [recorded]);

    let all = Cluster::new()
        .with(pod("p", &[("gpu", "from t")], &[("gpu", "p-gpu-1")], plain))
        .with(claim("p-gpu-1", |claim| made_for(claim, "p", "gpu")));
    assert_eq!(all.pod("p", &none()).unwrap(), Vec::<String>::new());
}

#[test]
fn a_claim_of_another_namespace_or_kind_of_owner_was_not_made_for_the_pod() {
    let strangers: [fn(&mut ResourceClaim); 3] = [
        |claim| claim.metadata.namespace = "elsewhere".into(),
        |claim| claim.metadata.owner_references[0].kind = "ReplicaSet".into(),
        |claim| claim.metadata.owner_references[0].api_version = "apps/v1".into(),
    ];
    for stranger in strangers {
        let cluster = Cluster::new()
            .with(pod("p", &[("gpu", "from t")], &[], plain))
            .with(template("t", false))
            .with(claim("c", move |claim| {
                made_for(claim, "p", "gpu");
                stranger(claim);
            }));
        assert_eq!(cluster.pod("p", &none()).unwrap(), ["create resourceclaims p-gpu-", "look again"]);
    }
}

#[test]
fn a_recorded_claim_that_the_cache_has_not_is_asked_for_before_another_is_made() {
    let cluster = Cluster::new()
        .with(pod("p", &[("gpu", "from t")], &[("gpu", "c")], plain))
        .with(template("t", false));
    assert_eq!(cluster.pod("p", &none()).unwrap_err(), "read resourceclaims.resource.k8s.io c");
    let there = live("c", Some(claim("c", |claim| made_for(claim, "p", "gpu"))));
    assert_eq!(cluster.pod("p", &there).unwrap(), Vec::<String>::new());
    let made = ["create resourceclaims p-gpu-", "look again"];
    assert_eq!(cluster.pod("p", &live("c", None)).unwrap(), made);
    // Somebody else's is none.
    let foreign = live("c", Some(claim("c", |claim| made_for(claim, "other", "gpu"))));
    assert_eq!(cluster.pod("p", &foreign).unwrap(), made);
    let cluster = cluster.with(claim("c", |claim| made_for(claim, "other", "gpu")));
    assert_eq!(cluster.pod("p", &none()).unwrap(), made);
    // No answer is no absence.
    let silent = Reads::default().with_object(
        &RESOURCE_CLAIMS,
        Key::new("ns", "d"),
        Err(ApiError::Malformed { request: "GET".to_owned(), what: "nonsense".to_owned() }),
    );
    let cluster = Cluster::new().with(pod("p", &[("gpu", "from t")], &[("gpu", "d")], plain));
    assert!(cluster.pod("p", &silent).unwrap_err().contains("nonsense"));
}

#[test]
fn what_cannot_be_made_is_told_and_tried_again_and_nothing_is_recorded_before() {
    let entries = [("a", "from t"), ("b", "from gone"), ("c", "from t")];
    let cluster = Cluster::new().with(pod("p", &entries, &[], plain)).with(template("t", false));
    let missing =
        "resource claim template \"gone\": resourceclaimtemplate.resource.k8s.io \"gone\" not found";
    let planned = [
        "create resourceclaims p-a-".to_owned(),
        format!("event FailedResourceClaimCreation: PodResourceClaim b: {missing}"),
        format!("retry: {missing}"),
    ];
    assert_eq!(cluster.pod("p", &none()).unwrap(), planned);
    let writes = cluster.writes_for_pod("p", &none());
    let told = writes[0].on_failure.as_ref().map(|event| event.message.as_str());
    assert_eq!(told, Some("PodResourceClaim a: create ResourceClaim : {error}"));

    let empty = Cluster::new().with(pod("p", &[("a", "")], &[], plain));
    let fault = "checking for claim before creating it: pod \"ns/p\", spec.resourceClaim \"a\": none of the supported \
                 fields are set";
    assert_eq!(empty.pod("p", &none()).unwrap()[1], format!("retry: {fault}"));

    let mut listed = Cluster::new().with(pod("p", &[("a", "from t")], &[], plain)).with(template("t", true));
    assert_eq!(listed.pod("p", &none()).unwrap()[1], "look again");
    listed.prioritized_lists = false;
    let fault = "retry: template includes a prioritized list of subrequests, but the feature is disabled";
    assert_eq!(listed.pod("p", &none()).unwrap()[1], fault);
}

#[test]
fn template_with_admin_access_needs_the_gate() {
    let mut cluster = Cluster::new().with(pod("p", &[("a", "from t")], &[], plain)).with(admin_template("t"));
    assert_eq!(cluster.pod("p", &none()).unwrap(), ["create resourceclaims p-a-", "look again"]);
    cluster.admin_access = false;
    let fault = "admin access is requested, but the feature is disabled";
    let told = format!("event FailedResourceClaimCreation: PodResourceClaim a: {fault}");
    assert_eq!(cluster.pod("p", &none()).unwrap(), [told, format!("retry: {fault}")]);
}

#[test]
fn pod_group_with_an_empty_entry_is_named_without_quotes() {
    let mut held = PodGroup::clone(&group("g", &[("a", "t")]));
    held.spec.resource_claims[0].resource_claim_template_name = None;
    let mut cluster = Cluster::new().with(Arc::new(held));
    cluster.with_groups = true;
    let fault = "checking for claim before creating it: PodGroup ns/g, spec.resourceClaim a: none of the supported fields \
                 are set";
    assert_eq!(cluster.group("g", &none()).unwrap()[1], format!("retry: {fault}"));
}

#[test]
fn pod_whose_claims_are_recorded_and_reserved_needs_no_pod_group() {
    let entries = [("gpu", "from t"), ("own", "from t")];
    let all = [("gpu", "g-gpu-1"), ("own", "p-own-1")];
    let reserved = |claim: &mut ResourceClaim, by: ResourceClaimConsumer| {
        allocated(claim);
        claim.status.reserved_for = vec![by];
    };
    let mut cluster = Cluster::new()
        .with(member("g", "p", (&entries, &all), bound))
        .with(claim("g-gpu-1", |claim| {
            made_for_group(claim, "g", "gpu");
            reserved(claim, group_consumer("g"));
        }))
        .with(claim("p-own-1", |claim| {
            made_for(claim, "p", "own");
            reserved(claim, consumer("p"));
        }));
    cluster.with_groups = true;
    assert_eq!(cluster.pod("p", &none()).unwrap(), Vec::<String>::new());
    // Another group's claim is none of the pod's.
    let cluster = cluster.with(claim("g-gpu-1", |claim| made_for_group(claim, "other", "gpu")));
    assert_eq!(cluster.pod("p", &none()).unwrap_err(), "pod ns/p: PodGroup ns/g not found");
}

#[test]
fn claim_that_is_reserved_for_the_pod_or_its_group_gets_no_second_consumer() {
    let nothing = Vec::<String>::new();
    for by in [consumer("p"), group_consumer("g")] {
        for (shared, owner) in [(true, "g"), (false, "p")] {
            let name = format!("{owner}-gpu-1");
            let all = [("gpu", name.as_str())];
            let mut cluster = Cluster::new()
                .with(member("g", "p", (&[("gpu", "from t")], &all), bound))
                .with(group("g", if shared { &[("gpu", "t")] } else { &[] }))
                .with(claim(&name, |claim| {
                    if shared {
                        made_for_group(claim, "g", "gpu");
                    } else {
                        made_for(claim, "p", "gpu");
                    }
                    allocated(claim);
                    claim.status.reserved_for = vec![by.clone()];
                }));
            cluster.with_groups = true;
            assert_eq!(cluster.pod("p", &none()).unwrap(), nothing, "{by:?}, shared: {shared}");
        }
    }
}

#[test]
fn what_is_allocated_is_reserved_for_a_pod_that_is_on_its_node_already() {
    let shared = |change: fn(&mut ResourceClaim)| {
        claim("shared", |claim| {
            allocated(claim);
            claim.status.reserved_for = vec![consumer("other")];
            change(claim);
        })
    };
    let entries = [("a", "shared"), ("b", "shared")];
    let reserved = "update resourceclaims/status shared: allocated, for [other p], kept by \
                    [resource.kubernetes.io/delete-protection]";
    let nothing = Vec::<String>::new();
    for (change, claim, planned) in [
        (bound as fn(&mut Pod), shared(|_| {}), vec![reserved.to_owned()]),
        // A scheduler does it for others.
        (plain, shared(|_| {}), nothing.clone()),
        (bound, shared(|claim| claim.status.reserved_for.push(consumer("p"))), nothing.clone()),
        (bound, shared(|claim| claim.status.allocation = None), nothing.clone()),
    ] {
        let cluster = Cluster::new().with(pod("p", &entries, &[], change)).with(claim);
        assert_eq!(cluster.pod("p", &none()).unwrap(), planned);
    }
    // What comes behind one that is not there waits for it.
    let cluster =
        Cluster::new().with(pod("p", &[("a", "absent"), ("b", "shared")], &[], bound)).with(shared(|_| {}));
    assert_eq!(cluster.pod("p", &live("absent", None)).unwrap(), nothing);
}

#[test]
fn pods_that_are_done_need_nothing() {
    for change in [finished as fn(&mut Pod), deleting] {
        let cluster =
            Cluster::new().with(pod("p", &[("a", "from t")], &[], change)).with(template("t", false));
        assert_eq!(cluster.pod("p", &none()).unwrap(), ["nothing"]);
    }
    assert_eq!(Cluster::new().pod("p", &none()).unwrap(), ["nothing"]);
}

#[test]
fn pods_share_the_claims_of_their_group() {
    let entries = [("gpu", "from t"), ("own", "from t")];
    let mut cluster = Cluster::new()
        .with(member("g", "p", (&entries, &[]), bound))
        .with(template("t", false))
        .with(claim("p-own-1", |claim| made_for(claim, "p", "own")));
    cluster.with_groups = true;
    // The group comes first.
    assert_eq!(cluster.pod("p", &none()).unwrap_err(), "pod ns/p: PodGroup ns/g not found");
    let cluster = cluster.with(group("g", &[("gpu", "t")]));
    assert_eq!(cluster.group("g", &none()).unwrap(), ["create resourceclaims g-gpu-", "look again"]);
    let recorded =
        r#"apply pods/status p as ResourceClaimController: [{"name":"own","resourceClaimName":"p-own-1"}]"#;
    assert_eq!(cluster.pod("p", &none()).unwrap(), [recorded]);

    let cluster = cluster.with(claim("g-gpu-1", |claim| {
        made_for_group(claim, "g", "gpu");
        allocated(claim);
    }));
    let recorded = r#"apply podgroups/status g as ResourceClaimController: [{"name":"gpu","resourceClaimName":"g-gpu-1"}]"#;
    assert_eq!(cluster.group("g", &none()).unwrap(), [recorded]);
    let recorded = r#"apply pods/status p as ResourceClaimController: [{"name":"gpu","resourceClaimName":"g-gpu-1"},{"name":"own","resourceClaimName":"p-own-1"}]"#;
    assert_eq!(cluster.pod("p", &none()).unwrap(), [recorded]);

    // It is reserved for the group.
    let all = [("gpu", "g-gpu-1"), ("own", "p-own-1")];
    let cluster = cluster.with(member("g", "p", (&entries, &all), bound));
    let writes = cluster.writes_for_pod("p", &none());
    let Verb::Update(body) = &writes[0].verb else { panic!("no update") };
    let consumers = ResourceClaim::decode(body).unwrap().status.reserved_for;
    let consumer = consumers.first().unwrap();
    assert_eq!(
        (consumer.api_group.as_str(), consumer.resource.as_str(), consumer.uid.as_str()),
        ("scheduling.k8s.io", "podgroups", "g-uid")
    );
}

#[test]
fn names_begin_with_both_names_or_a_share_of_each() {
    let long = "p".repeat(60);
    for (pod, entry, begins) in [
        ("p", "e", "p-e-".to_owned()),
        (&"p".repeat(50), "12345", format!("{}-12345-", "p".repeat(50))),
        (&"p".repeat(51), "12345", format!("{}-{}", "p".repeat(50), "1234")),
        (&long, "12345", format!("{}-{}", "p".repeat(51), "1234")),
    ] {
        assert_eq!(prefix(pod, entry), begins);
    }
}

#[test]
fn it_says_why() {
    let cluster = Cluster::new()
        .with(pod("p", &[("a", "shared"), ("b", "from t"), ("c", "from gone")], &[], bound))
        .with(claim("shared", allocated))
        .with(template("t", false));
    let why = [
        "Entry a uses the existing claim shared.",
        "Entry b has no claim; one is created from the template t.",
        "Entry c has no claim, and none can be created: resource claim template \"gone\": \
         resourceclaimtemplate.resource.k8s.io \"gone\" not found.",
        "The claim shared is allocated but not reserved for p, which is already bound to a node; the claim is \
         reserved now.",
    ];
    assert_eq!(cluster.reasons_of_pod("p"), why);
}

/// A claim of the pod `p` for one of its entries, in turn.
fn numbered(at: usize, entries: usize) -> Arc<ResourceClaim> {
    claim(&format!("c{at:05}"), |claim| {
        made_for(claim, "p", &format!("e{:05}", at % entries));
    })
}

#[test]
fn claims_of_an_owner_are_filed_by_entry_in_one_pass() {
    let visits = Cell::new(0);
    // The first claim by name comes last.
    let claims = (0..900).rev().map(|at| {
        visits.set(visits.get() + 1);
        numbered(at, 300)
    });
    let by_entry = ClaimsByEntry::of(&meta("p"), &PODS, claims);
    for entry in 0..300 {
        let claim = by_entry.claim(&format!("e{entry:05}"));
        assert_eq!(claim.as_deref(), Some(format!("c{entry:05}").as_str()));
    }
    assert_eq!(by_entry.claim("e00300"), None);
    assert_eq!(visits.get(), 900);
    // Neither another owner's nor one of another kind of owner.
    let none = ClaimsByEntry::of(&meta("q"), &PODS, std::iter::once(numbered(0, 1)));
    assert_eq!(none.claim("e00000"), None);
    let none = ClaimsByEntry::of(&meta("p"), &POD_GROUPS, std::iter::once(numbered(0, 1)));
    assert_eq!(none.claim("e00000"), None);
}

/// With a walk over the claims for each entry this takes 200 million steps.
#[test]
fn pod_with_many_entries_and_many_claims_is_observed_in_linear_time() {
    let names: Vec<String> = (0..10_000).map(|at| format!("e{at:05}")).collect();
    let entries: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "from absent")).collect();
    let mut cluster = Cluster::new().with(pod("p", &entries, &[], plain));
    for at in 0..20_000 {
        cluster = cluster.with(numbered(at, 10_000));
    }
    let planned = cluster.pod("p", &none()).unwrap();
    assert_eq!(planned.len(), 1);
    assert_eq!(planned[0].matches("resourceClaimName").count(), 10_000);
    assert!(planned[0].contains(r#"{"name":"e09999","resourceClaimName":"c09999"}"#));
}
