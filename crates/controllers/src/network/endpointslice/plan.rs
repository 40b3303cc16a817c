//! Which slices of one Service are made, rewritten and deleted. Pure.
//!
//! For each address family of the Service: which endpoints its pods are, by the ports that they have ([`demand`]); into
//! which slices these go, so that as few as possible are written ([`packing`]); who should use which of them
//! ([`hints`], [`allotment`]); how a slice is written ([`draft`]). In which order they are written, and which of them go
//! on where one is refused, is said in [`slice_writes`](super::super::slice_writes).

mod allotment;
mod demand;
mod draft;
mod hints;
mod packing;

use std::fmt::Display;

use super::super::slice_writes::SliceWrites;
use super::services::{self, IPV4, IPV6, family_of, is_headless};
use super::view::View;
use coxswain_machinery::api::core::Service;
use coxswain_machinery::api::kinds::{ENDPOINT_SLICES, SERVICES};
use coxswain_machinery::model::plan::{EventSpec, Regarding, Tolerate, Verb};
use coxswain_machinery::model::slices::HeldSlice;
use coxswain_machinery::model::{Failure, Key, Plan, Step, Write};
use coxswain_machinery::wire::{Str, WireError};

use draft::Author;
pub(super) use hints::distribution_in_force;
use packing::Packed;

/// What a plan comes to in one address family.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Count {
    /// Endpoints that there should be.
    pub(super) endpoints: usize,
    /// Slices that these would fill.
    pub(super) ideal: usize,
    /// Slices that there will be.
    pub(super) slices: usize,
    /// Endpoints that are new among those with the same ports.
    pub(super) added: usize,
    /// Endpoints that are taken out of slices whose ports are still wanted.
    pub(super) removed: usize,
    /// Slices that are made, rewritten and deleted.
    pub(super) written: usize,
}

/// What is to be done, and what that comes to, by family.
pub(super) fn plan(view: &View) -> (Plan, Vec<Count>) {
    let mut plan = Plan::default();
    if !view.failures.is_empty() {
        let errors = view.failures.iter().map(|failure| describe(view, failure)).collect();
        plan.steps.push(Step::Emit(failed(&view.service, joined(errors))));
        return (plan, Vec::new());
    }
    let mut counts = Vec::new();
    if let Err(error) = reconcile(view, &mut plan, &mut counts) {
        plan.retry = Some(error.to_string());
    }
    (plan, counts)
}

fn reconcile(view: &View, plan: &mut Plan, counts: &mut Vec<Count>) -> Result<(), WireError> {
    let service = &view.service;
    let families = families(service);
    // Linear: there are two families.
    let (served, stray): (Vec<&HeldSlice>, Vec<&HeldSlice>) =
        view.slices.iter().partition(|held| families.contains(&held.slice.address_type.as_str()));
    let mut unknown = Vec::new();
    let mut packed = Vec::new();
    let mut is_enabled = false;
    for family in families {
        let demand = demand::of(view, family);
        // The same pods are missing in every family.
        unknown = demand.unknown;
        let held = served.iter().copied().filter(|held| held.slice.address_type == family).collect();
        let mut slices = packing::pack(view, family, held, demand.groups)?;
        let event = hints::give(view, family, &mut slices)?;
        slices.settle(service);
        counts.push(slices.count());
        // One event reports that hints are enabled for the Service, not one for each family.
        let is_told = |event: &EventSpec| {
            event.reason == hints::DISABLED
                || slices.is_change() && !(event.reason == hints::ENABLED && is_enabled)
        };
        let event = event.filter(is_told);
        is_enabled |= event.as_ref().is_some_and(|event| event.reason == hints::ENABLED);
        plan.steps.extend(event.map(Step::Emit));
        packed.push(slices);
    }
    plan.cooldown = services::cooldown(counts.iter().map(|count| count.endpoints).sum());
    // What is new about a Service that is new is the Service, whatever its pods have been through.
    let since = if view.slices.iter().all(|held| !held.is_owned_by(&SERVICES, &service.metadata)) {
        service.metadata.creation_timestamp
    } else {
        packed.iter().filter_map(|slices| slices.since).min()
    };
    let mut writes = SliceWrites::default();
    let author = Author { service, since };
    for held in stray {
        writes.push(delete(held), Some(held), std::iter::empty());
    }
    for slices in packed {
        write(&author, slices, &mut writes)?;
    }
    plan.steps.extend(writes.into_step()?);
    if let Some(first) = unknown.first().cloned() {
        plan.steps.push(Step::Emit(failed(service, joined(unknown))));
        plan.retry = Some(first);
    }
    Ok(())
}

