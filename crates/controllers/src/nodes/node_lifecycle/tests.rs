//! The room's tables and properties. Nodes, Leases and time are played by [`fixtures`].

mod fixtures;
mod fleet;
mod rounds;
mod taints;

use std::time::Duration;

use coxswain_machinery::options::Flags;

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
