//! The pods that each node should have.

use std::time::Duration;

use super::fixtures::{
    daemon_set, deleting, failed, node, now, old, orphaned, planned, pod, ready, refused, steps, succeeded,
    surges, taint, unbound, unready, view,
};
use coxswain_machinery::api::core::Taint;
use coxswain_machinery::api::kinds::DAEMON_SETS;
use coxswain_machinery::api::pod::Pod;
use coxswain_machinery::model::Failure;
use coxswain_machinery::wire::IntOrString;

#[test]
fn every_node_that_fits_gets_a_pod() {
    let set = daemon_set(|_| {});
    let mut view = view(&set, &["a", "b", "c"], &[pod("p", "b", |_| {})]);
    assert_eq!(steps(&view), ["create on a", "create on c"]);
    view.nodes[0] = node("a", |node| taint(node, "NoSchedule"));
    view.nodes[2] = node("c", |node| taint(node, "PreferNoSchedule"));
    assert_eq!(steps(&view), ["create on c"]);
}

/// The taints that Kubernetes itself puts on nodes in need are tolerated.
#[test]
fn a_cordoned_or_troubled_node_keeps_its_pod_and_its_place() {
    let set = daemon_set(|_| {});
    for (key, effect) in [
        ("node.kubernetes.io/unschedulable", "NoSchedule"),
        ("node.kubernetes.io/not-ready", "NoExecute"),
        ("node.kubernetes.io/unreachable", "NoExecute"),
        ("node.kubernetes.io/disk-pressure", "NoSchedule"),
        ("node.kubernetes.io/memory-pressure", "NoSchedule"),
        ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ] {
        let mut view = view(&set, &["a", "b"], &[pod("p", "a", |_| {})]);
        for held in &mut view.nodes {
            let name = held.metadata.name.clone();
            *held = node(&name, |node| {
                node.spec.taints = vec![Taint { key: key.into(), effect: effect.into(), ..Taint::default() }];
            });
        }
        assert_eq!(steps(&view), ["create on b"], "{key}");
    }
}

#[test]
fn a_network_that_is_not_there_matters_unless_pods_have_the_nodes_own() {
    for (host_network, expected) in [(false, [].as_slice()), (true, &["create on a"])] {
        let set = daemon_set(|set| {
            let more: &[u8] = if host_network { b"\x58\x01" } else { b"" };
            set.spec.template = super::fixtures::template_with("agent:2", more);
        });
        let mut view = view(&set, &[], &[]);
        view.revisions = vec![super::fixtures::revision(1, "new", "agent:2", |held| {
            let document = super::fixtures::document(&set.spec.template);
            held.data.raw = bytes::Bytes::copy_from_slice(document.as_bytes()).into();
        })];
        view.nodes = vec![node("a", |node| {
            let key = "node.kubernetes.io/network-unavailable".into();
            node.spec.taints = vec![Taint { key, effect: "NoSchedule".into(), ..Taint::default() }];
        })];
        assert_eq!(steps(&view), expected);
    }
}

#[test]
fn a_node_that_excludes_pods_loses_them_and_one_that_only_takes_no_more_keeps_them() {
    let set = daemon_set(|_| {});
    let pods = [pod("p", "a", |_| {}), pod("q", "a", deleting)];
    for (effect, expected) in [("NoExecute", ["delete p"].as_slice()), ("NoSchedule", &[])] {
        let mut view = view(&set, &[], &pods);
        view.nodes = vec![node("a", |node| taint(node, effect))];
        assert_eq!(steps(&view), expected, "{effect}");
    }
}

#[test]
fn without_surge_any_pod_holds_its_place_unless_it_has_ended_and_goes() {
    let set = daemon_set(|_| {});
    let plan = |change: fn(&mut Pod)| steps(&view(&set, &["a"], &[pod("p", "a", change)]));
    assert_eq!(plan(|_| {}), [""; 0]);
    assert_eq!(plan(unbound), [""; 0]);
    assert_eq!(plan(deleting), [""; 0]);
    assert_eq!(plan(unready), [""; 0]);
    assert_eq!(plan(failed), ["emit FailedDaemonPod", "delete p"]);
    assert_eq!(plan(succeeded), ["emit SucceededDaemonPod", "delete p"]);
    let ended = |pod: &mut Pod| {
        failed(pod);
        deleting(pod);
    };
    assert_eq!(plan(ended), ["create on a"]);
    // It has no place at all.
    assert_eq!(plan(|pod| pod.spec.node_name = "".into()), ["create on a"]);
}

