//! ValidatingAdmissionPolicies: the types of their CEL expressions, checked against the kinds that they match. What does not
//! fit is said in `status.typeChecking`. See "Type checking" in the documentation of ValidatingAdmissionPolicies, and KEP-3488.
//!
//! | change of | keys |
//! |---|---|
//! | a policy that is there | its own |
//! | a definition of a custom resource, a schema, a binding, parameters | none |
//!
//! A policy is checked once for each of its generations, by whichever manager comes first: `observedGeneration` says that this
//! is done. Which kinds it matches follows from its rules and from discovery ([`kinds`]). Their types are read from the OpenAPI
//! documents of the API server ([`documents`]), when a policy is to be checked and never otherwise, and forgotten with the last
//! policy. The check itself is the crate `cel_check`'s.
//!
//! It warns and nothing else: what it writes changes nothing in admission. It never reads or writes a binding, a parameter or an
//! object that a policy is about.

mod documents;
mod kinds;
mod plan;
#[cfg(test)]
mod tests;
mod view;

use std::sync::Arc;

use jiff::Timestamp;

use coxswain_machinery::api::kinds::VALIDATING_ADMISSION_POLICIES;
use coxswain_machinery::api::system::ValidatingAdmissionPolicy;
use coxswain_machinery::framework::{
    Build, BuildError, Built, DefaultState, Descriptor, Grant, KeyMap, Loop, LoopSettings, Observation,
    ObserveError, Reads, Room, RoomAdapter, wake,
};
use coxswain_machinery::informer::{Delta, Lister};
use coxswain_machinery::model::{Failure, Key, Plan};

use documents::{Learned, Library};
use view::View;

/// Under which name fields are applied. It is the original's: fields that the one applied are the other's, too.
const FIELD_MANAGER: &str = "validatingadmissionpolicy-status";

/// The registry's row.
pub const DESCRIPTOR: Descriptor = Descriptor {
    name: "validatingadmissionpolicy-status-controller",
    aliases: &[],
    description: "Type-checks ValidatingAdmissionPolicies and reports the warnings in their status.",
    gates: &[],
    default: DefaultState::On,
    cloud: false,
    special: false,
    service_account: Some("validatingadmissionpolicy-status-controller"),
    event_source: None,
    writes: &[
        Grant {
            group: "admissionregistration.k8s.io",
            resource: "validatingadmissionpolicies",
            verbs: &["list", "watch"],
        },
        Grant {
            group: "admissionregistration.k8s.io",
            resource: "validatingadmissionpolicies/status",
            verbs: &["patch"],
        },
    ],
    build: Some(build),
};

/// Builds the controller.
pub fn build(build: &Build<'_>) -> Result<Built, BuildError> {
    let policies = build.watch::<ValidatingAdmissionPolicy>(&VALIDATING_ADMISSION_POLICIES);
    let library = Arc::new(Library::of(policies.lister()));
    let room = Controller { policies: policies.lister(), library: Arc::clone(&library) };
    Ok(Built {
        loops: vec![Loop {
            queue: "validatingadmissionpolicy-status",
            kind: Some(&VALIDATING_ADMISSION_POLICIES),
            settings: LoopSettings::with_workers(
                build.config.flags.concurrent_validating_admission_policy_status_syncs,
            ),
            wake_ups: vec![policies.wakes(existing(Arc::clone(&library)))],
            reconcile: Arc::new(RoomAdapter::new(room).remembered_by(library)),
        }],
    })
}

/// A change of a policy concerns its own key, as long as it is there. With the last one the documents go.
fn existing(library: Arc<Library>) -> KeyMap {
    let existing = wake::existing();
    Arc::new(move |delta: Delta<'_>, add: &mut dyn FnMut(Key)| {
        if delta.new.is_none() {
            library.close_if_unused();
        }
        existing(delta, add);
    })
}

/// The room: what it reads, and what it remembers of documents.
struct Controller {
    policies: Lister<ValidatingAdmissionPolicy>,
    library: Arc<Library>,
}

impl Room<Learned> for Controller {
    type View = View;

    fn observe(&self, key: &Key, _: &[Failure], read: &Reads) -> Result<Observation<View>, ObserveError> {
        view::observe(self, key, read)
    }

    fn plan(view: &View, _: Timestamp) -> Plan<Learned> {
        plan::plan(view)
    }

    fn reasons(view: &View, _: Timestamp) -> Vec<String> {
        plan::reasons(view)
    }
}
