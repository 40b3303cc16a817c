//! What wakes whom, what is counted, and what is said.

use super::*;
use coxswain_machinery::informer::Delta;

fn woken(
    keys: &coxswain_machinery::framework::KeyMap,
    old: Option<&AnyObject>,
    new: Option<&AnyObject>,
) -> Vec<String> {
    let mut found = Vec::new();
    keys(Delta { old, new, initial: false, resync: false }, &mut |key| found.push(key.to_string()));
    found
}

fn any<T: Object + Clone>(object: &T) -> AnyObject {
    Arc::new(object.clone())
}

#[test]
fn a_volume_wakes_the_claim_that_does_not_name_it_yet() {
    let (claim, volume) = bound_pair();
    let mut open = claim.clone();
    open.spec.volume_name = "".into();
    let of = |claims: &[&PersistentVolumeClaim]| {
        let store = Arc::new(Store::new(&PERSISTENT_VOLUME_CLAIMS));
        for claim in claims {
            store.upsert(&any(*claim));
        }
        keys::claims_of_volumes(Lister::new(Arc::clone(&store)), Indexed::new(&store, &keys::NAMING))
    };
    let held = any(&volume);
    assert_eq!(woken(&of(&[&open]), None, Some(&held)), ["ns/data"]);
    assert_eq!(woken(&of(&[&claim]), None, Some(&held)), [""; 0]);
    assert_eq!(woken(&of(&[]), None, Some(&held)), [""; 0]);
    assert_eq!(woken(&of(&[&claim]), Some(&held), None), ["ns/data"], "it is gone");
    let mut block = volume.clone();
    block.spec.volume_mode = Some("Block".into());
    assert_eq!(woken(&of(&[&open]), None, Some(&any(&block))), [""; 0]);
    let mut nameless = volume;
    nameless.spec.claim_ref = reference(&open, false);
    assert_eq!(woken(&of(&[&open]), None, Some(&any(&nameless))), ["ns/data"], "a user has made the link");
    let mut named = super::claim("named");
    named.spec.volume_name = "vol".into();
    let free = any(&super::volume("vol"));
    assert_eq!(woken(&of(&[&named, &claim]), None, Some(&free)), ["ns/named"], "it is not bound");
    assert_eq!(woken(&of(&[&named]), None, Some(&any(&super::volume("other")))), [""; 0]);
}

#[test]
fn a_claim_that_is_gone_wakes_its_volume_and_a_pod_that_has_ended_the_one_that_it_emptied() {
    let (claim, _) = bound_pair();
    let claims = keys::volumes_of_claims();
    let held = any(&claim);
    assert_eq!(woken(&claims, Some(&held), None), ["vol"]);
    assert_eq!(woken(&claims, Some(&held), Some(&held)), [""; 0]);
    assert_eq!(woken(&claims, Some(&any(&super::claim("data"))), None), [""; 0]);
    let mut pod = Pod::default();
    pod.metadata.name = "recycler-for-vol".into();
    let pods = keys::volumes_of_recyclers();
    assert_eq!(woken(&pods, None, Some(&any(&pod))), [""; 0]);
    assert_eq!(woken(&pods, Some(&any(&pod)), None), ["vol"]);
    pod.status.phase = "Failed".into();
    assert_eq!(woken(&pods, None, Some(&any(&pod))), ["vol"]);
    pod.metadata.name = "other".into();
    assert_eq!(woken(&pods, None, Some(&any(&pod))), [""; 0]);
}

#[test]
fn volumes_and_claims_are_counted_as_they_are() {
    let world = World::new();
    let volumes = metrics::count_volumes(Arc::clone(&world.binder.metrics));
    let claims = metrics::count_claims(Arc::clone(&world.binder.metrics));
    let (bound, held) = bound_pair();
    let mut annotated = claim("data");
    annotated.metadata.annotations = labels(&[("volume.beta.kubernetes.io/storage-class", "x")]);
    woken(&volumes, None, Some(&any(&held)));
    woken(&volumes, None, Some(&any(&released("a", "Retain", directory("/x")))));
    woken(&volumes, None, Some(&any(&released("b", "Retain", nfs()))));
    woken(&claims, None, Some(&any(&bound)));
    woken(&claims, None, Some(&any(&annotated)));
    let total = "pv_collector_total_pv_count";
    assert_eq!(
        world.metric(total),
        [
            format!("{total}{{plugin_name=\"N/A\",volume_mode=\"Filesystem\"}} 1"),
            format!("{total}{{plugin_name=\"kubernetes.io/host-path\",volume_mode=\"Filesystem\"}} 1"),
            format!("{total}{{plugin_name=\"kubernetes.io/nfs\",volume_mode=\"Filesystem\"}} 1"),
        ]
    );
    assert_eq!(
        world.metric("pv_collector_unbound_pv_count"),
        ["pv_collector_unbound_pv_count{storage_class=\"c\"} 2"]
    );
    let unbound = "pv_collector_unbound_pvc_count";
    assert_eq!(
        world.metric(unbound),
        [format!("{unbound}{{namespace=\"ns\",storage_class=\"x\",volume_attributes_class=\"\"}} 1")]
    );
    woken(&volumes, Some(&any(&held)), None);
    woken(&claims, Some(&any(&annotated)), None);
    assert_eq!(world.metric("pv_collector_bound_pv_count"), [""; 0], "there are no zeros");
    assert_eq!(world.metric(unbound), [""; 0]);
}

