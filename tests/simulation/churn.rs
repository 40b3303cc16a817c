//! Objects, owners, namespaces and kinds under ever new names leave nothing behind in the manager's memory.
//!
//! Waves of objects are created and deleted under all controllers, in virtual time. Live heap bytes are compared at moments at which
//! the cluster is empty again, so this test needs no list of the maps: a map that keeps an entry for each name increases the sum.
//! The measurement has a process of its own, because the allocator counts for the whole process.
//!
//! Bytes that grow without a leak are bounded, subtracted or removed:
//! - Memories with a fixed size (events, absent owners, series of metrics, the event log, entries that are swept later) have a small size
//!   in this process ([`limit_memories`]). The first parts of the names, which are not measured, fill them.
//! - All waves have the same objects under other names of the same length, so buffers and hash tables reach the size of a wave in the
//!   first parts. A table that doubles later is one step; [`growth::Growth`] ignores single steps.
//! - Interned strings are swept before each moment. Delays end first, except those of decades, which must end with their objects.
//! - The simulated API server forgets its history, its counts and its trace. Events are deleted, as if they had expired.
//! - Rows of custom kinds live as long as the process (`api::dynamic`). Their bytes are subtracted.
//! - Nothing records spans, and no log is kept.

use std::alloc::System;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use cap::Cap;
use jiff::Timestamp;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use coxswain_machinery::api::Kind;
use coxswain_machinery::bounds::limit_memories;
use coxswain_machinery::environment::Environment;
use coxswain_machinery::wire::sweep_interned;

use crate::actors;
use crate::faults::Faults;
use crate::fleet::until;
use crate::managers::manager;
use crate::run::{EPOCH, in_virtual_time};
use crate::server::Server;
use crate::trace::Trace;
use apiserver_model::{Deletion, Model, Place};
use growth::Growth;
use sorts::{SORTS, Sort, Work};

mod growth;
mod sorts;

#[global_allocator]
static HEAP: Cap<System> = Cap::new(System, usize::MAX);

const FLAGS: &[&str] = &[
    "--leader-elect=false",
    // There is no CA: it would publish an empty bundle.
    "--controllers=*,token-cleaner-controller,-root-ca-certificate-publisher-controller",
    "--kube-api-qps=5000",
    "--kube-api-burst=5000",
    "--feature-gates=MaxUnavailableStatefulSet=true",
];
/// Names of the soak in `make unit`.
const FEW: usize = 6_000;
/// Minimum number of names per wave.
const WAVE: usize = 350;
/// Minimum number of objects with names per part, with which the planted leak shows.
const FEWEST: usize = 375;
/// Rounds through all sorts in which each is used at least once.
const ROUNDS: usize = 7;
/// Entries of each memory with a fixed size.
const REMEMBERED: usize = 8;
/// Parts of the names. The first ones fill memories, the next ones are measured, and a leak is planted in the last ones.
const PARTS: usize = 16;
const WARM: usize = 5;
const LEAKING: usize = 4;
/// The time until every wait has ended: the longest backoff is 17 minutes, and objects of a removed kind stay for ten.
const DRAIN: Duration = Duration::from_mins(40);

/// The cluster, and the number of names that were used.
struct Churn {
    server: Arc<Server>,
    sorts: Vec<&'static Sort>,
    /// The number of names so far, including those that [`Sort::every`] skips.
    names: usize,
    /// The names that the planted leak keeps.
    leak: Vec<String>,
    /// Whether the leak is planted in this part.
    leaks: bool,
    /// Bytes of the rows of custom kinds. A row lives as long as the process, as `api::dynamic` describes.
    rows: i64,
}

impl Churn {
    /// Uses names in waves, and returns the live heap bytes when nothing is left of them.
    async fn part(&mut self, waves: usize) -> i64 {
        for _ in 0..waves {
            self.wave(wave_of(&self.sorts)).await;
        }
        sleep(DRAIN).await;
        self.expire_events();
        // Watches deliver the deletions.
        sleep(Duration::from_secs(30)).await;
        self.server.forget_past();
        sweep_interned();
        HEAP.allocated() as i64 - self.rows
    }

    /// Creates objects under new names, deletes them, and waits until nothing is left.
    async fn wave(&mut self, names: usize) {
        let at_rest = self.server.with(|model| objects(model));
        let (mut made, mut kinds) = (Vec::new(), Vec::new());
        for _ in 0..names {
            let number = self.names;
            self.names += 1;
            let sort = self.sorts[number % self.sorts.len()];
            let round = number / self.sorts.len();
            if !round.is_multiple_of(sort.every) {
                continue;
            }
            // Names of one length take the same bytes.
            let name = format!("name-{number:08}");
            let before = HEAP.allocated() as i64;
            // Every second custom kind is cluster-scoped.
            let kind = sort.is_kind.then(|| custom_kind(&name, (round / sort.every).is_multiple_of(2)));
            self.rows += kind.map_or(0, |_| HEAP.allocated() as i64 - before);
            self.server.with(|model| {
                if let Some(kind) = kind {
                    model.define(kind);
                }
                (sort.make)(&mut Work { model, made: &mut made, kind }, &name);
            });
            kinds.extend(kind);
            if self.leaks {
                self.leak.push(name);
            }
            if number.is_multiple_of(20) {
                sleep(Duration::from_millis(100)).await;
            }
        }
        // Discovery shows new kinds within 30 seconds.
        sleep(Duration::from_secs(40)).await;
        for place in made {
            let how = Deletion { grace: Some(0), ..Deletion::default() };
            // The garbage collector, another collector or the namespace controller may have deleted the object before.
            self.server.with(|model| drop(model.delete("user", &place, &how)));
        }
        for kind in kinds {
            self.server.with(|model| model.undefine(kind));
        }
        let is_empty = |server: &Server| {
            end_pods(server);
            server.with(|model| objects(model)) == at_rest
        };
        until(&self.server, Duration::from_mins(30), "everything is deleted", is_empty).await;
        self.expire_events();
        self.server.forget_past();
    }

