//! Rules about nodes: who may be driven away, how fast, how soon, and who has which range of addresses.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value as Json;

use super::{Look, ON_ITS_WAY, WINDOW};
use apiserver_model::{Change, Model, items, text};

/// For how long a node may be silent: the default of `--node-monitor-grace-period`.
const GRACE: SignedDuration = SignedDuration::from_secs(50);
/// The taints that the node lifecycle controller drives pods away with.
const OURS: [&str; 2] = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"];

/// What is remembered of nodes.
#[derive(Default)]
pub(crate) struct Fleet {
    /// By name: when it gave its last sign of life.
    alive: BTreeMap<String, Timestamp>,
    /// By name: until when it was silent for longer than its grace, the last time that it was.
    silent: BTreeMap<String, Timestamp>,
    /// By name: while what it had taints that drive pods away.
    tainted: BTreeMap<String, Vec<Stretch>>,
    /// By manager and zone: when nodes were tainted so that pods leave them.
    driven: BTreeMap<(String, String), Vec<Timestamp>>,
    pub(crate) rate: TaintRate,
}

/// How fast nodes may be tainted.
pub(crate) struct TaintRate {
    /// Nodes of a zone per second.
    pub(crate) per_second: f64,
    /// The same for zones of which that is not true.
    pub(crate) of_zones: BTreeMap<String, f64>,
    /// By how many seconds one request may be slower than another.
    pub(crate) jitter: f64,
}

impl Default for TaintRate {
    fn default() -> Self {
        Self { per_second: 0.1, of_zones: BTreeMap::new(), jitter: 10.0 }
    }
}

/// A time in which a node always had taints that drive pods away.
struct Stretch {
    from: Timestamp,
    to: Option<Timestamp>,
    /// All that it had.
    taints: Vec<Json>,
}

fn driving(node: &Json) -> Vec<Json> {
    items(node, "/spec/taints").iter().filter(|taint| taint["effect"] == "NoExecute").cloned().collect()
}

fn is_driven_by_us(node: &Json) -> bool {
    driving(node).iter().any(|taint| OURS.contains(&text(taint, "/key")))
}

fn is_unknown(node: &Json) -> bool {
    let mut conditions = items(node, "/status/conditions").iter();
    conditions.any(|held| held["type"] == "Ready" && held["status"] == "Unknown")
}

/// Whether the last of these nodes was tainted too soon after those before it.
fn is_too_fast(times: &[Timestamp], per_second: f64, jitter: f64) -> bool {
    let Some(last) = times.last() else { return false };
    times.iter().rev().enumerate().any(|(since, at)| {
        let elapsed = (*last - *at).total(jiff::Unit::Second).unwrap_or(0.0);
        since as f64 > per_second * (elapsed + jitter)
    })
}

impl Fleet {
    /// Takes a change in.
    pub(super) fn note(&mut self, change: &Change) {
        let Some(stored) = change.after.as_ref().or(change.before.as_ref()) else { return };
        let name = stored.place.name.clone();
        let lives = match stored.place.resource {
            "leases" => stored.place.namespace == "kube-node-lease" && change.after.is_some(),
            "nodes" => change.verb == "create",
            _ => return,
        };
        if lives {
            let before = self.alive.insert(name.clone(), change.at);
            if before.is_some_and(|before| change.at.duration_since(before) >= GRACE) {
                self.silent.insert(name.clone(), change.at);
            }
        }
        if stored.place.resource == "nodes" {
            self.note_taints(change, name);
        }
    }

