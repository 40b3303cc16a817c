//! Orders about controllers, without I/O: which controllers an order concerns, what it takes, and the entries it writes.
//!
//! The rules are in [`crate::admin::overrides`].

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tonic::Status;

use crate::admin::critical::WITHOUT_FORCE;
use crate::admin::errors::{ErrorReply, Reason};
use crate::admin::manager::{ControllerState, MutationKind, Obstacle};
use crate::admin::overrides::{Entry, MAX_USER_BYTES, Order, OverrideSet};
use coxswain_machinery::serve::UserInfo;

/// The effect of an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    Enable,
    Disable,
    Clear,
}

impl Direction {
    pub(super) fn kind(self) -> MutationKind {
        match self {
            Self::Enable => MutationKind::Enabled,
            Self::Disable => MutationKind::Disabled,
            Self::Clear => MutationKind::Cleared,
        }
    }
}

/// An order whose fields were checked.
#[derive(Debug)]
pub(super) struct CheckedOrder {
    pub(super) direction: Direction,
    /// Whether it is for `*`.
    pub(super) all: bool,
    pub(super) reason: String,
    pub(super) duration: Option<Duration>,
    pub(super) expected_version: Option<String>,
    pub(super) force: bool,
    pub(super) user: Arc<UserInfo>,
    /// Identity of the replica that writes.
    pub(super) replica: String,
}

impl CheckedOrder {
    /// The order that entries hold.
    fn stored(&self) -> Order {
        match self.direction {
            Direction::Enable if !self.all => Order::Enabled,
            Direction::Disable => Order::Disabled,
            // `enable '*'` ends the overrides that disable.
            Direction::Enable | Direction::Clear => Order::Default,
        }
    }

    /// Whether nothing stands against the order on this replica.
    pub(super) fn admit(&self, name: &str, candidates: &[ControllerState]) -> Result<(), Status> {
        match (self.direction, candidates) {
            (Direction::Enable, [state]) if !self.all => {
                unobstructed(state)?;
                self.selected(state)
            }
            (Direction::Disable, _) if !self.force => self.dispensable(name, candidates),
            _ => Ok(()),
        }
    }

    /// Whether the flags select a controller, or the order may outrank them.
    fn selected(&self, state: &ControllerState) -> Result<(), Status> {
        let name = state.name;
        if state.flags.enabled {
            return Ok(());
        }
        if state.flags.fixed {
            let why = format!("--controllers does not select {name}, and --admin-overrides is disable-only");
            let reply = ErrorReply::new(Reason::Setting, why.clone());
            return Err(reply.with("controller", name).violates("--admin-overrides", why).into());
        }
        if self.force {
            return Ok(());
        }
        let why = format!(
            "--controllers does not select {name}: another manager may run it; set force to enable it"
        );
        let reply = ErrorReply::new(Reason::ForceRequired, why.clone());
        Err(reply.with("controller", name).violates(name, why).into())
    }

    /// Whether the cluster does not depend on the controllers, or not within the duration.
    fn dispensable(&self, name: &str, candidates: &[ControllerState]) -> Result<(), Status> {
        let is_short = self.duration.is_some_and(|duration| duration <= WITHOUT_FORCE);
        let critical = candidates.iter().find_map(|state| Some((state.name, state.critical?)));
        let why = match critical {
            _ if self.all => {
                "disabling all controllers includes critical ones; set force to disable them".to_owned()
            }
            Some((name, effect)) if !is_short => format!(
                "{name} is critical to the cluster ({effect} without it); set force to disable it, or a duration of \
                 at most 1h"
            ),
            _ => return Ok(()),
        };
        Err(ErrorReply::new(Reason::ForceRequired, why.clone()).violates(name, why).into())
    }

