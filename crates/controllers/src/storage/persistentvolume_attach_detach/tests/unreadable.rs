//! Nodes and VolumeAttachments that cannot be read: a volume for one node is not given to another one at once, and is not held for ever.

use super::*;

const TAKEN: &str = "ns/q: Warning FailedAttachVolume Multi-Attach error for volume \"a\" Volume is already exclusively attached to one \
                     node and can't be attached to another";

/// Volume `a` is attached to `n` and wanted on `m`. The pod on `n` is gone, and so is `n`. Nodes cannot be read.
fn gone_node(rules: Rules) -> Stage {
    let mut stage = Stage::with(rules).with_running("a", "n");
    stage.uses("n", &[]);
    stage.look("n");
    stage.node("m");
    stage.pod("q", "m", &["a"]);
    stage.node_gone("n");
    stage.pod_gone("p");
    stage.unreadable = vec!["nodes"];
    stage
}

/// Reconciles both nodes whenever `n` is due, until a time. As the queue retries a failed read within milliseconds, `n` is reconciled twice.
fn passes(stage: &mut Stage, until: Duration) -> Vec<String> {
    while stage.at < until {
        stage.look("n");
        stage.look("n");
        let due = stage.look_in;
        stage.look("m");
        let Some(due) = due else { break };
        stage.at += due.max(Duration::from_millis(1));
    }
    stage.happened()
}

#[test]
fn volume_of_a_deleted_node_that_cannot_be_read_moves_after_six_minutes() {
    let mut stage = gone_node(RULES);
    let told = passes(&mut stage, secs(350));
    assert!(!told.iter().any(|line| line.contains("create") || line.contains("delete")), "{told:?}");
    assert_eq!(told.iter().filter(|line| *line == TAKEN).count(), 1, "the pod is told once: {told:?}");
    let reads = told.iter().filter(|line| *line == "read nodes").count();
    assert!((5..=12).contains(&reads), "{reads} reads");
    let told = passes(&mut stage, secs(400));
    assert!(told.contains(&"delete a on n".to_owned()), "{told:?}");
    assert_eq!(
        stage.series("attach_detach_controller_attachdetach_controller_forced_detaches"),
        ["timeout 1"]
    );
    stage.is_detached("a", "n");
    stage.look("n");
    stage.look("m");
    assert!(stage.happened().contains(&"create a on m".to_owned()));
}

/// kube-controller-manager attaches it to the other node at once there.
#[test]
fn volume_of_a_deleted_node_that_is_never_forced_is_uncertain_after_six_minutes() {
    let mut stage = gone_node(Rules { is_forced: false, ..RULES });
    let told = passes(&mut stage, secs(350));
    assert!(!told.contains(&"create a on m".to_owned()), "{told:?}");
    let told = passes(&mut stage, secs(500));
    assert!(told.contains(&"create a on m".to_owned()), "{told:?}");
}

/// Volume `a` has left the list of `n`. The cache shows that `n` is not ready and out of service, and Nodes cannot be read.
fn tainted_node() -> Stage {
    let mut stage = Stage::with(Rules { is_forced: false, ..RULES }).with_running("a", "n");
    stage.lists("n", &[]);
    stage.pod_gone("p");
    stage.changed("n", |node| set_ready(node, false));
    stage.live = vec![stage.get_node("n")];
    stage.changed("n", |node| taint(node, "", "NoExecute"));
    stage.unreadable = vec!["nodes"];
    let mut book = book::Book::clone(&stage.world.books.book("n").unwrap());
    book.held.values_mut().for_each(|held| held.is_leaving = true);
    stage.world.books.commit(&Key::new("", "n"), Note { book, is_there: true, ..Note::default() });
    stage.node("m");
    stage
}

#[test]
fn cached_taint_of_a_node_that_cannot_be_read_may_have_been_removed() {
    let mut stage = tainted_node();
    let told = passes(&mut stage, secs(1000));
    assert!(told.contains(&"n lists [a]".to_owned()), "the answer shows the Node: {told:?}");
    assert!(!told.contains(&"delete a on n".to_owned()), "{told:?}");
}

#[test]
fn cached_taint_of_a_node_that_can_be_neither_read_nor_patched_counts_after_six_minutes() {
    let mut stage = tainted_node();
    stage.live.clear();
    stage.refused = vec!["patch"];
    let told = passes(&mut stage, secs(350));
    assert!(!told.contains(&"delete a on n".to_owned()), "{told:?}");
    let told = passes(&mut stage, secs(500));
    assert!(told.contains(&"delete a on n".to_owned()), "{told:?}");
    assert_eq!(
        stage.series("attach_detach_controller_attachdetach_controller_forced_detaches"),
        ["out-of-service 1"]
    );
}

#[test]
fn volume_of_a_node_that_cannot_be_read_is_listed_until_a_patch_shows_the_node() {
    let mut stage = Stage::running("a", "n");
    stage.uses("n", &[]);
    stage.lists("n", &[]);
    stage.pod_gone("p");
    let mut book = book::Book::clone(&stage.world.books.book("n").unwrap());
    book.held.values_mut().for_each(|held| held.is_leaving = true);
    stage.world.books.commit(&Key::new("", "n"), Note { book, is_there: true, ..Note::default() });
    stage.unreadable = vec!["nodes"];
    stage.look("n");
    let told = stage.happened();
    assert!(!told.iter().any(|line| line.contains("delete")), "{told:?}");
    stage.look("n");
    assert_eq!(stage.happened(), ["n lists [a]"]);
    stage.at += Duration::from_millis(500);
    stage.look("n");
    assert_eq!(stage.happened(), ["n lists []", "delete a on n"], "the answer to the list is the live read");
}

