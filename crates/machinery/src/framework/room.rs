//! The shape of a controller: observe, then plan.
//!
//! A [`Room`] is these two and nothing else. What it counts for its metrics is a [`Meter`], what it remembers between
//! reconciles is a [`Memory`]; [`RoomAdapter`] makes of the three what a loop runs. How the loop works (workers, backoff,
//! resync) is no part of a room: see [`LoopSettings`](super::LoopSettings).

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;

use super::reads::{Observation, Pass, Reads};
use super::worker::Outcome;
pub use crate::client::QpsFactor;
use crate::executor::{ActionState, Effect};
use crate::model::Key;
use crate::model::plan::{Failure, Plan};

/// A reconcile that has ended, as a room's own metrics and memory see it.
#[derive(Clone, Copy, Debug)]
pub struct ReconcileEnd<'a> {
    /// How it ended.
    pub outcome: &'a Outcome,
    /// The steps that it took.
    pub actions: &'a [ActionState],
    /// How long it took.
    pub took: Duration,
}

/// A controller's reads and decisions for one kind of key. `N` is what its plans tell beside their steps
/// ([`Plan::note`]); most tell nothing.
pub trait Room<N = ()>: Send + Sync + 'static {
    /// Whether it plans otherwise once a reconcile has failed. If not, it is not asked then, and the key is only retried.
    const HEEDS_FAILURES: bool = false;

    /// Everything that a decision rests on.
    type View: Send;

    /// Reads the stores, the room's memory and what was `read` live so far, and says what else must be read live (see
    /// [`Reads`]). It changes nothing. `failures` is what earlier plans of the same reconcile met, so that the view can carry
    /// it: those that went on and asked to look again ([`Write::keep_going`](crate::model::Write::keep_going)), and, of a
    /// room that heeds failures, the one that failed. Each plan begins anew: what an earlier one changed must be read again.
    fn observe(
        &self,
        key: &Key,
        failures: &[Failure],
        read: &Reads,
    ) -> Result<Observation<Self::View>, ObserveError>;

    /// Computes the next part of what [`Room::plan`] needs, keeps it in the view, and returns whether nothing is left to compute.
    /// The framework calls it until then, and other tasks run between two calls, so a room whose users choose the amount of work
    /// does about a millisecond of it in each call. Pure like the plan, which computes itself what is not prepared.
    fn prepare(view: &mut Self::View, now: Timestamp) -> bool {
        let _ = (view, now);
        true
    }

    /// Decides. Pure: no I/O, clock, async or randomness; the same view and time give the same plan.
    fn plan(view: &Self::View, now: Timestamp) -> Plan<N>;

    /// Why the plan is what it is: sentences for a user who knows the object and not this program, the most important one
    /// first. They say what holds ("3 of 5 pods are ready"), what follows from it, and what is waited for; the plan's steps
    /// are shown beside them. Pure like the plan, and asked for by explanations only.
    fn reasons(view: &Self::View, now: Timestamp) -> Vec<String> {
        let _ = (view, now);
        Vec::new()
    }
}

/// What a controller counts for metrics of its own. It decides nothing and must not block.
pub trait Meter<N>: Send + Sync + 'static {
    /// A plan for `key` was made and is about to be carried out.
    fn planned(&self, key: &Key, note: &N) {
        let _ = (key, note);
    }

    /// A reconcile of `key` has ended.
    fn ended(&self, key: &Key, ended: ReconcileEnd<'_>) {
        let _ = (key, ended);
    }
}

/// What a controller remembers between reconciles, because no object tells it: since when a heartbeat has not changed, how
/// often something failed, what was given out a moment ago, what was told already.
///
/// Watch handlers and the ends of reconciles update it; [`Room::observe`] reads it and changes nothing; what a plan adds
/// comes in by [`Memory::record_effects`], [`Memory::commit_item`] and [`Memory::commit`] and no other way. It ends with the controller's instance: a room must do without it after a
/// restart. Rooms of several loops may share one. It must not block.
pub trait Memory<N>: Send + Sync + 'static {
    /// All writes of a plan for `key` have succeeded, if it had any: what it adds is remembered from here on. The framework
    /// does not call this when a write failed or the plan was only explained.
    fn commit(&self, key: &Key, note: N);

    /// A write of a plan for `key` has succeeded that names this item of the note ([`Write::item`]), whatever became of the
    /// plan's other writes; where these succeeded too, [`Memory::commit`] follows. For what rests on one write alone.
    ///
    /// [`Write::item`]: crate::model::plan::Write::item
    fn commit_item(&self, key: &Key, note: &N, item: usize) {
        let _ = (key, note, item);
    }

    /// A plan for `key` was carried out, and its writes had these effects; those without an answer are among them. The calls of
    /// [`Memory::commit_item`] and [`Memory::commit`] follow.
    fn record_effects(&self, key: &Key, effects: &[Effect]) {
        let _ = (key, effects);
    }

    /// A plan for `key` was made and is about to be carried out. Called only if the adapter is [`RoomAdapter::reserving`]: no
    /// other key is observed between the observation that the plan rests on and this call. A reservation ends with
    /// [`Memory::commit`] or [`Memory::ended`], or is replaced by that of the key's next plan.
    fn reserve(&self, key: &Key, note: &N) {
        let _ = (key, note);
    }

    /// A reconcile of `key` has ended.
    fn ended(&self, key: &Key, ended: ReconcileEnd<'_>) {
        let _ = (key, ended);
    }
}

