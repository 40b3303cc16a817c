//! The list of operations of a seed.
//!
//! A seed chooses a few objects, then rounds. In a round the scheduler, the kubelet and users advance pods, then users and other
//! controllers change objects. Most rounds have a sequence as well (`together`). Each round ends with a calm. Pods are advanced first because a
//! pod operation chooses among the pods of the last calm. One object of the list, the focus, is changed more often than the others, because
//! some faults need several changes of one object.

use serde_json::{Value, json};

use crate::operation::{Action, Fate, Named, Operation, PROPAGATIONS};
use crate::random::Random;
use crate::tables::{self, Field};
use crate::together::together;
use crate::turmoil::{disturb, refuse};

/// Names of objects, and how often they are used. Some are prefixes of others, or have the form of a StatefulSet's pod.
const NAMES: &[(&str, usize)] = &[
    ("web", 8),
    ("db", 6),
    ("db-0", 3),
    ("owner", 3),
    ("0", 1),
    ("web-1", 2),
    ("a.b", 1),
    ("a-name-of-40-characters-which-is-not-short", 1),
];

/// Kinds that create pods.
pub(crate) const MAKERS: &[&str] =
    &["DaemonSet", "Deployment", "Job", "ReplicaSet", "ReplicationController", "StatefulSet"];
const SCALED: &[&str] = &["Deployment", "ReplicaSet", "ReplicationController", "StatefulSet"];

/// Pod operations and how often they occur, with their actors.
const FATES: &[(Fate, &str, usize)] = &[
    (Fate::Bound, "scheduler", 6),
    (Fate::Ready, "kubelet", 24),
    (Fate::Unready, "kubelet", 5),
    (Fate::Failed, "kubelet", 7),
    (Fate::Succeeded, "kubelet", 7),
    (Fate::Gone, "kubelet", 10),
    (Fate::Deleted, "user", 5),
    (Fate::Vanished, "user", 3),
    (Fate::Evicted, "user", 6),
    (Fate::Held, "stranger", 2),
    (Fate::Released, "stranger", 4),
    (Fate::Relabeled, "user", 3),
    (Fate::Disrupted, "scheduler", 2),
];

/// Percentage of objects that come with their companion.
const COMPANION: usize = 50;
/// Percentage of companions whose first owner is the object that they come with.
const OWNED: usize = 40;
/// Percentage of rounds with a sequence (`together`).
const TOGETHER: usize = 80;
/// Percentage of changes whose object is the focus of the list.
const FOCUS: usize = 40;
/// Percentage of values that set several fields, for kinds with such values.
const SEVERAL: usize = 25;
/// Percentage of new objects in protobuf with bytes that are not UTF-8: of Roles, of other kinds.
const WIRE: [usize; 2] = [30, 5];
/// Stands for a reference to another object of the list in owner references.
const MEMBER: &str = "MEMBER";
/// Percentage of references whose UID is of an object of another kind.
const MISMATCH: usize = 10;

/// Percentage of lists that begin with a refusal, and of changes that are one.
const REFUSED: usize = 8;
/// Percentage of lists with events in the life of the manager or with rights that are taken away. Such a list plays alone, so it takes the
/// time of several.
const ALONE: usize = 2;
/// Percentage of rounds of such a list with an event. It comes between any two operations.
const DISTURBED: usize = 60;
/// Percentage of patches that are of the subresource `status`, for kinds with fields of it.
const STATUS: usize = 20;

/// Kinds in no namespace. Their names begin with the namespace of the list.
const CLUSTER_SCOPED: &[&str] = &["CertificateSigningRequest", "PersistentVolume", "Realm"];
/// The end of the names of Roles, which may have characters that are reserved in a URL.
pub(crate) const ODD_END: &str = "#a?b";
/// Bytes that are not UTF-8, in objects that are written in protobuf.
pub(crate) const INVALID: &str = "ÿ";

/// Answers of the metrics APIs.
pub(crate) const METRICS: &[&str] = &[
    r#"{"usage":{"cpu":"100m","memory":"1Mi"}}"#,
    r#"{"usage":{"cpu":"900m","memory":"1Gi"}}"#,
    r#"{"usage":{"cpu":"1u"},"custom":{"pods/requests":"5"}}"#,
    r#"{"usage":{"cpu":"400m"},"without":1,"strangers":["gone"]}"#,
    r#"{"containers":{"main":{"cpu":"250m"}},"external":{"queue":["3","4"]}}"#,
    r#"{"custom":{"pods/requests":"25k"},"external":{"queue":[]}}"#,
    r#"{"instead":{"metrics.k8s.io":{"code":503},"external.metrics.k8s.io":{"code":403}}}"#,
    "{}",
];

