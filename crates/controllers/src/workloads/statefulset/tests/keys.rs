//! Which keys a change concerns.

use std::sync::Arc;

use super::fixtures::*;
use super::*;
use coxswain_machinery::api::AnyObject;

/// The keys that a map tells of a change.
fn told(map: &KeyMap, change: (Option<AnyObject>, Option<AnyObject>)) -> Vec<String> {
    let (old, new) = change;
    let mut keys = Vec::new();
    map(Delta { old: old.as_ref(), new: new.as_ref(), initial: false, resync: false }, &mut |key| {
        keys.push(key.to_string());
    });
    keys
}

#[test]
fn pods_concern_their_set_or_those_that_select_them() {
    let bench = Bench::of(&set(|_| {}), &[]);
    let map = pod_keys(Lister::new(Arc::clone(&bench.sets)), Selecting::new(&bench.sets));
    let mine = |change: fn(&mut Pod)| pod(0, "web:1", change) as AnyObject;
    assert_eq!(told(&map, (None, Some(mine(|_| {})))), ["default/web"]);
    assert_eq!(told(&map, (Some(mine(|_| {})), None)), ["default/web"]);
    assert_eq!(told(&map, (Some(mine(|_| {})), Some(mine(unready)))), ["default/web"]);
    assert_eq!(told(&map, (None, Some(mine(orphaned)))), ["default/web"]);
    assert_eq!(told(&map, (Some(mine(orphaned)), None)), [""; 0]);
}

#[test]
fn a_claim_that_is_gone_concerns_the_set_whose_it_was() {
    let named = |name: &'static str| {
        set(|set| {
            set.metadata.name = name.into();
            set.spec.volume_claim_templates = vec![claim_template("data"), claim_template("more-data")];
        })
    };
    let bench = Bench::of(&named("web"), &[]);
    bench.sets.upsert(&(named("data-web") as AnyObject));
    let map = claim_keys(Lister::new(Arc::clone(&bench.sets)));
    let claim = |name: &str| claim(name, |_| {}) as AnyObject;
    assert_eq!(told(&map, (Some(claim("data-web-0")), None)), ["default/web"]);
    assert_eq!(told(&map, (Some(claim("more-data-web-0")), None)), ["default/web"]);
    assert_eq!(told(&map, (Some(claim("data-data-web-1")), None)), ["default/data-web"]);
    assert_eq!(told(&map, (Some(claim("other-web-0")), None)), [""; 0]);
    assert_eq!(told(&map, (Some(claim("web")), None)), [""; 0]);
    assert_eq!(told(&map, (None, Some(claim("data-web-0")))), [""; 0]);
}

#[test]
fn deleted_claim_reads_a_bounded_part_of_the_templates() {
    let with = |name: &'static str, templates: usize| {
        set(|set| {
            set.metadata.name = name.into();
            let names = (0..templates).map(|at| format!("volume{at}"));
            set.spec.volume_claim_templates = names.map(|name| claim_template(&name)).collect();
        })
    };
    let gone = |bench: &Bench, name: &str| {
        let map = claim_keys(Lister::new(Arc::clone(&bench.sets)));
        told(&map, (Some(claim(name, |_| {}) as AnyObject), None))
    };
    // All templates of this one are read.
    let bench = Bench::of(&with("web", 20), &[]);
    assert_eq!(gone(&bench, "volume19-web-0"), ["default/web"]);
    assert_eq!(gone(&bench, "other-web-0"), [""; 0]);
    // This one has more than are read, and then nothing is left for the next.
    bench.sets.upsert(&(with("a-web", 20_000) as AnyObject));
    assert_eq!(gone(&bench, "other-a-web-0"), ["default/a-web", "default/web"]);
    assert_eq!(gone(&bench, "other-web-0"), [""; 0]);
    // So has one with a single large template.
    let large = claim_template(&"x".repeat(MOST_READ));
    bench.sets.upsert(&(set(|set| set.spec.volume_claim_templates = vec![large]) as AnyObject));
    assert_eq!(gone(&bench, "other-web-0"), ["default/web"]);
}
