//! Work in slices: no more than one at a time, and what comes between two of them is told in the right order.

use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};

use super::super::slices::{Replacement, SLICE};
use super::super::{Awaited, HandlerId, StoreSnapshot};
use super::*;

/// Objects that fill several slices.
const MANY: usize = 5 * SLICE + 7;

fn many(version: u32) -> Vec<AnyObject> {
    (0..MANY).map(|at| object(&format!("pod-{at}"), version)).collect()
}

/// A store of as many objects.
fn full() -> Store {
    let store = Store::new(PODS);
    store.replace(many(1), "1");
    store
}

/// A handler that counts.
fn counter() -> (EventHandler, Arc<AtomicUsize>) {
    let told: Arc<AtomicUsize> = Arc::default();
    let count = Arc::clone(&told);
    let handler: EventHandler = Arc::new(move |_| {
        count.fetch_add(1, Ordering::Relaxed);
    });
    (handler, told)
}

/// Polls until the work is done: what was told in each poll. After each `look` is called.
fn polls(work: impl Future<Output = ()>, told: &AtomicUsize, mut look: impl FnMut()) -> Vec<usize> {
    let (mut work, mut context) = (pin!(work), Context::from_waker(Waker::noop()));
    let mut polls = Vec::new();
    loop {
        let before = told.load(Ordering::Relaxed);
        let polled = work.as_mut().poll(&mut context);
        polls.push(told.load(Ordering::Relaxed) - before);
        if polled == Poll::Ready(()) {
            return polls;
        }
        look();
    }
}

fn is_within_a_slice(polls: &[usize], total: usize) -> bool {
    polls.iter().all(|told| *told <= SLICE) && polls.iter().sum::<usize>() == total
}

#[test]
fn a_list_is_told_of_in_slices_and_shown_at_once() {
    let (store, (handler, told)) = (Store::new(PODS), counter());
    store.add_handler("counter", handler);
    let first = polls(store.replace_with(many(1).into_iter().collect(), "1"), &told, || {});
    assert!(is_within_a_slice(&first, MANY), "{first:?}");
    let woken: Arc<AtomicUsize> = Arc::default();
    let wake = Arc::clone(&woken);
    store.when_shown(Awaited::Version(2), Box::new(move || _ = wake.fetch_add(1, Ordering::Relaxed)));
    let look = || {
        assert!(store.handlers.try_lock().is_some(), "nobody waits for the handlers' lock");
        assert_eq!((store.resource_version().as_str(), woken.load(Ordering::Relaxed)), ("1", 0));
        let new = store.select("ns", |held| held.meta().resource_version == "2").len();
        assert!([0, MANY].contains(&new), "{new} objects are new, and others old");
    };
    let relist = polls(store.replace_with(many(2).into_iter().collect(), "2"), &told, look);
    assert!(is_within_a_slice(&relist, MANY), "{relist:?}");
    assert_eq!((store.resource_version().as_str(), woken.load(Ordering::Relaxed)), ("2", 1));
    let same = polls(store.replace_with(many(2).into_iter().collect(), "3"), &told, || {});
    assert!(is_within_a_slice(&same, 0) && same.len() > 5, "comparing yields as well: {same:?}");
    let empty = polls(store.replace_with(StoreSnapshot::default(), "4"), &told, || {});
    assert!(is_within_a_slice(&empty, MANY), "{empty:?}");
}

#[test]
fn a_resync_tells_in_slices_of_objects_as_they_are_then() {
    let store = full();
    let (handler, view) = rebuilder();
    store.add_handler("rebuilder", handler);
    let (handler, told) = counter();
    store.add_handler("counter", handler);
    told.store(0, Ordering::Relaxed);
    let mut at = 0;
    let changes = || {
        at += 1;
        store.upsert(&object(&format!("pod-{at}"), at + 10));
        store.remove(&object(&format!("pod-{}", at + 100), at + 10));
    };
    let resync = polls(store.resync(), &told, changes);
    assert!(resync.iter().all(|told| *told <= SLICE) && resync.len() > 5, "{resync:?}");
    assert_eq!(view.lock().len(), store.len());
    assert_eq!(store.handler_panics(), Vec::new(), "nothing older was told after something newer");
}

#[test]
fn a_new_handler_hears_in_slices_of_what_is_there() {
    let store = full();
    let (handler, told) = counter();
    let id = store.begin_handler("counter", handler);
    let mut slices = Vec::new();
    loop {
        let before = told.load(Ordering::Relaxed);
        let has_more = store.replay_slice(id);
        slices.push(told.load(Ordering::Relaxed) - before);
        if !has_more {
            break;
        }
    }
    assert!(is_within_a_slice(&slices, MANY), "{slices:?}");
}

