//! [`InformerStats`]: an informer as the admin API, health checks and metrics see it.

use std::time::Duration;

use super::reflector::{Progress, Status};
use super::store::{HandlerPanics, Store};
use crate::api::Kind;
use crate::client::FieldSelector;
use crate::wire::Str;

/// An informer that has had no answer for this long is unhealthy. Shorter outages are what backoff is for.
const UNHEALTHY_AFTER: Duration = Duration::from_mins(1);
/// The same while its store has never been complete: an old state serves for a while, none at all holds up everything.
const UNFILLED_AFTER: Duration = Duration::from_secs(10);

/// An informer at one moment.
#[derive(Clone, Debug)]
pub struct InformerStats {
    /// What it watches.
    pub kind: &'static Kind,
    /// Which of them; all if `None`.
    pub field_selector: Option<String>,
    /// Objects cached.
    pub objects: usize,
    /// Objects received for a list that is not complete yet.
    pub collecting: usize,
    /// Whether the store has been complete at least once, and is kept up to date.
    pub synced: bool,
    /// Up to where every change has been told; empty before the first list.
    pub resource_version: Str,
    /// Age of the open watch; `None` while there is none.
    pub watch_age: Option<Duration>,
    /// For how long no request has succeeded; `None` when the last one did.
    pub failing_for: Option<Duration>,
    /// For how long the store has waited to be complete for the first time; `None` once it was.
    pub unfilled_for: Option<Duration>,
    /// Panics of the informer's task, after each of which it was started again.
    pub restarts: u64,
    /// Complete lists after the first.
    pub relists: u64,
    /// Watches opened after the first.
    pub reconnects: u64,
    /// What went wrong last, however long ago.
    pub last_error: Option<String>,
    /// Objects of which an older state is cached because the present one can't be decoded.
    pub unreadable: usize,
    /// One of them, and why.
    pub unreadable_example: Option<String>,
    /// Registered handlers.
    pub handlers: usize,
    /// Those that have panicked.
    pub handler_panics: Vec<HandlerPanics>,
}

impl InformerStats {
    pub(super) fn of(store: &Store, field_selector: Option<&FieldSelector>, status: &Status) -> Self {
        let (objects, resource_version) = (store.len(), store.resource_version());
        let (handlers, handler_panics) = (store.handler_count(), store.handler_panics());
        let (synced, unfilled_for) = (status.progress() == Progress::Synced, status.unfilled_for());
        status.facts(|record| Self {
            kind: store.kind(),
            field_selector: field_selector.map(FieldSelector::to_string),
            objects,
            collecting: record.collecting,
            synced,
            resource_version,
            watch_age: record.open_since.map(|since| since.elapsed()),
            failing_for: record.failing_for(),
            unfilled_for,
            restarts: record.restarts,
            relists: record.lists.saturating_sub(1),
            reconnects: record.watches.saturating_sub(1),
            last_error: record.last_error.clone(),
            unreadable: record.unreadable.len(),
            unreadable_example: record.unreadable.iter().next().map(|(key, error)| format!("{key}: {error}")),
            handlers,
            handler_panics,
        })
    }

    /// What is wrong with it, for a health check; `None` when nothing is.
    pub fn problem(&self) -> Option<String> {
        if let Some(panics) = self.handler_panics.first() {
            return Some(format!(
                "the handler of {} panicked {} times; last panic: {}",
                panics.handler, panics.count, panics.last
            ));
        }
        if let Some(example) = &self.unreadable_example {
            return Some(format!("{} objects cannot be decoded, for example {example}", self.unreadable));
        }
        // A stream of the initial state may open again and again and never come to its end, so success is no measure.
        if let (Some(unfilled), Some(error)) = (self.unfilled_for, &self.last_error)
            && unfilled >= UNFILLED_AFTER
        {
            return Some(format!("not synced for {} s: {error}", unfilled.as_secs()));
        }
        match self.failing_for {
            Some(failing) if failing >= UNHEALTHY_AFTER => Some(format!(
                "no response for {} s: {}",
                failing.as_secs(),
                self.last_error.as_deref().unwrap_or("no error recorded")
            )),
            _ => None,
        }
    }

    /// The same with the name of the kind.
    pub fn named_problem(&self) -> Option<String> {
        self.problem().map(|problem| format!("{}: {problem}", self.kind))
    }
}
