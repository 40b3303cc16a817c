//! Stories with crashes, stale caches and many claims: no volume has two claims, and no claim two volumes.

use super::*;
use proptest::prelude::*;

/// Both loops look at everything, until nothing more is written.
fn settle(world: &World, claims: &[&str], volumes: &[&str]) {
    for _ in 0..12 {
        world.show_all();
        let mut told = Vec::new();
        for name in volumes {
            told.extend(world.volumes(name));
        }
        for name in claims {
            told.extend(world.claims(name));
        }
        if !told.iter().any(|told| told.starts_with("update") || told.starts_with("create")) {
            return;
        }
    }
    panic!("it does not settle");
}

/// Every claim that is bound has a volume of its own that says the same.
fn assert_one_to_one(world: &World, claims: &[&str], volumes: &[&str]) {
    for name in claims {
        let claim = world.claim(name);
        if claim.spec.volume_name.is_empty() {
            continue;
        }
        let volume = world.volume(&claim.spec.volume_name);
        let held = volume.spec.claim_ref.as_ref().unwrap();
        assert_eq!((&held.name, &held.uid), (&claim.metadata.name, &claim.metadata.uid.to_str()));
        let linked = volumes.iter().map(|name| world.volume(name));
        let linked = linked.filter(|volume| {
            volume.spec.claim_ref.as_ref().is_some_and(|held| held.uid == claim.metadata.uid)
        });
        assert_eq!(linked.count(), 1, "{name} has one volume");
    }
}

#[test]
fn what_a_crash_leaves_behind_each_write_is_finished_by_the_next_process() {
    for writes in 0..=4 {
        let world = World::new();
        world.put_claim(&claim("data")).put_volume(&volume("vol")).put_volume(&volume("wol")).show_all();
        world.dies_after(writes);
        world.claims("data");
        // Another process, which remembers nothing.
        let next = world.restarted();
        settle(&next, &["data"], &["vol", "wol"]);
        let (claim, volume) = (next.claim("data"), next.volume("vol"));
        assert_eq!(
            (claim.status.phase.as_str(), claim.spec.volume_name.as_str()),
            ("Bound", "vol"),
            "{writes}"
        );
        assert_eq!(volume.status.phase, "Bound");
        assert!(facts::has(&volume.metadata, facts::BOUND_BY_CONTROLLER));
        assert!(facts::has(&claim.metadata, facts::BOUND_BY_CONTROLLER));
        assert!(next.volume("wol").spec.claim_ref.is_none(), "no second volume is taken");
    }
}

#[test]
fn a_takeover_writes_nothing_that_is_there() {
    let (claim, volume) = bound_pair();
    let world = World::new();
    world.put_claim(&claim).put_volume(&volume).show_all();
    assert_eq!(world.claims("data"), [""; 0]);
    assert_eq!(world.volumes("vol"), [""; 0]);
    let mut other_words = claim;
    other_words.metadata.annotations =
        labels(&[(facts::BIND_COMPLETED, "true"), (facts::BOUND_BY_CONTROLLER, "")]);
    world.put_claim(&other_words).show_all();
    assert_eq!(world.claims("data"), [""; 0], "what annotations say plays no part");
}

#[test]
fn many_claims_take_as_many_volumes_without_a_conflict_while_the_caches_lag() {
    let world = World::new();
    let names: Vec<String> = (0..20).map(|at| format!("n{at:02}")).collect();
    for name in &names {
        world.put_claim(&claim(name)).put_volume(&volume(name));
    }
    world.show_all();
    // No cache shows anything of what is written.
    for name in &names {
        let told = world.claims(name);
        assert_eq!(told.len(), 4, "{told:?}");
    }
    for name in &names {
        assert_eq!(world.volumes(name), [""; 0], "the other loop knows what was written");
    }
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    assert_one_to_one(&world, &names, &names);
    world.show_all();
    for name in &names {
        assert_eq!(world.claims(name), [""; 0]);
        assert_eq!(world.volumes(name), [""; 0]);
    }
    assert_eq!(world.binder.ledger.sizes(), (0, 0), "nothing is remembered that the caches show");
}

#[test]
fn a_volume_that_was_made_available_a_moment_ago_is_bound_without_a_conflict() {
    let world = World::new();
    let mut new = volume("vol");
    new.status.phase = "Pending".into();
    world.put_claim(&claim("data")).put_volume(&new).show_all();
    assert_eq!(world.volumes("vol"), ["update persistentvolumes/status vol"]);
    let told = world.claims("data");
    assert_eq!(told.len(), 4, "the cache shows the old version: {told:?}");
    assert_eq!(world.claim("data").status.phase, "Bound");
}

#[test]
fn a_volume_that_is_being_bound_is_left_alone() {
    let world = World::new();
    world.put_claim(&claim("data")).put_volume(&volume("vol")).show_all();
    let key = Key::new("ns", "data");
    let reserves = Some(("vol".into(), world.volume("vol").metadata.resource_version.clone()));
    let ledger = &world.binder.ledger;
    ledger.planned(&key, &Note { reserves, ..Note::default() });
    let view = world.observe(&VolumeRoom(Arc::clone(&world.binder)), &Key::new("", "vol"), &[], &[]);
    let plan = VolumeRoom::plan(&view.unwrap().unwrap(), now());
    assert!(plan.is_empty() && plan.requeue_after.is_some());
    world.put_claim(&claim("other")).show_all();
    assert!(!world.claims("other").iter().any(|told| told.starts_with("update persistentvolumes")));
    ledger.ended(&key, true);
    assert!(world.claims("other").contains(&"update persistentvolumes vol".to_owned()), "it failed");
}

#[test]
fn who_was_faster_is_seen_by_the_conflict() {
    let world = World::new();
    world.put_claim(&claim("data")).put_claim(&claim("other")).put_volume(&volume("vol")).show_all();
    // Somebody else, a user, has linked the volume.
    let mut taken = volume("vol");
    taken.spec.claim_ref = reference(&claim("other"), true);
    world.put_volume(&taken);
    assert_eq!(world.claims("data"), ["update persistentvolumes vol refused"]);
    settle(&world, &["data", "other"], &["vol"]);
    assert_eq!(world.claim("other").spec.volume_name, "vol");
    assert_eq!(world.claim("data").spec.volume_name, "");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn no_interleaving_binds_a_volume_twice(steps in proptest::collection::vec((0_usize..8, 0_usize..3, 0_usize..5), 1..40)) {
        let names = ["a", "b", "c"];
        let mut world = World::new();
        for name in names {
            world.put_claim(&claim(name)).put_volume(&volume(name));
        }
        world.show_all();
        for (what, which, writes) in steps {
            let name = names[which];
            match what {
                0 => world.show(&[&PERSISTENT_VOLUMES]),
                1 => world.show(&[&PERSISTENT_VOLUME_CLAIMS]),
                2 => {
                    // The process ends in the midst of it.
                    world.dies_after(writes);
                    world.claims(name);
                    world = world.restarted();
                }
                3 => {
                    // A user links a free volume.
                    let held = world.volume(name);
                    if held.spec.claim_ref.is_none() {
                        let mut taken = (*held).clone();
                        taken.spec.claim_ref = reference(&claim(names[writes % 3]), writes > 2);
                        world.put_volume(&taken);
                    }
                }
                4 | 5 => drop(world.volumes(name)),
                _ => drop(world.claims(name)),
            }
        }
        settle(&world, &names, &names);
        assert_one_to_one(&world, &names, &names);
    }
}
