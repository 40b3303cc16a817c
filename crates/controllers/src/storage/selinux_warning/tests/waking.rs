//! Which changes concern which pods.

use super::*;
use coxswain_machinery::framework::KeyMap;

fn woken<T: coxswain_machinery::api::Object>(map: &KeyMap, old: Option<T>, new: Option<T>) -> Vec<String> {
    let any = |object: Option<T>| object.map(|object| Arc::new(object) as AnyObject);
    let (old, new) = (any(old), any(new));
    let mut keys = Vec::new();
    let delta = Delta { old: old.as_ref(), new: new.as_ref(), initial: false, resync: false };
    map(delta, &mut |key| keys.push(key.to_string()));
    keys
}

#[test]
fn a_pod_concerns_itself_when_it_comes_ends_and_goes() {
    let of = |phase: &str| {
        let mut pod = pod("p", "", &[]);
        pod.status.phase = phase.into();
        pod
    };
    let own = keys::own();
    assert_eq!(woken(&own, None, Some(of("Pending"))), ["ns/p"]);
    assert_eq!(woken(&own, Some(of("Running")), None), ["ns/p"]);
    for end in ["Failed", "Succeeded"] {
        assert_eq!(woken(&own, Some(of("Running")), Some(of(end))), ["ns/p"]);
    }
    assert_eq!(woken(&own, Some(of("Pending")), Some(of("Running"))), [""; 0]);
    assert_eq!(woken(&own, Some(of("Failed")), Some(of("Failed"))), [""; 0]);
    let mut another = of("Running");
    another.metadata.uid = "another".into();
    assert_eq!(woken(&own, Some(of("Running")), Some(another)), ["ns/p"]);
}

fn pods_of_data(world: &World) -> Indexed<SelinuxPod> {
    world.put(0, pod("p", "", &["data :::s0"]));
    world.put(0, pod("q", "", &["other :::s0"]));
    world.put(0, pod("elsewhere/p", "", &["data :::s0"]));
    Indexed::new(&world.stores[0], &keys::BY_CLAIM)
}

#[test]
fn a_claim_that_is_bound_concerns_the_pods_that_name_it() {
    let world = World::new();
    let map = keys::of_claims(pods_of_data(&world));
    let with = |volume: &str, phase: &str| {
        let mut claim = claim("ns", "data");
        claim.spec.volume_name = volume.into();
        claim.status.phase = phase.into();
        Some(claim)
    };
    assert_eq!(woken(&map, None, with("v", "Pending")), ["ns/p"]);
    assert_eq!(woken(&map, with("", "Pending"), with("v", "Pending")), ["ns/p"]);
    assert_eq!(
        woken(&map, with("v", "Pending"), with("v", "Bound")),
        ["ns/p"],
        "the original waits for its backoff"
    );
    assert_eq!(woken(&map, with("v", "Bound"), with("v", "Bound")), [""; 0]);
    assert_eq!(woken(&map, None, with("", "Pending")), [""; 0]);
    assert_eq!(woken(&map, with("v", "Bound"), None), [""; 0]);
}

#[test]
fn a_volume_that_has_another_claim_concerns_the_pods_that_name_that() {
    let world = World::new();
    let map = keys::of_volumes(pods_of_data(&world));
    let with = |uid: &str| {
        let mut volume = volume("ns", "data", PersistentVolumeSource::default());
        volume.spec.claim_ref.as_mut().unwrap().uid = uid.into();
        Some(volume)
    };
    assert_eq!(woken(&map, None, with("a")), ["ns/p"]);
    assert_eq!(woken(&map, with(""), with("a")), ["ns/p"]);
    assert_eq!(woken(&map, with("a"), with("b")), ["ns/p"]);
    assert_eq!(woken(&map, with("a"), with("a")), [""; 0]);
    assert_eq!(woken(&map, None, with("")), [""; 0]);
    assert_eq!(woken(&map, with("a"), None), [""; 0]);
    assert_eq!(woken(&map, None, Some(PersistentVolume::default())), [""; 0]);
}

#[test]
fn a_driver_that_changes_concerns_the_pods_with_its_volumes() {
    let world = World::new();
    world.bind_csi("ns", "data", "labels", "h");
    world.bind_csi("ns", "other", "another", "h");
    world.pod(pod("p", "", &["data :::s0"]));
    world.pod(pod("q", "", &["other :::s0"]));
    let map = keys::of_drivers(Arc::clone(&world.record));
    let with = |mounts: Option<bool>| {
        let mut driver = CsiDriver::default();
        driver.metadata.name = "labels".into();
        driver.spec.se_linux_mount = mounts;
        Some(driver)
    };
    assert_eq!(woken(&map, None, with(Some(true))), ["ns/p"]);
    assert_eq!(woken(&map, with(Some(true)), with(Some(false))), ["ns/p"]);
    assert_eq!(woken(&map, with(None), with(Some(true))), ["ns/p"]);
    assert_eq!(woken(&map, with(Some(true)), None), ["ns/p"]);
    assert_eq!(woken(&map, with(Some(false)), None), [""; 0]);
    assert_eq!(woken(&map, with(None), with(Some(false))), [""; 0], "nil is false");
    assert_eq!(woken(&map, with(Some(true)), with(Some(true))), [""; 0]);
}
