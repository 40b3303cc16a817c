//! A term that ends under orders, a caller that hangs up, and a leader that cannot read the overrides for a while. A proxy holds up and
//! refuses requests of the leader, and holds up answers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use coxswain::admin::overrides::{LEASE_NAME, LEASE_NAMESPACE};
use coxswain::admin::proto::{self, Phase};
use futures::future::{BoxFuture, ready};
use http::{Method, StatusCode, Uri};
use tokio::sync::watch;
use tokio::time::sleep;
use tonic::{Code, Status};

use super::caller::reason;
use super::failover::{PATIENT, history, in_phase};
use super::{Admin, DEPLOYMENT, LIMIT, REPLICA_SET, all_run, assert_unharmed, bare};
use crate::harness::{Caller, ControlPlane, Fate, Proxy, Tamper, turn, turn_beside_another, until};

const CRONJOB: &str = "cronjob-controller";
/// Longer than the 10 seconds after which a leader once started controllers without the overrides.
const WITHOUT_OVERRIDES: Duration = Duration::from_secs(12);

/// Holds up new Pods and reads of CronJobs, and refuses reads of the overrides.
struct Valve {
    holds: watch::Sender<bool>,
    refuses_overrides: AtomicBool,
    /// Number of new Pods that were held up.
    pods: AtomicUsize,
}

impl Valve {
    fn new() -> Self {
        Self {
            holds: watch::Sender::new(false),
            refuses_overrides: AtomicBool::new(false),
            pods: AtomicUsize::new(0),
        }
    }

    fn hold(&self, holds: bool) {
        self.holds.send_replace(holds);
    }

    fn refuse_overrides(&self, refuses: bool) {
        self.refuses_overrides.store(refuses, Ordering::SeqCst);
    }

    fn held_pods(&self) -> usize {
        self.pods.load(Ordering::SeqCst)
    }
}

impl Tamper for Valve {
    fn fate<'a>(&'a self, method: &'a Method, uri: &'a Uri) -> BoxFuture<'a, Fate> {
        let is_read = *method == Method::GET;
        if is_read && self.refuses_overrides.load(Ordering::SeqCst) && uri.to_string().contains(LEASE_NAME) {
            return Box::pin(ready(Fate::Refused(StatusCode::SERVICE_UNAVAILABLE)));
        }
        let is_pod = *method == Method::POST && uri.path().ends_with("/pods");
        let is_list = is_read && uri.path().ends_with("/cronjobs");
        if !is_pod && !is_list {
            return Box::pin(ready(Fate::Passes));
        }
        Box::pin(async move {
            let mut holds = self.holds.subscribe();
            if is_pod && *holds.borrow_and_update() {
                self.pods.fetch_add(1, Ordering::SeqCst);
            }
            drop(holds.wait_for(|holds| !holds).await);
            Fate::Passes
        })
    }
}

/// Holds up the answers to changes of the overrides.
struct AnswerValve {
    holds: watch::Sender<bool>,
    /// Number of answers that were held up.
    held: AtomicUsize,
}

impl Tamper for AnswerValve {
    fn delays<'a>(&'a self, method: &'a Method, uri: &'a Uri) -> BoxFuture<'a, ()> {
        if *method == Method::GET || !uri.path().ends_with(LEASE_NAME) {
            return Box::pin(ready(()));
        }
        Box::pin(async move {
            let mut holds = self.holds.subscribe();
            if *holds.borrow_and_update() {
                self.held.fetch_add(1, Ordering::SeqCst);
            }
            drop(holds.wait_for(|holds| !holds).await);
        })
    }
}

async fn step_down(admin: &Admin) -> Result<(), Status> {
    admin.leader().step_down(proto::StepDownRequest::default()).await.map(drop)
}

