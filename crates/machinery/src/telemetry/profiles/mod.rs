//! Profiles of this process in the format of `pprof`: where CPU time goes, and what holds memory.
//!
//! Nothing is sampled, and nothing is held in memory for it, until someone asks. There is one profile at a time; whoever
//! stops waiting for theirs ends it. Names of functions are looked up here, so that readers need no copy of the binary.

mod cpu;
mod heap;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Takes profiles, one at a time. Clones share that one.
#[derive(Clone, Debug)]
pub struct Profiler(Arc<Semaphore>);

/// Why there is no profile.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProfileError {
    /// One at a time.
    #[error("another profile is being recorded; retry when that recording has ended")]
    Busy,
    /// There are no samples to show.
    #[error(
        "allocations are not sampled: use ?seconds=N to sample for N seconds, or start the manager with \
         _RJEM_MALLOC_CONF=prof_active:true to sample always"
    )]
    NotSampled,
    /// Samples of a part of the time would be taken from those of the whole.
    #[error("?seconds is not supported because _RJEM_MALLOC_CONF enables permanent sampling: omit ?seconds")]
    AlwaysSampled,
    /// The allocator was told to do without.
    #[error("sampling is disabled: _RJEM_MALLOC_CONF has prof:false")]
    Impossible,
    /// Something went wrong.
    #[error("record profile: {0}")]
    Failed(String),
}

impl Default for Profiler {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(1)))
    }
}

impl Profiler {
    /// Where CPU time goes for so long, by function; gzipped protobuf.
    pub async fn cpu(&self, time: Duration) -> Result<Vec<u8>, ProfileError> {
        cpu::profile(time, self.turn()?).await
    }

    /// What was allocated and is still there, by function; gzipped protobuf. With a time: of what is allocated within it.
    pub async fn heap(&self, time: Option<Duration>) -> Result<Vec<u8>, ProfileError> {
        heap::profile(time, self.turn()?).await
    }

    fn turn(&self) -> Result<Turn, ProfileError> {
        Arc::clone(&self.0).try_acquire_owned().map(Turn).map_err(|_taken| ProfileError::Busy)
    }
}

/// Held as long as anything is sampled for a profile, by what samples.
#[derive(Debug)]
struct Turn(#[expect(dead_code, reason = "it ends when it is dropped")] OwnedSemaphorePermit);

/// Does what takes a while on a thread that may.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ProfileError> + Send + 'static,
) -> Result<T, ProfileError> {
    #[expect(
        clippy::disallowed_methods,
        reason = "only callers of the port ask, whom a simulation does not have"
    )]
    let done = tokio::task::spawn_blocking(work).await;
    match done {
        Ok(result) => result,
        Err(error) => Err(ProfileError::Failed(error.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn there_is_one_profile_at_a_time() {
        let profiler = Profiler::default();
        let turn = profiler.clone().turn().unwrap();
        assert_eq!(profiler.cpu(Duration::from_secs(1)).await, Err(ProfileError::Busy));
        assert_eq!(profiler.heap(None).await, Err(ProfileError::Busy));
        drop(turn);
        assert!(profiler.turn().is_ok());
    }

    #[tokio::test]
    async fn what_was_not_sampled_is_not_made_up() {
        assert_eq!(Profiler::default().heap(None).await, Err(ProfileError::NotSampled));
    }
}
