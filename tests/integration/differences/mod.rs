//! Rows of `tests/differences.tsv` with the real kube-controller-manager: it does what the row states, Coxswain takes over and does what
//! its row states, and kube-controller-manager gets everything back.
//!
//! A [`Case`] plays in a namespace of its own under each manager. A takeover changes no object of a case, unless the case states that
//! Coxswain mends what kube-controller-manager has left.
//!
//! | module | rows |
//! |---|---|
//! | [`workloads`], [`network`], [`api`], [`storage`], [`autoscaling`] | objects, Events, metrics and requests |
//! | [`requests`] | preconditions of writes, which a proxy records |
//! | [`process`] | flags, logs, metrics, ports and threads |

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use coxswain_machinery::model::clock::{Clock as _, SystemClock};
use futures::future::{BoxFuture, join_all};
use jiff::Timestamp;
use serde_json::Value;
use tokio::time::Instant;

use self::recorder::Recorder;
use self::scene::{Outcome, Scene};
use crate::harness::{
    Activity, ControlPlane, Manager, MetricsApi, Options, Program, Proxy, turn_beside_another,
};

mod api;
mod autoscaling;
mod network;
mod process;
mod recorder;
mod requests;
mod scene;
mod storage;
mod workloads;

const LIMIT: Duration = Duration::from_mins(2);
/// The time without writes after which a takeover is over.
const CALM: Duration = Duration::from_secs(1);

type Played = BoxFuture<'static, Outcome>;

/// A row of the table, shown in a namespace.
struct Case {
    /// The row: `Differs: ID`.
    id: &'static str,
    /// Creates what exists before the manager starts.
    prepare: fn(Arc<Scene>) -> Played,
    /// Plays it under the manager that runs.
    play: fn(Arc<Scene>) -> Played,
    taken: Taken,
}

/// The state after the takeover of what another manager has left.
enum Taken {
    /// No object of the namespace was written.
    Unchanged,
    /// Coxswain mends it, as the function shows. kube-controller-manager changes nothing when it gets everything back.
    Mended(fn(Arc<Scene>) -> Played),
    /// The same, but kube-controller-manager writes its own state again.
    Disputed(fn(Arc<Scene>) -> Played),
    /// Both managers write what they have left to do: the objects change in time.
    Moving,
}

/// The cases of an area, and where they play.
struct Area {
    cases: &'static [Case],
    plane: &'static [&'static str],
    args: &'static [&'static str],
    has_metrics_apis: bool,
    is_recorded: bool,
}

