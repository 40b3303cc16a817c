//! A running controller: its informers, queues and workers, from start to stop.
//!
//! Everything that a controller holds hangs on its [`Instance`]: when that is gone, its tasks are joined, its handlers
//! are off the informers, and informers that nobody else uses have freed their memory.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::descriptor::{Build, BuildError, Built, Descriptor, Loop};
use super::expectations::Expectations;
use super::metrics::ReconcileMetrics;
use super::stats::LoopStats;
use super::worker::{Worker, panic_message};
use crate::api::Kind;
use crate::client::{ApiClient, ClientBuildError, ClientBuilder};
use crate::events::EventBroadcaster;
use crate::executor::{Executor, TokenSigner};
use crate::informer::{Delta, InformerHandle, Informers, Registration, Store};
use crate::model::Key;
use crate::model::clock::SharedClock;
use crate::options::Config;
use crate::queue::{QueueMetrics, WorkQueue};
use crate::wire::Str;

/// What all controllers are built from.
pub struct Runtime {
    /// The manager's configuration.
    pub config: Config,
    /// The shared informers.
    pub informers: Informers,
    /// Makes each controller's client.
    pub clients: ClientBuilder,
    /// Makes each controller's event recorder.
    pub events: EventBroadcaster,
    /// Reads with the manager's own identity.
    pub observer: ApiClient,
    /// The time.
    pub clock: SharedClock,
    /// Metrics of queues.
    pub queue_metrics: QueueMetrics,
    /// Metrics of reconciles.
    pub reconcile_metrics: ReconcileMetrics,
    /// Signs service-account tokens, when there is a key.
    pub signer: Option<Arc<dyn TokenSigner>>,
    /// The CA bundle to publish.
    pub root_ca: Option<Str>,
}

/// A controller that did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A flag stands against it.
    #[error("{0}")]
    Skipped(String),
    /// Its configuration is wrong.
    #[error("{0}")]
    Invalid(String),
    /// Its credentials can't be had (yet).
    #[error("no client: {0}")]
    Client(#[from] ClientBuildError),
    /// It was told to stop before its caches were filled.
    #[error("stopped before its caches were filled")]
    Stopped,
    /// There is no such controller yet.
    #[error("not implemented")]
    NotImplemented,
}

impl From<BuildError> for StartError {
    fn from(error: BuildError) -> Self {
        match error {
            BuildError::Skipped(why) => Self::Skipped(why),
            BuildError::Invalid(why) => Self::Invalid(why),
        }
    }
}

/// A running controller.
pub struct Instance {
    name: &'static str,
    loops: Vec<RunningLoop>,
    tasks: JoinSet<()>,
    registrations: Vec<Registration>,
    handles: Vec<InformerHandle>,
    panicked: watch::Sender<Option<String>>,
}

/// One loop of a running controller.
#[derive(Clone)]
pub struct RunningLoop {
    /// Its queue.
    pub queue: Arc<WorkQueue<Key>>,
    /// Its counts.
    pub stats: Arc<LoopStats>,
    /// Keys taken at the same time.
    pub workers: usize,
}

impl Instance {
    /// Builds the controller, fills its caches and starts its workers. `stop` ends the wait for caches.
    pub async fn start(
        descriptor: &'static Descriptor,
        runtime: &Runtime,
        stop: &CancellationToken,
    ) -> Result<Self, StartError> {
        let build = descriptor.build.ok_or(StartError::NotImplemented)?;
        let handles = Mutex::new(Handles { informers: &runtime.informers, held: Vec::new() });
        let Built { loops } = build(&Build {
            config: &runtime.config,
            gate: &|gate| runtime.config.gates.enabled(gate),
            root_ca: runtime.root_ca.clone(),
            can_sign_tokens: runtime.signer.is_some(),
            store: &|kind, selector| handles.lock().store(kind, selector),
        })?;
        let client = runtime.clients.for_controller(descriptor.name, descriptor.service_account)?;
        let mut executor =
            Executor::new(client.clone(), Arc::new(runtime.events.recorder(descriptor.name, client)));
        if let Some(signer) = &runtime.signer {
            executor = executor.with_signer(Arc::clone(signer));
        }

        let mut handles = handles.into_inner();
        let mut instance = Self {
            name: descriptor.name,
            loops: Vec::new(),
            tasks: JoinSet::new(),
            registrations: Vec::new(),
            handles: Vec::new(),
            panicked: watch::Sender::new(None),
        };
        let mut workers = Vec::new();
        for each in loops {
            workers.push((each.workers, instance.prepare(each, &mut handles, runtime, &executor)));
        }
        instance.handles = handles.held.into_iter().map(|(.., handle)| handle).collect();

        for handle in &instance.handles {
            tokio::select! {
                synced = handle.wait_synced() => synced.map_err(|_| StartError::Stopped)?,
                () = stop.cancelled() => return Err(StartError::Stopped),
            }
        }
        for (count, worker) in workers {
            for _ in 0..count {
                instance.tasks.spawn(Arc::clone(&worker).run());
            }
        }
        Ok(instance)
    }

