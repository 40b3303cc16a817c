//! What the conditions say.

use super::fixtures::{DELETED_AT, World};
use coxswain_machinery::api::core::NamespaceCondition;
use coxswain_machinery::wire::Time;

const DISCOVERY: &str = "NamespaceDeletionDiscoveryFailure";
const PARSING: &str = "NamespaceDeletionGroupVersionParsingFailure";
const DELETION: &str = "NamespaceDeletionContentFailure";
const CONTENT: &str = "NamespaceContentRemaining";
const FINALIZERS: &str = "NamespaceFinalizersRemaining";

#[track_caller]
fn says(world: &World, kind: &str, status: &str, reason: &str, message: &str) {
    assert_eq!(world.condition(kind), [status, reason, message].map(str::to_owned), "{kind}");
}

#[test]
fn they_say_what_remains() {
    let mut world = World::new();
    let held = |finalizers: &'static [&'static str]| {
        move |meta: &mut coxswain_machinery::api::meta::ObjectMeta| {
            meta.finalizers = finalizers.iter().map(|each| (*each).into()).collect();
        }
    };
    world.add(1, "one", held(&["ex.io/b", "ex.io/a"]));
    world.add(1, "two", held(&["ex.io/a"]));
    world.add(2, "three", held(&["ex.io/a"]));
    world.add(2, "free", |_| {});
    world.reconcile();
    says(&world, DISCOVERY, "False", "ResourcesDiscovered", "All resources successfully discovered");
    says(&world, PARSING, "False", "ParsedGroupVersions", "All legacy kube types successfully parsed");
    let all = "All content successfully deleted, may be waiting on finalization";
    says(&world, DELETION, "False", "ContentDeleted", all);
    let remaining = "Some resources are remaining: configmaps. has 2 resource instances, controllerrevisions.apps has 1 resource instances";
    says(&world, CONTENT, "True", "SomeResourcesRemain", remaining);
    let finalizers = "Some content in the namespace has finalizers remaining: \
                      ex.io/a in 3 resource instances, ex.io/b in 1 resource instances";
    says(&world, FINALIZERS, "True", "SomeFinalizersRemain", finalizers);

    // A count that changes is no transition.
    world.age = 60;
    world.remove(1, "two");
    world.reconcile();
    assert!(world.condition(FINALIZERS)[2].contains("ex.io/a in 2 resource instances"));
    let since = |world: &World, kind: &str| {
        let namespace = world.namespace().unwrap();
        namespace
            .status
            .conditions
            .iter()
            .find(|held| held.r#type == kind)
            .unwrap()
            .last_transition_time
            .map(Time::seconds)
    };
    assert_eq!(since(&world, FINALIZERS), Some(DELETED_AT + 10));
    world.stale.push("b.ex.io/v1");
    world.stale.push("a.ex.io/v2");
    world.reconcile();
    assert_eq!(
        (since(&world, DISCOVERY), since(&world, PARSING)),
        (Some(DELETED_AT + 60), Some(DELETED_AT + 10))
    );
    let failed = "Discovery failed for some groups, 2 failing: unable to retrieve the complete list of server APIs: \
                  a.ex.io/v2: stale GroupVersion discovery: a.ex.io/v2, b.ex.io/v1: stale GroupVersion discovery: b.ex.io/v1";
    says(&world, DISCOVERY, "True", "DiscoveryFailed", failed);
}

#[test]
fn they_say_what_failed() {
    let mut world = World::new();
    world.add(1, "settings", |_| {});
    world.add(2, "thing", |_| {});
    world.wrong().refused.extend([1, 2]);
    world.reconcile();
    let failed = "Failed to delete all resource types, 2 remaining: configmaps \"Unknown\" is forbidden: no, \
                  controllerrevisions \"Unknown\" is forbidden: no";
    says(&world, DELETION, "True", "ContentDeletionFailed", failed);
    assert_eq!(world.condition(CONTENT)[0], "True");
    assert_eq!(world.condition(FINALIZERS)[0], "False");
}

#[test]
fn those_of_others_stay_and_a_phase_that_lags_is_set() {
    let mut world = World::new();
    world.add(1, "held", |meta| meta.finalizers = vec!["ex.io/a".into()]);
    world.edit(|namespace| {
        let mine = NamespaceCondition { r#type: "Mine".into(), ..NamespaceCondition::default() };
        namespace.status.phase = "Active".into();
        namespace.status.conditions.push(mine);
    });
    world.reconcile();
    let status = world.namespace().unwrap().status.clone();
    assert_eq!((status.phase.as_str(), status.conditions.len()), ("Terminating", 6));
    assert_eq!(status.conditions[0].r#type, "Mine");
}
