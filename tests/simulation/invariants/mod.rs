//! What must hold after every write, room by room: one table, of rows of the same shape.
//!
//! A controller decides by what it has been told, which may be old. So a rule about numbers allows all that was right at any time
//! within [`WINDOW`]; a rule about single objects (owners, finalizers, UIDs) allows nothing but what was
//! on its way, for those are protected by live reads and preconditions.

mod attaching;
mod autoscalers;
mod budgets;
mod certificates;
mod ends;
mod general;
mod jobs;
mod memory;
mod nodes;
mod published;
mod quotas;
mod schedules;
mod sets;
mod tokens;
mod volumes;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value as Json;

use apiserver_model::{Change, Model};
pub(crate) use autoscalers::{CONTROLLER, Exchange};
pub(crate) use budgets::{EVICTION, budget_of, is_healthy};
pub(crate) use ends::unsettled;
pub(crate) use general::KEEPSAKE;
pub(crate) use jobs::has_ended;
pub(crate) use memory::{Memory, controller_of, index_of, is_active, is_held_by, is_ready};
pub(crate) use nodes::TaintRate;
pub(crate) use sets::{node_of, ordinal, partition};
pub(crate) use tokens::{LAST_USED, expiration_of};

/// How old what a controller knows may be: the longest lag, and what a plan takes to be carried out.
pub(crate) const WINDOW: SignedDuration = SignedDuration::from_secs(240);
/// How long a write may be on its way that was right when it was sent.
const ON_ITS_WAY: SignedDuration = SignedDuration::from_secs(30);

/// What a rule sees.
pub(crate) struct Look<'a> {
    pub(crate) model: &'a Model,
    pub(crate) change: &'a Change,
    pub(crate) memory: &'a Memory,
    /// The controller that made the change; empty if it was somebody else.
    pub(crate) controller: &'a str,
}

