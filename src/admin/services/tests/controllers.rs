//! `ControllerService`: reading, enabling, disabling, watching.

use std::time::Duration;

use tonic::Code;
use tonic_types::StatusExt as _;

use super::fake::{ME, NextWrite, OTHER, at};
use super::*;
use crate::admin::manager::{MutationKind, Phase};
use crate::admin::overrides::{ANNOTATION_PREFIX, Entry, Order, OverrideSet};
use crate::admin::proto::controller_service_client::ControllerServiceClient;
use crate::admin::proto::watch_controllers_response::Update;
use crate::admin::proto::{self, DesiredSource, Health};

type Client = ControllerServiceClient<Channel>;

impl Bench {
    fn controllers(&self) -> Client {
        ControllerServiceClient::new(self.channel.clone())
    }
}

fn disable(name: &str) -> proto::DisableControllerRequest {
    proto::DisableControllerRequest { name: name.to_owned(), ..Default::default() }
}

fn enable(name: &str) -> proto::EnableControllerRequest {
    proto::EnableControllerRequest { name: name.to_owned(), ..Default::default() }
}

fn clear(name: &str) -> proto::ClearOverridesRequest {
    proto::ClearOverridesRequest { name: name.to_owned(), ..Default::default() }
}

fn seconds(seconds: i64) -> prost_types::Duration {
    prost_types::Duration { seconds, nanos: 0 }
}

fn order(order: Order, version: u64) -> Entry {
    let (user, replica) = ("joe".into(), OTHER.into());
    let force = Some(false);
    Entry { order, user, time: at(0), reason: String::new(), until: None, version, replica, force }
}

async fn get(client: &mut Client, name: &str) -> proto::Controller {
    let request = jane(proto::GetControllerRequest { name: name.to_owned() });
    client.get_controller(request).await.unwrap().into_inner().controller.unwrap()
}

#[tokio::test]
async fn controllers_are_listed_in_pages_and_filtered() {
    let bench = Bench::new().await;
    let mut client = bench.controllers();
    let (mut names, mut token) = (vec![], String::new());
    loop {
        let request = proto::ListControllersRequest { page_size: 3, page_token: token, ..Default::default() };
        let page = client.list_controllers(jane(request)).await.unwrap().into_inner();
        assert_eq!(page.total_size, 7);
        names.extend(page.controllers.into_iter().map(|controller| controller.name));
        token = page.next_page_token;
        if token.is_empty() {
            break;
        }
    }
    assert_eq!(names.len(), 7);
    assert!(names.is_sorted());

    let mut list = async |filter: proto::ControllerFilter| {
        let request = proto::ListControllersRequest { filter: Some(filter), ..Default::default() };
        let page = client.list_controllers(jane(request)).await.unwrap().into_inner();
        page.controllers.into_iter().map(|controller| controller.name).collect::<Vec<_>>()
    };
    let filter = proto::ControllerFilter::default;
    assert_eq!(
        list(proto::ControllerFilter { phases: vec![proto::Phase::Skipped.into()], ..filter() }).await,
        ["bundle-controller", "service-lb-controller"]
    );
    let wanted = vec!["deployment".to_owned(), "unknown".to_owned()];
    assert_eq!(list(proto::ControllerFilter { names: wanted, ..filter() }).await, ["deployment-controller"]);
    let off = proto::ControllerFilter { desired_enabled: Some(false), ..filter() };
    assert_eq!(list(off).await, ["token-cleaner-controller"]);
    assert_eq!(
        list(proto::ControllerFilter { healths: vec![Health::Healthy.into()], ..filter() }).await.len(),
        3
    );

    let wrong = proto::ListControllersRequest {
        page_size: -1,
        page_token: "?".into(),
        filter: Some(proto::ControllerFilter { phases: vec![77], ..filter() }),
    };
    let fields = fields(client.list_controllers(jane(wrong)).await);
    assert_eq!(fields, ["filter.phases", "page_size", "page_token"]);
}

