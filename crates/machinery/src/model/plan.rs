//! What a controller decided: the steps, in order, and when to look again.
//!
//! A plan is data. The executor performs it as it stands and makes no choices: it stops at the first step that fails, unless
//! the plan says of a write that it goes on without it ([`Write::keep_going`]). The framework then lets a room that heeds
//! failures observe and plan once more with the failure in hand, so that the plan can record it (a status condition, a
//! collision count), and leaves the rest to a retry.

mod write;

use std::time::Duration;

pub use write::{FinishOrder, Patch, Propagation, Tolerate, Verb, Write};

use super::Key;
use super::live_reads::LiveRead;
use crate::api::meta::ObjectMeta;
use crate::api::{AnyObject, Kind};
use crate::wire::{Str, Uid};

/// How long an object is left alone whose status was written. Short beside what pods take to come and go, and long enough
/// that a crowd of them is counted in few writes.
const STATUS_COOLDOWN: Cooldown = Cooldown { at_least: Duration::from_millis(50), times_work: 10 };

/// The outcome of planning. The default plan does nothing. `N` is what it tells beside its steps.
#[expect(clippy::struct_excessive_bools, reason = "each is a question of its own")]
#[derive(Clone, Debug)]
pub struct Plan<N = ()> {
    /// What to do, in order.
    pub steps: Vec<Step>,
    /// Look at the object again after this long, whether or not something happens. Less than 100 ms holds only after writes that
    /// changed something: otherwise the delay grows with each such plan in a row.
    pub requeue_after: Option<Duration>,
    /// Requeues the key after this delay although a step fails and the backoff is longer: a deadline that the object sets.
    pub deadline: Option<Duration>,
    /// Requeues the key after this delay if the plan's writes changed an object. A plan whose writes change nothing would be
    /// made again each time: an admission webhook may undo them.
    pub recheck_after: Option<Duration>,
    /// When all steps are done, observe and plan anew at once: what is left is to be judged by what they changed. A room
    /// that observes live is told what was written. Not heeded beside `retry`. After a few such plans, or when a plan repeats a write
    /// of an earlier one, the key is retried with backoff.
    pub look_again: bool,
    /// How long the object is left alone after the plan's writes. Changes that concern it are collected meanwhile. What comes
    /// later waits for nothing.
    pub cooldown: Cooldown,
    /// The plan could not be made in full: what was wrong. The key is retried with backoff after the steps ran.
    pub retry: Option<String>,
    /// What `retry` says is no error, only not the time yet: it is not logged as one.
    pub quiet: bool,
    /// The key is not retried for a failure: it is logged, and `requeue_after` holds. In the plan that records a failure that one
    /// is meant, once this plan's own steps have succeeded; in any other plan a failure of its own steps.
    pub end: bool,
    /// The object of the key was deleted, so the delayed requeue of the key is dropped. Otherwise the key would stay in the queue until
    /// the requeue.
    pub is_gone: bool,
    /// The plan is one part of a longer piece of work, the note remembers how far that has come, and the next part is due after
    /// `requeue_after`. Without this, a plan whose writes change nothing is not followed by another one at once.
    pub has_more: bool,
    /// What the plan tells beside its steps: what the controller's metrics count of it, and what it adds to the controller's
    /// memory once its writes have succeeded; its items once the writes have that name them ([`Write::item`]).
    pub note: N,
}

/// How long an object is left alone, from when it was taken up: until whichever of these is later. For objects that are dear
/// to look at or to write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cooldown {
    /// So long in any case.
    pub at_least: Duration,
    /// So many times as long as the work on it took, requests and all: of a server that is slow to answer less is asked. No
    /// longer than [`Cooldown::LONGEST`].
    pub times_work: u32,
}

impl Cooldown {
    /// No cooldown.
    pub const NONE: Self = Self { at_least: Duration::ZERO, times_work: 0 };
    /// The longest cooldown for the sake of a slow server.
    pub const LONGEST: Duration = Duration::from_secs(1);

    /// The longer of both.
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        Self {
            at_least: self.at_least.max(other.at_least),
            times_work: self.times_work.max(other.times_work),
        }
    }

    /// How long it is for an object on which work took `took`.
    pub fn after(self, took: Duration) -> Duration {
        self.at_least.max(took.saturating_mul(self.times_work).min(Self::LONGEST))
    }
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            steps: Vec::new(),
            requeue_after: None,
            deadline: None,
            recheck_after: None,
            look_again: false,
            cooldown: Cooldown::NONE,
            retry: None,
            quiet: false,
            end: false,
            is_gone: false,
            has_more: false,
            note: (),
        }
    }
}