/// One rule.
pub(crate) struct Row {
    /// Whose it is: a controller, or `*` for all.
    pub(crate) room: &'static str,
    pub(crate) name: &'static str,
    /// Why the change is wrong, if it is.
    check: fn(&Look<'_>) -> Result<(), String>,
}

/// A rule that was broken.
#[derive(Clone, Debug)]
pub(crate) struct Violation {
    pub(crate) rule: String,
    pub(crate) what: String,
}

/// All rules.
pub(crate) static RULES: &[Row] = &[
    Row { room: "*", name: "a finalizer is dropped only by its own controller", check: general::finalizers },
    Row { room: "*", name: "what users have written stays", check: general::fields },
    Row { room: "*", name: "only the leader writes", check: general::leader },
    Row { room: "*", name: "an owner is never taken from another", check: general::owners },
    Row {
        room: "garbage-collector-controller",
        name: "nothing is deleted that has an owner",
        check: general::garbage,
    },
    Row {
        room: "namespace-controller",
        name: "nothing is deleted but what ends with its namespace",
        check: general::namespaces,
    },
    Row { room: "replicaset-controller", name: "never more pods than replicas", check: sets::too_many },
    Row { room: "replicaset-controller", name: "no pod is deleted that is wanted", check: sets::too_few },
    Row {
        room: "replicationcontroller-controller",
        name: "never more pods than replicas",
        check: sets::too_many,
    },
    Row {
        room: "replicationcontroller-controller",
        name: "no pod is deleted that is wanted",
        check: sets::too_few,
    },
    Row {
        room: "deployment-controller",
        name: "never more replicas than the Deployment and its surge",
        check: sets::surge,
    },
    Row {
        room: "deployment-controller",
        name: "no ReplicaSet is deleted that has replicas",
        check: sets::history,
    },
    Row { room: "statefulset-controller", name: "pods come one after the other", check: sets::ordinals },
    Row { room: "statefulset-controller", name: "no pod beyond the replicas is made", check: sets::beyond },
    Row { room: "statefulset-controller", name: "what is held back is not rolled", check: sets::held_back },
    Row {
        room: "statefulset-controller",
        name: "pods are rolled one after the other",
        check: sets::one_by_one,
    },
    Row {
        room: "statefulset-controller",
        name: "no more replicas are missing than may be",
        check: sets::replicas_are_there,
    },
    Row { room: "daemonset-controller", name: "one pod on a node", check: sets::nodes },
    Row {
        room: "daemonset-controller",
        name: "no more daemons are missing than may be",
        check: sets::daemons_are_there,
    },
    Row { room: "job-controller", name: "never more active pods than parallelism", check: jobs::parallelism },
    Row { room: "job-controller", name: "nothing is started after the end", check: jobs::ended },
    Row { room: "job-controller", name: "no pod is counted twice", check: jobs::counted },
    Row { room: "job-controller", name: "no failure is counted twice", check: jobs::failures },
    Row { room: "job-controller", name: "no success is lost", check: jobs::lost },
    Row { room: "job-controller", name: "no index that has succeeded runs again", check: jobs::index_once },
    Row { room: "cronjob-controller", name: "nothing runs twice for one time", check: schedules::once },
    Row { room: "cronjob-controller", name: "nothing runs before its time", check: schedules::not_early },
    Row { room: "cronjob-controller", name: "what must be alone is alone", check: schedules::alone },
    Row { room: "disruption-controller", name: "no more may go than can", check: budgets::allows },
    Row { room: "disruption-controller", name: "no eviction is forgotten", check: budgets::remembers },
    Row { room: "statefulset-controller", name: "claims go by their policy", check: volumes::retention },
    Row {
        room: "persistentvolume-binder-controller",
        name: "no volume is taken from its claim",
        check: volumes::keeps_claim,
    },
    Row {
        room: "persistentvolume-binder-controller",
        name: "a claim is bound to the volume that is bound to it",
        check: volumes::both_ways,
    },
    Row {
        room: "persistentvolumeclaim-protection-controller",
        name: "no claim goes that is in use",
        check: volumes::claim_in_use,
    },
    Row {
        room: "persistentvolume-protection-controller",
        name: "no volume goes that is bound",
        check: volumes::volume_in_use,
    },
    Row {
        room: "persistentvolume-attach-detach-controller",
        name: "no volume is detached that is mounted",
        check: attaching::mounted,
    },
    Row {
        room: "persistentvolume-attach-detach-controller",
        name: "a volume leaves its node's list first",
        check: attaching::listed,
    },
    Row {
        room: "persistentvolume-attach-detach-controller",
        name: "no volume is taken by force before its time",
        check: attaching::by_force,
    },
    Row {
        room: "persistentvolume-attach-detach-controller",
        name: "no volume is attached where another node mounts it",
        check: attaching::elsewhere,
    },
    Row { room: CONTROLLER, name: "never outside of the bounds", check: autoscalers::bounds },
    Row { room: CONTROLLER, name: "never faster than the policies", check: autoscalers::rates },
    Row { room: CONTROLLER, name: "never against what was asked for lately", check: autoscalers::stabilized },
    Row { room: "node-lifecycle-controller", name: "no node is given up that lives", check: nodes::lives },
    Row { room: "node-lifecycle-controller", name: "nodes are tainted at their rate", check: nodes::rate },
    Row { room: "taint-eviction-controller", name: "no toleration ends early", check: nodes::patience },
    Row { room: "node-ipam-controller", name: "no address is given twice", check: nodes::addresses },
    Row {
        room: "certificatesigningrequest-signing-controller",
        name: "the published authority vouches for every certificate",
        check: certificates::vouched_for,
    },
    Row {
        room: "certificatesigningrequest-signing-controller",
        name: "nothing is signed that is not allowed",
        check: certificates::allowed,
    },
    Row {
        room: "certificatesigningrequest-approving-controller",
        name: "nothing is approved that nobody has a right to",
        check: certificates::permitted,
    },
    Row { room: "resourcequota-controller", name: "what is counted was there", check: quotas::counts },
    Row {
        room: "bootstrap-signer-controller",
        name: "a signature is of what is published",
        check: published::signed,
    },
    Row {
        room: "root-ca-certificate-publisher-controller",
        name: "the published bundle is the authority's",
        check: published::bundle,
    },
    Row { room: "token-cleaner-controller", name: "no token goes before its end", check: tokens::ended },
    Row {
        room: "legacy-serviceaccount-token-cleaner-controller",
        name: "no token goes that was used",
        check: tokens::unused,
    },
    Row {
        room: "legacy-serviceaccount-token-cleaner-controller",
        name: "no token goes that is mounted",
        check: tokens::unmounted,
    },
];

/// The rules, with what they remember.
#[derive(Default)]
pub(crate) struct Checks {
    memory: Memory,
    /// Whether nothing is checked, nor remembered for later checks.
    pub(crate) is_off: bool,
    pub(crate) violations: Vec<Violation>,
}

impl Checks {
    /// How fast nodes may be tainted, where that is not as it is by default.
    pub(crate) fn rate(&mut self, rate: TaintRate) {
        self.memory.fleet.rate = rate;
    }

