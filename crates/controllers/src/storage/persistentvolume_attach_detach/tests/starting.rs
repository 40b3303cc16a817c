//! What is taken up at the start, from whoever had it before: nothing is done twice, and nothing is dropped.

use super::*;

/// A node with volume `a` in a state that somebody has left behind, as another instance finds it.
fn left(is_wanted: bool, is_listed: bool, attachment: Option<bool>) -> Stage {
    let mut stage = Stage::new();
    stage.node("n");
    stage.bound("a", &["ReadWriteOnce"]);
    if is_wanted {
        stage.pod("p", "n", &["a"]);
    }
    if is_listed {
        stage.lists("n", &["a"]);
    }
    if let Some(is_attached) = attachment {
        stage.made("a", "n", is_attached);
    }
    stage.restarts();
    stage
}

#[test]
fn every_half_way_state_is_gone_on_with() {
    let success = "ns/p: Normal SuccessfulAttachVolume AttachVolume.Attach succeeded for volume \"a\" ";
    for (is_wanted, is_listed, attachment, expected) in [
        (true, true, Some(true), &[][..]),
        (true, false, Some(true), &[success, "n lists [a]"]),
        (true, false, Some(false), &[]),
        (true, false, None, &["create a on n"]),
        (true, true, None, &[]),
        (false, true, Some(true), &["n lists []", "delete a on n"]),
        (false, true, None, &["n lists []", "read volumeattachments.storage.k8s.io"]),
        (false, false, Some(true), &[]),
        (false, false, None, &[]),
    ] {
        let mut stage = left(is_wanted, is_listed, attachment);
        stage.look("n");
        assert_eq!(stage.happened(), expected, "wanted {is_wanted}, listed {is_listed}, {attachment:?}");
    }
}

#[test]
fn what_is_listed_and_not_there_is_found_after_a_period() {
    let mut stage = left(true, true, None);
    stage.look("n");
    assert_eq!(stage.look_in, Some(secs(60)), "nothing is dropped at the start");
    stage.at = secs(60);
    stage.look("n");
    assert_eq!(stage.happened(), ["read volumeattachments.storage.k8s.io", "n lists []", "create a on n"]);
}

#[test]
fn what_is_not_listed_and_not_wanted_counts_as_mounted_until_the_node_says_more() {
    let mut stage = left(false, false, Some(true));
    stage.look("n");
    assert_eq!(stage.happened(), [""; 0]);
    stage.changed("n", |_| {});
    stage.look("n");
    assert_eq!(stage.happened(), ["read nodes", "delete a on n"]);
}

#[test]
fn attachments_of_nodes_that_are_gone_are_cleaned_up_after_six_minutes() {
    let mut stage = Stage::new();
    stage.bound("a", &["ReadWriteOnce"]);
    stage.made("a", "gone", true);
    stage.restarts();
    stage.look("gone");
    assert_eq!((stage.happened(), stage.look_in), (Vec::new(), Some(secs(360))));
    stage.at = secs(360);
    stage.look("gone");
    assert_eq!(stage.happened(), ["read nodes", "delete a on gone"]);
}

#[test]
fn attachments_that_nobody_knows_are_left_alone() {
    let mut stage = Stage::new();
    stage.node("n");
    stage.bound("a", &["ReadWriteOnce"]);
    stage.look("n");
    stage.made("a", "n", true);
    stage.look("n");
    stage.changed("n", |_| {});
    stage.look("n");
    assert_eq!(stage.happened(), [""; 0], "it came later, from somebody else");
    // Nor is one whose volume is gone, nor one without a volume.
    stage.gone(&Arc::clone(stage.world.volumes.store()), &Key::new("", "a"));
    stage.restarts();
    stage.look("n");
    stage.changed("n", |_| {});
    stage.look("n");
    assert_eq!(stage.happened(), [""; 0]);
}

#[test]
fn names_that_nobody_can_detach_stay_listed() {
    let mut stage = Stage::new();
    stage.node("n");
    stage.lists("n", &["vendor/flex/x", "kubernetes.io/csi/d^h^i", "kubernetes.io/iscsi/t:i:0"]);
    stage.restarts();
    stage.look("n");
    assert_eq!(stage.happened(), ["n lists [vendor/flex/x i]"], "a disk is let go");
    stage.look("n");
    assert_eq!(stage.happened(), [""; 0]);
}

#[test]
fn names_that_nobody_can_detach_are_forgotten_with_their_node() {
    let mut stage = Stage::new();
    stage.node("n");
    stage.lists("n", &["vendor/flex/x"]);
    stage.look("n");
    assert!(stage.world.books.book("n").is_some());
    stage.node_gone("n");
    stage.look("n");
    assert!(stage.world.books.book("n").is_none(), "nothing of it is kept");
    assert_eq!(stage.happened(), [""; 0]);
}