    fn prepare(
        &mut self,
        each: Loop,
        handles: &mut Handles<'_>,
        runtime: &Runtime,
        executor: &Executor,
    ) -> Arc<Worker> {
        let queue = Arc::new(WorkQueue::new(each.queue, &runtime.queue_metrics));
        let stats = Arc::new(LoopStats::new(Arc::clone(&runtime.clock)));
        let mut read: Vec<Arc<Store>> = Vec::new();
        for watch in each.watches {
            let store = handles.store(watch.kind, watch.field_selector);
            if !read.iter().any(|held| Arc::ptr_eq(held, &store)) {
                read.push(store);
            }
            let (queue, keys) = (Arc::clone(&queue), watch.keys);
            let handler = move |delta: Delta<'_>| keys(delta, &mut |key| queue.add(key));
            self.registrations.push(
                handles.handle(watch.kind, watch.field_selector).add_handler(self.name, Arc::new(handler)),
            );
        }
        self.loops.push(RunningLoop {
            queue: Arc::clone(&queue),
            stats: Arc::clone(&stats),
            workers: each.workers,
        });
        Arc::new(Worker {
            controller: self.name,
            queue,
            reconcile: each.reconcile,
            executor: executor.clone(),
            expectations: Expectations::new(read),
            observer: runtime.observer.clone(),
            clock: Arc::clone(&runtime.clock),
            stats,
            metrics: runtime.reconcile_metrics.clone(),
            parked: Mutex::default(),
            panicked: self.panicked.clone(),
        })
    }

    /// Its loops.
    pub fn loops(&self) -> &[RunningLoop] {
        &self.loops
    }

    /// What it watches.
    pub fn informers(&self) -> &[InformerHandle] {
        &self.handles
    }

    /// Returns, with the reason, when a reconcile has panicked; never otherwise. The others go on until
    /// [`Instance::stop`].
    pub async fn failed(&mut self) -> String {
        let mut panicked = self.panicked.subscribe();
        let reported = async {
            match panicked.wait_for(Option::is_some).await.map(|said| said.clone()) {
                Ok(Some(message)) => message,
                _ => std::future::pending().await,
            }
        };
        // Reconciles are contained; this is for what goes wrong around them.
        let ended = async {
            loop {
                match self.tasks.join_next().await {
                    Some(Err(error)) if error.is_panic() => {
                        return panic_message(error.into_panic().as_ref());
                    }
                    Some(_) => {}
                    None => std::future::pending().await,
                }
            }
        };
        tokio::select! {
            message = reported => message,
            message = ended => message,
        }
    }

    /// Takes it off its informers, lets the reconciles in flight finish within `grace`, and ends the rest.
    pub async fn stop(mut self, grace: Duration) {
        self.registrations.clear();
        for each in &self.loops {
            each.queue.shut_down_now();
        }
        let drained = async { while self.tasks.join_next().await.is_some() {} };
        if tokio::time::timeout(grace, drained).await.is_err() {
            tracing::warn!(
                controller = self.name,
                ?grace,
                "reconciles in flight did not end in time, ending them"
            );
            self.tasks.shutdown().await;
        }
        for handle in self.handles {
            handle.release().await;
        }
    }
}

/// The informers that a controller under construction has asked for.
struct Handles<'a> {
    informers: &'a Informers,
    held: Vec<(&'static Kind, Option<&'static str>, InformerHandle)>,
}

impl Handles<'_> {
    fn handle(&mut self, kind: &'static Kind, selector: Option<&'static str>) -> &InformerHandle {
        let at = self.held.iter().position(|(held, by, _)| *held == kind && *by == selector);
        let at = at.unwrap_or_else(|| {
            self.held.push((kind, selector, self.informers.acquire(kind, selector)));
            self.held.len() - 1
        });
        &self.held[at].2
    }

    fn store(&mut self, kind: &'static Kind, selector: Option<&'static str>) -> Arc<Store> {
        Arc::clone(self.handle(kind, selector).store())
    }
}
