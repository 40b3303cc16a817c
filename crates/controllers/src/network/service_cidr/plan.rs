//! Whether a ServiceCIDR is ready, and when one that is being deleted may go. Pure.
//!
//! The finalizer and the condition are written one after the other: what is written second has to be made from what came
//! of the first.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ipnet::IpNet;
use jiff::Timestamp;

use super::view::View;
use super::{FINALIZER, gives_out, ranges};
use crate::live_reads::SERVICE_HEIR;
use coxswain_machinery::api::kinds::SERVICE_CIDRS;
use coxswain_machinery::api::meta::Condition;
use coxswain_machinery::api::networking::ServiceCidr;
use coxswain_machinery::model::conditions::{self, ConditionFields, Said};
use coxswain_machinery::model::plan::{EventSpec, Expect, Regarding, Tolerate, Verb, Verify};
use coxswain_machinery::model::{Key, Plan, Step, Write};
use coxswain_machinery::wire::splice::{Edit, edit, get, retain_items};
use coxswain_machinery::wire::{Time, Value, WireError, field, path};

const CONDITIONS: ConditionFields = ConditionFields::of::<ServiceCidr>();

/// Whether addresses are given out.
const READY: &str = "Ready";

/// How long after its deletion began API servers may still give out addresses of it, because they have not heard.
const GRACE: Duration = Duration::from_secs(10);

/// Keeps the finalizer and the condition, or lets it go.
pub(super) fn plan(view: &View, now: Timestamp) -> Plan {
    let planned = if view.cidr.metadata.is_deleting() {
        end(view, now)
    } else {
        keep(&view.cidr, now).map(|write| write.map(Step::Write).into_iter().collect()).map(steps)
    };
    planned.unwrap_or_else(|error| Plan {
        retry: Some(format!("ServiceCIDR {}: {error}", view.cidr.metadata.name)),
        ..Plan::default()
    })
}

fn steps(steps: Vec<Step>) -> Plan {
    Plan { steps, ..Plan::default() }
}

/// One that is to stay.
fn keep(cidr: &ServiceCidr, now: Timestamp) -> Result<Option<Write>, WireError> {
    if cidr.metadata.finalizers.iter().any(|held| held == FINALIZER) {
        let said = say(cidr, "True", "", "Kubernetes Service CIDR is ready", now)?;
        return Ok(said.map(|write| Write {
            // Whatever has changed the object brings it back: nothing was refused.
            tolerate: Tolerate { conflict: true, ..write.tolerate },
            on_failure: Some(unready(cidr)),
            ..write
        }));
    }
    let push = Edit::push_text(path!(ServiceCidr, metadata.finalizers), FINALIZER);
    let object = edit(&cidr.raw, &[push])?;
    Ok(Some(write(cidr, Verb::Update(object.into()))))
}

/// The event of a condition that could not be written. Of other writes the original tells nothing.
fn unready(cidr: &ServiceCidr) -> EventSpec {
    EventSpec {
        regarding: Regarding::of(&SERVICE_CIDRS, &cidr.metadata),
        warning: true,
        reason: "KubernetesServiceCIDRError",
        message: "The ServiceCIDR Status can not be set to Ready=True".to_owned(),
    }
}

