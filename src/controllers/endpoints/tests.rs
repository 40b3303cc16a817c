//! The room's tables and properties.

use super::*;
use crate::options::Config;

mod addresses;
mod capacity;
mod fixtures;
mod keys;
mod lifecycle;
mod objects;
mod properties;

use fixtures::Bench;

#[test]
fn it_builds_and_watches_what_it_reads() {
    let bench = Bench::new();
    let mut config = Config::default();
    config.flags.concurrent_endpoint_syncs = 7;
    config.flags.endpoint_updates_batch_period = Duration::from_secs(3);
    let built = build(&Build {
        config: &config,
        gate: &|_| false,
        root_ca: None,
        can_sign_tokens: false,
        store: &|kind, selector| {
            assert_eq!(selector, None);
            bench.store(kind)
        },
        dynamic: &|_| panic!("what it watches is known"),
        debug: &|_| panic!("it has no page"),
        metrics: &crate::framework::RoomMetrics::new(prometheus::Registry::new()),
    })
    .unwrap();
    let [work] = built.loops.as_slice() else { panic!("one loop") };
    assert_eq!((work.queue, work.workers), ("endpoint", 7));
    let watched: Vec<String> = work.watches.iter().map(|watch| watch.kind.to_string()).collect();
    assert_eq!(watched, ["services", "pods", "endpoints"]);
    let rests: Vec<u64> =
        work.watches.iter().map(|watch| work.reconcile.gather(watch.kind).as_secs()).collect();
    assert_eq!(rests, [0, 3, 0]);
}