/// The stores hold something that cannot be reconciled.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ObserveError {
    /// The object itself is unusable (an invalid selector, say); only a change of it can help.
    #[error("{0}")]
    Terminal(String),
    /// It may work in a moment.
    #[error("{0}")]
    Retry(String),
    /// A live read was canceled, because the controller is being stopped or its term has ended. This is no error.
    #[error("{0}")]
    Canceled(String),
}

/// A pass that has ended, with the reasons if it explains.
pub type EndedPass = (Pass, Vec<String>);

/// Computes the next slice of a pass, and returns the pass if it ends with this slice.
pub type NextSlice = Box<dyn FnMut() -> Option<EndedPass> + Send>;

/// The first slice of a pass: the pass if it has ended, or the slices that follow.
pub type FirstSlice = ControlFlow<EndedPass, NextSlice>;

/// A room with its types erased: what a worker loop runs.
pub trait Reconcile: Send + Sync {
    /// Takes one pass: observes with what was `read` so far, and plans when that is enough. It has no side effect but a
    /// reservation ([`Memory::reserve`]).
    fn plan(
        &self,
        key: &Key,
        failures: &[Failure],
        read: &Reads,
        now: Timestamp,
    ) -> Result<Pass, ObserveError>;

    /// As [`Reconcile::plan`], in slices: see [`Room::prepare`].
    fn plan_in_slices(
        &self,
        key: &Key,
        failures: &[Failure],
        read: &Reads,
        now: Timestamp,
    ) -> Result<FirstSlice, ObserveError> {
        Ok(ControlFlow::Break((self.plan(key, failures, read, now)?, Vec::new())))
    }

    /// Plans a reconcile that meets no failures, in slices, and adds the [`Room::reasons`] of the same view.
    fn explain_in_slices(&self, key: &Key, read: &Reads, now: Timestamp) -> Result<FirstSlice, ObserveError> {
        self.plan_in_slices(key, &[], read, now)
    }

    /// Whether it is told of failures, see [`Room::HEEDS_FAILURES`].
    fn heeds_failures(&self) -> bool {
        false
    }

    /// A reconcile has ended, see [`Meter::ended`] and [`Memory::ended`].
    fn ended(&self, key: &Key, ended: ReconcileEnd<'_>) {
        let _ = (key, ended);
    }
}

/// The note of a plan with its type erased, on its way to who counts and remembers it. One that is dropped has no effect.
#[derive(Default)]
#[must_use = "the note of a plan has no effect unless its `count` and `commit` are called"]
pub struct PlanNote(Option<Box<dyn ErasedNote>>);

impl PlanNote {
    /// The plan is about to be carried out.
    pub fn count(&self, key: &Key) {
        if let Some(note) = &self.0 {
            note.count(key);
        }
    }

    /// The writes of the plan had these effects.
    pub fn record_effects(&self, key: &Key, effects: &[Effect]) {
        if let Some(note) = &self.0 {
            note.record_effects(key, effects);
        }
    }

    /// These writes of the plan have succeeded, by the items that they name.
    pub fn commit_items(&self, key: &Key, items: &[usize]) {
        if let Some(note) = &self.0 {
            for &item in items {
                note.commit_item(key, item);
            }
        }
    }

    /// All writes of the plan have succeeded.
    pub fn commit(self, key: &Key) {
        if let Some(note) = self.0 {
            note.commit(key);
        }
    }
}

impl std::fmt::Debug for PlanNote {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.is_some() { "PlanNote(..)" } else { "PlanNote" })
    }
}

trait ErasedNote: Send {
    fn count(&self, key: &Key);
    fn record_effects(&self, key: &Key, effects: &[Effect]);
    fn commit_item(&self, key: &Key, item: usize);
    fn commit(self: Box<Self>, key: &Key);
}

struct TypedNote<N: 'static> {
    note: N,
    meter: Option<Arc<dyn Meter<N>>>,
    memory: Option<Arc<dyn Memory<N>>>,
}

impl<N: Send + 'static> ErasedNote for TypedNote<N> {
    fn count(&self, key: &Key) {
        if let Some(meter) = &self.meter {
            meter.planned(key, &self.note);
        }
    }

    fn record_effects(&self, key: &Key, effects: &[Effect]) {
        if let Some(memory) = &self.memory {
            memory.record_effects(key, effects);
        }
    }

    fn commit_item(&self, key: &Key, item: usize) {
        if let Some(memory) = &self.memory {
            memory.commit_item(key, &self.note, item);
        }
    }

    fn commit(self: Box<Self>, key: &Key) {
        if let Some(memory) = self.memory {
            memory.commit(key, self.note);
        }
    }
}