#[test]
fn with_surge_only_a_pod_that_is_alive_holds_its_place() {
    let set = daemon_set(surges);
    let plan = |change: fn(&mut Pod)| {
        let mut view = view(&set, &["a"], &[pod("p", "a", change)]);
        view.backoffs.insert("a".into(), Duration::from_secs(5));
        steps(&view)
    };
    assert_eq!(plan(|_| {}), [""; 0]);
    assert_eq!(plan(deleting), ["create on a"]);
    assert_eq!(plan(failed), ["create on a"], "in backoff");
    assert_eq!(plan(succeeded), ["create on a", "emit SucceededDaemonPod", "delete p"]);
}

#[test]
fn of_several_pods_the_first_stays() {
    let set = daemon_set(|_| {});
    let younger = |pod: &mut Pod| pod.metadata.creation_timestamp = super::fixtures::ago(10);
    let waiting = |pod: &mut Pod| {
        unbound(pod);
        pod.metadata.creation_timestamp = super::fixtures::ago(5000);
    };
    let pods = [pod("p", "a", younger), pod("q", "a", waiting), pod("r", "a", |_| {}), pod("s", "a", |_| {})];
    let mut deleted = steps(&view(&set, &["a"], &pods));
    deleted.sort();
    assert_eq!(deleted, ["delete p", "delete q", "delete s"]);
    // One on its way out, or at its end, is none of several.
    let pods = [pod("p", "a", deleting), pod("q", "a", |_| {}), pod("r", "a", failed)];
    assert_eq!(steps(&view(&set, &["a"], &pods)), ["emit FailedDaemonPod", "delete r"]);
}

#[test]
fn with_surge_an_old_and_a_new_pod_share_a_node_while_the_new_one_is_not_available() {
    let set = daemon_set(|set| {
        surges(set);
        set.spec.min_ready_seconds = 10;
    });
    let just_ready = |pod: &mut Pod| pod.status.conditions = vec![ready(super::fixtures::ago(5))];
    let unready_old = |pod: &mut Pod| {
        old(pod);
        unready(pod);
    };
    let plan = |pods: &[std::sync::Arc<Pod>]| {
        let mut lines = steps(&view(&set, &["a"], pods));
        lines.sort();
        lines
    };
    assert_eq!(plan(&[pod("o", "a", old), pod("n", "a", just_ready)]), [""; 0]);
    assert_eq!(plan(&[pod("o", "a", old), pod("n", "a", |_| {})]), ["delete o"]);
    assert_eq!(plan(&[pod("o", "a", unready_old), pod("n", "a", just_ready)]), ["delete o"]);
    let crowd =
        [pod("o1", "a", old), pod("o2", "a", old), pod("n1", "a", just_ready), pod("n2", "a", just_ready)];
    assert_eq!(plan(&crowd), ["delete n2", "delete o2"]);
    // By generation it would be new; pruning goes by hash alone.
    let by_generation = |pod: &mut Pod| {
        old(pod);
        pod.metadata.labels = pod.metadata.labels.with("pod-template-generation", "7");
    };
    assert_eq!(plan(&[pod("o", "a", by_generation), pod("n", "a", |_| {})]), ["delete o"]);
}

#[test]
fn failed_pods_are_left_alone_for_their_backoff_and_succeeded_ones_are_not() {
    let set = daemon_set(|_| {});
    let mut view = view(&set, &["a", "b"], &[pod("p", "a", failed), pod("q", "b", succeeded)]);
    view.backoffs.insert("a".into(), Duration::from_secs(5));
    view.backoffs.insert("b".into(), Duration::from_secs(5));
    assert_eq!(steps(&view), ["emit SucceededDaemonPod", "delete q"]);
    assert_eq!(planned(&view).requeue_after, Some(Duration::from_secs(5)));
    assert_eq!(planned(&view).note.failed, []);
    view.backoffs.clear();
    let plan = planned(&view);
    assert_eq!((plan.note.failed.len(), plan.requeue_after), (1, None));
    let items: Vec<_> =
        plan.writes().filter_map(|write| write.item.map(|at| (&write.key.name, at))).collect();
    assert_eq!(items, [(&"p".into(), 0)]);
    assert_eq!((plan.note.failed[0].generation, &plan.note.failed[0].node), (3, &"a".into()));
}

