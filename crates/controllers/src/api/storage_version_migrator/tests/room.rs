//! How it is built.

use super::super::{DESCRIPTOR, build};
use coxswain_machinery::framework::rig::Rig;
use coxswain_machinery::framework::{BuildError, QpsFactor};
use coxswain_machinery::options::Config;

#[test]
fn it_has_the_originals_queues_workers_and_rate() {
    let built = Rig::new(Config::default()).build(build).unwrap();
    let loops: Vec<_> = built
        .loops
        .iter()
        .map(|each| (each.queue, each.settings.workers, each.kind.is_some(), each.settings.heeds_retry_after))
        .collect();
    let expected = [
        ("resource-version-controller", 1, false, false),
        ("resource-version-controller", 1, true, false),
        ("storage-version-migrator-controller", 5, true, true),
    ];
    assert_eq!(loops, expected);
    let rate = QpsFactor { qps: 20.0, burst: 100 };
    assert!(built.loops.iter().all(|each| each.settings.qps_factor == rate));
    assert_eq!((DESCRIPTOR.aliases, DESCRIPTOR.gates), (&["svm"][..], &["StorageVersionMigrator"][..]));
}

#[test]
fn without_the_garbage_collector_it_does_not_start() {
    let mut config = Config::default();
    config.flags.enable_garbage_collector = false;
    match Rig::new(config).build(build) {
        Err(BuildError::Invalid(why)) => {
            assert_eq!(why, "storage version migrator requires garbage collector");
        }
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it starts"),
    }
}