/// Makes a [`Reconcile`] of a [`Room`].
pub struct RoomAdapter<R, N = ()> {
    room: R,
    meter: Option<Arc<dyn Meter<N>>>,
    memory: Option<Arc<dyn Memory<N>>>,
    /// Held while a key is observed, planned and reserved for.
    turn: Option<Mutex<()>>,
}

impl<N: Send + 'static, R: Room<N>> RoomAdapter<R, N> {
    /// A room that counts and remembers nothing.
    pub fn new(room: R) -> Self {
        Self { room, meter: None, memory: None, turn: None }
    }

    /// The same with metrics of its own.
    #[must_use]
    pub fn counted_by(self, meter: impl Meter<N>) -> Self {
        Self { meter: Some(Arc::new(meter)), ..self }
    }

    /// The same with a memory, which its `observe` reads.
    #[must_use]
    pub fn remembered_by(self, memory: Arc<dyn Memory<N>>) -> Self {
        Self { memory: Some(memory), ..self }
    }

    /// The same where keys are decided about one at a time, and a decision is in the memory ([`Memory::reserve`]) before the next
    /// key is observed. Their reads and writes go on beside each other.
    #[must_use]
    pub fn reserving(self) -> Self {
        Self { turn: Some(Mutex::default()), ..self }
    }
}

impl<N: Send + 'static, R: Room<N>> RoomAdapter<R, N> {
    /// The plan, with whom its note is for.
    fn pass(&self, plan: Plan, note: N) -> Pass {
        heard(plan, note, self.meter.clone(), self.memory.clone())
    }

    /// Observes, and computes the first slice.
    fn slices(
        &self,
        key: &Key,
        failures: &[Failure],
        read: &Reads,
        now: Timestamp,
        explains: bool,
    ) -> Result<FirstSlice, ObserveError> {
        let mut view = match self.room.observe(key, failures, read)? {
            Observation::Nothing => return Ok(ControlFlow::Break((Pass::Nothing, Vec::new()))),
            Observation::Needs(reads) => return Ok(ControlFlow::Break((Pass::Needs(reads), Vec::new()))),
            Observation::View(view) => view,
        };
        let (meter, memory) = (self.meter.clone(), self.memory.clone());
        let mut next = move || {
            R::prepare(&mut view, now).then(|| {
                let (plan, note) = R::plan(&view, now).into_parts();
                let reasons = if explains { R::reasons(&view, now) } else { Vec::new() };
                (heard(plan, note, meter.clone(), memory.clone()), reasons)
            })
        };
        if let Some(ended) = next() {
            return Ok(ControlFlow::Break(ended));
        }
        let next: NextSlice = Box::new(next);
        Ok(ControlFlow::Continue(next))
    }
}

/// A plan, whose note is for this meter and this memory.
fn heard<N: Send + 'static>(
    plan: Plan,
    note: N,
    meter: Option<Arc<dyn Meter<N>>>,
    memory: Option<Arc<dyn Memory<N>>>,
) -> Pass {
    let is_heard = meter.is_some() || memory.is_some();
    let note = is_heard.then(|| Box::new(TypedNote { note, meter, memory }) as Box<dyn ErasedNote>);
    Pass::Plan(plan, PlanNote(note))
}

impl<N: Send + 'static, R: Room<N>> Reconcile for RoomAdapter<R, N> {
    fn plan(
        &self,
        key: &Key,
        failures: &[Failure],
        read: &Reads,
        now: Timestamp,
    ) -> Result<Pass, ObserveError> {
        let turn = self.turn.as_ref().map(Mutex::lock);
        Ok(match self.room.observe(key, failures, read)? {
            Observation::Nothing => Pass::Nothing,
            Observation::Needs(reads) => Pass::Needs(reads),
            Observation::View(view) => {
                let (plan, note) = R::plan(&view, now).into_parts();
                if let Some(memory) = self.memory.as_ref().filter(|_| turn.is_some()) {
                    memory.reserve(key, &note);
                }
                self.pass(plan, note)
            }
        })
    }

    fn plan_in_slices(
        &self,
        key: &Key,
        failures: &[Failure],
        read: &Reads,
        now: Timestamp,
    ) -> Result<FirstSlice, ObserveError> {
        // A decision that is reserved for is made before the next key is observed, so it is made in one slice.
        if self.turn.is_some() {
            return Ok(ControlFlow::Break((self.plan(key, failures, read, now)?, Vec::new())));
        }
        self.slices(key, failures, read, now, false)
    }

    fn explain_in_slices(&self, key: &Key, read: &Reads, now: Timestamp) -> Result<FirstSlice, ObserveError> {
        self.slices(key, &[], read, now, true)
    }

    fn heeds_failures(&self) -> bool {
        R::HEEDS_FAILURES
    }

    fn ended(&self, key: &Key, ended: ReconcileEnd<'_>) {
        if let Some(meter) = &self.meter {
            meter.ended(key, ended);
        }
        if let Some(memory) = &self.memory {
            memory.ended(key, ended);
        }
    }
}
