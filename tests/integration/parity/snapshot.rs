//! What is seen of a namespace: objects and events, without what differs from run to run and without what the API
//! server fills in.
//!
//! A look is a document: `KIND: {NAME: {labels, annotations, owners, …, spec, status}}`; pods as a list of what they are
//! and how many of that sort there are, for their names say nothing; `events` by what they say.

use std::collections::BTreeMap;

use coxswain_machinery::model::clock::{Clock as _, SystemClock};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value, json};

use super::names::Names;
use super::{certificates, contents, slices, subsets};

/// What the API server fills in when nobody says otherwise.
const DEFAULTS: &[(&str, &str)] = &[
    ("creationTimestamp", "null"),
    ("dnsPolicy", "\"ClusterFirst\""),
    ("enableServiceLinks", "true"),
    ("imagePullPolicy", "\"IfNotPresent\""),
    ("internalTrafficPolicy", "\"Cluster\""),
    ("preemptionPolicy", "\"PreemptLowerPriority\""),
    ("priority", "0"),
    ("progressDeadlineSeconds", "600"),
    ("resources", "{}"),
    ("restartPolicy", "\"Always\""),
    ("revisionHistoryLimit", "10"),
    ("schedulerName", "\"default-scheduler\""),
    ("securityContext", "{}"),
    ("serviceAccount", "\"default\""),
    ("serviceAccountName", "\"default\""),
    ("sessionAffinity", "\"None\""),
    ("terminationGracePeriodSeconds", "30"),
    ("terminationMessagePath", "\"/dev/termination-log\""),
    ("terminationMessagePolicy", "\"File\""),
];
/// Of the volume that admission gives every pod.
const TOKEN_VOLUME: &str = "kube-api-access-";
/// Of the nodes that are played.
const NODE: &str = "node-";
/// Of labels that pods get from their nodes.
const TOPOLOGY: &str = "topology.kubernetes.io/";
/// The reason of events that the original tells twice when its cache is late.
const TOLD_TWICE: &str = "SawCompletedJob";
/// Reasons of events that are told at every try, of which there are as many as time goes by, and who tells them.
const TOLD_OFTEN: [(&str, &str); 10] = [
    ("CIDRNotAvailable", "cidrAllocator"),
    ("ExternalProvisioning", BINDER),
    ("FailedBinding", BINDER),
    ("MultiplePodDisruptionBudgets", "controllermanager"),
    ("TopologyAwareHintsDisabled", "endpoint-slice-controller"),
    ("UnexpectedJob", "cronjob-controller"),
    ("UnmanagedPods", "controllermanager"),
    ("VolumeFailedRecycle", BINDER),
    ("WaitForFirstConsumer", BINDER),
    ("WaitForPodScheduled", BINDER),
];
const BINDER: &str = "persistentvolume-controller";
/// Sources of events that are not named after a controller: of those about blocks of addresses, budgets, ephemeral volumes,
/// autoscalers, ResourceClaims, labels of mounts, and volumes that grow.
const OTHER_SOURCES: [&str; 7] = [
    "cidrAllocator",
    "controllermanager",
    "ephemeral_volume",
    AUTOSCALERS,
    "resource_claim",
    "selinux_warning",
    "volume_expand",
];
/// One of these.
const AUTOSCALERS: &str = "horizontal-pod-autoscaler";
/// What is said of autoscalers that share pods, before their names, which come in any order.
const SHARED: &str = " are controlled by multiple HPAs: [";
/// What an event's message starts with when it stands for several.
const COMBINED: &str = "(combined from similar events): ";