    fn note_taints(&mut self, change: &Change, name: String) {
        let json = |side: &Option<std::sync::Arc<apiserver_model::Stored>>| {
            side.as_ref().map_or(Json::Null, |stored| stored.json.clone())
        };
        let (before, after) = (json(&change.before), json(&change.after));
        if !is_driven_by_us(&before) && is_driven_by_us(&after) {
            let manager = change.by.split('/').next().unwrap_or_default().to_owned();
            let zone = zone_of(&after);
            self.driven.entry((manager, zone)).or_default().push(change.at);
        }
        // When a node is deleted, the timers of its pods go on, as if it still had its taints.
        if change.after.is_none() {
            return;
        }
        let taints = driving(&after);
        let held = self.tainted.entry(name).or_default();
        match held.last_mut().filter(|stretch| stretch.to.is_none()) {
            Some(stretch) if taints.is_empty() => stretch.to = Some(change.at),
            Some(stretch) => stretch.taints.extend(taints),
            None if taints.is_empty() => {}
            None => held.push(Stretch { from: change.at, to: None, taints }),
        }
    }

    /// Whether a node had taints that drive pods away lately.
    pub(super) fn was_tainted(&self, name: &str, now: Timestamp) -> bool {
        let held = self.tainted.get(name).into_iter().flatten();
        held.last().is_some_and(|last| last.to.is_none_or(|to| to >= now - WINDOW))
    }

    /// Whether a node was silent for longer than its grace, and not long ago.
    fn was_silent(&self, name: &str, now: Timestamp) -> bool {
        let is_silent = self.alive.get(name).is_none_or(|at| now.duration_since(*at) >= GRACE);
        is_silent || self.silent.get(name).is_some_and(|until| now.duration_since(*until) <= WINDOW)
    }
}

fn zone_of(node: &Json) -> String {
    node["metadata"]["labels"]["topology.kubernetes.io/zone"].as_str().unwrap_or_default().to_owned()
}

/// A node is said to be unknown, or its pods are driven away: it must have been silent.
pub(super) fn lives(look: &Look<'_>) -> Result<(), String> {
    let (before, after) = (look.before(), look.after());
    if look.resource() != "nodes" || after.is_null() {
        return Ok(());
    }
    let is_marked = !is_unknown(before) && is_unknown(after);
    let is_driven = !is_driven_by_us(before) && is_driven_by_us(after);
    let name = text(after, "/metadata/name");
    if (is_marked || is_driven) && !look.memory.fleet.was_silent(name, look.change.at) {
        return Err(format!("{} is given up, it was never silent", look.named()));
    }
    Ok(())
}

/// Nodes are tainted at the rate of their zone at most.
pub(super) fn rate(look: &Look<'_>) -> Result<(), String> {
    if look.resource() != "nodes" || is_driven_by_us(look.before()) || !is_driven_by_us(look.after()) {
        return Ok(());
    }
    let fleet = &look.memory.fleet;
    let manager = look.change.by.split('/').next().unwrap_or_default().to_owned();
    let zone = zone_of(look.after());
    let rate = fleet.rate.of_zones.get(&zone).copied().unwrap_or(fleet.rate.per_second);
    let times = fleet.driven.get(&(manager, zone)).map_or(&[][..], Vec::as_slice);
    if is_too_fast(times, rate, fleet.rate.jitter) {
        return Err(format!("{} is number {} at {rate} a second", look.named(), times.len()));
    }
    Ok(())
}

/// For how many seconds a pod stays on a node with this taint; `None` if for ever.
fn seconds(pod: &Json, taint: &Json) -> Option<i64> {
    let matches = |held: &&Json| {
        let exists = held["operator"] == "Exists";
        let is_key = held["key"] == taint["key"] || (exists && text(held, "/key").is_empty());
        let is_effect = matches!(text(held, "/effect"), "" | "NoExecute");
        is_key && is_effect && (exists || text(held, "/value") == text(taint, "/value"))
    };
    match items(pod, "/spec/tolerations").iter().find(matches) {
        None => Some(0),
        Some(held) => held["tolerationSeconds"].as_i64().map(|seconds| seconds.max(0)),
    }
}

