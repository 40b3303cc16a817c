//! `LeaderService`.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::{Instant, interval_at, sleep_until};
use tonic::{Request, Response, Status};

use super::places::MutationClass;
use super::watch::{Feed, answers};
use super::{Answers, Shared, shutting_down};
use crate::admin::audit::{Audit, Changes};
use crate::admin::authorize::{GET_LEADER, STEP_DOWN, WATCH_LEADER};
use crate::admin::convert;
use crate::admin::errors::{ErrorReply, Reason, Violations, not_found, timed_out};
use crate::admin::manager::{LeaseState, Manager, Mutation, MutationKind, ReplicaState, StepDownError};
use crate::admin::proto;
use crate::admin::proto::leader_service_server::LeaderService;
use crate::admin::validate;
use coxswain_machinery::latest;

/// How often a watch looks for renewals, which are no changes to the manager.
const RENEWALS: Duration = Duration::from_secs(1);
/// For how long a call without a deadline waits for the next leader.
const WAIT: Duration = Duration::from_mins(2);
/// When to try again if the Lease could not be released.
const RETRY: Duration = Duration::from_secs(2);

pub(super) struct Service(pub(super) Shared);

/// Who leads, by one Lease.
#[derive(Clone, Debug, PartialEq)]
struct View {
    leader: proto::Leader,
    replicas: Vec<proto::Replica>,
    overrides: proto::OverridesInForce,
}

impl View {
    /// Looks; `lease` is `namespace/name`, or empty for the main one.
    fn of(manager: &dyn Manager, lease: &str) -> Result<Self, Status> {
        let leases = manager.leases();
        let state = match lease {
            "" => leases.first(),
            lease => Some(find(lease, &leases)?),
        };
        let (replicas, identity) = (manager.replicas(), manager.identity());
        let mut leader = convert::leader(state, identity, &replicas);
        leader.set_lease_policy(convert::lease_policy(manager.lease_policy()));
        let replicas = replicas.iter().map(|each| convert::replica(each, identity, &leader.holder_identity));
        let overrides = convert::overrides_in_force(&manager.overrides(), manager.now());
        Ok(Self { replicas: replicas.collect(), leader, overrides })
    }

    /// The same without signs of life.
    fn without_renewals(mut self) -> Self {
        self.leader.renew_time = None;
        for replica in &mut self.replicas {
            replica.renew_time = None;
        }
        self
    }
}

fn find<'a>(lease: &str, leases: &'a [LeaseState]) -> Result<&'a LeaseState, Status> {
    leases.iter().find(|state| state.lease.to_string() == lease).ok_or_else(|| {
        let names: Vec<_> = leases.iter().map(|state| state.lease.to_string()).collect();
        let none: &[&str] = &[];
        not_found(Reason::LeaseNotFound, "lease", lease, names.iter().map(|name| (name.as_str(), none)))
    })
}

#[tonic::async_trait]
impl LeaderService for Service {
    type WatchLeaderStream = Answers<proto::WatchLeaderResponse>;

    async fn get_leader(
        &self,
        request: Request<proto::GetLeaderRequest>,
    ) -> Result<Response<proto::GetLeaderResponse>, Status> {
        self.0.allow(request.extensions(), GET_LEADER, "").await?;
        let lease = request.into_inner().lease;
        check_lease(&lease)?;
        let View { leader, replicas, overrides } = View::of(&*self.0.manager, &lease)?;
        let (leader, overrides) = (Some(leader), Some(overrides));
        Ok(Response::new(proto::GetLeaderResponse { leader, replicas, overrides }))
    }

    async fn watch_leader(
        &self,
        request: Request<proto::WatchLeaderRequest>,
    ) -> Result<Response<Self::WatchLeaderStream>, Status> {
        self.0.allow(request.extensions(), WATCH_LEADER, "").await?;
        let (_, caller, request) = request.into_parts();
        check_lease(&request.lease)?;
        View::of(&*self.0.manager, &request.lease)?;
        let feed = LeaderFeed {
            manager: Arc::clone(&self.0.manager),
            changes: self.0.manager.changes(),
            lease: request.lease,
            renewals: request.include_renewals,
            sent: None,
        };
        Ok(Response::new(answers(&self.0, &caller, Some(WATCH_LEADER), feed)?))
    }

