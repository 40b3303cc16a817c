//! Which changes concern which nodes.

use super::*;
use coxswain_machinery::framework::KeyMap;
use coxswain_machinery::framework::rig::Rig;
use coxswain_machinery::informer::Delta;
use coxswain_machinery::options::Config;

fn woken<T: Object>(map: &KeyMap, old: Option<T>, new: Option<T>) -> Vec<String> {
    let any = |object: Option<T>| object.map(|object| Arc::new(object) as AnyObject);
    let (old, new) = (any(old), any(new));
    let mut keys = Vec::new();
    let delta = Delta { old: old.as_ref(), new: new.as_ref(), initial: false, resync: false };
    map(delta, &mut |key| keys.push(key.to_string()));
    keys
}

#[test]
fn a_pod_concerns_its_node_when_it_is_bound_ends_or_goes() {
    let map = keys::of_pods();
    let with = |node: &str, phase: &str| {
        let mut pod = pod("ns", "p", node, &["a"]);
        pod.status.phase = phase.into();
        Some(pod)
    };
    assert_eq!(woken(&map, None, with("n", "Pending")), ["n"]);
    assert_eq!(woken(&map, with("", "Pending"), with("n", "Pending")), ["n"]);
    assert_eq!(woken(&map, with("n", "Running"), None), ["n"]);
    assert_eq!(woken(&map, with("n", "Running"), with("n", "Failed")), ["n", "n"]);
    assert_eq!(woken(&map, with("n", "Pending"), with("n", "Running")), [""; 0]);
    assert_eq!(woken(&map, None, with("", "Pending")), [""; 0]);
    assert_eq!(woken(&map, None, Some(pod("ns", "p", "n", &[]))), [""; 0], "without volumes");
}

#[test]
fn a_node_concerns_itself_and_those_that_wait_for_what_it_gave_up() {
    let mut stage = Stage::running("a", "n");
    stage.node("m");
    stage.pod("q", "m", &["a"]);
    stage.look("m");
    let map = keys::of_nodes(Arc::clone(&stage.world.books));
    let node = || stage.get_node("n");
    let changed = |change: &dyn Fn(&mut Node)| {
        let mut new = node();
        change(&mut new);
        woken(&map, Some(node()), Some(new))
    };
    assert_eq!(changed(&|_| {}), [""; 0]);
    assert_eq!(changed(&|node| set_ready(node, false)), ["n"]);
    assert_eq!(changed(&|node| taint(node, "", "NoExecute")), ["n"]);
    assert_eq!(changed(&|node| node.status.volumes_in_use.clear()), ["n"]);
    assert_eq!(changed(&|node| node.status.volumes_attached.clear()), ["n", "m"]);
    assert_eq!(woken(&map, Some(node()), None), ["n", "m"]);
}

#[test]
fn an_attachment_concerns_its_node_and_those_that_wait_for_its_volume() {
    let mut stage = Stage::running("a", "n");
    stage.node("m");
    stage.pod("q", "m", &["a"]);
    stage.look("m");
    let map = keys::of_attachments(Arc::clone(&stage.world.books));
    assert_eq!(woken(&map, stage.attachment("a", "n"), None), ["n", "m"]);
    let mut stranger = stage.attachment("a", "n").unwrap();
    stranger.metadata.name = "stranger".into();
    assert_eq!(woken(&map, None, Some(stranger)), ["n"]);
}

#[test]
fn a_claim_or_volume_that_is_bound_concerns_the_nodes_of_its_pods() {
    let mut stage = Stage::running("a", "n");
    stage.pod("unbound", "", &["a"]);
    let pods = || Indexed::new(stage.world.all_pods.store(), &crate::storage::claims::BY_CLAIM);
    let map = keys::of_claims(pods());
    let pending = || {
        let mut claim = claim("ns", "a", "a");
        claim.status.phase = "Pending".into();
        Some(claim)
    };
    assert_eq!(woken(&map, pending(), Some(claim("ns", "a", "a"))), ["n"]);
    assert_eq!(woken(&map, Some(claim("ns", "a", "a")), None), [""; 0]);
    assert_eq!(woken(&map, None, pending()), [""; 0]);
    let map = keys::of_volumes(pods());
    let volume = || Some(PersistentVolume::clone(&stage.world.volumes.get(&Key::new("", "a")).unwrap()));
    assert_eq!(woken(&map, None, volume()), ["n"]);
    assert_eq!(woken(&map, volume(), volume()), [""; 0]);
}

#[test]
fn a_driver_that_changes_concerns_all_nodes() {
    let stage = Stage::running("a", "n");
    let map = keys::of_drivers(stage.world.nodes.clone());
    let with = |required| {
        let mut driver = CsiDriver::default();
        driver.spec.attach_required = required;
        Some(driver)
    };
    assert_eq!(woken(&map, None, with(Some(false))), ["n"]);
    assert_eq!(woken(&map, with(Some(false)), None), ["n"]);
    assert_eq!(woken(&map, with(None), with(Some(true))), [""; 0]);
}

/// A list that was refused for a long time is written soon after the trouble is over: nothing else wakes its node.
#[test]
fn node_whose_list_was_refused_is_tried_again_within_ten_seconds() {
    let built = Rig::new(Config::default()).build(build).unwrap();
    let [nodes] = built.loops.as_slice() else { panic!("one loop") };
    assert_eq!(nodes.settings.backoff.max_delay, Duration::from_secs(10));
}