impl Plan {
    /// The same plan with a note.
    #[must_use]
    pub fn with_note<N>(self, note: N) -> Plan<N> {
        self.replace_note(note).0
    }
}

impl<N> Plan<N> {
    /// The plan without its note, and the note.
    pub fn into_parts(self) -> (Plan, N) {
        self.replace_note(())
    }

    fn replace_note<M>(self, new: M) -> (Plan<M>, N) {
        let Self {
            steps,
            requeue_after,
            deadline,
            recheck_after,
            look_again,
            cooldown,
            retry,
            quiet,
            end,
            is_gone,
            has_more,
            note,
        } = self;
        let plan = Plan {
            steps,
            requeue_after,
            deadline,
            recheck_after,
            look_again,
            cooldown,
            retry,
            quiet,
            end,
            is_gone,
            has_more,
            note: new,
        };
        (plan, note)
    }

    /// All that it would write, in order.
    pub fn writes(&self) -> impl Iterator<Item = &Write> {
        self.steps.iter().flat_map(Step::writes)
    }

    /// Whether performing the plan writes nothing.
    pub fn is_empty(&self) -> bool {
        self.writes().next().is_none()
    }

    /// Writes a status, if it is not what it should be: what else changes in a moment is then one more write, not one each.
    pub fn write_status(&mut self, write: Option<Write>) {
        if let Some(write) = write {
            self.steps.push(Step::Write(write));
            self.cooldown = self.cooldown.max(STATUS_COOLDOWN);
        }
    }

    /// Asks for another look after `delay`; the earliest of several wins.
    pub fn look_again_after(&mut self, delay: Duration) {
        self.requeue_after = Some(self.requeue_after.map_or(delay, |earlier| earlier.min(delay)));
    }
}

/// One step of a plan.
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "plans are short-lived and short; a box per write costs more")]
pub enum Step {
    /// Read an object from the API server, not from the cache, and go on only if it is as expected.
    Verify(Verify),
    /// Take a token of a budget that plans share. Without one the plan ends here, and the key comes back when there is one.
    Admit(Admission),
    /// One write.
    Write(Write),
    /// Independent writes of one sort, sent in slowly growing batches (1, 2, 4 …) so that a refusal that would meet
    /// all of them (a quota, a webhook) costs few requests. Stops at the end of the batch in which one failed.
    Batch(Vec<Write>),
    /// Independent writes, a few at a time, each of them tried whatever becomes of the others. The plan ends here if one
    /// failed that it does not go on without.
    Each(Vec<Write>),
    /// Chains of writes side by side. A chain ends at its first failure (see also [`Write::with_next`]), or at a conflict that is tolerated,
    /// and the others go on; the plan ends here if one failed.
    Chains {
        /// The chains.
        chains: Vec<Chain>,
        /// Whether they begin in slowly growing batches, as the writes of [`Step::Batch`] do; otherwise a few at a time.
        slow_start: bool,
    },
    /// Only an event; its failure is never the plan's.
    Emit(EventSpec),
}

/// Writes of which each rests on the success of the one before.
pub type Chain = Vec<Write>;

impl Step {
    /// Its writes, in order.
    pub fn writes(&self) -> impl Iterator<Item = &Write> {
        let (plain, chains): (&[Write], &[Chain]) = match self {
            Self::Write(write) => (std::slice::from_ref(write), &[]),
            Self::Batch(writes) | Self::Each(writes) => (writes, &[]),
            Self::Chains { chains, .. } => (&[], chains),
            Self::Verify(_) | Self::Admit(_) | Self::Emit(_) => (&[], &[]),
        };
        plain.iter().chain(chains.iter().flatten())
    }

    /// How many results it has: one for each write; one if it is none.
    pub fn len(&self) -> usize {
        match self {
            Self::Write(_) | Self::Verify(_) | Self::Admit(_) | Self::Emit(_) => 1,
            Self::Batch(_) | Self::Each(_) | Self::Chains { .. } => self.writes().count(),
        }
    }

