//! The room's tables and properties.

use std::time::Duration;

use super::*;
use coxswain_machinery::framework::rig::Rig;
use coxswain_machinery::options::Config;

mod fixtures;
mod lifecycle;
mod metrics;
mod properties;
mod slices;

#[test]
fn it_builds_and_watches_what_it_reads() {
    let debounces = |period| {
        let mut config = Config::default();
        config.flags.mirroring_concurrent_service_endpoint_syncs = 7;
        config.flags.mirroring_endpointslice_updates_batch_period = Duration::from_secs(period);
        let built = Rig::new(config).build(build).unwrap();
        let [work] = built.loops.as_slice() else { panic!("one loop") };
        assert_eq!((work.queue, work.settings.workers), ("endpoint_slice_mirroring", 7));
        let watched: Vec<String> = work.wake_ups.iter().map(|watch| watch.kind.to_string()).collect();
        assert_eq!(watched, ["endpoints", "services", "endpointslices.discovery.k8s.io"]);
        coxswain_machinery::framework::rig::debounces(work)
    };
    let seconds = Duration::from_secs;
    assert_eq!(debounces(0), [0, 0, 1].map(seconds));
    assert_eq!(debounces(5), [0, 0, 5].map(seconds));
}
