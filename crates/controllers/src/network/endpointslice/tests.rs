//! The room's tables and properties.

use std::time::Duration;

use super::*;
use coxswain_machinery::framework::rig::Rig;
use coxswain_machinery::options::Config;

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

#[test]
fn it_builds_and_watches_what_it_reads() {
    let mut config = Config::default();
    config.flags.max_endpoints_per_slice = 7;
    config.flags.endpointslice_updates_batch_period = Duration::from_secs(3);
    let rig = Rig::new(config);
    let built = rig.build(build).unwrap();
    let [work] = built.loops.as_slice() else { panic!("one loop") };
    assert_eq!((work.queue, work.settings.workers), ("endpoint_slice", 5));
    let watched: Vec<String> = work.wake_ups.iter().map(|watch| watch.kind.to_string()).collect();
    assert_eq!(watched, ["services", "pods", "endpointslices.discovery.k8s.io", "nodes"]);
    assert_eq!(coxswain_machinery::framework::rig::debounces(work), [0, 3, 3, 0].map(Duration::from_secs));
    let key = Key::new("default", "web");
    let now = Timestamp::from_second(fixtures::NOW).unwrap();
    let plan = || rig.plan(work.reconcile.as_ref(), &key, now).unwrap();
    assert!(plan().is_none());
    rig.add(&SERVICES, &fixtures::service(|_| {})).unwrap();
    assert!(plan().is_some_and(|plan| !plan.is_empty()));
}
