//! CPU time by function: a signal at every hundredth of a second of it, wherever it is spent.

use std::time::Duration;

use mappings::MAPPINGS;
use nix::sys::signal::{Signal, raise};
use pprof::{ProfilerGuard, UnresolvedReport};
use pprof_util::{StackProfile, WeightedStack};

use super::{ProfileError, Turn, blocking};

/// Samples for each second of CPU time, as in Go.
const FREQUENCY: i32 = 100;
const PERIOD: Duration = Duration::from_millis(10);

/// Samples until it is dropped.
struct Sampling {
    guard: ProfilerGuard<'static>,
    _turn: Turn,
}

pub(super) async fn profile(time: Duration, turn: Turn) -> Result<Vec<u8>, ProfileError> {
    let sampling = blocking(|| start(turn)).await?;
    tokio::time::sleep(time).await;
    blocking(|| finish(sampling)).await
}

fn start(turn: Turn) -> Result<Sampling, ProfileError> {
    prepare()?;
    Ok(Sampling { guard: ProfilerGuard::new(FREQUENCY).map_err(failed)?, _turn: turn })
}

/// The first signal of a process makes the tables that stacks are read by, which takes memory: that one must not come while
/// its thread is within the allocator. So this thread, which is not, sends it to itself, and others' are a second away.
fn prepare() -> Result<(), ProfileError> {
    let _guard = ProfilerGuard::new(1).map_err(failed)?;
    raise(Signal::SIGPROF).map_err(|error| ProfileError::Failed(error.to_string()))
}

fn finish(sampling: Sampling) -> Result<Vec<u8>, ProfileError> {
    let report = sampling.guard.report().build_unresolved().map_err(failed)?;
    // It takes a while to look names up, and nothing more is to be learned meanwhile.
    drop(sampling);
    Ok(encode(&report))
}

fn encode(report: &UnresolvedReport) -> Vec<u8> {
    let mut profile = StackProfile::default();
    for mapping in MAPPINGS.iter().flatten() {
        profile.push_mapping(mapping.clone());
    }
    for (sample, count) in &report.data {
        // Addresses of callers are of what comes after the call, which is reckoned with; the innermost is not a caller's.
        let innermost_first =
            sample.frames.iter().enumerate().map(|(at, frame)| frame.ip + usize::from(at == 0));
        let mut addrs: Vec<usize> = innermost_first.filter(|address| *address > 1).collect();
        addrs.reverse();
        let weight = *count as f64 * PERIOD.as_nanos() as f64;
        profile.push_stack(WeightedStack { addrs, weight }, None);
    }
    profile.to_pprof(("cpu", "nanoseconds"), ("cpu", "nanoseconds"), None)
}

fn failed(error: pprof::Error) -> ProfileError {
    match error {
        pprof::Error::Running => ProfileError::Busy,
        other => ProfileError::Failed(other.to_string()),
    }
}
