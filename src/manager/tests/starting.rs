//! Controllers start, whatever becomes of one of them. Nothing answers here: no cache is ever filled.

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::{Completed, manager, manager_of, manager_with};
use crate::manager::{Controller, EventLogger, supervise};
use coxswain_controllers::registry::REGISTRY;
use coxswain_machinery::api::kinds::PODS;
use coxswain_machinery::framework::{
    BuildError, Built, DefaultState, Descriptor, Loop, LoopSettings, Observation, ObserveError, Phase, Read,
    Reads, Room, RoomAdapter, RunningLoop, Stop,
};
use coxswain_machinery::model::clock::SystemClock;
use coxswain_machinery::model::live_reads::TEST_READ;
use coxswain_machinery::model::{Failure, Key, Plan};
use coxswain_machinery::options::Flags;
use coxswain_machinery::serve::{Detail, HealthCheck as _, Probe, Unobserved};

const SECOND: Option<Duration> = Some(Duration::from_secs(1));
const TOKENS: &str = "serviceaccount-token-controller";

#[tokio::test(start_paused = true)]
async fn caches_that_stay_unfilled_hold_up_no_other_controller_and_show_in_health() {
    let manager = Box::pin(manager()).await;
    let controllers = &manager.controllers;
    let stop = CancellationToken::new();
    let everything = |_: &_| true;
    controllers.start(&everything, &stop);
    assert!(timeout(Duration::from_secs(1), controllers.token_controller_started(&stop)).await == Ok(true));
    sleep(Duration::from_mins(1)).await;
    for row in REGISTRY.iter().filter(|row| row.build.is_some()) {
        assert_ne!(controllers.get(row.name).unwrap().phase(), Phase::Standby, "{}", row.name);
    }
    assert_eq!(controllers.get(TOKENS).unwrap().phase(), Phase::Starting);

    // The page names the cache and the error, and the check fails no probe.
    let report = manager.health.report_one(Probe::Livez, TOKENS, &Unobserved).unwrap();
    assert!(
        report.text.starts_with("ok, degraded: ") && report.text.contains(": not synced for "),
        "{report:?}"
    );
    assert!(report.text.contains("GET "), "{report:?}");
    for probe in Probe::ALL {
        let report = manager.health.report(probe, &[], Detail::Remarks, &Unobserved);
        let line = format!("[+]{TOKENS} ok, degraded: reason withheld\n");
        assert!(report.text.contains(&line), "{report:?}");
    }

    stop.cancel();
    controllers.stopped().await;
    manager.runtime.informers.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn controllers_start_after_one_to_two_start_intervals_all_at_the_same_time() {
    let interval = |flags: &mut Flags| flags.controller_start_interval = Duration::from_mins(1);
    let manager = Box::pin(manager_with("http://127.0.0.1:1", interval)).await;
    let controllers = &manager.controllers;
    let stop = CancellationToken::new();
    let waiting = || {
        let all = controllers.all().iter();
        all.filter(|each| each.phase() == Phase::Standby).map(|each| each.name()).collect::<Vec<_>>()
    };
    let all = waiting();
    controllers.start(&|_: &_| true, &stop);
    assert_eq!(timeout(Duration::from_secs(1), controllers.token_controller_started(&stop)).await, Ok(true));
    sleep(Duration::from_secs(58)).await;
    let others: Vec<_> = all.iter().copied().filter(|name| *name != TOKENS).collect();
    assert_eq!(waiting(), others);
    // Controllers that wait have a health check, which passes.
    let report = manager.health.report(Probe::Healthz, &[], Detail::Remarks, &Unobserved);
    for name in &others {
        assert!(report.text.contains(&format!("[+]{name} ok\n")), "{name}: {report:?}");
    }
    sleep(Duration::from_secs(31)).await;
    let half = waiting().len();
    assert!((1..others.len()).contains(&half), "{half} of {} wait after 90 s", others.len());
    sleep(Duration::from_secs(31)).await;
    assert_eq!(waiting(), [""; 0]);
    stop.cancel();
    controllers.stopped().await;
    manager.runtime.informers.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn controller_disabled_before_its_start_interval_is_over_does_not_start() {
    let interval = |flags: &mut Flags| flags.controller_start_interval = Duration::from_mins(1);
    let manager = Box::pin(manager_with("http://127.0.0.1:1", interval)).await;
    let controllers = &manager.controllers;
    let stop = CancellationToken::new();
    controllers.start(&|_: &_| true, &stop);
    sleep(Duration::from_secs(10)).await;
    let job = controllers.get("job-controller").unwrap();
    job.wish(|wish| wish.enabled = false);
    job.show_wish();
    assert_eq!(job.phase(), Phase::Disabled);
    sleep(Duration::from_mins(3)).await;
    assert_eq!(job.phase(), Phase::Disabled);
    // A stop while controllers wait does not wait for them.
    stop.cancel();
    assert!(timeout(Duration::from_secs(15), controllers.stopped()).await.is_ok());
    manager.runtime.informers.shutdown().await;
}

/// It hangs on what the API has.
static DISCOVERED: Descriptor = Descriptor {
    name: "discovered-controller",
    aliases: &[],
    description: "Does nothing with what is served.",
    gates: &[],
    default: DefaultState::On,
    cloud: false,
    special: false,
    service_account: None,
    event_source: None,
    writes: &[],
    build: Some(|with| {
        with.resources()?;
        Err(BuildError::NotYet("it is known what is served".to_owned()))
    }),
};

/// Its configuration is wrong.
static MISCONFIGURED: Descriptor = Descriptor {
    name: "misconfigured-controller",
    aliases: &[],
    description: "Refuses its flags.",
    gates: &[],
    default: DefaultState::On,
    cloud: false,
    special: false,
    service_account: None,
    event_source: None,
    writes: &[],
    build: Some(|_| Err(BuildError::Invalid("the flag is wrong".to_owned()))),
};

/// A room that waits for an answer of the API server.
struct ReadsLive;

impl Room for ReadsLive {
    type View = ();

    fn observe(&self, key: &Key, _: &[Failure], read: &Reads) -> Result<Observation<()>, ObserveError> {
        Ok(match read.object(&PODS, key) {
            None => Observation::Needs(vec![TEST_READ.of(Read::Object(&PODS, key.clone()))]),
            Some(_) => Observation::Nothing,
        })
    }

    fn plan((): &(), _: Timestamp) -> Plan {
        Plan::default()
    }
}

/// Its only reconcile waits for the API server.
static WAITING: Descriptor = Descriptor {
    name: "waiting-controller",
    description: "Waits for an answer.",
    build: Some(|_| {
        Ok(Built {
            loops: vec![Loop {
                queue: "waiting",
                kind: None,
                settings: LoopSettings { seeds: vec![Key::new("ns", "pod")], ..LoopSettings::default() },
                wake_ups: Vec::new(),
                reconcile: Arc::new(RoomAdapter::new(ReadsLive)),
            }],
        })
    }),
    aliases: &[],
    gates: &[],
    default: DefaultState::On,
    cloud: false,
    special: false,
    service_account: None,
    event_source: None,
    writes: &[],
};

/// Starts a controller that is to lead, under a manager of this API server.
async fn lead(
    descriptor: &'static Descriptor,
    server: &TcpListener,
    grace: Option<Duration>,
) -> (Arc<Controller>, JoinSet<Stop>, CancellationToken) {
    let manager = Box::pin(manager_of(&format!("http://{}", server.local_addr().unwrap()))).await;
    lead_under(&manager, descriptor, grace)
}

fn lead_under(
    manager: &Completed,
    descriptor: &'static Descriptor,
    grace: Option<Duration>,
) -> (Arc<Controller>, JoinSet<Stop>, CancellationToken) {
    let event_logger = Arc::new(EventLogger::new(Arc::new(SystemClock)));
    let controller = Arc::new(Controller::new(descriptor, Phase::Standby, true, event_logger));
    let stop = CancellationToken::new();
    let mut tasks = JoinSet::new();
    tasks.spawn(supervise(Arc::clone(&controller), Arc::clone(&manager.runtime), grace, stop.clone()));
    controller.wish(|wish| wish.lead = true);
    (controller, tasks, stop)
}

/// Answers each connection with 403.
fn refuse(server: &TcpListener) -> JoinSet<()> {
    const ANSWER: &[u8] = b"HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
    let server = server.try_clone().unwrap();
    server.set_nonblocking(true).unwrap();
    let server = tokio::net::TcpListener::from_std(server).unwrap();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        while let Ok((mut connection, _)) = server.accept().await {
            // A client that hangs up gets no answer.
            if connection.read(&mut [0; 4096]).await.is_ok() {
                let _ = connection.write_all(ANSWER).await;
            }
        }
    });
    tasks
}

