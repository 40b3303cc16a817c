//! Sequences: operations that belong together.
//!
//! Some faults need several steps on one object, or several objects that refer to each other. Independent changes of random fields rarely
//! meet in such a way, so most rounds have a sequence. Each sequence draws its details, and later rounds change its objects further.

mod objects;
mod workloads;

use serde_json::{Value, json};

use crate::generate::{Member, ODD_END, with_words};
use crate::operation::{Action, Fate, Named, Operation, PROPAGATIONS, Propagation};
use crate::random::Random;
use crate::tables;

/// Percentage of sequences that use the name and the label of an object of the list.
const SHARED: usize = 30;
/// Takes all pods.
const ALL: usize = 99;
/// A namespace that no list plays in.
const ELSEWHERE: &str = "kube-system";
/// The finalizer of a stranger.
const HOLD: &str = "example.com/hold";

/// A function that returns the operations of a sequence about a subject.
type Sequence = fn(&mut Random, &Subject) -> Vec<Operation>;

const SEQUENCES: &[Sequence] = &[
    objects::account_made_again,
    objects::approvals,
    objects::bootstrap_token,
    objects::bound_claim,
    objects::budget,
    objects::full_quota,
    objects::odd_dependent,
    objects::scaled_by_metrics,
    objects::spread,
    workloads::activation_by_hand,
    workloads::changed_rollout,
    workloads::dependent_elsewhere,
    workloads::ends_in_flight,
    workloads::ends_in_flight,
    workloads::failure_judged_by_policy,
    workloads::foreign_claim,
    workloads::many_pods,
    workloads::refused_create,
    workloads::refused_release,
    workloads::refused_rollout,
    workloads::retention,
    workloads::rollback,
    workloads::several_fields,
    workloads::several_fields_of_a_job,
    workloads::spelled_quantity,
];

/// The name of the objects of a sequence, and the value of the label `app` of their pods.
struct Subject {
    name: String,
    app: String,
}

/// Returns a sequence, and adds its objects to the list.
pub(crate) fn together(random: &mut Random, members: &mut Vec<Member>) -> Vec<Operation> {
    let sequence = *random.pick(SEQUENCES);
    let subject = if random.chance(SHARED) {
        let member = random.pick(members);
        Subject { name: member.short_name().trim_end_matches(ODD_END).to_owned(), app: member.app.clone() }
    } else {
        let name = format!("x{}", members.len());
        Subject { app: name.clone(), name }
    };
    let list = sequence(random, &subject);
    for operation in list.iter().filter(|operation| !operation.is_elsewhere()) {
        let Action::Apply(object) = &operation.action else { continue };
        let named = Named::of(object);
        if members.iter().all(|member| member.named != named) {
            members.push(Member::new(named, &subject.app));
        }
    }
    list
}

impl Subject {
    /// Returns a new object of a kind, with these fields.
    fn object(&self, kind: &str, fields: &[(&str, Value)]) -> Value {
        let mut object = tables::kind(kind).document.clone();
        for (pointer, value) in fields {
            tables::set(&mut object, pointer, value.clone());
        }
        with_words(&object, &self.name, &self.app, &self.name)
    }

    fn apply(&self, kind: &str, fields: &[(&str, Value)]) -> Operation {
        Operation::new("user", Action::Apply(self.object(kind, fields)))
    }

    fn patch(&self, kind: &str, patch: &Value) -> Operation {
        let patch = with_words(patch, &self.name, &self.app, &self.name);
        Operation::new("other", Action::Patch(self.named(kind), patch))
    }

    /// Changes the container of a template.
    fn patch_image(&self, kind: &str, image: &str) -> Operation {
        let containers = json!([{ "name": "main", "image": image }]);
        self.patch(kind, &json!({ "spec": { "template": { "spec": { "containers": containers } } } }))
    }

    fn scale(&self, kind: &str, replicas: i64) -> Operation {
        Operation::new("autoscaler", Action::Scale(self.named(kind), replicas))
    }

    fn delete(&self, kind: &str, propagation: Propagation) -> Operation {
        Operation::new("user", Action::Delete(self.named(kind), propagation))
    }

    fn named(&self, kind: &str) -> Named {
        Named::of(&self.object(kind, &[]))
    }

    fn pods(&self, fate: Fate, take: usize) -> Operation {
        let selector = format!("app={}", self.app);
        Operation::new("kubelet", Action::Pods { fate, selector, take })
    }

    /// Returns a reference to an object of the sequence.
    fn owner(&self, kind: &str, is_controller: bool) -> Value {
        let Named { kind, name } = self.named(kind);
        let api_version = &tables::kind(&kind).document["apiVersion"];
        let uid = format!("UID({kind}/{name})");
        json!([{ "apiVersion": api_version, "kind": kind, "name": name, "uid": uid, "controller": is_controller }])
    }
}

fn calm() -> Operation {
    Operation::new("all", Action::Calm)
}

/// Refuses writes of the manager: `CREATE pods 403 0`.
fn refuse(line: &str) -> Operation {
    Operation::new("admission", Action::Refuse(line.parse().unwrap_or_else(|error| panic!("{error}"))))
}

fn allow() -> Operation {
    Operation::new("admission", Action::Allow)
}

fn choose<T: Clone>(random: &mut Random, items: &[T]) -> T {
    random.pick(items).clone()
}

fn propagation(random: &mut Random) -> Propagation {
    random.pick(&PROPAGATIONS).0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequences_are_read_back_from_their_lines_and_add_their_objects() {
        for seed in 0..600 {
            let mut random = Random::new(seed);
            let web = Member::new("Role/web#a?b".parse().expect("an object"), "web");
            let mut members = vec![web];
            let list = together(&mut random, &mut members);
            assert!(list.len() > 1, "{list:?}");
            for operation in &list {
                let line = operation.to_string();
                assert_eq!(line.parse::<Operation>().as_ref(), Ok(operation), "{line}");
                let is_own = matches!(&operation.action, Action::Apply(object)
                    if !operation.is_elsewhere() && members.iter().all(|member| member.named != Named::of(object)));
                assert!(!is_own, "{line}");
            }
        }
    }
}
