//! Claims and volumes with a class of attributes while the gate `VolumeAttributesClass` is off.

use super::*;

fn world(claim: &PersistentVolumeClaim, volume: &PersistentVolume) -> World {
    let world = World::with(|settings| settings.knows_attributes = false);
    world.put_claim(claim).put_volume(volume).show_all();
    world
}

fn gold(mut volume: PersistentVolume) -> PersistentVolume {
    volume.spec.volume_attributes_class_name = Some("gold".into());
    volume
}

#[test]
fn gate_off_binds_no_claim_and_no_volume_with_a_class() {
    let disabled =
        "volumeAttributesClassName is not supported when the feature-gate VolumeAttributesClass is disabled";
    let plain = claim("data");
    let mut wants = plain.clone();
    wants.spec.volume_attributes_class_name = "gold".into();
    for free in [volume("vol"), gold(volume("vol"))] {
        assert_eq!(world(&wants, &free).claims("data"), [format!("retry {disabled}")]);
    }
    let none = world(&plain, &gold(volume("vol"))).claims("data");
    assert!(none.iter().all(|told| !told.starts_with("update persistentvolumes")), "{none:?}");
    assert_eq!(world(&plain, &volume("vol")).claims("data").len(), 4, "without a class it is bound");
    let named = |claim: &PersistentVolumeClaim| {
        let mut claim = claim.clone();
        claim.spec.volume_name = "vol".into();
        claim
    };
    let told = format!("Warning VolumeMismatch Cannot bind to requested volume \"vol\": {disabled}");
    for (claim, volume) in
        [(&wants, gold(volume("vol"))), (&wants, volume("vol")), (&plain, gold(volume("vol")))]
    {
        assert_eq!(world(&named(claim), &volume).claims("data"), [told.as_str()]);
    }
    let mut small = gold(volume("vol"));
    small.spec.capacity.insert("storage", "1Mi");
    let told = world(&named(&wants), &small).claims("data");
    assert!(told[0].ends_with("requested PV is too small"), "what comes before it is told: {told:?}");
}

#[test]
fn gate_off_copies_no_class_into_the_status() {
    let (mut claim, held) = bound_pair();
    claim.status.phase = "Pending".into();
    let world = world(&claim, &gold(held));
    world.claims("data");
    let status = &world.claim("data").status;
    assert_eq!((status.phase.as_str(), status.current_volume_attributes_class_name.as_str()), ("Bound", ""));
}
