//! Volumes that go: off the list first, never while a node that is ready uses them, by force after six minutes or by the taint.

use super::*;

/// A volume that is attached and used, and whose pod has gone.
fn unwanted() -> Stage {
    unwanted_under(RULES)
}

fn unwanted_under(rules: Rules) -> Stage {
    let mut stage = Stage::with(rules).with_running("a", "n");
    stage.pod_gone("p");
    stage
}

#[test]
fn a_volume_leaves_the_list_before_its_attachment_is_deleted() {
    let mut stage = unwanted();
    stage.look("n");
    assert_eq!(
        (stage.happened(), stage.look_in),
        (Vec::new(), None),
        "it is mounted: the node will say more"
    );
    stage.uses("n", &[]);
    stage.look("n");
    assert_eq!(stage.happened(), ["n lists []", "delete a on n"], "the answer to the list is the live look");
    assert_eq!(stage.look_in, Some(secs(120)));
    stage.look("n");
    assert_eq!(stage.happened(), [""; 0]);
    stage.is_detached("a", "n");
    stage.look("n");
    assert_eq!((stage.happened(), stage.look_in), (Vec::new(), None));
    assert!(stage.view("n").book.held.is_empty());
    let done = format!("false volume_detach success kubernetes.io/csi:{DRIVER} 1");
    assert!(stage.series("storage_operation_duration_seconds").contains(&done));
}

#[test]
fn a_list_that_cannot_be_written_keeps_the_volume() {
    let mut stage = unwanted();
    stage.uses("n", &[]);
    stage.refused = vec!["patch"];
    stage.look("n");
    assert_eq!(stage.happened(), ["patch is refused"], "and nothing is deleted");
    // It does not hold up what another pod wants.
    stage.bound("b", &["ReadWriteOnce"]);
    stage.pod("q", "n", &["b"]);
    stage.look("n");
    assert_eq!(stage.happened(), ["patch is refused", "create b on n"]);
    assert!(stage.attachment("a", "n").unwrap().metadata.deletion_timestamp.is_none());
    stage.refused.clear();
    stage.look("n");
    assert_eq!(stage.happened(), ["n lists []", "delete a on n"]);
}

#[test]
fn what_a_ready_node_uses_by_a_live_read_is_never_taken_away() {
    for for_long in [0, 3600] {
        let mut stage = unwanted();
        stage.look("n");
        stage.at += secs(for_long);
        let mut live = stage.get_node("n");
        live.metadata.resource_version = "7000".into();
        stage.uses("n", &[]);
        // The cache has not heard that a kubelet has begun to use it again.
        stage.live = vec![live];
        stage.look("n");
        assert_eq!(stage.happened(), ["n lists []", "n lists [a]"], "after {for_long}s: it gets it back");
        assert!(stage.attachment("a", "n").unwrap().metadata.deletion_timestamp.is_none());
        stage.uses("n", &[]);
        stage.look("n");
        assert_eq!(stage.happened(), ["n lists []", "delete a on n"]);
        assert_eq!(stage.series("attach_detach_controller_attachdetach_controller_forced_detaches"), [""; 0]);
    }
}

#[test]
fn what_is_not_listed_and_used_by_a_live_read_is_tried_again() {
    let mut stage = Stage::new();
    stage.node("n");
    stage.bound("a", &["ReadWriteOnce"]);
    stage.made("a", "n", true);
    stage.restarts();
    stage.look("n");
    stage.uses("n", &["a"]);
    let live = stage.get_node("n");
    stage.uses("n", &[]);
    stage.live = vec![live];
    stage.look("n");
    assert_eq!(stage.happened(), ["read nodes"]);
    assert_eq!(stage.look_in, Some(Duration::from_millis(500)));
    stage.live.clear();
    stage.at += secs(1);
    stage.look("n");
    assert_eq!(stage.happened(), ["read nodes", "delete a on n"]);
}

#[test]
fn six_minutes_pass_on_a_node_that_is_not_ready_and_on_no_other() {
    // Whether it is ready, after how long, with the flag, and what comes of it.
    let gone = &["n lists []", "delete a on n"][..];
    for (is_ready, after, is_forced, expected, look_in) in [
        (false, 0, true, &[][..], Some(360)),
        (false, 359, true, &[], Some(1)),
        (false, 360, true, gone, Some(120)),
        (false, 3600, true, gone, Some(120)),
        (false, 360, false, &[], None),
        (false, 86_400, false, &[], None),
        (true, 360, true, &[], None),
        (true, 86_400, true, &[], None),
    ] {
        let mut stage = unwanted_under(Rules { is_forced, ..RULES });
        if !is_ready {
            stage.is_dead("n");
        }
        stage.look("n");
        stage.at += secs(after);
        stage.look("n");
        assert_eq!(stage.happened(), expected, "ready: {is_ready}, after {after}s, forced: {is_forced}");
        assert_eq!(stage.look_in, look_in.map(secs));
        let counted = stage.series("attach_detach_controller_attachdetach_controller_forced_detaches");
        assert_eq!(counted, if expected.is_empty() { vec![] } else { vec!["timeout 1".to_owned()] });
    }
}

