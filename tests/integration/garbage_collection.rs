//! Garbage collection on a real API server: what goes with its owner, what waits, what is cut loose, and that watches
//! follow definitions that come and go.

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Event, Secret};
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use serde_json::{Value, json};

use crate::harness::{Caller, Cluster, ControlPlane, Namespace, object, until};

/// Longer than discovery is remembered for, twice.
const LIMIT: Duration = Duration::from_mins(2);
/// A finalizer of somebody else's.
const FOREIGN: &str = "tests.coxswain.dev/held";

/// An owner reference to a ConfigMap.
fn to(owner: &ConfigMap) -> Value {
    let meta = &owner.metadata;
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "name": meta.name, "uid": meta.uid })
}

fn blocking(owner: &ConfigMap) -> Value {
    let mut reference = to(owner);
    reference["blockOwnerDeletion"] = true.into();
    reference
}

/// A reference to nobody.
fn dangling() -> Value {
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "name": "nobody", "uid": "5d1ba0b2-0000-4000-8000-000000000000" })
}

async fn map(namespace: &Namespace, name: &str, owners: &[Value]) -> ConfigMap {
    held(namespace, name, owners, &[]).await
}

async fn held(namespace: &Namespace, name: &str, owners: &[Value], finalizers: &[&str]) -> ConfigMap {
    let metadata = json!({ "name": name, "ownerReferences": owners, "finalizers": finalizers });
    namespace.create(json!({ "metadata": metadata })).await
}

/// The names of the ConfigMaps that are there, but for the published bundle.
async fn names(namespace: &Namespace) -> BTreeSet<String> {
    let list = namespace.api::<ConfigMap>().list(&ListParams::default()).await.expect("a list");
    let names = list.items.into_iter().filter_map(|each| each.metadata.name);
    names.filter(|name| name != "kube-root-ca.crt").collect()
}

async fn left(namespace: &Namespace, expected: &[&str]) {
    let expected: BTreeSet<String> = expected.iter().map(|name| (*name).to_owned()).collect();
    let what = format!("{expected:?} left");
    until(&what, LIMIT, || names(namespace), |names| *names == expected).await;
}

async fn release(namespace: &Namespace, name: &str) {
    let patch = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
    let released = namespace.api::<ConfigMap>().patch(name, &PatchParams::default(), &patch).await;
    released.expect("released");
}

async fn cluster() -> (&'static ControlPlane, Cluster) {
    let plane = ControlPlane::shared();
    (plane, plane.cluster().await)
}

#[tokio::test]
async fn dependents_go_after_their_owner_and_others_stay() {
    let (_, cluster) = cluster().await;
    let namespace = cluster.namespace("background").await;
    let owner = map(&namespace, "owner", &[]).await;
    let middle = map(&namespace, "middle", &[to(&owner)]).await;
    map(&namespace, "leaf", &[to(&middle)]).await;
    let other = map(&namespace, "other", &[]).await;
    map(&namespace, "kept", &[to(&owner), to(&other)]).await;
    map(&namespace, "free", &[]).await;
    let maps = namespace.api::<ConfigMap>();
    maps.delete("owner", &DeleteParams::background()).await.expect("deleted");
    left(&namespace, &["free", "kept", "other"]).await;
    let owners =
        || async { maps.get("kept").await.expect("kept").metadata.owner_references.unwrap_or_default() };
    let owners = until("one owner", LIMIT, owners, |owners| owners.len() == 1).await;
    assert_eq!(owners[0].name, "other");
}

#[tokio::test]
async fn an_owner_waits_in_the_foreground_for_those_who_block_it() {
    let (_, cluster) = cluster().await;
    let namespace = cluster.namespace("foreground").await;
    let owner = map(&namespace, "owner", &[]).await;
    let blocker = held(&namespace, "blocker", &[blocking(&owner)], &[FOREIGN]).await;
    map(&namespace, "leaf", &[blocking(&blocker)]).await;
    held(&namespace, "idler", &[to(&owner)], &[FOREIGN]).await;
    let maps = namespace.api::<ConfigMap>();
    maps.delete("owner", &DeleteParams::foreground()).await.expect("deleted");
    left(&namespace, &["blocker", "idler", "owner"]).await;
    let deleting = || async {
        let list = maps
            .list(&ListParams::default().fields("metadata.name!=kube-root-ca.crt"))
            .await
            .expect("a list");
        list.items.iter().all(|each| each.metadata.deletion_timestamp.is_some())
    };
    until("all being deleted", LIMIT, deleting, |all| *all).await;
    let waiting = maps.get("owner").await.expect("it waits").metadata.finalizers.unwrap_or_default();
    assert_eq!(waiting, ["foregroundDeletion"]);
    release(&namespace, "blocker").await;
    left(&namespace, &["idler"]).await;
    release(&namespace, "idler").await;
    left(&namespace, &[]).await;
}

