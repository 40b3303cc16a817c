//! Orders about controllers: from a request to entries in the overrides, and to the phase that it is about.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};
use tonic::{Extensions, Status};

use super::controllers::no_controller;
use super::orders::{CheckedOrder, Direction, same_version, shortened};
use super::{Shared, shutting_down};
use crate::admin::audit::{Audit, Changes};
use crate::admin::authorize::Method;
use crate::admin::convert;
use crate::admin::errors::{ErrorReply, Reason, Violations, timed_out};
use crate::admin::manager::{ControllerState, Mutation, Phase};
use crate::admin::overrides::{Entry, HeldOverrides, MAX_USER_BYTES, OverrideSet, StoreError};
use crate::admin::{proto, validate};

/// Others may write the overrides at the same time; each try reads anew.
const TRIES: u32 = 5;
/// When to try again after that many.
const RETRY: Duration = Duration::from_secs(1);
/// For how long a call without a deadline waits for a phase.
const WAIT: Duration = Duration::from_mins(2);

/// A request for an order.
pub(super) struct Asked {
    pub(super) method: Method,
    pub(super) direction: Direction,
    pub(super) name: String,
    pub(super) reason: String,
    pub(super) duration: Option<prost_types::Duration>,
    pub(super) expected_version: Option<String>,
    pub(super) wait: bool,
    pub(super) dry_run: bool,
    pub(super) force: bool,
}

/// What came of it.
pub(super) struct Change {
    pub(super) controllers: Vec<proto::Controller>,
    pub(super) changed: bool,
}

impl Shared {
    /// Enables, disables or clears.
    pub(super) async fn change(&self, extensions: &Extensions, asked: Asked) -> Result<Change, Status> {
        let names = self.manager.names();
        let all = asked.name == "*";
        let found = validate::resolve(&asked.name, names);
        // Who may change all controllers may change each: that is what an empty name asks for.
        let scope = if all { "" } else { found.unwrap_or(asked.name.as_str()) };
        let user = self.allow(extensions, asked.method, scope).await?;

        let mut violations = Violations::default();
        validate::name("name", &asked.name, &mut violations);
        validate::reason(&asked.reason, &mut violations);
        let duration = validate::lasting(asked.duration.as_ref(), &mut violations);
        if all && asked.direction == Direction::Enable && asked.duration.is_some() {
            violations.add("duration", "does not go with *, which ends overrides");
        }
        validate::expected_version(&asked.name, asked.expected_version.as_deref(), &mut violations);
        violations.check()?;
        if !all && found.is_none() {
            return Err(no_controller(&asked.name, names));
        }
        let wait = asked.wait && !asked.dry_run;
        if wait {
            self.must_lead()?;
        }
        if !asked.force {
            self.must_select_as_the_leader()?;
        }
        let candidates = match found {
            Some(name) => self.manager.controller(name).into_iter().collect(),
            None => self.manager.controllers(),
        };
        let order = CheckedOrder {
            direction: asked.direction,
            all,
            reason: asked.reason,
            duration,
            expected_version: asked.expected_version,
            force: asked.force,
            user,
            replica: shortened(self.manager.identity(), MAX_USER_BYTES),
        };
        order.admit(&asked.name, &candidates)?;

        let written = if asked.dry_run {
            self.write(&order, &candidates, true).await?
        } else {
            let audit = Audit::begin(&order.user, extensions, asked.method, scope, &order.reason);
            let audit = audit.with_terms(order.force, order.duration);
            let shared = self.clone();
            let carried_out = self.carry_out(|caller| async move {
                let done = shared.write(&order, &candidates, false).await;
                audit.end(done.as_ref().map(Written::changes), caller.is_gone());
                let mutation = done.as_ref().ok().and_then(|written| mutation(&order, written));
                caller.answer(done);
                if let Some(mutation) = mutation {
                    shared.manager.announce(&mutation).await;
                }
            });
            carried_out.await?
        };
        if wait {
            self.wait_for_phase(&written, all).await?;
        }
        Ok(self.answer(&written))
    }

