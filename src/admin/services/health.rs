//! `grpc.health.v1`: the server (the empty name), each service, each controller, and `leader`.
//!
//! A controller serves when it runs here and is well; `leader` when this replica leads. The health of a controller is for callers with
//! credentials: an attacker must not learn which controllers an override disables.

use tonic::{Extensions, Request, Response, Status};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_server::Health;
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};

use super::watch::{Feed, answers};
use super::{Answers, Shared};
use crate::admin::authorize::{METHODS, is_known, unauthenticated};
use crate::admin::convert;
use crate::admin::errors::{ErrorReply, Reason, Violations};
use crate::admin::proto;
use crate::admin::validate::{self, resolve};
use coxswain_machinery::latest;

pub(super) struct Service(pub(super) Shared);

impl Shared {
    /// How something is; `None` if there is no such thing.
    fn status_of(&self, name: &str) -> Option<ServingStatus> {
        let serving = |yes: bool| if yes { ServingStatus::Serving } else { ServingStatus::NotServing };
        let service = name.strip_prefix("coxswain.admin.v1.").is_some_and(|service| {
            METHODS.iter().any(|method| method.rpc.split_once('/').is_some_and(|(found, _)| found == service))
        });
        if name.is_empty() || service {
            return Some(serving(!self.shutdown.is_cancelled()));
        }
        if name == "leader" {
            return Some(serving(self.must_lead().is_ok()));
        }
        let state = self.manager.health(resolve(name, self.manager.names())?)?;
        let (health, _) = convert::health(&state.phase, state.unhealthy.as_ref());
        Some(serving(health == proto::Health::Healthy))
    }

    /// Returns the name of a request. A watch keeps it, so it must not be long.
    fn asked_about(&self, request: HealthCheckRequest, caller: &Extensions) -> Result<String, Status> {
        let mut violations = Violations::default();
        validate::optional_name("service", &request.service, &mut violations);
        violations.check()?;
        if !is_known(caller) && resolve(&request.service, self.manager.names()).is_some() {
            return Err(unauthenticated());
        }
        Ok(request.service)
    }
}

#[tonic::async_trait]
impl Health for Service {
    type WatchStream = Answers<HealthCheckResponse>;

    async fn check(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<HealthCheckResponse>, Status> {
        let (_, caller, request) = request.into_parts();
        let name = self.0.asked_about(request, &caller)?;
        let status = self.0.status_of(&name).ok_or_else(|| {
            let message = "unknown service; expected a gRPC service, a controller name or `leader`";
            Status::from(ErrorReply::new(Reason::ServiceNotFound, message))
        })?;
        Ok(Response::new(HealthCheckResponse { status: status.into() }))
    }

    async fn watch(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let (_, caller, request) = request.into_parts();
        let feed = HealthFeed {
            shared: self.0.clone(),
            name: self.0.asked_about(request, &caller)?,
            changes: self.0.manager.changes(),
            sent: None,
        };
        Ok(Response::new(answers(&self.0, &caller, None, feed)?))
    }
}

struct HealthFeed {
    shared: Shared,
    name: String,
    changes: latest::Receiver<u64>,
    sent: Option<ServingStatus>,
}

impl Feed for HealthFeed {
    type Message = HealthCheckResponse;

    async fn next(&mut self) -> Option<HealthCheckResponse> {
        loop {
            self.changes.mark_unchanged();
            let status = self.shared.status_of(&self.name).unwrap_or(ServingStatus::ServiceUnknown);
            if self.sent.replace(status) != Some(status) {
                return Some(HealthCheckResponse { status: status.into() });
            }
            self.changes.changed().await.ok()?;
        }
    }
}