    /// The controllers concerned. `held` was read from the API server; `known` is what this replica acts on, in which an
    /// entry that became unreadable holds on.
    pub(super) fn targets<'a>(
        &self,
        candidates: &'a [ControllerState],
        held: &OverrideSet,
        known: &OverrideSet,
        now: Timestamp,
    ) -> Vec<&'a ControllerState> {
        let effective = held.clone().keeping(known);
        let is_meant = |state: &&ControllerState| {
            let order =
                effective.entry(state.name).filter(|entry| entry.is_in_force(now)).map(|entry| entry.order);
            match self.direction {
                _ if !self.all => true,
                // Whatever the flags of this replica are: those of the leader, and of the next one, may select more.
                Direction::Disable => true,
                Direction::Enable => order == Some(Order::Disabled),
                Direction::Clear => order.is_some() || effective.problem_of(state.name).is_some(),
            }
        };
        candidates.iter().filter(is_meant).collect()
    }

    /// The entries to write, without those that hold the order already.
    pub(super) fn changes(
        &self,
        targets: &[&ControllerState],
        held: &OverrideSet,
        now: Timestamp,
    ) -> Vec<(String, Entry)> {
        let order = self.stored();
        let mut version = held.next_version();
        let mut changes = Vec::new();
        for state in targets.iter().filter(|state| !self.is_held(state.name, held, now)) {
            let until = self.duration.map(|duration| {
                let duration = SignedDuration::try_from(duration).unwrap_or(SignedDuration::MAX);
                now.saturating_add(duration).unwrap_or(Timestamp::MAX)
            });
            let entry = Entry {
                order,
                user: shortened(&self.user.name, MAX_USER_BYTES),
                time: now,
                reason: self.reason.clone(),
                until,
                version,
                replica: self.replica.clone(),
                force: (order != Order::Default).then_some(self.force),
            };
            changes.push((state.name.to_owned(), entry));
            version = version.saturating_add(1);
        }
        changes
    }

    fn is_held(&self, name: &str, held: &OverrideSet, now: Timestamp) -> bool {
        let order = self.stored();
        match held.entry(name).filter(|entry| entry.is_in_force(now)) {
            None => order == Order::Default && held.problem_of(name).is_none(),
            Some(entry) => {
                entry.order == order
                    && entry.until.is_none()
                    && self.duration.is_none()
                    && (self.reason.is_empty() || self.reason == entry.reason)
                    && (order == Order::Disabled || !self.force || entry.outranks_flags())
            }
        }
    }

    /// The order for people, as an Event has it: `jane disabled deployment-controller until …: a storm`.
    pub(super) fn message(&self, changes: &[(String, Entry)]) -> String {
        let names: Vec<&str> = changes.iter().map(|(name, _)| name.as_str()).collect();
        let names = names.join(", ");
        let what = match (self.direction, self.all) {
            (Direction::Enable, false) => format!("enabled {names}"),
            (Direction::Enable, true) => format!("removed the overrides that disable {names}"),
            (Direction::Disable, false) => format!("disabled {names}"),
            (Direction::Disable, true) => format!("disabled all controllers: {names}"),
            (Direction::Clear, false) => format!("cleared the override of {names}"),
            (Direction::Clear, true) => format!("cleared all overrides: {names}"),
        };
        let until = changes.first().and_then(|(_, entry)| entry.until);
        let until = until.map(|until| format!(" until {until}")).unwrap_or_default();
        let force = if self.force { " with force" } else { "" };
        let why = if self.reason.is_empty() { String::new() } else { format!(": {}", self.reason) };
        format!("{} {what}{until}{force}{why}", self.user.name)
    }
}

/// Whether nothing stands against running a controller.
fn unobstructed(state: &ControllerState) -> Result<(), Status> {
    let name = state.name;
    let (reason, subject, why) = match &state.obstacle {
        None => return Ok(()),
        Some(Obstacle::Gate(gate)) => {
            (Reason::FeatureGate, *gate, format!("{name} requires the feature gate {gate}, which is off"))
        }
        Some(Obstacle::CloudProvider(why)) => (Reason::CloudProvider, "--cloud-provider", why.clone()),
        Some(Obstacle::Setting(why)) => (Reason::Setting, name, why.clone()),
        Some(Obstacle::NotImplemented) => {
            (Reason::NotImplemented, name, format!("this version of Coxswain does not implement {name}"))
        }
    };
    Err(ErrorReply::new(reason, why.clone()).with("controller", name).violates(subject, why).into())
}

/// Whether a controller is at the version that the caller expects.
pub(super) fn same_version(name: &str, expected: &str, found: &str) -> Result<(), Status> {
    if expected == found {
        return Ok(());
    }
    let message = format!("{name} changed concurrently: its version is {found}, not {expected}");
    Err(ErrorReply::new(Reason::VersionMismatch, message).with("version", found).into())
}

pub(super) fn shortened(text: &str, most: usize) -> String {
    text[..text.floor_char_boundary(most)].to_owned()
}
