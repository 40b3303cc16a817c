//! A leader with nothing to do.

use std::time::Duration;

use futures::future::{FutureExt as _, LocalBoxFuture};
use tokio::time::{Instant, sleep};

use crate::bench::{Bench, Flags, Qps};
use crate::figures::{Figure, Figures, Target, What, whole};
use crate::measure::{Gauge, Until};
use crate::program::Turn;
use crate::sampling::calm;
use crate::scenario::{Scenario, never_more};

/// As the launcher sees it, which asks over and over.
const SERVED: &str = "from start to a served /healthz, s";
/// RSS in an empty cluster, in MiB.
const EMPTY: f64 = 25.0;

pub(super) struct Idle {
    lasts: Duration,
}

impl Idle {
    pub(super) fn of(bench: &Bench) -> Self {
        Self { lasts: Duration::from_mins(1).mul_f64(bench.settings.scale.max(0.1)) }
    }
}

impl Scenario for Idle {
    fn name(&self) -> String {
        "idle".to_owned()
    }

    fn about(&self) -> String {
        format!(
            "The manager starts in an empty cluster, leads, and renews its Lease for {} s. CPU and requests do not include the start.",
            self.lasts.as_secs()
        )
    }

    fn controllers(&self) -> &'static [&'static str] {
        &[]
    }

    fn targets(&self) -> Vec<(Figure, Target)> {
        vec![never_more(What::Writes), (whole(What::Settled), Target::Value(EMPTY))]
    }

    fn run<'a>(&'a self, bench: &'a Bench, turn: Turn) -> LocalBoxFuture<'a, Figures> {
        async move {
            let mut figures = Figures::default();
            let lease = Some(format!("idle-{}-{}", turn.round, turn.program).to_lowercase());
            let began = Instant::now();
            let manager = bench.manager(turn, "idle", &Flags { lease, ..Flags::of(&[], Qps::Usual) });
            let served = began.elapsed().as_secs_f64();
            bench.say(&format!("  {SERVED}: {served:.2}"));
            figures.add(whole(What::Derived(SERVED.to_owned(), 2)), served);
            calm(manager.pid).await;
            let gauge = Gauge::start(bench, turn.program, manager.pid);
            sleep(self.lasts).await;
            gauge.close("", Until::Now, &mut figures).await;
            figures
        }
        .boxed_local()
    }
}
