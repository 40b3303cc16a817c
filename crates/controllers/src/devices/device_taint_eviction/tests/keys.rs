//! Which keys a change concerns.

use std::sync::Arc;

use super::super::keys::{of_claims, of_rules, of_slices, own, own_rule, rules_of_claims, rules_of_pods};
use super::fixtures::{Bench, at, claim, exists, pod, pod_with_extended_resource, rule, slice};
use coxswain_machinery::api::AnyObject;
use coxswain_machinery::framework::KeyMap;
use coxswain_machinery::informer::Delta;

#[expect(clippy::needless_pass_by_value, reason = "made for the call")]
fn keys(map: &KeyMap, old: Option<AnyObject>, new: Option<AnyObject>) -> Vec<String> {
    let mut keys = Vec::new();
    let delta = Delta { old: old.as_ref(), new: new.as_ref(), initial: false, resync: false };
    map(delta, &mut |key| keys.push(key.to_string()));
    keys
}

#[expect(clippy::unnecessary_wraps, reason = "beside none")]
fn some<T: coxswain_machinery::api::Object>(object: T) -> Option<AnyObject> {
    Some(Arc::new(object))
}

#[test]
fn pods_with_claims_concern_themselves_when_they_are_bound_or_get_claims() {
    let bench = Bench::empty(false);
    let own = own(Arc::clone(&bench.room.timers));
    assert_eq!(keys(&own, None, some(pod())), ["ns/web"]);
    assert!(keys(&own, some(pod()), some(pod())).is_empty(), "nothing has changed");
    let mut bare = pod();
    bare.shape = coxswain_machinery::api::shape::PodShape::default().into();
    assert!(keys(&own, None, some(bare)).is_empty());
    let mut early = pod_with_extended_resource();
    early.status.extended_resource_claim_status = None;
    assert_eq!(keys(&own, some(early), some(pod_with_extended_resource())), ["ns/web"]);
    let mut unbound = pod();
    unbound.spec.node_name = "".into();
    assert_eq!(keys(&own, some(unbound), some(pod())), ["ns/web"]);
    assert!(keys(&own, some(pod()), None).is_empty(), "nobody waits for it");
    let bench = Bench::new(claim(vec![exists("a", Some(30))]), &["a"]);
    bench.reconcile(at(0));
    let own = super::super::keys::own(Arc::clone(&bench.room.timers));
    assert_eq!(keys(&own, some(pod()), None), ["ns/web"]);
}

#[test]
fn claims_slices_and_rules_concern_who_uses_their_devices() {
    let bench = Bench::new(claim(vec![]), &[]);
    let users = bench.rules.users.clone();
    let (claims, slices) = (of_claims(users.clone()), of_slices(users.clone()));
    let rules = of_rules(users, Arc::clone(&bench.room.timers));
    let mut freed = claim(vec![]);
    freed.status.reserved_for.clear();
    assert_eq!(keys(&claims, some(claim(vec![])), some(freed)), ["ns/web"], "whom it was reserved for");
    assert!(keys(&claims, some(claim(vec![])), some(claim(vec![]))).is_empty());

    let with = |taints: &[&str]| some(slice("s", 1, &[("a", taints), ("b", &["z"])]));
    assert_eq!(keys(&slices, with(&[]), with(&["a"])), ["ns/web"]);
    assert!(keys(&slices, with(&[]), with(&["a:NoSchedule"])).is_empty(), "it drives nobody away");
    let of_another = some(slice("s", 1, &[("a", &[]), ("b", &[])]));
    assert!(keys(&slices, with(&[]), of_another).is_empty(), "nobody has that device");
    assert_eq!(keys(&slices, None, some(slice("t", 2, &[]))), ["ns/web"], "the pool is another now");
    assert_eq!(keys(&slices, with(&["a"]), None), ["ns/web"]);

    let of = |device: &str| some(rule(Some(["d", "p", device]), "NoExecute"));
    assert_eq!(keys(&rules, None, of("a")), ["ns/web"]);
    assert_eq!(keys(&rules, of("a"), of("b")), ["ns/web"], "it selected it");
    assert!(keys(&rules, None, of("b")).is_empty());
    assert!(keys(&rules, of("a"), of("a")).is_empty());
}

#[test]
fn rules_are_looked_at_when_those_change_whom_they_concern() {
    let bench = Bench::new(claim(vec![]), &[]);
    let caches = || Arc::clone(&bench.room.caches);
    bench.put(rule(Some(["d", "*", "*"]), "NoExecute"));
    let own_rule = own_rule(Arc::default());
    assert_eq!(keys(&own_rule, None, some(rule(None, "None"))), ["broken"]);
    assert!(keys(&own_rule, some(rule(None, "None")), some(rule(None, "None"))).is_empty());
    assert_eq!(keys(&rules_of_claims(caches()), None, some(claim(vec![]))), ["broken"]);
    assert_eq!(keys(&rules_of_pods(caches()), some(pod()), None), ["broken"]);
    assert!(keys(&rules_of_pods(caches()), some(pod()), some(pod())).is_empty());
    assert_eq!(keys(&rules_of_pods(caches()), None, some(pod_with_extended_resource())), ["broken"]);
    bench.put(rule(Some(["e", "*", "*"]), "NoExecute"));
    assert!(keys(&rules_of_claims(caches()), None, some(claim(vec![]))).is_empty());
}
