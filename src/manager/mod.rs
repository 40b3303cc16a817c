//! The manager: from a complete configuration to running controllers, and back to a clean end.
//!
//! ```text
//! clients ─► secure port ─► (elect) ─► wait for the API server ─► token controller ─► all others
//!                                                                                        │
//! exit ◄─ flush events ◄─ release the Lease ◄─ close the write gate ◄─ drain ◄── SIGTERM ┘
//! ```
//! It serves before it leads. Losing the Lease closes the write gate and ends the process, as in the original; a clean
//! stop drains what is in flight, releases the Lease and exits with success. Leadership can also be given up while the
//! process goes on (`terms`). Elections have a thread of their own, so that nothing here delays a renewal. Leaders and standbys alike announce themselves to each other (`replicas`). It decides
//! nothing about objects.

mod clock_offset;
mod complete;
mod controller;
mod controllers;
mod directories;
mod error;
mod event_logger;
mod facade;
mod hand_edits;
mod health;
mod leadership;
mod lease_policy;
mod node_cidrs;
mod overrides;
mod replicas;
mod serving;
mod signals;
mod signing;
mod step_down;
mod terms;
#[cfg(test)]
mod tests;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

pub use controller::{Controller, Phase, Wish, supervise};
pub use controllers::Controllers;
pub use error::ManagerError;
pub use event_logger::{EventLogger, LeadershipChange};
pub use leadership::Leases;
pub use replicas::{
    ADMIN_ADDRESS_ANNOTATION, ADMIN_CA_ANNOTATION, Announcement, LEASE_ANNOTATION, REPLICA_NAME_PREFIX,
    REPLICA_NAMESPACE, REPLICA_SELECTOR, Replicas, SELECTION_ANNOTATION, VERSION_ANNOTATION,
};
pub use step_down::StepDown;

use crate::admin::overrides::HandEdit;
use complete::Completed;
use coxswain_machinery::environment::{Environment, Threads};
use coxswain_machinery::framework::Descriptor;
use coxswain_machinery::model::plan::EventSpec;
use coxswain_machinery::options::logging::SetVerbosity;
use coxswain_machinery::options::{Config, MigrationLock};
use coxswain_machinery::telemetry::tracing::Tracing;
use hand_edits::HandEdits;
use terms::{Terms, Work as _};

/// How long events may take to reach the API server at the end.
const EVENT_FLUSH: Duration = Duration::from_secs(2);
/// How long the last spans, and the last metrics, may take to reach their collector at the end.
const TRACE_FLUSH: Duration = Duration::from_secs(2);

/// As the thread of elections is called.
const ELECTION_THREAD: &str = "coxswain-elect";

/// Runs the manager until a signal, or until leadership is lost.
pub async fn run(
    config: Config,
    registry: &'static [Descriptor],
    set_verbosity: SetVerbosity,
    traces: Option<Tracing>,
    environment: Environment,
) -> Result<(), ManagerError> {
    let shutdown = CancellationToken::new();
    let mut signals = JoinSet::new();
    signals.spawn(signals::cancel_on_signal(shutdown.clone()));
    let result = Box::pin(run_until(shutdown, config, registry, set_verbosity, traces, environment)).await;
    signals.shutdown().await;
    result
}

