//! Garbage collection under faults: chains, fans, foreground and orphans end as they do without, whoever has a living owner
//! lives, and an owner that was made anew is another one.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Resource;
use kube::api::{Api, DeleteParams, ListParams, ObjectMeta, Patch, PatchParams};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::line::WriteFault;
use super::stage::{LIMIT, Outcome, Place, Scenario, Stage, alone};
use crate::harness::{Caller, eventually, until};

/// A finalizer of somebody else's.
const FOREIGN: &str = "tests.coxswain.dev/held";

/// What there is in the beginning, by kind and name, with its owners. A `!` is before one that must wait for it.
const OBJECTS: &[(&str, &str, &[&str])] = &[
    ("ConfigMap", "live", &[]),
    ("Secret", "bystander", &["live"]),
    ("ConfigMap", "chain", &[]),
    ("Secret", "chain-1", &["chain"]),
    ("ConfigMap", "chain-2", &["chain-1"]),
    ("Secret", "chain-3", &["chain-2"]),
    ("Secret", "fan", &[]),
    ("ConfigMap", "fan-1", &["fan"]),
    ("ConfigMap", "fan-2", &["fan"]),
    ("Secret", "fan-3", &["fan"]),
    ("ConfigMap", "tree", &[]),
    ("Secret", "tree-1", &["!tree"]),
    ("ConfigMap", "tree-2", &["!tree-1"]),
    ("Secret", "tree-idle", &["tree"]),
    ("ConfigMap", "parent", &[]),
    ("Secret", "orphan-1", &["parent"]),
    ("ConfigMap", "orphan-2", &["live", "!parent"]),
    ("ConfigMap", "dead", &[]),
    ("ConfigMap", "shared", &["dead", "live"]),
    ("ConfigMap", "holder", &[]),
    ("Secret", "held", &["holder"]),
    ("ConfigMap", "reborn", &[]),
    ("Secret", "reborn-1", &["reborn"]),
    ("ConfigMap", "reborn-2", &["!reborn"]),
];

struct Collection;

fn kind_of(name: &str) -> &'static str {
    OBJECTS.iter().find(|(_, held, _)| *held == name).map_or("ConfigMap", |(kind, ..)| kind)
}

/// A reference to an owner with this UID.
fn reference(owner: &str, uid: &str) -> Value {
    let name = owner.trim_start_matches('!');
    json!({
        "apiVersion": "v1", "kind": kind_of(name), "name": name, "uid": uid,
        "blockOwnerDeletion": owner.starts_with('!'),
    })
}

/// Creates an object; its UID.
async fn create(place: &Place, kind: &str, name: &str, owners: &[Value]) -> String {
    let finalizers: &[&str] = if name == "held" { &[FOREIGN] } else { &[] };
    let body = json!({ "metadata": { "name": name, "ownerReferences": owners, "finalizers": finalizers } });
    let meta = if kind == "Secret" {
        place.namespace.create::<Secret>(body).await.metadata
    } else {
        place.namespace.create::<ConfigMap>(body).await.metadata
    };
    meta.uid.expect("a UID")
}

async fn delete(place: &Place, name: &str, how: &DeleteParams) {
    if kind_of(name) == "Secret" {
        drop(place.namespace.api::<Secret>().delete(name, how).await.expect("deleted"));
    } else {
        drop(place.namespace.api::<ConfigMap>().delete(name, how).await.expect("deleted"));
    }
}

async fn metadata<K>(place: &Place) -> Vec<ObjectMeta>
where
    K: Resource<Scope = NamespaceResourceScope> + Clone + DeserializeOwned + std::fmt::Debug,
    K::DynamicType: Default,
{
    let api: Api<K> = place.namespace.api();
    let list = api.list_metadata(&ListParams::default()).await.expect("a list");
    list.items.into_iter().map(|each| each.metadata).collect()
}

