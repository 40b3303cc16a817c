//! What becomes of claims.

use super::*;

const BIND: [&str; 4] = [
    "update persistentvolumes vol",
    "update persistentvolumes/status vol",
    "update persistentvolumeclaims ns/data",
    "update persistentvolumeclaims/status ns/data",
];

fn world(claim: &PersistentVolumeClaim, volumes: &[PersistentVolume]) -> World {
    let world = World::new();
    world.put_claim(claim);
    for volume in volumes {
        world.put_volume(volume);
    }
    world.show_all();
    world
}

fn naming(volume: &str) -> PersistentVolumeClaim {
    let mut claim = claim("data");
    claim.spec.volume_name = volume.into();
    claim
}

fn with_class(class: Option<&str>) -> PersistentVolumeClaim {
    let mut claim = claim("data");
    claim.spec.storage_class_name = class.map(Str::from);
    claim
}

#[test]
fn a_claim_is_bound_by_four_writes_in_order() {
    let mut free = volume("vol");
    free.spec.capacity.insert("storage", "2Gi");
    free.spec.capacity.insert("iops", "5");
    free.spec.access_modes = vec!["ReadWriteOnce".into(), "ReadOnlyMany".into()];
    let world = world(&claim("data"), &[free]);
    let read = world.claim("data").metadata.resource_version.clone();
    assert_eq!(world.claims("data"), BIND);
    let (claim, volume) = (world.claim("data"), world.volume("vol"));
    let held = volume.spec.claim_ref.as_ref().unwrap();
    assert_eq!(
        (held.kind.as_str(), held.namespace.as_str(), held.name.as_str(), held.api_version.as_str()),
        ("PersistentVolumeClaim", "ns", "data", "v1")
    );
    assert_eq!((held.uid.as_str(), &held.resource_version), ("uid-of-data", &read));
    assert_eq!(volume.metadata.annotations, labels(&[(facts::BOUND_BY_CONTROLLER, "yes")]));
    assert_eq!((volume.status.phase.as_str(), volume.status.message.as_str()), ("Bound", ""));
    let both = labels(&[(facts::BIND_COMPLETED, "yes"), (facts::BOUND_BY_CONTROLLER, "yes")]);
    assert_eq!((&claim.metadata.annotations, claim.spec.volume_name.as_str()), (&both, "vol"));
    assert_eq!((claim.status.phase.as_str(), claim.status.access_modes.len()), ("Bound", 2));
    assert_eq!(claim.status.capacity.get("storage").unwrap(), "2Gi");
    world.show_all();
    assert_eq!(world.claims("data"), [""; 0], "there is nothing left to do");
    assert_eq!(world.volumes("vol"), [""; 0]);
}

#[test]
fn who_made_the_link_is_told_by_annotations() {
    for with_uid in [false, true] {
        let mut meant = volume("vol");
        meant.spec.claim_ref = reference(&claim("data"), with_uid);
        let world = world(&claim("data"), &[meant]);
        world.claims("data");
        assert!(world.volume("vol").metadata.annotations.is_empty(), "a user made it");
        assert!(facts::has(&world.claim("data").metadata, facts::BOUND_BY_CONTROLLER));
        assert_eq!(world.volume("vol").spec.claim_ref.as_ref().unwrap().uid, "uid-of-data");
    }
    let world = world(&naming("vol"), &[volume("vol")]);
    world.claims("data");
    assert_eq!(world.claim("data").metadata.annotations, labels(&[(facts::BIND_COMPLETED, "yes")]));
    assert!(facts::has(&world.volume("vol").metadata, facts::BOUND_BY_CONTROLLER));
}

#[test]
fn capacity_is_copied_only_when_the_claim_becomes_bound() {
    let (mut claim, mut volume) = bound_pair();
    volume.spec.capacity.insert("storage", "3Gi");
    assert_eq!(world(&claim, std::slice::from_ref(&volume)).claims("data"), [""; 0], "the resizer says");
    claim.status.phase = "Lost".into();
    let world = self::world(&claim, std::slice::from_ref(&volume));
    assert_eq!(world.claims("data"), [BIND[3]]);
    assert_eq!(world.claim("data").status.capacity.get("storage").unwrap(), "3Gi");
    for (before, expected) in [("2Gi", "2Gi"), ("much", "3Gi")] {
        let pre_resize = "volume.alpha.kubernetes.io/pre-resize-capacity";
        volume.metadata.annotations = labels(&[(pre_resize, before)]);
        let world = self::world(&claim, std::slice::from_ref(&volume));
        world.claims("data");
        assert_eq!(world.claim("data").status.capacity.get("storage").unwrap(), expected);
    }
}

#[test]
fn a_volume_that_does_not_say_how_large_it_is_is_not_told_of() {
    let mut unsized_volume = volume("vol");
    unsized_volume.spec.capacity = coxswain_machinery::wire::Quantities::default();
    unsized_volume.spec.claim_ref = reference(&claim("data"), false);
    let mut small = claim("data");
    small.spec.resources.requests.insert("storage", "0");
    let world = world(&small, &[unsized_volume]);
    let told = world.claims("data");
    assert_eq!(told[..3], BIND[..3]);
    assert!(told[3].starts_with("retry volume vol has no storage capacity"));
    assert_eq!(world.claim("data").status.phase, "Pending");
}

