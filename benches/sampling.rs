//! What the kernel says a manager has used, and when it has come to rest: one way to sample for all benchmarks.

use std::fs;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::harness::Status;

/// How often a process is looked at while it settles.
const SAMPLE: Duration = Duration::from_millis(250);
/// A process rests when it took at most a twelfth of a core in each of so many samples.
const CALM: usize = 8;
/// RSS has settled when it has stayed within a hundredth for so many samples.
const STEADY: usize = 16;
/// It does not settle for ever.
const LIMIT: Duration = Duration::from_mins(5);

/// What a process has resident, in KiB, as the kernel accounts for it.
#[derive(Clone, Copy, Default)]
pub(crate) struct Resident {
    /// Everything.
    pub(crate) rss: u64,
    /// Its own: heap, stacks, and what relocation has written.
    pub(crate) anon: u64,
    /// Pages of its binary, which replicas on one machine share and the kernel may drop.
    pub(crate) file: u64,
}

/// Name and CPU seconds by the text of a `stat` file, of a process or of a thread.
pub(crate) fn cpu(stat: &str) -> (&str, f64) {
    let (name, rest) = stat.split_once('(').and_then(|(_, rest)| rest.rsplit_once(')')).expect("a name");
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let ticks = |at: usize| fields[at].parse::<f64>().expect("ticks");
    // Linux counts in hundredths of a second wherever this runs.
    (name, (ticks(11) + ticks(12)) / 100.0)
}

/// CPU seconds of a process since it began, its own and the kernel's for it.
pub(crate) fn cpu_seconds(pid: u32) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("the process lives");
    cpu(&stat).1
}

/// What a process has resident.
pub(crate) fn resident(pid: u32) -> Resident {
    let status = Status::of(pid);
    let field = |name| status.field(name);
    Resident { rss: field("VmRSS:"), anon: field("RssAnon:"), file: field("RssFile:") }
}

/// Has the kernel keep the highest RSS anew from now on.
pub(crate) fn reset_peak(pid: u32) {
    fs::write(format!("/proc/{pid}/clear_refs"), "5").expect("the process is ours");
}

/// The highest RSS since the process began or [`reset_peak`], in KiB.
pub(crate) fn peak(pid: u32) -> u64 {
    Status::of(pid).field("VmHWM:")
}

/// KiB as MiB.
pub(crate) fn mib(kib: u64) -> f64 {
    kib as f64 / 1024.0
}

/// Waits until a process rests.
pub(crate) async fn calm(pid: u32) {
    let deadline = Instant::now() + LIMIT;
    let (mut calm, mut last) = (0, cpu_seconds(pid));
    while calm < CALM {
        assert!(Instant::now() < deadline, "process {pid} does not come to rest within {LIMIT:?}");
        sleep(SAMPLE).await;
        let now = cpu_seconds(pid);
        calm = if now - last <= SAMPLE.as_secs_f64() / 12.0 { calm + 1 } else { 0 };
        last = now;
    }
}

/// Waits until a process' resident memory has settled, for `least` at the least: allocators give back what starting took,
/// and Go does so only over minutes; what counts is what it holds when it has started.
pub(crate) async fn steady(pid: u32, least: Duration) {
    let began = Instant::now();
    let mut samples: Vec<u64> = Vec::new();
    while began.elapsed() < LIMIT {
        sleep(SAMPLE).await;
        samples.push(resident(pid).rss);
        let last = &samples[samples.len().saturating_sub(STEADY)..];
        let (lowest, highest) = (last.iter().min().copied(), last.iter().max().copied());
        let steady = lowest.zip(highest).is_some_and(|(lowest, highest)| highest - lowest <= highest / 100);
        if began.elapsed() >= least && last.len() == STEADY && steady {
            break;
        }
    }
}