/// A caller may repeat a call that is answered with `NOT_LEADER` at the next leader.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn orders_under_which_a_term_ends_are_not_repeated_at_the_next_leader() {
    let _turn = turn().await;
    let plane = ControlPlane::start(&bare());
    let valve = Arc::new(Valve::new());
    let proxy = Proxy::start(&plane, Arc::clone(&valve) as _).await;
    let master = format!("--master={}", proxy.url);
    let few = "--controllers=replicaset-controller,cronjob-controller";
    let first = plane.coxswain("first", &[PATIENT, &[few, master.as_str()]].concat());
    let on_first = Admin::master(&plane, &first);
    for name in [REPLICA_SET, CRONJOB] {
        in_phase(&on_first, name, Phase::Running).await;
    }
    let second = plane.coxswain("second", &[PATIENT, &[few]].concat());
    let on_second = Admin::master(&plane, &second);
    let replicas = || async {
        let answer = on_first.leader().get_leader(proto::GetLeaderRequest::default()).await;
        answer.expect("an answer").into_inner().replicas.len()
    };
    until("both replicas to be known", LIMIT, replicas, |count| *count == 2).await;
    let namespace = plane.cluster().await.namespace("interrupted").await;
    namespace.default_account().await;

    on_first.toggle(CRONJOB, false, true).await.expect("disabled");
    valve.hold(true);
    let meanwhile = async {
        // The caches of the enabled controller are not filled, so its caller waits.
        in_phase(&on_first, CRONJOB, Phase::Starting).await;
        // A Pod on its way keeps the term from ending before both requests have arrived.
        namespace.replica_set("web", 1).await;
        until("a new Pod on its way", LIMIT, || async { valve.held_pods() }, |count| *count > 0).await;
        let pass_on = async {
            in_phase(&on_first, REPLICA_SET, Phase::Stopping).await;
            valve.hold(false);
        };
        let (one, other, ()) = tokio::join!(step_down(&on_first), step_down(&on_first), pass_on);
        [one, other]
    };
    let (enabled, ended) = tokio::join!(on_first.toggle(CRONJOB, true, true), meanwhile);

    let lost = enabled.expect_err("this replica no longer leads");
    assert_eq!((lost.code(), reason(&lost)), (Code::Aborted, "LEADERSHIP_LOST".to_owned()), "{lost:?}");
    let refused: Vec<String> = ended.iter().filter_map(|ended| ended.as_ref().err()).map(reason).collect();
    assert_eq!(refused, ["LEADER_CHANGED"], "one request ends the term: {ended:?}");
    until("the other replica to lead", LIMIT, || on_second.leads(), |leads| *leads == Some(true)).await;
    in_phase(&on_second, CRONJOB, Phase::Running).await;
    for manager in [&first, &second] {
        assert_unharmed(&plane, manager);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_cannot_read_the_overrides_starts_no_controller() {
    let _turn = turn_beside_another().await;
    let plane = ControlPlane::start(&bare());
    let valve = Arc::new(Valve::new());
    let proxy = Proxy::start(&plane, Arc::clone(&valve) as _).await;
    let master = format!("--master={}", proxy.url);
    let manager = plane.coxswain("coxswain", &[PATIENT, &[master.as_str()]].concat());
    let admin = Admin::master(&plane, &manager);
    all_run(&admin).await;
    admin.toggle(DEPLOYMENT, false, true).await.expect("disabled");

    manager.stop();
    valve.refuse_overrides(true);
    manager.start_again();
    let again = plane.running(&manager.name);
    let waits = || async {
        let page = again.try_page(Caller::Anonymous, "/healthz?verbose").await;
        page.is_some_and(|page| page.status == 200 && page.text.contains("[+]overrides ok, degraded: "))
    };
    until("the leader to wait for the overrides", LIMIT, waits, |waits| *waits).await;
    // No condition ends this wait: the controllers must not start while it lasts.
    sleep(WITHOUT_OVERRIDES).await;
    assert!(waits().await, "controllers were started without the overrides");

    valve.refuse_overrides(false);
    let admin = Admin::master(&plane, &again);
    in_phase(&admin, REPLICA_SET, Phase::Running).await;
    in_phase(&admin, DEPLOYMENT, Phase::Disabled).await;
    let phases = history(&admin, DEPLOYMENT).await;
    let is_started = |(phase, _): &(Phase, i64)| matches!(phase, Phase::Starting | Phase::Running);
    assert!(!phases.iter().any(is_started), "{phases:?}");

    // The override has outlived all replicas, so the leader reports it.
    let selector = "--field-selector=reason=OverridesInherited,type=Warning";
    let events = ["-n", LEASE_NAMESPACE, "get", "events", selector, "-o", "jsonpath={.items[*].message}"];
    let warnings = || async { plane.kubectl(&events) };
    until("a Warning about the override", LIMIT, warnings, |text| text.contains(DEPLOYMENT)).await;
    let leader = admin.leader().get_leader(proto::GetLeaderRequest::default()).await.expect("an answer");
    assert_eq!(leader.into_inner().overrides.unwrap_or_default().count, 1);
    assert_unharmed(&plane, &again);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn order_whose_caller_hangs_up_has_an_event_and_an_audit_line() {
    let _turn = turn_beside_another().await;
    let plane = ControlPlane::start(&bare());
    let valve = Arc::new(AnswerValve { holds: watch::Sender::new(false), held: AtomicUsize::new(0) });
    let proxy = Proxy::start(&plane, Arc::clone(&valve) as _).await;
    let master = format!("--master={}", proxy.url);
    let manager = plane.coxswain("coxswain", &[PATIENT, &[master.as_str()]].concat());
    let admin = Admin::master(&plane, &manager);
    in_phase(&admin, CRONJOB, Phase::Running).await;
    // This order creates the Lease, so the next one updates it.
    admin.toggle(DEPLOYMENT, false, true).await.expect("disabled");

    valve.holds.send_replace(true);
    let reason = "hang up";
    let order = async {
        let (name, reason) = (CRONJOB.to_owned(), reason.to_owned());
        let request = proto::DisableControllerRequest { name, reason, ..Default::default() };
        admin.controllers().disable_controller(request).await
    };
    let held = || async { valve.held.load(Ordering::SeqCst) };
    tokio::select! {
        answer = order => panic!("it was answered before the API server's answer arrived: {answer:?}"),
        _ = until("the order to be stored", LIMIT, held, |held| *held > 0) => {}
    }
    in_phase(&admin, CRONJOB, Phase::Disabled).await;
    valve.holds.send_replace(false);

    let audit_line = || async {
        let log = manager.log();
        log.lines().find(|line| line.contains("Admin call") && line.contains(reason)).map(str::to_owned)
    };
    let line = until("an audit line", LIMIT, audit_line, Option::is_some).await.expect("just seen");
    assert!(line.contains("changed") && line.contains("gone"), "{line}");
    let selector = "--field-selector=reason=ControllerDisabled";
    let events = ["-n", LEASE_NAMESPACE, "get", "events", selector, "-o", "jsonpath={.items[*].message}"];
    let messages = || async { plane.kubectl(&events) };
    until("an Event about the order", LIMIT, messages, |text| text.contains(reason)).await;
    assert_unharmed(&plane, &manager);
}
