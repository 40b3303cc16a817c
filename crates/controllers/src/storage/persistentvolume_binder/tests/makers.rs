//! Who makes volumes.

use super::*;

const CLAIM: &str = "update persistentvolumeclaims ns/data";

fn told_for(provisioner: &str, claim: &PersistentVolumeClaim) -> (World, Vec<String>) {
    let world = World::with(|settings| settings.makes_directories = true);
    world.put_class(&class("c", provisioner, "")).put_claim(claim).show_all();
    let told = world.claims("data");
    (world, told)
}

fn waits_for(name: &str) -> String {
    format!("Normal ExternalProvisioning {}", super::super::provisioning::external_message(name))
}

#[test]
fn an_external_provisioner_is_asked_by_two_annotations() {
    let asked = |claim: &PersistentVolumeClaim| {
        [facts::PROVISIONER, facts::BETA_PROVISIONER]
            .map(|name| claim.metadata.annotations.get(name).map(Str::to_string))
    };
    for (provisioner, name) in
        [("example.com/p", "example.com/p"), ("kubernetes.io/aws-ebs", "ebs.csi.aws.com"), ("p", "p")]
    {
        let mut old = claim("data");
        old.metadata.annotations = labels(&[(facts::BETA_PROVISIONER, "x"), (facts::MIGRATED_TO, "")]);
        for claim in [claim("data"), old] {
            let (world, told) = told_for(provisioner, &claim);
            assert_eq!(told, [CLAIM.to_owned(), waits_for(name)]);
            assert_eq!(asked(&world.claim("data")), [Some(name.to_owned()), Some(name.to_owned())]);
            assert!(!facts::has(&world.claim("data").metadata, facts::MIGRATED_TO));
            world.show_all();
            assert_eq!(world.claims("data"), [waits_for(name)], "it is told each time");
            assert_eq!(world.claim("data").status.phase, "Pending");
        }
    }
}

#[test]
fn nobody_makes_volumes_of_other_plugins() {
    for (provisioner, expected) in [
        ("kubernetes.io/no-provisioner", "no volume plugin matched name: kubernetes.io/no-provisioner"),
        ("kubernetes.io/rbd", "no volume plugin matched name: kubernetes.io/rbd"),
        ("kubernetes.io/nfs", "no provisionable volume plugin matched"),
    ] {
        let (world, told) = told_for(provisioner, &claim("data"));
        let expected = format!("Warning ProvisioningFailed {expected}");
        assert_eq!(told, [expected.as_str()]);
        assert_eq!(world.claims("data"), [expected.as_str()], "it has no backoff");
    }
}

#[test]
fn nothing_is_made_where_the_flag_says_so() {
    let world = World::with(|settings| settings.provisions = false);
    world.put_class(&class("c", "example.com/p", "")).put_claim(&claim("data")).show_all();
    assert_eq!(world.claims("data"), [""; 0]);
    world.put_volume(&volume("vol")).show_all();
    assert_eq!(world.claims("data").len(), 4, "matching goes on");
}

#[test]
fn a_claim_that_cannot_be_saved_is_told() {
    let world = World::new();
    world.put_class(&class("c", "example.com/p", "")).put_claim(&claim("data")).show_all();
    world.put_claim(&claim("data"));
    let told = world.claims("data");
    let [refused, why] = told.as_slice() else { panic!("{told:?}") };
    assert_eq!(*refused, format!("{CLAIM} refused"));
    assert!(why.starts_with(
        "Warning ProvisioningFailed Error saving claim: persistentvolumeclaims \"data\" cannot"
    ));
}

#[test]
fn claim_that_cannot_be_saved_is_tried_after_a_backoff_and_counted() {
    let world = World::new();
    world.put_class(&class("c", "example.com/p", "")).put_claim(&claim("data")).show_all();
    world.refuses("update persistentvolumeclaims");
    let is_tried = || world.claims("data").iter().any(|told| told.contains("Error saving claim"));
    assert!(is_tried());
    assert!(!is_tried(), "the queue retries it at once");
    world.later(1);
    assert!(is_tried());
    assert!(!is_tried());
    let errors = "volume_operation_errors_total";
    let labels = "operation_name=\"provision\",plugin_name=\"example.com/p\"";
    assert_eq!(world.metric(errors), [format!("{errors}{{{labels}}} 2")], "one for each attempt");
}

#[test]
fn volume_backoff_is_no_longer_when_the_wall_clock_is_set_back() {
    let world = World::new();
    world.put_class(&class("c", "example.com/p", "")).put_claim(&claim("data")).show_all();
    world.refuses("update persistentvolumeclaims");
    let is_tried = || world.claims("data").iter().any(|told| told.contains("Error saving claim"));
    assert!(is_tried());
    world.set_clock(-31_536_000);
    assert!(!is_tried(), "nor is it shorter");
    world.later(1);
    assert!(is_tried());
}

#[test]
fn directory_that_cannot_be_made_is_told_and_the_scheduler_chooses_again() {
    let mut scheduled = claim("data");
    scheduled.metadata.annotations = labels(&[(facts::SELECTED_NODE, "n")]);
    let world = World::with(|settings| settings.makes_directories = true);
    let mut node = coxswain_machinery::api::core::Node::default();
    node.metadata.name = "n".into();
    world.put_node(&node);
    world.put_class(&class("c", "kubernetes.io/host-path", "")).put_claim(&scheduled).show_all();
    world.directories_fail(Some("not a directory"));
    let failed =
        "Warning ProvisioningFailed Failed to provision volume with StorageClass \"c\": not a directory";
    let is_told = |told: &[String]| told.iter().any(|told| told == failed);
    let told = world.claims("data");
    assert!(is_told(&told), "{told:?}");
    assert!(!told.iter().any(|told| told.contains("Deleting the volume")), "{told:?}");
    assert!(!facts::has(&world.claim("data").metadata, facts::SELECTED_NODE));
    world.show_all();
    assert!(!is_told(&world.claims("data")), "it is left alone for a while");
    world.later(1);
    assert!(is_told(&world.claims("data")));
}

