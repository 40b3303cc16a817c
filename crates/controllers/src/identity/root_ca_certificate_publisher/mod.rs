//! root-ca-certificate-publisher-controller: every namespace has a ConfigMap `kube-root-ca.crt` with the bundle by which
//! pods verify the API server.
//!
//! Keys are namespaces. Only ConfigMaps of that name are watched. It never touches any other, and never deletes.

mod plan;
#[cfg(test)]
mod tests;
mod view;

use std::sync::Arc;

use super::sync_codes::SyncCodes;
use coxswain_machinery::api::core::{ConfigMap, Namespace};
use coxswain_machinery::api::kinds::{CONFIG_MAPS, NAMESPACES};
use coxswain_machinery::framework::{
    Build, BuildError, Built, DefaultState, Descriptor, EVENTS_GRANT, Grant, KeyMap, Loop, LoopSettings,
    RoomAdapter, wake,
};
use coxswain_machinery::model::Key;
use view::Publisher;

/// Name of the ConfigMap.
const CONFIG_MAP: &str = "kube-root-ca.crt";
/// The metrics, by the original's names.
const METRICS: [&str; 2] =
    ["root_ca_cert_publisher_sync_total", "root_ca_cert_publisher_sync_duration_seconds"];
/// Restricts the watch to it.
const CONFIG_MAP_SELECTOR: &str = "metadata.name=kube-root-ca.crt";

/// The registry's row.
pub const DESCRIPTOR: Descriptor = Descriptor {
    name: "root-ca-certificate-publisher-controller",
    aliases: &["root-ca-cert-publisher"],
    description: "Publishes the API server's CA bundle to every namespace as the ConfigMap kube-root-ca.crt.",
    gates: &[],
    default: DefaultState::On,
    cloud: false,
    special: false,
    service_account: Some("root-ca-cert-publisher"),
    event_source: None,
    writes: &[Grant { group: "", resource: "configmaps", verbs: &["create", "update"] }, EVENTS_GRANT],
    build: Some(build),
};

fn build(build: &Build<'_>) -> Result<Built, BuildError> {
    // Where no CA is known the bundle is empty, as kube-controller-manager's: pods mount the ConfigMap and do not start without it. A
    // bundle that must not be published is another matter: an empty one would replace what the namespaces have.
    let bundle = build.root_ca.clone().ok_or_else(|| {
        BuildError::Invalid(
            "--root-ca-file is mounted from the ConfigMap kube-root-ca.crt, which this controller writes: set \
             another file"
                .to_owned(),
        )
    })?;
    let metrics = SyncCodes::register(build.metrics, METRICS, "namespaces")
        .map_err(|error| BuildError::Invalid(error.to_string()))?;
    let namespaces = build.watch::<Namespace>(&NAMESPACES);
    let config_maps = build.watch_selected::<ConfigMap>(&CONFIG_MAPS, CONFIG_MAP_SELECTOR);
    let room = Publisher { bundle, namespaces: namespaces.lister(), config_maps: config_maps.lister() };
    let of_config_maps: KeyMap = Arc::new(|delta, add| {
        // What is there from the start is looked at when its namespace is.
        if let Some(config_map) = delta.latest().filter(|_| !delta.initial) {
            add(Key::new("", config_map.meta().namespace.clone()));
        }
    });
    Ok(Built {
        loops: vec![Loop {
            queue: "root_ca_cert_publisher",
            kind: Some(&NAMESPACES),
            settings: LoopSettings::default(),
            wake_ups: vec![namespaces.wakes(wake::existing()), config_maps.wakes(of_config_maps)],
            reconcile: Arc::new(RoomAdapter::new(room).counted_by(metrics)),
        }],
    })
}