#[test]
fn a_node_that_is_ready_after_all_is_not_robbed() {
    let mut stage = unwanted();
    let live = stage.get_node("n");
    stage.is_dead("n");
    stage.look("n");
    stage.at += secs(360);
    stage.live = vec![live];
    stage.look("n");
    let expected = ["n lists []", "n lists [a]"];
    assert_eq!(stage.happened(), expected, "it is ready by its own word of this moment, and uses it");
}

#[test]
fn the_taint_counts_whatever_its_value_and_effect() {
    for (value, effect, is_ready) in
        [("nodeshutdown", "NoExecute", false), ("", "NoSchedule", false), ("x", "NoExecute", true)]
    {
        let mut stage = unwanted();
        stage.changed("n", |node| {
            set_ready(node, is_ready);
            taint(node, value, effect);
        });
        stage.look("n");
        assert_eq!(stage.happened(), ["n lists []", "delete a on n"]);
        let counted = stage.series("attach_detach_controller_attachdetach_controller_forced_detaches");
        assert_eq!(counted, ["out-of-service 1"]);
    }
}

#[test]
fn the_clock_stops_when_it_is_wanted_again() {
    let mut stage = unwanted();
    stage.is_dead("n");
    stage.look("n");
    stage.at += secs(300);
    stage.pod("q", "n", &["a"]);
    stage.look("n");
    stage.pod_gone("q");
    stage.at += secs(300);
    stage.look("n");
    assert_eq!((stage.happened(), stage.look_in), (Vec::new(), Some(secs(360))), "it begins anew");
}

#[test]
fn an_attacher_that_fails_to_detach_is_asked_again_without_a_word_to_pods() {
    let mut stage = unwanted();
    stage.uses("n", &[]);
    stage.look("n");
    stage.happened();
    stage.attacher("a", "n", |found| {
        let error = VolumeError { message: "busy".into(), ..VolumeError::default() };
        found.status.detach_error = Some(Box::new(error));
    });
    stage.look("n");
    assert_eq!((stage.happened(), stage.look_in), (Vec::new(), Some(Duration::from_millis(500))));
    assert_eq!(stage.view("n").book.held[unique("a").as_str()].state, book::State::Uncertain);
    stage.at += secs(1);
    stage.look("n");
    assert_eq!(stage.happened(), ["read nodes"], "it is being deleted: there is nothing to ask for");
    assert_eq!(stage.look_in, Some(secs(1)), "the old error ends this attempt, too");
    // It is not listed again: who wants it now gets it anew.
    stage.pod("q", "n", &["a"]);
    stage.look("n");
    let told = stage.happened();
    assert!(told.len() == 1 && told[0].ends_with("volume attachment is being deleted"), "{told:?}");
    stage.is_detached("a", "n");
    stage.at += secs(1);
    stage.look("n");
    assert_eq!(stage.happened(), ["create a on n"]);
}

#[test]
fn a_delete_that_is_refused_is_tried_again_later() {
    let mut stage = unwanted();
    stage.uses("n", &[]);
    stage.refused = vec!["delete"];
    stage.look("n");
    assert_eq!(stage.happened(), ["n lists []", "delete is refused"]);
    stage.look("n");
    assert_eq!(stage.happened(), [""; 0]);
    stage.at += secs(1);
    stage.refused.clear();
    stage.look("n");
    assert_eq!(stage.happened(), ["read nodes", "delete a on n"]);
}

#[test]
fn two_minutes_are_enough_for_a_detachment() {
    let mut stage = unwanted();
    stage.uses("n", &[]);
    stage.look("n");
    stage.happened();
    stage.at += secs(120);
    stage.look("n");
    assert_eq!(stage.look_in, Some(Duration::from_millis(500)));
    let failed = format!("false volume_detach fail-unknown kubernetes.io/csi:{DRIVER} 1");
    assert!(stage.series("storage_operation_duration_seconds").contains(&failed));
}

#[test]
fn what_becomes_known_counts_as_mounted_until_the_node_says_more() {
    let mut stage = Stage::new();
    stage.node("n");
    stage.bound("a", &["ReadWriteOnce"]);
    stage.pod("p", "n", &["a"]);
    stage.look("n");
    stage.at = secs(120);
    stage.look("n");
    stage.pod_gone("p");
    stage.happened();
    stage.look("n");
    assert_eq!(stage.happened(), [""; 0], "it may be there");
    assert!(stage.world.books.awaits_news_of("n"));
    stage.changed("n", |_| {});
    stage.look("n");
    assert_eq!(stage.happened(), ["read nodes", "delete a on n"]);
}