#[test]
fn the_class_of_attributes_is_copied_from_pending_to_bound_only() {
    let mut gold = volume("vol");
    gold.spec.volume_attributes_class_name = Some("gold".into());
    let mut wants = claim("data");
    wants.spec.volume_attributes_class_name = "gold".into();
    let world = world(&wants, &[gold.clone()]);
    world.claims("data");
    assert_eq!(world.claim("data").status.current_volume_attributes_class_name, "gold");
    let (mut lost, mut held) = bound_pair();
    held.spec.volume_attributes_class_name = Some("gold".into());
    lost.status.phase = "Lost".into();
    let world = self::world(&lost, &[held]);
    world.claims("data");
    assert_eq!(world.claim("data").status.current_volume_attributes_class_name, "");
}

#[test]
fn a_claim_without_a_volume_is_told_why() {
    let none =
        "Normal FailedBinding no persistent volumes available for this claim and no storage class is set";
    let nobody = "Warning ProvisioningFailed storageclass.storage.k8s.io \"c\" not found";
    let taken = "Warning FailedBinding volume \"vol\" already bound to a different claim.";
    let small = "Warning VolumeMismatch Cannot bind to requested volume \"vol\": requested PV is too small";
    let mut little = volume("vol");
    little.spec.capacity.insert("storage", "1Mi");
    let mut others = volume("vol");
    others.spec.claim_ref = reference(&claim("other"), true);
    let table: [(PersistentVolumeClaim, &[PersistentVolume], &[&str]); 6] = [
        (with_class(Some("")), &[], &[none]),
        (with_class(None), &[], &[none]),
        (claim("data"), &[], &[nobody]),
        (naming("vol"), &[], &[]),
        (naming("vol"), &[little], &[small]),
        (naming("vol"), &[others.clone()], &[taken]),
    ];
    for (claim, volumes, expected) in table {
        let world = world(&claim, volumes);
        for _ in 0..2 {
            assert_eq!(world.claims("data"), expected, "each look tells it");
        }
    }
    let mut linked = naming("vol");
    linked.metadata.annotations = labels(&[(facts::BOUND_BY_CONTROLLER, "yes")]);
    let world = world(&linked, &[others]);
    let again = "retry volume \"vol\" already bound to a different claim.";
    assert_eq!(world.claims("data"), [taken, again], "the event is told whoever made the link");
}

#[test]
fn the_status_of_a_claim_without_a_volume_is_bare() {
    let mut odd = naming("vol");
    odd.status.phase = "Bound".into();
    odd.status.access_modes = vec!["ReadWriteOnce".into()];
    odd.status.capacity.insert("storage", "1Gi");
    odd.status.current_volume_attributes_class_name = "gold".into();
    let world = world(&odd, &[]);
    assert_eq!(world.claims("data"), [BIND[3]]);
    let status = &world.claim("data").status;
    assert_eq!((status.phase.as_str(), status.access_modes.len(), status.capacity.len()), ("Pending", 0, 0));
    assert_eq!(status.current_volume_attributes_class_name, "");
}

#[test]
fn a_default_class_is_for_claims_that_say_none_and_find_nothing() {
    let mut default = class("std", "example.com/p", "");
    default.metadata.annotations = labels(&[("storageclass.kubernetes.io/is-default-class", "true")]);
    let run = |claim: &PersistentVolumeClaim, volumes: &[PersistentVolume]| {
        let world = world(claim, volumes);
        world.put_class(&default).show_all();
        let told = world.claims("data");
        (told, world.claim("data").spec.storage_class_name.clone())
    };
    let (told, class) = run(&with_class(None), &[]);
    assert_eq!((told, class.as_deref()), (vec![BIND[2].to_owned()], Some("std")));
    let mut classless = volume("vol");
    classless.spec.storage_class_name = "".into();
    let (told, class) = run(&with_class(None), &[classless]);
    assert_eq!((told.len(), class), (4, None), "a volume without a class comes first");
    let (told, class) = run(&with_class(Some("")), &[]);
    assert_eq!((told.len(), class.as_deref()), (1, Some("")), "no class is a class");
    let mut annotated = with_class(None);
    annotated.metadata.annotations = labels(&[("volume.beta.kubernetes.io/storage-class", "")]);
    assert_eq!(run(&annotated, &[]).1, None);
}

