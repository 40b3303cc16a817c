//! The scenarios: what each needs, what it does, and when it is done.

mod attaching;
mod autoscaling;
mod binding;
mod budgets;
mod churn;
mod crowd;
mod daemonsets;
mod failover;
mod fleet;
mod garbage;
mod idle;
mod jobs;
mod namespaces;
mod nodes;
mod policies;
mod relist;
mod rollouts;
mod schedules;
mod sets;
mod signing;
mod start;
mod statefulsets;

use std::fmt;

use futures::future::{FutureExt as _, LocalBoxFuture, ready};
use kube::api::{Api, DeleteParams, ListParams};

use crate::bench::{Bench, Program, Qps, Turn};
use crate::content::{LIMIT, count, many};
use crate::figures::{Figure, Figures, What};
use crate::harness::until;
use crate::settings::text;

pub(crate) use start::pods_of;

/// Percentiles of latencies that are told.
const PERCENTILES: [u8; 2] = [50, 99];

/// Something that both managers are put through, in turns.
pub(crate) trait Scenario {
    /// What it is called, in tables and for `SCENARIOS`.
    fn name(&self) -> String;

    /// What happens, in a sentence or two.
    fn about(&self) -> String;

    /// The controllers that run; none for all that are built. One that is not built yet has the scenario skipped.
    fn controllers(&self) -> &'static [&'static str];

    /// The lead to reach.
    fn targets(&self) -> Vec<(Figure, Target)> {
        vec![never_more(What::Writes), never_more(What::Wall)]
    }

    /// Comes once, before all rounds.
    fn prepare<'a>(&'a mut self, _bench: &'a Bench) -> LocalBoxFuture<'a, ()> {
        ready(()).boxed_local()
    }

    /// One manager in one round: sets up, starts it, acts, waits until it is done, and says what that took. Managers that
    /// still run are stopped afterwards, and namespaces wiped at the end of the scenario.
    fn run<'a>(&'a self, bench: &'a Bench, turn: Turn) -> LocalBoxFuture<'a, Figures>;

    /// Comes once, after all rounds.
    fn clear<'a>(&'a mut self, _bench: &'a Bench) -> LocalBoxFuture<'a, ()> {
        ready(()).boxed_local()
    }
}

/// A lead to reach.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Target {
    /// Coxswain's value by the Go manager's, at most.
    Ratio(f64),
    /// Coxswain's value, at most.
    Value(f64),
}

impl fmt::Display for Target {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ratio(most) if *most < 1.0 => write!(formatter, "ratio ≤ 1/{:.0}", 1.0 / most),
            Self::Ratio(most) => write!(formatter, "ratio ≤ {most}"),
            Self::Value(most) => write!(formatter, "≤ {most}"),
        }
    }
}

/// A figure of the whole scenario.
pub(crate) fn whole(what: What) -> Figure {
    Figure { phase: "", what }
}

/// Never more than the Go manager's.
pub(crate) fn never_more(what: What) -> (Figure, Target) {
    (whole(what), Target::Ratio(1.0))
}

/// At most half of it where QPS are not limited, and never more where they are.
pub(crate) fn wall_at(qps: Qps) -> (Figure, Target) {
    match qps {
        Qps::Usual => never_more(What::Wall),
        Qps::Unlimited => (whole(What::Wall), Target::Ratio(0.5)),
    }
}

/// A quarter of the CPU, and never more writes.
pub(crate) fn lean() -> Vec<(Figure, Target)> {
    vec![(whole(What::Cpu), Target::Ratio(0.25)), never_more(What::Writes)]
}

/// By how much a manager's memory has grown.
fn grown() -> Figure {
    whole(What::Derived("RSS grown by, MiB".to_owned(), 1))
}

/// Adds latencies, in milliseconds, by their percentiles.
fn add_latencies(bench: &Bench, mut latencies: Vec<f64>, figures: &mut Figures) {
    latencies.sort_unstable_by(f64::total_cmp);
    for each in PERCENTILES {
        let at = (latencies.len() * usize::from(each) / 100).min(latencies.len() - 1);
        bench.say(&format!("  p{each}: {:.1} ms", latencies[at]));
        figures.add(whole(What::Latency(each)), latencies[at]);
    }
}

