//! With which label and policy a pod is seen to mount a volume.

use super::*;
use coxswain_machinery::api::volumes::{CsiInline, InlineSource};
use coxswain_machinery::informer::downcast;
use coxswain_machinery::wire::Message as _;
use coxswain_machinery::wire::splice::{put_bytes, put_text};

/// How `ns/p` mounts its only volume.
fn mounted(world: &World, policy: &str, label: &str) -> Mounted {
    world.put(0, pod("p", policy, &[&format!("data {label}")]));
    let view = world.view(&Key::new("ns", "p"));
    assert!(view.unresolved.is_empty(), "{view:?}");
    view.volumes[0].mount.mounted.clone()
}

fn is(mounted: &Mounted, label: &str, policy: &str) {
    assert_eq!((mounted.label.as_str(), mounted.policy.as_str()), (label, policy));
}

const LABEL: &str = "u:r:t:s0:c1,c2";

#[test]
fn a_label_counts_where_volumes_are_mounted_with_it() {
    let world = World::new();
    world.bind_csi("ns", "data", "labels", "h");
    is(&mounted(&world, "", LABEL), LABEL, "MountOption");
    is(&mounted(&world, "MountOption", LABEL), LABEL, "MountOption");
    is(&mounted(&world, "Recursive", LABEL), "", "Recursive");
    is(&mounted(&world, "", "-"), "", "Recursive");
    is(&mounted(&world, "MountOption", ""), "", "Recursive");
    // A driver that does not say so mounts without; so does one that nobody knows.
    for (driver, mounts) in [("silent", None), ("without", Some(false))] {
        world.driver(driver, mounts);
        world.bind_csi("ns", "data", driver, "h");
        is(&mounted(&world, "", LABEL), "", "Recursive");
    }
    world.bind_csi("ns", "data", "unknown", "h");
    is(&mounted(&world, "", LABEL), "", "Recursive");
}

#[test]
fn gate_off_compares_no_labels() {
    let world = World { compares_labels: false, ..World::new() };
    world.bind_csi("ns", "data", "labels", "h");
    is(&mounted(&world, "", LABEL), "", "Recursive");
    assert_eq!(world.pod(pod("p", "", &["data ?"])), [""; 0]);
}

#[test]
fn inline_csi_volume_is_no_reason_to_retry() {
    let world = World::new();
    let csi = CsiInline { driver: "secrets-store.csi.k8s.io".into(), ..CsiInline::default() };
    let source = InlineSource { csi: Some(Box::new(csi)), ..InlineSource::default() };
    let (mut volume, mut spec, mut bytes) = (Vec::new(), Vec::new(), Vec::new());
    put_text(&mut volume, 1, "secrets");
    put_bytes(&mut volume, 2, &source.to_bytes());
    put_bytes(&mut spec, 1, &volume);
    let template = pod("p", "", &[&format!("secrets {LABEL}")]);
    put_bytes(&mut bytes, 1, &template.metadata.to_bytes());
    put_bytes(&mut bytes, 2, &spec);
    let held = downcast::<SelinuxPod>((SELINUX_PODS.decode)(&bytes.into()).unwrap()).unwrap();
    assert_eq!(held.shape.inline_volumes.len(), 1);
    let mounting = SelinuxPod { mounts: template.mounts, ..SelinuxPod::clone(&held) };
    assert_eq!(world.pod(mounting), [""; 0]);
}

#[test]
fn disks_are_mounted_with_labels_and_directories_are_not() {
    let world = World::new();
    let iscsi = Some(Box::new(Iscsi { target_portal: "p".into(), iqn: "i".into(), lun: 0 }));
    world.bind("ns", "data", PersistentVolumeSource { iscsi, ..PersistentVolumeSource::default() });
    is(&mounted(&world, "", LABEL), LABEL, "MountOption");
    let host_path = Some(Box::new(HostPath { path: "/tmp/x".into() }));
    world.bind("ns", "data", PersistentVolumeSource { host_path, ..PersistentVolumeSource::default() });
    is(&mounted(&world, "", LABEL), "", "Recursive");
}

#[test]
fn what_has_no_plugin_is_passed_over() {
    let world = World::new();
    world.bind("ns", "data", PersistentVolumeSource::default());
    world.put(0, pod("p", "", &[&format!("data {LABEL}")]));
    let view = world.view(&Key::new("ns", "p"));
    assert!(view.volumes.is_empty() && view.unresolved.is_empty() && view.several.is_empty());
}

