//! What becomes of volumes.

use super::*;

const STATUS: &str = "update persistentvolumes/status vol";
const ASKED: &str = "get persistentvolumeclaims ns/data";

fn world(volume: &PersistentVolume, claims: &[PersistentVolumeClaim]) -> World {
    let world = World::new();
    world.put_volume(volume);
    for claim in claims {
        world.put_claim(claim);
    }
    world.show_all();
    world
}

fn phase(world: &World) -> (String, String) {
    let status = &world.volume("vol").status;
    (status.phase.to_string(), status.message.to_string())
}

#[test]
fn a_volume_without_a_claim_is_available() {
    let mut new = volume("vol");
    new.status.phase = "Pending".into();
    new.status.message = "old".into();
    let mut meant = new.clone();
    meant.spec.claim_ref = reference(&claim("data"), false);
    for volume in [new, meant] {
        let world = world(&volume, &[claim("data")]);
        assert_eq!(world.volumes("vol"), [STATUS]);
        assert_eq!(phase(&world), ("Available".to_owned(), String::new()));
        assert_eq!(world.volumes("vol"), [""; 0]);
    }
}

#[test]
fn a_volume_is_bound_when_its_claim_names_it() {
    let (claim, mut volume) = bound_pair();
    volume.status.phase = "Pending".into();
    let world = self::world(&volume, std::slice::from_ref(&claim));
    assert_eq!(world.volumes("vol"), [STATUS]);
    assert_eq!(phase(&world).0, "Bound");
    let mut open = claim;
    open.spec.volume_name = "".into();
    assert_eq!(self::world(&volume, &[open]).volumes("vol"), [""; 0], "the claim is next");
}

#[test]
fn another_mode_is_told_to_both() {
    let (_, mut volume) = bound_pair();
    volume.spec.volume_mode = Some("Block".into());
    let world = world(&volume, &[claim("data")]);
    assert_eq!(
        world.volumes("vol"),
        [
            "Warning VolumeMismatch Cannot bind PersistentVolume to requested PersistentVolumeClaim \"data\" due to incompatible \
             volumeMode.",
            "Warning VolumeMismatch Cannot bind PersistentVolume \"vol\" to requested PersistentVolumeClaim due to incompatible \
             volumeMode.",
        ]
    );
}

#[test]
fn a_volume_is_released_on_a_live_word_only() {
    let (claim, volume) = bound_pair();
    let world = self::world(&volume, &[]);
    assert_eq!(world.volumes("vol"), [ASKED, STATUS]);
    assert_eq!(phase(&world).0, "Released");
    // The cache has not seen the claim yet.
    let world = World::new();
    world.put_volume(&volume).show_all().put_claim(&claim);
    assert_eq!(world.volumes("vol"), [ASKED]);
    assert_eq!(phase(&world).0, "Bound");
    // Another claim of that name is there now.
    let mut other = claim.clone();
    other.metadata.uid = "another".into();
    let world = self::world(&volume, &[other.clone()]);
    assert_eq!(world.volumes("vol"), [ASKED, STATUS, ASKED]);
    assert_eq!(phase(&world).0, "Released");
    // The cache has the other one still.
    let world = World::new();
    world.put_volume(&volume).put_claim(&other).show_all().put_claim(&claim);
    assert_eq!(world.volumes("vol"), [ASKED]);
    assert_eq!(phase(&world).0, "Bound");
}

#[test]
fn what_has_failed_is_not_called_released() {
    let mut failed = released("vol", "Retain", csi());
    failed.status.phase = "Failed".into();
    failed.status.message = "why".into();
    let world = world(&failed, &[]);
    assert_eq!(world.volumes("vol"), [""; 0]);
    assert_eq!(phase(&world), ("Failed".to_owned(), "why".to_owned()));
}

