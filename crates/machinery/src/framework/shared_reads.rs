//! Live reads of one object, of its scale, of a list, or of the JSON at a path, that several reconciles ask for, made once for all
//! of them.
//!
//! Whoever asks gets an answer to a request that was sent after it asked: it joins a read that waits for its turn, never one that
//! is under way. So a shared answer is as fresh as one of its own. Nothing is kept for those who ask later: a read that ends, or that
//! all callers have dropped, leaves no entry.

use std::fmt;
use std::sync::{Arc, Weak};

use futures::FutureExt as _;
use futures::future::{BoxFuture, Shared, WeakShared};
use parking_lot::Mutex;

use super::reads::Read;
use super::slow_reads::ReadClock;
use crate::client::ApiError;
use crate::random::HashMap;

type ReadFuture<T> = BoxFuture<'static, Result<T, ApiError>>;
pub(super) type SharedRead<T> = Shared<ReadFuture<T>>;
type Lines<T> = Mutex<HashMap<Read, Line<T>>>;

/// The reads of one controller that find a `T`. Cheap to clone.
#[derive(Clone)]
pub(super) struct SharedReads<T: Clone>(Arc<Lines<T>>);

/// The same reads: one under way, and one behind it.
struct Line<T: Clone> {
    /// Held by the read under way.
    turn: Arc<tokio::sync::Mutex<()>>,
    /// The read that has not begun, which others may join. Weak, so that the read is dropped with its last caller.
    next: Option<WeakShared<ReadFuture<T>>>,
    /// The number of reads that are not dropped.
    reads: usize,
    /// The clock of the read under way.
    clock: ReadClock,
}

impl<T: Clone> Default for SharedReads<T> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<T: Clone> Default for Line<T> {
    fn default() -> Self {
        Self { turn: Arc::default(), next: None, reads: 0, clock: ReadClock::default() }
    }
}

impl<T: Clone + Send + Sync + 'static> SharedReads<T> {
    /// What `read` finds of what is asked, or what the same read finds for somebody who asked before it began. The clock is that of the
    /// read under way, which this one waits for.
    pub(super) fn join<F>(&self, what: &Read, read: impl FnOnce(ReadClock) -> F) -> (SharedRead<T>, ReadClock)
    where
        F: Future<Output = Result<T, ApiError>> + Send + 'static,
    {
        let mut lines = self.0.lock();
        let line = lines.entry(what.clone()).or_default();
        let clock = line.clock.clone();
        if let Some(joined) = line.next.as_ref().and_then(WeakShared::upgrade) {
            return (joined, clock);
        }
        line.reads += 1;
        let place = ReadPlace { lines: Arc::downgrade(&self.0), subject: what.clone() };
        let read = line_up(place, Arc::clone(&line.turn), read(clock.clone()));
        line.next = read.downgrade();
        (read, clock)
    }

    /// Whether a read of this waits for its turn, so that another caller would join it.
    pub(super) fn is_lined_up(&self, what: &Read) -> bool {
        let next = self.0.lock().get(what).and_then(|line| line.next.clone());
        // Upgraded without the lock: the last reference may be dropped here, and its `ReadPlace` takes the lock.
        next.is_some_and(|next| next.upgrade().is_some())
    }
}

/// A read that makes its request when it has its turn.
fn line_up<T: Clone + Send + Sync + 'static>(
    place: ReadPlace<T>,
    turn: Arc<tokio::sync::Mutex<()>>,
    read: impl Future<Output = Result<T, ApiError>> + Send + 'static,
) -> SharedRead<T> {
    let read = async move {
        // Dropped after the turn: the next read may begin before the entry is removed, and the entry stays for that read.
        let place = place;
        let _turn = turn.lock().await;
        place.begin();
        read.await
    };
    read.boxed().shared()
}

/// The place of one read in its line. The last read of a line removes the line when it is dropped, be it answered or given up.
struct ReadPlace<T: Clone> {
    lines: Weak<Lines<T>>,
    subject: Read,
}

impl<T: Clone> ReadPlace<T> {
    /// From here on callers do not join this read.
    fn begin(&self) {
        if let Some(lines) = self.lines.upgrade()
            && let Some(line) = lines.lock().get_mut(&self.subject)
        {
            line.next = None;
        }
    }
}

impl<T: Clone> Drop for ReadPlace<T> {
    fn drop(&mut self) {
        let Some(lines) = self.lines.upgrade() else { return };
        let mut lines = lines.lock();
        if let Some(line) = lines.get_mut(&self.subject) {
            line.reads -= 1;
            if line.reads == 0 {
                lines.remove(&self.subject);
            }
        }
    }
}