/// The normal form of a namespace.
pub(super) fn snapshot(names: &mut Names, objects: &[(&str, Vec<Value>)], events: &[Value]) -> Value {
    let is_set = |kind: &str| matches!(kind, "ReplicaSet" | "ReplicationController");
    for (_, sets) in objects.iter().filter(|(kind, _)| is_set(kind)) {
        names.note(sets);
    }
    for (_, jobs) in objects.iter().filter(|(kind, _)| *kind == "Job") {
        names.note_jobs(jobs);
        names.note_activations(jobs);
    }
    for (_, revisions) in objects.iter().filter(|(kind, _)| *kind == "ControllerRevision") {
        names.note_revisions(revisions);
    }
    // The names of PodGroups have those of their Workloads in them.
    for kind in ["PodGroup", "Workload"] {
        for (_, made) in objects.iter().filter(|(held, _)| *held == kind) {
            names.note_gangs(kind, made);
        }
    }
    for (_, nodes) in objects.iter().filter(|(kind, _)| *kind == "Node") {
        names.note_blocks(nodes);
    }
    for (_, slices) in objects.iter().filter(|(kind, _)| *kind == "EndpointSlice") {
        names.note_slices(slices);
    }
    for (_, claims) in objects.iter().filter(|(kind, _)| *kind == "ResourceClaim") {
        names.note_claims(claims);
    }
    for (_, attachments) in objects.iter().filter(|(kind, _)| *kind == "VolumeAttachment") {
        names.note_attachments(attachments);
    }
    let uids: Vec<&str> =
        objects.iter().flat_map(|(_, all)| all).filter_map(|each| each["metadata"]["uid"].as_str()).collect();
    let mut look = json!({ "after": null });
    for (kind, all) in objects {
        let normal = all.iter().map(|each| names.plainly(&normal(kind, each, &uids)));
        look[*kind] = if *kind == "Pod" {
            counted(normal)
        } else {
            let named =
                all.iter().map(|each| names.plain(each["metadata"]["name"].as_str().unwrap_or_default()));
            let sorted: BTreeMap<String, Value> = named.zip(normal).collect();
            sorted.into_iter().collect()
        };
    }
    look["events"] = happened(names, events);
    look
}

/// The value at a path, `null` when there is none.
pub(super) fn at(tree: &Value, path: &str) -> Value {
    let step = |value: &Value, key: &str| match key.parse::<usize>() {
        Ok(at) if value.is_array() => value.get(at).cloned().unwrap_or_default(),
        _ => value[key].clone(),
    };
    path.split('.').fold(tree.clone(), |value, key| step(&value, key))
}

/// Equal things are one, with their number in `count`; sorted, for they have no order.
fn counted(things: impl Iterator<Item = Value>) -> Value {
    let mut sorts: BTreeMap<String, (Value, u64)> = BTreeMap::new();
    for thing in things {
        sorts.entry(thing.to_string()).or_insert((thing, 0)).1 += 1;
    }
    let numbered = sorts.into_values().map(|(mut thing, count)| {
        thing["count"] = count.into();
        thing
    });
    numbered.collect()
}

/// Events of controllers by what they say, and how often each happened, unless that is a matter of the cache. Of warnings only whether it was more than
/// once: attempts are many or few as time goes by.
fn happened(names: &Names, events: &[Value]) -> Value {
    let mut sorts: BTreeMap<String, u64> = BTreeMap::new();
    for event in events {
        if let Some(text) = event_text(event) {
            *sorts.entry(names.plain(&text)).or_default() += event["count"].as_u64().unwrap_or(1);
        }
    }
    let is_told_often = |text: &str| {
        TOLD_OFTEN.iter().any(|(reason, by)| {
            text.split_once(' ').is_some_and(|(_, told)| told.starts_with(&format!("{reason} by {by} ")))
        })
    };
    let counted = sorts.into_iter().map(|(text, count)| {
        let count: Value = match (text.starts_with("Warning"), count) {
            _ if text.split(' ').nth(1) == Some(TOLD_TWICE) => "once or twice".into(),
            _ if is_told_often(&text) => "once or more".into(),
            // An autoscaler tells of what fails at each look.
            (true, _) if text.contains(&format!(" by {AUTOSCALERS} about ")) => "each time".into(),
            (true, 1) => "once".into(),
            (true, _) => "more".into(),
            (false, count) => count.into(),
        };
        (text, count)
    });
    counted.collect()
}

/// An event of a controller on one line; `None` for those of others.
fn event_text(event: &Value) -> Option<String> {
    let component = event["source"]["component"].as_str();
    let component = component.filter(|name| name.ends_with("-controller") || OTHER_SOURCES.contains(name))?;
    if event["reason"] == "RecyclerPod" {
        // The original tells of a volume what is told of the Pod that empties it, once more. Differs: recycler-events.
        return None;
    }
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let about = &event["involvedObject"];
    let mut line = format!(
        "{} {} by {component} about {} {}/{}: {}",
        text(&event["type"]),
        text(&event["reason"]),
        text(&about["apiVersion"]),
        text(&about["kind"]),
        text(&about["name"]),
        in_order(text(&event["message"]).trim_start_matches(COMBINED)),
    );
    // Which of the budgets over a pod is named is chance.
    if let Some((before, _)) = line.split_once("  Chose ") {
        line = format!("{before}  Chose one arbitrarily.");
    }
    // Whether attempts were so many that they are combined, which names no reporter, is a matter of time.
    let is_combined_warning =
        text(&event["type"]) == "Warning" && text(&event["message"]).starts_with(COMBINED);
    if event["reportingComponent"] != component && !is_combined_warning {
        line = format!("{line} (reported by {})", event["reportingComponent"]);
    }
    if !(event["firstTimestamp"].is_string() && event["lastTimestamp"].is_string()) {
        line.push_str(" (without times)");
    }
    Some(line)
}

