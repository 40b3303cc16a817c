//! Terms: from the acquisition of leadership to its end, again and again.
//!
//! ```text
//! stand for election ─► gate open ─► controllers ─┬─ SIGTERM ──► drain ─► gate closed ─► release ─► exit
//!        ▲                                        ├─ step down ► drain ─► gate closed ─► hand over ─┐
//!        ▲                                        ├─ give way ─► drain ─► gate closed ─► hand over ─┤
//!        │                                        └─ lost ─────► gate closed ─► exit                │
//!        └──────────────────────────────── behind the others ───────────────────────────────────────┘
//! ```
//! Without a limit (`--controller-shutdown-timeout=0`) the process waits after SIGTERM for reconciles and writes as long as they take, also
//! if the signal arrives during a step-down. kube-controller-manager waits only with the feature gate
//! `ControllerManagerReleaseLeaderElectionLockOnExit`, which is off by default. A replica that steps down or gives way waits
//! [`STEP_DOWN_LIMIT`] at most: no controllers run meanwhile, and no other replica can lead. Reconciles without a limit of their own may
//! still run then, so the process ends with an error instead of beginning another term, into which they could run.
//! Differs: shutdown-without-limit. Differs: step-down-limit.
//!
//! The Leases are renewed until everything is drained, so that reconciles in flight may still write. A write that has no answer at
//! the limit of `--controller-shutdown-timeout` is cut off before a Lease is given up, and SIGTERM then ends the process with an
//! error. The limit, or that there is none, is of no account when a Lease is lost: its loss cuts off all writes at once. With leader migration
//! there are two; whichever is lost first, the other ends with it, and the second is never held without the first.

use std::future::pending;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::error::ManagerError;
use super::leadership::{Lock, TermEnd};
use super::step_down::{Request, Requests};
use crate::admin::manager::StepDownError;
use coxswain_machinery::client::WriteGate;
use coxswain_machinery::election::LeaseApi;
use coxswain_machinery::framework::Stop;
use coxswain_machinery::options::MigrationLock;

/// The time that reconciles and writes without a limit of their own have to end when a term ends without SIGTERM. A caller of
/// `StepDown` waits longer.
const STEP_DOWN_LIMIT: Duration = Duration::from_mins(2);

/// What is done while this replica leads.
pub(super) trait Work: Sync {
    /// The gate that the work's writes go through.
    fn gate(&self) -> &WriteGate;

    /// Starts the controllers that run under this lock; ends early, and well, at `stop`, which also ends the controllers.
    fn start(
        &self,
        under: MigrationLock,
        stop: &CancellationToken,
    ) -> impl Future<Output = Result<(), ManagerError>> + Send;

    /// Returns once the second lock may be stood for; `false` at `stop`.
    fn may_go_second(&self, stop: &CancellationToken) -> impl Future<Output = bool> + Send;

    /// How long controllers and writes may take to end; `None` for no limit.
    fn shutdown_timeout(&self) -> Option<Duration>;

    /// Returns when all controllers have ended that were told to, with whether their reconciles have returned.
    fn stopped(&self) -> impl Future<Output = Stop> + Send;

    /// Everything has ended: the controllers wait for the next term.
    fn stand_by(&self);
}

/// Waits for the controllers to end, then for the writes in flight, all within a limit. Writes without an answer are cut off when this
/// returns.
///
/// # Errors
/// [`ManagerError::ShutdownTimeout`] if reconciles or writes were cut off.
pub(super) async fn drain(work: &impl Work, limit: Option<Duration>) -> Result<(), ManagerError> {
    drain_until(work, async {
        match limit {
            Some(limit) => sleep(limit).await,
            None => pending().await,
        }
    })
    .await
}

/// Does the same as [`drain`]; the limit is reached when the future `limit` completes.
async fn drain_until(work: &impl Work, limit: impl Future<Output = ()>) -> Result<(), ManagerError> {
    let gate = work.gate();
    let ended = async {
        let stop = work.stopped().await;
        gate.close();
        gate.drained().await;
        stop
    };
    let in_time = tokio::select! {
        biased;
        stop = ended => stop == Stop::Finished,
        () = limit => false,
    };
    if !in_time {
        tracing::warn!("Reconciles or writes did not complete before the shutdown timeout");
    }
    gate.close();
    // Also when everything has ended in time: a request whose caller is gone may still be in a send buffer.
    gate.cut();
    work.stand_by();
    if in_time { Ok(()) } else { Err(ManagerError::ShutdownTimeout) }
}

/// Leadership under one lock, or two.
pub(super) struct Terms<'a, W, L> {
    pub(super) work: &'a W,
    pub(super) main: &'a Lock<L>,
    pub(super) second: Option<&'a Lock<L>>,
}

/// One term.
struct Term {
    /// Ends the controllers, and standing for the second lock.
    stop: CancellationToken,
    /// Ends the renewing.
    drained: CancellationToken,
    /// Why the controllers could not be started.
    failure: Mutex<Option<ManagerError>>,
}

/// How a term ended, if the Lease was ours to the end.
#[derive(Debug)]
enum Over {
    Stopped,
    SteppedDown(Request),
    /// The API server prefers another replica.
    GaveWay,
}

/// A term that was not lost, and whether its reconciles may still run.
struct Ended {
    over: Over,
    has_leftovers: bool,
}

