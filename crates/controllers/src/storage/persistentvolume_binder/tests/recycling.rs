//! Pods that empty volumes.

use super::server::json_of;
use super::*;
use coxswain_machinery::wire::text::held_text;
use serde_json::json;

const ASKED: [&str; 2] = ["get persistentvolumes vol", "get persistentvolumeclaims ns/data"];
const STATUS: &str = "update persistentvolumes/status vol";
const CREATE: &str = "create pods default/recycler-for-vol";
const DELETE: &str = "delete pods default/recycler-for-vol";
const OLD_POD: &str = "Warning VolumeFailedRecycle Recycle failed: old recycler pod found, will retry later";

fn world() -> World {
    let world = World::new();
    world.put_volume(&released("vol", "Recycle", directory("/data"))).show_all();
    world
}

/// What was written and told, without the reads.
fn done(told: Vec<String>) -> Vec<String> {
    told.into_iter().filter(|told| !told.starts_with("get ")).collect()
}

/// The Pod that was made, in this phase.
fn pod_is(world: &World, phase: &str) {
    let says = json!({ "status": { "phase": phase } });
    world.put_pod("default", "recycler-for-vol", &says).show_all();
}

/// A Pod has emptied the volume. Its delete was answered with an error, and the Pod is gone.
fn world_after_refused_delete() -> World {
    let world = world();
    world.volumes("vol");
    pod_is(&world, "Succeeded");
    world.refuses("delete pods");
    let why = "Warning VolumeFailedRecycle Recycle failed: failed to delete recycler pod: no";
    let refused = format!("{DELETE} refused");
    assert_eq!(done(world.volumes("vol")), [refused.as_str(), STATUS, why]);
    world.refuses("nothing");
    world.remove(&PODS, &Key::new("default", "recycler-for-vol"));
    world
}

#[test]
fn a_pod_empties_a_volume_and_then_it_is_free() {
    let world = world();
    assert_eq!(world.volumes("vol"), [ASKED[0], ASKED[1], CREATE, ASKED[0], ASKED[1]]);
    world.show_all();
    assert_eq!(done(world.volumes("vol")), [""; 0], "it is waited for");
    pod_is(&world, "Running");
    assert_eq!(done(world.volumes("vol")), [""; 0]);
    pod_is(&world, "Succeeded");
    assert_eq!(
        done(world.volumes("vol")),
        [DELETE, "Normal VolumeRecycled Volume recycled", "update persistentvolumes vol", STATUS]
    );
    let volume = world.volume("vol");
    assert!(volume.spec.claim_ref.is_none());
    assert_eq!(volume.status.phase, "Available");
}

#[test]
fn recycler_pod_that_cannot_be_deleted_is_told_by_what_became_of_it() {
    let told = |is_old: bool, phase: &str| {
        let world = world();
        if !is_old {
            world.volumes("vol");
        }
        pod_is(&world, phase);
        world.refuses("delete pods");
        done(world.volumes("vol")).pop().unwrap_or_default()
    };
    let why = |why: &str| format!("Warning VolumeFailedRecycle Recycle failed: {why}");
    let old = why("failed to delete old recycler pod default/recycler-for-vol: no");
    assert_eq!(told(true, "Running"), old, "it was in the way");
    let failed = why("failed to recycle volume: pod failed, pod.Status.Message unknown");
    assert_eq!(told(false, "Failed"), failed);
    assert_eq!(told(false, "Succeeded"), why("failed to delete recycler pod: no"));
}

/// The delete of the Pod that has emptied the volume is answered with an error although it took effect.
#[test]
fn recycler_pod_whose_delete_took_effect_and_failed_is_not_created_again() {
    let world = world_after_refused_delete();
    world.show_all();
    assert_eq!(
        done(world.volumes("vol")),
        ["update persistentvolumes vol", STATUS, "Normal VolumeRecycled Volume recycled"]
    );
    assert_eq!(world.volume("vol").status.phase, "Available");
    // The next release is emptied by a Pod of its own.
    world.show_all();
    release_again(&world, "two");
    assert_eq!(done(world.volumes("vol")), [CREATE]);
}

/// A create that was answered late stores another Pod of that name after the delete.
#[test]
fn volume_waits_for_another_pod_of_the_name_of_its_recycler_pod() {
    let world = world_after_refused_delete();
    world.put_pod("default", "recycler-for-vol", &json!({})).show_all();
    world.keep_pod("recycler-for-vol");
    // The volume is Failed since the delete was refused, so no further event is emitted.
    for expected in [&[DELETE][..], &[], &[]] {
        assert_eq!(done(world.volumes("vol")), expected);
        assert_eq!(world.volume("vol").status.phase, "Failed", "the Pod may still empty it");
        world.show_all();
    }
    world.let_pod_go("recycler-for-vol");
    let told = done(world.volumes("vol"));
    assert_eq!(told.first().map(String::as_str), Some("update persistentvolumes vol"), "{told:?}");
    assert_eq!(world.volume("vol").status.phase, "Available");
}