#[test]
fn a_volume_whose_claim_is_bound_elsewhere_is_freed_or_reclaimed() {
    let (mut claim, mut volume) = bound_pair();
    claim.spec.volume_name = "other".into();
    let world = self::world(&volume, std::slice::from_ref(&claim));
    assert_eq!(world.volumes("vol"), [ASKED, "update persistentvolumes vol", STATUS]);
    let freed = world.volume("vol");
    assert!(freed.spec.claim_ref.is_none() && freed.metadata.annotations.is_empty());
    assert_eq!(phase(&world).0, "Available");
    volume.metadata.annotations = labels(&[]);
    let world = self::world(&volume, std::slice::from_ref(&claim));
    world.volumes("vol");
    let kept = world.volume("vol").spec.claim_ref.clone().unwrap();
    assert_eq!((kept.name.as_str(), kept.uid.as_str()), ("data", ""), "a user's link stays");
    volume.metadata.annotations = labels(&[(facts::PROVISIONED_BY, "example.com/p")]);
    volume.spec.persistent_volume_reclaim_policy = "Delete".into();
    let world = self::world(&volume, std::slice::from_ref(&claim));
    assert_eq!(world.volumes("vol"), [ASKED, STATUS, ASKED]);
    assert_eq!(phase(&world).0, "Released");
}

#[test]
fn who_deletes_a_volume_is_told_by_annotations_and_source() {
    let with = |pairs: &[(&str, &str)], source: PersistentVolumeSource| {
        let mut volume = released("vol", "Delete", source);
        volume.metadata.annotations = labels(pairs);
        volume
    };
    let by = facts::PROVISIONED_BY;
    let none = "error getting deleter volume plugin for volume \"vol\": no volume plugin matched";
    let table: [(PersistentVolume, &str); 9] = [
        (with(&[], csi()), ""),
        (with(&[(by, "example.com/p")], csi()), ""),
        (with(&[(by, "")], csi()), ""),
        (with(&[(facts::MIGRATED_TO, "")], PersistentVolumeSource::default()), ""),
        (with(&[], PersistentVolumeSource::default()), none),
        (with(&[(by, "kubernetes.io/rbd")], csi()), "no volume plugin matched name: kubernetes.io/rbd"),
        (with(&[(by, "kubernetes.io/nfs")], nfs()), "no deletable volume plugin matched"),
        (
            with(&[], nfs()),
            "error getting deleter volume plugin for volume \"vol\": no deletable volume plugin matched",
        ),
        (
            with(&[], directory("/var/x")),
            "host_path deleter only supports /tmp/.+ but received provided /var/x",
        ),
    ];
    for (mut volume, expected) in table {
        if facts::has(&volume.metadata, by)
            && volume.metadata.annotations.get(by).unwrap() == "kubernetes.io/rbd"
        {
            volume.metadata.finalizers.push("kubernetes.io/pv-controller".into());
        }
        if facts::has(&volume.metadata, by)
            && volume.metadata.annotations.get(by).unwrap() == "kubernetes.io/nfs"
        {
            volume.metadata.finalizers.push("kubernetes.io/pv-controller".into());
        }
        let world = world(&volume, &[]);
        let told = world.volumes("vol");
        if expected.is_empty() {
            assert_eq!(told, [""; 0]);
            assert_eq!(phase(&world).0, "Released");
            continue;
        }
        let event = format!("Warning VolumeFailedDelete {expected}");
        let written: Vec<&String> = told.iter().filter(|told| !told.starts_with("get ")).collect();
        assert_eq!(written, [STATUS, event.as_str()]);
        assert_eq!(phase(&world), ("Failed".to_owned(), expected.to_owned()));
        let again = world.volumes("vol");
        assert!(again.iter().all(|told| told.starts_with("get ")), "it is told once: {again:?}");
    }
    for volume in [released("vol", "Retain", csi()), {
        let mut migrated = released("vol", "Delete", PersistentVolumeSource::default());
        migrated.metadata.annotations =
            labels(&[(by, "kubernetes.io/aws-ebs"), (facts::MIGRATED_TO, "ebs.csi.aws.com")]);
        migrated
    }] {
        assert_eq!(world(&volume, &[]).volumes("vol"), [""; 0]);
    }
    let world = world(&released("vol", "Shred", csi()), &[]);
    let unknown = "Warning VolumeUnknownReclaimPolicy Volume has unrecognized PersistentVolumeReclaimPolicy";
    assert_eq!(world.volumes("vol"), [STATUS, unknown]);
}

