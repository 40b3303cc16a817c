//! The room's tables and properties. Nodes, Leases and time are played by [`fixtures`].

mod conflicts;
mod fixtures;
mod fleet;
mod rounds;
mod taints;

use std::time::Duration;

use coxswain_machinery::framework::rig::Rig;
use coxswain_machinery::options::{Config, Flags};

#[test]
fn flags_are_its_rules() {
    let flags = Flags {
        node_monitor_grace_period: Duration::from_secs(1),
        node_startup_grace_period: Duration::from_secs(2),
        node_eviction_rate: 0.5,
        secondary_node_eviction_rate: 0.25,
        large_cluster_size_threshold: 3,
        unhealthy_zone_threshold: 0.75,
        ..Flags::default()
    };
    let rules = super::rules(&flags);
    assert_eq!((rules.grace, rules.startup_grace), (Duration::from_secs(1), Duration::from_secs(2)));
    let said = format!("{:?}", rules.zones);
    assert_eq!(said, "ZoneRules { primary: 0.5, secondary: 0.25, large: 3, threshold: 0.75 }");
}

#[test]
fn only_the_loop_of_all_nodes_does_not_wait_for_its_writes() {
    let built = Rig::new(Config::default()).build(super::build).unwrap();
    let waits = built.loops.iter().map(|each| (each.queue, each.settings.longest_wait));
    assert_eq!(
        waits.collect::<Vec<_>>(),
        [
            ("node_lifecycle_controller", None),
            ("node_lifecycle_controller_pods", None),
            ("node_health", Some(Duration::ZERO)),
        ]
    );
}