/// An administrator has deleted the VolumeAttachment of `a`, and no role lets VolumeAttachments be read.
fn gone_attachment() -> Stage {
    let mut stage = Stage::running("a", "n");
    stage.uses("n", &[]);
    stage.is_detached("a", "n");
    stage.pod_gone("p");
    stage.unreadable = vec!["volumeattachments"];
    stage.unreadable_code = 403;
    stage
}

#[test]
fn attachment_that_nobody_may_read_is_probed_and_gone() {
    let mut stage = gone_attachment();
    stage.look("n");
    let told = stage.happened();
    assert!(told.contains(&"delete finds nothing".to_owned()), "{told:?}");
    assert_eq!(stage.look_in, Some(Duration::ZERO));
    stage.look("n");
    assert_eq!(stage.happened(), [""; 0]);
    assert!(stage.view("n").book.held.is_empty());
    stage.node("m");
    stage.pod("q", "m", &["a"]);
    stage.look("m");
    assert_eq!(stage.happened(), ["create a on m"]);
}

#[test]
fn attachment_that_nobody_may_read_and_that_is_there_stays() {
    let mut stage = gone_attachment();
    let mut made = VolumeAttachment::default();
    made.metadata.name = name_of("a", "n");
    stage.unheard = vec![made];
    stage.node("m");
    stage.pod("q", "m", &["a"]);
    for _ in 0..3 {
        stage.look("n");
        let told = stage.happened();
        assert!(told.contains(&"delete conflicts".to_owned()), "{told:?}");
        stage.look("m");
        assert!(!stage.happened().contains(&"create a on m".to_owned()), "n has it");
        stage.at += secs(10);
    }
    // The cache shows it at last.
    stage.unheard.clear();
    stage.made("a", "n", true);
    stage.look("n");
    assert!(stage.happened().contains(&"delete a on n".to_owned()));
}

#[test]
fn volume_stays_attached_while_its_probe_is_refused_for_six_minutes() {
    let mut stage = gone_attachment();
    let mut made = VolumeAttachment::default();
    made.metadata.name = name_of("a", "n");
    stage.unheard = vec![made];
    stage.refused = vec!["delete"];
    stage.node("m");
    stage.pod("q", "m", &["a"]);
    for _ in 0..3 {
        stage.look("n");
        let told = stage.happened();
        assert!(told.contains(&"delete is refused".to_owned()), "{told:?}");
        stage.look("m");
        assert!(!stage.happened().contains(&"create a on m".to_owned()), "n has it");
        stage.at += secs(10);
    }
}

#[test]
fn attachment_that_cannot_be_read_is_probed_after_six_minutes() {
    let mut stage = gone_attachment();
    stage.unreadable_code = 500;
    let told = passes(&mut stage, secs(350));
    assert!(!told.contains(&"delete finds nothing".to_owned()), "{told:?}");
    let told = passes(&mut stage, secs(482));
    assert!(told.contains(&"delete finds nothing".to_owned()), "{told:?}");
}

#[test]
fn pod_that_returns_while_the_attachment_cannot_be_read_gets_a_new_one() {
    let mut stage = gone_attachment();
    stage.unreadable_code = 500;
    stage.look("n");
    stage.happened();
    stage.node("m");
    stage.pod("q", "m", &["a"]);
    stage.pod("r", "n", &["a"]);
    stage.look("n");
    assert_eq!(stage.happened(), ["create a on n"]);
    stage.look("m");
    assert!(!stage.happened().contains(&"create a on m".to_owned()), "n gets it");
    stage.is_attached("a", "n");
    stage.look("n");
    assert!(stage.happened().contains(&"n lists [a]".to_owned()));
}

#[test]
fn pod_that_returns_keeps_other_nodes_waiting_while_another_volume_is_told_and_listed() {
    let mut stage = gone_attachment();
    stage.unreadable_code = 500;
    stage.bound("b", &["ReadWriteOnce"]);
    stage.pod("s", "n", &["b"]);
    stage.look("n");
    stage.node("m");
    stage.pod("q", "m", &["a"]);
    stage.pod("r", "n", &["a"]);
    stage.is_attached("b", "n");
    stage.happened();
    for step in ["SuccessfulAttachVolume", "n lists [b]"] {
        let plan = stage.planned("n", &[], &[]);
        assert!(plan.look_again, "{plan:?}");
        stage.perform(&Key::new("", "n"), plan, &mut Vec::new(), &mut Vec::new());
        assert!(stage.happened().iter().any(|line| line.contains(step)), "{step}");
        stage.look("m");
        assert!(!stage.happened().contains(&"create a on m".to_owned()), "n gets it, {step}");
    }
    stage.look("n");
    assert!(stage.happened().contains(&"create a on n".to_owned()));
}
