//! An operation of an actor, and its form on one line.

use std::fmt;
use std::str::FromStr;

use serde_json::Value;

use crate::life::{LIVES, Life};
use crate::refusals::Refusal;

/// One operation.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Operation {
    /// The field manager of its writes.
    pub(crate) actor: String,
    pub(crate) action: Action,
}

/// The work of an operation.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Action {
    /// Server-side apply of an object. An object that names a namespace is in that one, where only its existence and its owners
    /// are compared.
    Apply(Value),
    /// Server-side apply in protobuf, with two bytes that are not UTF-8 for each `ÿ`.
    Wire(Value),
    /// A JSON merge patch.
    Patch(Named, Value),
    /// A JSON merge patch of the subresource `status`.
    Status(Named, Value),
    /// The answers of the metrics APIs for the namespace from here on (`harness::Numbers`).
    Metrics(Value),
    /// A write of the subresource `scale`.
    Scale(Named, i64),
    Delete(Named, Propagation),
    /// The approval of a CertificateSigningRequest, with the time of its last update (`NOW-7200s`).
    Approve(Named, Option<String>),
    /// A step in the lives of up to `take` pods with a label (`app=web`). The pods are those of the last calm.
    Pods {
        fate: Fate,
        selector: String,
        take: usize,
    },
    /// Refuses such writes of the manager from here on.
    Refuse(Refusal),
    /// Ends all refusals.
    Allow,
    /// An event in the life of the manager.
    Manager(Life),
    /// Takes the right to a verb on a resource away from a controller, by its role.
    Forbid {
        role: String,
        verb: String,
        resource: String,
    },
    /// Gives all rights back.
    Permit,
    /// Waits until no controller has work left, and compares all objects.
    Calm,
}

/// The kind and the name of an object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Named {
    pub(crate) kind: String,
    pub(crate) name: String,
}

/// Treatment of a deleted object's dependents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Propagation {
    Background,
    Foreground,
    Orphan,
}

/// A step in the life of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// The scheduler binds the pod to a node.
    Bound,
    /// The kubelet reports that the pod runs and passes its probes.
    Ready,
    /// The kubelet reports that the pod fails a probe.
    Unready,
    Failed,
    Succeeded,
    /// A user deletes the pod.
    Deleted,
    /// A user deletes the pod without a grace period.
    Vanished,
    /// The kubelet ends the deletion of a pod that is being deleted.
    Gone,
    /// A user requests the eviction of the pod.
    Evicted,
    /// A finalizer is added.
    Held,
    /// All finalizers are removed.
    Released,
    /// The label `app` gets another value.
    Relabeled,
    /// The scheduler announces that it will preempt the pod.
    Disrupted,
}

const FATES: [(Fate, &str); 13] = [
    (Fate::Bound, "bind"),
    (Fate::Ready, "ready"),
    (Fate::Unready, "unready"),
    (Fate::Failed, "fail"),
    (Fate::Succeeded, "succeed"),
    (Fate::Deleted, "delete-pods"),
    (Fate::Vanished, "vanish"),
    (Fate::Gone, "end"),
    (Fate::Evicted, "evict"),
    (Fate::Held, "hold"),
    (Fate::Released, "release"),
    (Fate::Relabeled, "relabel"),
    (Fate::Disrupted, "disrupt"),
];

pub(crate) const PROPAGATIONS: [(Propagation, &str); 3] = [
    (Propagation::Background, "background"),
    (Propagation::Foreground, "foreground"),
    (Propagation::Orphan, "orphan"),
];

impl Operation {
    pub(crate) fn new(actor: &str, action: Action) -> Self {
        Self { actor: actor.to_owned(), action }
    }

    /// Returns the object that the operation applies, if it applies one.
    pub(crate) fn applied(&self) -> Option<&Value> {
        match &self.action {
            Action::Apply(object) | Action::Wire(object) => Some(object),
            _ => None,
        }
    }

    /// Returns whether the operation applies an object in another namespace.
    pub(crate) fn is_elsewhere(&self) -> bool {
        self.applied().is_some_and(|object| object["metadata"]["namespace"].is_string())
    }

    /// Returns whether the operation concerns the whole control plane.
    pub(crate) fn concerns_plane(&self) -> bool {
        matches!(self.action, Action::Manager(_) | Action::Forbid { .. } | Action::Permit)
    }

    /// Returns the operation without its document.
    pub(crate) fn title(&self) -> String {
        match &self.action {
            Action::Apply(object) => format!("{} apply {}", self.actor, Named::of(object)),
            Action::Wire(object) => format!("{} wire {}", self.actor, Named::of(object)),
            Action::Patch(named, _) => format!("{} patch {named}", self.actor),
            Action::Status(named, _) => format!("{} status {named}", self.actor),
            Action::Metrics(_) => format!("{} metrics", self.actor),
            _ => self.to_string(),
        }
    }
}

