//! Owners and dependents with names that mean something in a URL, over the client that ships.

use apiserver_model::{Place as Stored, Served};
use jiff::Timestamp;
use serde_json::{Value as Json, json};

use super::super::graph::{AffectedObjects, Graph};
use super::super::plan::plan;
use super::super::view::{Attempt, observe};
use super::fixtures::Discovered;
use coxswain_machinery::api::meta::PartialObjectMetadata;
use coxswain_machinery::api::{Kind, dynamic};
use coxswain_machinery::framework::{Observation, Read, Reads};
use coxswain_machinery::model::Plan;
use coxswain_machinery::wire::Message as _;

/// A watch of the collection for a year, if it were a query.
const WATCH: &str = "?watch=true&timeoutSeconds=31536000";

/// ConfigMaps and ClusterRoles, by their metadata.
fn kinds() -> [&'static Kind; 2] {
    [
        dynamic::kind("", "v1", "ConfigMap", "configmaps", true),
        dynamic::kind("rbac.authorization.k8s.io", "v1", "ClusterRole", "clusterroles", false),
    ]
}

fn resolve(api_version: &str, kind: &str) -> Result<&'static Kind, String> {
    let found = kinds().into_iter().find(|row| row.kind == kind && row.api_version() == api_version);
    found.ok_or_else(|| format!("{api_version} {kind} is not served"))
}

struct World(Served);

impl World {
    fn new() -> Self {
        let api =
            Served::new("generic-garbage-collector", Timestamp::from_second(1_700_000_000).expect("a time"));
        let namespace = json!({ "metadata": { "name": "mine" } });
        api.model().create("user", "namespaces", "", namespace).expect("a namespace");
        Self(api)
    }

    fn create(&self, kind: usize, name: &str, owners: &[Json]) -> String {
        let namespace = if kinds()[kind].namespaced { "mine" } else { "" };
        let object = json!({ "metadata": { "name": name, "ownerReferences": owners } });
        let stored =
            self.0.model().create("user", kinds()[kind].resource, namespace, object).expect("it is new");
        stored.json["metadata"]["uid"].as_str().expect("a UID").to_owned()
    }

    fn has(&self, kind: usize, name: &str) -> bool {
        let namespace = if kinds()[kind].namespaced { "mine" } else { "" };
        self.0.model().get(&Stored::new(kinds()[kind].resource, namespace, name)).is_some()
    }

    /// Attempts to delete the object of this UID, and returns the plan without its steps, which are carried out.
    fn attempt(&self, uid: &str) -> Plan {
        let mut graph = Graph::default();
        for kind in kinds() {
            for stored in self.0.model().all(kind.resource, "") {
                let metadata =
                    PartialObjectMetadata::decode(&stored.encoded(true)).expect("metadata").metadata;
                graph.observe(kind, &metadata, &mut AffectedObjects::default());
            }
        }
        let attempt = Attempt::Delete(uid.into());
        let mut reads = Reads::default();
        for _ in 0..4 {
            match observe(&graph, &Discovered(resolve), &attempt, false, &reads).expect("an observation") {
                Observation::Nothing => return Plan::default(),
                Observation::Needs(needs) => {
                    for need in needs.into_iter().map(Read::from) {
                        let Read::Object(kind, key) = need else { panic!("{need:?}") };
                        let found = self.0.read(kind, &key);
                        reads = reads.with_object(kind, key, found);
                    }
                }
                Observation::View(view) => {
                    let mut plan = plan(&view);
                    let steps = std::mem::take(&mut plan.steps);
                    let done = self.0.execute(Plan { steps, ..Plan::<()>::default() });
                    assert!(done.failures.is_empty(), "{:?}", done.failures);
                    return plan;
                }
            }
        }
        panic!("no decision");
    }
}

fn owner(kind: usize, name: &str, uid: &str) -> Json {
    json!({ "apiVersion": kinds()[kind].api_version(), "kind": kinds()[kind].kind, "name": name, "uid": uid })
}

#[test]
fn absent_owners_with_names_like_queries_do_not_hold_up_the_collection() {
    let world = World::new();
    let owners: Vec<Json> =
        (0..20).map(|at| owner(0, WATCH, &format!("00000000-0000-0000-0000-0000000000{at:02}"))).collect();
    let plug = world.create(0, "plug", &owners);
    let other = world.create(0, "other", &[]);
    let dependent = world.create(0, "dependent", &[owner(0, "other", &other), owner(0, WATCH, "u")]);
    assert!(world.attempt(&plug).retry.is_none());
    assert!(!world.has(0, "plug"), "its owners are gone");
    assert!(world.attempt(&dependent).retry.is_none());
    assert!(world.has(0, "dependent") && world.has(0, "other"));
}

#[test]
fn owner_with_a_fragment_or_a_query_in_its_name_keeps_its_dependent() {
    for name in ["team#1", "team?1", "my role", "team?watch=true", "a;b,c=d&e+f"] {
        let world = World::new();
        // Where the name would be cut.
        world.create(1, "team", &[]);
        let role = world.create(1, name, &[]);
        let dependent = world.create(0, "c", &[owner(1, name, &role), owner(0, "x", "uid-of-x")]);
        world.attempt(&dependent);
        assert!(world.has(0, "c"), "{name}");
        let model = world.0.model();
        let held = model.get(&Stored::new("configmaps", "mine", "c")).expect("it is there");
        assert_eq!(held.json["metadata"]["ownerReferences"], json!([owner(1, name, &role)]), "{name}");
    }
}

#[test]
fn object_whose_own_name_is_odd_is_collected() {
    for name in ["my role", "team#1", "?watch=true", "äöü"] {
        let world = World::new();
        let other = world.create(1, "other", &[]);
        let role = world.create(1, name, &[owner(1, "gone", "uid-of-gone")]);
        world.attempt(&role);
        assert!(!world.has(1, name), "{name}");
        assert!(world.has(1, "other"), "{other}: the collection is left alone");
    }
}

#[test]
fn owner_that_cannot_be_addressed_is_neither_there_nor_absent() {
    for name in ["..", ".", "a/b", "100%", "%2e%2e"] {
        let world = World::new();
        let dependent = world.create(0, "c", &[owner(0, name, "uid-of-it"), owner(0, "x", "uid-of-x")]);
        world.0.log();
        let plan = world.attempt(&dependent);
        assert!(
            plan.retry.is_some_and(|why| why.contains("invalid resource name")),
            "it is tried again later"
        );
        assert!(world.has(0, "c"), "{name}");
        let log = world.0.log();
        assert!(log.iter().all(|line| line.starts_with("get configmaps mine/")), "{log:?}");
        assert!(!log.iter().any(|line| line.contains(name)), "{log:?}");
    }
}
