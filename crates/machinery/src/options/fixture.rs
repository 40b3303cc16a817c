//! The controllers that command lines are tested with: the original's, as they were observed. The real registry is held
//! against the same table. None of them can be built.

use std::sync::LazyLock;

use crate::framework::{DefaultState, Descriptor};

const OBSERVED: &str = include_str!("../../../../tests/data/peer/controllers.tsv");

static REGISTRY: LazyLock<Vec<Descriptor>> = LazyLock::new(|| {
    let rows = OBSERVED.lines().filter(|line| !line.starts_with('#'));
    rows.map(row).collect()
});

fn row(line: &'static str) -> Descriptor {
    let fields: Vec<&str> = line.split('\t').collect();
    let [name, aliases, default, gates, cloud] = fields[..] else { panic!("five columns: {line}") };
    let list = |text: &'static str| -> &'static [&'static str] {
        text.split(',').filter(|part| !part.is_empty()).collect::<Vec<_>>().leak()
    };
    Descriptor {
        name,
        aliases: list(aliases),
        description: "Is on the list.",
        gates: list(gates),
        default: if default == "on" { DefaultState::On } else { DefaultState::Off },
        cloud: !cloud.is_empty(),
        special: name == "serviceaccount-token-controller",
        service_account: None,
        event_source: None,
        writes: &[],
        build: None,
    }
}

/// All of them.
pub(super) fn registry() -> &'static [Descriptor] {
    &REGISTRY
}

/// The one of this name.
pub(super) fn find(name: &str) -> Option<&'static Descriptor> {
    registry().iter().find(|descriptor| descriptor.name == name)
}
