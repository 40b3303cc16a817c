//! A cluster of stores, an API server that carries plans out, and time that goes when it is told to.

use std::time::Duration;

use super::*;
use coxswain_machinery::api::core::{AttachedVolume, NodeCondition, ObjectReference, Taint};
use coxswain_machinery::api::meta::OwnerReference;
use coxswain_machinery::api::pod::{ContainerStatus, PodClaim, PodClaimSource};
use coxswain_machinery::api::storage::VolumeError;
use coxswain_machinery::api::volumes::{CsiPersistent, Iscsi, PersistentVolumeSource};
use coxswain_machinery::api::{AnyObject, Kind, Object};
use coxswain_machinery::executor::{Effect, WriteEffect};
use coxswain_machinery::framework::{ApiError, Memory as _, Meter as _, Read, RoomMetrics};
use coxswain_machinery::informer::{Indexed, Lister, Store};
use coxswain_machinery::model::plan::{Patch, Step, Verb, Write};
use coxswain_machinery::telemetry::Registry;
use coxswain_machinery::wire::{Message as _, Raw, Str, Time};

mod beside;
mod coming;
mod going;
mod properties;
mod starting;
mod unreadable;
mod waking;

const DRIVER: &str = "csi.example.com";
const LOOKS: usize = 5;
const RULES: Rules = Rules { period: Some(Duration::from_mins(1)), is_forced: true };

/// A cluster, and the room in it.
struct Stage {
    world: Arc<World>,
    metrics: Metrics,
    registry: Registry,
    at: Duration,
    version: u64,
    /// What is refused: `create`, `delete` or `patch`.
    refused: Vec<&'static str>,
    /// What the API server says of nodes, where the cache has not heard of it yet.
    live: Vec<Node>,
    /// VolumeAttachments that the API server has, and of which the cache has not heard yet.
    unheard: Vec<VolumeAttachment>,
    /// Resources of which nothing can be read.
    unreadable: Vec<&'static str>,
    /// The answer to those reads: 403, or 0 for one that makes no sense.
    unreadable_code: u16,
    /// What has happened.
    log: Vec<String>,
    look_in: Option<Duration>,
}

fn store(kind: &'static Kind) -> Arc<Store> {
    let store = Arc::new(Store::new(kind));
    store.replace(Vec::new(), "1");
    store
}

fn put<T: Object>(store: &Arc<Store>, object: T) {
    store.upsert(&(Arc::new(object) as AnyObject));
}

fn world(rules: Rules, stores: [Arc<Store>; 6]) -> Arc<World> {
    let [pods, nodes, claims, volumes, attachments, drivers] = stores;
    Arc::new(World {
        pods: Indexed::new(&pods, &BY_NODE),
        all_pods: Lister::new(pods),
        listing: Indexed::new(&nodes, &keys::LISTING),
        nodes: Lister::new(nodes),
        claims: Lister::new(claims),
        volumes: Lister::new(volumes),
        attached_to: Indexed::new(&attachments, &keys::OF_NODE),
        attachments: Lister::new(attachments),
        drivers: Lister::new(drivers),
        books: Arc::new(Books::default()),
        rules,
    })
}

impl Stage {
    fn new() -> Self {
        Self::with(RULES)
    }

    fn with(rules: Rules) -> Self {
        let kinds: [&'static Kind; 6] = [
            &PODS,
            &NODES,
            &PERSISTENT_VOLUME_CLAIMS,
            &PERSISTENT_VOLUMES,
            &VOLUME_ATTACHMENTS,
            &CSI_DRIVERS,
        ];
        let registry = Registry::new();
        let metrics = RoomMetrics::new(registry.clone());
        let census = Census::register(&metrics).unwrap();
        let world = world(rules, kinds.map(store));
        census.follow(&world);
        Self {
            metrics: Metrics::register(&metrics).unwrap(),
            world,
            registry,
            at: Duration::ZERO,
            version: 10,
            refused: Vec::new(),
            live: Vec::new(),
            unheard: Vec::new(),
            unreadable: Vec::new(),
            unreadable_code: 0,
            log: Vec::new(),
            look_in: None,
        }
    }

    /// Another instance of the controller, which knows only what the stores hold.
    fn restarts(&mut self) {
        let world = &self.world;
        let stores = [
            world.all_pods.store(),
            world.nodes.store(),
            world.claims.store(),
            world.volumes.store(),
            world.attachments.store(),
            world.drivers.store(),
        ]
        .map(Arc::clone);
        self.world = self::world(world.rules, stores);
        for attachment in self.world.attachments.list() {
            self.world.books.was_there(&attachment.metadata.name);
        }
        self.at = Duration::ZERO;
    }

