//! `ControllerService`.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use prost::Message as _;
use tokio::time::{Instant, sleep_until};
use tonic::{Request, Response, Status};

use super::mutate::{Asked, Change};
use super::orders::Direction;
use super::snapshots::{ControllerRow, Snapshots};
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
            flags_differ: self.0.differing_leader().is_some(),
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
        let flags_differ = self.0.differing_leader().is_some();
        Ok(Response::new(proto::GetControllerResponse { controller: Some(controller), flags_differ }))
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
            snapshots: Arc::clone(&self.0.snapshots),
            changes: self.0.manager.changes(),
            filter,
            counts: interval.map(|interval| (interval, self.0.snapshots.tick_after(interval))),
            changed: None,
            sent: None,
            invalid: Vec::new(),
            pending: VecDeque::new(),
        };
        Ok(Response::new(answers(&self.0, &caller, Some(WATCH_CONTROLLERS), feed)?))
    }
}

/// A snapshot, then changes: found by comparing what is with what was sent.
struct ControllerFeed {
    snapshots: Arc<Snapshots>,
    changes: latest::Receiver<u64>,
    filter: ControllerFilter,
    /// How often counts are worth a message, and when they are next.
    counts: Option<(Duration, Instant)>,
    /// When a change that was noticed may be read.
    changed: Option<Instant>,
    sent: Option<BTreeMap<String, Arc<ControllerRow>>>,
    /// The overrides without effect that were told last.
    invalid: Vec<proto::InvalidOverride>,
    pending: VecDeque<Update>,
}

impl ControllerFeed {
    /// Finds out what has changed; mere counts matter if `counts`.
    fn compare(&mut self, counts: bool) {
        let all = self.snapshots.read();
        let found = all.rows.iter().filter(|row| self.filter.matches(&row.controller));
        let is_new_to = |held: &[proto::InvalidOverride]| *held != *all.invalid_overrides;
        let Some(sent) = &mut self.sent else {
            self.sent =
                Some(found.clone().map(|row| (row.controller.name.clone(), Arc::clone(row))).collect());
            self.invalid.clone_from(&all.invalid_overrides);
            self.pending.push_back(Update::Snapshot(proto::ControllerSnapshot {
                controllers: found.map(|row| row.controller.clone()).collect(),
                invalid_overrides: all.invalid_overrides.clone(),
            }));
            return;
        };
        if is_new_to(&self.invalid) {
            self.invalid.clone_from(&all.invalid_overrides);
            let overrides = all.invalid_overrides.clone();
            self.pending.push_back(Update::InvalidOverrides(proto::InvalidOverrides { overrides }));
        }
        let mut gone = std::mem::take(sent);
        for row in found {
            // What is kept is what was sent: counts that were not sent are still news when counts matter.
            let (kept, news) = match gone.remove(&row.controller.name) {
                Some(before) if before.is_same(row, counts) => (before, None),
                _ => (Arc::clone(row), Some(row.controller.clone())),
            };
            sent.insert(kept.controller.name.clone(), kept);
            self.pending.extend(news.map(Update::Changed));
        }
        self.pending.extend(gone.into_keys().map(Update::Unmatched));
    }
}

/// Returns at a time, if there is one.
async fn until(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
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
            tokio::select! {
                biased;
                () = until(self.counts.map(|(_, due)| due)) => {
                    self.counts =
                        self.counts.map(|(interval, _)| (interval, self.snapshots.tick_after_last(interval)));
                    self.compare(true);
                }
                () = until(self.changed) => {
                    self.changed = None;
                    self.compare(false);
                }
                // It is noted here, because this future may be dropped before the change is read.
                changed = self.changes.changed(), if self.changed.is_none() => {
                    changed.ok()?;
                    self.changed = Some(self.snapshots.next_read());
                }
            }
        }
    }
}