impl Named {
    pub(crate) fn of(object: &Value) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        Self { kind: text(&object["kind"]), name: text(&object["metadata"]["name"]) }
    }
}

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.kind, self.name)
    }
}

impl FromStr for Named {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (kind, name) = text.split_once('/').ok_or_else(|| format!("{text:?} is not KIND/NAME"))?;
        Ok(Self { kind: kind.to_owned(), name: name.to_owned() })
    }
}

fn word<T: PartialEq>(table: &[(T, &'static str)], value: &T) -> &'static str {
    table.iter().find(|(each, _)| each == value).map_or("", |(_, word)| word)
}

fn meaning<T: Copy>(table: &[(T, &str)], word: &str) -> Option<T> {
    table.iter().find(|(_, each)| *each == word).map(|(value, _)| *value)
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.actor)?;
        match &self.action {
            Action::Apply(object) => write!(f, "apply {object}"),
            Action::Wire(object) => write!(f, "wire {object}"),
            Action::Patch(named, with) => write!(f, "patch {named} {with}"),
            Action::Status(named, with) => write!(f, "status {named} {with}"),
            Action::Metrics(numbers) => write!(f, "metrics {numbers}"),
            Action::Scale(named, replicas) => write!(f, "scale {named} {replicas}"),
            Action::Delete(named, propagation) => {
                write!(f, "delete {named} {}", word(&PROPAGATIONS, propagation))
            }
            Action::Approve(named, None) => write!(f, "approve {named}"),
            Action::Approve(named, Some(since)) => write!(f, "approve {named} {since}"),
            Action::Pods { fate, selector, take } => {
                write!(f, "{} {selector} {take}", word(&FATES, fate))
            }
            Action::Refuse(refusal) => write!(f, "refuse {refusal}"),
            Action::Allow => write!(f, "allow"),
            Action::Manager(life) => write!(f, "{}", word(&LIVES, life)),
            Action::Forbid { role, verb, resource } => write!(f, "forbid {role} {verb} {resource}"),
            Action::Permit => write!(f, "permit"),
            Action::Calm => write!(f, "calm"),
        }
    }
}

impl FromStr for Operation {
    type Err = String;

    fn from_str(line: &str) -> Result<Self, String> {
        let wrong = || format!("not an operation: {line}");
        let (actor, command) = line.split_once(' ').ok_or_else(wrong)?;
        let (verb, arguments) = command.split_once(' ').unwrap_or((command, ""));
        let json = |text: &str| serde_json::from_str(text).map_err(|error| format!("{error}: {line}"));
        let two = || arguments.split_once(' ').ok_or_else(wrong);
        let number = |text: &str| text.parse::<i64>().map_err(|_| wrong());
        let action = match verb {
            "apply" => Action::Apply(json(arguments)?),
            "wire" => Action::Wire(json(arguments)?),
            "patch" => Action::Patch(two()?.0.parse()?, json(two()?.1)?),
            "status" => Action::Status(two()?.0.parse()?, json(two()?.1)?),
            "metrics" => Action::Metrics(json(arguments)?),
            "scale" => Action::Scale(two()?.0.parse()?, number(two()?.1)?),
            "delete" => {
                let propagation = meaning(&PROPAGATIONS, two()?.1).ok_or_else(wrong)?;
                Action::Delete(two()?.0.parse()?, propagation)
            }
            "approve" => match arguments.split_once(' ') {
                Some((named, since)) => Action::Approve(named.parse()?, Some(since.to_owned())),
                None => Action::Approve(arguments.parse()?, None),
            },
            "refuse" => Action::Refuse(arguments.parse()?),
            "allow" => Action::Allow,
            "forbid" => {
                let [role, verb, resource] = arguments.split(' ').collect::<Vec<_>>()[..] else {
                    return Err(wrong());
                };
                let [role, verb, resource] = [role, verb, resource].map(str::to_owned);
                Action::Forbid { role, verb, resource }
            }
            "permit" => Action::Permit,
            "calm" => Action::Calm,
            verb if meaning(&LIVES, verb).is_some() => {
                Action::Manager(meaning(&LIVES, verb).ok_or_else(wrong)?)
            }
            verb => {
                let fate = meaning(&FATES, verb).ok_or_else(wrong)?;
                let take = usize::try_from(number(two()?.1)?).map_err(|_| wrong())?;
                Action::Pods { fate, selector: two()?.0.to_owned(), take }
            }
        };
        Ok(Self::new(actor, action))
    }
}

#[test]
fn malformed_operation_is_an_error() {
    for line in [
        "",
        "user",
        "user fly",
        "user apply {",
        "user scale web 3",
        "user delete Pod/a sideways",
        "agent ready app=web -1",
    ] {
        assert!(line.parse::<Operation>().is_err(), "{line}");
    }
}
