//! Passes that are computed in slices.

use std::sync::atomic::AtomicUsize;

use futures::future::join;
use tokio::task::yield_now;

use super::*;
use crate::framework::{Observation, Room, RoomAdapter};

/// Slices of each pass.
const SLICES: usize = 4;

/// Computes in slices, and notes the turns of another task in each of them.
#[derive(Default)]
struct Sliced {
    turns: Arc<AtomicUsize>,
    seen: Arc<Mutex<Vec<usize>>>,
}

struct Work {
    turns: Arc<AtomicUsize>,
    seen: Arc<Mutex<Vec<usize>>>,
    done: usize,
}

impl Room for Sliced {
    type View = Work;

    fn observe(&self, _: &Key, _: &[Failure], _: &Reads) -> Result<Observation<Work>, ObserveError> {
        let (turns, seen) = (Arc::clone(&self.turns), Arc::clone(&self.seen));
        Ok(Observation::View(Work { turns, seen, done: 0 }))
    }

    fn prepare(work: &mut Work, _: Timestamp) -> bool {
        work.seen.lock().push(work.turns.load(Ordering::Relaxed));
        work.done += 1;
        work.done == SLICES
    }

    fn plan(work: &Work, _: Timestamp) -> Plan {
        assert_eq!(work.done, SLICES, "all slices are computed before the plan");
        Plan::default()
    }

    fn reasons(work: &Work, _: Timestamp) -> Vec<String> {
        vec![format!("{} slices", work.done)]
    }
}

fn sliced() -> (Bench, Sliced) {
    let (mut bench, room) = (Bench::new(), Sliced::default());
    let (turns, seen) = (Arc::clone(&room.turns), Arc::clone(&room.seen));
    bench.worker.reconcile = Arc::new(RoomAdapter::new(Sliced { turns, seen }));
    (bench, room)
}

/// Takes a turn in each poll.
async fn take_turns(turns: &AtomicUsize) {
    for _ in 0..100 {
        turns.fetch_add(1, Ordering::Relaxed);
        yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn pass_in_slices_lets_other_tasks_run_between_them() {
    let (bench, room) = sliced();
    let (outcome, ()) = join(bench.reconcile(), take_turns(&room.turns)).await;
    assert!(matches!(outcome, Outcome::Done { writes: 0, .. }), "{outcome:?}");
    let seen = std::mem::take(&mut *room.seen.lock());
    assert_eq!(seen.len(), SLICES);
    assert!(seen.is_sorted_by(|before, after| before < after), "{seen:?}");
}

#[tokio::test(start_paused = true)]
async fn explanation_in_slices_lets_other_tasks_run_between_them() {
    let (bench, room) = sliced();
    let key = key();
    let (explained, ()) = join(bench.worker.explain(&key), take_turns(&room.turns)).await;
    assert_eq!(explained.reasons, [format!("{SLICES} slices")]);
    let seen = std::mem::take(&mut *room.seen.lock());
    assert!(seen.is_sorted_by(|before, after| before < after), "{seen:?}");
}