#[test]
fn volumes_that_others_look_after_are_counted_without_a_plugin() {
    use PersistentVolumeSource as Source;
    let world = World::new();
    let volumes = metrics::count_volumes(Arc::clone(&world.binder.metrics));
    let all = [
        csi(),
        Source::default(),
        Source { iscsi: Some(Box::default()), ..Source::default() },
        Source { fc: Some(Box::default()), ..Source::default() },
        Source { flex_volume: Some(Box::default()), ..Source::default() },
        Source { aws_elastic_block_store: Some(Box::default()), ..Source::default() },
        Source { portworx_volume: Some(Box::default()), ..Source::default() },
    ];
    let count = all.len();
    for source in all {
        woken(&volumes, None, Some(&any(&released("vol", "Retain", source))));
    }
    let total = "pv_collector_total_pv_count";
    let expected = format!("{total}{{plugin_name=\"N/A\",volume_mode=\"Filesystem\"}} {count}");
    assert_eq!(world.metric(total), [expected]);
}

#[test]
fn the_time_from_asking_to_binding_is_told() {
    let world = World::new();
    world.put_class(&class("c", "example.com/p", "")).put_claim(&claim("data")).show_all();
    world.claims("data");
    world.later(3);
    let mut made = volume("vol");
    made.spec.claim_ref = reference(&claim("data"), true);
    made.status.phase = "Pending".into();
    world.put_volume(&made).show_all();
    world.claims("data");
    let sum = "volume_operation_total_seconds_sum";
    let labels = "operation_name=\"provision\",plugin_name=\"example.com/p\"";
    assert_eq!(world.metric(sum), [format!("{sum}{{{labels}}} 3")]);
    assert_eq!(world.metric("volume_operation_errors_total"), [""; 0]);
}

#[test]
fn time_of_an_earlier_claim_of_the_same_name_is_not_observed() {
    let world = World::new();
    world.put_class(&class("c", "example.com/p", "")).put_claim(&claim("data")).show_all();
    world.claims("data");
    world.later(100);
    let mut next = claim("data");
    next.metadata.uid = "another".into();
    // The cache shows the next claim before the first one was seen to go.
    world.put_claim(&next).show_all();
    world.claims("data");
    world.later(3);
    let mut made = volume("vol");
    made.spec.claim_ref = reference(&next, true);
    made.status.phase = "Pending".into();
    world.put_volume(&made).show_all();
    world.claims("data");
    let sum = "volume_operation_total_seconds_sum";
    let labels = "operation_name=\"provision\",plugin_name=\"example.com/p\"";
    assert_eq!(world.metric(sum), [format!("{sum}{{{labels}}} 3")]);
}

#[test]
fn claim_whose_class_nobody_provisions_counts_nothing() {
    let world = World::new();
    world.put_class(&class("c", "kubernetes.io/rbd", "")).put_claim(&claim("data")).show_all();
    world.claims("data");
    world.claims("data");
    assert_eq!(world.metric("volume_operation_errors_total"), [""; 0]);
    world.put_volume(&volume("vol")).show_all();
    world.claims("data");
    assert_eq!(world.claim("data").status.phase, "Bound");
    assert_eq!(world.metric("volume_operation_total_seconds_sum"), [""; 0]);
}

#[test]
fn directory_of_an_external_provisioner_is_deleted_by_the_provisioner_of_its_class() {
    let world = World::new();
    let mut held = released("vol", "Delete", directory("/opt/local-path/x"));
    held.metadata.annotations = labels(&[(facts::PROVISIONED_BY, "rancher.io/local-path")]);
    world.put_class(&class("c", "rancher.io/local-path", "")).put_volume(&held).show_all();
    world.volumes("vol");
    world.remove(&PERSISTENT_VOLUMES, &Key::new("", "vol"));
    world.show_all();
    world.volumes("vol");
    let count = "volume_operation_total_seconds_count";
    let labels = "operation_name=\"delete\",plugin_name=\"rancher.io/local-path\"";
    assert_eq!(world.metric(count), [format!("{count}{{{labels}}} 1")]);
}

#[test]
fn volume_that_claims_to_be_a_directory_and_has_no_path_fails_and_is_counted() {
    let world = World::new();
    let mut held = released("vol", "Delete", nfs());
    held.metadata.annotations = labels(&[(facts::PROVISIONED_BY, "kubernetes.io/host-path")]);
    held.metadata.finalizers.push("kubernetes.io/pv-controller".into());
    world.put_volume(&held).show_all();
    let why = "failed to create deleter for volume \"vol\": spec.PersistentVolumeSource.HostPath is nil";
    let told = world.volumes("vol");
    assert!(told.contains(&format!("Warning VolumeFailedDelete {why}")), "{told:?}");
    assert_eq!(world.volume("vol").status.message, why);
    let errors = "volume_operation_errors_total";
    let labels = "operation_name=\"delete\",plugin_name=\"kubernetes.io/host-path\"";
    assert_eq!(world.metric(errors), [format!("{errors}{{{labels}}} 1")]);
    world.show_all();
    world.volumes("vol");
    assert_eq!(world.metric(errors).len(), 1, "it is left alone for a while");
}