    /// Whether it does nothing.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A live read before something that must not rest on a stale cache: adoption, destruction.
#[derive(Clone, Debug)]
pub struct Verify {
    /// Its row in the table of live reads.
    pub read: &'static LiveRead,
    /// Kind of the object.
    pub kind: &'static Kind,
    /// Where it is.
    pub key: Key,
    /// What must be true of it.
    pub expect: Expect,
}

/// A token of a budget: so many steps per second that all plans of the controller share.
#[derive(Clone, Debug)]
pub struct Admission {
    /// Kind of the object for which it is taken.
    pub kind: &'static Kind,
    /// The object.
    pub key: Key,
    /// Name of the budget: of a zone, say.
    pub budget: Str,
    /// Tokens that come in a second, from now on. If none come, the key is not queued for one.
    pub per_second: f64,
    /// Tokens that a full budget holds.
    pub burst: u32,
}

/// What a live read must find.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expect {
    /// It exists with this UID and its deletion has not begun.
    Alive(Uid),
    /// There is no object with this UID there: none at all, or another one of that name.
    Gone(Uid),
    /// It exists with this UID.
    Exists(Uid),
    /// There is no object of that name.
    Absent,
}

/// An event about an object.
#[derive(Clone, Debug)]
pub struct EventSpec {
    /// What it is about.
    pub regarding: Regarding,
    /// `Warning` instead of `Normal`.
    pub warning: bool,
    /// For machines.
    pub reason: &'static str,
    /// For people.
    pub message: String,
}

/// The object that an event is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Regarding {
    /// Its kind.
    pub kind: &'static Kind,
    /// Its namespace and name.
    pub key: Key,
    /// Its UID.
    pub uid: Uid,
    /// Its resource version when the event was decided.
    pub resource_version: Str,
}

impl Regarding {
    /// A reference to an object.
    pub fn of(kind: &'static Kind, meta: &ObjectMeta) -> Self {
        Self {
            kind,
            key: Key::of(meta),
            uid: meta.uid.clone(),
            resource_version: meta.resource_version.clone(),
        }
    }
}

/// The reason of a failure of what comes before a write, on this machine ([`Write::prepare`]).
pub const UNPREPARED: &str = "Unprepared";

/// A step that failed, as the second pass of observing and planning sees it.
#[derive(Clone, Debug)]
pub struct Failure {
    /// What was tried, for people: as [`Write`]'s `Display` or the verified object's name.
    pub what: String,
    /// What was tried with the object: `create`, `update`, `patch`, `delete` or `deletecollection`; empty for a live read.
    pub verb: &'static str,
    /// The subresource that was to be written; empty for the object itself.
    pub subresource: &'static str,
    /// Kind of the object that was to be written or read.
    pub kind: &'static Kind,
    /// Where it was to be.
    pub key: Key,
    /// HTTP status code; 0 when no answer came.
    pub code: u16,
    /// The machine-readable reason: `AlreadyExists`, `Forbidden` …; empty when no answer came. It is `Conflict` for 409 and `Invalid` for
    /// 422 if the answer has no reason that the API knows.
    pub reason: Str,
    /// The server's message, as conditions and events show it.
    pub message: String,
    /// When a create met `AlreadyExists`: the object that is there, read live.
    pub existing: Option<AnyObject>,
}

impl Failure {
    /// Whether a create found the name taken.
    pub fn is_already_exists(&self) -> bool {
        self.reason == "AlreadyExists"
    }

    /// Returns whether a precondition (UID, resource version) did not hold.
    pub fn is_conflict(&self) -> bool {
        self.reason == "Conflict"
    }

    /// Whether a live read failed, or found the object of this kind otherwise than the plan needs ([`Verify`]).
    pub fn is_check_of(&self, kind: &Kind) -> bool {
        self.verb.is_empty() && self.kind == kind
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cooldown_is_the_longer_of_both_and_has_an_end() {
        let ms = Duration::from_millis;
        let cooldown = Cooldown { at_least: ms(50), times_work: 10 };
        assert_eq!(
            [0, 4, 20, 200].map(|took| cooldown.after(ms(took))),
            [ms(50), ms(50), ms(200), Cooldown::LONGEST]
        );
        assert_eq!(cooldown.after(Duration::MAX), Cooldown::LONGEST);
        let long = Cooldown { at_least: ms(2000), times_work: 2 };
        assert_eq!(long.after(ms(900)), ms(2000));
        assert_eq!(cooldown.max(long), Cooldown { at_least: ms(2000), times_work: 10 });
        assert_eq!(Cooldown::NONE.after(ms(900)), Duration::ZERO);
    }
}
