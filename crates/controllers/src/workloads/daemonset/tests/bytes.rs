//! What is made of a template, and what stays of a DaemonSet, byte by byte.

use std::sync::Arc;

use bytes::Bytes;
use proptest::prelude::*;

use super::super::view::View;
use super::fixtures::{
    daemon_set, decoded, document, field, first_created, labels, owner, planned, revision, template_with,
    view,
};
use coxswain_machinery::api::apps::DaemonSet;
use coxswain_machinery::api::kinds::{DAEMON_SETS, PODS};
use coxswain_machinery::api::pod::Pod;
use coxswain_machinery::api::shape::Toleration;
use coxswain_machinery::model::plan::Verb;
use coxswain_machinery::wire::splice::put_bytes;
use coxswain_machinery::wire::{Message, Raw, Str};

const TODAY: [&str; 6] = [
    "not-ready:NoExecute",
    "unreachable:NoExecute",
    "disk-pressure:NoSchedule",
    "memory-pressure:NoSchedule",
    "pid-pressure:NoSchedule",
    "unschedulable:NoSchedule",
];

/// A view of this template, whose revision has the hash `new`.
fn of_template(template: &Raw) -> View {
    let set = daemon_set(|set| set.spec.template = template.clone());
    let present = revision(1, "new", "agent:2", |held| {
        held.data.raw = Bytes::copy_from_slice(document(template).as_bytes()).into();
    });
    View { revisions: vec![present], ..view(&set, &["a"], &[]) }
}

fn tolerated(pod: &[u8]) -> Vec<String> {
    let pod: Arc<Pod> = decoded(&PODS, pod.to_vec());
    let short = |held: &Toleration| {
        assert_eq!(held.operator, "Exists");
        let seconds = held.seconds.map_or_else(String::new, |seconds| format!(" {seconds}"));
        format!("{}:{}{seconds}", held.key.trim_start_matches("node.kubernetes.io/"), held.effect)
    };
    pod.shape.tolerations.iter().map(short).collect()
}

#[test]
fn a_pod_is_its_template_for_one_node_with_an_owner_and_a_hash() {
    let body = first_created(&of_template(&template_with("agent:2", b"\x92\x3f\x04spec")));
    let pod: Arc<Pod> = decoded(&PODS, body.to_vec());
    assert_eq!((pod.metadata.generate_name.as_str(), pod.metadata.namespace.as_str()), ("agent-", "default"));
    assert_eq!(pod.metadata.labels, labels(&[("app", "agent"), ("controller-revision-hash", "new")]));
    assert_eq!(pod.metadata.owner_references, [owner()]);
    assert_eq!((pod.target_node(), pod.spec.node_name.as_str()), (Some(&"a".into()), ""));
    assert_eq!(field(&body, &[2, 2, 2]), Some(b"agent:2".as_slice()));
    assert_eq!(field(&body, &[2, 1010]), Some(b"spec".as_slice()));
    assert_eq!(tolerated(&body), TODAY);
}

/// Required terms decide where pods may run, and then stand for one node; all else of the affinity stays.
#[test]
fn the_templates_own_required_affinity_is_replaced_and_nothing_else() {
    let mut node_affinity = Vec::new();
    let mut expression = Vec::new();
    put_bytes(&mut expression, 1, b"zone");
    put_bytes(&mut expression, 2, b"DoesNotExist");
    let mut term = Vec::new();
    put_bytes(&mut term, 1, &expression);
    let mut required = Vec::new();
    put_bytes(&mut required, 1, &term);
    put_bytes(&mut node_affinity, 1, &required);
    put_bytes(&mut node_affinity, 2, b"");
    let mut affinity = Vec::new();
    put_bytes(&mut affinity, 1, &node_affinity);
    put_bytes(&mut affinity, 3, b"");
    let mut spec = Vec::new();
    put_bytes(&mut spec, 18, &affinity);
    let body = first_created(&of_template(&template_with("agent:2", &spec)));
    assert_eq!(field(&body, &[2, 18, 1, 1, 1, 1]), None, "no expression is left");
    assert_eq!(field(&body, &[2, 18, 1, 1, 1, 2, 3]), Some(b"a".as_slice()));
    assert_eq!(field(&body, &[2, 18, 1, 2]), Some(b"".as_slice()));
    assert_eq!(field(&body, &[2, 18, 3]), Some(b"".as_slice()));
}

