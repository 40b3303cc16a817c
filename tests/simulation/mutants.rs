//! Planted bugs: switches by which a manager, as the API server sees it, breaks one rule. Each must be found.
//!
//! They change what is on the line, not the manager, so that the manager under test is always the one that ships.

use std::time::Duration;

use http::Method;
use serde_json::{Value as Json, json};

mod autoscalers;
mod keys;
mod quotas;
mod schedules;
mod sets;
mod volumes;

use crate::invariants::{KEEPSAKE, controller_of, index_of, is_active};
use crate::model::http::{Answer, Asked};
use crate::model::{Deletion, Model, Place, Query, Refusal, items, text};
use crate::run::SETTLES;

/// A planted bug.
#[derive(Clone, Copy)]
pub(crate) struct Mutant {
    pub(crate) name: &'static str,
    /// The rule that finds it.
    pub(crate) breaks: &'static str,
    /// Changes a request of this controller before it arrives.
    send: fn(&str, &mut Asked),
    /// Answers in the server's place.
    answer: fn(&mut Model, &str, &Asked) -> Option<Result<Answer, Refusal>>,
    /// Does something more, in the same name.
    after: fn(&mut Model, &str, &Asked),
    /// For how long writes hang that arrive in the end.
    held_up: Duration,
    /// Which writes: those in whose paths this is.
    holds: &'static str,
    /// Whether nobody is told of deletions.
    pub(crate) deaf: bool,
}

const NONE: Mutant = Mutant {
    name: "",
    breaks: "",
    send: |_, _| {},
    answer: |_, _, _| None,
    after: |_, _, _| {},
    held_up: Duration::ZERO,
    holds: "",
    deaf: false,
};

