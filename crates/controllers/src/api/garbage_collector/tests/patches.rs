//! Patches of built-in objects: strategic ones, which leave bytes of the object that are not UTF-8 as they are.

use serde_json::{Value, json};

use super::super::graph::{AffectedObjects, Graph};
use super::super::plan::plan;
use super::super::view::{Attempt, observe};
use super::fixtures::*;
use coxswain_machinery::api::meta::ObjectMeta;
use coxswain_machinery::framework::{Observation, Read, Reads};
use coxswain_machinery::model::Key;
use coxswain_machinery::model::plan::{Patch, Step, Verb, Write};
use coxswain_machinery::wire::text::held_text;

/// The patches that are planned for an attempt at Pods, which are all there.
fn patches(pods: &[&ObjectMeta], attempt: &Attempt) -> Vec<Patch> {
    let mut graph = Graph::new();
    for pod in pods {
        graph.observe(&POD, pod, &mut AffectedObjects::default());
    }
    let mut reads = Reads::default();
    loop {
        match observe(&graph, &Discovered(resolve), attempt, false, &reads).expect("nothing fails") {
            Observation::Nothing => return Vec::new(),
            Observation::View(view) => return written(plan(&view).steps),
            Observation::Needs(needs) => {
                for need in needs.into_iter().map(Read::from) {
                    let Read::Object(kind, key) = need else { panic!("{need:?}") };
                    let found = pods.iter().find(|pod| Key::of(pod) == key).map(|pod| partial(pod));
                    reads = reads.with_object(kind, key, Ok(found));
                }
            }
        }
    }
}

fn written(steps: Vec<Step>) -> Vec<Patch> {
    let writes = steps.into_iter().flat_map(|step| match step {
        Step::Write(write) => vec![write],
        Step::Each(writes) => writes,
        other => panic!("{other:?}"),
    });
    let patch = |write: Write| match write.verb {
        Verb::Patch(patch) => patch,
        other => panic!("{other:?}"),
    };
    writes.map(patch).collect()
}

fn strategic(metadata: &Value) -> Patch {
    Patch::Strategic(json!({ "metadata": metadata }))
}

fn removal(uid: &str) -> Value {
    json!({ "$patch": "delete", "uid": uid })
}

#[test]
fn lost_owners_of_a_built_in_object_are_removed_by_their_uids() {
    let (solid, lost) = (object("solid"), object("lost"));
    let dependent = object("dependent").owned_by(&POD, &lost).owned_by(&POD, &solid);
    let found = patches(&[&dependent, &solid], &Attempt::Delete(uid(&dependent)));
    let expected = json!({ "uid": "uid-dependent", "ownerReferences": [removal("uid-lost")] });
    assert_eq!(found, [strategic(&expected)]);
}

#[test]
fn reference_is_removed_by_its_position_when_another_has_its_uid() {
    let solid = object("solid");
    let misnamed = ObjectMeta { uid: solid.uid.clone(), ..object("misnamed") };
    let dependent = object("dependent").owned_by(&POD, &misnamed).owned_by(&POD, &solid);
    let found = patches(&[&dependent, &solid], &Attempt::Delete(uid(&dependent)));
    assert!(matches!(found.as_slice(), [Patch::Json(_)]), "{found:?}");
}

#[test]
fn orphans_of_a_built_in_owner_lose_their_references_by_its_uid() {
    let owner = object("owner").orphaning();
    let one = object("one").owned_by(&POD, &owner);
    let found = patches(&[&owner, &one], &Attempt::Orphan(uid(&owner)));
    assert_eq!(
        found,
        [
            strategic(&json!({ "uid": "uid-one", "ownerReferences": [removal("uid-owner")] })),
            strategic(&json!({ "uid": "uid-owner", "$deleteFromPrimitiveList/finalizers": ["orphan"] })),
        ]
    );
}

#[test]
fn circle_of_built_in_objects_is_broken_by_uid_unless_json_cannot_carry_it() {
    let (one, other) = (object("one"), object("other"));
    let one = one.blocking(&POD, &other).foreground();
    let other = other.blocking(&POD, &one).foreground();
    let found = patches(&[&one, &other], &Attempt::Delete(uid(&one)));
    let change = json!({ "uid": "uid-other", "blockOwnerDeletion": false });
    assert_eq!(found, [strategic(&json!({ "uid": "uid-one", "ownerReferences": [change] }))]);

    let odd = ObjectMeta { uid: (&*held_text(b"uid-\xff")).into(), ..object("odd") };
    let one = object("one").blocking(&POD, &odd).foreground();
    let odd = odd.blocking(&POD, &one).foreground();
    assert_eq!(patches(&[&one, &odd], &Attempt::Delete(uid(&one))), []);
}