/// One that is being deleted.
fn end(view: &View, now: Timestamp) -> Result<Plan, WireError> {
    let cidr = &view.cidr;
    let Some(heirs) = heirs(view) else {
        let message = "There are still IPAddresses referencing the ServiceCIDR, \
                       please remove them or create a new ServiceCIDR";
        let mut plan =
            steps(say(cidr, "False", "Terminating", message, now)?.map(Step::Write).into_iter().collect());
        if view.is_live {
            // The cache never showed that they are there, so it need not tell when they go.
            plan.look_again_after(GRACE);
        }
        return Ok(plan);
    };
    if !cidr.metadata.finalizers.iter().any(|held| held == FINALIZER) {
        return Ok(Plan::default());
    }
    let since = cidr.metadata.deletion_timestamp.map_or(0, Time::seconds);
    let passed = Duration::from_secs(now.as_second().saturating_sub(since).try_into().unwrap_or(0));
    let mut plan = Plan::default();
    if passed < GRACE {
        plan.look_again_after(GRACE.saturating_sub(passed));
        return Ok(plan);
    }
    let verify = |heir: &&Arc<ServiceCidr>| {
        let expect = Expect::Alive(heir.metadata.uid.clone());
        Step::Verify(Verify {
            read: &SERVICE_HEIR,
            kind: &SERVICE_CIDRS,
            key: Key::of(&heir.metadata),
            expect,
        })
    };
    plan.steps = heirs.iter().map(verify).collect();
    plan.steps.push(Step::Write(write(cidr, Verb::Update(without_finalizer(cidr)?))));
    Ok(plan)
}

/// Those that give out its addresses when it is gone; `None` when an address would be left without a range. One that is being
/// deleted itself, or is not ready yet, has none.
pub(super) fn heirs(view: &View) -> Option<Vec<&Arc<ServiceCidr>>> {
    let lasting: Vec<(&Arc<ServiceCidr>, Vec<IpNet>)> = view
        .others
        .iter()
        .filter(|other| !other.metadata.is_deleting() && is_ready(other))
        .map(|other| (other, ranges(other)))
        .collect();
    let mut heirs: Vec<usize> = Vec::new();
    for address in &view.addresses {
        // Linear: administrators make ranges, and few give out one address.
        if !heirs.iter().any(|heir| gives_out(&lasting[*heir].1, *address)) {
            heirs.push(lasting.iter().position(|(_, ranges)| gives_out(ranges, *address))?);
        }
    }
    Some(heirs.into_iter().map(|heir| lasting[heir].0).collect())
}

fn condition(cidr: &ServiceCidr) -> Option<&Condition> {
    cidr.status.conditions.iter().find(|held| held.r#type == READY)
}

fn is_ready(cidr: &ServiceCidr) -> bool {
    condition(cidr).is_some_and(|ready| ready.status == "True")
}

/// The update that makes the condition `Ready` say so; `None` when it does already.
fn say(
    cidr: &ServiceCidr,
    status: &'static str,
    reason: &'static str,
    message: &str,
    now: Timestamp,
) -> Result<Option<Write>, WireError> {
    let held = condition(cidr);
    if held.is_some_and(|held| held.status == status && held.reason == reason && held.message == message) {
        return Ok(None);
    }
    let since = held.filter(|held| held.status == status).and_then(|held| held.last_transition_time);
    let message = message.to_owned();
    let said = Said {
        kind: READY,
        status,
        reason,
        message,
        since: since.unwrap_or(now.into()),
        checked: None,
        generation: None,
    };
    let object = conditions::set(&cidr.raw, &CONDITIONS, &[said])?;
    Ok(Some(write(cidr, Verb::Update(object.into())).on("status")))
}

/// Its bytes without the finalizer.
fn without_finalizer(cidr: &ServiceCidr) -> Result<Bytes, WireError> {
    let metadata =
        get(&cidr.raw, path!(ServiceCidr, metadata))?.map(Value::bytes).transpose()?.unwrap_or_default();
    let metadata = retain_items(metadata, field!(ServiceCidr, metadata.finalizers), |held| {
        held != FINALIZER.as_bytes()
    })?;
    edit(&cidr.raw, &[Edit::SetBytes(path!(ServiceCidr, metadata), metadata)]).map(Bytes::from)
}

/// A write of the object; that it is gone is as good.
fn write(cidr: &ServiceCidr, verb: Verb) -> Write {
    let tolerate = Tolerate { absent: true, ..Tolerate::default() };
    Write { tolerate, ..Write::new(&SERVICE_CIDRS, Key::of(&cidr.metadata), verb) }
}