/// All of them.
pub(crate) static MUTANTS: &[Mutant] = &[
    Mutant {
        name: "expectations are off: a pod is made twice",
        breaks: "never more pods than replicas",
        after: make_twice,
        ..NONE
    },
    Mutant {
        name: "a pod too many is deleted",
        breaks: "no pod is deleted that is wanted",
        after: delete_one_more,
        ..NONE
    },
    Mutant {
        name: "a Deployment scales beyond its surge",
        breaks: "never more replicas than the Deployment and its surge",
        send: scale_beyond,
        ..NONE
    },
    Mutant {
        name: "a StatefulSet starts with a later pod",
        breaks: "pods come one after the other",
        send: start_late,
        ..NONE
    },
    Mutant {
        name: "a Job counts a success twice",
        breaks: "no pod is counted twice",
        send: count_twice,
        ..NONE
    },
    Mutant {
        name: "a Job runs the same index again",
        breaks: "no index that has succeeded runs again",
        send: run_again,
        ..NONE
    },
    Mutant {
        name: "what was not decoded is not written back",
        breaks: "what users have written stays",
        send: lose_annotation,
        ..NONE
    },
    Mutant {
        name: "finalizers of others are dropped",
        breaks: "a finalizer is dropped only by its own controller",
        after: drop_finalizers,
        ..NONE
    },
    Mutant { name: "the live look at an owner is skipped", breaks: SETTLES, answer: no_owner, ..NONE },
    Mutant {
        name: "a pod is taken for garbage that has its owner",
        breaks: "nothing is deleted that has an owner",
        after: sets::collect,
        ..NONE
    },
    Mutant {
        name: "a namespace ends before what is in it",
        breaks: "nothing is deleted but what ends with its namespace",
        answer: seems_empty,
        ..NONE
    },
    Mutant {
        name: "writes go on after the Lease is lost",
        breaks: "only the leader writes",
        held_up: Duration::from_secs(45),
        ..NONE
    },
    Mutant { name: "deletions are not told to caches", breaks: SETTLES, deaf: true, ..NONE },
    Mutant {
        name: "all nodes get the same range of addresses",
        breaks: "no address is given twice",
        send: same_range,
        ..NONE
    },
    Mutant {
        name: "a node that lives is given up",
        breaks: "no node is given up that lives",
        after: give_up,
        ..NONE
    },
    Mutant {
        name: "pods leave a node as soon as it is tainted",
        breaks: "no toleration ends early",
        after: drive_away,
        ..NONE
    },
    Mutant {
        name: "all nodes are tainted at once",
        breaks: "nodes are tainted at their rate",
        after: give_all_up,
        ..NONE
    },
    Mutant {
        name: "a ReplicationController makes a pod twice",
        breaks: "never more pods than replicas",
        after: sets::make_twice,
        ..NONE
    },
    Mutant {
        name: "a ReplicationController deletes a pod too many",
        breaks: "no pod is deleted that is wanted",
        after: sets::delete_one_more,
        ..NONE
    },
    Mutant {
        name: "a StatefulSet makes a pod that nobody wants",
        breaks: "no pod beyond the replicas is made",
        send: sets::go_beyond,
        ..NONE
    },
    Mutant {
        name: "a StatefulSet rolls what is held back",
        breaks: "what is held back is not rolled",
        after: sets::pass_over_strategy,
        ..NONE
    },
    Mutant {
        name: "a StatefulSet rolls two pods at once",
        breaks: "pods are rolled one after the other",
        after: sets::roll_two,
        ..NONE
    },
    Mutant {
        name: "a StatefulSet rolls more pods than may be missing",
        breaks: "no more replicas are missing than may be",
        after: sets::roll_replicas,
        ..NONE
    },
    Mutant {
        name: "a DaemonSet makes a pod twice",
        breaks: "one pod on a node",
        after: sets::make_twice_on_a_node,
        ..NONE
    },
    Mutant {
        name: "a DaemonSet rolls too many pods",
        breaks: "no more daemons are missing than may be",
        after: sets::roll_all,
        ..NONE
    },
    Mutant {
        name: "a ReplicaSet goes that has pods",
        breaks: "no ReplicaSet is deleted that has replicas",
        after: sets::forget_history,
        ..NONE
    },
    Mutant {
        name: "a pod is taken from its owner",
        breaks: "an owner is never taken from another",
        after: sets::take_over,
        ..NONE
    },
    Mutant {
        name: "a Job makes a pod twice",
        breaks: "never more active pods than parallelism",
        after: schedules::make_twice,
        ..NONE
    },
    Mutant {
        name: "a Job counts a failure twice",
        breaks: "no failure is counted twice",
        send: schedules::count_failure_twice,
        ..NONE
    },
    Mutant {
        name: "a Job loses a success",
        breaks: "no success is lost",
        send: schedules::lose_success,
        ..NONE
    },
    Mutant {
        name: "a pod keeps the finalizer of a Job that is over",
        breaks: SETTLES,
        answer: schedules::keep_finalizer,
        ..NONE
    },
    Mutant {
        name: "a Job goes on after its end",
        breaks: "nothing is started after the end",
        after: schedules::go_on,
        ..NONE
    },
    Mutant {
        name: "a CronJob runs twice for one time",
        breaks: "nothing runs twice for one time",
        after: schedules::run_twice,
        ..NONE
    },
    Mutant {
        name: "a CronJob runs ahead of its time",
        breaks: "nothing runs before its time",
        send: schedules::run_ahead,
        ..NONE
    },
    Mutant {
        name: "a CronJob that must be alone runs beside itself",
        breaks: "what must be alone is alone",
        after: schedules::run_beside,
        ..NONE
    },
    Mutant {
        name: "a budget allows one more",
        breaks: "no more may go than can",
        send: schedules::allow_more,
        ..NONE
    },
    Mutant {
        name: "an eviction is forgotten",
        breaks: "no eviction is forgotten",
        send: schedules::forget_evictions,
        ..NONE
    },
    Mutant {
        name: "a volume is given to another claim",
        breaks: "no volume is taken from its claim",
        after: volumes::give_away,
        ..NONE
    },
    Mutant {
        name: "a claim gets somebody else's volume",
        breaks: "a claim is bound to the volume that is bound to it",
        after: volumes::bind_twice,
        ..NONE
    },
    Mutant {
        name: "a claim goes while it is mounted",
        breaks: "no claim goes that is in use",
        after: volumes::let_claim_go,
        ..NONE
    },
    Mutant {
        name: "a volume goes while it is bound",
        breaks: "no volume goes that is bound",
        after: volumes::let_volume_go,
        ..NONE
    },
    Mutant {
        name: "an autoscaler goes beyond its bounds",
        breaks: "never outside of the bounds",
        send: autoscalers::go_beyond,
        ..NONE
    },
    Mutant {
        name: "an autoscaler that grows does so at once",
        breaks: "never faster than the policies",
        after: autoscalers::go_at_once,
        ..NONE
    },
    Mutant {
        name: "an autoscaler forgets what was asked for",
        breaks: "never against what was asked for lately",
        after: autoscalers::forget,
        ..NONE
    },
    Mutant {
        name: "an autoscaler only says that it scales",
        breaks: SETTLES,
        answer: autoscalers::only_say_so,
        ..NONE
    },
    Mutant {
        name: "claims go against their policy",
        breaks: "claims go by their policy",
        send: volumes::own_claim,
        ..NONE
    },
    Mutant {
        name: "certificates are signed by another authority",
        breaks: "the published authority vouches for every certificate",
        send: keys::sign_with_another,
        ..NONE
    },
    Mutant {
        name: "a request is signed that nobody has approved",
        breaks: "nothing is signed that is not allowed",
        after: keys::sign_undecided,
        ..NONE
    },
    Mutant {
        name: "a request is approved that is no kubelet's",
        breaks: "nothing is approved that nobody has a right to",
        after: keys::approve_another,
        ..NONE
    },
    Mutant {
        name: "a quota counts what is not there",
        breaks: "what is counted was there",
        send: quotas::count_more,
        ..NONE
    },
    Mutant {
        name: "a bootstrap token goes that is still good",
        breaks: "no token goes before its end",
        after: keys::end_early,
        ..NONE
    },
    Mutant {
        name: "a bootstrap token goes in a version that was not judged",
        breaks: "no token goes before its end",
        send: keys::forget_version,
        held_up: Duration::from_secs(12),
        holds: "/secrets/",
        ..NONE
    },
    Mutant {
        name: "an old token goes in a version that was not judged",
        breaks: "no token goes that was used",
        send: keys::forget_version_of_old,
        held_up: Duration::from_secs(45),
        holds: "/secrets/",
        ..NONE
    },
    Mutant {
        name: "an old token goes that a pod mounts",
        breaks: "no token goes that is mounted",
        after: keys::take_from_pod,
        ..NONE
    },
];

