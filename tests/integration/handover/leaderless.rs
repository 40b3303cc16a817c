//! What happens while nobody leads: the same changes before each manager takes over, each time in namespaces of their own.
//!
//! What the second Go manager makes of them is the measure. Names that are made up differ between the two, so requests are
//! told apart by what they do to which resource, and objects with such names are counted.

use std::collections::BTreeMap;

use serde_json::Value;
use tokio::time::Instant;

use super::{CALM, LIMIT, State, text};
use crate::harness::{Activity, AuditEvent, ControlPlane, Manager, until};

const OBJECTS: &str = include_str!("../../data/leaderless.yaml");
/// Kinds of which names are made up.
const NAMELESS: [&str; 5] = ["Pod", "ReplicaSet", "ControllerRevision", "EndpointSlice", "IPAddress"];

/// The namespaces for one take-over.
pub(super) struct Leaderless<'a> {
    plane: &'a ControlPlane,
    name: String,
}

/// How often something was carried out: `VERB RESOURCE.GROUP/SUBRESOURCE`.
pub(super) type Sorts = BTreeMap<String, usize>;

impl<'a> Leaderless<'a> {
    /// Makes the objects.
    pub(super) async fn new(plane: &'a ControlPlane, number: u32) -> Self {
        let name = format!("leaderless-{number}");
        let objects = OBJECTS.replace("NAMESPACE", &name).replace("NET", &format!("10.96.20{number}"));
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), objects).expect("its content");
        let apply = || async {
            // A token's Secret is refused until its service account is known.
            plane.try_kubectl(&["apply", "--server-side", "-f", text(file.path())]).status.success()
        };
        until("what is changed later", LIMIT, apply, |done| *done).await;
        let this = Self { plane, name };
        for (owner, dependents) in [("waits", 2), ("orphans", 2), ("goes", 2)] {
            this.owner_of(owner, dependents);
        }
        this.has_pods(9).await;
        this
    }

    fn kubectl(&self, args: &[&str]) -> String {
        self.plane.kubectl(&[&["-n", &self.name][..], args].concat())
    }

    /// A ConfigMap that owns others.
    fn owner_of(&self, name: &str, dependents: usize) {
        self.kubectl(&["create", "configmap", name]);
        let uid = self.kubectl(&["get", "configmap", name, "-o", "jsonpath={.metadata.uid}"]);
        let patch = serde_json::json!({ "metadata": { "ownerReferences": [{
            "apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": uid, "blockOwnerDeletion": true,
        }] } });
        for number in 0..dependents {
            let dependent = format!("{name}-{number}");
            self.kubectl(&["create", "configmap", &dependent]);
            self.kubectl(&["patch", "configmap", &dependent, "-p", &patch.to_string()]);
        }
    }

    /// Waits until there are so many pods, all of them ready, and the quota has counted them.
    async fn has_pods(&self, expected: usize) {
        let pods = || async {
            let each = "jsonpath={range .items[*]}{.status.containerStatuses[0].ready}{.metadata.deletionTimestamp} {end}";
            let states = self.kubectl(&["get", "pods", "-o", each]);
            let counted =
                self.kubectl(&["get", "resourcequota", "all", "-o", "jsonpath={.status.used.pods}"]);
            (states.split_whitespace().map(str::to_owned).collect::<Vec<_>>(), counted)
        };
        until(&format!("{expected} pods in {}", self.name), LIMIT, pods, |(states, counted)| {
            states.len() == expected
                && states.iter().all(|state| state == "true")
                && *counted == expected.to_string()
        })
        .await;
    }

    /// The changes.
    pub(super) fn change(&self) {
        let pods = ["get", "pods", "-l", "part=robbed", "-o", "jsonpath={.items[0].metadata.name}"];
        let robbed = self.kubectl(&pods);
        let unselect = r#"[{ "op": "remove", "path": "/spec/selector" }]"#;
        let address = r#"[{ "op": "replace", "path": "/subsets/0/addresses/0/ip", "value": "192.0.2.7" }]"#;
        for args in [
            &["scale", "deployment", "scaled", "--replicas=5"][..],
            &["scale", "replicationcontroller", "controlled", "--replicas=2"],
            &["scale", "statefulset", "ordered", "--replicas=2"],
            &["set", "image", "statefulset/ordered", "c=nginx:2"],
            &["set", "image", "daemonset/daemon", "c=nginx:2"],
            &["set", "image", "deployment/rolled", "c=nginx:2"],
            &["delete", "pod", &robbed, "--force", "--grace-period=0"],
            &["delete", "configmap", "waits", "--cascade=foreground", "--wait=false"],
            &["delete", "configmap", "orphans", "--cascade=orphan", "--wait=false"],
            &["delete", "configmap", "goes", "--cascade=background"],
            &["delete", "configmap", "kube-root-ca.crt"],
            &["delete", "serviceaccount", "default", "robot"],
            &["delete", "service", "closed", "--cascade=background"],
            &["patch", "service", "let-go", "--type=json", "-p", unselect],
            &["label", "service", "inside", "tier=front"],
            &["create", "service", "clusterip", "fresh", "--tcp=80"],
            &["patch", "endpoints", "manual", "--type=json", "-p", address],
            &["patch", "resourcequota", "all", "-p", r#"{ "spec": { "hard": { "pods": "30" } } }"#],
            &["delete", "servicecidr", &self.name, "--wait=false"],
            &["delete", "namespace", &format!("{}-ending", self.name), "--wait=false"],
        ] {
            self.kubectl(args);
        }
    }

    /// Waits until a manager is done with that.
    pub(super) async fn is_settled(&self, manager: &Manager<'_>) {
        let activity = Activity::follow(self.plane, manager).await;
        for rolled in ["deployment/scaled", "deployment/rolled", "statefulset/ordered", "daemonset/daemon"] {
            let limit = format!("--timeout={}s", LIMIT.as_secs());
            self.kubectl(&["rollout", "status", rolled, &limit]);
        }
        self.has_pods(13).await;
        let ending = format!("{}-ending", self.name);
        let left = || async {
            let gone = ["namespace", "servicecidr"]
                .map(|kind| self.plane.kubectl(&["get", kind, "--ignore-not-found", "-o", "name"]));
            let held = self.kubectl(&["get", "configmap,secret,endpointslice", "-o", "name"]);
            let going =
                ["configmap/waits", "configmap/orphans\n", "configmap/goes", "secret/robot", "/closed-"];
            gone.iter().any(|names| names.contains(&ending))
                || gone[1].contains(&self.name)
                || going.iter().any(|name| held.contains(name))
        };
        until(&format!("what goes in {}", self.name), LIMIT, left, |left| !left).await;
        let concerns = |place: &str| place.starts_with(&self.name);
        assert!(activity.quiet(concerns, Instant::now(), CALM, LIMIT).await, "{} is not quiet", self.name);
    }

    /// Whether this is about one of the objects.
    pub(super) fn concerns(&self, text: &str) -> bool {
        text.contains(&self.name)
    }

    /// What was carried out here of these requests. Single deletes in the namespace that ends are left out: Endpoints and slices
    /// there are deleted with the namespace's collections, or shortly before by the controller that misses their Service. The runs of the
    /// Go manager differ in this.
    pub(super) fn written<'e>(&self, requests: impl Iterator<Item = &'e AuditEvent>) -> Sorts {
        let ending = format!("{}-ending", self.name);
        let by_chance =
            |request: &AuditEvent| request.verb == "delete" && request.place().starts_with(&ending);
        let mut sorts = Sorts::new();
        for request in requests
            .filter(|request| self.concerns(request.place()) && request.succeeded() && !by_chance(request))
        {
            // Ours carries a resource version.
            let verb = if request.resource().starts_with("servicecidrs") { "change" } else { &request.verb };
            *sorts
                .entry(format!("{verb} {} {}", request.object_ref.api_group, request.resource()))
                .or_default() += 1;
        }
        sorts
    }

    /// What there is here in the end, and how often.
    pub(super) fn inventory(&self, state: &State) -> BTreeMap<String, usize> {
        let mut inventory = BTreeMap::new();
        for object in
            state.values().filter(|object| self.concerns(&object["metadata"]["namespace"].to_string()))
        {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let kind = text(&object["kind"]);
            let name = if NAMELESS.contains(&kind.as_str()) {
                String::new()
            } else {
                text(&object["metadata"]["name"])
            };
            let owner = text(&object["metadata"]["ownerReferences"][0]["kind"]);
            *inventory.entry(format!("{kind} {name} of {owner}")).or_default() += 1;
        }
        inventory
    }
}

/// What was written beyond the measure: what is made and deleted by number, the rest by sort, for a status may be written in
/// one step or in two.
pub(super) fn beyond(measure: &Sorts, written: &Sorts) -> Vec<String> {
    let is_more = |sort: &str, count: usize| match measure.get(sort) {
        None => true,
        Some(measured) => (sort.starts_with("create ") || sort.starts_with("delete ")) && count > *measured,
    };
    let more = written.iter().filter(|(sort, count)| is_more(sort, **count));
    more.map(|(sort, count)| format!("{sort}: {count}, not {:?}", measure.get(sort))).collect()
}
