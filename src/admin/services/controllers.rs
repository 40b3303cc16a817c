//! `ControllerService`.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use prost::Message as _;
use tokio::time::{Instant, sleep_until};
use tonic::{Request, Response, Status};

use super::mutate::{Asked, Change};
use super::orders::Direction;
use super::watch::{Feed, answers};
use super::{Answers, Shared};
use crate::admin::authorize::{
    CLEAR_OVERRIDES, DISABLE_CONTROLLER, ENABLE_CONTROLLER, GET_CONTROLLER, LIST_CONTROLLERS,
    WATCH_CONTROLLERS,
};
use crate::admin::convert;
use crate::admin::errors::{Reason, Violations, not_found};
use crate::admin::manager::{ControllerName, Manager};
use crate::admin::paging::Page;
use crate::admin::proto;
use crate::admin::proto::controller_service_server::ControllerService;
use crate::admin::proto::watch_controllers_response::Update;
use crate::admin::validate::{self, ControllerFilter};
use coxswain_machinery::latest;

pub(super) struct Service(pub(super) Shared);

/// `NOT_FOUND`, with the closest names.
pub(super) fn no_controller(name: &str, controllers: &[ControllerName]) -> Status {
    let names = controllers.iter().map(|each| (each.name, each.aliases));
    not_found(Reason::ControllerNotFound, "controller", name, names)
}

/// All controllers that match, by name.
fn matching(manager: &dyn Manager, filter: &ControllerFilter) -> Vec<proto::Controller> {
    let (overrides, now) = (manager.overrides(), manager.now());
    let all = manager.controllers().into_iter().map(|state| convert::controller(&state, &overrides, now));
    all.filter(|controller| filter.matches(controller)).collect()
}

fn invalid_overrides(manager: &dyn Manager) -> Vec<proto::InvalidOverride> {
    manager.overrides().problems().iter().map(convert::invalid).collect()
}

#[tonic::async_trait]
impl ControllerService for Service {
    type WatchControllersStream = Answers<proto::WatchControllersResponse>;

    async fn list_controllers(
        &self,
        request: Request<proto::ListControllersRequest>,
    ) -> Result<Response<proto::ListControllersResponse>, Status> {
        self.0.allow(request.extensions(), LIST_CONTROLLERS, "").await?;
        let request = request.into_inner();
        let mut violations = Violations::default();
        let filter = ControllerFilter::parse(request.filter.as_ref(), &mut violations);
        let encoded = request.filter.map(|filter| filter.encode_to_vec()).unwrap_or_default();
        let page = Page::parse(request.page_size, &request.page_token, &encoded, &mut violations);
        violations.check()?;

        let manager = &*self.0.manager;
        let paged = page.cut(matching(manager, &filter), |controller| &controller.name);
        Ok(Response::new(proto::ListControllersResponse {
            controllers: paged.items,
            next_page_token: paged.next,
            total_size: paged.total as i32,
            invalid_overrides: invalid_overrides(manager),
        }))
    }

    async fn get_controller(
        &self,
        request: Request<proto::GetControllerRequest>,
    ) -> Result<Response<proto::GetControllerResponse>, Status> {
        let manager = &*self.0.manager;
        let name = &request.get_ref().name;
        let found = validate::resolve(name, manager.names());
        self.0.allow(request.extensions(), GET_CONTROLLER, found.unwrap_or(name.as_str())).await?;
        let mut violations = Violations::default();
        validate::name("name", name, &mut violations);
        violations.check()?;
        let state = found.and_then(|found| manager.controller(found));
        let state = state.ok_or_else(|| no_controller(name, manager.names()))?;
        let controller = convert::controller(&state, &manager.overrides(), manager.now());
        Ok(Response::new(proto::GetControllerResponse { controller: Some(controller) }))
    }

    async fn enable_controller(
        &self,
        request: Request<proto::EnableControllerRequest>,
    ) -> Result<Response<proto::EnableControllerResponse>, Status> {
        let (_, extensions, request) = request.into_parts();
        let asked = Asked {
            method: ENABLE_CONTROLLER,
            direction: Direction::Enable,
            name: request.name,
            reason: request.reason,
            duration: request.duration,
            expected_version: request.expected_version,
            wait: request.wait,
            dry_run: request.dry_run,
            force: request.force,
        };
        let Change { controllers, changed } = self.0.change(&extensions, asked).await?;
        Ok(Response::new(proto::EnableControllerResponse { controllers, changed }))
    }

