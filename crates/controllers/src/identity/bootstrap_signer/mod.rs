//! bootstrap-signer-controller: signs the kubeconfig in the ConfigMap `kube-public/cluster-info`, which anybody may read, with
//! every bootstrap token that may sign. So whoever knows a token can tell that the authority in it is the right one.
//!
//! There is one key, the ConfigMap; it is looked at when that or a token changes, and when a token with which it is signed ends.
//! (The original waits until the token's Secret is deleted.) A signature is made of the content and the token alone, so who takes
//! over finds nothing to do. It is off unless it is named. It never makes the ConfigMap, and touches nothing in it but
//! signatures.
//! Differs: signatures-end-with-tokens.

mod jws;
mod plan;
#[cfg(test)]
mod tests;
mod view;

use std::sync::Arc;

use jiff::Timestamp;

use super::bootstrap_tokens::SELECTOR;
use coxswain_machinery::api::core::{ConfigMap, Secret};
use coxswain_machinery::api::kinds::{CONFIG_MAPS, SECRETS};
use coxswain_machinery::framework::{
    Build, BuildError, Built, DefaultState, Descriptor, EVENTS_GRANT, Grant, Loop, LoopSettings, Observation,
    ObserveError, Reads, Room, RoomAdapter, wake,
};
use coxswain_machinery::informer::Lister;
use coxswain_machinery::model::{Failure, Key, Plan};
use view::View;

/// Where the ConfigMap is.
const NAMESPACE: &str = "kube-public";
const CONFIG_MAP: &str = "cluster-info";
/// Restricts the watch to it.
const CONFIG_MAP_SELECTOR: &str = "metadata.name=cluster-info,metadata.namespace=kube-public";

/// The registry's row.
pub const DESCRIPTOR: Descriptor = Descriptor {
    name: "bootstrap-signer-controller",
    aliases: &["bootstrapsigner"],
    description: "Signs the cluster-info ConfigMap with every bootstrap token that is allowed to sign.",
    gates: &[],
    default: DefaultState::Off,
    cloud: false,
    special: false,
    service_account: Some("bootstrap-signer"),
    event_source: None,
    writes: &[
        Grant { group: "", resource: "configmaps", verbs: &["update"] },
        // Granted, and never used: there is nothing to tell.
        EVENTS_GRANT,
    ],
    build: Some(build),
};

/// Builds the controller.
pub fn build(build: &Build<'_>) -> Result<Built, BuildError> {
    let config_maps = build.watch_selected::<ConfigMap>(&CONFIG_MAPS, CONFIG_MAP_SELECTOR);
    let secrets = build.watch_selected::<Secret>(&SECRETS, SELECTOR);
    let room = Signer { config_maps: config_maps.lister(), secrets: secrets.lister() };
    let key = || Key::new(NAMESPACE, CONFIG_MAP);
    Ok(Built {
        loops: vec![Loop {
            queue: "bootstrap_signer_queue",
            kind: Some(&CONFIG_MAPS),
            settings: LoopSettings::default(),
            wake_ups: vec![config_maps.wakes(wake::existing()), secrets.wakes(wake::constant(key()))],
            reconcile: Arc::new(RoomAdapter::new(room)),
        }],
    })
}

/// The room: what it reads.
struct Signer {
    config_maps: Lister<ConfigMap>,
    secrets: Lister<Secret>,
}

impl Room for Signer {
    type View = View;

    fn observe(&self, key: &Key, _: &[Failure], _: &Reads) -> Result<Observation<View>, ObserveError> {
        Ok(view::observe(self, key).into())
    }

    fn plan(view: &View, now: Timestamp) -> Plan {
        plan::plan(view, now)
    }

    fn reasons(view: &View, now: Timestamp) -> Vec<String> {
        plan::reasons(view, now)
    }
}
