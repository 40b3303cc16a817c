//! The manager's states as messages.

use std::time::Duration;

use jiff::Timestamp;

use super::manager::{
    ActionResult, ActionState, ActionVerb, ControllerState, Counts, FailureState, KeyWait, LeasePolicyState,
    LeaseState, Phase, QueueState, ReplicaState, SyncOutcome, TraceId,
};
use super::overrides::{DecidedBy, Entry, Order, OverrideProblem, OverrideSet};
use super::proto;
use coxswain_machinery::api::Kind;
use coxswain_machinery::model::Key;

/// Namespace of all controllers' service accounts.
const SYSTEM: &str = "kube-system";

pub(super) fn timestamp(at: Timestamp) -> prost_types::Timestamp {
    // Before 1970 jiff counts nanoseconds down from the second, the message up.
    let (mut seconds, mut nanos) = (at.as_second(), at.subsec_nanosecond());
    if nanos < 0 {
        seconds -= 1;
        nanos += 1_000_000_000;
    }
    prost_types::Timestamp { seconds, nanos }
}

pub(super) fn duration(of: Duration) -> prost_types::Duration {
    prost_types::Duration {
        seconds: i64::try_from(of.as_secs()).unwrap_or(i64::MAX),
        nanos: of.subsec_nanos() as i32,
    }
}

pub(super) fn kind_name(kind: &Kind) -> String {
    kind.to_string()
}

pub(super) fn trace_id(id: Option<TraceId>) -> String {
    id.map(|id| format!("{:032x}", u128::from_be_bytes(id))).unwrap_or_default()
}

pub(super) fn object_key(key: &Key) -> proto::ObjectKey {
    proto::ObjectKey { namespace: key.namespace.to_string(), name: key.name_and_part() }
}

pub(super) fn phase(phase: &Phase) -> proto::Phase {
    match phase {
        Phase::Standby => proto::Phase::Standby,
        Phase::Starting => proto::Phase::Starting,
        Phase::Running => proto::Phase::Running,
        Phase::Stopping => proto::Phase::Stopping,
        Phase::Disabled => proto::Phase::Disabled,
        Phase::Skipped(_) => proto::Phase::Skipped,
        Phase::Failed(_) | Phase::Unstarted(_) => proto::Phase::Failed,
        Phase::NotImplemented => proto::Phase::NotImplemented,
    }
}

pub(super) fn phase_reason(phase: &Phase) -> &str {
    match phase {
        Phase::Skipped(reason) | Phase::Failed(reason) | Phase::Unstarted(reason) => reason,
        _ => "",
    }
}

/// An entry that orders something. (One that does not is never shown.)
pub(super) fn entry(entry: &Entry) -> proto::Override {
    proto::Override {
        enabled: entry.order == Order::Enabled,
        user: entry.user.clone(),
        create_time: Some(timestamp(entry.time)),
        reason: entry.reason.clone(),
        expire_time: entry.until.map(timestamp),
        force: entry.force == Some(true),
    }
}

pub(super) fn invalid(problem: &OverrideProblem) -> proto::InvalidOverride {
    proto::InvalidOverride { key: problem.key.clone(), message: problem.message.clone() }
}

