//! What was asked for and done lately. Times are those of a clock that nobody sets: one that is set ahead would end windows early, and
//! one that is set back would never end them. Decides nothing.

use std::time::Duration;

use coxswain_machinery::model::clock::SteadyTime;

/// What was asked for at some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Recommendation {
    pub(super) at: SteadyTime,
    pub(super) replicas: i32,
}

/// Replicas that were added or removed at some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) at: SteadyTime,
    pub(super) by: i32,
}

/// What was asked for and done lately.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct History {
    pub(super) recommendations: Vec<Recommendation>,
    pub(super) added: Vec<Step>,
    pub(super) removed: Vec<Step>,
}

impl History {
    /// The recommendations that are younger than `window`.
    pub(super) fn since(&self, now: SteadyTime, window: Duration) -> impl Iterator<Item = &Recommendation> {
        self.recommendations.iter().filter(move |held| is_within(held.at, now, window))
    }
}

/// Whether something happened less than `window` ago.
pub(super) fn is_within(at: SteadyTime, now: SteadyTime, window: Duration) -> bool {
    now.since(at) < window
}