#[test]
fn volume_that_cannot_be_created_in_a_directory_is_told_once_in_a_while() {
    let world = World::with(|settings| settings.makes_directories = true);
    world.put_class(&class("c", "kubernetes.io/host-path", "")).put_claim(&claim("data")).show_all();
    world.refuses("create persistentvolumes");
    let told = || {
        let told = world.claims("data");
        told.iter().any(|told| {
            told.contains("Error creating provisioned PV object for claim ns/data: ")
                && told.ends_with(" Deleting the volume.")
        })
    };
    assert!(told());
    world.show_all();
    assert!(!told());
    world.later(1);
    assert!(told());
}

#[test]
fn a_directory_is_made_for_a_claim_in_two_looks() {
    let (world, told) = told_for("kubernetes.io/host-path", &claim("data"));
    let made = "Normal ProvisioningSucceeded Successfully provisioned volume pvc-uid-of-data using kubernetes.io/host-path";
    let asked = "get persistentvolumes pvc-uid-of-data";
    let create = "create persistentvolumes pvc-uid-of-data";
    assert_eq!(told, [asked, CLAIM, asked, create, made]);
    let volume = world.volume("pvc-uid-of-data");
    assert_eq!(
        volume.metadata.annotations,
        labels(&[
            ("kubernetes.io/createdby", "hostpath-dynamic-provisioner"),
            (facts::BOUND_BY_CONTROLLER, "yes"),
            (facts::PROVISIONED_BY, "kubernetes.io/host-path"),
        ])
    );
    assert_eq!(volume.metadata.finalizers, ["kubernetes.io/pv-controller", "kubernetes.io/pv-protection"]);
    assert_eq!(volume.spec.persistent_volume_source, directory("/tmp/hostpath_pv/uid-of-data"));
    assert_eq!(volume.spec.claim_ref.as_ref().unwrap().uid, "uid-of-data");
    assert_eq!(volume.spec.capacity.get("storage").unwrap(), "1Gi");
    assert_eq!(world.claims("data"), [asked], "the caches do not show it, and it is there");
}

#[test]
fn what_stands_against_a_directory_is_told_in_order() {
    use super::super::provisioning::{Refusal, refusal, refused_at_once};
    let mut copied = claim("data");
    copied.spec.data_source = Some(Box::default());
    let why = refused_at_once(&copied).unwrap();
    assert!(why.starts_with("plugin \"kubernetes.io/host-path\" is not a CSI plugin."), "{why}");
    let mut class = class("c", "kubernetes.io/host-path", "");
    let mut wants = claim("data");
    assert_eq!(refusal(&wants, &class, true, true), None);
    wants.spec.volume_mode = Some("Block".into());
    wants.metadata.annotations = labels(&[(facts::SELECTED_NODE, "n")]);
    let told = |found: Option<Refusal>| match found {
        Some(Refusal::Told(why) | Refusal::Reschedule(why)) => why,
        None => String::new(),
    };
    assert_eq!(
        told(refusal(&wants, &class, true, true)),
        "Failed to provision volume with StorageClass \"c\": kubernetes.io/host-path does not support block volume provisioning"
    );
    assert_eq!(told(refusal(&wants, &class, true, false)), "Failed to get target node: node \"n\" not found");
    assert_eq!(
        told(refusal(&wants, &class, false, false)),
        "Failed to create provisioner: provisioning in volume plugin \"kubernetes.io/host-path\" is disabled"
    );
    class.mount_options = vec!["a".into(), "b".into()];
    assert_eq!(
        told(refusal(&wants, &class, false, false)),
        "Mount options are not supported by the provisioner but StorageClass \"c\" has mount options [a b]"
    );
}

#[test]
fn what_was_refused_is_left_alone_for_a_while() {
    let world = World::new();
    world.put_class(&class("c", "kubernetes.io/host-path", "")).put_claim(&claim("data")).show_all();
    let refused = "Warning ProvisioningFailed Failed to create provisioner: provisioning in volume plugin \"kubernetes.io/host-path\" is disabled";
    let told = world.claims("data");
    assert_eq!(told.last().unwrap(), refused);
    assert!(told.contains(&CLAIM.to_owned()), "it says who is to make the volume");
    world.show_all();
    assert!(!world.claims("data").contains(&refused.to_owned()));
    world.later(1);
    assert!(world.claims("data").contains(&refused.to_owned()));
}

#[test]
fn the_scheduler_chooses_anew_for_a_block_volume() {
    let mut block = claim("data");
    block.spec.volume_mode = Some("Block".into());
    block.metadata.annotations = labels(&[(facts::SELECTED_NODE, "n")]);
    let world = World::with(|settings| settings.makes_directories = true);
    let mut node = coxswain_machinery::api::core::Node::default();
    node.metadata.name = "n".into();
    world.put_node(&node);
    world.put_class(&class("c", "kubernetes.io/host-path", "")).put_claim(&block).show_all();
    let told = world.claims("data");
    assert!(told.iter().any(|told| told.contains("does not support block volume provisioning")), "{told:?}");
    assert!(!facts::has(&world.claim("data").metadata, facts::SELECTED_NODE));
}