#[tokio::test]
async fn orphans_are_cut_loose_and_stay() {
    let (_, cluster) = cluster().await;
    let namespace = cluster.namespace("orphan").await;
    let owner = map(&namespace, "owner", &[]).await;
    let other = map(&namespace, "other", &[]).await;
    for at in 0..20 {
        let owners = if at % 2 == 0 { vec![to(&owner)] } else { vec![to(&other), blocking(&owner)] };
        map(&namespace, &format!("orphan-{at}"), &owners).await;
    }
    let maps = namespace.api::<ConfigMap>();
    maps.delete("owner", &DeleteParams::orphan()).await.expect("deleted");
    let gone = || async { maps.get_opt("owner").await.expect("an answer").is_none() };
    until("the owner's end", LIMIT, gone, |gone| *gone).await;
    let list = maps.list(&ListParams::default()).await.expect("a list").items;
    let orphans: Vec<_> = list
        .into_iter()
        .filter(|each| each.metadata.name.as_deref().is_some_and(|name| name.starts_with("orphan-")))
        .collect();
    assert_eq!(orphans.len(), 20);
    for orphan in orphans {
        let owners = orphan.metadata.owner_references.unwrap_or_default();
        assert!(owners.iter().all(|each| each.name == "other"), "{owners:?}");
    }
}

#[tokio::test]
async fn references_to_nobody_count_for_nothing() {
    let (_, cluster) = cluster().await;
    let namespace = cluster.namespace("absent").await;
    let owner = map(&namespace, "owner", &[]).await;
    map(&namespace, "half", &[dangling(), to(&owner)]).await;
    map(&namespace, "lost", &[dangling()]).await;
    let mut misnamed = to(&owner);
    misnamed["name"] = "another".into();
    map(&namespace, "misnamed", &[misnamed]).await;
    let mut of_another_kind = to(&owner);
    of_another_kind["kind"] = "Secret".into();
    map(&namespace, "of-another-kind", &[of_another_kind]).await;
    let mut of_no_kind = to(&owner);
    of_no_kind["kind"] = "Nonsense".into();
    map(&namespace, "of-no-kind", &[of_no_kind]).await;
    left(&namespace, &["half", "of-no-kind", "owner"]).await;
    let maps = namespace.api::<ConfigMap>();
    let owners =
        || async { maps.get("half").await.expect("half").metadata.owner_references.unwrap_or_default() };
    let owners = until("the owner that is there", LIMIT, owners, |owners| owners.len() == 1).await;
    assert_eq!(owners[0].name, "owner");
}

#[tokio::test]
async fn an_owner_in_another_namespace_is_none() {
    let (_, cluster) = cluster().await;
    let (here, there) = (cluster.namespace("here").await, cluster.namespace("there").await);
    let owner = map(&there, "owner", &[]).await;
    map(&there, "dependent", &[to(&owner)]).await;
    map(&here, "dependent", &[to(&owner)]).await;
    left(&here, &[]).await;
    left(&there, &["dependent", "owner"]).await;
    let uid = owner.metadata.uid.as_deref().expect("a UID");
    let words = format!(
        "ownerRef [v1/ConfigMap, namespace: {0}, name: owner, uid: {uid}] does not exist in namespace \"{0}\"",
        here.name
    );
    let events = || async {
        let list = here.api::<Event>().list(&ListParams::default()).await.expect("events");
        let ours =
            list.items.into_iter().filter(|each| each.reason.as_deref() == Some("OwnerRefInvalidNamespace"));
        ours.filter_map(|each| each.message).collect::<Vec<_>>()
    };
    let told = until("an event", LIMIT, events, |told| !told.is_empty()).await;
    assert_eq!(told, [words]);
}

/// A definition of namespaced objects of its own.
fn definition(plural: &str, kind: &str) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("{plural}.tests.coxswain.dev") },
        "spec": {
            "group": "tests.coxswain.dev",
            "scope": "Namespaced",
            "names": { "plural": plural, "singular": kind.to_lowercase(), "kind": kind },
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": { "openAPIV3Schema": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } },
            }],
        },
    })
}