#[test]
fn a_claim_must_be_bound_both_ways_and_an_ephemeral_one_be_the_pods() {
    let world = World::new();
    let unresolved = |change: &dyn Fn(&mut PersistentVolumeClaim, &mut PersistentVolume)| {
        world.bind_csi("ns", "data", "labels", "h");
        let mut claim = claim("ns", "data");
        let mut held = volume("ns", "data", PersistentVolumeSource::default());
        change(&mut claim, &mut held);
        world.put(1, claim);
        world.put(2, held);
        world.pod(pod("p", "", &[&format!("data {LABEL}")])).join(" ")
    };
    assert_eq!(unresolved(&|_, _| {}), "", "it is bound");
    assert!(
        unresolved(&|claim, _| claim.status.phase = "Pending".into())
            .contains("again: volume data: claim ns/data is not bound")
    );
    assert!(unresolved(&|claim, _| claim.spec.volume_name = Str::EMPTY).contains("is not bound"));
    assert!(
        unresolved(&|claim, _| claim.spec.volume_name = "other".into()).contains("volume other not found")
    );
    let another = |_: &mut PersistentVolumeClaim, held: &mut PersistentVolume| {
        held.spec.claim_ref.as_mut().unwrap().uid = "x".into();
    };
    assert!(unresolved(&another).contains("is not bound to claim ns/data"));
    assert!(
        unresolved(&|claim, _| claim.metadata.name = "elsewhere".into()).is_empty(),
        "that is another one"
    );

    world.bind_csi("ns", "e-data", "labels", "h");
    let mut ephemeral = pod("e", "", &[&format!("data {LABEL}")]);
    ephemeral.claims = std::iter::once(PodClaim {
        volume: "data".into(),
        source: PodClaimSource::Ephemeral(Raw::default()),
    })
    .collect();
    assert!(world.pod(ephemeral.clone()).join(" ").contains("claim ns/e-data was not created for the pod"));
    let mut owned = claim("ns", "e-data");
    let uid = ephemeral.metadata.uid.clone();
    owned.metadata.owner_references =
        vec![OwnerReference { uid, controller: Some(true), ..OwnerReference::default() }];
    world.put(1, owned);
    assert_eq!(world.pod(ephemeral), [""; 0]);
}

#[test]
fn one_volume_that_does_not_resolve_keeps_not_the_others() {
    let world = World::new();
    world.bind_csi("ns", "data", "labels", "h");
    let mut mounting = pod("p", "", &["data :::s0", "late :::s0"]);
    // One that no container mounts counts, too.
    let unmounted = PodClaim { volume: "spare".into(), source: PodClaimSource::Named("spare".into()) };
    mounting.claims = mounting.claims.iter().cloned().chain([unmounted]).collect();
    let told = world.pod(mounting);
    assert_eq!(told, ["again: claim ns/spare not found; volume late: claim ns/late not found"]);
    assert_eq!(world.view(&Key::new("ns", "p")).volumes.len(), 1);
    assert!(world.view(&Key::new("ns", "p")).volumes[0].is_told);
}

#[test]
fn several_labels_of_one_volume_are_told_with_each_look() {
    let world = World::new();
    world.bind_csi("ns", "data", "labels", "h");
    world.bind_csi("ns", "other", "labels", "i");
    let warning = "ns/p: Warning MultipleSELinuxLabels Volume \"data\" is mounted twice with different SELinux labels inside this pod";
    let again = "again: volume data is mounted with several SELinux labels";
    let looked = || world.pod(pod("p", "Recursive", &["data ?", "other :::s0"]));
    assert_eq!(looked(), [warning, again]);
    assert_eq!(looked(), [warning, again]);
    let known = world.view(&Key::new("ns", "p")).volumes;
    assert_eq!(known.len(), 1, "the volume itself is not recorded: {known:?}");
    // Of whatever source: a volume that is no claim and that nobody can attach.
    let mut scratch = pod("q", "Recursive", &["other :::s0"]);
    scratch.mounts.volumes.push(("scratch".into(), MountLabel::Several));
    assert_eq!(world.pod(scratch).len(), 2);
    // One that cannot be resolved is not judged.
    let told = world.pod(pod("r", "", &["late ?"]));
    assert_eq!(told, ["again: volume late: claim ns/late not found"]);
}

#[test]
fn it_says_with_whom_a_pod_conflicts() {
    let world = World::new();
    world.bind_csi("ns", "data", "labels", "h");
    let said =
        |name: &str| Controller::reasons(&world.view(&Key::new("ns", name)), Timestamp::UNIX_EPOCH).join(" ");
    world.pod(pod("a", "", &["data :::s0:c1"]));
    assert!(
        said("a")
            .contains("kubernetes.io/csi/labels^h is mounted with :::s0:c1, MountOption, by no other pod")
    );
    world.pod(pod("b", "", &["data u:::s0:c1"]));
    assert!(said("a").contains("are compatible"));
    world.pod(pod("c", "", &["data :::s0:c2"]));
    assert!(said("a").contains("this conflicts with ns/c on the same node"));
    assert!(said("gone").contains("has finished or does not exist"));
    world.pod(pod("d", "", &["data ?", "late -"]));
    assert!(
        said("d").contains("with different SELinux labels") && said("d").contains("cannot be checked yet")
    );
    world.pod(pod("e", "", &[]));
    assert!(said("e").contains("no volume that could conflict"));
}
