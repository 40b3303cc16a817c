//! The room's tables and properties.

use super::*;
use crate::framework::rig::Rig;
use crate::options::Config;

mod fixtures;
mod lifecycle;
mod metrics;
mod properties;
mod slices;

#[test]
fn it_builds_and_watches_what_it_reads() {
    let rests = |period| {
        let mut config = Config::default();
        config.flags.mirroring_concurrent_service_endpoint_syncs = 7;
        config.flags.mirroring_endpointslice_updates_batch_period = Duration::from_secs(period);
        let built = Rig::new(config).build(build).unwrap();
        let [work] = built.loops.as_slice() else { panic!("one loop") };
        assert_eq!((work.queue, work.workers), ("endpoint_slice_mirroring", 7));
        let watched: Vec<String> = work.watches.iter().map(|watch| watch.kind.to_string()).collect();
        assert_eq!(watched, ["endpoints", "services", "endpointslices.discovery.k8s.io"]);
        let rests = work.watches.iter().map(|watch| work.reconcile.debounce(watch.kind).as_secs());
        rests.collect::<Vec<_>>()
    };
    assert_eq!(rests(0), [0, 0, 1]);
    assert_eq!(rests(5), [0, 0, 5]);
}
