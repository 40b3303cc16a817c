//! Objects whose names have any character are found, changed and deleted by the client that ships, and nothing else is.

use jiff::Timestamp;
use serde_json::json;

use coxswain_machinery::api::kinds::CLUSTER_ROLES;
use coxswain_machinery::client::FieldSelector;
use coxswain_machinery::model::plan::{Patch, Step, Verb, Write};
use coxswain_machinery::model::{Key, Plan};

use crate::{Query, Served};

const NOW: i64 = 1_800_000_000;

/// Names with each character of ASCII: in the middle, at the beginning and alone.
fn names() -> impl Iterator<Item = String> {
    let characters = (0..=127_u8).map(char::from);
    characters.flat_map(|letter| [format!("a{letter}b"), format!("{letter}b"), letter.to_string()])
}

fn is_legal(name: &str) -> bool {
    name != "." && !name.contains(['/', '%'])
}

fn served() -> Served {
    let served = Served::new("test", Timestamp::from_second(NOW).expect("a time"));
    let others = ["a", "b", "watch", "other"].map(str::to_owned);
    let mut names: Vec<String> = names().filter(|name| is_legal(name)).chain(others).collect();
    names.sort_unstable();
    names.dedup();
    for name in names {
        let role = json!({ "metadata": { "name": name } });
        served.model().create("user", "clusterroles", "", role).expect("it is new");
    }
    served
}

fn write(served: &Served, name: &str, verb: Verb) -> usize {
    let steps = vec![Step::Write(Write::new(&CLUSTER_ROLES, Key::new("", name), verb))];
    served.execute(Plan { steps, ..Plan::<()>::default() }).failures.len()
}

#[test]
fn name_with_any_character_means_that_object_alone() {
    let served = served();
    let count = || served.model().all("clusterroles", "").count();
    let labeled = || {
        let model = served.model();
        let has =
            |stored: &&std::sync::Arc<crate::Stored>| stored.json["metadata"]["labels"]["seen"] == "yes";
        model.all("clusterroles", "").filter(has).count()
    };
    let mut deleted = std::collections::BTreeSet::new();
    for name in names().filter(|name| is_legal(name)) {
        if deleted.contains(&name) {
            continue;
        }
        let (before, marked) = (count(), labeled());
        let found = served
            .read(&CLUSTER_ROLES, &Key::new("", name.as_str()))
            .expect("an answer")
            .expect("it is there");
        assert_eq!(found.meta().name, *name);
        let patch = Patch::Merge(json!({ "metadata": { "labels": { "seen": "yes" } } }));
        assert_eq!(write(&served, &name, Verb::Patch(patch)), 0, "{name:?}");
        assert_eq!((count(), labeled()), (before, marked + 1), "{name:?}");
        let delete = Verb::Delete {
            uid: found.meta().uid.clone(),
            resource_version: None,
            propagation: None,
            grace_period: None,
        };
        assert_eq!(write(&served, &name, delete), 0, "{name:?}");
        assert_eq!((count(), labeled()), (before - 1, marked), "{name:?}");
        assert!(served.read(&CLUSTER_ROLES, &Key::new("", name.as_str())).expect("an answer").is_none());
        deleted.insert(name);
    }
    let left = ["other", "watch"];
    assert_eq!(count(), left.len());
}

#[test]
fn name_that_is_no_segment_is_not_sent() {
    let served = served();
    let count = served.model().all("clusterroles", "").count();
    served.log();
    for name in ["", ".", "..", "a/b", "a%62", "%2e%2e", "../clusterroles/a"] {
        let error = served.read(&CLUSTER_ROLES, &Key::new("", name)).expect_err("it cannot be sent");
        assert!(error.is_unaddressable(), "{error}");
        let delete =
            Verb::Delete { uid: "u".into(), resource_version: None, propagation: None, grace_period: None };
        assert_eq!(write(&served, name, delete), 1, "{name:?}");
    }
    assert!(served.log().is_empty());
    assert_eq!(served.model().all("clusterroles", "").count(), count);
}

#[test]
fn field_selector_of_a_name_selects_that_object_alone() {
    let served = served();
    let model = served.model();
    for name in names().filter(|name| is_legal(name)) {
        let query = Query::new(&CLUSTER_ROLES, false, "", FieldSelector::name(&name).as_str(), "");
        let selected = model.all("clusterroles", "").filter(|stored| query.selects(stored));
        assert_eq!(selected.map(|stored| stored.place.name.as_str()).collect::<Vec<_>>(), [name.as_str()]);
    }
}