#[test]
fn an_attachment_that_the_cache_has_not_heard_of_is_waited_for() {
    let mut stage = left(false, true, Some(true));
    let made = stage.attachment("a", "n").unwrap();
    stage.is_detached("a", "n");
    stage.restarts();
    stage.unheard = vec![made];
    stage.look("n");
    assert_eq!(stage.happened(), ["n lists []", "read volumeattachments.storage.k8s.io"]);
    assert_eq!(stage.look_in, Some(Duration::from_millis(500)));
    stage.look("n");
    assert_eq!(stage.happened(), [""; 0], "it is not the time yet");
    stage.at += Duration::from_millis(500);
    stage.look("n");
    assert_eq!(
        stage.happened(),
        ["read nodes", "read nodes", "read volumeattachments.storage.k8s.io"],
        "nor is it taken for gone"
    );
    assert_eq!(stage.look_in, Some(secs(1)));
    let mut reads = 0;
    let end = stage.at + Duration::from_hours(1);
    while stage.at < end {
        stage.at += stage.look_in.unwrap();
        stage.look("n");
        reads += stage.happened().iter().filter(|told| told.contains("read volumeattachments")).count();
    }
    assert!((30..=45).contains(&reads), "{reads} reads in an hour of a cache that cannot show it");
    // Now that its end would be seen, it may begin to go.
    stage.unheard.clear();
    stage.made("a", "n", true);
    stage.look("n");
    assert_eq!(stage.happened(), ["read nodes", "delete a on n"]);
    stage.look("n");
    let book = stage.view("n").book;
    let held = book.held.get(unique("a").as_str()).expect("its attacher is at work");
    assert_eq!(held.unheard, None, "the next time counts from the first failure");
}

#[test]
fn unmanaged_nodes_get_nothing_and_lose_what_they_have() {
    let mut stage = left(true, true, Some(true));
    stage.changed("n", |node| node.metadata.annotations = coxswain_machinery::wire::Labels::default());
    stage.look("n");
    assert_eq!(stage.happened(), ["n lists []", "delete a on n"], "their pods want nothing");
}

#[test]
fn device_paths_stay() {
    let mut stage = left(true, true, Some(true));
    stage.changed("n", |node| node.status.volumes_attached[0].device_path = "/dev/x".into());
    stage.restarts();
    stage.bound("b", &["ReadWriteOnce"]);
    stage.pod("q", "n", &["b"]);
    stage.look("n");
    stage.is_attached("b", "n");
    stage.look("n");
    let paths: Vec<String> =
        stage.get_node("n").status.volumes_attached.iter().map(|each| each.device_path.to_string()).collect();
    assert_eq!(paths, ["/dev/x", ""]);
}

#[test]
fn nodes_that_were_not_looked_at_yet_have_what_they_list() {
    let mut stage = left(true, true, Some(true));
    stage.node("m");
    stage.pod("q", "m", &["a"]);
    stage.look("m");
    assert_eq!((stage.happened(), stage.look_in), (Vec::new(), Some(secs(1))), "n may give it up");
    stage.look("n");
    assert_eq!(stage.happened(), [""; 0]);
    stage.look("m");
    let told = stage.happened();
    assert!(told.len() == 1 && told[0].contains("is already used by pod(s) p"), "{told:?}");
}

#[test]
fn volume_of_a_node_that_gives_it_up_is_moved_without_a_warning_in_either_order() {
    for order in [["m", "n"], ["n", "m"]] {
        let mut stage = left(false, true, Some(true));
        stage.node("m");
        stage.pod("q", "m", &["a"]);
        for node in order.into_iter().chain(["m"]) {
            stage.look(node);
        }
        stage.is_detached("a", "n");
        for node in ["n", "m"] {
            stage.look(node);
        }
        let told = stage.happened();
        assert!(told.iter().all(|told| !told.contains("FailedAttachVolume")), "{order:?}: {told:?}");
        assert_eq!(told.last().unwrap(), "create a on m", "{order:?}: {told:?}");
    }
}

#[test]
fn node_that_cannot_be_read_delays_a_detach_and_nothing_else() {
    let mut stage = left(false, false, Some(true));
    stage.look("n");
    stage.changed("n", |_| {});
    stage.unreadable = vec!["nodes"];
    stage.bound("b", &["ReadWriteOnce"]);
    stage.pod("q", "n", &["b"]);
    stage.look("n");
    let told = stage.happened();
    assert!(told.contains(&"create b on n".to_owned()), "{told:?}");
    assert!(!told.contains(&"delete a on n".to_owned()), "{told:?}");
    assert!(told.iter().any(|told| told.starts_with("retry read nodes n: ")), "{told:?}");
    assert_eq!(stage.look_in, Some(Duration::from_millis(500)));
    stage.unreadable.clear();
    stage.at += Duration::from_millis(500);
    stage.look("n");
    assert!(stage.happened().contains(&"delete a on n".to_owned()));
}

#[test]
fn attachment_that_cannot_be_read_is_not_gone_and_stops_no_other_volume() {
    let mut stage = left(true, true, None);
    stage.unreadable = vec!["volumeattachments"];
    stage.look("n");
    stage.at = secs(60);
    stage.bound("b", &["ReadWriteOnce"]);
    stage.pod("q", "n", &["b"]);
    stage.look("n");
    let told = stage.happened();
    assert!(told.contains(&"create b on n".to_owned()), "{told:?}");
    stage.is_attached("b", "n");
    stage.look("n");
    assert!(stage.happened().contains(&"n lists [a b]".to_owned()), "a stays listed");
    // Readable again: it is not there.
    stage.unreadable.clear();
    stage.at = secs(180);
    stage.look("n");
    assert!(stage.happened().contains(&"create a on n".to_owned()));
    // Before a detach.
    let mut stage = left(false, true, None);
    stage.unreadable = vec!["volumeattachments"];
    stage.look("n");
    assert_eq!(stage.look_in, Some(Duration::from_millis(500)));
    assert!(stage.view("n").book.held.contains_key(unique("a").as_str()), "it does not count as detached");
    stage.node("m");
    stage.pod("r", "m", &["a"]);
    stage.look("m");
    let told = stage.happened();
    assert!(!told.contains(&"create a on m".to_owned()), "n may still have it: {told:?}");
}