#[test]
fn a_directory_is_deleted_while_the_volume_is_still_released() {
    let gets = ["get persistentvolumes vol", ASKED];
    let mut held = released("vol", "Delete", directory("/tmp/x"));
    let world = self::world(&held, &[]);
    assert_eq!(world.volumes("vol"), [gets[0], gets[1], "delete persistentvolumes vol"]);
    assert!(!world.has(&PERSISTENT_VOLUMES, &Key::new("", "vol")));
    held.metadata.annotations = labels(&[(facts::PROVISIONED_BY, "kubernetes.io/host-path")]);
    held.metadata.finalizers = vec!["kubernetes.io/pv-controller".into()];
    let world = self::world(&held, &[]);
    assert_eq!(
        world.volumes("vol"),
        [gets[0], gets[1], "update persistentvolumes vol", "delete persistentvolumes vol"]
    );
    // Somebody else has deleted it, or this has been done, and others keep it still.
    held.metadata.deletion_timestamp = Time::from_seconds(1);
    assert_eq!(self::world(&held, &[]).volumes("vol"), [gets[0], gets[1], "update persistentvolumes vol"]);
    held.metadata.finalizers = vec!["kubernetes.io/pv-protection".into()];
    assert_eq!(self::world(&held, &[]).volumes("vol"), gets);
    held.metadata.deletion_timestamp = None;
    held.metadata.finalizers = vec!["kubernetes.io/pv-controller".into()];
    // The volume has got another claim meanwhile, which the cache does not show.
    let world = self::world(&held, &[]);
    let (claim, mut taken) = bound_pair();
    taken.metadata.uid = held.metadata.uid.clone();
    world.put_volume(&taken).put_claim(&claim);
    assert_eq!(world.volumes("vol"), gets);
    assert!(world.has(&PERSISTENT_VOLUMES, &Key::new("", "vol")));
    // The volume has gone meanwhile.
    let world = self::world(&held, &[]);
    world.remove(&PERSISTENT_VOLUMES, &Key::new("", "vol"));
    assert_eq!(world.volumes("vol"), gets[..1]);
}

#[test]
fn a_directory_that_cannot_be_removed_keeps_the_volume() {
    let world = self::world(&released("vol", "Delete", directory("/tmp/x")), &[]);
    let view = world.observe(&VolumeRoom(Arc::clone(&world.binder)), &Key::new("", "vol"), &[], &[]);
    let plan = VolumeRoom::plan(&view.unwrap().unwrap(), now());
    let write = plan.writes().next().unwrap();
    let order = write.prepare.as_ref().unwrap();
    assert_eq!((order.finisher, &order.details["remove"]), (DIRECTORIES, &serde_json::json!("/tmp/x")));
    world.directories_fail(Some("permission denied"));
    world.told();
    let told = world.volumes("vol");
    let told: Vec<&String> = told.iter().filter(|told| !told.starts_with("get ")).collect();
    assert_eq!(told, [STATUS, "Warning VolumeFailedDelete permission denied"], "nothing is deleted");
    world.show_all();
    for _ in 0..3 {
        assert_eq!(world.volumes("vol"), [""; 0], "it is left alone for a while, and nothing is read");
    }
    world.later(60);
    let again = world.volumes("vol");
    assert!(again.contains(&ASKED.to_owned()), "it is tried again: {again:?}");
    assert_eq!(world.volumes("vol"), [""; 0], "and left alone again");
    world.later(60);
    world.directories_fail(None);
    assert!(world.volumes("vol").contains(&"delete persistentvolumes vol".to_owned()));
}

#[test]
fn which_paths_are_deleted() {
    let is_deleted = |path: &str| reclaiming::refused_path(path).is_none();
    for path in ["/tmp/x", "/var/tmp/x", "/tmp/x/y", "/tmp//"] {
        assert!(is_deleted(path), "{path}");
    }
    for path in ["/tmp/", "/tmp", "/var/x", "", "tmp/x"] {
        assert!(!is_deleted(path), "{path}");
    }
}