/// Another manager has deleted the Pod that has emptied the volume, and has created one of that name. The cache shows neither.
#[test]
fn volume_waits_for_a_pod_of_the_name_of_its_recycler_pod_that_the_cache_lacks() {
    for is_created in [true, false] {
        let world = world();
        world.volumes("vol");
        pod_is(&world, "Succeeded");
        world.remove(&PODS, &Key::new("default", "recycler-for-vol"));
        world.put_pod("default", "recycler-for-vol", &json!({}));
        if is_created {
            let refused = format!("{DELETE} refused");
            assert_eq!(done(world.volumes("vol")), [refused.as_str(), DELETE, STATUS, OLD_POD]);
            assert!(world.volume("vol").spec.claim_ref.is_some(), "the Pod may still empty it");
            world.show_all();
        } else {
            world.remove(&PODS, &Key::new("default", "recycler-for-vol"));
        }
        let told = done(world.volumes("vol"));
        assert!(!told.contains(&CREATE.to_owned()), "{told:?}");
        assert_eq!(world.volume("vol").status.phase, "Available");
    }
}

/// The cache shows that the Pod is gone, and does not show yet that another Pod has its name.
#[test]
fn volume_is_not_freed_before_a_live_read_shows_that_no_pod_has_the_name() {
    let world = world_after_refused_delete();
    world.show_all();
    world.put_pod("default", "recycler-for-vol", &json!({}));
    assert_eq!(done(world.volumes("vol")), [DELETE]);
    assert!(world.volume("vol").spec.claim_ref.is_some(), "the Pod may still empty it");
    world.show(&[&PERSISTENT_VOLUMES]);
    let told = done(world.volumes("vol"));
    assert_eq!(told.first().map(String::as_str), Some("update persistentvolumes vol"), "{told:?}");
}

#[test]
fn what_went_wrong_is_told_once_and_tried_again() {
    for (message, expected) in
        [("out of time", "out of time"), ("", "pod failed, pod.Status.Message unknown")]
    {
        let world = world();
        let fails = || {
            let says = json!({ "status": { "phase": "Failed", "message": message } });
            world.show_all().put_pod("default", "recycler-for-vol", &says).show_all();
        };
        world.volumes("vol");
        fails();
        let why = format!("Warning VolumeFailedRecycle Recycle failed: failed to recycle volume: {expected}");
        assert_eq!(done(world.volumes("vol")), [DELETE, STATUS, &why]);
        world.show_all();
        assert_eq!(done(world.volumes("vol")), [CREATE], "it is tried again");
        fails();
        assert_eq!(done(world.volumes("vol")), [DELETE], "it is Failed already");
    }
    let world = world();
    world.volumes("vol");
    world.show_all();
    world.remove(&PODS, &Key::new("default", "recycler-for-vol"));
    world.show_all();
    let gone =
        "Warning VolumeFailedRecycle Recycle failed: failed to recycle volume: recycler pod was deleted";
    assert_eq!(done(world.volumes("vol")), [STATUS, gone]);
}

/// Only this limit ends an unscheduled Pod or a Pod on a dead node. A Pod that has started has the time of its deadline in addition.
#[test]
fn recycler_pod_that_does_not_start_or_end_is_given_up_after_an_hour() {
    for (started, limit) in [(false, 3600), (true, 3600 + 60)] {
        let world = world();
        world.volumes("vol");
        world.show_all();
        let mut status = json!({ "phase": if started { "Running" } else { "Pending" } });
        if started {
            status["startTime"] = json!(now().to_string());
        }
        world.put_pod("default", "recycler-for-vol", &json!({ "status": status })).show_all();
        // A change of the clock neither ends the wait nor extends it.
        world.set_clock(31_536_000);
        assert_eq!(done(world.volumes("vol")), [""; 0]);
        world.set_clock(-2 * 31_536_000);
        world.later(limit - 1);
        assert_eq!(done(world.volumes("vol")), [""; 0]);
        world.later(1);
        let why = "Warning VolumeFailedRecycle Recycle failed: failed to recycle volume: \
                   recycler pod \"recycler-for-vol\" watch channel had been closed";
        assert_eq!(done(world.volumes("vol")), [DELETE, STATUS, why]);
        assert_eq!(world.volume("vol").status.phase, "Failed");
        world.show_all();
        assert_eq!(done(world.volumes("vol")), [CREATE], "it is tried again");
        world.show_all();
        assert_eq!(done(world.volumes("vol")), [""; 0], "with its own time");
    }
}

