//! What a manager takes from the system besides files: the wall clock, time zones, threads, the name of its host, and connections
//! to the API server.
//!
//! It is made in `main` and handed down, so that a manager can also run on one thread, on a clock that is made up, and with
//! an API server that is a piece of the same program ([`Environment::simulated`]). The monotonic clock is tokio's, which
//! can be paused; randomness is each thread's own (`random`).

use std::fmt;
use std::io;
use std::sync::Arc;

use jiff::Timestamp;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::task::JoinError;
use tokio_util::sync::CancellationToken;

use crate::client::HttpService;
use crate::model::clock::{RuntimeClock, SharedClock, SystemClock};
use crate::zones::Zones;

/// The stack of a thread that runs a few small tasks. Only what is used of it takes memory.
const STACK: usize = 1 << 20;

/// Where the time of day, threads and answers to requests come from.
#[derive(Clone)]
pub struct Environment {
    /// The time of day.
    pub clock: SharedClock,
    /// Time zones.
    pub zones: Zones,
    /// Threads besides the caller's.
    pub threads: Threads,
    /// The name of the host, of which a manager makes its own. Ports and exporters ask the system (`hostname`).
    pub host: String,
    /// What carries requests to the API server; `None` for connections. Requests come with everything on them that would be
    /// sent, one at a time or side by side, and one that is dropped was cut off.
    pub api_server: Option<HttpService>,
}

/// Which threads may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Threads {
    /// Any number.
    Own,
    /// Those of the runtime that the caller runs in, and no others.
    Callers,
}

impl Environment {
    /// The system's.
    pub fn system() -> Self {
        let zones = Zones::system(&|name| std::env::var(name).ok());
        Self {
            clock: Arc::new(SystemClock),
            zones,
            threads: Threads::Own,
            host: hostname(),
            api_server: None,
        }
    }

    /// One thread, that of the caller's runtime; a clock that shows `start` now and goes with that runtime's; and an API
    /// server within this program. When the runtime's time is paused and its thread has a seed (`random::seed`), all that
    /// happens follows from the seed and from what the API server answers.
    pub fn simulated(start: Timestamp, api_server: HttpService) -> Self {
        let clock = Arc::new(RuntimeClock::new(start));
        let host = "simulated".to_owned();
        Self { clock, zones: Zones::bundled(), threads: Threads::Callers, host, api_server: Some(api_server) }
    }
}

/// The name of this host.
pub fn hostname() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name = name.trim();
    if name.is_empty() { "localhost".to_owned() } else { name.to_owned() }
}

impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Environment").field("threads", &self.threads).finish_non_exhaustive()
    }
}

impl Threads {
    /// A place for a few small tasks that nothing else may hold up: one thread, called `name`. To be called within a
    /// runtime.
    pub fn one(self, name: &str) -> io::Result<Aside> {
        let Self::Own = self else { return Ok(Aside::callers()) };
        let runtime = Builder::new_current_thread().thread_name(name).enable_all().build()?;
        let handle = runtime.handle().clone();
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let builder = std::thread::Builder::new().name(name.to_owned()).stack_size(STACK);
        #[expect(clippy::disallowed_methods, reason = "this is where threads are taken from")]
        let thread = builder.spawn(move || {
            runtime.block_on(stopped.cancelled());
            // What it has left to threads for blocking work is not waited for.
            runtime.shutdown_background();
        })?;
        Ok(Aside { handle, own: Some(Own::Thread { stop, thread }) })
    }

    /// Does what may block: on a thread that may, or here and now. It fails when it panics elsewhere, or the runtime ends.
    pub async fn blocking<T: Send + 'static>(
        self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, JoinError> {
        match self {
            #[expect(clippy::disallowed_methods, reason = "this is where threads are taken from")]
            Self::Own => tokio::task::spawn_blocking(work).await,
            Self::Callers => Ok(work()),
        }
    }

    /// A place for what may be much: `count` threads called `name`. To be called within a runtime.
    pub fn some(self, name: &str, count: usize) -> io::Result<Aside> {
        let Self::Own = self else { return Ok(Aside::callers()) };
        let runtime =
            Builder::new_multi_thread().worker_threads(count).thread_name(name).enable_all().build()?;
        Ok(Aside { handle: runtime.handle().clone(), own: Some(Own::Runtime(runtime)) })
    }
}

/// A runtime beside the caller's, unless there is only that one. It ends when this is dropped, and its tasks with it.
#[derive(Debug)]
pub struct Aside {
    handle: Handle,
    own: Option<Own>,
}

#[derive(Debug)]
enum Own {
    Thread { stop: CancellationToken, thread: std::thread::JoinHandle<()> },
    Runtime(Runtime),
}

impl Aside {
    fn callers() -> Self {
        Self { handle: Handle::current(), own: None }
    }

    /// Where to spawn what is to run there.
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Ends it, and returns when its thread has ended. Its tasks end wherever they are.
    pub async fn join(mut self) {
        let Some(Own::Thread { stop, thread }) = self.own.take() else { return };
        stop.cancel();
        // A thread that was asked to end does so at once; waiting for it blocks all the same.
        let joined = Threads::Own.blocking(move || thread.join().is_ok()).await;
        if joined.is_ok_and(|ended_well| !ended_well) {
            tracing::error!("A thread panicked");
        }
    }
}

impl Drop for Aside {
    /// Does not wait: whoever drops this may be asynchronous.
    fn drop(&mut self) {
        match self.own.take() {
            Some(Own::Runtime(runtime)) => runtime.shutdown_background(),
            Some(Own::Thread { stop, .. }) => stop.cancel(),
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    fn name() -> Option<String> {
        thread::current().name().map(str::to_owned)
    }

    #[tokio::test]
    async fn a_thread_of_ones_own_works_while_the_caller_is_busy_and_is_joined() {
        let aside = Threads::Own.one("aside").unwrap();
        let (done, finished) = mpsc::sync_channel(1);
        let (kept, dropped) = mpsc::sync_channel::<()>(1);
        aside.handle().spawn(async move {
            let _kept = kept;
            done.send(name()).unwrap();
            std::future::pending::<()>().await;
        });
        // Blocks the runtime of this test, as a plan that computes for long does.
        assert_eq!(finished.recv().unwrap().as_deref(), Some("aside"));
        aside.join().await;
        dropped.recv().unwrap_err();
    }

    #[tokio::test]
    async fn a_caller_without_threads_lends_its_own() {
        for aside in [Threads::Callers.one("aside").unwrap(), Threads::Callers.some("aside", 3).unwrap()] {
            let there = aside.handle().spawn(async { thread::current().id() }).await.unwrap();
            assert_eq!(there, thread::current().id());
            aside.join().await;
        }
        let blocking = async |threads: Threads| threads.blocking(|| thread::current().id()).await.unwrap();
        assert_eq!(blocking(Threads::Callers).await, thread::current().id());
        assert_ne!(blocking(Threads::Own).await, thread::current().id());
    }

    #[tokio::test]
    async fn a_panic_of_a_task_leaves_the_thread_to_the_others() {
        let aside = Threads::Own.one("aside").unwrap();
        let ended = aside.handle().spawn(async { panic!("on purpose") }).await.unwrap_err();
        assert!(ended.is_panic());
        assert_eq!(aside.handle().spawn(async { name() }).await.unwrap().as_deref(), Some("aside"));
        aside.join().await;
    }
}