    fn next_version(&mut self) -> Str {
        self.version += 1;
        self.version.to_string().into()
    }

    /// A node that is managed and ready.
    fn node(&mut self, name: &str) {
        let mut node = Node::default();
        node.metadata.name = name.into();
        node.metadata.uid = format!("node {name}").into();
        node.metadata.annotations =
            [("volumes.kubernetes.io/controller-managed-attach-detach", "true")].into_iter().collect();
        self.put_node(node, |_| {});
        self.changed(name, |node| set_ready(node, true));
    }

    fn put_node(&mut self, mut node: Node, change: impl FnOnce(&mut Node)) {
        change(&mut node);
        node.metadata.resource_version = self.next_version();
        put(self.world.nodes.store(), node);
    }

    fn changed(&mut self, name: &str, change: impl FnOnce(&mut Node)) {
        let node = self.get_node(name);
        self.put_node(node, change);
    }

    fn get_node(&self, name: &str) -> Node {
        Node::clone(&self.world.nodes.get(&Key::new("", name)).unwrap())
    }

    fn uses(&mut self, name: &str, volumes: &[&str]) {
        self.changed(name, |node| {
            node.status.volumes_in_use = volumes.iter().map(|volume| Str::from(unique(volume))).collect();
        });
    }

    fn is_dead(&mut self, name: &str) {
        self.changed(name, |node| set_ready(node, false));
    }

    /// A claim `ns/NAME`, bound to a volume of that name and handle.
    fn bound(&mut self, name: &str, modes: &[&str]) {
        let csi = Some(Box::new(CsiPersistent { driver: DRIVER.into(), volume_handle: name.into() }));
        self.bound_to(name, modes, PersistentVolumeSource { csi, ..PersistentVolumeSource::default() });
    }

    fn bound_to(&mut self, name: &str, modes: &[&str], source: PersistentVolumeSource) {
        put(self.world.claims.store(), claim("ns", name, name));
        let mut volume = PersistentVolume::default();
        volume.metadata.name = name.into();
        volume.spec.access_modes = modes.iter().map(|mode| Str::from(*mode)).collect();
        volume.spec.persistent_volume_source = source;
        volume.spec.claim_ref = Some(Box::new(ObjectReference {
            namespace: "ns".into(),
            name: name.into(),
            uid: format!("claim ns {name}").into(),
            ..ObjectReference::default()
        }));
        put(self.world.volumes.store(), volume);
    }

    /// A pod `ns/NAME` on a node, with these claims.
    fn pod(&mut self, name: &str, node: &str, claims: &[&str]) {
        let pod = pod("ns", name, node, claims);
        put(self.world.all_pods.store(), pod);
    }

    fn gone(&mut self, store: &Store, key: &Key) {
        let version = self.next_version();
        store.remove_key(key, &version);
    }

    fn pod_gone(&mut self, name: &str) {
        self.gone(&Arc::clone(self.world.all_pods.store()), &Key::new("ns", name));
    }

    fn node_gone(&mut self, name: &str) {
        self.gone(&Arc::clone(self.world.nodes.store()), &Key::new("", name));
    }

    /// The VolumeAttachment of a volume on a node, if there is one.
    fn attachment(&self, volume: &str, node: &str) -> Option<VolumeAttachment> {
        let name = name_of(volume, node);
        let found = self.world.attachments.get(&Key::new("", name))?;
        Some(VolumeAttachment::clone(&found))
    }

    /// The attacher says something.
    fn attacher(&mut self, volume: &str, node: &str, change: impl FnOnce(&mut VolumeAttachment)) {
        let mut found = self.attachment(volume, node).unwrap();
        change(&mut found);
        found.metadata.resource_version = self.next_version();
        put(self.world.attachments.store(), found);
    }

    fn is_attached(&mut self, volume: &str, node: &str) {
        self.attacher(volume, node, |found| found.status.attached = true);
    }

    /// The attacher lets go.
    fn is_detached(&mut self, volume: &str, node: &str) {
        let key = Key::new("", name_of(volume, node));
        self.gone(&Arc::clone(self.world.attachments.store()), &key);
    }