#[test]
fn the_time_from_reclaiming_to_the_end_is_told() {
    let world = World::new();
    world
        .put_class(&class("c", "example.com/p", ""))
        .put_volume(&released("vol", "Delete", csi()))
        .show_all();
    world.volumes("vol");
    world.later(7);
    world.remove(&PERSISTENT_VOLUMES, &Key::new("", "vol"));
    world.show_all();
    world.volumes("vol");
    let sum = "volume_operation_total_seconds_sum";
    let labels = "operation_name=\"delete\",plugin_name=\"example.com/p\"";
    assert_eq!(world.metric(sum), [format!("{sum}{{{labels}}} 7")]);
    world.volumes("vol");
    assert_eq!(world.metric(sum).len(), 1);
}

#[test]
fn a_default_class_is_counted_whether_it_was_set_or_not() {
    let world = World::new();
    let mut default = class("std", "p", "");
    default.metadata.annotations = labels(&[("storageclass.kubernetes.io/is-default-class", "true")]);
    let mut open = claim("data");
    open.spec.storage_class_name = None;
    world.put_class(&default).put_claim(&open).show_all();
    let counts = || {
        ["retroactive_storageclass_total", "retroactive_storageclass_errors_total"]
            .map(|name| world.metric(name).join(","))
    };
    assert_eq!(counts(), ["retroactive_storageclass_total 0", "retroactive_storageclass_errors_total 0"]);
    world.put_claim(&open);
    world.claims("data");
    assert_eq!(counts(), ["retroactive_storageclass_total 1", "retroactive_storageclass_errors_total 1"]);
    world.show_all();
    world.claims("data");
    assert_eq!(counts(), ["retroactive_storageclass_total 2", "retroactive_storageclass_errors_total 1"]);
}

#[test]
fn it_says_why_a_claim_does_not_bind() {
    let says = |class: Option<&StorageClass>, claim: &PersistentVolumeClaim, volumes: &[PersistentVolume]| {
        let world = World::new();
        if let Some(class) = class {
            world.put_class(class);
        }
        for volume in volumes {
            world.put_volume(volume);
        }
        world.put_claim(claim).show_all();
        world.why("data")
    };
    let open = claim("data");
    let mut named = open.clone();
    named.spec.volume_name = "vol".into();
    let mut classless = open.clone();
    classless.spec.storage_class_name = Some("".into());
    let mut little = volume("vol");
    little.spec.capacity.insert("storage", "1Mi");
    let (bound, held) = bound_pair();
    let external = class("c", "example.com/p", "");
    let table = [
        (says(None, &open, &[]), "none can be provisioned: storageclass.storage.k8s.io \"c\" not found"),
        (says(None, &open, &[little.clone()]), "1 volume of the claim's class is free; it does not match"),
        (says(None, &open, &[volume("vol")]), "The volume vol matches the claim"),
        (says(None, &classless, &[]), "the claim has no class to provision one"),
        (says(Some(&external), &open, &[]), "the provisioner example.com/p of the class c must create one"),
        (says(Some(&waiting_class()), &open, &[]), "delays binding until a pod"),
        (says(None, &named, &[]), "The requested volume vol does not exist"),
        (says(None, &named, &[little]), "does not match the claim: requested PV is too small"),
        (says(None, &bound, &[held]), "The claim is bound to the volume vol"),
        (says(None, &bound, &[]), "which no longer exists; the claim is lost"),
    ];
    for (said, expected) in table {
        assert!(said.contains(expected), "{said}: {expected}");
    }
}

#[test]
fn it_says_what_a_volume_waits_for() {
    let says = |volume: &PersistentVolume, claims: &[PersistentVolumeClaim]| {
        let world = World::new();
        for claim in claims {
            world.put_claim(claim);
        }
        world.put_volume(volume).show_all();
        world.why_volume("vol")
    };
    let (claim, held) = bound_pair();
    let mut open = claim.clone();
    open.spec.volume_name = "".into();
    let table = [
        (says(&volume("vol"), &[]), "The volume has no claim"),
        (says(&held, &[claim]), "bound to the claim ns/data"),
        (says(&held, &[open]), "is bound to it next"),
        (says(&released("vol", "Retain", csi()), &[]), "its data are retained"),
        (says(&released("vol", "Delete", csi()), &[]), "external provisioner must delete it"),
        (says(&released("vol", "Delete", directory("/tmp/x")), &[]), "The directory /tmp/x and the volume"),
        (says(&released("vol", "Recycle", nfs()), &[]), "A recycler pod deletes"),
        (says(&released("vol", "Recycle", csi()), &[]), "which its plugin does not support"),
    ];
    for (said, expected) in table {
        assert!(said.contains(expected), "{said}: {expected}");
    }
}
