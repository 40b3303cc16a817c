//! Has volumes attached to the nodes whose pods want them, and detached when none does any more: by VolumeAttachments, which external
//! attachers serve, and by each node's list of what it may mount (`status.volumesAttached`). See "Persistent Volumes" and "Node
//! Shutdowns" in the Kubernetes documentation, and KEPs 625 and 2268.
//!
//! One loop, whose keys are nodes: it is the only writer of a node's list. What is known of a node is its [`book`]: what its pods want,
//! which volumes it has, and what is under way. A book is begun from what the node lists and from the VolumeAttachments that were there
//! at the start, and goes on from look to look ([`draft`]): what [`come`]s, what [`go`]es, and what was [`refused`].
//!
//! | change of | keys |
//! |---|---|
//! | a pod with volumes that is bound, ends or goes | its node |
//! | a node's volumes in use, its list, readiness, taint or annotation | its own, and nodes that wait for what it gave up |
//! | a VolumeAttachment | its node, and nodes that wait for the volume |
//! | a claim or volume that is bound | the nodes of the pods that name the claim |
//! | a CSI driver that begins or ceases to need attaching | all |
//! | none: an attacher, a backoff, the six minutes, a comparison | the node |
//!
//! What it rests on: no look is made before all caches are filled. A volume leaves the node's list before its VolumeAttachment is deleted,
//! and between the two the node is read live: what a node that is ready uses, by its own word of that moment, is never taken away. One
//! that is not ready gets six minutes, and one that is out of service none. A VolumeAttachment is deleted by its UID. Nodes are taken
//! decided about one at a time, and what one is about to get is reserved ([`memory`]) before the next one is looked at. So no volume for
//! one node is asked for on two, and a request that hangs delays its own node only.
//!
//! It never attaches or detaches itself, never writes a node but for its list, and leaves volumes of unknown plugins as they are.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use coxswain_machinery::api::core::Node;
use coxswain_machinery::api::indexes::BY_NODE;
use coxswain_machinery::api::kinds::{
    CSI_DRIVERS, NODES, PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, PODS, VOLUME_ATTACHMENTS,
};
use coxswain_machinery::api::pod::Pod;
use coxswain_machinery::api::storage::{
    CsiDriver, PersistentVolume, PersistentVolumeClaim, VolumeAttachment,
};
use coxswain_machinery::framework::{
    Build, BuildError, Built, DefaultState, Descriptor, EVENTS_GRANT, Grant, Loop, LoopSettings, Observation,
    ObserveError, QueueConfig, Reads, Room, RoomAdapter,
};
use coxswain_machinery::model::{Failure, Key, Plan};

mod book;
mod come;
mod draft;
mod go;
mod inline;
mod keys;
mod memory;
mod metrics;
mod note;
mod plan;
mod reasons;
mod refused;
mod source;
mod tell;
#[cfg(test)]
mod tests;
mod view;
mod wanted;
mod world;
mod writes;

use memory::Books;
use metrics::{Census, Metrics};
use note::Note;
use view::View;
use world::{Rules, World};

/// The longest backoff of a node whose list could not be written, or that could not be read. Refused VolumeAttachments have a backoff of
/// their own. Nothing else wakes such a node, and the kubelet waits for the list: kube-controller-manager tries again after 100 ms.
const LONGEST_BACKOFF: Duration = Duration::from_secs(10);

/// Nodes for which requests are under way at once. A webhook on VolumeAttachments that does not answer is waited for 10 seconds by
/// default; kube-controller-manager has a request under way for each volume.
const NODES_AT_ONCE: usize = 100;

