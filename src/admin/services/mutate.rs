//! Orders about controllers: from a request to entries in the overrides, and to the phase that it is about.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};
use tonic::{Extensions, Status};

use super::controllers::no_controller;
use super::orders::{CheckedOrder, Direction, same_version, shortened};
use super::places::MutationClass;
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
            violations.add("duration", "must be unset for *, which removes overrides");
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
        // To disable does not depend on flags: it must be possible at any replica in an emergency.
        if asked.direction != Direction::Disable && !asked.force {
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

        let clears = order.direction == Direction::Clear;
        let written = if asked.dry_run {
            self.write(&order, &candidates, true).await.map_err(|failure| failure.status)?
        } else {
            let audit = Audit::begin(&order.user, extensions, asked.method, scope, &order.reason);
            let audit = audit.with_terms(order.force, order.duration);
            let (shared, by) = (self.clone(), Arc::clone(&order.user));
            let carried_out = self.carry_out(&by, MutationClass::Order, |caller| async move {
                let done = shared.write(&order, &candidates, false).await;
                let mutation = match &done {
                    Ok(written) => mutation(&order, &written.changes, ""),
                    Err(failure) => {
                        mutation(&order, &failure.perhaps, " (the API server did not confirm the write)")
                    }
                };
                let done = done.map_err(|failure| failure.status);
                audit.end(done.as_ref().map(Written::changes), caller.is_gone());
                caller.answer(done);
                mutation
            });
            carried_out.await?
        };
        if wait {
            self.wait_for_phase(&written, all || clears).await?;
        }
        Ok(self.answer(&written))
    }

    /// Writes the overrides, unless they say it already or nothing is to be written.
    async fn write(
        &self,
        order: &CheckedOrder,
        candidates: &[ControllerState],
        dry_run: bool,
    ) -> Result<Written, Failure> {
        // Entries that tries without an answer may have stored, or may still store.
        let mut perhaps: Vec<(String, Entry)> = Vec::new();
        for _ in 0..TRIES {
            let held = match self.manager.read_overrides().await {
                Ok(held) => held,
                Err(_) if !perhaps.is_empty() => return Err(unknown(perhaps)),
                Err(error) => return Err(unavailable(&error).into()),
            };
            if let Some(name) = overtaken(&perhaps, &held.set) {
                // Ours was stored, and another order was given on top of it: to write again would undo that one.
                let message =
                    format!("{name}: another request replaced this override after its response was lost");
                return Err(Failure { status: ErrorReply::new(Reason::Superseded, message).into(), perhaps });
            }
            let now = self.manager.now();
            let mut stored = perhaps.clone();
            stored.retain(|(name, entry)| held.set.entry(name) == Some(entry));
            let targets = order.targets(candidates, &held.set, &self.manager.overrides(), now);
            if let (Some(expected), [state]) = (&order.expected_version, targets.as_slice())
                && stored.is_empty()
            {
                same_version(state.name, expected, &held.set.version(state.name))
                    .map_err(|status| Failure { status, perhaps: perhaps.clone() })?;
            }
            let mut changes = order.changes(&targets, &held.set, now);
            changes.retain(|(name, _)| !stored.iter().any(|(known, _)| known == name));
            let mut targets: Vec<_> = targets.into_iter().cloned().collect();
            // Ended by a try of ours, it is no target any longer.
            for state in candidates.iter().filter(|state| stored.iter().any(|(name, _)| *name == state.name))
            {
                if !targets.iter().any(|target| target.name == state.name) {
                    targets.push(state.clone());
                }
            }
            if changes.is_empty() || dry_run {
                let set = held.set.with(&changes);
                stored.extend(changes);
                return Ok(Written { set, targets, changes: stored });
            }
            match self.manager.write_overrides(&held, &changes).await {
                Ok(HeldOverrides { set, .. }) => {
                    stored.extend(changes);
                    return Ok(Written { set, targets, changes: stored });
                }
                Err(StoreError::Conflict) => {}
                Err(error @ (StoreError::Unavailable(_) | StoreError::Unreadable(_))) => {
                    let status = unavailable(&error);
                    return Err(if perhaps.is_empty() { status.into() } else { unknown(perhaps) });
                }
                // The stored entries show whether the write was carried out.
                Err(StoreError::Unknown(_)) => perhaps.extend(changes),
            }
        }
        if !perhaps.is_empty() {
            return Err(unknown(perhaps));
        }
        let message =
            format!("write the overrides: gave up after {TRIES} attempts because of concurrent changes");
        Err(Status::from(ErrorReply::new(Reason::Contention, message).retry_after(RETRY)).into())
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
    async fn wait_for_phase(&self, written: &Written, may_be_skipped: bool) -> Result<(), Status> {
        let until = Instant::now() + WAIT;
        let mut changes = self.manager.changes();
        let now = self.manager.now();
        let wanted: Vec<Wanted> = written
            .targets
            .iter()
            .map(|state| Wanted {
                name: state.name,
                run: written.set.desired(state.name, state.flags, now).enabled,
                version: written.set.entry(state.name).map_or(0, |entry| entry.version),
            })
            .collect();
        loop {
            changes.mark_unchanged();
            if self.have_reached(&wanted, may_be_skipped)? {
                return Ok(());
            }
            tokio::select! {
                biased;
                () = self.shutdown.cancelled() => return Err(shutting_down()),
                () = sleep_until(until) => {
                    return Err(timed_out(format!(
                        "some controllers did not start or stop within {WAIT:?}; the override is active"
                    )));
                }
                woken = changes.changed() => woken.map_err(|_| shutting_down())?,
            }
        }
    }

    fn have_reached(&self, wanted: &[Wanted], may_be_skipped: bool) -> Result<bool, Status> {
        self.must_lead_still()?;
        let (overrides, now) = (self.manager.overrides(), self.manager.now());
        let mut reached = true;
        for state in self.manager.controllers() {
            let Some(wanted) = wanted.iter().find(|wanted| wanted.name == state.name) else { continue };
            let run = wanted.run;
            if overrides.desired(state.name, state.flags, now).enabled != run {
                if overrides.entry(state.name).map_or(0, |entry| entry.version) < wanted.version {
                    // The watch has not brought the order yet.
                    reached = false;
                    continue;
                }
                let message = format!("{}: the override was replaced or expired while waiting", state.name);
                return Err(ErrorReply::new(Reason::Superseded, message).into());
            }
            reached &= match &state.phase {
                Phase::Running => run,
                Phase::Disabled => !run,
                // Nobody who orders all controllers, or leaves one to the flags, waits for those that can't run.
                Phase::NotImplemented => !run || may_be_skipped,
                Phase::Skipped(_) if !run || may_be_skipped => true,
                Phase::Failed(why) | Phase::Unstarted(why) if run => {
                    let message = format!("{} failed and will be restarted: {why}", state.name);
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

/// The phase that a caller waits for.
struct Wanted {
    name: &'static str,
    run: bool,
    /// The version of the order.
    version: u64,
}

/// An order that was not written, or may have been.
struct Failure {
    status: Status,
    /// The entries that may have been written.
    perhaps: Vec<(String, Entry)>,
}

impl From<Status> for Failure {
    fn from(status: Status) -> Self {
        Self { status, perhaps: Vec::new() }
    }
}

/// All written entries as one mutation; `None` if nothing was written.
fn mutation(order: &CheckedOrder, changes: &[(String, Entry)], remark: &str) -> Option<Mutation> {
    let names: Vec<&str> = changes.iter().map(|(name, _)| name.as_str()).collect();
    (!changes.is_empty()).then(|| Mutation {
        user: Arc::clone(&order.user),
        action: order.direction.kind(),
        target: names.join(","),
        reason: order.reason.clone(),
        message: order.message(changes) + remark,
    })
}

/// The controller of an entry that another order was written on top of.
fn overtaken<'a>(perhaps: &'a [(String, Entry)], held: &OverrideSet) -> Option<&'a str> {
    let is_ours = |name: &str, entry: &Entry| perhaps.iter().any(|(of, ours)| of == name && ours == entry);
    let overtaken = perhaps.iter().find(|(name, ours)| {
        held.entry(name).is_some_and(|entry| entry.version > ours.version && !is_ours(name, entry))
    });
    overtaken.map(|(name, _)| name.as_str())
}

fn unknown(perhaps: Vec<(String, Entry)>) -> Failure {
    let error = StoreError::Unknown("the API server did not confirm the write".to_owned());
    Failure { status: unavailable(&error), perhaps }
}

fn unavailable(error: &StoreError) -> Status {
    let (reason, message) = match error {
        StoreError::Unknown(_) => (Reason::OutcomeUnknown, error.to_string()),
        _ => (Reason::ApiServer, format!("write the override: {error}")),
    };
    ErrorReply::new(reason, message).retry_after(RETRY).into()
}