    /// A VolumeAttachment that somebody made.
    fn made(&mut self, volume: &str, node: &str, is_attached: bool) {
        let mut made = VolumeAttachment::default();
        made.metadata.name = name_of(volume, node);
        made.metadata.uid = format!("made {volume} {node}").into();
        made.spec.node_name = node.into();
        made.spec.attacher = DRIVER.into();
        made.spec.source.persistent_volume_name = Some(volume.into());
        made.status.attached = is_attached;
        put(self.world.attachments.store(), made);
    }

    /// The node lists these volumes.
    fn lists(&mut self, node: &str, volumes: &[&str]) {
        self.changed(node, |node| {
            let listed =
                |volume: &&str| AttachedVolume { name: unique(volume).into(), device_path: Str::EMPTY };
            node.status.volumes_attached = volumes.iter().map(listed).collect();
        });
    }

    /// A pod that wants a volume on a node, and a volume that is attached there.
    fn running(volume: &str, node: &str) -> Self {
        Self::new().with_running(volume, node)
    }

    fn with_running(self, volume: &str, node: &str) -> Self {
        let mut stage = self;
        stage.node(node);
        stage.bound(volume, &["ReadWriteOnce"]);
        stage.pod("p", node, &[volume]);
        stage.look(node);
        stage.is_attached(volume, node);
        stage.look(node);
        stage.uses(node, &[volume]);
        stage.look(node);
        stage.log.clear();
        stage
    }

    fn view(&self, node: &str) -> View {
        let (view, needs) = self.try_view(node, &[], &Reads::default());
        assert!(needs.is_empty(), "{needs:?}");
        view
    }

    fn try_view(&self, node: &str, failures: &[Failure], reads: &Reads) -> (View, Vec<Read>) {
        let view = view::observe(&self.world, &Key::new("", node), failures, reads, self.at);
        let needs = plan::needs(&view).into_iter().map(Read::from).collect();
        (view, needs)
    }

    /// What the API server has at a place: what the cache has, unless it is said otherwise.
    fn read(&self, read: &Read) -> (&'static Kind, Key, Option<AnyObject>) {
        let Read::Object(kind, key) = read else { panic!("{read:?}") };
        let known = if *kind == &NODES { self.world.nodes.store() } else { self.world.attachments.store() };
        let live = self.live.iter().find(|node| *kind == &NODES && node.metadata.name == key.name);
        let live = live.map(|node| Arc::new(node.clone()) as AnyObject);
        let unheard =
            self.unheard.iter().find(|made| *kind == &VOLUME_ATTACHMENTS && made.metadata.name == key.name);
        let unheard = unheard.map(|made| Arc::new(made.clone()) as AnyObject);
        (kind, key.clone(), live.or(unheard).or_else(|| known.get(key)))
    }

    fn reads(&mut self, needs: &[Read], effects: &[Effect]) -> Reads {
        let mut reads = Reads::default();
        for effect in effects {
            reads = reads.after(effect.clone());
        }
        for need in needs {
            let (kind, key, found) = self.read(need);
            self.log.push(format!("read {kind}"));
            let error = || match self.unreadable_code {
                0 => ApiError::Malformed { request: "GET".to_owned(), what: "nonsense".to_owned() },
                code => ApiError::Refused {
                    request: "GET".to_owned(),
                    code,
                    reason: Str::EMPTY,
                    message: "no".to_owned(),
                    status: Box::default(),
                    retry_after: None,
                },
            };
            // Linear: two resources are read.
            let is_readable = !self.unreadable.contains(&kind.resource);
            reads = reads.with_object(kind, key, if is_readable { Ok(found) } else { Err(error()) });
        }
        reads
    }

    /// A look at a node, with everything that comes of it.
    fn look(&mut self, node: &str) {
        let key = Key::new("", node);
        let (mut failures, mut effects): (Vec<Failure>, Vec<Effect>) = (Vec::new(), Vec::new());
        for _ in 0..LOOKS {
            let plan = self.planned(node, &failures, &effects);
            let looks_again = plan.look_again;
            self.look_in = plan.requeue_after;
            self.log.extend(plan.retry.as_ref().map(|why| format!("retry {why}")));
            let before = failures.len();
            self.perform(&key, plan, &mut failures, &mut effects);
            let has_failed = failures.len() > before;
            if !looks_again {
                if has_failed {
                    let plan = self.planned(node, &failures, &effects);
                    self.look_in = plan.requeue_after;
                    self.perform(&key, plan, &mut Vec::new(), &mut Vec::new());
                }
                return;
            }
        }
        panic!("it goes on and on: {:?}", self.log);
    }

