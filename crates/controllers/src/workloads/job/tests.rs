//! Tests of the room: tables of what is planned, and a model of a cluster in which the manager may be killed at any write.

mod backoff;
mod bytes;
mod cluster;
mod completion;
mod crashes;
mod ends;
mod fixtures;
mod gang;
mod keys;
mod managing;
mod members;
mod metrics;
mod reasons;
mod strays;
mod tracking;

use std::time::Duration;

use coxswain_machinery::framework::rig::Rig;
use coxswain_machinery::options::{Config, gates::FeatureGates};

#[test]
fn it_waits_for_its_pods_to_be_seen_without_end_unless_the_gate_says_otherwise() {
    let five = Some(Duration::from_mins(5));
    for (gates, longest_wait) in [
        ("", None),
        ("StaleControllerConsistencyJob=false", five),
        ("StaleControllerConsistencyReplicaSet=false", None),
    ] {
        let config = Config { gates: FeatureGates::set(gates, 36), ..Config::default() };
        let built = Rig::new(config).build(super::build).unwrap();
        let of_jobs = built.loops.iter().find(|each| each.queue == "job").unwrap();
        assert_eq!(of_jobs.settings.longest_wait, longest_wait, "{gates}");
    }
}
