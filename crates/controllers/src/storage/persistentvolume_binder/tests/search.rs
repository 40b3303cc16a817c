//! How many volumes the search for a claim touches, and that it finds what a look at all volumes finds.

use proptest::prelude::*;

use super::super::free::FreeVolumes;
use super::super::matching::{Wish, best};
use super::*;
use coxswain_machinery::api::meta::LabelSelector;
use coxswain_machinery::informer::Delta;

fn sized(name: &str, gibibytes: u32) -> PersistentVolume {
    let mut volume = volume(name);
    volume.spec.capacity.insert("storage", &format!("{gibibytes}Gi"));
    volume
}

#[test]
fn claim_that_waits_touches_no_free_volume() {
    let world = World::new();
    world.put_class(&waiting_class());
    for at in 0..200 {
        world.put_volume(&volume(&format!("vol-{at}")));
    }
    world.put_claim(&claim("data")).show_all();
    assert_eq!(world.claims("data").len(), 1, "it is told that it waits");
    assert_eq!(world.binder.free.touched(), 0);
    let mut meant = volume("meant");
    meant.spec.claim_ref = reference(&claim("data"), false);
    world.put_volume(&meant).show_all();
    world.claims("data");
    assert_eq!(world.claim("data").spec.volume_name, "meant");
    assert_eq!(world.binder.free.touched(), 0);
}

#[test]
fn search_stops_at_the_first_volume_that_fits() {
    let world = World::new();
    for at in 1..=200 {
        world.put_volume(&sized(&format!("vol-{at:03}"), at));
    }
    let mut wants = claim("data");
    wants.spec.resources.requests.insert("storage", "150Gi");
    world.put_claim(&wants).show_all();
    world.claims("data");
    assert_eq!(world.claim("data").spec.volume_name, "vol-150");
    // Each look at the claim touches one; the later ones skip the volume that is being bound, or find it meant for the claim.
    assert!((1..=4).contains(&world.binder.free.touched()));
    wants.metadata.name = "large".into();
    wants.metadata.uid = "uid-of-large".into();
    wants.spec.resources.requests.insert("storage", "201Gi");
    world.put_claim(&wants).show_all();
    world.claims("large");
    assert_eq!(world.binder.free.touched(), 0, "none is large enough");
    wants.spec.resources.requests.insert("storage", "1Gi");
    wants.spec.access_modes = vec!["ReadWriteMany".into()];
    world.put_claim(&wants).show_all();
    world.claims("large");
    assert_eq!(world.binder.free.touched(), 0, "none can be used so");
}

/// A volume of few sizes, uses and states, so that many are alike.
fn volumes() -> impl Strategy<Value = Vec<PersistentVolume>> {
    let modes = proptest::sample::subsequence(vec!["ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany"], 0..=3);
    let one = (1_u32..4, modes, 0_u8..6, 0_u8..6, any::<bool>());
    proptest::collection::vec(one, 0..12).prop_map(|all| {
        let make = |at: usize, size: u32, modes: Vec<&str>, (link, fault, is_labeled): (u8, u8, bool)| {
            let mut volume = sized(&format!("vol-{at:02}"), size);
            volume.spec.access_modes = modes.into_iter().map(Str::from).collect();
            let mut other = claim("data");
            other.metadata.uid = "another".into();
            volume.spec.claim_ref = match link {
                0 => reference(&claim("data"), true),
                1 => reference(&claim("data"), false),
                2 => reference(&other, true),
                3 => reference(&claim("other"), false),
                _ => None,
            };
            match fault {
                0 => volume.spec.volume_mode = Some("Block".into()),
                1 => volume.spec.storage_class_name = "other".into(),
                2 => volume.status.phase = "Pending".into(),
                3 => volume.metadata.deletion_timestamp = Time::from_seconds(1),
                4 => volume.spec.volume_attributes_class_name = Some("gold".into()),
                _ => {}
            }
            if is_labeled {
                volume.metadata.labels = labels(&[("a", "b")]);
            }
            volume
        };
        let each = all.into_iter().enumerate();
        each.map(|(at, (size, modes, link, fault, is_labeled))| {
            make(at, size, modes, (link, fault, is_labeled))
        })
        .collect()
    })
}

proptest! {
    #[test]
    fn search_finds_what_a_look_at_all_volumes_finds(
        volumes in volumes(),
        size in 1_u32..4,
        uses in proptest::sample::subsequence(vec!["ReadWriteOnce", "ReadOnlyMany"], 0..=2),
        selects in any::<bool>(),
        waits in any::<bool>(),
        went in proptest::collection::vec(any::<bool>(), 12),
    ) {
        let mut wants = claim("data");
        wants.spec.resources.requests.insert("storage", &format!("{size}Gi"));
        wants.spec.access_modes = uses.into_iter().map(Str::from).collect();
        if selects {
            let selector = LabelSelector { match_labels: labels(&[("a", "b")]), ..LabelSelector::default() };
            wants.spec.selector = Some(Box::new(selector));
        }
        let free = Arc::new(FreeVolumes::default());
        let follow = free.follow();
        let told = |old: Option<&AnyObject>, new: Option<&AnyObject>| {
            follow(Delta { old, new, initial: false, resync: false }, &mut |_| {});
        };
        let mut there = Vec::new();
        for (volume, went) in volumes.into_iter().zip(went) {
            // It was larger, of another class and free before; some go.
            let mut before = volume.clone();
            before.spec.claim_ref = None;
            before.spec.storage_class_name = "before".into();
            before.spec.capacity.insert("storage", "9Gi");
            let (before, now): (AnyObject, AnyObject) = (Arc::new(before), Arc::new(volume.clone()));
            told(None, Some(&before));
            told(Some(&before), Some(&now));
            if went {
                told(Some(&now), None);
            } else {
                there.push(Arc::new(volume));
            }
        }
        let wish = Wish::of(&wants).unwrap();
        let mut found: Vec<_> = there.iter().filter(|volume| volume.spec.claim_ref.is_some()).cloned().collect();
        if !waits {
            found.extend(free.first(&wish, |volume| wish.suits(&volume).then_some(volume)));
        }
        let name = |volume: Option<Arc<PersistentVolume>>| volume.map(|volume| volume.metadata.name.clone());
        let expected = name(best(&wants, waits, &there).unwrap());
        prop_assert_eq!(name(best(&wants, waits, &found).unwrap()), expected);
    }
}