#[test]
fn a_node_that_is_gone_has_what_it_said_last() {
    for (in_use, expected) in [(true, &[][..]), (false, &["read nodes", "delete a on n"])] {
        let mut stage = Stage::running("a", "n");
        if !in_use {
            stage.uses("n", &[]);
        }
        stage.look("n");
        stage.node_gone("n");
        stage.look("n");
        assert_eq!(stage.happened(), [""; 0], "the pod is still there");
        stage.pod_gone("p");
        stage.look("n");
        assert_eq!(stage.happened(), expected);
        if in_use {
            assert_eq!(stage.look_in, Some(secs(360)));
            stage.at += secs(360);
            stage.look("n");
            assert_eq!(stage.happened(), ["read nodes", "delete a on n"]);
        }
    }
}

#[test]
fn a_claim_or_volume_that_vanishes_takes_nothing_away() {
    let mut stage = Stage::running("a", "n");
    stage.uses("n", &[]);
    stage.gone(&Arc::clone(stage.world.claims.store()), &Key::new("ns", "a"));
    stage.look("n");
    stage.gone(&Arc::clone(stage.world.volumes.store()), &Key::new("", "a"));
    stage.changed("n", |node| node.metadata.annotations = coxswain_machinery::wire::Labels::default());
    stage.look("n");
    assert_eq!(stage.happened(), [""; 0]);
    stage.pod_gone("p");
    stage.look("n");
    assert_eq!(stage.happened(), ["n lists []", "delete a on n"]);
}

#[test]
fn pods_that_ended_let_go() {
    let mut stage = Stage::running("a", "n");
    stage.uses("n", &[]);
    let mut ended = pod("ns", "p", "n", &["a"]);
    ended.status.phase = "Failed".into();
    put(stage.world.all_pods.store(), ended);
    stage.look("n");
    assert_eq!(stage.happened(), ["n lists []", "delete a on n"]);
}

#[test]
fn an_attachment_that_somebody_deletes_under_a_pod_is_made_again() {
    let mut stage = Stage::running("a", "n");
    stage.at = secs(70);
    stage.is_detached("a", "n");
    stage.look("n");
    assert_eq!((stage.happened(), stage.look_in), (Vec::new(), Some(secs(50))), "at the end of the period");
    stage.at = secs(120);
    stage.look("n");
    assert_eq!(stage.happened(), ["read volumeattachments.storage.k8s.io", "n lists []", "create a on n"]);
    stage.is_attached("a", "n");
    stage.look("n");
    let told = stage.happened();
    assert!(told.len() == 2 && told[0].contains("SuccessfulAttachVolume"), "{told:?}");
}

#[test]
fn without_comparisons_what_is_missing_is_not_seen() {
    let mut stage = Stage::with(Rules { period: None, ..RULES }).with_running("a", "n");
    stage.is_detached("a", "n");
    stage.at = secs(3600);
    stage.look("n");
    assert_eq!((stage.happened(), stage.look_in), (Vec::new(), None));
}

#[test]
fn what_is_missing_and_unwanted_leaves_the_list_and_no_more() {
    let mut stage = unwanted();
    stage.attacher("a", "n", |found| found.status.attached = false);
    stage.look("n");
    stage.at = secs(60);
    stage.look("n");
    assert_eq!(stage.happened(), ["read volumeattachments.storage.k8s.io", "n lists []"]);
    stage.look("n");
    assert_eq!(stage.happened(), [""; 0], "its attachment is left alone");
    assert!(stage.view("n").book.held.is_empty());
}

#[test]
fn it_is_said_what_a_detachment_waits_for() {
    let said = |stage: &Stage| Controller::reasons(&stage.view("n"), Timestamp::UNIX_EPOCH).remove(0);
    let mut stage = unwanted();
    stage.look("n");
    let waits = "Volume a is used by no pod. The node is ready and reports the volume as mounted; the detach waits for the node.";
    assert_eq!(said(&stage), waits);
    stage.is_dead("n");
    stage.at += secs(100);
    assert_eq!(
        said(&stage),
        "Volume a is used by no pod. The node is not ready and reports the volume as mounted; the volume is detached by force \
         in 4m 20s, or immediately with the taint node.kubernetes.io/out-of-service."
    );
    let mut never = unwanted_under(Rules { is_forced: false, ..RULES });
    never.is_dead("n");
    assert!(said(&never).contains("--disable-force-detach-on-timeout"));
    stage.uses("n", &[]);
    assert_eq!(
        said(&stage),
        "Volume a is used by no pod; the volume is removed from the node's status.volumesAttached and then detached."
    );
    stage.look("n");
    assert_eq!(
        said(&stage),
        "Volume a is being detached; the controller waits for the CSI attacher for at most 2m, then retries."
    );
}