impl<W: Work, L: LeaseApi> Terms<'_, W, L> {
    /// Stands for election and leads, until `shutdown` (success), or until leadership is lost.
    pub(super) async fn run(
        &self,
        requests: &mut Requests,
        shutdown: &CancellationToken,
    ) -> Result<(), ManagerError> {
        // Nothing is written before there is a Lease to write under.
        self.work.gate().close();
        let _standing: Vec<_> = self.locks().map(|lock| lock.stand(shutdown)).collect();
        while !shutdown.is_cancelled() {
            if !requests.refuse_while(self.main.acquire(shutdown)).await? {
                return Ok(());
            }
            let Ended { over, has_leftovers } = self.term(requests, shutdown).await?;
            match over {
                Over::Stopped => return Ok(()),
                Over::SteppedDown(request) => {
                    let done = self.hand_over(request.successor.as_deref()).await;
                    request.answer(done);
                }
                // A Lease that could not be given up expires, for nobody renews it.
                Over::GaveWay => drop(self.hand_over(None).await),
            }
            if has_leftovers {
                tracing::error!(
                    limit = ?STEP_DOWN_LIMIT,
                    flag = "--controller-shutdown-timeout",
                    "Reconciles did not complete and have no timeout; exiting instead of becoming a standby"
                );
                return Err(ManagerError::ShutdownTimeout);
            }
        }
        Ok(())
    }

    /// Leads until there is a reason to end; the Leases are still held when it ended by request.
    async fn term(
        &self,
        requests: &mut Requests,
        shutdown: &CancellationToken,
    ) -> Result<Ended, ManagerError> {
        let stopped = || Ended { over: Over::Stopped, has_leftovers: false };
        let term = Term {
            stop: shutdown.child_token(),
            drained: CancellationToken::new(),
            failure: Mutex::default(),
        };
        self.work.gate().reopen(self.main.guard());
        let leading =
            async { tokio::try_join!(self.under(self.main, MigrationLock::Main, &term), self.second(&term)) };
        let ending = async {
            let over = tokio::select! {
                biased;
                () = term.stop.cancelled() => Over::Stopped,
                request = requests.next() => {
                    tracing::info!(successor = request.successor, "Stepping down");
                    Over::SteppedDown(request)
                }
                () = self.main.until_asked_to_give_way() => {
                    tracing::info!("Releasing the Lease to the replica preferred by the API server");
                    Over::GaveWay
                }
            };
            term.stop.cancel();
            let limit = async {
                if let Some(limit) = self.work.shutdown_timeout() {
                    return sleep(limit).await;
                }
                sleep(STEP_DOWN_LIMIT).await;
                // After SIGTERM the kubelet or a user kills a process that does not end; after a step-down nobody does.
                if shutdown.is_cancelled() {
                    pending::<()>().await;
                }
            };
            let drained = drain_until(self.work, limit).await;
            term.drained.cancel();
            Ok::<_, ManagerError>((over, drained))
        };
        let (over, drained) = match tokio::try_join!(leading, ending) {
            Ok((_, ended)) => ended,
            Err(lost) => {
                // Another replica may lead by now: nothing more may be written, not even to finish what is in flight. A
                // lock that is lost has seen to that, and this waits for nothing of the kind.
                self.work.gate().close();
                self.work.gate().cut();
                term.stop.cancel();
                return if shutdown.is_cancelled() { Ok(stopped()) } else { Err(lost) };
            }
        };
        let failure = term.failure.into_inner();
        if failure.is_some() || matches!(over, Over::Stopped) {
            for lock in self.locks() {
                lock.release().await;
            }
        }
        match failure {
            Some(failure) => Err(failure),
            None if matches!(over, Over::Stopped) => drained.map(|()| stopped()),
            // The process continues as a standby, although `drained` may be an error: reconciles with a limit were aborted at it.
            None => {
                let has_leftovers = drained.is_err() && self.work.shutdown_timeout().is_none();
                Ok(Ended { over, has_leftovers })
            }
        }
    }

    /// Starts what runs under a lock and renews it until all is drained.
    async fn under(&self, lock: &Lock<L>, which: MigrationLock, term: &Term) -> Result<(), ManagerError> {
        let mut held = std::pin::pin!(lock.hold(&term.drained, self.work.gate()));
        let ended = tokio::select! {
            biased;
            ended = &mut held => ended,
            started = self.work.start(which, &term.stop) => {
                if let Err(error) = started {
                    *term.failure.lock() = Some(error);
                    term.stop.cancel();
                }
                held.await
            }
        };
        match ended {
            TermEnd::Stopped => Ok(()),
            TermEnd::Lost => Err(ManagerError::LeadershipLost),
        }
    }

    async fn second(&self, term: &Term) -> Result<(), ManagerError> {
        let Some(second) = self.second else { return Ok(()) };
        if !self.work.may_go_second(&term.stop).await || !second.acquire(&term.stop).await? {
            return Ok(());
        }
        self.work.gate().guard(second.guard());
        self.under(second, MigrationLock::Migration, term).await
    }

    /// Gives up all that is held; the first failure, but only after all were tried.
    async fn hand_over(&self, successor: Option<&str>) -> Result<(), StepDownError> {
        let mut result = Ok(());
        for lock in self.locks() {
            let done = lock.hand_over(successor).await;
            result = result.and(done);
        }
        result
    }

    /// In the order in which they are given up.
    fn locks(&self) -> impl Iterator<Item = &Lock<L>> {
        self.second.into_iter().chain([self.main])
    }
}

#[cfg(test)]
mod tests;
