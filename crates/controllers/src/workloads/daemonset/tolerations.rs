//! What pods of DaemonSets tolerate without being told: a node in need is no reason to take its daemons away.

use std::sync::LazyLock;

use coxswain_machinery::api::shape::Toleration;

/// In the order in which pods get them. The last is for pods with the node's network alone.
const TOLERATED: [(&str, &str); 7] = [
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
    ("node.kubernetes.io/network-unavailable", "NoSchedule"),
];

static ALL: LazyLock<Vec<Toleration>> = LazyLock::new(|| {
    let tolerated = TOLERATED.iter().map(|(key, effect)| Toleration {
        key: (*key).into(),
        operator: "Exists".into(),
        effect: (*effect).into(),
        ..Toleration::default()
    });
    tolerated.collect()
});

/// What a DaemonSet's pods tolerate beside what their template says.
pub(super) fn added(host_network: bool) -> &'static [Toleration] {
    let all = ALL.as_slice();
    if host_network { all } else { all.split_last().map_or(all, |(_, others)| others) }
}
