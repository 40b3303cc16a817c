//! What an event and a cached object cost: from the bytes of a watch frame to the last handler, in time, allocations
//! and live heap bytes (as requested of the allocator).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use coxswain_machinery::api::meta::{ObjectMeta, PartialObjectMetadata};
use coxswain_machinery::api::{AnyObject, Kind, Object, kinds};
use coxswain_machinery::informer::Store;
use coxswain_machinery::wire::{Message, ObjectHead, WatchFrame, WireError, intern_stats};
use divan::counter::ItemsCount;

use crate::{HEAP, objects};

/// Objects per measurement.
const MANY: usize = 5000;
/// Pods of a ReplicaSet.
const REPLICAS: usize = 50;
/// Handlers of a pod informer: about as many controllers look at pods.
const HANDLERS: usize = 6;

/// Secrets, of which only metadata is asked, as the garbage collector does.
#[derive(Debug)]
struct Metadata(PartialObjectMetadata);

impl Object for Metadata {
    fn meta(&self) -> &ObjectMeta {
        &self.0.metadata
    }

    fn size(&self) -> usize {
        self.0.to_bytes().len()
    }
}

fn decode_metadata(bytes: &Bytes) -> Result<AnyObject, WireError> {
    Ok(Arc::new(Metadata(PartialObjectMetadata::decode(bytes)?)))
}

static SECRET_METADATA: Kind = Kind {
    group: "",
    version: "v1",
    kind: "Secret",
    resource: "secrets",
    namespaced: true,
    metadata_only: true,
    decode: decode_metadata,
};

fn decode(kind: &Kind, bytes: &Bytes) -> AnyObject {
    (kind.decode)(bytes).unwrap_or_else(|error| unreachable!("{error}"))
}

/// Makes the encoding of the object of this number.
type Encode<'a> = &'a dyn Fn(usize) -> Bytes;

/// Live bytes per cached object, its share of tables, indexes and pools included; the bytes it was decoded from are
/// gone by then.
pub(crate) fn print_memory() {
    println!("live heap bytes per cached object, {MANY} objects (encoded size in parentheses)");
    let pod = |at: usize| objects::pod(at / REPLICAS, at % REPLICAS, 1);
    let rows: [(&str, &'static Kind, Encode<'_>); 4] = [
        ("Pod, 50 per ReplicaSet", &kinds::PODS, &pod),
        ("ReplicaSet", &kinds::REPLICA_SETS, &objects::replica_set),
        ("Secret, metadata only", &SECRET_METADATA, &objects::secret),
        ("ConfigMap, same data", &kinds::CONFIG_MAPS, &objects::root_ca),
    ];
    for (name, kind, encode) in rows {
        let before = HEAP.allocated();
        let store = Store::new(kind);
        let mut encoded = 0;
        store.replace(
            (0..MANY)
                .map(|at| {
                    let bytes = encode(at);
                    encoded += bytes.len();
                    decode(kind, &bytes)
                })
                .collect(),
            "1",
        );
        let live = (HEAP.allocated() - before) / MANY;
        // As a running watch leaves it: every object replaced once more.
        for at in 0..MANY {
            store.upsert(&decode(kind, &encode(at)));
        }
        let later = (HEAP.allocated() - before) / MANY;
        println!(
            "  {name:<24} {live:>5} after the list, {later:>5} after as many events ({})",
            encoded / MANY
        );
    }
    println!("  shared: {:?}\n", intern_stats());
}

fn pod_store() -> (Store, Arc<AtomicU64>) {
    let store = Store::new(&kinds::PODS);
    let told = Arc::new(AtomicU64::new(0));
    for _ in 0..HANDLERS {
        let told = Arc::clone(&told);
        store.add_handler(
            "bench",
            Arc::new(move |delta| {
                let owned = delta.latest().is_some_and(|object| object.meta().controller().is_some());
                told.fetch_add(u64::from(owned), Ordering::Relaxed);
            }),
        );
    }
    store.replace(
        (0..MANY).map(|at| decode(&kinds::PODS, &objects::pod(at / REPLICAS, at % REPLICAS, 1))).collect(),
        "1",
    );
    (store, told)
}

