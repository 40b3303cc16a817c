//! What a manager uses from one moment to another.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::bench::{Bench, Mark};
use crate::figures::{Figure, Figures, What};
use crate::harness::AuditEvent;
use crate::program::Program;
use crate::sampling::{calm, cpu_seconds, mib, peak, reset_peak, resident, steady};

/// How long after the work a manager is still measured.
#[derive(Clone, Copy)]
pub(crate) enum Until {
    /// Until it rests.
    Calm,
    /// Until it rests and its memory has settled, for so long at the least.
    Steady(Duration),
    /// Not at all.
    Now,
}

/// A measurement of one manager that has begun.
pub(crate) struct Gauge<'a> {
    bench: &'a Bench,
    program: Program,
    pid: u32,
    mark: Mark,
    cpu: f64,
}

impl<'a> Gauge<'a> {
    /// From now on.
    pub(crate) fn start(bench: &'a Bench, program: Program, pid: u32) -> Self {
        reset_peak(pid);
        Self { bench, program, pid, mark: bench.mark(), cpu: cpu_seconds(pid) }
    }

    /// From the start of its process, which came after `mark`.
    pub(crate) fn from_birth(bench: &'a Bench, program: Program, pid: u32, mark: Mark) -> Self {
        Self { bench, program, pid, mark, cpu: 0.0 }
    }

    /// The work is done: takes the time, goes on `until` then, and adds what was used to `figures`.
    pub(crate) async fn close(self, phase: &'static str, until: Until, figures: &mut Figures) {
        let wall = self.mark.began.elapsed().as_secs_f64();
        match until {
            Until::Calm => calm(self.pid).await,
            Until::Steady(least) => {
                calm(self.pid).await;
                steady(self.pid, least).await;
            }
            Until::Now => {}
        }
        let cpu = cpu_seconds(self.pid) - self.cpu;
        let (peak, settled) = (mib(peak(self.pid)), mib(resident(self.pid).rss));
        let received = (self.bench.forwarder.received() - self.mark.received) as f64 / f64::from(1 << 20);
        let requests = self.requests();
        let count = |counted: &dyn Fn(&AuditEvent) -> bool| {
            requests.iter().filter(|event| counted(event)).count() as f64
        };
        let writes = count(&|event| event.is_write() && event.resource() != "leases");
        let reads = count(&|event| !event.is_write());
        let what = if phase.is_empty() { String::new() } else { format!("{phase}: ") };
        self.bench.say(&format!(
            "  {what}{wall:.2} s, {cpu:.2} CPU s, RSS {settled:.1} MiB (peak {peak:.1}), {writes} writes, \
             {reads} reads, {received:.2} MiB received"
        ));
        for (what, value) in [
            (What::Wall, wall),
            (What::Cpu, cpu),
            (What::Peak, peak),
            (What::Settled, settled),
            (What::Writes, writes),
            (What::Reads, reads),
            (What::Received, received),
        ] {
            figures.add(Figure { phase, what }, value);
        }
        let mut by_kind: BTreeMap<What, f64> = BTreeMap::new();
        for event in requests {
            let resource = event.resource();
            *by_kind.entry(What::Verb(event.verb.clone())).or_default() += 1.0;
            *by_kind.entry(What::Request(event.verb, resource)).or_default() += 1.0;
        }
        for (what, count) in by_kind {
            figures.add(Figure { phase, what }, count);
        }
    }

    /// What it asked for, by its user agent in the audit log.
    fn requests(&self) -> Vec<AuditEvent> {
        let all = self.bench.plane.audit_from(self.mark.audit).into_iter();
        all.filter(|event| event.is_from(self.program)).collect()
    }
}
