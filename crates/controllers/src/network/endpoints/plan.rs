//! Whether the Endpoints of one Service are made, rewritten or deleted. Pure.
//!
//! Which addresses a Service has ([`demand`]), how many of them there may be ([`capacity`]), how the object is written
//! ([`draft`]). What says the same in another order is left as it is.

mod capacity;
mod demand;
mod draft;

use std::sync::Arc;

use super::services::{self, HeldEndpoints};
use super::view::{Served, View};
use crate::live_reads::ENDPOINTS_SERVICE;
use coxswain_machinery::api::core::Service;
use coxswain_machinery::api::endpoints::Endpoints;
use coxswain_machinery::api::kinds::{ENDPOINTS, SERVICES};
use coxswain_machinery::api::meta::ObjectMeta;
use coxswain_machinery::api::pod::Pod;
use coxswain_machinery::model::plan::{EventSpec, Expect, Regarding, Tolerate, Verb, Verify};
use coxswain_machinery::model::{Failure, Key, Plan, Step, Write};
use coxswain_machinery::wire::WireError;

use draft::Draft;

pub(super) fn plan(view: &View) -> Plan {
    let mut plan = Plan::default();
    match &view.served {
        Served::Nobody(endpoints) => {
            if view.failures.is_empty() && !endpoints.metadata.is_deleting() {
                plan.steps.extend(delete(endpoints));
            }
        }
        Served::By { service, held, .. } if !view.failures.is_empty() => {
            let told = view.failures.iter().find_map(|failure| failed(service, held.as_ref(), failure));
            plan.steps.extend(told.map(Step::Emit));
        }
        Served::By { service, pods, held } => match reconcile(service, pods, held.as_ref()) {
            Ok(write) => {
                plan.steps.extend(write.map(Step::Write));
                plan.cooldown = services::cooldown(pods.len());
            }
            Err(error) => plan.retry = Some(error.to_string()),
        },
    }
    plan
}

/// What became of the Service is asked anew: one of its name may have been made meanwhile.
fn delete(endpoints: &Endpoints) -> [Step; 2] {
    let key = Key::of(&endpoints.metadata);
    let verb = Verb::delete(endpoints.metadata.uid.clone());
    [
        Step::Verify(Verify {
            read: &ENDPOINTS_SERVICE,
            kind: &SERVICES,
            key: key.clone(),
            expect: Expect::Absent,
        }),
        Step::Write(Write {
            tolerate: Tolerate { absent: true, ..Tolerate::default() },
            ..Write::new(&ENDPOINTS, key, verb)
        }),
    ]
}

fn reconcile(
    service: &Service,
    pods: &[Arc<Pod>],
    held: Option<&HeldEndpoints>,
) -> Result<Option<Write>, WireError> {
    let mut subsets = demand::subsets(service, pods);
    let truncated = capacity::truncate(&mut subsets);
    let since = demand::since(service, pods, held, &subsets);
    let draft = Draft { service, subsets, truncated, since };
    let key = Key::of(&service.metadata);
    let Some(held) = held else {
        return Ok(Some(Write {
            // Whatever is made there goes with the namespace.
            tolerate: Tolerate { namespace_terminating: true, ..Tolerate::default() },
            ..Write::new(&ENDPOINTS, key, Verb::Create(draft.create()?.into()))
        }));
    };
    if draft.is(held) {
        return Ok(None);
    }
    Ok(Some(Write::new(&ENDPOINTS, key, Verb::Update(draft.update(held)?.into()))))
}

fn failed(service: &Service, held: Option<&HeldEndpoints>, failure: &Failure) -> Option<EventSpec> {
    let key = &failure.key;
    let (reason, message) = match failure.verb {
        "create" => ("FailedToCreateEndpoint", "Failed to create endpoint for service"),
        "update" => ("FailedToUpdateEndpoint", "Failed to update endpoint"),
        _ => return None,
    };
    let service = &service.metadata;
    let unmade = ObjectMeta {
        name: service.name.clone(),
        namespace: service.namespace.clone(),
        ..ObjectMeta::default()
    };
    let about = held.map_or(&unmade, |held| &held.endpoints.metadata);
    Some(EventSpec {
        regarding: Regarding::of(&ENDPOINTS, about),
        warning: true,
        reason,
        message: format!("{message} {key}: {}", failure.message),
    })
}