#[tokio::test]
async fn controller_that_may_not_discover_is_degraded_and_fails_no_probe() {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let _answers = refuse(&server);
    let (controller, tasks, stop) = lead(&DISCOVERED, &server, SECOND).await;
    let mut phases = controller.phases();
    let failed = phases.wait_for(|phase| matches!(phase, Phase::Unstarted(_)));
    timeout(Duration::from_secs(30), failed).await.unwrap().unwrap();
    assert_eq!(controller.check(), Ok(()));
    assert!(controller.degraded().is_some_and(|why| why.starts_with("discovery: ")));
    stop.cancel();
    tasks.join_all().await;
}

#[tokio::test(start_paused = true)]
async fn controller_that_cannot_be_built_is_degraded_and_fails_no_probe() {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let (controller, tasks, stop) = lead(&MISCONFIGURED, &server, SECOND).await;
    let mut phases = controller.phases();
    phases.wait_for(|phase| matches!(phase, Phase::Unstarted(_))).await.unwrap();
    assert_eq!(controller.check(), Ok(()));
    assert_eq!(controller.degraded().as_deref(), Some("the flag is wrong"));
    stop.cancel();
    tasks.join_all().await;
}

/// `--controller-shutdown-timeout=0` gives reconciles all the time that they need. A controller that is to run again must not wait for them.
#[tokio::test(start_paused = true)]
async fn controller_that_stops_without_a_limit_starts_again_when_it_is_wanted() {
    // It takes connections and never answers.
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let (controller, tasks, stop) = lead(&WAITING, &server, None).await;
    let mut phases = controller.phases();
    phases.wait_for(|phase| *phase == Phase::Running).await.unwrap();
    while controller.loops().iter().all(|work| !work.queue().is_empty() || work.stats().syncs() > 0) {
        tokio::task::yield_now().await;
    }
    let began = tokio::time::Instant::now();
    controller.wish(|wish| wish.enabled = false);
    phases.wait_for(|phase| *phase == Phase::Stopping).await.unwrap();
    controller.wish(|wish| wish.enabled = true);
    phases.wait_for(|phase| *phase == Phase::Running).await.unwrap();
    let time = began.elapsed();
    assert!(Duration::from_secs(30) <= time && time < Duration::from_secs(31), "{time:?}");
    stop.cancel();
    tasks.join_all().await;
}

