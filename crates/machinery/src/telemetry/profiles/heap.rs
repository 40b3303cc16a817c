//! Memory by the function that asked for it, as the allocator samples it.

use std::sync::Arc;
use std::time::Duration;

use jemalloc_pprof::{JemallocProfCtl, PROF_CTL};
use tokio::sync::OwnedMutexGuard;

use super::{ProfileError, Turn, blocking};

/// The allocator samples until this is dropped, and then forgets its samples.
struct Sampling {
    control: OwnedMutexGuard<JemallocProfCtl>,
    _turn: Turn,
}

impl Drop for Sampling {
    fn drop(&mut self) {
        if let Err(error) = self.control.deactivate() {
            tracing::error!(%error, "Failed to stop the allocator's sampling");
        }
    }
}

pub(super) async fn profile(time: Option<Duration>, turn: Turn) -> Result<Vec<u8>, ProfileError> {
    let control = PROF_CTL.as_ref().ok_or(ProfileError::Impossible)?;
    let mut control = Arc::clone(control).lock_owned().await;
    match (control.activated(), time) {
        (true, Some(_)) => Err(ProfileError::AlwaysSampled),
        (false, None) => Err(ProfileError::NotSampled),
        (true, None) => {
            blocking(move || {
                let _turn = turn;
                dump(&mut control)
            })
            .await
        }
        (false, Some(time)) => {
            control.activate().map_err(|error| ProfileError::Failed(error.to_string()))?;
            let mut sampling = Sampling { control, _turn: turn };
            tokio::time::sleep(time).await;
            blocking(move || dump(&mut sampling.control)).await
        }
    }
}

fn dump(control: &mut JemallocProfCtl) -> Result<Vec<u8>, ProfileError> {
    // It goes through a file in the directory for temporary ones.
    control.dump_pprof().map_err(|error| ProfileError::Failed(format!("{error:#}")))
}
