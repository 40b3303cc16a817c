//! Rollouts while a crowd of strangers is at the secure port.

use std::convert::Infallible;
use std::time::Duration;

use futures::future::{FutureExt as _, LocalBoxFuture};
use tokio::time::{Instant, interval};

use super::rollouts::Rollouts;
use crate::bench::{Bench, Qps};
use crate::figures::{Figure, Figures, Target, What, whole};
use crate::harness::{Caller, Crowd, Manager};
use crate::measure::Until;
use crate::program::Turn;
use crate::sampling::calm;
use crate::scenario::{Scenario, add_latencies, never_more};

/// Four times a second somebody asks for it, by a connection of its own.
const EVERY: Duration = Duration::from_millis(250);

pub(super) struct Crowded {
    rollouts: Rollouts,
}

impl Crowded {
    pub(super) fn of(bench: &Bench) -> Self {
        Self { rollouts: Rollouts::fewer(bench, Qps::Unlimited) }
    }
}

/// How often `/healthz` was not answered, or not well.
fn unanswered() -> Figure {
    whole(What::Derived("/healthz not answered".to_owned(), 0))
}

/// How many came in a minute.
fn strangers() -> Figure {
    whole(What::Derived("strangers in a minute".to_owned(), 0))
}

impl Scenario for Crowded {
    fn name(&self) -> String {
        "crowd".to_owned()
    }

    fn about(&self) -> String {
        format!(
            "{} Meanwhile, 10,000 unauthenticated callers per minute connect to the secure port: idle connections, pages, streams, \
             and requests with invalid tokens for random paths. The figures include the cost of these callers. A latency is the \
             response time of /healthz, which new connections request four times a second.",
            self.rollouts.about()
        )
    }

    fn controllers(&self) -> &'static [&'static str] {
        self.rollouts.controllers()
    }

    fn targets(&self) -> Vec<(Figure, Target)> {
        vec![never_more(What::Wall), never_more(What::Cpu), (unanswered(), Target::Value(0.0))]
    }

    fn run<'a>(&'a self, bench: &'a Bench, turn: Turn) -> LocalBoxFuture<'a, Figures> {
        async move {
            let manager = bench.manager(turn, "crowd", &self.rollouts.flags());
            calm(manager.pid).await;
            let (began, crowd) = (Instant::now(), Crowd::gather(&bench.plane, &manager));
            let mut probes = Probes::default();
            // A manager that is busy with strangers does not come to rest.
            let mut figures = tokio::select! {
                figures = self.rollouts.play(bench, turn, &manager, Until::Now) => figures,
                never = probes.go_on(&manager) => match never {},
            };
            let rate = crowd.sent() as f64 / began.elapsed().as_secs_f64() * 60.0;
            let served = crowd.served();
            drop(crowd);
            let Probes { latencies, failed } = probes;
            bench.say(&format!(
                "  {rate:.0} strangers a minute, {served} had an answer; {failed} of {} probes had none",
                latencies.len() as f64 + failed
            ));
            figures.add(strangers(), rate);
            figures.add(unanswered(), failed);
            add_latencies(bench, latencies, &mut figures);
            figures
        }
        .boxed_local()
    }
}

/// What came of asking for `/healthz`.
#[derive(Default)]
struct Probes {
    /// In milliseconds.
    latencies: Vec<f64>,
    failed: f64,
}

impl Probes {
    /// Asks over and over, until it is dropped.
    async fn go_on(&mut self, manager: &Manager<'_>) -> Infallible {
        let mut pace = interval(EVERY);
        loop {
            pace.tick().await;
            let began = Instant::now();
            let page = manager.try_page(Caller::Anonymous, "/healthz").await;
            if page.is_some_and(|page| page.status == 200) {
                self.latencies.push(began.elapsed().as_secs_f64() * 1000.0);
            } else {
                self.failed += 1.0;
            }
        }
    }
}