#[tokio::test(start_paused = true)]
async fn a_controller_that_waits_for_discovery_can_be_disabled() {
    // It takes connections and never answers.
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let (controller, tasks, stop) = lead(&DISCOVERED, &server, SECOND).await;
    let mut phases = controller.phases();
    phases.wait_for(|phase| *phase == Phase::Starting).await.unwrap();
    tokio::task::yield_now().await;
    controller.wish(|wish| wish.enabled = false);
    let disabled = phases.wait_for(|phase| *phase == Phase::Disabled);
    assert!(timeout(Duration::from_secs(1), disabled).await.is_ok(), "{:?}", controller.phase());
    stop.cancel();
    tasks.join_all().await;
}

/// How often [`REBUILT`] was built.
static BUILT: AtomicUsize = AtomicUsize::new(0);

/// It has nothing to do.
static REBUILT: Descriptor = Descriptor {
    name: "rebuilt-controller",
    aliases: &[],
    description: "Counts how often it is built.",
    gates: &[],
    default: DefaultState::On,
    cloud: false,
    special: false,
    service_account: None,
    event_source: None,
    writes: &[],
    build: Some(|_| {
        BUILT.fetch_add(1, Ordering::SeqCst);
        Ok(Built { loops: Vec::new() })
    }),
};

#[tokio::test(start_paused = true)]
async fn controller_is_built_again_after_a_restore_of_etcd() {
    let manager = Box::pin(manager()).await;
    let (controller, tasks, stop) = lead_under(&manager, &REBUILT, SECOND);
    let epochs = manager.runtime.informers.epochs();
    for built in 1..=3 {
        sleep(Duration::from_hours(1)).await;
        assert_eq!((BUILT.load(Ordering::SeqCst), controller.phase()), (built, Phase::Running));
        assert!(epochs.present().compare(&"pods", 7, 6).is_some());
    }
    assert_eq!(controller.restarts(), 0, "none of it is a failure");
    stop.cancel();
    tasks.join_all().await;
}

/// Its reconcile rests on caches of before, and the next instance must not wait for it.
#[tokio::test(start_paused = true)]
async fn reconcile_under_way_is_aborted_after_a_restore_of_etcd() {
    for grace in [None, Some(Duration::from_mins(10))] {
        // It takes connections and never answers.
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let manager = Box::pin(manager_of(&format!("http://{}", server.local_addr().unwrap()))).await;
        let (controller, tasks, stop) = lead_under(&manager, &WAITING, grace);
        let mut phases = controller.phases();
        phases.wait_for(|phase| *phase == Phase::Running).await.unwrap();
        while controller.loops().iter().all(|work| !work.queue().is_empty() || work.stats().syncs() > 0) {
            tokio::task::yield_now().await;
        }
        let first = controller.loops();
        let is_new = |work: &RunningLoop| !std::ptr::eq(work.queue(), first[0].queue());
        assert!(manager.runtime.informers.epochs().present().compare(&"pods", 7, 6).is_some());
        let rebuilt = async {
            while !controller.loops().iter().any(is_new) {
                sleep(Duration::from_millis(10)).await;
            }
        };
        assert!(
            timeout(Duration::from_secs(1), rebuilt).await.is_ok(),
            "{grace:?}: {:?}",
            controller.phase()
        );
        stop.cancel();
        // The second instance waits for an answer as well.
        drop(tasks);
    }
}
