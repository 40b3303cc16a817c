//! Annotations and finalizers that are brought in order first.

use super::*;
use coxswain_machinery::api::kinds::PERSISTENT_VOLUMES;

const OWN: &str = "kubernetes.io/pv-controller";
const EXTERNAL: &str = "external-provisioner.volume.kubernetes.io/finalizer";

fn typed<T: Object + Message>(kind: &'static Kind, object: &T) -> Arc<T> {
    downcast(stored(kind, object)).unwrap()
}

#[test]
fn a_claim_names_the_driver_that_took_over_its_provisioner() {
    // What it says before, and what it says of the driver then; `None` if nothing is written.
    type Row<'a> = (&'a [(&'a str, &'a str)], Option<Option<&'a str>>);
    let driver = "ebs.csi.aws.com";
    let (ga, beta, to) = (facts::PROVISIONER, facts::BETA_PROVISIONER, facts::MIGRATED_TO);
    let table: [Row<'_>; 9] = [
        (&[], None),
        (&[(to, "x")], None),
        (&[(ga, "kubernetes.io/aws-ebs")], Some(Some(driver))),
        (&[(beta, "kubernetes.io/aws-ebs")], Some(Some(driver))),
        (&[(ga, "kubernetes.io/aws-ebs"), (to, driver)], None),
        (&[(ga, "kubernetes.io/aws-ebs"), (to, "x")], Some(Some(driver))),
        (&[(ga, "example.com/p"), (beta, "kubernetes.io/aws-ebs")], None),
        (&[(ga, driver), (to, driver)], Some(None)),
        (&[(ga, driver), (to, "")], None),
    ];
    for (said, expected) in table {
        let mut claim = claim("data");
        claim.metadata.annotations = labels(said);
        let claim = typed(&PERSISTENT_VOLUME_CLAIMS, &claim);
        let found = migrating::of_claim(&claim).unwrap().map(|bytes| {
            assert!(bytes.ends_with(&[0xfa, 0x3f, 1, b'x']), "what is unknown stays");
            downcast::<PersistentVolumeClaim>((PERSISTENT_VOLUME_CLAIMS.decode)(&bytes).unwrap()).unwrap()
        });
        let found = found.map(|claim| claim.metadata.annotations.get(to).map(Str::to_string));
        assert_eq!(found, expected.map(|driver| driver.map(str::to_owned)), "{said:?}");
    }
}

#[test]
fn a_volume_has_the_finalizer_of_who_deletes_it() {
    // Provisioner, policy, finalizers, whether it is being deleted; and the finalizers then, if anything is written.
    type Row<'a> = (&'a str, &'a str, &'a [&'a str], bool, Option<&'a [&'a str]>);
    let table: [Row<'_>; 12] = [
        ("", "Delete", &[], false, None),
        ("example.com/p", "Delete", &[EXTERNAL], false, None),
        ("kubernetes.io/host-path", "Delete", &["a"], false, Some(&["a", OWN])),
        ("kubernetes.io/host-path", "Delete", &[OWN], false, None),
        ("kubernetes.io/host-path", "Retain", &["a", OWN, "b"], false, Some(&["a", "b"])),
        ("kubernetes.io/host-path", "Recycle", &[OWN], false, Some(&[])),
        ("kubernetes.io/host-path", "Retain", &[], false, None),
        ("kubernetes.io/host-path", "Delete", &[EXTERNAL, OWN], false, Some(&[OWN])),
        ("kubernetes.io/host-path", "Delete", &["a"], true, None),
        ("kubernetes.io/host-path", "Retain", &["a", OWN], true, Some(&["a"])),
        ("kubernetes.io/aws-ebs", "Delete", &["a", OWN], false, Some(&["a"])),
        ("kubernetes.io/aws-ebs", "Delete", &[EXTERNAL], false, Some(&[EXTERNAL])),
    ];
    for (by, policy, finalizers, is_deleting, expected) in table {
        let mut volume = volume("vol");
        if !by.is_empty() {
            volume.metadata.annotations = labels(&[(facts::PROVISIONED_BY, by)]);
        }
        volume.spec.persistent_volume_reclaim_policy = policy.into();
        volume.metadata.finalizers = finalizers.iter().map(|held| Str::from(*held)).collect();
        volume.metadata.deletion_timestamp = if is_deleting { Time::from_seconds(1) } else { None };
        let volume = typed(&PERSISTENT_VOLUMES, &volume);
        let found = migrating::of_volume(&volume).unwrap().map(|bytes| {
            let found: Arc<PersistentVolume> =
                downcast((PERSISTENT_VOLUMES.decode)(&bytes).unwrap()).unwrap();
            let driver = found.metadata.annotations.get(facts::MIGRATED_TO).map(Str::to_string);
            assert_eq!(driver.is_some(), by == "kubernetes.io/aws-ebs");
            found.metadata.finalizers.iter().map(Str::to_string).collect::<Vec<_>>()
        });
        let expected = expected.map(|held| held.iter().map(|held| (*held).to_owned()).collect::<Vec<_>>());
        assert_eq!(found, expected, "{by} {policy} {finalizers:?} {is_deleting}");
    }
}

#[test]
fn it_comes_first_and_the_rest_goes_on_with_the_answer() {
    let world = World::new();
    let mut held = volume("vol");
    held.metadata.annotations = labels(&[(facts::PROVISIONED_BY, "kubernetes.io/aws-ebs")]);
    held.status.phase = "Pending".into();
    world.put_volume(&held).show_all();
    assert_eq!(world.volumes("vol"), ["update persistentvolumes vol", "update persistentvolumes/status vol"]);
    assert_eq!(world.volume("vol").status.phase, "Available");
    let mut wants = claim("data");
    wants.spec.storage_class_name = Some("".into());
    wants.metadata.annotations = labels(&[(facts::PROVISIONER, "kubernetes.io/aws-ebs")]);
    world.put_claim(&wants).show_all();
    let told = world.claims("data");
    assert_eq!(told.len(), 2, "{told:?}");
    assert_eq!(told[0], "update persistentvolumeclaims ns/data");
    assert!(told[1].starts_with("Normal FailedBinding"));
}