/// An object of the list.
pub(crate) struct Member {
    pub(crate) named: Named,
    /// The value of the label `app` of its pods.
    pub(crate) app: String,
    /// The object that it comes with.
    owner: Option<Named>,
}

impl Member {
    pub(crate) fn new(named: Named, app: &str) -> Self {
        Self { named, app: app.to_owned(), owner: None }
    }

    /// Returns the name without the namespace at its beginning.
    pub(crate) fn short_name(&self) -> &str {
        self.named.name.trim_start_matches("NAMESPACE-")
    }
}

/// Returns the operations of a seed.
pub(crate) fn operations(seed: u64) -> Vec<Operation> {
    let mut random = Random::new(seed);
    let mut members = members(&mut random);
    let focus = random.below(members.len());
    let mut list = Vec::new();
    let mut is_refused = random.chance(REFUSED);
    if is_refused {
        list.push(refuse(&mut random, &members));
    }
    let is_alone = random.chance(ALONE);
    let at_first = random.between(members.len().div_ceil(2), members.len());
    for member in &members[..at_first] {
        list.push(apply(&mut random, member, &members));
    }
    list.push(calm());
    for _ in 0..random.between(2, 4) {
        let begin = list.len();
        if is_refused && random.chance(50) {
            is_refused = false;
            list.push(Operation::new("admission", Action::Allow));
        }
        for _ in 0..random.between(0, 3) {
            list.push(advance(&mut random, &members));
        }
        for _ in 0..random.between(0, 2) {
            let is_refusal = random.chance(REFUSED);
            is_refused |= is_refusal;
            list.push(if is_refusal {
                refuse(&mut random, &members)
            } else {
                change(&mut random, &members, focus)
            });
        }
        if random.chance(TOGETHER) {
            list.extend(together(&mut random, &mut members));
        }
        if is_alone && random.chance(DISTURBED) {
            let at = random.between(begin, list.len());
            list.insert(at, disturb(&mut random));
        }
        list.push(calm());
    }
    if random.chance(5) {
        let named = Named { kind: "Namespace".to_owned(), name: "NAMESPACE".to_owned() };
        list.push(Operation::new("user", Action::Delete(named, PROPAGATIONS[0].0)));
        list.push(calm());
    }
    list.dedup_by(|second, first| second.action == Action::Calm && first.action == Action::Calm);
    list
}

fn calm() -> Operation {
    Operation::new("all", Action::Calm)
}

fn members(random: &mut Random) -> Vec<Member> {
    let mut members: Vec<Member> = Vec::new();
    let count = random.between(2, 5);
    while members.len() < count {
        let kind = random.weighted(tables::kinds(), |kind| kind.weight).name.clone();
        // Most lists have pods.
        let is_late = members.len() + 1 == count && !members.iter().any(is_maker);
        if is_late && !MAKERS.contains(&kind.as_str()) && random.chance(90) {
            continue;
        }
        let prefix = if CLUSTER_SCOPED.contains(&kind.as_str()) { "NAMESPACE-" } else { "" };
        let name = random.weighted(NAMES, |(_, weight)| *weight).0;
        let app = if random.chance(75) { name } else { "web" };
        let end = if kind == "Role" { ODD_END } else { "" };
        let named = Named { kind, name: format!("{prefix}{name}{end}") };
        if members.iter().any(|member| member.named == named) {
            continue;
        }
        let companion = companion(&named.kind, name);
        members.push(Member::new(named.clone(), app));
        let companion = companion.filter(|other| members.iter().all(|member| member.named != *other));
        if let Some(companion) = companion.filter(|_| random.chance(COMPANION)) {
            members.push(Member { owner: Some(named), ..Member::new(companion, app) });
        }
    }
    members
}

/// Returns the object that often occurs with an object of this kind and name.
fn companion(kind: &str, name: &str) -> Option<Named> {
    let (kind, name) = match kind {
        "PersistentVolumeClaim" => ("PersistentVolume", format!("NAMESPACE-{name}")),
        "HorizontalPodAutoscaler" => ("Deployment", name.to_owned()),
        // The name is that of a Job of an activation in 2027.
        "CronJob" => ("Job", format!("{name}-30000000")),
        "Endpoints" | "EndpointSlice" => ("Service", name.to_owned()),
        // The name is that of the claim of the first pod.
        "StatefulSet" => ("PersistentVolumeClaim", format!("data-{name}-0")),
        "ServiceAccount" => ("Secret", format!("{name}-token")),
        _ => return None,
    };
    Some(Named { kind: kind.to_owned(), name })
}

/// Returns whether the object creates pods.
fn is_maker(member: &Member) -> bool {
    MAKERS.contains(&member.named.kind.as_str())
}