    async fn step_down(
        &self,
        request: Request<proto::StepDownRequest>,
    ) -> Result<Response<proto::StepDownResponse>, Status> {
        let shared = &self.0;
        let (_, extensions, request) = request.into_parts();
        let user = shared.allow(&extensions, STEP_DOWN, "").await?;
        let mut violations = Violations::default();
        validate::reason(&request.reason, &mut violations);
        validate::optional_name("successor_identity", &request.successor_identity, &mut violations);
        if let Some(expected) = &request.expected_leader_identity {
            validate::name("expected_leader_identity", expected, &mut violations);
        }
        if request.successor_identity == shared.manager.identity() {
            violations.add("successor_identity", "must differ from the replica that steps down");
        }
        violations.check()?;
        shared.may_step_down(&request)?;
        if request.dry_run {
            let View { leader, .. } = View::of(&*shared.manager, "")?;
            return Ok(Response::new(proto::StepDownResponse { leader: Some(leader) }));
        }

        let audit = Audit::begin(&user, &extensions, STEP_DOWN, shared.manager.identity(), &request.reason);
        let audit = audit.with_terms(request.force, None);
        let (task, asked, by) = (shared.clone(), request.clone(), Arc::clone(&user));
        let term = shared.acquired();
        let carried_out = shared.carry_out(&by, MutationClass::StepDown, |caller| async move {
            let successor = Some(asked.successor_identity.as_str()).filter(|identity| !identity.is_empty());
            let done = task.manager.step_down(successor).await.map_err(|error| task.kept(&error));
            let changed = done.is_ok();
            audit.end(done.as_ref().map(|()| Changes::plain(true)), caller.is_gone());
            caller.answer(done);
            let identity = task.manager.identity();
            changed.then(|| Mutation {
                message: format!("{} requested step-down of {identity}{}", user.name, why(&asked.reason)),
                user,
                action: MutationKind::SteppedDown,
                target: identity.to_owned(),
                reason: asked.reason,
            })
        });
        carried_out.await?;
        if request.wait {
            shared.wait_for_next_leader(term, request.force).await?;
        }
        let View { leader, .. } = View::of(&*shared.manager, "")?;
        Ok(Response::new(proto::StepDownResponse { leader: Some(leader) }))
    }
}

fn check_lease(lease: &str) -> Result<(), Status> {
    let mut violations = Violations::default();
    validate::optional_name("lease", lease, &mut violations);
    violations.check()
}

fn why(reason: &str) -> String {
    if reason.is_empty() { String::new() } else { format!(": {reason}") }
}

impl Shared {
    /// Why leadership was not given up.
    fn kept(&self, error: &StepDownError) -> Status {
        match error {
            // Another request, or a lost Lease, ended the term first. The next leader is not to step down for it.
            StepDownError::NotLeader => {
                let leases = self.manager.leases();
                let (holder, _) = leases.first().map(|main| self.leader(main)).unwrap_or_default();
                let message = "this replica lost leadership before it applied the request";
                ErrorReply::new(Reason::LeaderChanged, message).with("leader", holder).into()
            }
            StepDownError::Unavailable(_) => {
                ErrorReply::new(Reason::ApiServer, error.to_string()).retry_after(RETRY).into()
            }
        }
    }

    /// Whether this replica leads and another one could.
    fn may_step_down(&self, request: &proto::StepDownRequest) -> Result<(), Status> {
        let identity = self.manager.identity();
        let leases = self.manager.leases();
        let Some(main) = leases.first() else {
            let message = "leader election is off, so this replica holds no Lease";
            return Err(ErrorReply::new(Reason::NoLeaderElection, message).into());
        };
        let holder = main.record.as_ref().map(|record| record.holder.to_string()).unwrap_or_default();
        if let Some(expected) = &request.expected_leader_identity
            && *expected != holder
        {
            let message = format!("{holder:?} leads, not {expected:?}");
            return Err(ErrorReply::new(Reason::LeaderChanged, message).with("leader", holder).into());
        }
        if !main.leading && request.expected_leader_identity.is_none() {
            // NOT_LEADER would send the call on, to unseat a leader that the caller did not mean.
            let message = format!(
                "{holder:?} leads, not this replica; set expected_leader_identity to make {holder:?} step down"
            );
            return Err(ErrorReply::new(Reason::LeaderChanged, message).with("leader", holder).into());
        }
        self.must_lead()?;
        let replicas = self.manager.replicas();
        let successor = request.successor_identity.as_str();
        if !successor.is_empty() {
            if self.manager.is_coordinated() {
                let message = "the API server chooses the leader (feature gate CoordinatedLeaderElection); leave successor_identity empty";
                return Err(ErrorReply::new(Reason::Setting, message).violates(successor, message).into());
            }
            return may_succeed(successor, &replicas);
        }
        // A kube-controller-manager that stands by announces itself nowhere.
        if request.force || replicas.iter().any(|replica| replica.live && replica.identity != identity) {
            return Ok(());
        }
        let message = "no other live replica could take over leadership; set force if a kube-controller-manager \
                       is on standby";
        Err(ErrorReply::new(Reason::NoCandidate, message).into())
    }