fn definitions(cluster: &Cluster) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
    Api::all_with(cluster.client.clone(), &ApiResource::from_gvk(&kind))
}

async fn widget(namespace: &Namespace, name: &str) -> Option<DynamicObject> {
    let kind = GroupVersionKind::gvk("tests.coxswain.dev", "v1", "Widget");
    let api: Api<DynamicObject> =
        Api::namespaced_with(namespace.client.clone(), &namespace.name, &ApiResource::from_gvk(&kind));
    let body =
        json!({ "apiVersion": "tests.coxswain.dev/v1", "kind": "Widget", "metadata": { "name": name } });
    api.create(&PostParams::default(), &object(body)).await.ok()
}

#[tokio::test]
async fn watches_follow_definitions_that_come_and_go() {
    let (plane, cluster) = cluster().await;
    let namespace = cluster.namespace("custom").await;
    let manager = plane.running("coxswain");
    let series = "coxswain_informer_objects{field_selector=\"\",group=\"tests.coxswain.dev\",resource=\"widgets\",version=\"v1\"}";
    let watched = || async { manager.page(Caller::Admin, "/metrics").await.metric(series) };
    let all = || async {
        let metrics = manager.page(Caller::Admin, "/metrics").await;
        metrics.text.lines().filter(|line| line.starts_with("coxswain_informer_objects{")).count()
    };
    assert_eq!(watched().await, None);
    let before = all().await;
    let definitions = definitions(&cluster);
    for round in 0..2 {
        definitions
            .create(&PostParams::default(), &object(definition("widgets", "Widget")))
            .await
            .expect("the definition is created");
        let owner = until("a widget", LIMIT, || widget(&namespace, "owner"), Option::is_some).await;
        let owner = owner.expect("just seen").metadata;
        let reference = json!({
            "apiVersion": "tests.coxswain.dev/v1", "kind": "Widget", "name": owner.name, "uid": owner.uid,
        });
        map(&namespace, "owned", std::slice::from_ref(&reference)).await;
        let mut lost = reference.clone();
        lost["uid"] = "5d1ba0b2-0000-4000-8000-000000000000".into();
        map(&namespace, "lost", &[lost]).await;
        until("the watch of widgets", LIMIT, watched, |objects| *objects == Some(1.0)).await;
        left(&namespace, &["owned"]).await;
        let uid = owner.uid.expect("a UID");
        let page = format!("/debug/controllers/garbage-collector-controller/graph?uid={uid}");
        let graph = manager.page(Caller::Admin, &page).await;
        assert!(
            graph.text.contains("kind=\"Widget\"") && graph.text.contains("name=\"owned\""),
            "{}",
            graph.text
        );
        definitions
            .delete("widgets.tests.coxswain.dev", &DeleteParams::default())
            .await
            .expect("the definition is deleted");
        left(&namespace, &[]).await;
        until("no watch of widgets", LIMIT, watched, Option::is_none).await;
        // There may be fewer: of two watches of a resource one goes when the other is found.
        assert!(all().await <= before, "round {round}: a watch is left over");
    }
}

#[tokio::test]
async fn nothing_that_it_asks_for_is_forbidden() {
    let (plane, cluster) = cluster().await;
    let namespace = cluster.namespace("permitted").await;
    let owner = map(&namespace, "owner", &[]).await;
    let secret: Secret =
        namespace.create(json!({ "metadata": { "name": "owned", "ownerReferences": [to(&owner)] } })).await;
    assert!(secret.metadata.uid.is_some());
    namespace.api::<ConfigMap>().delete("owner", &DeleteParams::background()).await.expect("deleted");
    let secrets = namespace.api::<Secret>();
    let gone = || async { secrets.get_opt("owned").await.expect("an answer").is_none() };
    until("the end of what was owned", LIMIT, gone, |gone| *gone).await;
    let ours = plane.audit().into_iter().filter(|each| {
        matches!(
            each.coxswain(),
            Some("garbage-collector-controller" | "shared-informers" | "controller-discovery")
        )
    });
    let forbidden: Vec<String> = ours
        .filter(crate::harness::AuditEvent::is_forbidden)
        .map(|each| format!("{} {}", each.verb, each.uri))
        .collect();
    assert_eq!(forbidden, Vec::<String>::new());
}
