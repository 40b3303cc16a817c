//! `QueueService`.

use std::sync::Arc;

use prost::Message as _;
use tonic::{Extensions, Request, Response, Status};

use super::Shared;
use super::controllers::no_controller;
use super::places::MutationClass;
use crate::admin::audit::{Audit, Changes};
use crate::admin::authorize::{EXPLAIN_OBJECT, GET_QUEUE, LIST_QUEUES, Method, SYNC_OBJECT};
use crate::admin::convert;
use crate::admin::errors::{ErrorReply, Reason, Violations, not_found};
use crate::admin::manager::{Mutation, MutationKind, QueueName, SyncReport, SyncRequest};
use crate::admin::paging::Page;
use crate::admin::proto;
use crate::admin::proto::queue_service_server::QueueService;
use crate::admin::validate::{self, QueueFilter};
use coxswain_machinery::model::Key;
use coxswain_machinery::serve::UserInfo;

pub(super) struct Service(pub(super) Shared);

#[tonic::async_trait]
impl QueueService for Service {
    async fn list_queues(
        &self,
        request: Request<proto::ListQueuesRequest>,
    ) -> Result<Response<proto::ListQueuesResponse>, Status> {
        self.0.allow(request.extensions(), LIST_QUEUES, "").await?;
        let request = request.into_inner();
        let mut violations = Violations::default();
        let names = self.0.manager.names();
        let filter = QueueFilter::parse(request.filter.as_ref(), names, &mut violations);
        let encoded = request.filter.map(|filter| filter.encode_to_vec()).unwrap_or_default();
        let page = Page::parse(request.page_size, &request.page_token, &encoded, &mut violations);
        violations.check()?;

        let all = self.0.manager.queues();
        let matching = all.iter().map(convert::queue).filter(|queue| filter.matches(queue)).collect();
        let paged = page.cut(matching, |queue: &proto::Queue| &queue.name);
        Ok(Response::new(proto::ListQueuesResponse {
            queues: paged.items,
            next_page_token: paged.next,
            total_size: paged.total as i32,
        }))
    }

    async fn get_queue(
        &self,
        request: Request<proto::GetQueueRequest>,
    ) -> Result<Response<proto::GetQueueResponse>, Status> {
        self.0.allow(request.extensions(), GET_QUEUE, &request.get_ref().name).await?;
        let request = request.into_inner();
        let mut violations = Violations::default();
        validate::name("name", &request.name, &mut violations);
        let max_keys = validate::max_keys(request.max_keys, &mut violations);
        violations.check()?;
        let Some(detail) = self.0.queue_details.read(&request.name) else {
            // Elsewhere it may exist.
            self.0.must_lead()?;
            return Err(no_queue(&request.name, &self.0.manager.queue_names()));
        };
        Ok(Response::new(proto::GetQueueResponse {
            queue: Some(convert::queue(&detail.state)),
            oldest_keys: detail.oldest.iter().take(max_keys).map(convert::queued).collect(),
            in_flight_keys: detail.in_flight.iter().take(max_keys).map(convert::queued).collect(),
            failing_keys: detail.failing.iter().take(max_keys).map(convert::failing).collect(),
            waiting_keys: detail.waiting.iter().take(max_keys).map(convert::waiting).collect(),
        }))
    }

    async fn sync_object(
        &self,
        request: Request<proto::SyncObjectRequest>,
    ) -> Result<Response<proto::SyncObjectResponse>, Status> {
        let shared = &self.0;
        if request.get_ref().explain {
            let (explained, queue) = shared.explain(request).await?;
            return Ok(Response::new(answer(explained, queue)));
        }
        let (extensions, user, sync) = shared.asked(request, SYNC_OBJECT).await?;
        let target = format!("{} {}", sync.queue, sync.key);
        let audit = Audit::begin(&user, &extensions, SYNC_OBJECT, &target, "");
        let (task, queue, by) = (shared.clone(), sync.queue, Arc::clone(&user));
        let carried_out = shared.carry_out(&by, MutationClass::Sync, |caller| async move {
            let done = task.reconcile(&sync).await;
            audit.end(
                done.as_ref().map(|report| Changes::plain(!report.actions.is_empty())),
                caller.is_gone(),
            );
            let reconciled = done.is_ok();
            caller.answer(done);
            reconciled.then(|| Mutation {
                message: format!(
                    "{} requested a reconcile by {} of {}",
                    user.name, sync.controller, sync.key
                ),
                user,
                action: MutationKind::Synced,
                target,
                reason: String::new(),
            })
        });
        Ok(Response::new(answer(carried_out.await?, queue)))
    }

