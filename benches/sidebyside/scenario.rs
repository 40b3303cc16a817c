//! What every scenario is and says, and what scenarios do alike.

use futures::future::{FutureExt as _, LocalBoxFuture, ready};
use kube::api::{Api, DeleteParams, ListParams};

use crate::bench::{Bench, Qps};
use crate::content::{LIMIT, count, many};
use crate::figures::{Figure, Figures, Target, What, whole};
use crate::harness::until;
use crate::program::Turn;

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
pub(crate) fn grown() -> Figure {
    whole(What::Derived("RSS grown by, MiB".to_owned(), 1))
}

/// Adds latencies, in milliseconds, by their percentiles.
pub(crate) fn add_latencies(bench: &Bench, mut latencies: Vec<f64>, figures: &mut Figures) {
    latencies.sort_unstable_by(f64::total_cmp);
    for each in PERCENTILES {
        let at = (latencies.len() * usize::from(each) / 100).min(latencies.len() - 1);
        bench.say(&format!("  p{each}: {:.1} ms", latencies[at]));
        figures.add(whole(What::Latency(each)), latencies[at]);
    }
}

/// Never longer latencies.
pub(crate) fn never_later() -> impl Iterator<Item = (Figure, Target)> {
    PERCENTILES.map(|each| never_more(What::Latency(each))).into_iter()
}

/// Deletes all objects of a kind in the foreground, one by one, as users do.
pub(crate) async fn delete_all<K>(api: &Api<K>)
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
pub(crate) async fn until_none<K>(api: &Api<K>, name: &str)
where
    K: Clone + serde::de::DeserializeOwned + std::fmt::Debug,
{
    let there = async || api.get_opt(name).await.expect("an answer").is_some();
    until(&format!("{name} to go"), LIMIT, there, |there| !there).await;
}

/// Waits until there is no object of a kind.
pub(crate) async fn until_gone<K>(api: &Api<K>)
where
    K: Clone + serde::de::DeserializeOwned + std::fmt::Debug,
{
    until("the last object to go", LIMIT, || count(api), |count| *count == 0).await;
}