/// The registry's row.
pub const DESCRIPTOR: Descriptor = Descriptor {
    name: "persistentvolume-attach-detach-controller",
    aliases: &["attachdetach"],
    description: "Attaches volumes to the Nodes whose Pods need them, and detaches unused volumes.",
    gates: &[],
    default: DefaultState::On,
    cloud: false,
    special: false,
    service_account: Some("attachdetach-controller"),
    event_source: Some("attachdetach-controller"),
    writes: &[
        Grant { group: "", resource: "nodes", verbs: &["get", "list", "watch"] },
        Grant { group: "", resource: "nodes/status", verbs: &["patch"] },
        Grant { group: "", resource: "pods", verbs: &["list", "watch"] },
        Grant { group: "", resource: "persistentvolumeclaims", verbs: &["list", "watch"] },
        Grant { group: "", resource: "persistentvolumes", verbs: &["list", "watch"] },
        Grant {
            group: "storage.k8s.io",
            resource: "volumeattachments",
            verbs: &["create", "delete", "get", "list", "watch"],
        },
        Grant { group: "storage.k8s.io", resource: "csidrivers", verbs: &["list", "watch"] },
        EVENTS_GRANT,
    ],
    build: Some(build),
};

/// Builds the controller.
pub fn build(build: &Build<'_>) -> Result<Built, BuildError> {
    let pods = build.watch::<Pod>(&PODS);
    let nodes = build.watch::<Node>(&NODES);
    let claims = build.watch::<PersistentVolumeClaim>(&PERSISTENT_VOLUME_CLAIMS);
    let volumes = build.watch::<PersistentVolume>(&PERSISTENT_VOLUMES);
    let attachments = build.watch::<VolumeAttachment>(&VOLUME_ATTACHMENTS);
    let drivers = build.watch::<CsiDriver>(&CSI_DRIVERS);
    let invalid = |error: prometheus::Error| BuildError::Invalid(error.to_string());
    let metrics = Metrics::register(build.metrics).map_err(invalid)?;
    let census = Census::register(build.metrics).map_err(invalid)?;
    let flags = &build.config.flags;
    let books = Arc::new(Books::default());
    let world = Arc::new(World {
        pods: pods.index(&BY_NODE),
        all_pods: pods.lister(),
        nodes: nodes.lister(),
        listing: nodes.index(&keys::LISTING),
        claims: claims.lister(),
        volumes: volumes.lister(),
        attachments: attachments.lister(),
        attached_to: attachments.index(&keys::OF_NODE),
        drivers: drivers.lister(),
        books: Arc::clone(&books),
        rules: Rules {
            period: (!flags.disable_attach_detach_reconcile_sync)
                .then_some(flags.attach_detach_reconcile_sync_period),
            is_forced: !flags.disable_force_detach_on_timeout,
        },
    });
    census.follow(&world);
    Ok(Built {
        loops: vec![Loop {
            queue: "pvcs",
            kind: Some(&NODES),
            settings: LoopSettings {
                workers: NODES_AT_ONCE,
                backoff: QueueConfig { max_delay: LONGEST_BACKOFF, ..QueueConfig::default() },
                ..LoopSettings::default()
            },
            wake_ups: vec![
                pods.wakes(keys::of_pods()),
                nodes.wakes(keys::of_nodes(Arc::clone(&books))),
                attachments.wakes(keys::of_attachments(Arc::clone(&books))),
                claims.wakes(keys::of_claims(keys::by_claim(&pods))),
                volumes.wakes(keys::of_volumes(keys::by_claim(&pods))),
                drivers.wakes(keys::of_drivers(nodes.lister())),
            ],
            reconcile: Arc::new(reconcile(world, books).counted_by(metrics)),
        }],
    })
}

/// What one node is about to get is in the books before another node is looked at.
fn reconcile(world: Arc<World>, books: Arc<Books>) -> RoomAdapter<Controller, Note> {
    RoomAdapter::new(Controller(world)).remembered_by(books).reserving()
}

/// The room: what it reads.
struct Controller(Arc<World>);

impl Room<Note> for Controller {
    const HEEDS_FAILURES: bool = true;

    type View = View;

    fn observe(
        &self,
        key: &Key,
        failures: &[Failure],
        read: &Reads,
    ) -> Result<Observation<View>, ObserveError> {
        let view = view::observe(&self.0, key, failures, read, self.0.books.now());
        let needs = plan::needs(&view);
        Ok(if needs.is_empty() { Observation::View(view) } else { Observation::Needs(needs) })
    }

    fn plan(view: &View, now: Timestamp) -> Plan<Note> {
        plan::plan(view, now)
    }

    fn reasons(view: &View, _: Timestamp) -> Vec<String> {
        reasons::reasons(view)
    }
}