    /// From now on a manager's clock may be wrong by so many seconds.
    pub(crate) fn clock_is_wrong(&mut self, by: i64) {
        let held = &mut self.memory.ahead;
        *held = (*held).max(SignedDuration::from_secs(by));
    }

    /// Whether StatefulSets roll as many pods at once as they allow.
    pub(crate) fn rolls_several(&mut self, several: bool) {
        self.memory.rolls_several = several;
    }

    /// From now on the authority's files hold this certificate with its key, or what is of no use.
    pub(crate) fn published(&mut self, now: Timestamp, certificate: Option<Vec<u8>>) {
        self.memory.published.note(now, certificate);
    }

    /// Takes in what went over the line.
    pub(crate) fn hear(&mut self, exchange: &Exchange<'_>) {
        self.memory.heads.hear(exchange);
    }

    /// Looks at a change. Whether nothing is wrong with it; what is, is among the violations.
    pub(crate) fn observe(&mut self, model: &Model, change: &Change) -> bool {
        if self.is_off {
            return true;
        }
        self.memory.note(change);
        self.memory.mounts.note(model, change);
        let controller = match change.by.split_once('/') {
            Some((manager, name)) if manager.starts_with('m') => name,
            _ => "",
        };
        if controller.is_empty() {
            return true;
        }
        let look = Look { model, change, memory: &self.memory, controller };
        let before = self.violations.len();
        for row in RULES.iter().filter(|row| row.room == "*" || row.room == controller) {
            if let Err(what) = (row.check)(&look) {
                let rule = format!("{}: {}", row.room, row.name);
                self.violations
                    .push(Violation { rule, what: format!("{} at {}: {what}", change.by, change.at) });
            }
        }
        self.violations.len() == before
    }
}

impl Look<'_> {
    /// The object as it was, or is.
    pub(crate) fn before(&self) -> &Json {
        self.change.before.as_ref().map_or(&Json::Null, |stored| &stored.json)
    }

    pub(crate) fn after(&self) -> &Json {
        self.change.after.as_ref().map_or(&Json::Null, |stored| &stored.json)
    }

    pub(crate) fn resource(&self) -> &'static str {
        let stored = self.change.before.as_ref().or(self.change.after.as_ref());
        stored.map_or("", |stored| stored.place.resource)
    }

    /// Whether an object of this resource was made.
    pub(crate) fn makes(&self, resource: &str) -> bool {
        self.change.verb == "create" && self.resource() == resource
    }

    /// Whether an object of this resource is deleted, or begins to be.
    pub(crate) fn deletes(&self, resource: &str) -> bool {
        self.change.verb == "delete" && self.resource() == resource
    }

    /// Its namespace and name, for people.
    pub(crate) fn named(&self) -> String {
        let stored = self.change.before.as_ref().or(self.change.after.as_ref());
        stored.map_or_else(String::new, |stored| {
            format!("{} {}/{}", stored.place.resource, stored.place.namespace, stored.place.name)
        })
    }
}
