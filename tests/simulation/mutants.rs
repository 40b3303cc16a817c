//! Planted bugs: switches by which a manager, as the API server sees it, breaks one rule. Each must be found.
//!
//! They change what is on the line, not the manager, so that the manager under test is always the one that ships. Each
//! area has a file with a table of its bugs.

use std::time::Duration;

use http::Method;
use serde_json::Value as Json;

mod attaching;
mod autoscalers;
mod general;
mod keys;
mod nodes;
mod published;
mod quotas;
mod schedules;
mod sets;
mod volumes;

use crate::invariants::{controller_of, is_active};
use apiserver_model::http::{Answer, Asked};
use apiserver_model::{Deletion, Model, Place, Refusal, text};

/// A planted bug.
#[derive(Clone, Copy)]
pub(crate) struct Mutant {
    pub(crate) name: &'static str,
    /// The rule that finds it; with the room before it, as in violations, where two rooms have one of this name.
    pub(crate) breaks: &'static str,
    /// Whether a run by this seed has what the bug takes. Others need not be tried.
    pub(crate) can_show: fn(u64) -> bool,
    /// Changes a request of this controller before it arrives.
    send: fn(&str, &mut Asked),
    /// Answers in the server's place.
    answer: fn(&mut Model, &str, &Asked) -> Option<Result<Answer, Refusal>>,
    /// Does something more, in the same name.
    after: fn(&mut Model, &str, &Asked),
    /// For how long writes hang that arrive in the end.
    held_up: Duration,
    /// Which writes: those in whose paths this is.
    holds: &'static str,
    /// Whether nobody is told of deletions.
    pub(crate) deaf: bool,
    /// Whether a manager that is asked to end goes on.
    pub(crate) stubborn: bool,
}

const NONE: Mutant = Mutant {
    name: "",
    breaks: "",
    can_show: |_| true,
    send: |_, _| {},
    answer: |_, _, _| None,
    after: |_, _, _| {},
    held_up: Duration::ZERO,
    holds: "",
    deaf: false,
    stubborn: false,
};

/// All of them.
pub(crate) fn all() -> impl Iterator<Item = Mutant> {
    let areas = [
        general::ROWS,
        sets::ROWS,
        schedules::ROWS,
        nodes::ROWS,
        volumes::ROWS,
        attaching::ROWS,
        published::ROWS,
        autoscalers::ROWS,
        keys::ROWS,
        quotas::ROWS,
    ];
    areas.into_iter().flatten().copied()
}

/// The first for each rule: those that `make test` plants.
pub(crate) fn one_for_each_rule() -> impl Iterator<Item = Mutant> {
    all()
        .enumerate()
        .filter(|(at, mutant)| !all().take(*at).any(|other| other.breaks == mutant.breaks))
        .map(|(_, mutant)| mutant)
}

impl Mutant {
    /// Whether this rule, as violations name it, is the one that it breaks.
    pub(crate) fn is_found_by(&self, rule: &str) -> bool {
        rule == self.breaks || rule.ends_with(&format!(": {}", self.breaks))
    }

    /// For how long a request hangs.
    pub(crate) fn delay(&self, asked: &Asked) -> Duration {
        let hangs = asked.is_write() && !asked.path.contains("/leases") && asked.path.contains(self.holds);
        if hangs { self.held_up } else { Duration::ZERO }
    }

    pub(crate) fn send(&self, controller: &str, asked: &mut Asked) {
        (self.send)(controller, asked);
    }

    pub(crate) fn answer(
        &self,
        model: &mut Model,
        controller: &str,
        asked: &Asked,
    ) -> Option<Result<Answer, Refusal>> {
        (self.answer)(model, controller, asked)
    }

    pub(crate) fn after(&self, model: &mut Model, by: &str, asked: &Asked) {
        (self.after)(model, by, asked);
    }
}

fn is(asked: &Asked, method: &Method, resource: &str) -> bool {
    asked.method == *method && asked.kind.is_some_and(|kind| kind.resource == resource)
}

/// Deletes an active pod of an owner of this kind.
fn delete_one_of(model: &mut Model, by: &str, asked: &Asked, kind: &str) {
    let own = |pod: &&std::sync::Arc<apiserver_model::Stored>| {
        is_active(&pod.json) && text(controller_of(&pod.json), "/kind") == kind
    };
    let place = model.all("pods", &asked.namespace).find(own).map(|pod| pod.place.clone());
    if let Some(place) = place {
        drop(model.delete(by, &place, &Deletion::default()));
    }
}

/// Changes an object in the name of `by`.
fn change(model: &mut Model, by: &str, place: &Place, edit: impl FnOnce(&mut Json)) {
    drop(model.change(by, place, "", edit));
}
