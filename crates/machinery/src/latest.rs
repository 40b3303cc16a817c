//! The latest value of something, for any number of tasks that wait for it to change: `tokio::sync::watch`, which wakes
//! them in an order of its own dice, without the dice.
//!
//! Who waits longest is woken first, so that with the same seed the same happens. Only the latest value is kept: who looks
//! late sees it alone.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{MappedRwLockReadGuard, RwLock, RwLockReadGuard};
use tokio::sync::Notify;

/// Nobody is left to set a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the sender was dropped")]
pub struct SenderGone;

#[derive(Debug)]
struct Shared<T> {
    held: RwLock<Held<T>>,
    changed: Notify,
    gone: AtomicBool,
}

#[derive(Debug)]
struct Held<T> {
    value: T,
    /// Counts its changes.
    version: u64,
}

/// Sets the value.
#[derive(Debug)]
pub struct Sender<T>(Arc<Shared<T>>);

/// Looks at the value, and waits for it to change.
#[derive(Debug)]
pub struct Receiver<T> {
    shared: Arc<Shared<T>>,
    /// The version that this receiver has seen.
    seen: u64,
}

impl<T> Shared<T> {
    fn borrow(&self) -> MappedRwLockReadGuard<'_, T> {
        RwLockReadGuard::map(self.held.read(), |held| &held.value)
    }
}

impl<T> Sender<T> {
    /// Begins with a value.
    pub fn new(value: T) -> Self {
        let held = RwLock::new(Held { value, version: 0 });
        Self(Arc::new(Shared { held, changed: Notify::new(), gone: AtomicBool::new(false) }))
    }

    /// A receiver that has seen the present value.
    pub fn subscribe(&self) -> Receiver<T> {
        Receiver { seen: self.0.held.read().version, shared: Arc::clone(&self.0) }
    }

    /// The present value. Nobody can set another while this is held.
    pub fn borrow(&self) -> MappedRwLockReadGuard<'_, T> {
        self.0.borrow()
    }

    /// Changes the value if `change` says so, and wakes those who wait.
    pub fn send_if_modified(&self, change: impl FnOnce(&mut T) -> bool) -> bool {
        {
            let mut held = self.0.held.write();
            if !change(&mut held.value) {
                return false;
            }
            held.version += 1;
        }
        self.0.changed.notify_waiters();
        true
    }

    /// Changes the value, and wakes those who wait.
    pub fn send_modify(&self, change: impl FnOnce(&mut T)) {
        self.send_if_modified(|value| {
            change(value);
            true
        });
    }

    /// Sets the value, and wakes those who wait; the one before.
    pub fn send_replace(&self, mut value: T) -> T {
        self.send_modify(|held| std::mem::swap(held, &mut value));
        value
    }
}

impl<T: Default> Default for Sender<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        self.0.gone.store(true, Ordering::SeqCst);
        self.0.changed.notify_waiters();
    }
}

impl<T> Clone for Receiver<T> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), seen: self.seen }
    }
}

impl<T> Receiver<T> {
    /// The present value. Nobody can set another while this is held.
    pub fn borrow(&self) -> MappedRwLockReadGuard<'_, T> {
        self.shared.borrow()
    }

    /// The present value, which counts as seen.
    pub fn borrow_and_update(&mut self) -> MappedRwLockReadGuard<'_, T> {
        let held = self.shared.held.read();
        self.seen = held.version;
        RwLockReadGuard::map(held, |held| &held.value)
    }

    /// Whether there is a value that this receiver has not seen.
    pub fn has_changed(&self) -> bool {
        self.shared.held.read().version != self.seen
    }

    /// The present value counts as seen.
    pub fn mark_unchanged(&mut self) {
        self.seen = self.shared.held.read().version;
    }

    /// Returns when there is a value that this receiver has not seen; it counts as seen then.
    pub async fn changed(&mut self) -> Result<(), SenderGone> {
        loop {
            // Before the look: a change after it is not missed.
            let changed = self.shared.changed.notified();
            // Before the look, too: what was sent last is there by then.
            let gone = self.shared.gone.load(Ordering::SeqCst);
            let version = self.shared.held.read().version;
            if version != self.seen {
                self.seen = version;
                return Ok(());
            }
            if gone {
                return Err(SenderGone);
            }
            changed.await;
        }
    }

    /// Returns when the value is as wanted, which it may be already; it counts as seen then.
    pub async fn wait_for(&mut self, mut is_wanted: impl FnMut(&T) -> bool) -> Result<T, SenderGone>
    where
        T: Clone,
    {
        loop {
            {
                let value = self.borrow_and_update();
                if is_wanted(&value) {
                    return Ok(value.clone());
                }
            }
            self.changed().await?;
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use parking_lot::Mutex;
    use tokio::task::JoinSet;

    use super::*;

    #[test]
    fn what_was_seen_is_not_told_again() {
        let sender = Sender::new(1);
        let mut receiver = sender.subscribe();
        assert_eq!(receiver.changed().now_or_never(), None);
        assert_eq!(sender.send_replace(2), 1);
        sender.send_modify(|value| *value += 1);
        assert!(!sender.send_if_modified(|_| false));
        assert_eq!(receiver.changed().now_or_never(), Some(Ok(())));
        assert_eq!(*receiver.borrow(), 3);
        assert_eq!(receiver.changed().now_or_never(), None);
        sender.send_replace(4);
        assert_eq!(*receiver.borrow_and_update(), 4);
        assert_eq!(receiver.changed().now_or_never(), None);
        sender.send_replace(5);
        receiver.mark_unchanged();
        assert_eq!(receiver.changed().now_or_never(), None);
        assert_eq!(
            sender.subscribe().changed().now_or_never(),
            None,
            "a new receiver has seen what is there"
        );
    }

    #[test]
    fn the_last_value_outlives_its_sender() {
        let sender = Sender::new(1);
        let mut receiver = sender.subscribe();
        sender.send_replace(2);
        drop(sender);
        assert_eq!(receiver.changed().now_or_never(), Some(Ok(())));
        assert_eq!(receiver.wait_for(|value| *value == 2).now_or_never(), Some(Ok(2)));
        assert_eq!(receiver.changed().now_or_never(), Some(Err(SenderGone)));
        assert_eq!(receiver.wait_for(|value| *value == 3).now_or_never(), Some(Err(SenderGone)));
    }

    #[tokio::test]
    async fn who_waits_longest_is_woken_first() {
        let (sender, woken) = (Sender::new(0), Arc::new(Mutex::new(Vec::new())));
        let mut tasks = JoinSet::new();
        for number in 0..20 {
            let (mut receiver, woken) = (sender.subscribe(), Arc::clone(&woken));
            tasks.spawn(async move {
                receiver.wait_for(|value| *value == 2).await.unwrap();
                woken.lock().push(number);
            });
            tokio::task::yield_now().await;
        }
        sender.send_replace(1);
        tokio::task::yield_now().await;
        sender.send_replace(2);
        tasks.join_all().await;
        assert_eq!(*woken.lock(), (0..20).collect::<Vec<_>>());
    }

    #[tokio::test]
    async fn whoever_waits_learns_that_the_sender_is_gone() {
        let sender = Sender::new(());
        let mut receiver = sender.subscribe();
        let (ended, ()) = tokio::join!(receiver.changed(), async { drop(sender) });
        assert_eq!(ended, Err(SenderGone));
    }
}