    async fn disable_controller(
        &self,
        request: Request<proto::DisableControllerRequest>,
    ) -> Result<Response<proto::DisableControllerResponse>, Status> {
        let (_, extensions, request) = request.into_parts();
        let asked = Asked {
            method: DISABLE_CONTROLLER,
            direction: Direction::Disable,
            name: request.name,
            reason: request.reason,
            duration: request.duration,
            expected_version: request.expected_version,
            wait: request.wait,
            dry_run: request.dry_run,
            force: request.force,
        };
        let Change { controllers, changed } = self.0.change(&extensions, asked).await?;
        Ok(Response::new(proto::DisableControllerResponse { controllers, changed }))
    }

    async fn clear_overrides(
        &self,
        request: Request<proto::ClearOverridesRequest>,
    ) -> Result<Response<proto::ClearOverridesResponse>, Status> {
        let (_, extensions, request) = request.into_parts();
        let asked = Asked {
            method: CLEAR_OVERRIDES,
            direction: Direction::Clear,
            name: request.name,
            reason: request.reason,
            duration: None,
            expected_version: request.expected_version,
            wait: request.wait,
            dry_run: request.dry_run,
            force: request.force,
        };
        let Change { controllers, changed } = self.0.change(&extensions, asked).await?;
        Ok(Response::new(proto::ClearOverridesResponse { controllers, changed }))
    }

    async fn watch_controllers(
        &self,
        request: Request<proto::WatchControllersRequest>,
    ) -> Result<Response<Self::WatchControllersStream>, Status> {
        self.0.allow(request.extensions(), WATCH_CONTROLLERS, "").await?;
        let (_, caller, request) = request.into_parts();
        let mut violations = Violations::default();
        let filter = ControllerFilter::parse(request.filter.as_ref(), &mut violations);
        let interval = validate::counts_interval(request.counts_interval.as_ref(), &mut violations);
        violations.check()?;
        let feed = ControllerFeed {
            manager: Arc::clone(&self.0.manager),
            changes: self.0.manager.changes(),
            filter,
            counts: interval.map(|interval| (interval, Instant::now() + interval)),
            sent: None,
            invalid: Vec::new(),
            pending: VecDeque::new(),
        };
        Ok(Response::new(answers(&self.0, &caller, Some(WATCH_CONTROLLERS), feed)?))
    }
}

/// A snapshot, then changes: found by comparing what is with what was sent.
struct ControllerFeed {
    manager: Arc<dyn Manager>,
    changes: latest::Receiver<u64>,
    filter: ControllerFilter,
    /// How often counts are worth a message, and when they are next.
    counts: Option<(Duration, Instant)>,
    sent: Option<BTreeMap<String, proto::Controller>>,
    /// The overrides without effect that were told last.
    invalid: Vec<proto::InvalidOverride>,
    pending: VecDeque<Update>,
}

impl ControllerFeed {
    /// Finds out what has changed; mere counts matter if `counts`.
    fn compare(&mut self, counts: bool) {
        let found = matching(&*self.manager, &self.filter);
        let invalid = invalid_overrides(&*self.manager);
        let before = std::mem::replace(&mut self.invalid, invalid.clone());
        let Some(sent) = &mut self.sent else {
            self.sent = Some(found.iter().map(|each| (each.name.clone(), each.clone())).collect());
            self.pending.push_back(Update::Snapshot(proto::ControllerSnapshot {
                controllers: found,
                invalid_overrides: invalid,
            }));
            return;
        };
        if before != invalid {
            self.pending.push_back(Update::InvalidOverrides(proto::InvalidOverrides { overrides: invalid }));
        }
        let mut gone = std::mem::take(sent);
        for controller in found {
            let before = gone.remove(&controller.name);
            let is_same = |before: &proto::Controller| {
                if counts {
                    *before == controller
                } else {
                    convert::without_counts(before.clone()) == convert::without_counts(controller.clone())
                }
            };
            // What is kept is what was sent: counts that were not sent are still news when counts matter.
            let (kept, news) = match before {
                Some(before) if is_same(&before) => (before, None),
                _ => (controller.clone(), Some(controller)),
            };
            sent.insert(kept.name.clone(), kept);
            self.pending.extend(news.map(Update::Changed));
        }
        self.pending.extend(gone.into_keys().map(Update::Unmatched));
    }
}

impl Feed for ControllerFeed {
    type Message = proto::WatchControllersResponse;

    async fn next(&mut self) -> Option<proto::WatchControllersResponse> {
        if self.sent.is_none() {
            self.changes.mark_unchanged();
            self.compare(false);
        }
        loop {
            if let Some(update) = self.pending.pop_front() {
                return Some(proto::WatchControllersResponse { update: Some(update) });
            }
            let due = self.counts.map(|(_, due)| due);
            let tick = async {
                match due {
                    Some(due) => sleep_until(due).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = tick => {
                    self.counts = self.counts.map(|(interval, _)| (interval, Instant::now() + interval));
                    self.compare(true);
                }
                changed = self.changes.changed() => {
                    changed.ok()?;
                    self.compare(false);
                }
            }
        }
    }
}