/// Server-side apply of a new object with some odd fields.
fn apply(random: &mut Random, member: &Member, members: &[Member]) -> Operation {
    let mut document = tables::kind(&member.named.kind).document.clone();
    let fields: Vec<&Field> =
        tables::fields(&member.named.kind).into_iter().filter(|field| !field.is_status()).collect();
    for _ in 0..random.between(0, 3) {
        let (at, value) = value(random, &fields);
        if !value.is_null() {
            fields[at].set(&mut document, value);
        }
    }
    if let Some(owner) = member.owner.as_ref().filter(|_| random.chance(OWNED)) {
        document["metadata"]["ownerReferences"] = json!([reference(random, owner, false)]);
    }
    let mut document = fill(random, &document, member, members);
    // The API server has no protobuf for custom kinds.
    let is_custom = document["apiVersion"] == "parity.example.com/v1";
    let [of_roles, of_others] = WIRE;
    if !is_custom && random.chance(if member.named.kind == "Role" { of_roles } else { of_others }) {
        if member.named.kind == "Role" && random.chance(50) {
            document["metadata"]["name"] = format!("{}{INVALID}", member.named.name).into();
        }
        tables::set(&mut document, "/metadata/annotations/note", INVALID.into());
        return Operation::new("attacker", Action::Wire(document));
    }
    Operation::new("user", Action::Apply(document))
}

/// Chooses a field, by its index, and one of its values.
fn value(random: &mut Random, fields: &[&Field]) -> (usize, Value) {
    let several: Vec<usize> = (0..fields.len()).filter(|at| fields[*at].sets_several()).collect();
    let is_several = !several.is_empty() && random.chance(SEVERAL);
    let at = if is_several { *random.pick(&several) } else { random.below(fields.len()) };
    (at, random.pick(&fields[at].values).clone())
}

fn change(random: &mut Random, members: &[Member], focus: usize) -> Operation {
    let member = if random.chance(FOCUS) { &members[focus] } else { random.pick(members) };
    let named = member.named.clone();
    let is_scaled = SCALED.contains(&named.kind.as_str());
    match random.below(100) {
        0..25 => apply(random, member, members),
        25..40 if is_scaled => Operation::new("autoscaler", Action::Scale(named, random.below(5) as i64)),
        25..60 if named.kind == "CertificateSigningRequest" => {
            Operation::new("approver", Action::Approve(named, None))
        }
        25..45 if named.kind == "HorizontalPodAutoscaler" => {
            let numbers = serde_json::from_str(random.pick::<&str>(METRICS)).unwrap_or_default();
            Operation::new("metrics", Action::Metrics(numbers))
        }
        40..55 => {
            let propagation = random.pick(&PROPAGATIONS).0;
            Operation::new("user", Action::Delete(named, propagation))
        }
        _ => {
            let fields = tables::fields(&named.kind);
            let (status, fields): (Vec<&Field>, Vec<&Field>) =
                fields.into_iter().filter(|field| !field.only_new).partition(|field| field.is_status());
            let mut patch = json!({});
            if !status.is_empty() && random.chance(STATUS) {
                let (at, value) = value(random, &status);
                status[at].set(&mut patch, value);
                let patch = fill(random, &patch, member, members);
                return Operation::new("other", Action::Status(named, patch));
            }
            for _ in 0..random.between(1, 2) {
                let (at, value) = value(random, &fields);
                fields[at].set(&mut patch, value);
            }
            let patch = fill(random, &patch, member, members);
            Operation::new("other", Action::Patch(named, patch))
        }
    }
}

fn advance(random: &mut Random, members: &[Member]) -> Operation {
    let (fate, actor, _) = *random.weighted(FATES, |(_, _, weight)| *weight);
    let makers: Vec<&Member> = members.iter().filter(|member| is_maker(member)).collect();
    let app = if makers.is_empty() { "web" } else { &random.pick(&makers).app };
    let selector = format!("app={app}");
    let take = *random.pick(&[1, 1, 1, 2, 2, 3, 99]);
    Operation::new(actor, Action::Pods { fate, selector, take })
}

/// Returns a reference to an object, which may name another kind than that of the object.
fn reference(random: &mut Random, owner: &Named, may_mismatch: bool) -> Value {
    let Named { kind, name } = owner;
    let (mut api_version, mut kind_of_reference) = (&tables::kind(kind).document["apiVersion"], kind);
    if may_mismatch && random.chance(MISMATCH) {
        let other = random.pick(tables::kinds());
        (api_version, kind_of_reference) = (&other.document["apiVersion"], &other.name);
    }
    json!({
        "apiVersion": api_version,
        "kind": kind_of_reference,
        "name": name,
        "uid": format!("UID({kind}/{name})"),
        "controller": random.chance(50),
        "blockOwnerDeletion": random.chance(50),
    })
}