#[test]
fn a_toleration_with_an_end_has_none_any_more() {
    let mut toleration = Vec::new();
    put_bytes(&mut toleration, 1, b"node.kubernetes.io/not-ready");
    put_bytes(&mut toleration, 2, b"Exists");
    put_bytes(&mut toleration, 4, b"NoExecute");
    toleration.extend_from_slice(b"\x28\x05");
    let mut spec = Vec::new();
    put_bytes(&mut spec, 22, &toleration);
    assert_eq!(tolerated(&first_created(&of_template(&template_with("agent:2", &spec)))), TODAY);
}

#[test]
fn pods_with_the_nodes_network_tolerate_that_there_is_none() {
    let body = first_created(&of_template(&template_with("agent:2", b"\x58\x01")));
    assert_eq!(tolerated(&body).last().map(String::as_str), Some("network-unavailable:NoSchedule"));
}

#[test]
fn a_generation_by_annotation_is_a_label_if_it_is_a_number() {
    for (annotation, expected) in [("7", Some("7")), ("-1", Some("-1")), ("seven", None)] {
        let set = daemon_set(|set| {
            set.metadata.annotations = labels(&[("deprecated.daemonset.template.generation", annotation)]);
        });
        let body = first_created(&view(&set, &["a"], &[]));
        let pod: Arc<Pod> = decoded(&PODS, body.to_vec());
        let label = pod.metadata.labels.get("pod-template-generation").map(Str::as_str);
        assert_eq!(label, expected);
    }
}

#[test]
fn a_status_update_changes_only_what_we_set() {
    let set = daemon_set(|set| set.status.collision_count = Some(4));
    let mut bytes = set.raw.to_vec();
    put_bytes(&mut bytes, 99, b"object of tomorrow");
    let mut status = set.status.to_bytes();
    put_bytes(&mut status, 10, b"");
    put_bytes(&mut status, 55, b"status of tomorrow");
    put_bytes(&mut bytes, 3, &status);
    let set: Arc<DaemonSet> = decoded(&DAEMON_SETS, bytes);
    let plan = planned(&view(&set, &["a"], &[]));
    let update = plan.writes().find(|write| write.subresource == "status").unwrap();
    let Verb::Update(body) = &update.verb else { panic!("{update:?}") };
    let after: Arc<DaemonSet> = decoded(&DAEMON_SETS, body.to_vec());
    assert_eq!((after.status.desired_number_scheduled, after.status.collision_count), (1, Some(4)));
    assert_eq!(field(body, &[99]), Some(b"object of tomorrow".as_slice()));
    assert_eq!(field(body, &[3, 55]), Some(b"status of tomorrow".as_slice()));
    assert_eq!(field(body, &[3, 10]), Some(b"".as_slice()));
    assert_eq!(field(body, &[2]), field(&set.raw, &[2]));
}

proptest! {
    /// Whatever the bytes of a template are, planning neither panics nor makes a broken pod.
    #[test]
    fn no_bytes_panic(spec in prop::collection::vec(any::<u8>(), 0..60)) {
        let set = daemon_set(|_| {});
        let mut view = view(&set, &["a"], &[]);
        let mut other = (*set).clone();
        other.spec.template = template_with("agent:2", &spec);
        view.daemon_set = Arc::new(other);
        for write in planned(&view).writes() {
            if let Verb::Create(body) = &write.verb {
                prop_assert!(write.kind != &PODS || Pod::decode(body).is_ok());
            }
        }
    }
}