async fn everything(place: &Place) -> Vec<ObjectMeta> {
    let mut all = metadata::<ConfigMap>(place).await;
    all.extend(metadata::<Secret>(place).await);
    all
}

async fn names(place: &Place) -> BTreeSet<String> {
    everything(place).await.into_iter().filter_map(|meta| meta.name).collect()
}

impl Scenario for Collection {
    const CONTROLLER: &'static str = "garbage-collector-controller";
    const ACCOUNT: &'static str = "generic-garbage-collector";

    async fn prepare(place: &Place) {
        let mut uids: BTreeMap<&str, String> = BTreeMap::new();
        for (kind, name, owners) in OBJECTS {
            let references: Vec<Value> =
                owners.iter().map(|owner| reference(owner, &uids[owner.trim_start_matches('!')])).collect();
            let uid = create(place, kind, name, &references).await;
            uids.insert(name, uid);
        }
    }

    async fn act(place: &Place) {
        let (background, foreground) = (DeleteParams::background(), DeleteParams::foreground());
        for (name, how) in [
            ("chain", &background),
            ("fan", &background),
            ("tree", &foreground),
            ("parent", &DeleteParams::orphan()),
            ("dead", &background),
            ("holder", &background),
            ("reborn", &background),
        ] {
            delete(place, name, how).await;
        }
        let uid = create(place, "ConfigMap", "reborn", &[]).await;
        create(place, "Secret", "child", &[reference("!reborn", &uid)]).await;
    }

    async fn outcome(place: &Place) -> Outcome {
        let all = everything(place).await;
        let uids: BTreeSet<&String> = all.iter().filter_map(|meta| meta.uid.as_ref()).collect();
        let owners = |meta: &ObjectMeta| -> Vec<String> {
            let owners = meta.owner_references.iter().flatten();
            let described = owners.map(|owner| {
                let gone = if uids.contains(&owner.uid) { "" } else { ", gone" };
                format!("{}{gone}", owner.name)
            });
            described.collect()
        };
        let described = all.iter().map(|meta| {
            let state = json!({
                "owners": owners(meta),
                "finalizers": meta.finalizers.clone().unwrap_or_default(),
                "deleting": meta.deletion_timestamp.is_some(),
            });
            (meta.name.clone().unwrap_or_default(), state)
        });
        described.collect()
    }

    fn expected() -> Outcome {
        let left: [(&str, &[&str]); 7] = [
            ("live", &[]),
            ("bystander", &["live"]),
            ("orphan-1", &[]),
            ("orphan-2", &["live"]),
            ("shared", &["live"]),
            ("reborn", &[]),
            ("child", &["reborn"]),
        ];
        let state = |owners: &[&str]| json!({ "owners": owners, "finalizers": [], "deleting": false });
        let mut expected: Outcome =
            left.into_iter().map(|(name, owners)| (name.to_owned(), state(owners))).collect();
        let held = json!({ "owners": ["holder, gone"], "finalizers": [FOREIGN], "deleting": true });
        expected.insert("held".to_owned(), held);
        expected
    }
}

/// The graph around an object, as the manager shows it.
async fn graph(stage: &Stage<'_>, uid: &str) -> String {
    let page = format!("/debug/controllers/garbage-collector-controller/graph?uid={uid}");
    stage.manager.page(Caller::Admin, &page).await.text
}