/// Replaces the words of the tables.
fn fill(random: &mut Random, document: &Value, member: &Member, members: &[Member]) -> Value {
    let mut document = document.clone();
    if document["metadata"]["ownerReferences"] == MEMBER {
        let owner = &random.pick(members).named;
        document["metadata"]["ownerReferences"] = json!([reference(random, owner, true)]);
    }
    let other = random.pick(members).short_name();
    with_words(&document, member.short_name(), &member.app, other)
}

/// Replaces the words of the tables by the name and the label of an object, and the name of another object.
pub(crate) fn with_words(document: &Value, name: &str, app: &str, other: &str) -> Value {
    replace(document, &|text| {
        text.replace("NAMESPACE", "\u{0}")
            .replace("NAME", name)
            .replace('\u{0}', "NAMESPACE")
            .replace("APP", app)
            .replace("OTHER", other)
    })
}

fn replace(value: &Value, with: &impl Fn(&str) -> String) -> Value {
    match value {
        Value::String(text) => with(text).into(),
        Value::Array(items) => items.iter().map(|item| replace(item, with)).collect(),
        Value::Object(map) => map.iter().map(|(key, value)| (key.clone(), replace(value, with))).collect(),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const SEEDS: u64 = 2_000;

    #[test]
    fn list_follows_from_its_seed_and_is_read_back_from_its_lines() {
        for seed in 0..SEEDS {
            let list = operations(seed);
            assert_eq!(list, operations(seed));
            for operation in &list {
                let line = operation.to_string();
                assert!(!line.contains('\n'), "{line}");
                assert_eq!(line.parse::<Operation>().as_ref(), Ok(operation), "{line}");
            }
        }
    }

    #[test]
    fn lists_are_short_and_end_with_a_calm() {
        let mut operations_in_all = 0;
        for seed in 0..SEEDS {
            let list = operations(seed);
            assert!((2..=100).contains(&list.len()), "{seed}: {} operations", list.len());
            assert_eq!(list.last(), Some(&calm()), "{seed}");
            operations_in_all += list.len();
        }
        assert!(operations_in_all as u64 > 10 * SEEDS, "{operations_in_all} operations");
    }

    #[test]
    fn answers_of_metrics_apis_are_numbers_of_the_harness() {
        for text in METRICS {
            let numbers = serde_json::from_str::<crate::harness::Numbers>(text);
            assert!(numbers.is_ok(), "{text}: {numbers:?}");
        }
    }

    #[test]
    fn status_is_patched_as_a_subresource_only() {
        for operation in (0..SEEDS).flat_map(operations) {
            match &operation.action {
                Action::Apply(document) | Action::Wire(document) | Action::Patch(_, document) => {
                    assert!(document["status"].is_null(), "{operation}");
                }
                Action::Status(_, patch) => assert!(patch["spec"].is_null(), "{operation}"),
                _ => {}
            }
        }
    }

    #[test]
    fn every_kind_and_every_value_of_a_field_is_used() {
        let lists: Vec<Operation> = (0..SEEDS).flat_map(operations).collect();
        let kinds: BTreeSet<String> = lists
            .iter()
            .filter_map(|operation| operation.applied()?["kind"].as_str().map(str::to_owned))
            .collect();
        assert_eq!(kinds, tables::kinds().iter().map(|kind| kind.name.clone()).collect());
        let lines: String = lists.iter().map(ToString::to_string).collect();
        for text in [
            "\"OnDelete\"",
            "\"Indexed\"",
            "\"whenScaled\":\"Delete\"",
            "\"150%\"",
            "2147483647",
            "UID(ConfigMap/owner)",
            "UID(Realm/NAMESPACE-",
            "attacker wire {",
            "metrics metrics {",
            "\"lastScheduleTime\":",
            "\"priorityClassName\":\"low\"",
            " NOW-7200s",
            "\"nodeName\":\"by-hand-3\"",
            "\"memory\":\"1073741824\"",
            "\"parallelism\":28",
            "web#a?b",
            "-30000000\"",
            "\"uid\":\"UID(CronJob/",
            "admission refuse CREATE pods ",
            "admission allow",
            "operator take-over",
            "operator kill",
            "operator forbid ",
        ] {
            assert!(lines.contains(text), "{text}");
        }
        for word in ["APP", "OTHER", "MEMBER", "\"NAME"] {
            assert!(!lines.replace("NAMESPACE", "").contains(word), "{word}");
        }
    }
}