#[test]
fn a_pod_of_another_process_is_deleted_first() {
    let foreign = |world: &World| {
        world.put_pod("default", "recycler-for-vol", &json!({}));
    };
    let seen = world();
    foreign(&seen);
    seen.show_all();
    assert_eq!(done(seen.volumes("vol")), [DELETE, STATUS, OLD_POD]);
    seen.show_all();
    assert_eq!(done(seen.volumes("vol")), [CREATE]);
    // The cache does not show it.
    let unseen = world();
    foreign(&unseen);
    let refused = format!("{CREATE} refused");
    assert_eq!(done(unseen.volumes("vol")), [&refused, DELETE, STATUS, OLD_POD]);
}

#[test]
fn a_volume_in_use_is_not_emptied() {
    let world = world();
    world.put_pod("ns", "p", &json!({ "spec": mounting("data") })).show_all();
    assert_eq!(done(world.volumes("vol")), ["Normal VolumeFailedRecycle Volume is used by pods: ns/p"]);
    let mut another = claim("data");
    another.metadata.uid = "another".into();
    world.put_claim(&another).show_all();
    assert_eq!(done(world.volumes("vol")), [CREATE], "the pod uses the claim that bears the name now");
}

/// The volume's link to its claim is removed, as an administrator frees a Released volume.
fn unlink(world: &World) {
    let mut volume = PersistentVolume::clone(&world.volume("vol"));
    volume.spec.claim_ref = None;
    world.put_volume(&volume).show_all();
}

/// The volume is bound to a claim with this UID and released from it.
fn release_again(world: &World, uid: &str) {
    let mut next = claim("data");
    next.metadata.uid = uid.into();
    let mut volume = PersistentVolume::clone(&world.volume("vol"));
    volume.spec.claim_ref = reference(&next, true);
    volume.status.phase = "Released".into();
    world.put_volume(&volume).show_all();
}

#[test]
fn recycler_pod_of_an_earlier_release_does_not_count_for_the_next() {
    let world = world();
    world.volumes("vol");
    world.show_all();
    unlink(&world);
    assert_eq!(done(world.volumes("vol")), [DELETE], "the Pod has lost its reason");
    assert_eq!(world.volume("vol").status.phase, "Released", "nobody gets the volume before the Pod is gone");
    world.show_all();
    assert_eq!(done(world.volumes("vol")), [STATUS]);
    assert_eq!(world.volume("vol").status.phase, "Available");
    world.show_all();
    assert_eq!(done(world.volumes("vol")), [""; 0], "the Pod is deleted once");
    release_again(&world, "two");
    assert_eq!(done(world.volumes("vol")), [CREATE], "each release has a Pod of its own");
    pod_is(&world, "Succeeded");
    let told = done(world.volumes("vol"));
    assert!(told.contains(&"Normal VolumeRecycled Volume recycled".to_owned()), "{told:?}");
}

#[test]
fn volume_released_again_unseen_is_emptied_again() {
    for phase in ["Running", "Succeeded", "Failed"] {
        let world = world();
        world.volumes("vol");
        pod_is(&world, phase);
        // No reconcile sees the volume in between.
        release_again(&world, "two");
        assert_eq!(done(world.volumes("vol")), [DELETE], "{phase}");
        world.show_all();
        assert_eq!(done(world.volumes("vol")), [CREATE], "{phase}");
    }
}

/// A Pod that takes its time to end is deleted once, and the volume does not fail for it.
#[test]
fn recycler_pod_that_is_being_deleted_is_waited_for() {
    for unlinks in [true, false] {
        let world = world();
        world.volumes("vol");
        world.show_all();
        world.keep_pod("recycler-for-vol");
        if unlinks {
            unlink(&world);
        } else {
            release_again(&world, "two");
        }
        for expected in [&[DELETE][..], &[], &[]] {
            assert_eq!(done(world.volumes("vol")), expected);
            assert_eq!(world.volume("vol").status.phase, "Released");
            world.show_all();
        }
        world.let_pod_go("recycler-for-vol");
        let next = if unlinks { STATUS } else { CREATE };
        assert_eq!(done(world.volumes("vol")), [next]);
    }
}