    fn planned(&mut self, node: &str, failures: &[Failure], effects: &[Effect]) -> Plan<Note> {
        let mut needed: Vec<Read> = Vec::new();
        for _ in 0..LOOKS {
            let reads = self.reads(&needed, effects);
            let (view, needs) = self.try_view(node, failures, &reads);
            if needs.is_empty() {
                return Controller::plan(&view, Timestamp::UNIX_EPOCH);
            }
            // What was read stays read.
            needed.extend(needs);
        }
        panic!("it needs more and more");
    }

    fn perform(
        &mut self,
        key: &Key,
        plan: Plan<Note>,
        failures: &mut Vec<Failure>,
        effects: &mut Vec<Effect>,
    ) {
        let (plan, note) = plan.into_parts();
        self.metrics.planned(key, &note);
        let before = failures.len();
        for step in &plan.steps {
            match step {
                Step::Emit(event) => {
                    let kind = if event.warning { "Warning" } else { "Normal" };
                    self.log
                        .push(format!("{}: {kind} {} {}", event.regarding.key, event.reason, event.message));
                }
                Step::Write(write) => self.write(write, failures, effects),
                Step::Each(writes) => writes.iter().for_each(|write| self.write(write, failures, effects)),
                other => panic!("{other:?}"),
            }
        }
        if failures.len() == before {
            self.world.books.commit(key, note);
        }
    }

    fn write(&mut self, write: &Write, failures: &mut Vec<Failure>, effects: &mut Vec<Effect>) {
        assert!(write.keep_going, "{write}");
        let name = write.key.name.clone();
        if self.refused.contains(&write.verb.name()) {
            self.log.push(format!("{} is refused", write.verb.name()));
            failures.push(refusal(write));
            return;
        }
        let version = self.next_version();
        let (line, answer) = match &write.verb {
            Verb::Create(body) => {
                let mut made = VolumeAttachment::decode(body).unwrap();
                made.metadata.uid = format!("uid {version}").into();
                made.metadata.resource_version = version;
                let line = format!("create {}", plainly(&made));
                if self.world.attachments.get(&write.key).is_none() {
                    put(self.world.attachments.store(), made.clone());
                }
                (line, Some(Arc::new(made) as AnyObject))
            }
            Verb::Delete { .. } if self.world.attachments.get(&write.key).is_none() => {
                // Linear: few.
                if self.unheard.iter().any(|made| made.metadata.name == name) {
                    self.log.push("delete conflicts".to_owned());
                    failures.push(Failure { code: 409, reason: "Conflict".into(), ..refusal(write) });
                    return;
                }
                assert!(write.tolerate.gone, "{write}");
                ("delete finds nothing".to_owned(), None)
            }
            Verb::Delete { uid, .. } => {
                let mut found = VolumeAttachment::clone(&self.world.attachments.get(&write.key).unwrap());
                assert_eq!(*uid, found.metadata.uid);
                let line = format!("delete {}", plainly(&found));
                self.may_go(&found);
                // The attacher has a finalizer on it.
                found.metadata.deletion_timestamp = Time::from_seconds(1);
                found.metadata.resource_version = version;
                put(self.world.attachments.store(), found);
                (line, None)
            }
            Verb::Patch(Patch::Strategic(patch)) => {
                assert_eq!((write.kind, write.subresource), (&NODES, "status"));
                let mut node = self.live.iter().find(|node| node.metadata.name == name).cloned();
                let node = node.get_or_insert_with(|| self.get_node(&name));
                assert_eq!(patch["metadata"]["uid"], node.metadata.uid.to_string());
                let list = patch["status"]["volumesAttached"].as_array().cloned().unwrap_or_default();
                let text = |value: &serde_json::Value| Str::from(value.as_str().unwrap());
                node.status.volumes_attached = list
                    .iter()
                    .map(|each| AttachedVolume {
                        name: text(&each["name"]),
                        device_path: text(&each["devicePath"]),
                    })
                    .collect();
                node.metadata.resource_version = version;
                let names = node.status.volumes_attached.iter().map(|each| short(&each.name));
                let line = format!("{name} lists [{}]", names.collect::<Vec<_>>().join(" "));
                put(self.world.nodes.store(), node.clone());
                self.live.retain(|live| live.metadata.name != name);
                (line, Some(Arc::new(node.clone()) as AnyObject))
            }
            other => panic!("{other:?}"),
        };
        self.log.push(line);
        let change = WriteEffect::Nothing;
        effects.push(Effect {
            kind: write.kind,
            key: write.key.clone(),
            subresource: write.subresource,
            change,
            answer,
        });
    }

