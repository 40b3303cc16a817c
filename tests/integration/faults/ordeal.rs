//! Where controllers suffer: one in this process with faults on its requests and on its watches, or a whole manager that is
//! killed between its writes.

use std::sync::Arc;
use std::time::Duration;

use coxswain::client::{Fault, FaultRule, Faults};
use coxswain::framework::{Descriptor, Runtime};
use coxswain::informer::{InformersConfig, WatchTiming};
use coxswain::manager::{Controller, Phase, supervise};
use coxswain::options::Config;
use http::{Method, StatusCode};
use k8s_openapi::api::core::v1::ServiceAccount;
use serde_json::json;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::harness::{ControlPlane, Manager, Namespace, event_logger, faulty_clients, runtime, until};

pub(super) const LIMIT: Duration = Duration::from_mins(3);
/// What reconciles in flight get to finish.
const GRACE: Duration = Duration::from_secs(10);
/// A manager that was killed does not release its Lease.
pub(super) const NO_ELECTION: &str = "--leader-elect=false";

/// A namespace in which pods can be made.
pub(super) async fn namespace(plane: &ControlPlane, name: &str) -> Namespace {
    let namespace = plane.cluster().await.namespace(name).await;
    let _: ServiceAccount = namespace.create(json!({ "metadata": { "name": "default" } })).await;
    namespace
}

/// A controller in this process.
pub(super) struct Ordeal {
    pub(super) namespace: Namespace,
    faults: Faults,
    /// The paths of what it writes.
    paths: &'static str,
    controller: Arc<Controller>,
    runtime: Arc<Runtime>,
    stop: CancellationToken,
    tasks: JoinSet<()>,
}

impl Ordeal {
    /// Starts a controller that suffers whenever it writes to `paths`, and whenever it watches.
    pub(super) async fn start(
        plane: &ControlPlane,
        row: &'static Descriptor,
        paths: &'static str,
        set: impl FnOnce(&mut Config),
    ) -> Self {
        let namespace = namespace(plane, "suffering").await;
        let faults = Faults::new(5);
        suffer(&faults, paths);
        let clients = faulty_clients(&plane.report.kubeconfigs["admin"], &faults).await;
        let source = Arc::new(clients.root("shared-informers"));
        let timing = WatchTiming {
            seconds: 5..=6,
            margin: Duration::from_secs(1),
            initial: Duration::from_secs(3),
            pause: Duration::from_secs(1),
        };
        let config = InformersConfig { timing, ..InformersConfig::default() };
        let mut runtime = runtime(clients, source, config);
        set(&mut runtime.config);
        let runtime = Arc::new(runtime);
        let controller = Arc::new(Controller::new(row, Phase::Standby, true, event_logger()));
        let stop = CancellationToken::new();
        let mut tasks = JoinSet::new();
        tasks.spawn(supervise(Arc::clone(&controller), Arc::clone(&runtime), GRACE, stop.clone()));
        controller.wish(|wish| wish.lead = true);
        Self { namespace, faults, paths, controller, runtime, stop, tasks }
    }

    /// Faults so far.
    pub(super) fn hits(&self) -> usize {
        self.faults.hits()
    }

    /// All is well again, after more than `least` faults.
    pub(super) fn relieve(&self, least: usize) {
        let hits = self.hits();
        assert!(hits > least, "only {hits} faults");
        self.faults.clear();
    }

    /// Somebody (a webhook, a quota) refuses all that the controller writes while `change` is made and until it has tried
    /// `attempts` times.
    pub(super) async fn refused(&self, attempts: usize, change: impl AsyncFnOnce(&Namespace)) {
        let refused =
            || Fault::Status { code: StatusCode::FORBIDDEN, reason: "Forbidden", retry_after: None };
        for method in [Method::POST, Method::PUT, Method::DELETE] {
            self.faults.add(FaultRule::new(refused()).method(method).path(self.paths));
        }
        let before = self.faults.hits();
        change(&self.namespace).await;
        let hits = async || self.faults.hits() - before;
        until(&format!("{attempts} refusals"), LIMIT, hits, |hits| *hits >= attempts).await;
        self.faults.clear();
    }

    /// Ends the controller, which must have run through it all.
    pub(super) async fn end(self) {
        assert_eq!(self.controller.phase(), Phase::Running);
        self.stop.cancel();
        self.tasks.join_all().await;
        self.runtime.events.shutdown(Duration::ZERO).await;
    }
}

fn suffer(faults: &Faults, paths: &str) {
    let refused = |code, reason| Fault::Status { code, reason, retry_after: Some(1) };
    let on = |fault, method, probability| {
        FaultRule::new(fault).method(method).path(paths).probability(probability)
    };
    faults.add(on(Fault::LoseAnswer, Method::POST, 0.25));
    faults.add(on(Fault::Drop, Method::POST, 0.1));
    faults.add(on(refused(StatusCode::FORBIDDEN, "Forbidden"), Method::POST, 0.1));
    faults.add(on(Fault::LoseAnswer, Method::PUT, 0.2));
    faults.add(on(refused(StatusCode::CONFLICT, "Conflict"), Method::PUT, 0.2));
    faults.add(on(refused(StatusCode::INTERNAL_SERVER_ERROR, "InternalError"), Method::PUT, 0.1));
    faults.add(on(Fault::LoseAnswer, Method::DELETE, 0.3));
    faults.add(FaultRule::new(Fault::Cut { after: 1500 }).watch(true).probability(0.3));
    // CacheSource that hear nothing for seconds.
    faults.add(FaultRule::new(Fault::Freeze { after: 800 }).watch(true).probability(0.3));
}

/// A manager that is killed between its writes.
pub(super) struct Mortal<'a> {
    plane: &'a ControlPlane,
    manager: Manager<'a>,
    namespace: &'a Namespace,
    /// What its writes are counted of.
    resource: &'static str,
}

impl<'a> Mortal<'a> {
    /// Starts it, slow about its writes.
    pub(super) fn start(
        plane: &'a ControlPlane,
        args: &[&str],
        namespace: &'a Namespace,
        resource: &'static str,
    ) -> Self {
        let args = [args, &[NO_ELECTION, "--kube-api-qps=20", "--kube-api-burst=5"]].concat();
        let manager = plane.coxswain(&namespace.name, &args);
        Self { plane, manager, namespace, resource }
    }

    /// Writes that were answered.
    pub(super) fn writes(&self) -> usize {
        let all = self.plane.audit().into_iter();
        all.filter(|event| {
            event.is_write()
                && event.coxswain().is_some()
                && event.object_ref.namespace == self.namespace.name
                && event.object_ref.resource == self.resource
        })
        .count()
    }

    /// Makes changes while it is dead; then kills it again and again, each time after `step` writes more.
    pub(super) async fn dies(&self, step: usize, change: impl AsyncFnOnce(&Namespace)) {
        let before = self.writes();
        self.manager.kill();
        change(self.namespace).await;
        self.manager.start_again();
        self.dies_after(before, step).await;
    }

    /// Kills it again and again, each time after `step` writes more than `before`.
    pub(super) async fn dies_after(&self, before: usize, step: usize) {
        for at in 1..=4 {
            let count = async || self.writes() - before;
            until(&format!("{} writes and more", at * step), LIMIT, count, |count| *count >= at * step).await;
            self.manager.kill();
            self.manager.start_again();
        }
    }

    /// Ends it in peace.
    pub(super) fn stop(self) {
        self.manager.stop();
    }
}
