//! The room's tables and properties.

use std::time::Duration;

use super::*;
use coxswain_machinery::framework::rig::Rig;
use coxswain_machinery::options::Config;

mod addresses;
mod capacity;
mod fixtures;
mod keys;
mod lifecycle;
mod objects;
mod properties;

#[test]
fn it_builds_and_watches_what_it_reads() {
    let mut config = Config::default();
    config.flags.concurrent_endpoint_syncs = 7;
    config.flags.endpoint_updates_batch_period = Duration::from_secs(3);
    let built = Rig::new(config).build(build).unwrap();
    let [work] = built.loops.as_slice() else { panic!("one loop") };
    assert_eq!((work.queue, work.settings.workers), ("endpoint", 7));
    let watched: Vec<String> = work.wake_ups.iter().map(|watch| watch.kind.to_string()).collect();
    assert_eq!(watched, ["services", "pods", "endpoints"]);
    assert_eq!(coxswain_machinery::framework::rig::debounces(work), [0, 3, 0].map(Duration::from_secs));
}