impl Mutant {
    /// For how long a request hangs.
    pub(crate) fn delay(&self, asked: &Asked) -> Duration {
        let hangs = asked.is_write() && !asked.path.contains("/leases") && asked.path.contains(self.holds);
        if hangs { self.held_up } else { Duration::ZERO }
    }

    pub(crate) fn send(&self, controller: &str, asked: &mut Asked) {
        (self.send)(controller, asked);
    }

    pub(crate) fn answer(
        &self,
        model: &mut Model,
        controller: &str,
        asked: &Asked,
    ) -> Option<Result<Answer, Refusal>> {
        (self.answer)(model, controller, asked)
    }

    pub(crate) fn after(&self, model: &mut Model, by: &str, asked: &Asked) {
        (self.after)(model, by, asked);
    }
}

fn is(asked: &Asked, method: &Method, resource: &str) -> bool {
    asked.method == *method && asked.kind.is_some_and(|kind| kind.resource == resource)
}

fn make_twice(model: &mut Model, by: &str, asked: &Asked) {
    let is_set = by.ends_with("replicaset-controller") || by.ends_with("daemonset-controller");
    if is_set && is(asked, &Method::POST, "pods") {
        drop(model.answer(by, asked));
    }
}

fn delete_one_more(model: &mut Model, by: &str, asked: &Asked) {
    if by.ends_with("/replicaset-controller") && is(asked, &Method::POST, "pods") {
        delete_one_of(model, by, asked, "ReplicaSet");
    }
}

/// Deletes an active pod of an owner of this kind.
fn delete_one_of(model: &mut Model, by: &str, asked: &Asked, kind: &str) {
    let own = |pod: &&std::sync::Arc<crate::model::Stored>| {
        is_active(&pod.json) && text(controller_of(&pod.json), "/kind") == kind
    };
    let place = model.all("pods", &asked.namespace).find(own).map(|pod| pod.place.clone());
    if let Some(place) = place {
        drop(model.delete(by, &place, &Deletion::default()));
    }
}

/// Changes an object in the name of `by`.
fn change(model: &mut Model, by: &str, place: &Place, edit: impl FnOnce(&mut Json)) {
    let edited = |held: &Json| {
        let mut object = held.clone();
        edit(&mut object);
        Ok(object)
    };
    drop(model.update(by, place, "", edited));
}

fn same_range(controller: &str, asked: &mut Asked) {
    if controller == "node-ipam-controller" && is(asked, &Method::PATCH, "nodes") {
        let range = "10.128.0.0/26";
        let patch = json!({ "spec": { "podCIDR": range, "podCIDRs": [range] } });
        asked.body = patch.to_string().into();
    }
}

fn give_up(model: &mut Model, by: &str, asked: &Asked) {
    let Some(manager) = by.strip_suffix("/node-ipam-controller") else { return };
    if !is(asked, &Method::PATCH, "nodes") {
        return;
    }
    let tainted = |held: &Json| {
        let mut node = held.clone();
        node["spec"]["taints"] = json!([{ "key": "node.kubernetes.io/unreachable", "effect": "NoExecute" }]);
        Ok(node)
    };
    let place = Place::new("nodes", "", &asked.name);
    drop(model.update(&format!("{manager}/node-lifecycle-controller"), &place, "", tainted));
}