/// A pod is driven away: its node must have had a taint for as long as the pod tolerates it. Who had not seen the taint go before the
/// node went does not see it any more, and waits on; a pod of a node that is gone runs no longer.
pub(super) fn patience(look: &Look<'_>) -> Result<(), String> {
    if !look.deletes("pods") {
        return Ok(());
    }
    let (pod, at) = (look.before(), look.change.at);
    let node = text(pod, "/spec/nodeName");
    let held = look.memory.fleet.tainted.get(node).map_or(&[][..], Vec::as_slice);
    let is_gone = look.model.look("nodes", "", node).is_null();
    let is_due = |stretch: &Stretch| {
        let to = stretch.to.filter(|_| !is_gone).unwrap_or(at);
        let least = stretch.taints.iter().filter_map(|taint| seconds(pod, taint)).min();
        at.duration_since(to) <= ON_ITS_WAY
            && least.is_some_and(|least| to.duration_since(stretch.from).as_secs() >= least)
    };
    if held.iter().any(is_due) {
        return Ok(());
    }
    Err(format!("{} leaves {node} although it tolerates that", look.named()))
}

/// The first and the last address of a range.
fn range(cidr: &str) -> Option<(u32, u32)> {
    let (first, bits) = cidr.split_once('/')?;
    let first = u32::from(first.parse::<Ipv4Addr>().ok()?);
    let rest = u32::MAX.checked_shr(bits.parse().ok()?).unwrap_or(0);
    Some((first & !rest, first | rest))
}

/// A node gets a range of addresses: nobody else has any of it, and it had none.
pub(super) fn addresses(look: &Look<'_>) -> Result<(), String> {
    if look.resource() != "nodes" || look.before()["spec"]["podCIDRs"] == look.after()["spec"]["podCIDRs"] {
        return Ok(());
    }
    if !items(look.before(), "/spec/podCIDRs").is_empty() {
        return Err(format!("{} gets other ranges than it has", look.named()));
    }
    let ranges = |node: &Json| -> Vec<(u32, u32)> {
        items(node, "/spec/podCIDRs").iter().filter_map(Json::as_str).filter_map(range).collect()
    };
    let own = ranges(look.after());
    for other in look.model.all("nodes", "") {
        if other.json["metadata"]["uid"] == look.after()["metadata"]["uid"] {
            continue;
        }
        let theirs = ranges(&other.json);
        if own.iter().any(|own| theirs.iter().any(|their| own.0 <= their.1 && their.0 <= own.1)) {
            return Err(format!("{} gets what {} has", look.named(), other.place.name));
        }
    }
    Ok(())
}

/// What is not yet as it should be with a node that lives.
pub(super) fn node(_: &Model, resource: &str, object: &Json) -> Option<String> {
    if resource != "nodes" {
        return None;
    }
    if items(object, "/spec/podCIDRs").is_empty() {
        return Some("it has no range of addresses".to_owned());
    }
    (is_unknown(object) || !driving(object).is_empty()).then(|| "it is given up".to_owned())
}

#[test]
fn nodes_that_are_tainted_faster_than_they_may_are_found() {
    let times = |millis: &[i64]| -> Vec<Timestamp> {
        millis.iter().map(|at| Timestamp::from_millisecond(*at).expect("a time")).collect()
    };
    for (millis, rate, jitter, expected) in [
        (&[][..], 1.0, 0.0, false),
        (&[0], 0.1, 0.0, false),
        (&[0, 1000, 2000], 1.0, 0.0, false),
        (&[0, 1000, 1900], 1.0, 0.0, true),
        (&[0, 1000, 1900], 1.0, 0.2, false),
        (&[0, 1], 5.0, 0.1, true),
        (&[0, 200, 400, 600, 800], 5.0, 0.0, false),
        (&[0, 60_000, 60_100], 0.1, 5.0, true),
    ] {
        assert_eq!(is_too_fast(&times(millis), rate, jitter), expected, "{millis:?} at {rate}");
    }
}