/// Never longer latencies.
fn never_later() -> impl Iterator<Item = (Figure, Target)> {
    PERCENTILES.map(|each| never_more(What::Latency(each))).into_iter()
}

/// Which managers are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Programs {
    Both,
    Go,
    Coxswain,
}

impl Programs {
    /// As `ONLY` says.
    pub(crate) fn from_environment() -> Self {
        match text("ONLY").as_deref() {
            None => Self::Both,
            Some("go") => Self::Go,
            Some("coxswain") => Self::Coxswain,
            Some(other) => panic!("ONLY={other}: go or coxswain is wanted"),
        }
    }

    /// Whether this one is.
    pub(crate) fn has(self, program: Program) -> bool {
        match self {
            Self::Both => true,
            Self::Go => program == Program::Go,
            Self::Coxswain => program == Program::Coxswain,
        }
    }
}

/// All scenarios, in their order: those that want an empty cluster, and then those that fill it ever more.
pub(crate) fn all(bench: &Bench) -> Vec<Box<dyn Scenario>> {
    let mut all: Vec<Box<dyn Scenario>> = vec![Box::new(idle::Idle::of(bench))];
    let mut levels = start::levels(bench).into_iter();
    all.extend(levels.next().map(|level| Box::new(level) as _));
    all.push(Box::new(rollouts::Rollouts::of(bench, Qps::Usual)));
    all.push(Box::new(rollouts::Rollouts::of(bench, Qps::Unlimited)));
    all.push(Box::new(crowd::Crowded::of(bench)));
    all.push(Box::new(jobs::Jobs::of(bench)));
    all.push(Box::new(jobs::Storm::of(bench)));
    all.push(Box::new(schedules::CronJobs::of(bench)));
    all.push(Box::new(schedules::Cleanup::of(bench)));
    all.push(Box::new(statefulsets::StatefulSets::of(bench)));
    all.push(Box::new(daemonsets::DaemonSets::of(bench)));
    all.extend(churn::all(bench).into_iter().map(|churn| Box::new(churn) as _));
    all.push(Box::new(namespaces::Namespaces::of(bench)));
    all.push(Box::new(garbage::Garbage::of(bench)));
    all.push(Box::new(nodes::NotReady::of(bench)));
    all.push(Box::new(fleet::Fleet::of(bench)));
    all.push(Box::new(fleet::Zone::of(bench)));
    all.push(Box::new(policies::Policies::of(bench)));
    all.push(Box::new(budgets::Budgets::of(bench)));
    all.push(Box::new(autoscaling::Autoscaling::of(bench)));
    all.push(Box::new(signing::Signing::of(bench)));
    all.push(Box::new(binding::Binding::of(bench)));
    all.push(Box::new(attaching::Attach::of(bench)));
    all.push(Box::new(failover::Failover { kill: false }));
    all.push(Box::new(failover::Failover { kill: true }));
    all.extend(levels.map(|level| Box::new(level) as _));
    all.push(Box::new(relist::Relist::of(bench)));
    all
}

/// The names of all.
pub(crate) fn names(bench: &Bench) -> Vec<String> {
    all(bench).iter().map(|scenario| scenario.name()).collect()
}

/// Deletes all objects of a kind in the foreground, one by one, as users do.
async fn delete_all<K>(api: &Api<K>)
where
    K: kube::Resource + Clone + serde::de::DeserializeOwned + std::fmt::Debug,
{
    let list = api.list_metadata(&ListParams::default()).await.expect("a list").items;
    many(list.len(), async |at| {
        let name = list[at].metadata.name.as_deref().expect("a name");
        api.delete(name, &DeleteParams::foreground()).await.expect("it is deleted");
    })
    .await;
}

/// Waits until there is no object of this name.
async fn until_none<K>(api: &Api<K>, name: &str)
where
    K: Clone + serde::de::DeserializeOwned + std::fmt::Debug,
{
    let there = async || api.get_opt(name).await.expect("an answer").is_some();
    until(&format!("{name} to go"), LIMIT, there, |there| !there).await;
}

/// Waits until there is no object of a kind.
async fn until_gone<K>(api: &Api<K>)
where
    K: Clone + serde::de::DeserializeOwned + std::fmt::Debug,
{
    until("the last object to go", LIMIT, || count(api), |count| *count == 0).await;
}