    fn expire_events(&self) {
        self.server.with(|model| {
            let all: Vec<Place> = model.all("events", "").map(|held| held.place.clone()).collect();
            for place in all {
                drop(model.delete("server", &place, &Deletion::default()));
            }
        });
    }
}

/// Returns the number of names of a wave: each wave has the same number of each sort.
fn wave_of(sorts: &[&Sort]) -> usize {
    WAVE.next_multiple_of(sorts.len() * ROUNDS)
}

/// Returns how many of the `wave` names of a wave are used.
fn used_of(sorts: &[&Sort], wave: usize) -> usize {
    sorts.iter().map(|sort| wave / sorts.len() / sort.every).sum()
}

/// Returns the row of a custom kind with `name` in its names.
fn custom_kind(name: &str, namespaced: bool) -> &'static Kind {
    let (kind, plural) = (format!("Kind-{name}"), format!("{name}s"));
    coxswain_machinery::api::dynamic::kind("example.com", "v1", &kind, &plural, namespaced)
}

/// Returns the number of objects without Events, which expire.
fn objects(model: &Model) -> usize {
    model.everything().filter(|held| held.place.resource != "events").count()
}

/// Deletes terminating pods for good, as kubelets do.
fn end_pods(server: &Server) {
    server.with(|model| {
        let ends =
            |pod: &&Arc<apiserver_model::Stored>| pod.json["metadata"]["deletionTimestamp"].is_string();
        let pods: Vec<Place> = model.all("pods", "").filter(ends).map(|pod| pod.place.clone()).collect();
        for place in pods {
            let how = Deletion { grace: Some(0), ..Deletion::default() };
            drop(model.delete("kubelet", &place, &how));
        }
    });
}

/// Returns the live heap bytes after each part of `waves` waves, from the last part that fills memories on.
async fn measure(server: &Arc<Server>, waves: usize, sorts: Vec<&'static Sort>) -> Vec<i64> {
    let mut churn =
        Churn { server: Arc::clone(server), sorts, names: 0, leak: Vec::new(), leaks: false, rows: 0 };
    // The manager creates the objects of the first namespaces.
    sleep(Duration::from_mins(2)).await;
    let mut held = Vec::new();
    for part in 0..PARTS {
        churn.leaks = part >= PARTS - LEAKING;
        let bytes = churn.part(waves).await;
        let planted = if churn.leaks { ", with a planted leak" } else { "" };
        println!("{} names: {bytes} bytes{planted}", churn.names);
        if part + 1 >= WARM {
            held.push(bytes);
        }
    }
    held
}

#[test]
#[ignore = "memory_does_not_grow_with_names and make soak run it, alone in a process"]
fn soak() {
    let names = std::env::var("NAMES").ok().and_then(|names| names.parse().ok()).unwrap_or(FEW);
    let only = std::env::var("ONLY").unwrap_or_default();
    let sorts: Vec<&Sort> = SORTS.iter().filter(|sort| sort.name.contains(&only)).collect();
    assert!(!sorts.is_empty(), "there is no sort of this name");
    limit_memories(REMEMBERED);
    let wave = wave_of(&sorts);
    let used = used_of(&sorts, wave);
    let waves = (names / PARTS / wave).max(FEWEST.div_ceil(used));
    let held = in_virtual_time(1, move || async move {
        let epoch = Timestamp::from_second(EPOCH).expect("a time");
        let server = Server::new(epoch, 1, Faults::outages(), Trace::new(false), None);
        server.checks(|checks| checks.is_off = true);
        let environment = Environment::simulated(
            server.now(),
            server.service(1, CancellationToken::new(), &Arc::default()),
        );
        tokio::select! {
            biased;
            held = measure(&server, waves, sorts) => held,
            ended = manager(FLAGS, CancellationToken::new(), environment) => panic!("the manager has ended: {ended:?}"),
            () = actors::bookmarks(Arc::clone(&server)) => panic!("bookmarks never end"),
        }
    });
    let (sound, leaking) = held.split_at(held.len() - LEAKING);
    let growth = Growth::of(sound, waves * used);
    let planted = Growth::of(&[&sound[sound.len() - 1..], leaking].concat(), waves * used);
    println!("{growth}\nwith a planted leak: {planted}");
    assert!(!growth.is_a_leak(), "memory grows with names: {growth}");
    assert!(planted.is_steady(), "the planted leak of a string for each name does not show: {planted}");
}

/// Runs [`soak`] in a process of its own, in which no other test allocates.
#[test]
fn memory_does_not_grow_with_names() {
    let itself = std::env::current_exe().expect("the path of this test");
    let soak = Command::new(itself).args(["--ignored", "--exact", "--nocapture", "churn::soak"]).output();
    let soak = soak.expect("it runs");
    let output = String::from_utf8_lossy(&soak.stdout);
    println!("{output}");
    let errors = String::from_utf8_lossy(&soak.stderr);
    assert!(soak.status.success() && output.contains("1 passed"), "{output}\n{errors}");
}
