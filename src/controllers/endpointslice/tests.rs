//! The room's tables and properties.

use super::*;
use crate::framework::{Pass, Reads};
use crate::options::Config;

mod bytes;
mod endpoints;
mod failures;
mod fixtures;
mod hints;
mod keys;
mod labels;
mod metrics;
mod packing;
mod ports;
mod properties;

use fixtures::Bench;

#[test]
fn it_builds_and_watches_what_it_reads() {
    let bench = Bench::new();
    let mut config = Config::default();
    config.flags.max_endpoints_per_slice = 7;
    config.flags.endpointslice_updates_batch_period = Duration::from_secs(3);
    let built = build(&Build {
        config: &config,
        gate: &|gate| gate == "PreferSameTrafficDistribution",
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
    assert_eq!((work.queue, work.workers), ("endpoint_slice", 5));
    let watched: Vec<String> = work.watches.iter().map(|watch| watch.kind.to_string()).collect();
    assert_eq!(watched, ["services", "pods", "endpointslices.discovery.k8s.io", "nodes"]);
    let rests: Vec<u64> =
        work.watches.iter().map(|watch| work.reconcile.gather(watch.kind).as_secs()).collect();
    assert_eq!(rests, [0, 3, 3, 0]);
    let key = Key::new("default", "web");
    let now = Timestamp::from_second(fixtures::NOW).unwrap();
    let pass = || work.reconcile.plan(&key, &[], &Reads::default(), now).unwrap();
    assert!(matches!(pass(), Pass::Nothing));
    bench.add(&fixtures::service(|_| {}));
    assert!(matches!(pass(), Pass::Plan(plan) if !plan.is_empty()));
}