#[test]
fn a_list_that_was_given_up_is_told_of_before_anything_else() {
    let store = full();
    let (handler, view) = rebuilder();
    store.add_handler("rebuilder", handler);
    let mut replacement = Replacement::new(&store, many(2).into_iter().collect(), "2");
    while view.lock().values().all(|(version, ..)| version == "1") {
        assert!(replacement.step());
    }
    drop(replacement);
    assert!(view.lock().values().any(|(version, ..)| version == "1"), "some have yet to be told of");
    store.upsert(&object("pod-1", 3));
    store.remove(&object("pod-2", 4));
    assert_eq!((view.lock().len(), store.resource_version().as_str()), (MANY - 1, "4"));
    assert_eq!(store.handler_panics(), Vec::new());
    assert!(view.lock().values().all(|(version, ..)| version != "1"));
}

/// What happens, also between two slices of a list.
#[derive(Clone, Debug)]
enum Event {
    Upsert(Spec),
    Remove(Spec),
    /// A list, and what happens to handlers between its slices.
    Replace(Vec<Spec>, Vec<Change>),
    Handlers(Change),
}

/// What happens to handlers.
#[derive(Clone, Debug)]
enum Change {
    Add,
    Remove(usize),
    /// One hears of the next objects that were there.
    Replay(usize),
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        2 => Just(Change::Add),
        1 => any::<usize>().prop_map(Change::Remove),
        4 => any::<usize>().prop_map(Change::Replay),
    ]
}

fn event() -> impl Strategy<Value = Event> {
    let list = (prop::collection::vec(spec(), 0..18), prop::collection::vec(change(), 0..8));
    prop_oneof![
        4 => spec().prop_map(Event::Upsert),
        2 => spec().prop_map(Event::Remove),
        2 => list.prop_map(|(specs, changes)| Event::Replace(specs, changes)),
        4 => change().prop_map(Event::Handlers),
    ]
}

/// A store with slices of two objects, and handlers that rebuild it.
struct Bench {
    store: Arc<Store>,
    listeners: Vec<(HandlerId, Arc<Mutex<Model>>)>,
}

impl Bench {
    fn change(&mut self, change: &Change) {
        let pick = |at: usize, count: usize| (count > 0).then(|| at % count);
        match *change {
            Change::Add => {
                let (handler, view) = rebuilder();
                self.listeners.push((self.store.begin_handler("rebuilder", handler), view));
            }
            Change::Remove(at) => {
                if let Some(at) = pick(at, self.listeners.len()) {
                    let (id, view) = self.listeners.remove(at);
                    self.store.remove_handler(id);
                    assert_eq!(Arc::strong_count(&view), 1, "nobody calls it again");
                }
            }
            Change::Replay(at) => {
                if let Some(at) = pick(at, self.listeners.len()) {
                    self.store.replay_slice(self.listeners[at].0);
                }
            }
        }
    }

    /// A list in which some objects are those that the store holds.
    fn listed(&self, specs: &[Spec], version: usize) -> StoreSnapshot {
        let object = |spec: &Spec| {
            let held = self.store.find(&format!("ns-{}", spec.namespace), &format!("pod-{}", spec.name));
            held.filter(|_| spec.owner.is_none()).unwrap_or_else(|| pod(spec, version))
        };
        specs.iter().map(object).collect()
    }
}

proptest! {
    /// The handlers check the order of what they are told.
    #[test]
    fn handlers_hear_of_each_object_once_and_then_of_its_changes(life in prop::collection::vec(event(), 0..40)) {
        let store = Arc::new(Store { slice: 2, ..Store::new(PODS) });
        let mut bench = Bench { store: Arc::clone(&store), listeners: Vec::new() };
        for (at, event) in life.iter().enumerate() {
            let version = at + 1;
            match event {
                Event::Upsert(spec) => store.upsert(&pod(spec, version)),
                Event::Remove(spec) => store.remove(&pod(spec, version)),
                Event::Handlers(change) => bench.change(change),
                Event::Replace(specs, changes) => {
                    let objects = bench.listed(specs, version);
                    let mut replacement = Replacement::new(&store, objects, &version.to_string());
                    let mut changes = changes.iter();
                    while replacement.step() {
                        changes.next().into_iter().for_each(|change| bench.change(change));
                    }
                    prop_assert_eq!(store.resource_version(), version.to_string());
                }
            }
            prop_assert_eq!(store.handler_panics(), Vec::new());
        }
        let held: Model = store.list().iter().map(|object| (place(object), facts(object))).collect();
        for (id, view) in &bench.listeners {
            while store.replay_slice(*id) {}
            prop_assert_eq!(&*view.lock(), &held);
        }
        prop_assert_eq!(store.handler_panics(), Vec::new());
    }
}