/// Links the volume to a claim that has another one.
fn link_elsewhere(world: &World) {
    let mut elsewhere = claim("elsewhere");
    elsewhere.spec.volume_name = "other".into();
    let mut volume = PersistentVolume::clone(&world.volume("vol"));
    volume.spec.claim_ref = reference(&elsewhere, true);
    world.put_claim(&elsewhere).put_volume(&volume).show_all();
}

/// The link names a claim that has another volume: it is taken back when the Pod has ended, for then the volume is anybody's.
#[test]
fn recycler_pod_ends_before_a_wrong_link_is_taken_back() {
    let world = world();
    world.volumes("vol");
    world.show_all();
    world.keep_pod("recycler-for-vol");
    link_elsewhere(&world);
    assert_eq!(done(world.volumes("vol")), [DELETE]);
    world.show_all();
    assert_eq!(done(world.volumes("vol")), [""; 0]);
    world.let_pod_go("recycler-for-vol");
    let told = done(world.volumes("vol"));
    assert_eq!(told.last().map(String::as_str), Some(STATUS), "{told:?}");
    assert_eq!(world.volume("vol").status.phase, "Available");
}

/// The node of the Pod is dead: the volume does not wait for it for ever.
#[test]
fn recycler_pod_that_does_not_end_is_given_up() {
    let world = world();
    world.volumes("vol");
    world.show_all();
    world.keep_pod("recycler-for-vol");
    unlink(&world);
    world.volumes("vol");
    world.show_all();
    assert_eq!(done(world.volumes("vol")), [""; 0]);
    world.later(120);
    assert_eq!(done(world.volumes("vol")), [STATUS]);
    assert_eq!(world.volume("vol").status.phase, "Available");
}

/// The Pod was created, and the reads after that failed: its UID was never learned.
#[test]
fn recycler_pod_whose_uid_is_not_known_is_deleted() {
    let world = world();
    world.loses_reads_after("create pods");
    assert_eq!(done(world.volumes("vol")).first().map(String::as_str), Some(CREATE));
    world.refuses("nothing");
    world.show_all();
    unlink(&world);
    assert_eq!(done(world.volumes("vol")), [DELETE]);
    assert!(!world.has(&PODS, &Key::new("default", "recycler-for-vol")));
}

#[test]
fn recycler_pod_is_deleted_when_the_policy_changes() {
    let world = world();
    world.volumes("vol");
    pod_is(&world, "Running");
    let mut volume = PersistentVolume::clone(&world.volume("vol"));
    volume.spec.persistent_volume_reclaim_policy = "Retain".into();
    world.put_volume(&volume).show_all();
    assert_eq!(done(world.volumes("vol")), [DELETE]);
    assert!(world.volume("vol").spec.claim_ref.is_some(), "the volume is kept as it is");
    world.show_all();
    assert_eq!(done(world.volumes("vol")), [""; 0]);
}

#[test]
fn recycler_pod_of_a_deleted_volume_is_deleted() {
    let world = world();
    world.volumes("vol");
    world.show_all();
    world.remove(&PERSISTENT_VOLUMES, &Key::new("", "vol"));
    world.show_all();
    assert_eq!(done(world.volumes("vol")), [DELETE]);
    assert_eq!(world.volumes("vol"), [""; 0], "nothing is remembered");
    // A new volume of the same name.
    let mut volume = released("vol", "Recycle", directory("/data"));
    volume.metadata.uid = "another".into();
    world.put_volume(&volume).show_all();
    assert_eq!(done(world.volumes("vol")), [CREATE]);
}

#[test]
fn recycler_pod_stays_while_only_the_cache_lacks_the_release() {
    let world = world();
    world.volumes("vol");
    world.show_all();
    let current = world.volume("vol");
    unlink(&world);
    // The cache shows no link; the API server has it.
    world.put_volume(&current);
    assert_eq!(done(world.volumes("vol")), [""; 0], "{:?}", world.volume("vol"));
    assert!(world.has(&PODS, &Key::new("default", "recycler-for-vol")));
}

/// The link was removed, or names a claim that has another volume.
#[test]
fn volume_waits_for_a_recycler_pod_that_cannot_be_deleted_until_that_has_ended() {
    for unlinks in [true, false] {
        let world = world();
        world.volumes("vol");
        pod_is(&world, "Running");
        if unlinks {
            unlink(&world);
        } else {
            link_elsewhere(&world);
        }
        world.refuses("delete pods");
        let refused = format!("{DELETE} refused");
        assert_eq!(done(world.volumes("vol")), [refused.as_str()]);
        assert_eq!(world.volume("vol").status.phase, "Released", "the Pod may still empty it");
        world.show_all();
        pod_is(&world, "Succeeded");
        let told = done(world.volumes("vol"));
        assert_eq!((told.first(), told.last().map(String::as_str)), (Some(&refused), Some(STATUS)));
        assert_eq!(
            world.volume("vol").status.phase,
            "Available",
            "the Pod has ended, and the volume did not fail"
        );
        world.show_all();
        world.refuses("nothing");
        assert_eq!(done(world.volumes("vol")), [DELETE], "the delete is tried again");
        world.show_all();
        assert_eq!(done(world.volumes("vol")), [""; 0]);
    }
}