pub(super) fn controller(
    state: &ControllerState,
    overrides: &OverrideSet,
    now: Timestamp,
) -> proto::Controller {
    let (health, health_message) = health(&state.phase, state.unhealthy.as_ref());
    let desired = overrides.desired(state.name, state.flags, now);
    let counts = &state.counts;
    proto::Controller {
        name: state.name.to_owned(),
        aliases: state.aliases.iter().map(|&alias| alias.to_owned()).collect(),
        description: state.description.to_owned(),
        required_feature_gates: state
            .gates
            .iter()
            .map(|&(name, enabled)| proto::FeatureGate { name: name.to_owned(), enabled })
            .collect(),
        enabled_by_default: state.enabled_by_default,
        cloud_provider: state.cloud,
        special_handling: state.special,
        critical: state.critical.is_some(),
        desired: Some(proto::DesiredState {
            enabled: desired.enabled,
            source: match desired.source {
                DecidedBy::Default => proto::DesiredSource::Default,
                DecidedBy::Flag => proto::DesiredSource::Flag,
                DecidedBy::Override => proto::DesiredSource::Override,
            }
            .into(),
            r#override: desired.entry.map(entry),
            enabled_without_override: state.flags.enabled,
            invalid_override: overrides.problem_of(state.name).unwrap_or_default().to_owned(),
            ineffective_override: overrides
                .ineffective(state.name, state.flags, now)
                .unwrap_or_default()
                .to_owned(),
        }),
        phase: phase(&state.phase).into(),
        phase_reason: phase_reason(&state.phase).to_owned(),
        phase_time: Some(timestamp(state.phase_since)),
        health: health.into(),
        health_message,
        service_account: state.service_account.map(|name| format!("{SYSTEM}/{name}")).unwrap_or_default(),
        watched_resources: state
            .watches
            .iter()
            .map(|watch| proto::WatchedResource {
                resource: kind_name(watch.kind),
                field_selector: watch.field_selector.unwrap_or_default().to_owned(),
                cached_objects: watch.cached as i64,
                synced: watch.synced,
            })
            .collect(),
        workers: counts.workers as i32,
        queue_depth: counts.depth as i64,
        oldest_queued_age: counts.oldest.map(duration),
        syncs: count(counts.syncs),
        errors: count(counts.errors),
        last_error: state.last_error.as_ref().map(|failure| proto::ReconcileError {
            object: Some(object_key(&failure.key)),
            message: failure.error.clone(),
            time: Some(timestamp(failure.at)),
        }),
        restarts: i32::try_from(state.restarts).unwrap_or(i32::MAX),
        version: overrides.version(state.name),
    }
}

/// Whether a controller is well, and what is wrong otherwise.
pub(super) fn health(phase: &Phase, unhealthy: Option<&String>) -> (proto::Health, String) {
    match (phase, unhealthy) {
        (Phase::Failed(reason) | Phase::Unstarted(reason), _) => (proto::Health::Unhealthy, reason.clone()),
        // What waits for its caches should run, and does not.
        (Phase::Starting | Phase::Running, Some(wrong)) => (proto::Health::Unhealthy, wrong.clone()),
        (Phase::Running, None) => (proto::Health::Healthy, String::new()),
        _ => (proto::Health::Inactive, String::new()),
    }
}

/// The message without what changes all the time: what a watch compares.
pub(super) fn without_counts(mut controller: proto::Controller) -> proto::Controller {
    for watched in &mut controller.watched_resources {
        watched.cached_objects = 0;
    }
    controller.queue_depth = 0;
    controller.oldest_queued_age = None;
    controller.syncs = 0;
    controller.errors = 0;
    controller.last_error = None;
    controller
}

pub(super) fn queue(state: &QueueState) -> proto::Queue {
    let Counts { workers, depth, in_flight, delayed, waiting, failing, oldest, .. } = state.counts;
    let Counts { longest_running, syncs, errors, .. } = state.counts;
    proto::Queue {
        name: state.name.to_owned(),
        controller: state.controller.to_owned(),
        resource: state.kind.map(kind_name).unwrap_or_default(),
        workers: workers as i32,
        depth: depth as i64,
        in_flight: in_flight as i64,
        delayed: delayed as i64,
        failing: failing as i64,
        oldest_queued_age: oldest.map(duration),
        longest_running: longest_running.map(duration),
        syncs: count(syncs),
        errors: count(errors),
        waiting: waiting as i64,
    }
}

pub(super) fn waiting(wait: &KeyWait) -> proto::WaitingKey {
    proto::WaitingKey {
        object: Some(object_key(&wait.key)),
        age: Some(duration(wait.age)),
        reason: format!("waiting for the cache of {}", kind_name(wait.kind)),
    }
}

pub(super) fn queued((key, age): &(Key, Duration)) -> proto::QueuedKey {
    proto::QueuedKey { object: Some(object_key(key)), age: Some(duration(*age)) }
}

pub(super) fn failing(failure: &FailureState) -> proto::FailingKey {
    proto::FailingKey {
        object: Some(object_key(&failure.key)),
        attempts: i32::try_from(failure.attempts).unwrap_or(i32::MAX),
        message: failure.error.clone(),
        time: Some(timestamp(failure.at)),
    }
}

pub(super) fn sync_outcome(outcome: SyncOutcome) -> proto::SyncOutcome {
    match outcome {
        SyncOutcome::Done => proto::SyncOutcome::Done,
        SyncOutcome::Retrying => proto::SyncOutcome::Retrying,
        SyncOutcome::Failed => proto::SyncOutcome::Failed,
        SyncOutcome::StaleCache => proto::SyncOutcome::StaleCache,
        SyncOutcome::NoObject => proto::SyncOutcome::NoObject,
        SyncOutcome::Explained => proto::SyncOutcome::Explained,
    }
}