/// Runs the manager until `shutdown`, or until leadership is lost. It takes no signals.
pub async fn run_until(
    shutdown: CancellationToken,
    config: Config,
    registry: &'static [Descriptor],
    set_verbosity: SetVerbosity,
    traces: Option<Tracing>,
    environment: Environment,
) -> Result<(), ManagerError> {
    let mut background = JoinSet::new();
    let threads = environment.threads;
    let election = threads.one(ELECTION_THREAD).map_err(ManagerError::Threads)?;
    let manager = complete::complete(config, registry, environment, election.handle());
    let manager = Arc::new(Box::pin(manager.instrument(tracing::debug_span!("start"))).await?);
    manager.port_metrics.runtimes.watch("election", election.handle().clone());
    // The port outlives everything else, so that health and metrics can be read to the end.
    let serving = CancellationToken::new();
    let ports = serving::threads(threads)?;
    manager.port_metrics.runtimes.watch("serve", ports.handle().clone());
    let traces = traces.map(|traces| manager.start_tracing(traces, ports.handle())).transpose()?;
    let pushing = manager.start_pushing(ports.handle())?;
    let mut servers = JoinSet::new();
    let bound = serving::bind(&manager, &shutdown, set_verbosity).await?;
    manager.replicas.announce(bound.announcement.clone());
    background.spawn_on(bound.keep_announced(Arc::clone(&manager.replicas)), ports.handle());
    for server in bound.servers {
        servers.spawn_on(server.run(serving.clone()), ports.handle());
    }
    let event_logger = Arc::clone(&manager.event_logger);
    background.spawn_on(async move { event_logger.log().run().await }, ports.handle());
    if threads == Threads::Own {
        background.spawn_on(manager.runtime.watchdog.clone().run(), ports.handle());
    }
    let withdraw = CancellationToken::new();
    let mut announcing = JoinSet::new();
    let replicas = Arc::clone(&manager.replicas);
    announcing.spawn(replicas.run(manager.runtime.informers.clone(), withdraw.clone()));
    let result = tokio::select! {
        biased;
        result = lead(&manager, &shutdown) => result,
        never = follow(&manager) => match never {},
    };
    withdraw.cancel();
    // From here on the admin API begins no mutation.
    shutdown.cancel();
    // Before the credentials go by which its Lease is deleted.
    manager.mutations.close();
    let mutations = tokio::time::timeout(EVENT_FLUSH, manager.mutations.wait());
    let (_, _, mutations) =
        tokio::join!(manager.runtime.events.shutdown(EVENT_FLUSH), announcing.join_all(), mutations);
    if mutations.is_err() {
        tracing::warn!(
            in_progress = manager.mutations.len(),
            "Admin API changes did not complete before shutdown"
        );
    }
    manager.runtime.clients.shutdown().await;
    serving.cancel();
    servers.join_all().await;
    background.shutdown().await;
    let flush_traces = async {
        if let Some(traces) = traces {
            traces.shutdown(TRACE_FLUSH).await;
        }
    };
    let flush_metrics = async {
        if let Some(pushing) = pushing {
            pushing.shutdown(TRACE_FLUSH).await;
        }
    };
    tokio::join!(flush_traces, flush_metrics);
    election.join().await;
    result
}

/// What every replica does, leading or not: follows the overrides, the leadership, the policy of its Leases, the other replicas and the
/// files of authorities, and forgets again and again which resources there are.
async fn follow(manager: &Completed) -> Infallible {
    let tell = |change| manager.event_logger.leadership_changed(change);
    let others = async {
        let mut changes = manager.replicas.changes();
        while changes.changed().await.is_ok() {
            manager.event_logger.changed();
        }
    };
    let edits = HandEdits::default();
    let announce = |found: Vec<HandEdit>| {
        if manager.leases.is_leading() {
            edits.add(found);
        }
    };
    let told = edits.tell(|message| {
        let regarding = manager.overrides.lease();
        manager.journal.write(EventSpec { regarding, warning: true, reason: "OverrideByHand", message })
    });
    let (informers, controllers) = (&manager.runtime.informers, &manager.controllers);
    let overrides = manager.overrides.run(informers, controllers, &manager.port_metrics.admin, &announce);
    let resources = manager.runtime.discovery.reset_periodically();
    let authorities = manager.authorities.keep_current();
    // Boxed, because it holds a whole list request, and everything here is a part of the manager's future.
    let node_cidrs = Box::pin(async {
        if let Some(main) = &manager.main_lock
            && node_cidrs::is_without_allocation(&manager.runtime.config)
        {
            let leadership = main.elector.leadership();
            node_cidrs::warn_at_takeover(leadership, &manager.runtime.observer, &manager.health).await;
        }
    });
    // Boxed for the same reason.
    let lease_policy = Box::pin(manager.lease_policy.follow(
        manager.main_lock.as_ref().map(|main| main.elector.leadership()),
        &manager.runtime.observer,
        &manager.health,
        || manager.event_logger.changed(),
    ));
    let clock_offset =
        manager.clock_offset.follow(|| manager.client_metrics.server_time(), &*manager.runtime.clock);
    tokio::join!(
        manager.leases.follow(tell),
        others,
        overrides,
        told,
        resources,
        authorities,
        node_cidrs,
        lease_policy,
        clock_offset
    );
    std::future::pending().await
}

/// Stands for election, if there is one, and runs the controllers while it leads.
async fn lead(manager: &Completed, shutdown: &CancellationToken) -> Result<(), ManagerError> {
    let mut requests = manager.requests.lock().await;
    let result = match &manager.main_lock {
        None => requests.refuse_while(without_election(manager, shutdown)).await,
        Some(main) => {
            let second = manager.migration.as_ref().map(|migration| &migration.lock);
            Terms { work: manager, main, second }.run(&mut requests, shutdown).await
        }
    };
    requests.close();
    result
}

async fn without_election(manager: &Completed, shutdown: &CancellationToken) -> Result<(), ManagerError> {
    let stop = shutdown.child_token();
    let result = manager.start(MigrationLock::Main, &stop).await;
    if result.is_ok() {
        stop.cancelled().await;
    }
    stop.cancel();
    let drained = terms::drain(manager, manager.shutdown_timeout()).await;
    result.and(drained)
}
