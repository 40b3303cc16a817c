//! A controller by itself: on stores that its caller fills, with a server that carries its plans out. For benchmarks of
//! rooms and for their tests.
//!
//! It starts no watch and asks no API server. What it stores is what a server would send: objects named, versioned and
//! decoded anew. It refuses what it cannot carry out, and checks no precondition.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use parking_lot::Mutex;

use super::descriptor::{Build, BuildError, BuildFn, Built, Loop};
use super::metrics::RoomMetrics;
use super::reads::{Pass, Read, Reads};
use super::room::{ObserveError, Reconcile};
use super::watch::CacheSource;
use crate::api::{Kind, Object};
use crate::client::ApiResources;
use crate::executor::Finishers;
use crate::informer::{Delta, Store};
use crate::model::Key;
use crate::model::plan::{Plan, Verb, Write};
use crate::options::Config;
use crate::telemetry::Registry;
use crate::wire::splice::{Edit, edit};
use crate::wire::{Message, ObjectHead, Str, WireError};
use crate::zones::Zones;

/// Reconciles after which an object that still has something to do is said never to settle.
const MOST_RECONCILES: usize = 100;

/// See the module.
#[derive(Debug)]
pub struct Rig {
    config: Config,
    stores: Mutex<Vec<Arc<Store>>>,
    version: AtomicU64,
    finishers: Finishers,
    resources: Option<ApiResources>,
    root_ca: Option<Str>,
}

/// What a rig cannot do.
#[derive(Debug, thiserror::Error)]
pub enum RigError {
    /// The room could not observe.
    #[error("{key}: {source}")]
    Observe {
        /// The key that was reconciled.
        key: Key,
        /// What the room said.
        source: ObserveError,
    },
    /// The room reads live: there is no server to read from.
    #[error("{0}: it needs live reads, which there are none of")]
    Live(Key),
    /// A write that this server does not know.
    #[error("{0}: not a write that can be carried out here")]
    Unknown(String),
    /// A body that is no object.
    #[error("{write}: {source}")]
    Malformed {
        /// The write.
        write: String,
        /// What is wrong with its body.
        source: WireError,
    },
    /// The last of many reconciles still wrote.
    #[error("{0}: it does not settle")]
    Unsettled(Key),
}

impl Rig {
    /// A rig without objects.
    pub fn new(config: Config) -> Self {
        Self {
            config,
            stores: Mutex::default(),
            version: AtomicU64::new(1),
            finishers: Finishers::default(),
            resources: None,
            root_ca: Some("a CA".into()),
        }
    }

    /// The same for a manager with this CA bundle.
    #[must_use]
    pub fn with_root_ca(self, root_ca: Option<Str>) -> Self {
        Self { root_ca, ..self }
    }

    /// The same for controllers that ask for these finishers.
    #[must_use]
    pub fn with_finishers(self, finishers: Finishers) -> Self {
        Self { finishers, ..self }
    }

    /// The same for controllers that ask which resources the API has: these.
    #[must_use]
    pub fn with_resources(self, resources: ApiResources) -> Self {
        Self { resources: Some(resources), ..self }
    }

    /// The store of this kind, made when it is asked for first. Field selectors select nothing here.
    pub fn store(&self, kind: &'static Kind) -> Arc<Store> {
        let mut stores = self.stores.lock();
        if let Some(store) = stores.iter().find(|store| store.kind() == kind) {
            return Arc::clone(store);
        }
        let store = Arc::new(Store::new(kind));
        // A list of nothing: from here on it has a version.
        store.replace(Vec::new(), "1");
        stores.push(Arc::clone(&store));
        store
    }

    /// Builds a controller on these stores.
    ///
    /// # Errors
    /// What the controller says.
    pub fn build(&self, build: BuildFn) -> Result<Built, BuildError> {
        build(&Build {
            config: &self.config,
            gate: &|gate| self.config.gates.enabled(gate),
            root_ca: self.root_ca.clone(),
            finishers: &self.finishers,
            zones: &Zones::bundled(),
            caches: CacheSource::new(&|kind, _| self.store(kind)),
            dynamic: &|_| Arc::default(),
            debug: &|_| {},
            metrics: &RoomMetrics::new(Registry::new()),
            discovered: self.resources.as_ref(),
        })
    }

