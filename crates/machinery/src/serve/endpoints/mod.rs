//! The pages of the port: health, metrics, configuration, status, debugging.

mod debug;
mod negotiation;
mod pages;
mod pprof;

use std::fmt;
use std::sync::Arc;

use crate::telemetry::{ExpositionFormat, Registry};
use http::{HeaderValue, Method, Response, StatusCode, header};
use jiff::Timestamp;

use super::answers::{AnswerBody, PageHandler, respond, sync_handler, text};
use super::health::{Detail, HealthRegistry, HealthReport, Probe};
use super::observe::ServeObserver;
use super::router::Router;
use super::user::UserInfo;
use crate::model::clock::SharedClock;
use crate::telemetry::Profiler;

/// A callback that makes the configuration page.
pub type ConfigPage = Arc<dyn Fn() -> serde_json::Value + Send + Sync>;

/// A callback that gives every flag, by its name without dashes, and its value.
pub type FlagsPage = Arc<dyn Fn() -> Vec<(String, String)> + Send + Sync>;

/// A callback that sets the verbosity of the log (`-v`); `Err` says why it could not.
pub type VerbositySetter = Arc<dyn Fn(u32) -> Result<(), String> + Send + Sync>;

/// What the pages show.
#[derive(Clone)]
pub struct Pages {
    /// Health checks.
    pub health: Arc<HealthRegistry>,
    /// `/metrics`.
    pub metrics: Registry,
    /// `/metrics/slis`.
    pub slis: Registry,
    /// `/configz`: the whole object, by component.
    pub config: ConfigPage,
    /// `/flagz`; `None` when its feature gate (`ComponentFlagz`) is off.
    pub flags: Option<FlagsPage>,
    /// `/statusz`; `None` when its feature gate (`ComponentStatusz`) is off.
    pub status: Option<StatusPage>,
    /// `/debug/pprof` and `/debug/flags/v`; `None` with `--profiling=false`.
    pub debugging: Option<Debugging>,
    /// When the process started.
    pub started: Timestamp,
    /// Hears of health results.
    pub observer: Arc<dyn ServeObserver>,
    /// What time it is.
    pub clock: SharedClock,
}

/// What `/statusz` says beside the times.
#[derive(Clone, Debug)]
pub struct StatusPage {
    /// Version of this binary.
    pub binary_version: String,
    /// Kubernetes version that it is compatible with.
    pub compatible_version: String,
    /// `--emulated-version`.
    pub emulation_version: String,
}

/// What `--profiling` allows.
#[derive(Clone)]
pub struct Debugging {
    /// `/debug/pprof`.
    pub profiler: Profiler,
    /// `PUT /debug/flags/v`.
    pub set_verbosity: VerbositySetter,
}

impl fmt::Debug for Pages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pages").field("health", &self.health).finish_non_exhaustive()
    }
}

impl Pages {
    /// Puts all pages into a table.
    pub fn install(&self, router: &Arc<Router>) {
        for probe in Probe::ALL {
            let path = format!("/{}", probe.name());
            router.add(&path, self.health_page(probe));
            router.add_prefix(format!("{path}/"), self.health_check_page(probe));
        }
        router.add("/metrics", metrics_page(self.metrics.clone(), self.started));
        router.add_unlisted("/metrics/slis", self.slis_page());
        let config = Arc::clone(&self.config);
        router.add(
            "/configz",
            sync_handler(move |_| respond(StatusCode::OK, super::answers::JSON, config().to_string())),
        );
        if let Some(flags) = &self.flags {
            let flags = Arc::clone(flags);
            router.add("/flagz", sync_handler(move |request| pages::answer(request, &pages::Flagz(flags()))));
        }
        if let Some(status) = &self.status {
            let (status, started, clock) = (status.clone(), self.started, Arc::clone(&self.clock));
            // The table holds this handler: were it held by the handler in turn, neither would ever be freed.
            let table = Arc::downgrade(router);
            router.add_unlisted(
                "/statusz",
                sync_handler(move |request| {
                    let paths = table.upgrade().map(|table| table.paths()).unwrap_or_default();
                    let page = pages::Statusz { status: &status, started, now: clock.now(), paths: &paths };
                    pages::answer(request, &page)
                }),
            );
        }
        if let Some(debugging) = &self.debugging {
            debug::install(router, debugging);
            pprof::install(router, &debugging.profiler);
        }
    }

    fn health_page(&self, probe: Probe) -> PageHandler {
        let (health, observer) = (Arc::clone(&self.health), Arc::clone(&self.observer));
        sync_handler(move |request| {
            let query = request.uri().query().unwrap_or_default();
            let mut verbose = false;
            let mut excluded = Vec::new();
            for (name, value) in form_urlencoded::parse(query.as_bytes()) {
                match &*name {
                    "verbose" => verbose = true,
                    "exclude" => excluded.push(value.into_owned()),
                    _ => {}
                }
            }
            let is_known = UserInfo::of(request.extensions()).is_some_and(|user| !user.is_anonymous());
            let detail = match (verbose, is_known) {
                (false, _) => Detail::Summary,
                (true, false) => Detail::Checks,
                (true, true) => Detail::Remarks,
            };
            report(health.report(probe, &excluded, detail, &*observer))
        })
    }

    /// `/healthz/NAME`: the check's own answer, with the reason of its failure.
    fn health_check_page(&self, probe: Probe) -> PageHandler {
        let (health, observer) = (Arc::clone(&self.health), Arc::clone(&self.observer));
        let prefix = format!("/{}/", probe.name());
        sync_handler(move |request| {
            let name = super::answers::percent_decode(request.uri().path());
            let name = name.as_deref().and_then(|path| path.strip_prefix(&prefix)).unwrap_or_default();
            health.report_one(probe, name, &*observer).map_or_else(super::answers::not_found, report)
        })
    }

    fn slis_page(&self) -> PageHandler {
        let observer = Arc::clone(&self.observer);
        let get = metrics_page(self.slis.clone(), self.started);
        Arc::new(move |request| {
            if request.method() == Method::DELETE {
                observer.reset_slis();
                return Box::pin(std::future::ready(text(StatusCode::OK, "metrics reset\n")));
            }
            get(request)
        })
    }
}

fn report(report: HealthReport) -> Response<AnswerBody> {
    let status = if report.passed { StatusCode::OK } else { StatusCode::INTERNAL_SERVER_ERROR };
    text(status, report.text)
}

fn metrics_page(registry: Registry, started: Timestamp) -> PageHandler {
    sync_handler(move |request| {
        let format = ExpositionFormat::negotiate(request.headers());
        let kind = HeaderValue::from_static(format.content_type());
        let mut response = respond(StatusCode::OK, kind, format.encode(&registry));
        let headers = response.headers_mut();
        headers.insert("process-start-time-unix", HeaderValue::from(started.as_second()));
        headers.insert(header::VARY, HeaderValue::from_static("accept"));
        response
    })
}