fn nothing(_: Arc<Scene>) -> Played {
    Box::pin(std::future::ready(Ok(())))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workloads_differ_as_recorded() {
    play(&workloads::AREA).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn services_differ_as_recorded() {
    play(&network::AREA).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn collection_and_identity_differ_as_recorded() {
    play(&api::AREA).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn volumes_and_devices_differ_as_recorded() {
    play(&storage::AREA).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn autoscaling_differs_as_recorded() {
    play(&autoscaling::AREA).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn preconditions_differ_as_recorded() {
    play(&requests::AREA).await;
}

/// A term of a manager on a control plane.
struct Term<'a> {
    manager: Manager<'a>,
    _proxy: Option<Proxy>,
    recorder: Option<Arc<Recorder>>,
    since: Timestamp,
}

/// The stage of an area.
struct Stage {
    area: &'static Area,
    plane: Arc<ControlPlane>,
    cluster: crate::harness::Cluster,
    metrics: Option<Arc<MetricsApi>>,
}

impl Stage {
    async fn start(area: &'static Area) -> Self {
        let args = [&["--audit", "--kwok=false", "--scheduler=false"][..], area.plane].concat();
        let plane = Arc::new(ControlPlane::start(&Options { nodes: 0, args }));
        let cluster = plane.cluster().await;
        let metrics = if area.has_metrics_apis {
            Some(Arc::new(MetricsApi::start(&plane, &cluster.client, &["v1beta2"]).await))
        } else {
            None
        };
        Self { area, plane, cluster, metrics }
    }

    /// Creates the namespaces for a manager that is not yet started.
    async fn prepare(&self, program: Program) -> (Vec<Scene>, Vec<String>) {
        let (mut scenes, mut complaints) = (Vec::new(), Vec::new());
        for (at, case) in self.area.cases.iter().enumerate() {
            let namespace = self.cluster.namespace("row").await;
            namespace.default_account().await;
            let scene = Scene {
                program,
                plane: Arc::clone(&self.plane),
                cluster: self.cluster.clone(),
                name: namespace.name,
                url: String::new(),
                since: SystemClock.now(),
                number: at + if program == Program::Go { 0 } else { self.area.cases.len() },
                metrics: self.metrics.clone(),
                recorder: None,
            };
            let prepared = (case.prepare)(Arc::new(scene.under(program, ""))).await;
            complaints.extend(prepared.err().map(|error| format!("{}: before {program}: {error}", case.id)));
            scenes.push(scene);
        }
        (scenes, complaints)
    }

    async fn lead(&self, program: Program, name: &str) -> Term<'_> {
        let since = SystemClock.now();
        let mut args: Vec<&str> = self.area.args.to_vec();
        let (mut proxy, mut recorder) = (None, None);
        args.push("--leader-elect=false");
        let master: String;
        if self.area.is_recorded {
            let bodies = Recorder::new();
            let started = Proxy::start(&self.plane, Arc::clone(&bodies) as _).await;
            master = format!("--master={}", started.url);
            args.extend([master.as_str(), "--kube-api-content-type=application/json"]);
            (proxy, recorder) = (Some(started), Some(bodies));
        }
        let manager = match program {
            Program::Go => self.plane.go_manager(name, &args),
            Program::Coxswain => self.plane.coxswain(name, &args),
        };
        manager.await_start(LIMIT).await;
        Term { manager, _proxy: proxy, recorder, since }
    }
}

/// Plays all cases under kube-controller-manager, then under Coxswain, and checks each takeover.
async fn play(area: &'static Area) {
    let _turn = turn_beside_another().await;
    let stage = Stage::start(area).await;
    let mut complaints = Vec::new();
    let (theirs, more) = stage.prepare(Program::Go).await;
    complaints.extend(more);
    let go = stage.lead(Program::Go, "go-1").await;
    complaints.extend(play_cases(&stage, &theirs, &go, Program::Go).await);
    settle(&stage, &go, &theirs).await;
    go.manager.stop();

    let (ours, more) = stage.prepare(Program::Coxswain).await;
    complaints.extend(more);
    let before = state(&stage, &theirs);
    let coxswain = stage.lead(Program::Coxswain, "coxswain").await;
    complaints.extend(take_over(&stage, &theirs, &coxswain, Program::Coxswain, &before).await);
    complaints.extend(play_cases(&stage, &ours, &coxswain, Program::Coxswain).await);
    let all: Vec<Scene> = theirs.iter().chain(&ours).map(|scene| scene.under(Program::Go, "")).collect();
    settle(&stage, &coxswain, &all).await;
    complaints.extend(coxswain.manager.errors().into_iter().filter(|line| line.contains("panicked")));
    coxswain.manager.stop();

    let before = state(&stage, &all);
    let go = stage.lead(Program::Go, "go-2").await;
    complaints.extend(take_over(&stage, &all, &go, Program::Go, &before).await);
    go.manager.stop();
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

async fn play_cases(stage: &Stage, scenes: &[Scene], term: &Term<'_>, program: Program) -> Vec<String> {
    let plays = stage.area.cases.iter().zip(scenes).map(async |(case, scene)| {
        let mut scene = scene.under(program, &term.manager.url);
        scene.recorder.clone_from(&term.recorder);
        scene.since = term.since;
        // A panic of one case leaves the others to be judged.
        let played = tokio::spawn((case.play)(Arc::new(scene))).await;
        let outcome = played.unwrap_or_else(|error| Err(error.to_string()));
        outcome.err().map(|error| format!("{}: under {program}: {error}", case.id))
    });
    join_all(plays).await.into_iter().flatten().collect()
}

/// Waits until the manager has written nothing in the namespaces for a moment.
async fn settle(stage: &Stage, term: &Term<'_>, scenes: &[Scene]) {
    let activity = Activity::follow(&stage.plane, &term.manager).await;
    let names: Vec<String> = scenes.iter().map(|scene| scene.name.clone()).collect();
    // Linear: an area has few cases.
    let concerns = move |place: &str| names.iter().any(|name| place.starts_with(name.as_str()));
    activity.quiet(concerns, Instant::now(), CALM, Duration::from_secs(20)).await;
}

/// The objects of the namespaces by scene, as `KIND/NAME` and resource version.
type State = Vec<BTreeMap<String, String>>;

/// Kinds that a takeover must leave alone.
const KEPT: [&str; 18] = [
    "ConfigMap",
    "CronJob",
    "DaemonSet",
    "Deployment",
    "EndpointSlice",
    "Endpoints",
    "HorizontalPodAutoscaler",
    "Job",
    "PersistentVolumeClaim",
    "Pod",
    "PodDisruptionBudget",
    "ReplicaSet",
    "ReplicationController",
    "ResourceClaim",
    "Secret",
    "Service",
    "ServiceAccount",
    "StatefulSet",
];

fn state(stage: &Stage, scenes: &[Scene]) -> State {
    let mut all: Vec<BTreeMap<String, String>> = scenes.iter().map(|_| BTreeMap::new()).collect();
    let kinds = KEPT.join(",");
    let listed = stage.plane.kubectl(&["get", &kinds, "-A", "-o", "json"]);
    let listed: Value = serde_json::from_str(&listed).expect("JSON");
    let places: BTreeMap<&str, usize> =
        scenes.iter().enumerate().map(|(at, scene)| (scene.name.as_str(), at)).collect();
    for object in listed["items"].as_array().into_iter().flatten() {
        let metadata = &object["metadata"];
        if let Some(at) = places.get(metadata["namespace"].as_str().unwrap_or_default()) {
            let name = format!("{}/{}", object["kind"], metadata["name"]).replace('"', "");
            all[*at].insert(name, metadata["resourceVersion"].to_string());
        }
    }
    all
}

/// Waits until a manager has taken over, and returns what it changed although it should not, or did not mend.
async fn take_over(
    stage: &Stage,
    scenes: &[Scene],
    term: &Term<'_>,
    program: Program,
    before: &State,
) -> Vec<String> {
    let cases = || stage.area.cases.iter().cycle();
    let mended = cases().zip(scenes).map(async |(case, scene)| {
        let (Taken::Mended(shown) | Taken::Disputed(shown)) = &case.taken else { return None };
        if program == Program::Go {
            return None;
        }
        let played = tokio::spawn(shown(Arc::new(scene.under(program, &term.manager.url)))).await;
        let outcome = played.unwrap_or_else(|error| Err(error.to_string()));
        outcome.err().map(|error| format!("{}: taken over: {error}", case.id))
    });
    let mut complaints: Vec<String> = join_all(mended).await.into_iter().flatten().collect();
    settle(stage, term, scenes).await;
    let after = state(stage, scenes);
    for (case, (was, is)) in cases().zip(before.iter().zip(&after)) {
        let is_kept = match case.taken {
            Taken::Unchanged => true,
            Taken::Mended(_) => program == Program::Go,
            Taken::Disputed(_) | Taken::Moving => false,
        };
        if is_kept && was != is {
            let changed: Vec<&String> =
                (was.keys().chain(is.keys())).filter(|name| was.get(*name) != is.get(*name)).collect();
            complaints.push(format!("{}: {program} changed at its takeover: {changed:?}", case.id));
        }
    }
    complaints
}

/// The rows that the cases show name the tests of this module.
#[test]
fn every_case_has_a_row_that_names_its_test() {
    const TABLE: &str = include_str!("../../differences.tsv");
    let areas = [
        (&workloads::AREA, "workloads_differ_as_recorded"),
        (&network::AREA, "services_differ_as_recorded"),
        (&api::AREA, "collection_and_identity_differ_as_recorded"),
        (&storage::AREA, "volumes_and_devices_differ_as_recorded"),
        (&autoscaling::AREA, "autoscaling_differs_as_recorded"),
        (&requests::AREA, "preconditions_differ_as_recorded"),
    ];
    let rows: BTreeMap<&str, &str> = TABLE.lines().filter_map(|line| line.split_once('\t')).collect();
    let named = |id: &str, test: &str| {
        rows.get(id).is_some_and(|row| row.contains(&format!("integration::differences::{test}")))
    };
    let cases = areas.iter().flat_map(|(area, test)| area.cases.iter().map(move |case| (case.id, *test)));
    let missing: Vec<_> = cases.filter(|(id, test)| !named(id, test)).collect();
    assert_eq!(missing, [], "rows that do not name the test that shows them");
}