    /// Stores an object as the server would send it.
    ///
    /// # Errors
    /// It cannot be decoded.
    pub fn add<T: Object + Message>(&self, kind: &'static Kind, object: &T) -> Result<(), WireError> {
        self.put(kind, &object.to_bytes().into())
    }

    /// Stores an encoded object.
    ///
    /// # Errors
    /// It cannot be decoded.
    pub fn put(&self, kind: &'static Kind, object: &Bytes) -> Result<(), WireError> {
        self.store(kind).upsert(&(kind.decode)(object)?);
        Ok(())
    }

    /// What the room plans for the key; `None` if there is nothing at it.
    ///
    /// # Errors
    /// It cannot observe, or needs live reads.
    pub fn plan(&self, room: &dyn Reconcile, key: &Key, now: Timestamp) -> Result<Option<Plan>, RigError> {
        let mut reads = Reads::default();
        loop {
            let pass = room.plan(key, &[], &reads, now);
            let needs = match pass.map_err(|source| RigError::Observe { key: key.clone(), source })? {
                Pass::Nothing => return Ok(None),
                Pass::Plan(plan, _) => return Ok(Some(plan)),
                Pass::Needs(needs) => needs,
            };
            for need in needs {
                // Parsing needs no server.
                let Read::Parsed(parser, input) = Read::from(need) else {
                    return Err(RigError::Live(key.clone()));
                };
                reads = reads.with_parsed(parser, input);
            }
        }
    }

    /// Reconciles until there is nothing left to do; how many writes it took.
    ///
    /// # Errors
    /// See [`RigError`].
    pub fn settle(&self, room: &dyn Reconcile, key: &Key, now: Timestamp) -> Result<usize, RigError> {
        let mut writes = 0;
        for _ in 0..MOST_RECONCILES {
            let Some(plan) = self.plan(room, key, now)? else { return Ok(writes) };
            if plan.is_empty() {
                return Ok(writes);
            }
            writes += self.perform(&plan)?;
        }
        Err(RigError::Unsettled(key.clone()))
    }

    /// Carries a plan out; how many writes it had. Live reads of a plan are taken to find what they expect.
    ///
    /// # Errors
    /// See [`RigError`].
    pub fn perform(&self, plan: &Plan) -> Result<usize, RigError> {
        let mut count = 0;
        for write in plan.writes() {
            self.carry_out(write)?;
            count += 1;
        }
        Ok(count)
    }

    fn carry_out(&self, write: &Write) -> Result<(), RigError> {
        let version = self.version.fetch_add(1, Ordering::Relaxed) + 1;
        let malformed = |source| RigError::Malformed { write: write.to_string(), source };
        match &write.verb {
            Verb::Create(body) => {
                let head = ObjectHead::read(body).map_err(malformed)?;
                let name = match &*head.name {
                    "" => format!("made-{version}"),
                    name => name.to_owned(),
                };
                self.stored(write.kind, body, version, Some(name)).map_err(malformed)
            }
            Verb::Update(body) => self.stored(write.kind, body, version, None).map_err(malformed),
            Verb::Delete { .. } => {
                self.store(write.kind).remove_key(&write.key, &version.to_string());
                Ok(())
            }
            Verb::UpdateLast(_)
            | Verb::UpdateFinished { .. }
            | Verb::Patch(_)
            | Verb::DeleteCollection { .. } => Err(RigError::Unknown(write.to_string())),
        }
    }

    fn stored(
        &self,
        kind: &'static Kind,
        body: &Bytes,
        version: u64,
        made: Option<String>,
    ) -> Result<(), WireError> {
        let mut edits = vec![Edit::SetBytes(&[1, 6], version.to_string().into_bytes())];
        if let Some(name) = made {
            edits.push(Edit::SetBytes(&[1, 5], format!("{name}-uid").into_bytes()));
            edits.push(Edit::SetBytes(&[1, 1], name.into_bytes()));
        }
        self.put(kind, &edit(body, &edits)?.into())
    }
}

/// How long each of a loop's wake-ups debounces a change, whatever it is of: for tests of rooms.
pub fn debounces(work: &Loop) -> Vec<Duration> {
    let delta = Delta { old: None, new: None, initial: false, resync: false };
    work.wake_ups.iter().map(|wake_up| wake_up.debounce.of(&delta)).collect()
}