fn normal(kind: &str, object: &Value, uids: &[&str]) -> Value {
    let metadata = &object["metadata"];
    let mut normal = Map::new();
    if kind == "Pod" {
        normal.insert("name".to_owned(), metadata["name"].clone());
    }
    for field in ["labels", "annotations", "finalizers"] {
        if metadata.get(field).is_some_and(|value| !is_empty(value)) {
            normal.insert(field.to_owned(), metadata[field].clone());
        }
    }
    if let Some(labels) = normal.get_mut("labels").and_then(Value::as_object_mut) {
        labels.retain(|key, _| !key.starts_with(TOPOLOGY));
    }
    if let Some(annotations) = normal.get_mut("annotations").and_then(Value::as_object_mut) {
        slices::plain_trigger_time(object, annotations);
    }
    if let Some(references) = metadata["ownerReferences"].as_array() {
        let owners = references.iter().map(|reference| Value::from(owner(reference, uids)));
        normal.insert("owners".to_owned(), owners.collect());
    }
    if metadata.get("deletionTimestamp").is_some() {
        normal.insert("deleting".to_owned(), true.into());
    }
    if kind == "EndpointSlice" {
        // Without the generation: into how many writes changes are gathered is a matter of time.
        normal.extend(slices::content(object, uids));
        return Value::Object(normal);
    }
    if kind == "Endpoints" {
        normal.extend(subsets::content(object, uids));
        return Value::Object(normal);
    }
    if metadata.get("generation").is_some() && kind != "Pod" {
        normal.insert("generation".to_owned(), metadata["generation"].clone());
    }
    let mut spec = object["spec"].clone();
    if kind == "Service" {
        slices::without_addresses(&mut spec);
    }
    if let Some(version) = spec.pointer_mut("/claimRef/resourceVersion") {
        // Of which version of the claim a volume speaks is a matter of time; that it does is not.
        *version = version.is_string().into();
    }
    if let Some(taints) = spec.get_mut("taints").and_then(Value::as_array_mut) {
        in_taint_order(taints);
    }
    strip(&mut spec);
    normal.insert("spec".to_owned(), spec);
    let mut object = object.clone();
    if let Some(listed) = object.pointer_mut("/status/volumesAttached").and_then(Value::as_array_mut) {
        // In any order.
        listed.sort_by_key(|each| each["name"].to_string());
    }
    for condition in
        object.pointer_mut("/status/conditions").and_then(Value::as_array_mut).into_iter().flatten()
    {
        if let Some(text) = condition["message"].as_str().filter(|text| text.contains(SHARED)) {
            condition["message"] = in_order(text).into();
        }
    }
    if let Some(active) = object.pointer_mut("/status/active").and_then(Value::as_array_mut) {
        // Of which version an entry speaks is a matter of time; that it does is not.
        for entry in active {
            entry["resourceVersion"] = entry["resourceVersion"].is_string().into();
        }
    }
    let object = &object;
    let status = if kind == "Pod" { pod_status(&object["status"]) } else { status(&object["status"]) };
    if !is_empty(&status) {
        normal.insert("status".to_owned(), status);
    }
    normal.extend(contents::content(kind, object));
    Value::Object(normal)
}

/// A text about autoscalers that share pods, with their names in order.
fn in_order(text: &str) -> String {
    let Some((before, names)) = text.split_once(SHARED) else { return text.to_owned() };
    let mut names: Vec<&str> = names.trim_end_matches(']').split(' ').collect();
    names.sort_unstable();
    format!("{before}{SHARED}{}]", names.join(" "))
}

