//! Computations that may take long: parsing of large input that a user has chosen, and cryptography.
//!
//! A thread that computes polls no other task, so a computation on a controllers' thread delays every controller. A
//! [`BlockingPool`] runs computations on threads of their own, a few at a time. The task that waits for one yields its thread.

use std::fmt;
use std::future::pending;
use std::panic::resume_unwind;
use std::sync::Arc;

use tokio::sync::Semaphore;

use crate::environment::Threads;

/// Threads for computations, with a limit of jobs that run at the same time. Clones share the limit.
#[derive(Clone)]
pub struct BlockingPool {
    threads: Threads,
    places: Arc<Semaphore>,
}

impl BlockingPool {
    /// A pool that runs at most `places` jobs at the same time.
    pub fn new(threads: Threads, places: usize) -> Self {
        Self { threads, places: Arc::new(Semaphore::new(places)) }
    }

    /// A pool that runs each job on its caller's thread: for tests and benchmarks of controllers.
    pub fn inline() -> Self {
        Self::new(Threads::Callers, 1)
    }

    /// Runs `work` and returns its result. A panic of `work` goes on in the caller. A caller that is dropped while it waits for a
    /// place takes none. Work that has begun keeps its place until it ends, whether or not its caller still waits.
    pub async fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> T {
        // Nobody closes the semaphore.
        let place = Arc::clone(&self.places).acquire_owned().await;
        let job = move || {
            let _place = place;
            work()
        };
        match self.threads.blocking(job).await {
            Ok(result) => result,
            Err(error) if error.is_panic() => resume_unwind(error.into_panic()),
            // The runtime ends, and this task with it.
            Err(_) => pending().await,
        }
    }
}

impl fmt::Debug for BlockingPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlockingPool").field("free", &self.places.available_permits()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::panic::AssertUnwindSafe;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    use futures::FutureExt as _;
    use futures::future::join_all;
    use tokio::time::timeout;

    use super::*;

    const SOON: Duration = Duration::from_millis(50);

    #[tokio::test]
    async fn blocking_pool_runs_jobs_off_the_callers_thread() {
        let there = BlockingPool::new(Threads::Own, 1).run(|| thread::current().id()).await;
        assert_ne!(there, thread::current().id());
        let here = BlockingPool::inline().run(|| thread::current().id()).await;
        assert_eq!(here, thread::current().id());
    }

    #[tokio::test]
    async fn blocking_pool_limits_the_jobs_that_run_at_the_same_time() {
        let pool = BlockingPool::new(Threads::Own, 2);
        let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let jobs = (0..12).map(|_| {
            let (running, most) = (Arc::clone(&running), Arc::clone(&most));
            pool.run(move || {
                most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                thread::sleep(Duration::from_millis(5));
                running.fetch_sub(1, Ordering::SeqCst);
            })
        });
        join_all(jobs).await;
        assert_eq!(most.load(Ordering::SeqCst), 2);
    }

    /// A caller that gives up frees no place: the job still computes.
    #[tokio::test]
    async fn blocking_pool_place_is_held_until_the_job_ends() {
        let pool = BlockingPool::new(Threads::Own, 1);
        let (end, ended) = mpsc::sync_channel::<()>(0);
        let first = timeout(SOON, pool.run(move || ended.recv().is_ok())).await;
        assert!(first.is_err(), "its caller gave up");
        assert!(timeout(SOON, pool.run(|| ())).await.is_err(), "its place is taken");
        end.send(()).unwrap();
        timeout(Duration::from_secs(10), pool.run(|| ())).await.expect("the place is free");
    }

    #[tokio::test]
    async fn blocking_pool_passes_a_panic_on_and_frees_the_place() {
        let pool = BlockingPool::new(Threads::Own, 1);
        let panicked = AssertUnwindSafe(pool.run(|| panic!("on purpose"))).catch_unwind().await;
        assert_eq!(panicked.unwrap_err().downcast_ref::<&str>(), Some(&"on purpose"));
        assert_eq!(pool.run(|| 7).await, 7);
    }
}
