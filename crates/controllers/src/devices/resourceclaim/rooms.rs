//! The rooms of pods and of PodGroups: both are owners of claims, and what differs is read into an [`Owner`]. Decides nothing.

use std::sync::Arc;

use jiff::Timestamp;

use super::metrics::Note;
use super::plan;
use super::view::{Entry, Owner, Recorded, Rooms, View};
use coxswain_machinery::api::kinds::{POD_GROUPS, PODS};
use coxswain_machinery::api::pod::Pod;
use coxswain_machinery::api::scheduling::PodGroup;
use coxswain_machinery::framework::{Observation, ObserveError, Reads, Room};
use coxswain_machinery::model::{Failure, Key, Plan};
use coxswain_machinery::random::HashMap;
use coxswain_machinery::wire::Str;

/// The room of pods.
pub(super) struct PodRoom(pub(super) Arc<Rooms>);

/// The room of PodGroups.
pub(super) struct GroupRoom(pub(super) Arc<Rooms>);

impl Room<Note> for PodRoom {
    type View = View;

    fn observe(&self, key: &Key, _: &[Failure], read: &Reads) -> Result<Observation<View>, ObserveError> {
        let rooms = &self.0;
        // What is done needs no claims. (The original goes on making them, and reserving.)
        // Differs: finished-pods-get-none.
        let needs = |pod: &Arc<Pod>| !pod.metadata.is_deleting() && !pod.is_finished();
        let Some(pod) = rooms.pods.get(key).filter(needs) else { return Ok(Observation::Nothing) };
        let membership = rooms.membership(&pod);
        rooms.observe(of_pod(&pod), membership.as_ref(), read)
    }

    fn plan(view: &View, _: Timestamp) -> Plan<Note> {
        plan::plan(view)
    }

    fn reasons(view: &View, _: Timestamp) -> Vec<String> {
        plan::reasons(view)
    }
}

impl Room<Note> for GroupRoom {
    type View = View;

    fn observe(&self, key: &Key, _: &[Failure], read: &Reads) -> Result<Observation<View>, ObserveError> {
        let found = self.0.groups.as_ref().and_then(|groups| groups.get(key));
        let Some(group) = found.filter(|group| !group.metadata.is_deleting()) else {
            return Ok(Observation::Nothing);
        };
        self.0.observe(of_group(&group), None, read)
    }

    fn plan(view: &View, _: Timestamp) -> Plan<Note> {
        plan::plan(view)
    }

    fn reasons(view: &View, _: Timestamp) -> Vec<String> {
        plan::reasons(view)
    }
}

/// Files what the status of an owner says of its entries by their names. The first of several of one name counts.
fn by_name<'a>(statuses: impl Iterator<Item = (&'a Str, Option<&'a Str>)>) -> HashMap<&'a Str, Recorded> {
    let mut recorded = HashMap::default();
    for (entry, claim) in statuses {
        recorded.entry(entry).or_insert_with(|| Recorded::of(claim));
    }
    recorded
}

fn of_pod(pod: &Pod) -> Owner {
    let statuses = pod.status.resource_claim_statuses.iter();
    let recorded = by_name(statuses.map(|made| (&made.name, made.resource_claim_name.as_ref())));
    let entries = pod.shape.resource_claims.iter().map(|entry| Entry {
        name: entry.name.clone(),
        claim: entry.claim.clone(),
        template: entry.template.clone(),
        recorded: recorded.get(&entry.name).cloned().unwrap_or(Recorded::Nothing),
    });
    Owner {
        kind: &PODS,
        metadata: pod.metadata.clone(),
        entries: entries.collect(),
        reserves: !pod.spec.node_name.is_empty(),
    }
}

fn of_group(group: &PodGroup) -> Owner {
    let statuses = group.status.resource_claim_statuses.iter();
    let recorded = by_name(statuses.map(|made| (&made.name, made.resource_claim_name.as_ref())));
    let entries = group.spec.resource_claims.iter().map(|entry| Entry {
        name: entry.name.clone(),
        claim: entry.resource_claim_name.clone(),
        template: entry.resource_claim_template_name.clone(),
        recorded: recorded.get(&entry.name).cloned().unwrap_or(Recorded::Nothing),
    });
    Owner { kind: &POD_GROUPS, metadata: group.metadata.clone(), entries: entries.collect(), reserves: false }
}
