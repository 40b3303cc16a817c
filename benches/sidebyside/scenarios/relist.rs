//! The API server restarts, and everything has to be read again.

use futures::future::{FutureExt as _, LocalBoxFuture};

use super::start::{fill, levels, settle};
use crate::bench::{Bench, Flags, Qps};
use crate::canary::Canary;
use crate::figures::Figures;
use crate::measure::{Gauge, Until};
use crate::program::Turn;
use crate::sampling::calm;
use crate::scenario::Scenario;

pub(super) struct Relist {
    pods: usize,
}

impl Relist {
    pub(super) fn of(bench: &Bench) -> Self {
        Self { pods: levels(bench).last().map_or(0, |level| level.pods) }
    }
}

impl Scenario for Relist {
    fn name(&self) -> String {
        "relist".to_owned()
    }

    fn about(&self) -> String {
        format!(
            "The API server is stopped and started in a cluster with {0} pods, {0} ConfigMaps and {0} Secrets. Wall time runs from \
             the stop until a new Deployment has its pod. The other figures run from the stop until the process is idle.",
            self.pods
        )
    }

    fn controllers(&self) -> &'static [&'static str] {
        &[]
    }

    fn prepare<'a>(&'a mut self, bench: &'a Bench) -> LocalBoxFuture<'a, ()> {
        async move {
            fill(bench, self.pods).await;
            settle(bench, "relist").await;
        }
        .boxed_local()
    }

    fn run<'a>(&'a self, bench: &'a Bench, turn: Turn) -> LocalBoxFuture<'a, Figures> {
        async move {
            let mut figures = Figures::default();
            let canary = Canary::new(bench).await;
            let manager = bench.manager(turn, "relist", &Flags::of(&[], Qps::Usual));
            calm(manager.pid).await;
            let gauge = Gauge::start(bench, turn.program, manager.pid);
            bench.plane.operate("restart", "kube-apiserver");
            canary.place().await;
            canary.reconciled().await;
            gauge.close("", Until::Calm, &mut figures).await;
            bench.stop_all();
            canary.remove().await;
            figures
        }
        .boxed_local()
    }
}