/// The writes of one family's slices.
fn write<'a>(author: &Author<'_>, slices: Packed<'a>, writes: &mut SliceWrites<'a>) -> Result<(), WireError> {
    let service = &author.service.metadata;
    // The garbage collector deletes what a Service that goes leaves behind; nothing is added to that.
    for draft in slices.create.into_iter().filter(|_| !service.is_deleting()) {
        let key = Key::new(service.namespace.clone(), Str::EMPTY);
        let create = Write {
            // Whatever is made there goes with the namespace.
            tolerate: Tolerate { namespace_terminating: true, ..Tolerate::default() },
            ..Write::new(&ENDPOINT_SLICES, key, Verb::Create(author.create(&draft).into()))
        };
        writes.push(create, None, draft.addresses());
    }
    for (held, draft) in slices.update {
        let verb = Verb::Update(author.update(held, &draft)?.into());
        let update = Write::new(&ENDPOINT_SLICES, Key::of(&held.slice.metadata), verb);
        writes.push(update, Some(held), draft.addresses());
    }
    for held in slices.delete {
        writes.push(delete(held), Some(held), std::iter::empty());
    }
    Ok(())
}

fn delete(held: &HeldSlice) -> Write {
    let meta = &held.slice.metadata;
    let verb = Verb::delete(meta.uid.clone());
    Write {
        tolerate: Tolerate { absent: true, ..Tolerate::default() },
        ..Write::new(&ENDPOINT_SLICES, Key::of(meta), verb)
    }
}

/// The address families that a Service is served in. (The server fills them in but for old headless Services, of which
/// both are served.)
fn families(service: &Service) -> Vec<&'static str> {
    let spec = &service.spec;
    if !spec.ip_families.is_empty() {
        // Linear: there are two families.
        let named = |family: &&str| spec.ip_families.iter().any(|held| held == family);
        return [IPV4, IPV6].into_iter().filter(named).collect();
    }
    if is_headless(service) {
        return vec![IPV4, IPV6];
    }
    vec![family_of(&spec.cluster_ip)]
}

fn event(service: &Service, warning: bool, reason: &'static str, message: String) -> EventSpec {
    EventSpec { regarding: Regarding::of(&SERVICES, &service.metadata), warning, reason, message }
}

fn failed(service: &Service, why: impl Display) -> EventSpec {
    let key = Key::of(&service.metadata);
    let message = format!("Error updating Endpoint Slices for Service {key}: {why}");
    event(service, true, "FailedToUpdateEndpointSlices", message)
}

/// Joins errors as kube-controller-manager does: one error unchanged, several in brackets.
fn joined(mut errors: Vec<String>) -> String {
    match errors.len() {
        0 | 1 => errors.pop().unwrap_or_default(),
        _ => format!("[{}]", errors.join(", ")),
    }
}

fn describe(view: &View, failure: &Failure) -> String {
    let service = &view.service;
    let (key, name) = (Key::of(&service.metadata), &failure.key.name);
    let families = families(service);
    // Linear: there are two families.
    let is_stray = |held: &HeldSlice| {
        held.slice.metadata.name == *name && !families.contains(&held.slice.address_type.as_str())
    };
    match failure.verb {
        "delete" if view.slices.iter().any(is_stray) => {
            format!("error deleting {name} EndpointSlice for Service {key}: {}", failure.message)
        }
        "create" => format!("failed to create EndpointSlice for Service {key}: {}", failure.message),
        verb => {
            format!("failed to {verb} {name} EndpointSlice for Service {key}: {}", failure.message)
        }
    }
}