    /// Returns the time at which the main Lease was acquired, if it is held.
    fn acquired(&self) -> Option<Timestamp> {
        let leases = self.manager.leases();
        let record = leases.first()?.record.as_ref()?;
        Some(record.acquired).filter(|_| !record.holder.is_empty())
    }

    /// Returns once another replica leads, or once this one leads again if `may_return`; `term` is the time at which the term that
    /// was given up began.
    async fn wait_for_next_leader(&self, term: Option<Timestamp>, may_return: bool) -> Result<(), Status> {
        let until = Instant::now() + WAIT;
        let mut changes = self.manager.changes();
        loop {
            changes.mark_unchanged();
            let leases = self.manager.leases();
            let main = leases.first();
            let holder = main.and_then(|main| main.record.as_ref()).map(|record| &record.holder);
            if holder.is_some_and(|holder| !holder.is_empty() && holder != self.manager.identity()) {
                return Ok(());
            }
            if main.is_some_and(|main| main.leading) && self.acquired() != term {
                if may_return {
                    return Ok(());
                }
                let me = self.manager.identity();
                let message =
                    format!("leadership was given up, and no other replica took it: {me} leads again");
                return Err(ErrorReply::new(Reason::NoCandidate, message).into());
            }
            tokio::select! {
                biased;
                () = self.shutdown.cancelled() => return Err(shutting_down()),
                () = sleep_until(until) => {
                    return Err(timed_out(format!("this replica stepped down, but no replica acquired the Lease within {WAIT:?}")));
                }
                woken = changes.changed() => woken.map_err(|_| shutting_down())?,
            }
        }
    }
}

fn may_succeed(successor: &str, replicas: &[ReplicaState]) -> Result<(), Status> {
    let Some(replica) = replicas.iter().find(|replica| replica.identity == successor) else {
        let none: &[&str] = &[];
        let names = replicas.iter().map(|replica| (replica.identity.as_str(), none));
        return Err(not_found(Reason::ReplicaNotFound, "replica", successor, names));
    };
    if replica.live {
        return Ok(());
    }
    let message = format!("{successor} has not renewed its Lease since {}", replica.renewed);
    Err(ErrorReply::new(Reason::SuccessorNotLive, message)
        .violates(successor, "the replica is not live")
        .into())
}

struct LeaderFeed {
    manager: Arc<dyn Manager>,
    changes: latest::Receiver<u64>,
    lease: String,
    renewals: bool,
    sent: Option<View>,
}

impl Feed for LeaderFeed {
    type Message = proto::WatchLeaderResponse;

    async fn next(&mut self) -> Option<proto::WatchLeaderResponse> {
        let mut renewals = interval_at(Instant::now() + RENEWALS, RENEWALS);
        loop {
            self.changes.mark_unchanged();
            // A Lease that is fought for does not cease to be as long as the process lives.
            let view = View::of(&*self.manager, &self.lease).ok()?;
            let compared = if self.renewals { view.clone() } else { view.clone().without_renewals() };
            if self.sent.as_ref() != Some(&compared) {
                self.sent = Some(compared);
                return Some(proto::WatchLeaderResponse {
                    leader: Some(view.leader),
                    replicas: view.replicas,
                    overrides: Some(view.overrides),
                });
            }
            tokio::select! {
                biased;
                changed = self.changes.changed() => changed.ok()?,
                _ = renewals.tick(), if self.renewals => {}
            }
        }
    }
}