/// Frames of changed pods.
fn frames() -> Vec<Bytes> {
    (0..MANY).map(|at| objects::frame("MODIFIED", &objects::pod(at / REPLICAS, at % REPLICAS, 2))).collect()
}

/// From a frame, which has just been received, to the last handler.
fn receive(store: &Store, frame: &Bytes) {
    let event = WatchFrame::decode(frame).unwrap_or_else(|error| unreachable!("{error}"));
    store.upsert(&decode(&kinds::PODS, &event.object));
}

/// So many changed pods received.
pub(crate) fn pod_events() -> impl FnMut() {
    let ((store, _told), frames) = (pod_store(), frames());
    let mut at = 0;
    move || {
        receive(&store, &frames[at % MANY]);
        at += 1;
    }
}

/// A changed pod.
#[divan::bench(sample_count = 2000, sample_size = 50)]
fn pod_event(bencher: divan::Bencher<'_, '_>) {
    let ((store, told), frames) = (pod_store(), frames());
    let mut next = frames.iter().cycle();
    let copied = || next.next().map(|frame| Bytes::copy_from_slice(frame)).unwrap_or_default();
    bencher
        .counter(ItemsCount::new(1_u32))
        .with_inputs(copied)
        .bench_local_values(|frame| receive(&store, &frame));
    assert!(told.load(Ordering::Relaxed) > 0);
}

/// Decoding alone.
#[divan::bench(sample_count = 50, sample_size = 2000)]
fn pod_decode(bencher: divan::Bencher<'_, '_>) {
    let bytes = objects::pod(3, 4, 1);
    bencher.counter(ItemsCount::new(1_u32)).bench_local(|| decode(&kinds::PODS, &bytes));
}

/// Decoding a kind that is rewritten, whose bytes are kept.
#[divan::bench(sample_count = 50, sample_size = 2000)]
fn replica_set_decode(bencher: divan::Bencher<'_, '_>) {
    let bytes = objects::replica_set(3);
    bencher.counter(ItemsCount::new(1_u32)).bench_local(|| decode(&kinds::REPLICA_SETS, &bytes));
}

/// A list of 5,000 pods of which none has changed, as after an expired watch.
#[divan::bench(sample_count = 20, sample_size = 1)]
fn relist_of_5000_unchanged(bencher: divan::Bencher<'_, '_>) {
    let (store, _told) = pod_store();
    let listed: Vec<Bytes> = (0..MANY).map(|at| objects::pod(at / REPLICAS, at % REPLICAS, 1)).collect();
    bencher.counter(ItemsCount::new(MANY)).bench_local(|| relist(&store, &listed, "2"));
}

/// A list of 5,000 pods all of which have changed.
#[divan::bench(sample_count = 20, sample_size = 1)]
fn relist_of_5000_changed(bencher: divan::Bencher<'_, '_>) {
    let (store, _told) = pod_store();
    let versions: Vec<Vec<Bytes>> = (2..4)
        .map(|version| (0..MANY).map(|at| objects::pod(at / REPLICAS, at % REPLICAS, version)).collect())
        .collect();
    let mut next = versions.iter().cycle();
    bencher.counter(ItemsCount::new(MANY)).bench_local(|| {
        if let Some(listed) = next.next() {
            relist(&store, listed, "2");
        }
    });
}

/// As the reflector does it: what is known already is not decoded.
fn relist(store: &Store, listed: &[Bytes], version: &str) {
    let known = |bytes: &Bytes| {
        let head = ObjectHead::read(bytes).ok()?;
        store
            .find(&head.namespace, &head.name)
            .filter(|held| held.meta().resource_version == *head.resource_version)
    };
    let objects =
        listed.iter().map(|bytes| known(bytes).unwrap_or_else(|| decode(&kinds::PODS, bytes))).collect();
    store.replace(objects, version);
}
