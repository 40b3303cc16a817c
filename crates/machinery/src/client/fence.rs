//! The fence: what a write must pass at the last moment, the system call that would send it.
//!
//! The gate looks at a write when it enters the client. Afterwards it may wait for a connection, in the buffers of
//! HTTP/2 and TLS, for a worker thread, and in the kernel's send buffer, which a network that swallows packets keeps full
//! for minutes. So writes have connections of their own, and each of these belongs to one fence: their bytes are sent
//! only while the fence lets writes pass, and when it is cut the connections are reset. A reset drops what the kernel
//! holds, and is made from the thread that cuts, whatever the threads do that the connections are served by.
//!
//! A fence that was cut stays cut; the next writes have another. It knows nothing of Leases and requests.

use std::collections::BTreeMap;
use std::fmt;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use tokio_util::sync::CancellationToken;

/// Says of this moment whether writes may pass. It must not block.
pub type WriteGuard = Arc<dyn Fn() -> bool + Send + Sync>;

/// Guards that all have to agree. Cheap to clone; clones share them.
#[derive(Clone, Default)]
pub(super) struct Guards(Arc<RwLock<Vec<WriteGuard>>>);

impl Guards {
    pub(super) fn add(&self, guard: WriteGuard) {
        self.0.write().push(guard);
    }

    pub(super) fn agree(&self) -> bool {
        self.0.read().iter().all(|guard| guard())
    }
}

/// A write whose connection was cut: it may have been carried out or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("connection closed: leadership was lost or handed over; the write may or may not be applied")]
pub(super) struct CutOff;

/// What some writes and their connections have in common.
#[derive(Default)]
pub(super) struct Fence {
    guards: Guards,
    cut: CancellationToken,
    sockets: Mutex<Sockets>,
}

/// Second handles of the sockets behind a fence: their owner, who serves them, may be busy.
#[derive(Default)]
struct Sockets {
    next: u64,
    open: BTreeMap<u64, OwnedFd>,
}

impl fmt::Debug for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sockets = self.sockets.lock().open.len();
        f.debug_struct("Fence")
            .field("cut", &self.is_cut())
            .field("sockets", &sockets)
            .finish_non_exhaustive()
    }
}

impl Fence {
    /// Lets writes pass while these guards agree.
    pub(super) fn new(guards: Guards) -> Self {
        Self { guards, ..Self::default() }
    }

    pub(super) fn guards(&self) -> &Guards {
        &self.guards
    }

    /// Whether something may be sent at this moment.
    pub(super) fn lets_pass(&self) -> bool {
        !self.is_cut() && self.guards.agree()
    }

    pub(super) fn is_cut(&self) -> bool {
        self.cut.is_cancelled()
    }

    /// Returns when the fence is cut.
    pub(super) async fn until_cut(&self) {
        self.cut.cancelled().await;
    }

    /// Lets nothing pass from now on and resets all connections behind it. What of their bytes has not left the machine
    /// when this returns never does.
    pub(super) fn cut(&self) {
        self.cut.cancel();
        let sockets = std::mem::take(&mut self.sockets.lock().open);
        for socket in sockets.values() {
            // "Connect to nothing" aborts a TCP connection: nothing of its send buffer is sent, the peer is told.
            if let Err(error) = rustix::net::connect_unspec(socket) {
                tracing::warn!(%error, "Failed to reset a connection for writes");
            }
        }
    }

    /// Takes up a connection, which is reset when the fence is cut, until the answer is dropped. Refused when it was
    /// cut before.
    pub(super) fn take_up(self: &Arc<Self>, socket: impl AsFd) -> std::io::Result<Behind> {
        let handle = socket.as_fd().try_clone_to_owned()?;
        let mut sockets = self.sockets.lock();
        // Under the lock: whoever cuts takes all that are there, and sets the flag before.
        if self.is_cut() {
            return Err(std::io::Error::other(CutOff));
        }
        let number = sockets.next;
        sockets.next += 1;
        sockets.open.insert(number, handle);
        Ok(Behind { fence: Arc::clone(self), number })
    }
}

/// One connection behind a fence. To be dropped with the connection, which stays open until then.
#[derive(Debug)]
pub(super) struct Behind {
    fence: Arc<Fence>,
    number: u64,
}

impl Behind {
    /// Fails when nothing may be sent at this moment.
    pub(super) fn check(&self) -> std::io::Result<()> {
        if self.fence.lets_pass() { Ok(()) } else { Err(std::io::Error::other(CutOff)) }
    }
}

impl Drop for Behind {
    fn drop(&mut self) {
        self.fence.sockets.lock().open.remove(&self.number);
    }
}