impl<T: Clone> fmt::Debug for SharedReads<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedReads").field("objects", &self.0.lock().len()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::sync::Semaphore;
    use tokio::task::JoinSet;

    use super::*;
    use crate::api::AnyObject;
    use crate::api::core::ConfigMap;
    use crate::api::kinds::CONFIG_MAPS;
    use crate::model::Key;

    /// A server whose answers wait for permits, and that counts the requests that have reached it.
    struct Server {
        asked: AtomicUsize,
        answers: Semaphore,
    }

    impl Server {
        fn new() -> Arc<Self> {
            Arc::new(Self { asked: AtomicUsize::new(0), answers: Semaphore::new(0) })
        }

        async fn get(self: Arc<Self>) -> Result<Option<AnyObject>, ApiError> {
            let mut object = ConfigMap::default();
            object.metadata.name = self.asked.fetch_add(1, Ordering::SeqCst).to_string().into();
            self.answers.acquire().await.expect("it is never closed").forget();
            Ok(Some(Arc::new(object)))
        }

        fn asked(&self) -> usize {
            self.asked.load(Ordering::SeqCst)
        }
    }

    /// The number of the request whose answer was found.
    async fn number(reads: SharedReads<Option<AnyObject>>, server: Arc<Server>, name: &'static str) -> usize {
        let what = Read::Object(&CONFIG_MAPS, Key::new("default", name));
        let found = reads.join(&what, |_| server.get()).0.await.unwrap().unwrap();
        let any: &dyn std::any::Any = &*found;
        any.downcast_ref::<ConfigMap>().unwrap().metadata.name.parse().unwrap()
    }

    async fn settle() {
        for _ in 0..8 {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn who_asks_gets_an_answer_to_a_later_request_and_shares_it() {
        let (reads, server) = (SharedReads::default(), Server::new());
        let mut asking = JoinSet::new();
        asking.spawn(number(reads.clone(), Arc::clone(&server), "a"));
        settle().await;
        assert_eq!(server.asked(), 1);
        for _ in 0..20 {
            asking.spawn(number(reads.clone(), Arc::clone(&server), "a"));
        }
        asking.spawn(number(reads.clone(), Arc::clone(&server), "b"));
        settle().await;
        assert_eq!(server.asked(), 2, "of another object at once; of the same one behind what is under way");
        server.answers.add_permits(3);
        let mut found = asking.join_all().await;
        found.sort_unstable();
        assert_eq!(found[..2], [0, 1]);
        assert_eq!(found[2..], [2; 20], "one request for all who asked after the first was sent");
        assert_eq!(server.asked(), 3);
        assert!(reads.0.lock().is_empty(), "nothing is kept");
    }

    #[tokio::test]
    async fn who_goes_away_takes_nobody_along() {
        let (reads, server) = (SharedReads::default(), Server::new());
        let mut asking = JoinSet::new();
        let mut ask = |reads: &SharedReads<Option<AnyObject>>| {
            asking.spawn(number(reads.clone(), Arc::clone(&server), "a"))
        };
        let first = ask(&reads);
        settle().await;
        let second = ask(&reads);
        settle().await;
        ask(&reads);
        settle().await;
        first.abort();
        second.abort();
        server.answers.add_permits(1);
        let mut found = Vec::new();
        while let Some(ended) = asking.join_next().await {
            found.extend(ended.ok());
        }
        assert_eq!(found, [1], "by a request of its own, for the first was given up");
        assert!(reads.0.lock().is_empty());
    }

    #[tokio::test]
    async fn reads_that_all_callers_drop_leave_no_entry() {
        let (reads, server) = (SharedReads::default(), Server::new());
        let mut asking = JoinSet::new();
        for name in ["under way", "another"] {
            asking.spawn(number(reads.clone(), Arc::clone(&server), name));
        }
        settle().await;
        asking.spawn(number(reads.clone(), Arc::clone(&server), "under way"));
        settle().await;
        assert_eq!((server.asked(), reads.0.lock().len()), (2, 2));
        asking.shutdown().await;
        assert!(reads.0.lock().is_empty(), "{reads:?}");
        // A read that nobody has polled.
        let what = Read::Object(&CONFIG_MAPS, Key::new("default", "a"));
        drop(reads.join(&what, |_| Arc::clone(&server).get()));
        assert!(reads.0.lock().is_empty(), "{reads:?}");
        server.answers.add_permits(1);
        assert_eq!(number(reads.clone(), server, "under way").await, 2);
    }
}
