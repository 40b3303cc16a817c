//! What an explanation says.

use std::time::Duration;

use super::super::Controller;
use super::super::view::View;
use super::fixtures::*;
use coxswain_machinery::framework::Room as _;
use coxswain_machinery::wire::IntOrString;

fn said(view: &View) -> Vec<String> {
    Controller::reasons(view, now())
}

#[test]
fn it_says_which_nodes_get_a_pod_and_which_do_not() {
    let set = daemon_set(|_| {});
    let mut seen = view(&set, &["n1", "n2"], &[pod("a", "n1", |_| {})]);
    seen.nodes.push(node("n3", |node| taint(node, "NoSchedule")));
    let all = said(&seen);
    assert_eq!(all[0], "2 of 3 nodes should run a pod, 1 has one: 1 ready, 1 available.");
    assert!(
        all[1].starts_with("n3 has the taint ")
            && all[1].ends_with(", which the template does not tolerate."),
        "{all:?}"
    );
    assert_eq!(all[2], "n2 has no pod; one is created.");
    assert_eq!(all.len(), 3, "{all:?}");
    seen.nodes.retain(|node| node.metadata.name != "n3");
    seen.nodes.push(node("n3", |node| taint(node, "NoExecute")));
    seen.pods.push(pod("c", "n3", |_| {}));
    assert!(
        said(&seen).contains(&"c runs outside of the matching nodes; it is deleted.".to_owned()),
        "{:?}",
        said(&seen)
    );
}

#[test]
fn it_says_how_far_the_template_is_rolled_out() {
    let nodes = ["n1", "n2", "n3"];
    let pods = [pod("a", "n1", old), pod("b", "n2", old), pod("c", "n3", |_| {})];
    let last = |set, pods: &[_]| said(&view(set, &nodes, pods)).pop().unwrap();
    let set = daemon_set(|set| rolls(set, IntOrString::Int(1), IntOrString::Int(0)));
    assert_eq!(
        last(&set, &pods),
        "2 pods have an earlier template; 1 node may be without an available pod (maxUnavailable), and 0 are now."
    );
    let waiting = [pods[0].clone(), pods[1].clone(), pod("c", "n3", unready)];
    assert_eq!(
        last(&set, &waiting),
        "2 pods have an earlier template; 1 node may be without an available pod (maxUnavailable), and 1 is now, so \
         the next pod is replaced after an updated pod becomes available."
    );
    let surging = daemon_set(|set| rolls(set, IntOrString::Int(0), IntOrString::Int(2)));
    assert_eq!(
        last(&surging, &pods),
        "2 pods have an earlier template; new pods are created on at most 2 nodes at a time (maxSurge), and an old \
         pod is deleted when the new one is available."
    );
    let by_hand = daemon_set(|set| set.spec.update_strategy.r#type = "OnDelete".into());
    assert_eq!(
        last(&by_hand, &pods),
        "2 pods have an earlier template; the updateStrategy is OnDelete, so you must delete them."
    );
}

#[test]
fn it_says_for_how_long_a_failed_pod_stays_and_that_it_is_being_deleted() {
    let set = daemon_set(|_| {});
    let mut seen = view(&set, &["n1"], &[pod("a", "n1", failed)]);
    seen.backoffs.insert("n1".into(), Duration::from_secs(40));
    assert!(
        said(&seen).contains(&"The pod on n1 has failed; it is replaced in 40s (backoff).".to_owned()),
        "{:?}",
        said(&seen)
    );
    let going = daemon_set(|set| set.metadata.deletion_timestamp = ago(1));
    assert_eq!(
        said(&view(&going, &["n1"], &[])),
        ["The DaemonSet is being deleted; the garbage collector deletes its pods."]
    );
}