#[test]
fn daemonset_backoff_is_no_longer_when_the_wall_clock_is_set_back() {
    let mut view = view(&daemon_set(|_| {}), &["a"], &[pod("p", "a", failed)]);
    view.backoffs.insert("a".into(), Duration::from_secs(5));
    let earlier = now().checked_sub(jiff::SignedDuration::from_hours(1)).unwrap();
    for at in [now(), earlier] {
        let plan = super::super::plan::plan(&view, at);
        assert_eq!(plan.requeue_after, Some(Duration::from_secs(5)));
    }
}

#[test]
fn a_pod_that_waits_for_a_node_that_is_gone_is_deleted() {
    let set = daemon_set(|_| {});
    let going = |pod: &mut Pod| {
        unbound(pod);
        deleting(pod);
    };
    let pods = [pod("p", "gone", unbound), pod("q", "gone", |_| {}), pod("r", "gone", going)];
    assert_eq!(steps(&view(&set, &[], &pods)), ["delete p"]);
}

#[test]
fn pods_come_and_go_in_bursts() {
    let set = daemon_set(|_| {});
    let nodes: Vec<String> = (0..300).map(|at| format!("n{at}")).collect();
    let names: Vec<&str> = nodes.iter().map(String::as_str).collect();
    let lines = steps(&view(&set, &names, &[]));
    assert_eq!(lines.iter().filter(|line| line.starts_with("create on")).count(), 250);
    let pods: Vec<_> = names.iter().map(|name| pod(&format!("p-{name}"), name, |_| {})).collect();
    let mut view = view(&set, &[], &pods);
    view.nodes = names.iter().map(|name| node(name, |node| taint(node, "NoExecute"))).collect();
    assert_eq!(steps(&view).len(), 250);
}

#[test]
fn pods_are_claimed_before_they_are_counted() {
    let set = daemon_set(|_| {});
    let other = |pod: &mut Pod| pod.metadata.labels = super::fixtures::labels(&[("app", "other")]);
    let pods = [pod("p", "a", orphaned), pod("q", "b", other)];
    let lines = steps(&view(&set, &["a", "b"], &pods));
    assert_eq!(lines, ["verify agent", "release q", "adopt p", "create on b"]);
    // Where the check fails, only adoptions wait.
    let mut checked = view(&set, &["a", "b"], &pods);
    let adoption = planned(&checked).writes().next().map(|write| refused(write, 404, "NotFound")).unwrap();
    checked.failures = vec![Failure { verb: "", kind: &DAEMON_SETS, ..adoption }];
    assert_eq!(super::fixtures::all_steps(&checked), ["release q"]);
}

#[test]
fn one_that_is_deleted_is_left_alone() {
    let set = daemon_set(|set| set.metadata.deletion_timestamp = super::fixtures::ago(1));
    let view = view(&set, &["a"], &[pod("p", "b", unbound)]);
    assert_eq!(super::fixtures::all_steps(&view), [""; 0]);
}

#[test]
fn one_that_selects_everything_gets_a_warning_and_nothing_else() {
    let set = daemon_set(|set| {
        set.spec.selector = coxswain_machinery::api::meta::LabelSelector::default();
    });
    assert_eq!(super::fixtures::all_steps(&view(&set, &["a"], &[])), ["emit SelectingAll"]);
}

#[test]
fn daemonset_surge_in_percent_holds_where_no_node_should_run_a_pod() {
    let set = daemon_set(|set| {
        super::fixtures::rolls(set, IntOrString::Int(0), IntOrString::Str("50%".into()));
    });
    let steps_with = |new: fn(&mut Pod)| {
        let mut view = view(&set, &[], &[pod("o", "a", old), pod("n", "a", new)]);
        view.nodes = vec![node("a", |node| taint(node, "NoSchedule"))];
        steps(&view)
    };
    assert_eq!(steps_with(unready), [""; 0], "both stay until the new one is available");
    assert_eq!(steps_with(|_| {}), ["delete o"]);
}