/// Its watches of ConfigMaps are late. What it reads live decides.
async fn lags(stage: &Stage<'_>) {
    let place = stage.empty::<Collection>().await;
    stage.leave(&place);
    let old = create(&place, "Secret", "bystander", &[]).await;
    let new = create(&place, "Secret", "fan", &[]).await;
    let reborn = create(&place, "ConfigMap", "reborn", &[]).await;
    for (kind, name, owner, uid) in [
        ("ConfigMap", "rescued", "bystander", &old),
        ("ConfigMap", "doomed", "bystander", &old),
        ("Secret", "before", "reborn", &reborn),
    ] {
        create(&place, kind, name, &[reference(owner, uid)]).await;
    }
    for (uid, name) in [(&old, "rescued"), (&old, "doomed"), (&reborn, "before")] {
        let knows = async || graph(stage, uid).await.contains(&format!("name=\"{name}\""));
        eventually(&format!("{name} in the graph"), LIMIT, knows).await;
    }
    stage.line.hold("configmaps");
    let owners = json!({ "metadata": { "ownerReferences": [reference("fan", &new)] } });
    let patch = Patch::Merge(owners);
    let maps = place.namespace.api::<ConfigMap>();
    maps.patch("rescued", &PatchParams::default(), &patch).await.expect("it has another owner");
    delete(&place, "bystander", &DeleteParams::background()).await;
    // An owner that nobody has told of, and one that is not what it was.
    let late = create(&place, "ConfigMap", "late", &[]).await;
    delete(&place, "reborn", &DeleteParams::background()).await;
    let reborn = create(&place, "ConfigMap", "reborn", &[]).await;
    let young = create(&place, "Secret", "young", &[reference("late", &late)]).await;
    let after = create(&place, "Secret", "after", &[reference("reborn", &reborn)]).await;
    for uid in [&young, &after] {
        let knows = async || graph(stage, uid).await.contains(uid.as_str());
        eventually("it is in the graph", LIMIT, knows).await;
    }
    let is_gone = |name: &'static str| {
        let place = &place;
        async move || !names(place).await.contains(name)
    };
    eventually("the end of doomed", LIMIT, is_gone("doomed")).await;
    let left = ["after", "before", "fan", "late", "reborn", "rescued", "young"].map(str::to_owned);
    assert_eq!(names(&place).await, BTreeSet::from(left), "while it lags");
    stage.line.release();
    eventually("the end of before", LIMIT, is_gone("before")).await;
    // It has heard everything when it has heard of this.
    let last = create(&place, "ConfigMap", "last", &[]).await;
    create(&place, "ConfigMap", "last-1", &[reference("last", &last)]).await;
    delete(&place, "last", &DeleteParams::background()).await;
    eventually("the end of the last", LIMIT, is_gone("last-1")).await;
    let left = ["after", "fan", "late", "reborn", "rescued", "young"].map(str::to_owned);
    assert_eq!(names(&place).await, BTreeSet::from(left), "after it lagged");
}

/// Between its last look at an object and the delete somebody gives it a living owner.
async fn rescued_in_time(stage: &Stage<'_>) {
    let place = stage.empty::<Collection>().await;
    stage.leave(&place);
    stage.line.set_fault(place.name(), WriteFault::None);
    let live = create(&place, "ConfigMap", "live", &[]).await;
    let dead = create(&place, "ConfigMap", "dead", &[]).await;
    let all: Vec<String> = (0..5).map(|at| format!("rescued-{at}")).collect();
    for name in &all {
        create(&place, "ConfigMap", name, &[reference("dead", &dead)]).await;
        let owners = json!({ "metadata": { "ownerReferences": [reference("live", &live)] } });
        stage.line.surprise(place.name(), name, owners);
    }
    create(&place, "ConfigMap", "doomed", &[reference("dead", &dead)]).await;
    delete(&place, "dead", &DeleteParams::background()).await;
    let account = async || stage.line.account(place.name());
    // One object can conflict several times: its owners may have been read just before the living owner was added.
    until("five conflicts", LIMIT, account, |account| account.conflicts() >= 5).await;
    let mut left: BTreeSet<String> = all.into_iter().collect();
    left.insert("live".to_owned());
    until("those left", LIMIT, || names(&place), |names| *names == left).await;
    assert_eq!(stage.line.account(place.name()).carried, 1, "only one was to go");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_those_go_who_must() {
    let own = alone().await;
    let stage = Stage::start::<Collection>(&own.plane).await;
    stage.endures_faults::<Collection>().await;
    lags(&stage).await;
    rescued_in_time(&stage).await;
    stage.stays::<Collection>().await;
}