    async fn explain_object(
        &self,
        request: Request<proto::ExplainObjectRequest>,
    ) -> Result<Response<proto::ExplainObjectResponse>, Status> {
        let request = request.map(|asked| proto::SyncObjectRequest {
            controller: asked.controller,
            object: asked.object,
            queue: asked.queue,
            explain: true,
        });
        let (explained, queue) = self.0.explain(request).await?;
        let answer = answer(explained, queue);
        Ok(Response::new(proto::ExplainObjectResponse {
            outcome: answer.outcome,
            actions: answer.actions,
            message: answer.message,
            requeue_after: answer.requeue_after,
            duration: answer.duration,
            queue: answer.queue,
            reasons: answer.reasons,
        }))
    }
}

fn answer(report: SyncReport, queue: &str) -> proto::SyncObjectResponse {
    proto::SyncObjectResponse {
        outcome: convert::sync_outcome(report.outcome).into(),
        actions: report.actions.iter().map(convert::action).collect(),
        message: report.message,
        requeue_after: report.requeue_after.map(convert::duration),
        duration: Some(convert::duration(report.duration)),
        trace_id: convert::trace_id(report.trace_id),
        queue: queue.to_owned(),
        reasons: report.reasons,
    }
}

fn no_queue(name: &str, queues: &[QueueName]) -> Status {
    let none: &[&str] = &[];
    not_found(Reason::QueueNotFound, "queue", name, queues.iter().map(|queue| (queue.name, none)))
}

impl Shared {
    /// Who asks, if they may, and for what.
    async fn asked(
        &self,
        request: Request<proto::SyncObjectRequest>,
        method: Method,
    ) -> Result<(Extensions, Arc<UserInfo>, SyncRequest), Status> {
        // The queue is what is authorized; the request may leave it out, so it is looked up first. What that tells an
        // unauthorized caller is nothing: without a queue it is asked for all of them.
        let chosen = self.choose(request.get_ref());
        let scope = chosen.as_ref().map_or(request.get_ref().queue.as_str(), |chosen| chosen.queue);
        let user = self.allow(request.extensions(), method, scope).await?;
        let (_, extensions, request) = request.into_parts();
        let mut violations = Violations::default();
        validate::name("controller", &request.controller, &mut violations);
        validate::optional_name("queue", &request.queue, &mut violations);
        let key = validate::object_key("object", request.object.as_ref(), &mut violations);
        violations.check()?;
        Ok((extensions, user, SyncRequest { key, explain: request.explain, ..chosen? }))
    }

    async fn reconcile(&self, sync: &SyncRequest) -> Result<SyncReport, Status> {
        self.manager.sync(sync).await.map_err(|error| {
            let failure = ErrorReply::new(Reason::NotRunning, format!("{}: {error}", sync.controller));
            Status::from(failure.with("controller", sync.controller))
        })
    }

    /// What a reconcile would do, and the queue whose reconcile that is.
    async fn explain(
        &self,
        request: Request<proto::SyncObjectRequest>,
    ) -> Result<(SyncReport, &'static str), Status> {
        let (_, _, sync) = self.asked(request, EXPLAIN_OBJECT).await?;
        Ok((self.reconcile(&sync).await?, sync.queue))
    }

    /// The controller and the queue that a request means.
    fn choose(&self, request: &proto::SyncObjectRequest) -> Result<SyncRequest, Status> {
        let names = self.manager.names();
        let controller = validate::resolve(&request.controller, names)
            .ok_or_else(|| no_controller(&request.controller, names))?;
        let all = self.manager.queue_names();
        let own: Vec<_> = all.into_iter().filter(|queue| queue.controller == controller).collect();
        if own.is_empty() {
            self.must_lead()?;
            let failure = ErrorReply::new(Reason::NotRunning, format!("{controller} is not running"));
            return Err(failure.with("controller", controller).into());
        }
        let queue = match (request.queue.as_str(), own.as_slice()) {
            ("", [only]) => only,
            ("", _) => {
                let names: Vec<_> = own.iter().map(|queue| queue.name).collect();
                let mut violations = Violations::default();
                violations.add("queue", format!("must be one of {}", names.join(", ")));
                return Err(violations.check().err().unwrap_or_else(|| no_queue("", &own)));
            }
            (name, own) => own.iter().find(|queue| queue.name == name).ok_or_else(|| no_queue(name, own))?,
        };
        Ok(SyncRequest { controller, queue: queue.name, key: Key::default(), explain: false })
    }
}