#[test]
fn nothing_is_emptied_that_got_a_claim_meanwhile() {
    let world = world();
    let (claim, mut taken) = bound_pair();
    taken.metadata.uid = world.volume("vol").metadata.uid.clone();
    taken.spec.persistent_volume_reclaim_policy = "Recycle".into();
    taken.spec.persistent_volume_source = directory("/data");
    world.put_volume(&taken).put_claim(&claim);
    assert_eq!(done(world.volumes("vol")), [""; 0]);
}

#[test]
fn directory_whose_path_is_not_utf8_is_the_one_that_is_emptied() {
    let mut volume = released("vol", "Recycle", directory("/data"));
    let path = held_text(b"/data\xff");
    volume.spec.persistent_volume_source.host_path.as_mut().unwrap().path = (&*path).into();
    let recipe = Recipe { template: recycler::built_in(), minimum: 1, increment: 1 };
    let pod = recycler::pod(&recipe, &volume).unwrap();
    assert!(pod.windows(6).any(|bytes| bytes == b"/data\xff"), "{pod:?}");
    assert!(!String::from_utf8_lossy(&pod).contains(&*path));
}

#[test]
fn other_volumes_cannot_be_recycled() {
    let world = World::new();
    world.put_volume(&released("vol", "Recycle", csi())).show_all();
    assert_eq!(
        done(world.volumes("vol")),
        [STATUS, "Warning VolumeFailedRecycle No recycler plugin found for the volume!"]
    );
    world.show_all();
    assert_eq!(world.volumes("vol"), [""; 0], "nothing will be done about it, and nothing is read");
}

#[test]
fn the_pod_is_made_of_its_template() {
    use super::super::reclaiming::Recyclable;
    let world = World::new();
    let recipes = &world.binder.settings.recipes;
    let mut volume = released("vol", "Recycle", directory("/data"));
    volume.spec.capacity.insert("storage", "5Gi");
    let recipe = recipes.of(Recyclable::HostPath);
    let pod = json_of(&recycler::pod(recipe, &volume).unwrap());
    let spec = &pod["spec"]["template"]["spec"];
    assert_eq!(spec["activeDeadlineSeconds"], 150);
    assert_eq!(spec["volumes"][0]["name"], "vol");
    assert_eq!(spec["volumes"][0]["hostPath"]["path"], "/data");
    assert_eq!(spec["containers"][0]["command"], json!(["/bin/sh"]));
    let mut own = Recipe { template: recycler::built_in(), minimum: 1, increment: 1 };
    own.template["metadata"] = json!({ "namespace": "own", "generateName": "x", "labels": { "a": "b" } });
    assert_eq!(recycler::pod_key(&own, "vol"), Key::new("own", "recycler-for-vol"));
    let server = json_of(&recycler::pod(&own, &released("vol", "Recycle", nfs())).unwrap());
    let spec = &server["spec"]["template"]["spec"];
    assert_eq!(spec["volumes"][0]["nfs"], json!({ "server": "s", "path": "/p" }));
    assert_eq!(server["spec"]["template"]["metadata"]["labels"]["a"], "b");
    assert!(recycler::pod(&own, &released("vol", "Recycle", csi())).is_err());
    assert_eq!(recycler::volume_of("recycler-for-vol").unwrap(), "vol");
    assert_eq!(recycler::volume_of("vol"), None);
}

#[test]
fn how_long_a_pod_has() {
    let recipe = Recipe { template: recycler::built_in(), minimum: 60, increment: 30 };
    for (size, expected) in [("1Gi", 60), ("2047Mi", 60), ("3Gi", 90), ("100Gi", 3000), ("0", 60)] {
        assert_eq!(recycler::deadline(&recipe, size.parse().unwrap()), expected, "{size}");
    }
}

#[test]
fn a_template_without_a_namespace_makes_nothing() {
    let world = World::with(|settings| {
        settings.recipes.host_path.template["metadata"] = json!({});
    });
    world.put_volume(&released("vol", "Recycle", directory("/data"))).show_all();
    let told = done(world.volumes("vol"));
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(told[1].starts_with("Warning VolumeFailedRecycle Recycle failed: unexpected error creating"));
}