/// Taints of others as they are, then those that controllers put on nodes by themselves: which of their loops is first is chance.
fn in_taint_order(taints: &mut [Value]) {
    let place = |taint: &Value| {
        let is_ours = taint["key"].as_str().is_some_and(|key| key.starts_with("node.kubernetes.io/"));
        is_ours.then(|| format!("{} {}", taint["key"], taint["effect"]))
    };
    taints.sort_by_key(place);
}

fn is_empty(value: &Value) -> bool {
    value.is_null()
        || value.as_object().is_some_and(Map::is_empty)
        || value.as_array().is_some_and(Vec::is_empty)
}

/// `KIND/NAME`, and what the reference says about it.
fn owner(reference: &Value, uids: &[&str]) -> String {
    let text = |field: &str| reference[field].as_str().unwrap_or_default();
    let mut owner = format!("{}/{} {}", text("kind"), text("name"), text("apiVersion"));
    for (field, word) in [("controller", ", controller"), ("blockOwnerDeletion", ", blocks its deletion")] {
        if reference[field] == true {
            owner.push_str(word);
        }
    }
    if !uids.contains(&text("uid")) {
        owner.push_str(", of another UID");
    }
    owner
}

/// Takes out what the API server, admission and the scheduler fill in.
fn strip(value: &mut Value) {
    match value {
        Value::Object(map) => {
            let volume =
                |each: &Value| each["name"].as_str().is_some_and(|name| name.starts_with(TOKEN_VOLUME));
            let toleration = |each: &Value| {
                each["tolerationSeconds"] == 300
                    && each["key"].as_str().is_some_and(|key| key.starts_with("node.kubernetes.io/"))
            };
            for (field, is_given) in [
                ("volumes", &volume as &dyn Fn(&Value) -> bool),
                ("volumeMounts", &volume),
                ("tolerations", &toleration),
            ] {
                if let Some(items) = map.get_mut(field).and_then(Value::as_array_mut) {
                    items.retain(|each| !is_given(each));
                }
                if map.get(field).is_some_and(is_empty) {
                    map.shift_remove(field);
                }
            }
            map.retain(|key, value| {
                let text = value.to_string();
                !DEFAULTS.contains(&(key.as_str(), text.as_str()))
            });
            if map.get("nodeName").and_then(Value::as_str).is_some_and(|name| name.starts_with(NODE)) {
                map.insert("nodeName".to_owned(), "NODE".into());
            }
            map.values_mut().for_each(strip);
        }
        Value::Array(items) => items.iter_mut().for_each(strip),
        _ => {}
    }
}

/// The phase, whether it is ready, what disrupts it and which claims were made for it: the rest is the kubelet's.
fn pod_status(status: &Value) -> Value {
    let conditions = status["conditions"].as_array();
    let ready = conditions.and_then(|all| all.iter().find(|each| each["type"] == "Ready"));
    let ready = ready.map_or_else(|| "no word".into(), |ready| ready["status"].clone());
    let mut normal = json!({ "phase": status["phase"], "ready": ready });
    if let Some(disrupted) =
        conditions.and_then(|all| all.iter().find(|each| each["type"] == "DisruptionTarget"))
    {
        normal["disrupted"] = condition(disrupted);
        normal["observedGeneration"] = status["observedGeneration"].clone();
    }
    for field in ["resourceClaimStatuses", "extendedResourceClaimStatus"] {
        if status[field] != Value::Null {
            normal[field] = status[field].clone();
        }
    }
    // The original writes them in any order. Differs: no.
    if let Some(recorded) = normal.get_mut("resourceClaimStatuses").and_then(Value::as_array_mut) {
        recorded.sort_by_key(|entry| entry["name"].as_str().map(str::to_owned));
    }
    normal
}

/// A status with its conditions by type. Of their times, that they are there and in order.
fn status(status: &Value) -> Value {
    let mut normal = status.clone();
    if let Some(conditions) = status["conditions"].as_array() {
        let by_type: BTreeMap<String, Value> = conditions
            .iter()
            .map(|each| (each["type"].as_str().unwrap_or_default().to_owned(), condition(each)))
            .collect();
        normal["conditions"] = by_type.into_iter().collect();
    }
    // The times at which volumes changed are reduced to their presence, and times of scaling to this run.
    if normal["lastPhaseTransitionTime"].is_string() {
        normal["lastPhaseTransitionTime"] = "a time".into();
    }
    if normal["lastScaleTime"].as_str().is_some_and(|text| is_of_this_run(text, SystemClock.now())) {
        normal["lastScaleTime"] = "a time".into();
    }
    for warning in normal
        .pointer_mut("/typeChecking/expressionWarnings")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
    {
        if let Some(text) = warning["warning"].as_str() {
            warning["warning"] = without_clock(text).into();
        }
    }
    // Which version a migration begins at is chance; that it knows one is not.
    if normal["resourceVersion"].is_string() {
        normal["resourceVersion"] = "some version".into();
    }
    if let Some(issued) = normal["certificate"].as_str().and_then(certificates::plain) {
        normal["certificate"] = issued;
    }
    if let Some(disrupted) = normal.get_mut("disruptedPods").and_then(Value::as_object_mut) {
        disrupted.values_mut().for_each(|time| *time = "some time".into());
    }
    normal
}