pub(super) fn action(state: &ActionState) -> proto::Action {
    let (result, error) = match &state.result {
        ActionResult::Planned => (proto::ActionResult::Planned, ""),
        ActionResult::Done => (proto::ActionResult::Done, ""),
        ActionResult::Unneeded => (proto::ActionResult::Unneeded, ""),
        ActionResult::Failed(error) => (proto::ActionResult::Failed, error.as_str()),
        ActionResult::Unknown => (proto::ActionResult::Unknown, ""),
    };
    proto::Action {
        r#type: match state.verb {
            ActionVerb::Verify => proto::ActionType::Verify,
            ActionVerb::Create => proto::ActionType::Create,
            ActionVerb::Update => proto::ActionType::Update,
            ActionVerb::Patch => proto::ActionType::Patch,
            ActionVerb::Delete => proto::ActionType::Delete,
            ActionVerb::Event => proto::ActionType::Event,
        }
        .into(),
        object: Some(proto::ObjectReference {
            resource: kind_name(state.kind),
            namespace: state.key.namespace.to_string(),
            name: state.key.name.to_string(),
            uid: state.uid.to_string(),
        }),
        subresource: state.subresource.to_owned(),
        summary: state.summary.clone(),
        result: result.into(),
        error: error.to_owned(),
    }
}

/// A Lease; `None` stands for no leader election, where this replica leads.
pub(super) fn leader(state: Option<&LeaseState>, identity: &str, replicas: &[ReplicaState]) -> proto::Leader {
    let Some(state) = state else {
        return proto::Leader {
            holder_identity: identity.to_owned(),
            replica_identity: identity.to_owned(),
            leading: true,
            admin_address: address_of(identity, replicas),
            ..proto::Leader::default()
        };
    };
    let record = state.record.as_ref();
    let holder = record.map(|record| record.holder.to_string()).unwrap_or_default();
    proto::Leader {
        lease: state.lease.to_string(),
        admin_address: address_of(&holder, replicas),
        holder_identity: holder,
        acquire_time: record.map(|record| timestamp(record.acquired)),
        renew_time: record.map(|record| timestamp(record.renewed)),
        lease_duration: record.map(|record| {
            duration(Duration::from_secs(u64::from(record.duration_seconds.max(0).unsigned_abs())))
        }),
        transitions: record.map(|record| record.transitions).unwrap_or_default(),
        leading: state.leading,
        replica_identity: identity.to_owned(),
        lease_policy: proto::LeasePolicy::Unspecified.into(),
    }
}

pub(super) fn lease_policy(state: LeasePolicyState) -> proto::LeasePolicy {
    match state {
        LeasePolicyState::Unknown => proto::LeasePolicy::Unspecified,
        LeasePolicyState::InForce => proto::LeasePolicy::InForce,
        LeasePolicyState::Missing => proto::LeasePolicy::Missing,
        LeasePolicyState::Different => proto::LeasePolicy::Different,
    }
}

pub(super) fn replica(state: &ReplicaState, identity: &str, holder: &str) -> proto::Replica {
    proto::Replica {
        identity: state.identity.clone(),
        admin_address: state.admin_address.clone(),
        version: state.version.clone(),
        leading: state.identity == holder,
        answering: state.identity == identity,
        start_time: Some(timestamp(state.started)),
        renew_time: Some(timestamp(state.renewed)),
        live: state.live,
        lease_duration: Some(duration(state.lease_duration)),
        selection_digest: state.selection.clone(),
    }
}

/// The number of overrides in force, and the time of the oldest one.
pub(super) fn overrides_in_force(set: &OverrideSet, now: Timestamp) -> proto::OverridesInForce {
    let times = || set.entries().filter(|(_, entry)| entry.is_in_force(now)).map(|(_, entry)| entry.time);
    proto::OverridesInForce {
        count: i32::try_from(times().count()).unwrap_or(i32::MAX),
        oldest_time: times().min().map(timestamp),
    }
}

/// Where a replica serves the admin API; empty if that is not known.
pub(super) fn address_of(identity: &str, replicas: &[ReplicaState]) -> String {
    let found = replicas.iter().find(|replica| !identity.is_empty() && replica.identity == identity);
    found.map(|replica| replica.admin_address.clone()).unwrap_or_default()
}

fn count(of: u64) -> i64 {
    i64::try_from(of).unwrap_or(i64::MAX)
}