#[tokio::test]
async fn a_controller_is_found_by_name_or_alias_and_else_the_closest_is_named() {
    let bench = Bench::new().await;
    let mut client = bench.controllers();
    let controller = get(&mut client, "deployment").await;
    assert_eq!(controller.name, "deployment-controller");
    assert_eq!((controller.phase(), controller.health()), (proto::Phase::Running, Health::Healthy));
    assert_eq!(controller.service_account, "kube-system/deployment-controller");
    assert_eq!(controller.watched_resources[0].cached_objects, 7);
    assert_eq!((controller.workers, controller.queue_depth, controller.version.as_str()), (5, 2, "0"));
    let desired = controller.desired.unwrap();
    assert_eq!((desired.enabled, desired.source()), (true, DesiredSource::Default));

    let request = || jane(proto::GetControllerRequest { name: "deploymnet-controller".to_owned() });
    assert_eq!(why(client.get_controller(request()).await), (Code::NotFound, "CONTROLLER_NOT_FOUND".into()));
    let closest = fact(client.get_controller(request()).await, "closest");
    assert!(closest.starts_with("deployment-controller"), "{closest}");
}

#[tokio::test]
async fn disabling_and_enabling_are_written_told_and_idempotent() {
    let bench = Bench::new().await;
    let mut client = bench.controllers();
    let request = proto::DisableControllerRequest { reason: "a storm".into(), ..disable("deployment") };
    let done = client.disable_controller(jane(request.clone())).await.unwrap().into_inner();
    assert!(done.changed);
    let desired = done.controllers[0].desired.clone().unwrap();
    assert_eq!((desired.enabled, desired.source()), (false, DesiredSource::Override));
    assert!(desired.enabled_without_override);
    let order = desired.r#override.unwrap();
    assert_eq!((order.user.as_str(), order.reason.as_str(), order.expire_time), ("jane", "a storm", None));
    assert_eq!(done.controllers[0].version, "1");

    let again = client.disable_controller(jane(request)).await.unwrap().into_inner();
    assert!(!again.changed);
    let without_reason = client.disable_controller(jane(disable("deployment"))).await.unwrap().into_inner();
    assert!(!without_reason.changed);
    assert_eq!(bench.manager.state.lock().writes, 1);

    let back = client.enable_controller(jane(enable("deployment"))).await.unwrap().into_inner();
    assert!(back.changed);
    let desired = back.controllers[0].desired.clone().unwrap();
    assert_eq!((desired.enabled, desired.source()), (true, DesiredSource::Override));
    assert_eq!(back.controllers[0].version, "2");
    assert!(!client.enable_controller(jane(enable("deployment"))).await.unwrap().into_inner().changed);
    let cleared = client.clear_overrides(jane(clear("deployment"))).await.unwrap().into_inner();
    assert!(cleared.changed);
    let desired = cleared.controllers[0].desired.clone().unwrap();
    assert_eq!((desired.enabled, desired.source(), desired.r#override), (true, DesiredSource::Default, None));
    assert_eq!(cleared.controllers[0].version, "3");
    assert!(!client.clear_overrides(jane(clear("deployment"))).await.unwrap().into_inner().changed);

    let state = bench.manager.state.lock();
    assert_eq!(state.writes, 3);
    let told: Vec<_> =
        state.announced.iter().map(|mutation| (mutation.action, mutation.message.as_str())).collect();
    assert_eq!(
        told,
        [
            (MutationKind::Disabled, "jane disabled deployment-controller: a storm"),
            (MutationKind::Enabled, "jane enabled deployment-controller"),
            (MutationKind::Cleared, "jane cleared the override of deployment-controller"),
        ]
    );
}

#[tokio::test]
async fn an_override_ends_by_itself() {
    let bench = Bench::new().await;
    let mut client = bench.controllers();
    let request = proto::DisableControllerRequest { duration: Some(seconds(1800)), ..disable("deployment") };
    let done = client.disable_controller(jane(request)).await.unwrap().into_inner();
    let expire = done.controllers[0].desired.clone().unwrap().r#override.unwrap().expire_time.unwrap();
    assert_eq!(expire.seconds, at(1800).as_second());
    bench.manager.advance(Duration::from_secs(1799));
    assert!(!get(&mut client, "deployment").await.desired.unwrap().enabled);
    bench.manager.advance(Duration::from_secs(1));
    let controller = get(&mut client, "deployment").await;
    assert!(controller.desired.unwrap().enabled);
    // What has ended needs no ending, and what is there again can be ordered again.
    assert!(!client.clear_overrides(jane(clear("deployment"))).await.unwrap().into_inner().changed);
    assert!(client.disable_controller(jane(disable("deployment"))).await.unwrap().into_inner().changed);
}

#[tokio::test]
async fn a_version_that_was_expected_must_be_there() {
    let bench = Bench::new().await;
    let mut client = bench.controllers();
    let expecting = |version: &str| proto::DisableControllerRequest {
        expected_version: Some(version.to_owned()),
        ..disable("deployment")
    };
    let outcome = client.disable_controller(jane(expecting("7"))).await;
    assert_eq!(fact(again(&outcome), "version"), "0");
    assert_eq!(why(outcome), (Code::Aborted, "VERSION_MISMATCH".into()));
    assert!(client.disable_controller(jane(expecting("0"))).await.unwrap().into_inner().changed);
    assert_eq!(why(client.disable_controller(jane(expecting("0"))).await).0, Code::Aborted);
    let all = proto::DisableControllerRequest { name: "*".into(), force: true, ..expecting("0") };
    assert_eq!(fields(client.disable_controller(jane(all)).await), ["expected_version"]);
}

#[tokio::test]
async fn a_race_is_won_or_told() {
    let bench = Bench::new().await;
    let mut client = bench.controllers();
    let other = || vec![("replicaset-controller".to_owned(), order(Order::Disabled, 5))];
    bench.manager.state.lock().next_writes.push(NextWrite::Conflict(other()));
    let done = client.disable_controller(jane(disable("deployment"))).await.unwrap().into_inner();
    assert_eq!((done.changed, done.controllers[0].version.as_str()), (true, "6"));
    assert_eq!(bench.manager.state.lock().overrides.entries().count(), 2);

    // The same controller, changed in between: the version no longer holds.
    let same = vec![("deployment-controller".to_owned(), order(Order::Default, 9))];
    bench.manager.state.lock().next_writes.push(NextWrite::Conflict(same));
    let request =
        proto::EnableControllerRequest { expected_version: Some("6".into()), ..enable("deployment") };
    assert_eq!(
        why(client.enable_controller(jane(request)).await),
        (Code::Aborted, "VERSION_MISMATCH".into())
    );

    bench.manager.state.lock().next_writes.extend((0..5).map(|_| NextWrite::Conflict(other())));
    let outcome = client.disable_controller(jane(disable("deployment"))).await;
    assert!(again(&outcome).unwrap_err().get_details_retry_info().is_some());
    assert_eq!(why(outcome), (Code::Aborted, "CONTENTION".into()));
}

#[tokio::test]
async fn without_the_api_server_nothing_changes_and_that_is_said() {
    let bench = Bench::new().await;
    let mut client = bench.controllers();
    bench.manager.state.lock().away = true;
    let outcome = client.disable_controller(jane(disable("deployment"))).await;
    assert!(again(&outcome).unwrap_err().get_details_retry_info().is_some());
    assert_eq!(why(outcome), (Code::Unavailable, "API_SERVER".into()));
    assert_eq!(bench.manager.state.lock().writes, 0);
    bench.manager.state.lock().away = false;

    bench.manager.state.lock().next_writes.push(NextWrite::Refused);
    assert_eq!(why(client.disable_controller(jane(disable("deployment"))).await).1, "API_SERVER");
    assert!(get(&mut client, "deployment").await.desired.unwrap().enabled);
    assert!(bench.manager.state.lock().announced.is_empty());

    // A lost answer is looked after.
    bench.manager.state.lock().next_writes.push(NextWrite::LostAnswer);
    let done = client.disable_controller(jane(disable("deployment"))).await.unwrap().into_inner();
    assert!(done.changed && !done.controllers[0].desired.as_ref().unwrap().enabled);
    bench.manager.state.lock().next_writes.push(NextWrite::Lost);
    assert!(client.enable_controller(jane(enable("deployment"))).await.unwrap().into_inner().changed);
    // One that is stored later than the next try was begun is found, too.
    bench.manager.state.lock().next_writes.push(NextWrite::Late);
    let late = client.disable_controller(jane(disable("deployment"))).await.unwrap().into_inner();
    assert!(late.changed && !late.controllers[0].desired.as_ref().unwrap().enabled);
    assert!(client.enable_controller(jane(enable("deployment"))).await.unwrap().into_inner().changed);
    assert_eq!(bench.manager.state.lock().announced.len(), 4, "each is announced");

    // If that can't be found out, nobody is told that nothing has changed.
    bench.manager.state.lock().next_writes.push(NextWrite::LostForGood);
    let outcome = client.disable_controller(jane(disable("deployment"))).await;
    assert_eq!(why(outcome), (Code::Unknown, "OUTCOME_UNKNOWN".into()));
    bench.manager.state.lock().away = false;
    assert!(!get(&mut client, "deployment").await.desired.unwrap().enabled, "and it has");
    let announced = bench.manager.state.lock().announced.last().unwrap().message.clone();
    assert_eq!(announced, "jane disabled deployment-controller (the API server did not confirm the write)");
}

#[tokio::test]
async fn a_lost_answer_undoes_no_newer_order() {
    for with_version in [false, true] {
        let bench = Bench::new().await;
        let mut client = bench.controllers();
        let version = get(&mut client, "deployment").await.version;
        bench.manager.state.lock().next_writes.push(NextWrite::Overtaken(Order::Enabled));
        let request = proto::DisableControllerRequest {
            expected_version: with_version.then_some(version),
            ..disable("deployment")
        };
        let outcome = client.disable_controller(jane(request)).await;
        assert_eq!(why(outcome), (Code::Aborted, "SUPERSEDED".into()));
        assert!(get(&mut client, "deployment").await.desired.unwrap().enabled, "joe's order holds");
        tokio::task::yield_now().await;
        let state = bench.manager.state.lock();
        assert_eq!((state.writes, state.announced.len()), (1, 1), "the order was in force for a while");
    }
}

#[tokio::test]
async fn a_dry_run_checks_everything_and_changes_nothing() {
    let bench = Bench::new().await;
    let mut client = bench.controllers();
    let request = proto::DisableControllerRequest { dry_run: true, wait: true, ..disable("deployment") };
    let done = client.disable_controller(jane(request)).await.unwrap().into_inner();
    assert!(done.changed);
    assert!(!done.controllers[0].desired.as_ref().unwrap().enabled);
    assert_eq!(done.controllers[0].phase(), proto::Phase::Running);
    let special = proto::DisableControllerRequest { dry_run: true, ..disable("serviceaccount-token") };
    assert_eq!(why(client.disable_controller(jane(special)).await).1, "FORCE_REQUIRED");
    let state = bench.manager.state.lock();
    assert_eq!((state.writes, state.announced.len()), (0, 0));
}

#[tokio::test]
async fn what_stands_against_enabling_is_named() {
    let bench = Bench::new().await;
    let mut client = bench.controllers();
    for (name, reason, subject) in [
        ("bundle-controller", "FEATURE_GATE", "ClusterTrustBundle"),
        ("service", "CLOUD_PROVIDER", "--cloud-provider"),
        ("job", "NOT_IMPLEMENTED", "job-controller"),
    ] {
        let outcome = client.enable_controller(jane(enable(name))).await;
        let failure = again(&outcome).unwrap_err().get_details_precondition_failure().unwrap();
        assert_eq!(
            (failure.violations[0].r#type.as_str(), failure.violations[0].subject.as_str()),
            (reason, subject)
        );
        assert_eq!(why(outcome), (Code::FailedPrecondition, reason.to_owned()));
        // To disable it is to no effect, and no error.
        assert!(client.disable_controller(jane(disable(name))).await.unwrap().into_inner().changed);
    }
}

#[tokio::test]
async fn what_the_cluster_needs_takes_force() {
    let bench = Bench::new().await;
    let mut client = bench.controllers();
    for name in ["*", "serviceaccount-token"] {
        let outcome = client.disable_controller(jane(disable(name))).await;
        assert_eq!(why(outcome), (Code::FailedPrecondition, "FORCE_REQUIRED".into()), "{name}");
    }
    let request = proto::DisableControllerRequest { force: true, ..disable("*") };
    let done = client.disable_controller(jane(request)).await.unwrap().into_inner();
    assert_eq!(done.controllers.len(), 7, "whatever the flags are");
    assert_eq!(bench.manager.state.lock().writes, 1, "in one write");
    let versions: std::collections::BTreeSet<_> = done.controllers.iter().map(|each| &each.version).collect();
    assert_eq!(versions.len(), 7);

    let back = client.enable_controller(jane(enable("*"))).await.unwrap().into_inner();
    assert_eq!(back.controllers.len(), 7, "each that was disabled");
    let enabled: Vec<_> =
        back.controllers.iter().filter(|each| each.desired.as_ref().unwrap().enabled).collect();
    assert_eq!(enabled.len(), 6, "as the flags say");
    assert!(back.controllers.iter().all(|each| each.desired.as_ref().unwrap().r#override.is_none()));
    let asked = bench.judge.asked.lock().last().unwrap().1.clone();
    assert_eq!((asked.verb.as_str(), asked.name.as_str()), ("update", ""));
}

#[tokio::test(start_paused = true)]
async fn waiting_is_for_the_phase() {
    let bench = Bench::new().await;
    let mut client = bench.controllers();
    let request = proto::DisableControllerRequest { wait: true, ..disable("deployment") };
    let stopping = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        bench.manager.set_phase("deployment-controller", Phase::Stopping);
        tokio::time::sleep(Duration::from_millis(50)).await;
        bench.manager.set_phase("deployment-controller", Phase::Disabled);
    };
    let (done, ()) = tokio::join!(client.disable_controller(jane(request)), stopping);
    assert_eq!(done.unwrap().into_inner().controllers[0].phase(), proto::Phase::Disabled);

    let request = || proto::EnableControllerRequest { wait: true, ..enable("deployment") };
    let failing = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        bench.manager.set_phase("deployment-controller", Phase::Failed("no client".to_owned()));
    };
    let (outcome, ()) = tokio::join!(client.enable_controller(jane(request())), failing);
    assert_eq!(why(outcome), (Code::FailedPrecondition, "CONTROLLER_FAILED".into()));

    // The deadline ends the waiting, not the order.
    bench.manager.set_phase("deployment-controller", Phase::Starting);
    let mut late = jane(request());
    // This client keeps the time itself and may be the first to say so.
    late.set_timeout(Duration::from_secs(5));
    let code = why(client.enable_controller(late).await).0;
    assert!(matches!(code, Code::DeadlineExceeded | Code::Cancelled), "{code:?}");
    assert!(get(&mut client, "deployment").await.desired.unwrap().enabled);
    let own_limit = client.enable_controller(jane(request())).await;
    assert_eq!(why(own_limit), (Code::DeadlineExceeded, "TIMEOUT".into()));
}

#[tokio::test(start_paused = true)]
async fn waiting_ends_when_there_is_nothing_to_wait_for() {
    let bench = Bench::new().await;
    let mut client = bench.controllers();
    let request = || proto::DisableControllerRequest { wait: true, ..disable("deployment") };
    let somebody = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        let entry = order(Order::Default, 9);
        bench.manager.set(|state| {
            state.overrides = state.overrides.with(&[("deployment-controller".to_owned(), entry)]);
        });
    };
    let (outcome, ()) = tokio::join!(client.disable_controller(jane(request())), somebody);
    assert_eq!(why(outcome), (Code::Aborted, "SUPERSEDED".into()));

    let losing = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        bench.manager.lose(OTHER);
    };
    let (outcome, ()) = tokio::join!(client.disable_controller(jane(request())), losing);
    assert_eq!(fact(again(&outcome), "written"), "true");
    assert_eq!(why(outcome), (Code::Aborted, "LEADERSHIP_LOST".into()));
    // From now on this is a standby: it takes orders, and can't wait.
    let writes = bench.manager.state.lock().writes;
    let outcome =
        client.enable_controller(jane(proto::EnableControllerRequest { wait: true, ..enable("deployment") }));
    assert_eq!(fact(outcome.await, "leader_address"), "10.0.0.2:10257");
    assert_eq!(bench.manager.state.lock().writes, writes, "refused before anything was written");
    assert!(client.enable_controller(jane(enable("deployment"))).await.unwrap().into_inner().changed);
}

#[tokio::test]
async fn requests_are_checked_field_by_field() {
    let bench = Bench::new().await;
    let mut client = bench.controllers();
    let request = proto::DisableControllerRequest {
        name: String::new(),
        reason: "x".repeat(2000),
        duration: Some(seconds(-1)),
        expected_version: Some(String::new()),
        ..Default::default()
    };
    let fields = fields(client.disable_controller(jane(request)).await);
    assert_eq!(fields, ["name", "reason", "duration", "expected_version"]);
    assert_eq!(bench.manager.state.lock().writes, 0);
}

#[tokio::test]
async fn everyone_may_do_what_they_may() {
    let bench = Bench::new().await;
    let mut client = bench.controllers();
    let anonymous = client.list_controllers(proto::ListControllersRequest::default()).await;
    assert_eq!(why(anonymous), (Code::Unauthenticated, "UNAUTHENTICATED".into()));
    assert!(bench.judge.asked.lock().is_empty(), "nobody need be asked about nobody");

    assert!(client.list_controllers(by("viewer", proto::ListControllersRequest::default())).await.is_ok());
    let denied = client.disable_controller(by("viewer", disable("deployment"))).await;
    assert!(again(&denied).unwrap_err().message().contains("only looks"));
    assert_eq!(why(denied), (Code::PermissionDenied, "FORBIDDEN".into()));

    // By its permanent name, however it was called.
    assert!(client.disable_controller(by("narrow", disable("deployment"))).await.is_ok());
    assert_eq!(
        why(client.disable_controller(by("narrow", disable("replicaset"))).await).0,
        Code::PermissionDenied
    );
    let all = proto::DisableControllerRequest { force: true, ..disable("*") };
    assert_eq!(why(client.disable_controller(by("narrow", all)).await).0, Code::PermissionDenied);

    let unlucky = client.list_controllers(by("unlucky", proto::ListControllersRequest::default())).await;
    assert!(again(&unlucky).unwrap_err().get_details_retry_info().is_some());
    assert_eq!(why(unlucky), (Code::Unavailable, "API_SERVER".into()));
}

#[tokio::test]
async fn overrides_without_effect_are_shown() {
    let bench = Bench::new().await;
    let mut client = bench.controllers();
    let keys = ["deployment-controller", "nobody"].map(|name| format!("{ANNOTATION_PREFIX}{name}"));
    let set = OverrideSet::parse(keys.iter().map(|key| (key.as_str(), "rubbish")), &|name| name != "nobody");
    bench.manager.set(|state| state.overrides = set);
    let page =
        client.list_controllers(jane(proto::ListControllersRequest::default())).await.unwrap().into_inner();
    assert_eq!(page.invalid_overrides.len(), 2);
    let controller = get(&mut client, "deployment").await;
    assert_eq!(controller.version, "invalid");
    let desired = controller.desired.unwrap();
    assert!(desired.enabled && desired.invalid_override.contains("parse the override"), "{desired:?}");
    // A request puts it right.
    let done = client.enable_controller(jane(enable("deployment"))).await.unwrap().into_inner();
    assert!(done.changed && done.controllers[0].desired.as_ref().unwrap().invalid_override.is_empty());
}

fn short(update: Option<Update>) -> String {
    match update.unwrap() {
        Update::Snapshot(snapshot) => format!("{} controllers", snapshot.controllers.len()),
        Update::Changed(controller) => format!("{} {}", controller.name, controller.phase().as_str_name()),
        Update::Unmatched(name) => format!("{name} gone"),
        Update::InvalidOverrides(invalid) => format!("{} without effect", invalid.overrides.len()),
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_tells_of_overrides_without_effect_whenever_they_come() {
    let bench = Bench::new().await;
    let mut client = bench.controllers();
    let filter = proto::ControllerFilter { names: vec!["replicaset".into()], ..Default::default() };
    let request = proto::WatchControllersRequest { filter: Some(filter), ..Default::default() };
    let mut stream = client.watch_controllers(jane(request)).await.unwrap().into_inner();
    assert_eq!(short(stream.message().await.unwrap().unwrap().update), "1 controllers");
    let keys = ["deployment-controller", "job-controller"].map(|name| format!("{ANNOTATION_PREFIX}{name}"));
    for count in [1, 2] {
        let entries = keys.iter().take(count).map(|key| (key.as_str(), "rubbish"));
        let set = OverrideSet::parse(entries, &|_| true);
        bench.manager.set(|state| state.overrides = set);
        let told = short(stream.message().await.unwrap().unwrap().update);
        assert_eq!(told, format!("{count} without effect"));
    }
    // Another change is none of theirs.
    bench.manager.set_phase("replicaset-controller", Phase::Stopping);
    let changed = short(stream.message().await.unwrap().unwrap().update);
    assert_eq!(changed, "replicaset-controller PHASE_STOPPING");
    bench.manager.set(|state| state.overrides = OverrideSet::default());
    assert_eq!(short(stream.message().await.unwrap().unwrap().update), "0 without effect");
}

#[tokio::test(start_paused = true)]
async fn a_watch_sends_a_snapshot_and_then_changes() {
    let bench = Bench::new().await;
    let mut client = bench.controllers();
    let filter = proto::ControllerFilter {
        phases: vec![proto::Phase::Running.into(), proto::Phase::Stopping.into()],
        ..Default::default()
    };
    let request = proto::WatchControllersRequest { filter: Some(filter), ..Default::default() };
    let mut stream = client.watch_controllers(jane(request)).await.unwrap().into_inner();
    assert_eq!(short(stream.message().await.unwrap().unwrap().update), "3 controllers");
    // Counts alone are no change.
    bench.manager.set(|state| state.controller("deployment-controller").counts.depth = 99);
    bench.manager.set_phase("deployment-controller", Phase::Stopping);
    assert_eq!(
        short(stream.message().await.unwrap().unwrap().update),
        "deployment-controller PHASE_STOPPING"
    );
    bench.manager.set_phase("deployment-controller", Phase::Disabled);
    assert_eq!(short(stream.message().await.unwrap().unwrap().update), "deployment-controller gone");
    bench.manager.set_phase("deployment-controller", Phase::Running);
    assert_eq!(short(stream.message().await.unwrap().unwrap().update), "deployment-controller PHASE_RUNNING");
    let quiet = tokio::time::timeout(Duration::from_secs(30), stream.message()).await;
    assert!(quiet.is_err(), "{quiet:?}");
}

#[tokio::test(start_paused = true)]
async fn a_watch_sends_counts_if_asked() {
    let bench = Bench::new().await;
    let mut client = bench.controllers();
    let request = proto::WatchControllersRequest { counts_interval: Some(seconds(5)), ..Default::default() };
    let mut stream = client.watch_controllers(jane(request)).await.unwrap().into_inner();
    stream.message().await.unwrap().unwrap();
    bench.manager.set(|state| state.controller("deployment-controller").counts.depth = 99);
    let Some(Update::Changed(changed)) = stream.message().await.unwrap().unwrap().update else {
        panic!("no change")
    };
    assert_eq!((changed.name.as_str(), changed.queue_depth), ("deployment-controller", 99));
    assert_eq!(bench.manager.state.lock().leases[0].record.as_ref().unwrap().holder, ME);
    let often = proto::WatchControllersRequest {
        counts_interval: Some(prost_types::Duration { seconds: 0, nanos: 1 }),
        ..Default::default()
    };
    let refused = client.watch_controllers(jane(often)).await.map(|_| ());
    assert_eq!(fields(refused), ["counts_interval"]);
}

#[tokio::test(start_paused = true)]
async fn stream_with_counts_every_second_receives_counts_every_second() {
    // Timers fire at whole milliseconds, and the ticks are between two of them.
    tokio::time::advance(Duration::from_micros(400)).await;
    let bench = Bench::new().await;
    tokio::time::advance(Duration::from_micros(400)).await;
    let request = proto::WatchControllersRequest { counts_interval: Some(seconds(1)), ..Default::default() };
    let mut stream = bench.controllers().watch_controllers(jane(request)).await.unwrap().into_inner();
    stream.message().await.unwrap().unwrap();
    let begin = tokio::time::Instant::now();
    for depth in 1..=10 {
        bench.manager.state.lock().controller("deployment-controller").counts.depth = depth;
        stream.message().await.unwrap().unwrap();
    }
    let took = begin.elapsed();
    assert!((9..=12).contains(&took.as_secs()), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn streams_of_controllers_share_one_computation_per_tick() {
    let bench = Bench::new().await;
    let mut client = bench.controllers();
    let computed = || bench.manager.state.lock().computed;
    let mut streams = Vec::new();
    for number in 0..40 {
        let names = if number % 2 == 0 { vec!["deployment".into()] } else { Vec::new() };
        let request = proto::WatchControllersRequest {
            filter: Some(proto::ControllerFilter { names, ..Default::default() }),
            counts_interval: Some(seconds(1 + number % 3)),
        };
        let mut stream = client.watch_controllers(jane(request)).await.unwrap().into_inner();
        stream.message().await.unwrap().unwrap();
        streams.push(stream);
        tokio::time::sleep(Duration::from_millis(7)).await;
    }
    assert!(computed() <= 2, "{}", computed());
    // Mere counts.
    let before = computed();
    for depth in 1..=10 {
        bench.manager.state.lock().controller("deployment-controller").counts.depth = depth;
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert!((4..=12).contains(&(computed() - before)), "{}", computed() - before);
    for stream in &mut streams {
        let told = short(stream.message().await.unwrap().unwrap().update);
        assert_eq!(told, "deployment-controller PHASE_RUNNING");
    }
    // A storm of changes, which ends with one that each stream is told of.
    let before = computed();
    for number in 0..100 {
        let phase = if number % 2 == 0 { Phase::Stopping } else { Phase::Running };
        bench.manager.set_phase("deployment-controller", phase);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    bench.manager.set_phase("deployment-controller", Phase::Disabled);
    for stream in &mut streams {
        while short(stream.message().await.unwrap().unwrap().update) != "deployment-controller PHASE_DISABLED"
        {
        }
    }
    assert!(computed() - before <= 20, "{}", computed() - before);
}