fn give_all_up(model: &mut Model, by: &str, asked: &Asked) {
    if !by.ends_with("/node-ipam-controller") || !is(asked, &Method::PATCH, "nodes") {
        return;
    }
    let nodes: Vec<String> = model.all("nodes", "").map(|node| node.place.name.clone()).collect();
    for name in nodes {
        let mut one = asked.clone();
        one.name = name;
        give_up(model, by, &one);
    }
}

fn drive_away(model: &mut Model, by: &str, asked: &Asked) {
    let Some(manager) = by.strip_suffix("/node-lifecycle-controller") else { return };
    if !is(asked, &Method::PATCH, "nodes")
        || items(model.look("nodes", "", &asked.name), "/spec/taints").is_empty()
    {
        return;
    }
    let tolerates = |pod: &&std::sync::Arc<crate::model::Stored>| {
        text(&pod.json, "/spec/nodeName") == asked.name && is_active(&pod.json)
    };
    let places: Vec<Place> = model.all("pods", "").filter(tolerates).map(|pod| pod.place.clone()).collect();
    for place in places {
        drop(model.delete(&format!("{manager}/taint-eviction-controller"), &place, &Deletion::default()));
    }
}

fn scale_beyond(controller: &str, asked: &mut Asked) {
    if controller == "deployment-controller"
        && is(asked, &Method::PUT, "replicasets")
        && asked.subresource.is_empty()
    {
        asked.edit(|set| {
            let replicas = set["spec"]["replicas"].as_i64().unwrap_or(0);
            set["spec"]["replicas"] = json!(if replicas > 0 { replicas + 3 } else { 0 });
        });
    }
}

fn start_late(controller: &str, asked: &mut Asked) {
    if controller == "statefulset-controller" && is(asked, &Method::POST, "pods") {
        asked.edit(|pod| {
            if let Some(set) = text(pod, "/metadata/name").strip_suffix("-0") {
                pod["metadata"]["name"] = json!(format!("{set}-2"));
            }
        });
    }
}

fn count_twice(controller: &str, asked: &mut Asked) {
    if controller == "job-controller" && is(asked, &Method::PUT, "jobs") {
        asked.edit(|job| {
            if let Some(count) = job["status"]["succeeded"].as_i64().filter(|count| *count > 0) {
                job["status"]["succeeded"] = json!(count + 1);
            }
        });
    }
}

fn run_again(controller: &str, asked: &mut Asked) {
    if controller == "job-controller" && is(asked, &Method::POST, "pods") {
        asked.edit(|pod| {
            if index_of(pod).is_some() {
                pod["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"] = json!("0");
            }
        });
    }
}

fn lose_annotation(_: &str, asked: &mut Asked) {
    if asked.method == Method::PUT {
        asked.edit(|object| {
            if let Some(annotations) = object["metadata"]["annotations"].as_object_mut() {
                annotations.shift_remove(KEEPSAKE);
            }
        });
    }
}

fn drop_finalizers(model: &mut Model, by: &str, asked: &Asked) {
    if !(by.ends_with("garbage-collector-controller") && is(asked, &Method::DELETE, "pods")) {
        return;
    }
    let place = Place::new("pods", &asked.namespace, &asked.name);
    let without = |held: &Json| {
        let mut pod = held.clone();
        pod["metadata"]["finalizers"] = json!([]);
        Ok(pod)
    };
    drop(model.update(by, &place, "", without));
}

fn no_owner(_: &mut Model, controller: &str, asked: &Asked) -> Option<Result<Answer, Refusal>> {
    let is_look = asked.method == Method::GET && !asked.name.is_empty();
    let kind = asked.kind.filter(|_| is_look && controller == "garbage-collector-controller")?;
    matches!(kind.resource, "deployments" | "replicasets" | "statefulsets" | "daemonsets" | "jobs")
        .then(|| Err(Refusal::not_found(&Place::new(kind.resource, &asked.namespace, &asked.name))))
}

fn seems_empty(model: &mut Model, controller: &str, asked: &Asked) -> Option<Result<Answer, Refusal>> {
    let kind = asked.kind.filter(|_| controller == "namespace-controller" && asked.name.is_empty())?;
    if asked.is_watch || asked.namespace.is_empty() {
        return None;
    }
    let nothing = Query::new(kind, false, "nowhere", "", "");
    Some(model.list(&nothing, None, None).map(|list| Answer::Body(list, false)))
}