    /// What must hold whenever a VolumeAttachment is deleted: its node does not list the volume any more, and is not ready with
    /// the volume in use.
    fn may_go(&self, attachment: &VolumeAttachment) {
        let name = &attachment.spec.node_name;
        let volume = unique(attachment.spec.source.persistent_volume_name.as_deref().unwrap());
        let (_, _, node) = self.read(&Read::Object(&NODES, Key::new("", name.clone())));
        let Some(node) = node.and_then(coxswain_machinery::informer::downcast::<Node>) else { return };
        assert!(!book::lists(&node, &volume), "{name} still lists {volume}");
        let is_held = node.is_ready() && node.status.volumes_in_use.iter().any(|used| *used == *volume);
        assert!(!is_held || node.is_out_of_service(), "{name} is ready and uses {volume}");
    }

    /// What has happened since the last question.
    fn happened(&mut self) -> Vec<String> {
        std::mem::take(&mut self.log)
    }

    /// What a node lists.
    fn listed(&self, node: &str) -> Vec<String> {
        self.get_node(node).status.volumes_attached.iter().map(|each| short(&each.name)).collect()
    }

    /// The series of a metric: its labels' values, and its number.
    fn series(&self, name: &str) -> Vec<String> {
        let families = self.registry.gather();
        let family = families.iter().find(|family| family.name() == name);
        let metrics = family.into_iter().flat_map(prometheus::proto::MetricFamily::get_metric);
        let mut series: Vec<String> = metrics
            .map(|metric| {
                let labels: Vec<&str> =
                    metric.get_label().iter().map(prometheus::proto::LabelPair::value).collect();
                let value = metric.get_gauge().get_value() + metric.get_counter().get_value();
                let count = metric.get_histogram().get_sample_count();
                format!("{} {}", labels.join(" "), value as u64 + count)
            })
            .collect();
        series.sort();
        series
    }
}

fn refusal(write: &Write) -> Failure {
    Failure {
        what: write.to_string(),
        verb: write.verb.name(),
        subresource: write.subresource,
        kind: write.kind,
        key: write.key.clone(),
        code: 403,
        reason: "Forbidden".into(),
        message: "no".to_owned(),
        existing: None,
    }
}

fn set_ready(node: &mut Node, is_ready: bool) {
    let status = if is_ready { "True" } else { "Unknown" };
    node.status.conditions =
        vec![NodeCondition { r#type: "Ready".into(), status: status.into(), ..NodeCondition::default() }];
}

fn taint(node: &mut Node, value: &str, effect: &str) {
    node.spec.taints.push(Taint {
        key: "node.kubernetes.io/out-of-service".into(),
        value: value.into(),
        effect: effect.into(),
        time_added: None,
    });
}

fn unique(volume: &str) -> String {
    if volume.contains('/') { volume.to_owned() } else { format!("kubernetes.io/csi/{DRIVER}^{volume}") }
}

fn short(unique: &str) -> String {
    unique.rsplit_once('^').map_or(unique, |(_, handle)| handle).to_owned()
}

fn name_of(volume: &str, node: &str) -> Str {
    source::Source::of_name(&unique(volume).into()).unwrap().attachment(node).unwrap()
}

fn plainly(attachment: &VolumeAttachment) -> String {
    let source = attachment.spec.source.persistent_volume_name.as_deref().unwrap_or("inline");
    format!("{source} on {}", attachment.spec.node_name)
}

fn claim(namespace: &str, name: &str, volume: &str) -> PersistentVolumeClaim {
    let mut claim = PersistentVolumeClaim::default();
    claim.metadata.namespace = namespace.into();
    claim.metadata.name = name.into();
    claim.metadata.uid = format!("claim {namespace} {name}").into();
    claim.spec.volume_name = volume.into();
    claim.status.phase = "Bound".into();
    claim
}

fn pod(namespace: &str, name: &str, node: &str, claims: &[&str]) -> Pod {
    let mut pod = Pod::default();
    pod.metadata.namespace = namespace.into();
    pod.metadata.name = name.into();
    pod.metadata.uid = format!("pod {namespace} {name}").into();
    pod.spec.node_name = node.into();
    pod.status.phase = "Running".into();
    let named =
        |claim: &&str| PodClaim { volume: (*claim).into(), source: PodClaimSource::Named((*claim).into()) };
    pod.claims = claims.iter().map(named).collect();
    pod
}

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}