    /// Writes the overrides, unless they say it already or nothing is to be written.
    async fn write(
        &self,
        order: &CheckedOrder,
        candidates: &[ControllerState],
        dry_run: bool,
    ) -> Result<Written, Status> {
        for _ in 0..TRIES {
            let held = self.manager.read_overrides().await.map_err(|error| unavailable(&error))?;
            let now = self.manager.now();
            let targets = order.targets(candidates, &held.set, &self.manager.overrides(), now);
            if let (Some(expected), [state]) = (&order.expected_version, targets.as_slice()) {
                same_version(state.name, expected, &held.set.version(state.name))?;
            }
            let changes = order.changes(&targets, &held.set, now);
            let targets = targets.into_iter().cloned().collect();
            if changes.is_empty() || dry_run {
                return Ok(Written { set: held.set.with(&changes), targets, changes });
            }
            match self.manager.write_overrides(&held, &changes).await {
                Ok(HeldOverrides { set, .. }) => return Ok(Written { set, targets, changes }),
                Err(StoreError::Conflict) => {}
                Err(error @ (StoreError::Unavailable(_) | StoreError::Unreadable(_))) => {
                    return Err(unavailable(&error));
                }
                Err(error @ StoreError::Unknown(_)) => {
                    // The answer was lost: what is there now tells whether the write was carried out.
                    let found = self.manager.read_overrides().await.map_err(|_| unavailable(&error))?;
                    let there = |(name, entry): &(String, Entry)| found.set.entry(name) == Some(entry);
                    if changes.iter().all(there) {
                        return Ok(Written { set: found.set, targets, changes });
                    }
                }
            }
        }
        let message = format!("the overrides have changed {TRIES} times while this was to be written");
        Err(ErrorReply::new(Reason::Contention, message).retry_after(RETRY).into())
    }

    /// The controllers as they are now, under the overrides as they were written, or would have been.
    fn answer(&self, written: &Written) -> Change {
        let now = self.manager.now();
        let states = self.manager.controllers();
        let concerned =
            states.iter().filter(|state| written.targets.iter().any(|target| target.name == state.name));
        Change {
            controllers: concerned.map(|state| convert::controller(state, &written.set, now)).collect(),
            changed: written.changed(),
        }
    }

    /// Returns once each controller runs or has stopped, as was written.
    async fn wait_for_phase(&self, written: &Written, all: bool) -> Result<(), Status> {
        let until = Instant::now() + WAIT;
        let mut changes = self.manager.changes();
        let now = self.manager.now();
        let wanted: Vec<(&'static str, bool)> = written
            .targets
            .iter()
            .map(|state| (state.name, written.set.desired(state.name, state.flags, now).enabled))
            .collect();
        loop {
            changes.mark_unchanged();
            if self.have_reached(&wanted, all)? {
                return Ok(());
            }
            tokio::select! {
                biased;
                () = self.shutdown.cancelled() => return Err(shutting_down()),
                () = sleep_until(until) => {
                    return Err(timed_out(format!(
                        "not every controller has started or stopped within {WAIT:?}; the order is in force"
                    )));
                }
                woken = changes.changed() => woken.map_err(|_| shutting_down())?,
            }
        }
    }

    fn have_reached(&self, wanted: &[(&'static str, bool)], all: bool) -> Result<bool, Status> {
        self.must_lead_still()?;
        let (overrides, now) = (self.manager.overrides(), self.manager.now());
        let mut reached = true;
        for state in self.manager.controllers() {
            let Some((_, run)) = wanted.iter().find(|(name, _)| *name == state.name) else { continue };
            let run = *run;
            if overrides.desired(state.name, state.flags, now).enabled != run {
                let message =
                    format!("{} was ordered otherwise meanwhile, or the order has ended", state.name);
                return Err(ErrorReply::new(Reason::Superseded, message).into());
            }
            reached &= match &state.phase {
                Phase::Running => run,
                Phase::Disabled => !run,
                // Of all controllers those that can't run are waited for by nobody.
                Phase::NotImplemented => !run || all,
                Phase::Skipped(_) if !run || all => true,
                Phase::Failed(why) if run => {
                    let message = format!("{} failed: {why}; it will be tried again", state.name);
                    return Err(ErrorReply::new(Reason::ControllerFailed, message)
                        .violates(state.name, why)
                        .into());
                }
                Phase::Skipped(why) => {
                    let message = format!("{} is skipped: {why}", state.name);
                    return Err(ErrorReply::new(Reason::Setting, message).violates(state.name, why).into());
                }
                _ => false,
            };
        }
        Ok(reached)
    }
}

/// What was written, or would have been.
struct Written {
    set: OverrideSet,
    targets: Vec<ControllerState>,
    changes: Vec<(String, Entry)>,
}

impl Written {
    fn changed(&self) -> bool {
        !self.changes.is_empty()
    }

    fn changes(&self) -> Changes<'_> {
        let controllers = self.changes.iter().map(|(name, _)| name.as_str()).collect();
        Changes { changed: self.changed(), controllers }
    }
}

/// What was written, all of it as one mutation; `None` for nothing.
fn mutation(order: &CheckedOrder, written: &Written) -> Option<Mutation> {
    written.changed().then(|| Mutation {
        user: Arc::clone(&order.user),
        action: order.direction.kind(),
        target: written.changes().controllers.join(","),
        reason: order.reason.clone(),
        message: order.message(&written.changes),
    })
}

fn unavailable(error: &StoreError) -> Status {
    let (reason, message) = match error {
        StoreError::Unknown(_) => (Reason::OutcomeUnknown, error.to_string()),
        _ => (Reason::ApiServer, format!("the API server did not take the override: {error}")),
    };
    ErrorReply::new(reason, message).retry_after(RETRY).into()
}