#[test]
fn a_claim_waits_for_its_first_consumer() {
    let world = World::new();
    world.put_class(&waiting_class()).put_claim(&claim("data")).put_volume(&volume("vol")).show_all();
    let waits = "Normal WaitForFirstConsumer waiting for first consumer to be created before binding";
    assert_eq!(world.claims("data"), [waits], "a free volume is not taken");
    let pod = |name: &str, node: Option<&str>, phase: &str| {
        let mut spec = mounting("data");
        spec["nodeName"] = serde_json::json!(node);
        let says = serde_json::json!({ "spec": spec, "status": { "phase": phase } });
        world.put_pod("ns", name, &says).show_all();
    };
    pod("b", None, "Pending");
    pod("c", None, "Succeeded");
    pod("d", Some("node"), "Pending");
    assert_eq!(world.claims("data"), ["Normal WaitForPodScheduled waiting for pod b to be scheduled"]);
    pod("a", None, "Pending");
    assert_eq!(world.claims("data"), ["Normal WaitForPodScheduled waiting for pods a,b to be scheduled"]);
    let mut selected = claim("data");
    selected.metadata.annotations = labels(&[(facts::SELECTED_NODE, "node")]);
    world.put_claim(&selected).show_all();
    let told = world.claims("data");
    assert_eq!(
        told,
        ["Warning ProvisioningFailed no volume plugin matched name: kubernetes.io/no-provisioner"]
    );
    let mut meant = volume("vol");
    meant.spec.claim_ref = reference(&claim("data"), true);
    world.put_claim(&claim("data")).put_volume(&meant).show_all();
    assert_eq!(world.claims("data").len(), 3, "the scheduler has chosen it");
}

#[test]
fn a_volume_that_the_user_names_is_bound_whatever_the_class_waits_for() {
    let world = World::new();
    world.put_class(&waiting_class()).put_claim(&naming("vol")).put_volume(&volume("vol")).show_all();
    assert_eq!(world.claims("data"), BIND);
    let mut meant = volume("vol");
    meant.spec.claim_ref = reference(&claim("data"), false);
    meant.spec.storage_class_name = "x".into();
    meant.spec.capacity.insert("storage", "1Mi");
    let world = self::world(&naming("vol"), &[meant]);
    assert_eq!(world.claims("data"), BIND, "who is meant is not checked");
}

#[test]
fn a_claim_is_bound_while_it_is_being_deleted() {
    let mut going = claim("data");
    going.metadata.deletion_timestamp = Time::from_seconds(1);
    going.metadata.finalizers = vec!["kubernetes.io/pvc-protection".into()];
    assert_eq!(world(&going, &[volume("vol")]).claims("data"), BIND);
}

#[test]
fn a_claim_is_lost_on_a_live_word_only() {
    let (mut claim, held) = bound_pair();
    let lost = "Warning ClaimLost Bound claim has lost its PersistentVolume. Data on the volume is lost!";
    let world = world(&claim, &[]);
    assert_eq!(world.claims("data"), ["get persistentvolumes vol", BIND[3], lost]);
    let status = &world.claim("data").status;
    assert_eq!((status.phase.as_str(), status.access_modes.len(), status.capacity.len()), ("Lost", 0, 0));
    world.show_all();
    assert_eq!(world.claims("data"), [""; 0], "it is told once, and nothing is read again");
    world.put_volume(&held);
    assert_eq!(world.claims("data"), [""; 0], "the cache shows no volume");
    world.show_all();
    assert_eq!(world.claims("data")[0], BIND[3], "it is there again");
    // The cache has not seen the volume yet.
    let world = World::new();
    world.put_claim(&claim).show_all().put_volume(&held);
    assert_eq!(world.claims("data"), ["get persistentvolumes vol"]);
    assert_eq!(world.claim("data").status.phase, "Bound");
    let mut others = held.clone();
    others.spec.claim_ref = reference(&super::claim("other"), true);
    let world = self::world(&claim, &[others]);
    let misbound =
        "Warning ClaimMisbound Two claims are bound to the same volume, this one is bound incorrectly";
    assert_eq!(world.claims("data"), ["get persistentvolumes vol", BIND[3], misbound]);
    claim.spec.volume_name = "".into();
    let world = self::world(&claim, &[held]);
    let reference =
        "Warning ClaimLost Bound claim has lost reference to PersistentVolume. Data on the volume is lost!";
    assert_eq!(world.claims("data"), [BIND[3], reference]);
}

#[test]
fn claim_bound_to_a_name_that_no_volume_can_have_is_lost() {
    let lost = "Warning ClaimLost Bound claim has lost its PersistentVolume. Data on the volume is lost!";
    for (name, is_sent) in [
        ("?watch=true&timeoutSeconds=31536000", true),
        ("vol#1", true),
        ("..", false),
        ("a/b", false),
        ("%", false),
    ] {
        let (mut claim, _) = bound_pair();
        claim.spec.volume_name = name.into();
        let world = world(&claim, &[volume("vol")]);
        let read = format!("get persistentvolumes {name}");
        let mut expected = vec![BIND[3], lost];
        if is_sent {
            expected.insert(0, &read);
        }
        assert_eq!(world.claims("data"), expected);
        assert_eq!(world.claim("data").status.phase, "Lost");
    }
}

#[test]
fn a_volume_that_lost_its_link_gets_it_back() {
    let (claim, mut held) = bound_pair();
    held.spec.claim_ref = None;
    held.status.phase = "Available".into();
    let world = world(&claim, &[held]);
    assert_eq!(world.claims("data"), BIND[..2]);
    assert_eq!(world.volume("vol").spec.claim_ref.as_ref().unwrap().uid, "uid-of-data");
}
