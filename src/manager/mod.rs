//! The manager: from a complete configuration to running controllers, and back to a clean end.
//!
//! ```text
//! clients ─► secure port ─► (elect) ─► wait for the API server ─► token controller ─► all others
//!                                                                                        │
//! exit ◄─ flush events ◄─ release the Lease ◄─ close the write gate ◄─ drain ◄── SIGTERM ┘
//! ```
//! It serves before it leads. Losing the Lease closes the write gate and ends the process, as in the original; a clean
//! stop drains what is in flight, releases the Lease and exits with success. It decides nothing about objects.

mod chronicle;
mod complete;
mod controller;
mod controllers;
mod error;
mod facade;
mod leadership;
mod overrides;
mod serving;
mod signals;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

pub use chronicle::{Chronicle, LeadershipChange};
pub use controller::{Controller, Phase, Wish, supervise};
pub use controllers::Controllers;
pub use error::ManagerError;

use crate::client::wait_for_api_server;
use crate::framework::Descriptor;
use crate::options::logging::SetVerbosity;
use crate::options::{Config, MigrationLock};
use complete::Completed;
use leadership::{Ended, Lock};
use overrides::OverridesWatch;

/// How long the API server may take to become ready once this replica leads.
const API_SERVER_WAIT: Duration = Duration::from_secs(10);
/// How long events may take to reach the API server at the end.
const EVENT_FLUSH: Duration = Duration::from_secs(2);

/// Runs the manager until a signal, or until leadership is lost.
pub async fn run(
    config: Config,
    registry: &'static [Descriptor],
    set_verbosity: SetVerbosity,
) -> Result<(), ManagerError> {
    let shutdown = CancellationToken::new();
    let mut background = JoinSet::new();
    background.spawn(signals::cancel_on_signal(shutdown.clone()));
    let manager = Arc::new(complete::complete(config, registry).await?);
    // The port outlives everything else, so that health and metrics can be read to the end.
    let serving = CancellationToken::new();
    let mut servers = JoinSet::new();
    for bound in serving::bind(&manager, &shutdown, set_verbosity).await? {
        servers.spawn(bound.run(serving.clone()));
    }
    let result = {
        let watch = manager.overrides.watch(&manager.runtime.informers);
        let stop = CancellationToken::new();
        let _ends_the_follower = stop.clone().drop_guard();
        tokio::select! {
            result = lead(&manager, &watch, &shutdown) => result,
            never = follow(&manager, &stop) => match never {},
        }
    };
    manager.runtime.events.shutdown(EVENT_FLUSH).await;
    manager.runtime.clients.shutdown().await;
    serving.cancel();
    servers.join_all().await;
    background.shutdown().await;
    result
}

/// What every replica does, leading or not: follows the overrides and the leadership, and drives the event log.
async fn follow(manager: &Completed, stop: &CancellationToken) -> Infallible {
    let tell = |change| manager.chronicle.leadership_changed(change);
    let main = async {
        if let Some(lock) = &manager.main_lock {
            lock.follow(tell).await;
        }
    };
    let migration = async {
        if let Some(migration) = &manager.migration {
            migration.lock.follow(tell).await;
        }
    };
    let overrides = manager.overrides.run(&manager.controllers, stop);
    tokio::join!(main, migration, overrides, manager.chronicle.log().run(stop.clone()));
    std::future::pending().await
}

/// Stands for election, if there is one, and runs the controllers while it leads.
async fn lead(
    manager: &Completed,
    overrides: &OverridesWatch,
    shutdown: &CancellationToken,
) -> Result<(), ManagerError> {
    let Some(main) = &manager.main_lock else {
        return under_lock(manager, overrides, None, shutdown, |_| true).await;
    };
    if !main.acquire(shutdown).await {
        return Ok(());
    }
    let Some(migration) = &manager.migration else {
        return under_lock(manager, overrides, Some(main), shutdown, |_| true).await;
    };
    let stays = |controller: &Controller| migration.lock_of(controller) == MigrationLock::Main;
    let moves = |controller: &Controller| migration.lock_of(controller) == MigrationLock::Migration;
    // Whichever lock is lost first, the other ends with it.
    let both = shutdown.child_token();
    let first = async {
        let _ends_the_other = both.clone().drop_guard();
        under_lock(manager, overrides, Some(main), &both, stays).await
    };
    let second = async {
        let _ends_the_other = both.clone().drop_guard();
        if !manager.controllers.token_controller_started(&both).await {
            return Ok(());
        }
        if !migration.lock.acquire(&both).await {
            return Ok(());
        }
        under_lock(manager, overrides, Some(&migration.lock), &both, moves).await
    };
    let (first, second) = tokio::join!(first, second);
    first.and(second)
}

/// Runs the controllers that `here` selects until the manager stops or the lock is lost.
async fn under_lock(
    manager: &Completed,
    overrides: &OverridesWatch,
    lock: Option<&Lock>,
    shutdown: &CancellationToken,
    here: impl Fn(&Controller) -> bool + Sync,
) -> Result<(), ManagerError> {
    let stop = shutdown.child_token();
    let controllers = async {
        wait_for_api_server(&manager.runtime.observer, API_SERVER_WAIT).await?;
        overrides.first_look().await;
        manager.controllers.apply(&manager.overrides.set(), manager.chronicle.now());
        manager.controllers.start(&here, &stop).await;
        Ok::<_, ManagerError>(())
    };
    let mut ended = Ended::Stopped;
    let mut result = Ok(());
    match lock {
        None => {
            result = controllers.await;
            if result.is_ok() {
                stop.cancelled().await;
            }
        }
        Some(lock) => {
            manager.runtime.clients.gate().guard(lock.guard());
            let held = async { lock.hold(&stop).await };
            let mut held = std::pin::pin!(held);
            tokio::select! {
                lost = &mut held => ended = lost,
                started = controllers => match started {
                    Ok(()) => ended = held.await,
                    Err(error) => result = Err(error),
                },
            }
        }
    }
    if ended == Ended::Lost {
        // Another replica may lead by now: nothing more may be written, not even to finish what is in flight.
        manager.runtime.clients.gate().close();
        stop.cancel();
        return Err(ManagerError::LeadershipLost);
    }
    stop.cancel();
    manager.drain().await;
    if let Some(lock) = lock {
        lock.release().await;
    }
    result
}