/// Whether a time is one of the last minutes. A run of all scenarios is shorter than this.
fn is_of_this_run(text: &str, now: Timestamp) -> bool {
    const LONGEST: SignedDuration = SignedDuration::from_hours(2);
    /// Times are cut to seconds, and clocks of one machine agree.
    const AHEAD: SignedDuration = SignedDuration::from_secs(1);
    let at: Option<Timestamp> = text.parse().ok();
    at.is_some_and(|at| (-AHEAD..=LONGEST).contains(&now.duration_since(at)))
}

/// A warning about types without the nanoseconds that are in their names: `Deployment123456789.spec` is `Deployment#.spec`.
fn without_clock(text: &str) -> String {
    let (mut out, mut word) = (String::with_capacity(text.len()), String::new());
    for letter in text.chars().chain(['\n']) {
        if letter.is_ascii_alphanumeric() {
            word.push(letter);
            continue;
        }
        let name = word.trim_end_matches(|digit: char| digit.is_ascii_digit());
        let is_type = name.starts_with(|first: char| first.is_ascii_uppercase()) && name.len() < word.len();
        out.push_str(if is_type { name } else { &word });
        out.push_str(if is_type { "#" } else { "" });
        out.push(letter);
        word.clear();
    }
    out.pop();
    out
}

fn condition(condition: &Value) -> Value {
    let mut normal = condition.clone();
    let (transition, update, probe) = (
        condition["lastTransitionTime"].as_str(),
        condition["lastUpdateTime"].as_str(),
        condition["lastProbeTime"].as_str(),
    );
    let map = normal.as_object_mut().expect("a condition is an object");
    for field in ["type", "lastTransitionTime", "lastUpdateTime", "lastProbeTime"] {
        map.shift_remove(field);
    }
    // Of a request that failed, the one is the manager's clock and the other the server's, in whole seconds.
    let is_of_two_clocks = condition["reason"] == "SignerValidationFailure";
    let times = match (transition, update) {
        (Some(_), Some(_)) if is_of_two_clocks => "of transition and of update",
        (Some(transition), Some(update)) if transition <= update => "of transition and of update",
        (Some(_), Some(_)) => "an update before the transition",
        (Some(transition), None) if probe == Some(transition) => "of transition and of probe",
        (Some(_), None) if probe.is_some() => "a probe at another time than the transition",
        (Some(_), None) => "of transition",
        (None, _) => "no transition",
    };
    map.insert("times".to_owned(), times.into());
    normal
}

#[test]
fn names_of_types_have_no_clock_in_them() {
    for (text, plain) in [
        ("applied to '(Deployment123456789.spec, int)'", "applied to '(Deployment#.spec, int)'"),
        ("list(Pod0.spec.containers.@idx)\n | Thing17", "list(Pod#.spec.containers.@idx)\n | Thing#"),
        ("apps/v1, Kind=Pod: <input>:1:12 a1 == 7 v1 'X'", "apps/v1, Kind=Pod: <input>:1:12 a1 == 7 v1 'X'"),
        ("", ""),
    ] {
        assert_eq!(without_clock(text), plain);
    }
}

#[test]
fn parity_snapshot_scale_time_outside_the_run_is_not_accepted() {
    let now: Timestamp = "2026-11-27T12:00:00Z".parse().expect("a time");
    for (text, expected) in [
        ("2026-11-27T12:00:00Z", true),
        ("2026-11-27T11:30:00Z", true),
        ("2026-11-27T12:00:05Z", false),
        ("2026-11-26T12:00:00Z", false),
        ("1970-01-01T00:01:15Z", false),
        ("soon", false),
    ] {
        assert_eq!(is_of_this_run(text, now), expected, "{text}");
    }
}
