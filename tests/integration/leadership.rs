//! Who leads: several managers on one Lease, and what becomes of it when one ends, dies, freezes or is cut off.
//!
//! Each test has a control plane of its own, and one test runs at a time: a starved leader would lose its Lease.

use std::collections::BTreeMap;
use std::time::Duration;

use coxswain_machinery::model::clock::{Clock as _, SystemClock};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::ServiceAccount;
use tokio::sync::Mutex;

use crate::harness::{
    AuditEvent, Caller, Cluster, ControlPlane, Held, LeaseHistory, Manager, Options, Relay, until,
};

/// How long anything may take: several times a lease's duration.
const LIMIT: Duration = Duration::from_mins(1);
/// The Lease that the managers share.
const LEASE: &str = "kube-controller-manager";
/// The original's durations, halved.
const TIMING: &[&str] = &[
    "--leader-elect-lease-duration=8s",
    "--leader-elect-renew-deadline=5s",
    "--leader-elect-retry-period=1s",
];
/// The bound within which a leader that is told to end is followed.
const HANDOVER: SignedDuration = SignedDuration::from_secs(2);

static ONE_AT_A_TIME: Mutex<()> = Mutex::const_new(());

fn options(args: &[&'static str]) -> Options {
    let mut all = vec!["--scheduler=false", "--kwok=false"];
    all.extend(args);
    Options { nodes: 0, args: all }
}

/// Whether a manager says that it leads; `None` when it does not say.
async fn leads(manager: &Manager<'_>) -> Option<bool> {
    let page = manager.try_page(Caller::Admin, "/metrics").await?;
    let status = page.metric(&format!("leader_election_master_status{{name=\"{LEASE}\"}}"))?;
    Some(status > 0.0)
}

/// Waits until exactly one of the managers says that it leads while the Lease has a holder, and gives its place among
/// them. At no moment may two say so.
async fn agree(history: &LeaseHistory, managers: &[&Manager<'_>]) -> (usize, Held) {
    let observe = || async {
        let before = history.last()?;
        let mut leading = Vec::new();
        for (place, manager) in managers.iter().enumerate() {
            if leads(manager).await? {
                leading.push(place);
            }
        }
        let after = history.last()?;
        let stable = before.holder == after.holder && !after.holder.is_empty();
        assert!(!stable || leading.len() < 2, "under {after:?} these lead: {leading:?}");
        (stable && leading.len() == 1).then(|| (leading[0], after))
    };
    let (place, held) =
        until("the managers to agree on a leader", LIMIT, observe, Option::is_some).await.expect("just seen");
    for manager in managers {
        let health = manager.page(Caller::Anonymous, "/healthz?verbose").await;
        assert_eq!(health.status, 200, "{}: {}", manager.name, health.text);
        assert!(health.text.contains("[+]leaderElection ok\n"), "{}: {}", manager.name, health.text);
    }
    let leader = managers[place];
    if !leader.name.starts_with("go") {
        assert!(leader.log().contains(&held.holder), "{} leads as someone else: {held:?}", leader.name);
    }
    (place, held)
}

/// Waits until whoever leads has done something for a new namespace.
async fn works(cluster: &Cluster) {
    let namespace = cluster.namespace("led").await;
    let accounts = namespace.api::<ServiceAccount>();
    let account = || accounts.get_opt("default");
    until("a leader's work", LIMIT, account, |account| matches!(account, Ok(Some(_)))).await.expect("seen");
}

/// Waits until the Lease is another's than `last`'s, and gives the first version that says so.
async fn taken_over(history: &LeaseHistory, last: &Held) -> Held {
    let next = || async {
        history
            .seen()
            .into_iter()
            .find(|held| held.version > last.version && !held.holder.is_empty() && held.holder != last.holder)
    };
    until("another leader", LIMIT, next, Option::is_some).await.expect("just seen")
}

/// Each version of the Lease follows from the one before: renewed, released, taken when it was free or had expired.
fn assert_lawful(history: &[Held]) {
    for pair in history.windows(2) {
        let [before, after] = pair else { unreachable!("windows of two") };
        let what = format!("{before:?}\n→ {after:?}");
        if after.holder == before.holder {
            assert_eq!(after.transitions, before.transitions, "{what}");
            assert!(before.holder.is_empty() || after.acquired == before.acquired, "{what}");
        } else if after.holder.is_empty() {
            assert_eq!(after.transitions, before.transitions, "a release: {what}");
        } else {
            assert_eq!(after.transitions, before.transitions + 1, "{what}");
            let free = before.holder.is_empty() || after.acquired >= before.renewed + before.duration;
            assert!(free, "taken while it was another's: {what}");
        }
    }
}

/// A time during which one manager had the Lease: from the acquisition it claims to when the next one had it for sure.
#[derive(Debug)]
struct Term {
    holder: String,
    from: Timestamp,
    to: Timestamp,
}

fn terms(history: &[Held], audit: &[AuditEvent]) -> Vec<Term> {
    let is_lease = |event: &&AuditEvent| {
        event.is_write() && event.object_ref.resource == "leases" && event.object_ref.name == LEASE
    };
    // The write that made a takeover true was sent after the time that it carries.
    let commit = |acquired: Timestamp| {
        let mut writes = audit.iter().filter(is_lease).filter(|event| event.response_status.code < 300);
        let found = writes.find(|event| event.request_received_timestamp >= acquired);
        found.expect("the write of every acquisition is in the audit log").stage_timestamp
    };
    begun(history, |held| held.acquired, commit)
}

/// The terms, by when each began, and by when a next one that began then had ended the one before.
fn begun(
    history: &[Held],
    start: impl Fn(&Held) -> Timestamp,
    end: impl Fn(Timestamp) -> Timestamp,
) -> Vec<Term> {
    let mut terms: Vec<Term> = Vec::new();
    for held in history.iter().filter(|held| !held.holder.is_empty()) {
        if terms.last().is_none_or(|last| last.holder != held.holder) {
            let from = start(held);
            if let Some(last) = terms.last_mut() {
                last.to = end(from);
            }
            terms.push(Term { holder: held.holder.clone(), from, to: Timestamp::MAX });
        }
    }
    terms
}

/// No controller of Coxswain wrote anything while its process did not have the Lease. Tokens tell the processes apart: each
/// requests its own, and only when it leads. Returns the number of terms in which Coxswain wrote.
fn assert_no_late_write(terms: &[Term], audit: &[AuditEvent]) -> usize {
    let mut by_credential: BTreeMap<&str, Vec<&AuditEvent>> = BTreeMap::new();
    for event in audit {
        let controller = event.user.username.starts_with("system:serviceaccount:kube-system:");
        // What a replica does about its own Lease is no controller's work, whosever credentials it takes.
        let own = event.coxswain() == Some("replicas");
        if event.is_write() && controller && !own && event.coxswain().is_some() {
            assert!(!event.credential().is_empty(), "{event:?}");
            by_credential.entry(event.credential()).or_default().push(event);
        }
    }
    let mut written = vec![false; terms.len()];
    for events in by_credential.values() {
        let first = events.iter().map(|event| event.request_received_timestamp).min().expect("not empty");
        let holder =
            &terms.iter().rfind(|term| term.from <= first).expect("nobody writes before leading").holder;
        for event in events {
            let at = event.request_received_timestamp;
            // A process may lead again.
            let within = |term: &Term| term.holder == *holder && term.from <= at && at < term.to;
            let Some(place) = terms.iter().position(within) else {
                let what = (event.coxswain(), at, &event.verb, &event.uri);
                panic!("{holder} did not lead when it wrote {what:?}: {terms:?}");
            };
            written[place] = true;
        }
    }
    written.into_iter().filter(|written| *written).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn three_managers_share_one_lease() {
    let _alone = ONE_AT_A_TIME.lock().await;
    let plane = ControlPlane::start(&options(&["--audit"]));
    let cluster = plane.cluster().await;
    let history = LeaseHistory::follow(&cluster, LEASE).await;
    let mut go_args = TIMING.to_vec();
    go_args.push("--feature-gates=ControllerManagerReleaseLeaderElectionLockOnExit=true");
    let go = plane.go_manager("go", &go_args);
    agree(&history, &[&go]).await;
    let first = plane.coxswain("coxswain-a", TIMING);
    let second = plane.coxswain("coxswain-b", TIMING);
    let all = [&go, &first, &second];
    assert_eq!(agree(&history, &all).await.0, 0, "the Go manager had it first");
    works(&cluster).await;

    // Go → Coxswain: the original releases on a clean end, too, if it is told to.
    let hand_over_from_go = async || {
        go.stop();
        let (place, _) = agree(&history, &all[1..]).await;
        go.start_again();
        place + 1
    };
    let leader = all[hand_over_from_go().await];
    assert_eq!(all[agree(&history, &all).await.0].name, leader.name);
    works(&cluster).await;

    // SIGTERM: the Lease is released, and another has it in no time.
    let before = history.last().expect("a leader");
    let sent = SystemClock.now();
    leader.stop();
    let next = taken_over(&history, &before).await;
    assert!(next.acquired.duration_since(sent) < HANDOVER, "asked to end at {sent}, followed by {next:?}");
    assert!(leader.exit().starts_with("exit status 0"), "{}", leader.exit());
    let released =
        history.seen().into_iter().any(|held| held.version > before.version && held.holder.is_empty());
    assert!(released, "{:?}", history.seen());
    leader.start_again();

    // SIGKILL: another has it once it has expired, and not before (see `assert_lawful`).
    let coxswain_leads = async || match agree(&history, &all).await.0 {
        0 => all[hand_over_from_go().await],
        place => all[place],
    };
    let leader = coxswain_leads().await;
    works(&cluster).await;
    leader.kill();
    let before = history.last().expect("a leader");
    let next = taken_over(&history, &before).await;
    let after = next.acquired.duration_since(before.renewed);
    assert!(after < before.duration * 2, "the Lease was free for long: {after}, {before:?} → {next:?}");
    leader.start_again();

    // SIGSTOP: another has it once it has expired; whoever wakes up ends and writes nothing, whatever it has missed.
    let leader = coxswain_leads().await;
    works(&cluster).await;
    leader.pause();
    let before = history.last().expect("a leader");
    taken_over(&history, &before).await;
    for _ in 0..5 {
        works(&cluster).await;
    }
    leader.resume();
    let exit = leader.exited(LIMIT).await;
    assert!(exit.starts_with("exit status 1 "), "{exit}");
    leader.start_again();

    // Coxswain → Go.
    coxswain_leads().await;
    works(&cluster).await;
    for manager in [&first, &second] {
        manager.stop();
    }
    agree(&history, &[&go]).await;
    works(&cluster).await;

    let history = history.finish().await;
    assert_lawful(&history);
    let audit = plane.audit();
    let written = assert_no_late_write(&terms(&history, &audit), &audit);
    assert!(written >= 4, "Coxswain led and wrote in {written} terms only");
}

/// A standby follows the Lease itself: with tries this far apart, only that can be quick.
#[tokio::test(flavor = "multi_thread")]
async fn a_released_lease_is_followed_and_a_lost_server_ends_the_leader() {
    let _alone = ONE_AT_A_TIME.lock().await;
    let plane = ControlPlane::start(&options(&[]));
    let cluster = plane.cluster().await;
    let history = LeaseHistory::follow(&cluster, LEASE).await;
    let patient = [
        "--leader-elect-lease-duration=60s",
        "--leader-elect-renew-deadline=45s",
        "--leader-elect-retry-period=20s",
    ];
    let first = plane.coxswain("patient-a", &patient);
    agree(&history, &[&first]).await;
    let second = plane.coxswain("patient-b", &patient);
    assert_eq!(agree(&history, &[&first, &second]).await.0, 0);
    let before = history.last().expect("a leader");
    let sent = SystemClock.now();
    first.stop();
    let next = taken_over(&history, &before).await;
    assert!(next.acquired.duration_since(sent) < HANDOVER, "asked to end at {sent}, followed by {next:?}");
    assert_eq!(agree(&history, &[&second]).await.1.holder, next.holder);
    works(&cluster).await;
    second.stop();
    assert!(second.exit().starts_with("exit status 0"), "{}", second.exit());

    // Without an election the Lease is nothing to it, whoever has it.
    let free = history.last().expect("released");
    assert_eq!(free.holder, "");
    let alone = plane.coxswain("alone", &["--leader-elect=false"]);
    works(&cluster).await;
    let health = alone.page(Caller::Anonymous, "/healthz?verbose").await;
    assert!(!health.text.contains("leaderElection"), "{}", health.text);
    alone.stop();
    assert!(alone.exit().starts_with("exit status 0"), "{}", alone.exit());
    assert_eq!(history.last().expect("as it was"), free);

    // A leader that cannot reach the server ends within the renew deadline; a standby waits for the server to return.
    let cut_off = plane.coxswain("cut-off", TIMING);
    let (_, held) = agree(&history, &[&cut_off]).await;
    let waiting = plane.coxswain("waiting", TIMING);
    plane.operate("pause", "kube-apiserver");
    let exit = cut_off.exited(LIMIT).await;
    assert!(exit.starts_with("exit status 1 "), "{exit}");
    assert_eq!(waiting.exit(), "", "a standby has nothing to lose");
    plane.operate("resume", "kube-apiserver");
    let next = taken_over(&history, &held).await;
    assert_eq!(agree(&history, &[&waiting]).await.1.holder, next.holder);
    works(&cluster).await;
    assert_lawful(&history.finish().await);
}

/// Leadership is to move without a long wait.
const SHORT: [&str; 3] = [
    "--leader-elect-lease-duration=4s",
    "--leader-elect-renew-deadline=3s",
    "--leader-elect-retry-period=500ms",
];
/// Pods of a rollout, enough for one that takes some seconds.
const PODS: usize = 60;

/// The network swallows what a leader sends, at several moments of a rollout, and delivers it when another leads. Nothing
/// of the first one's arrives: by then its connections are reset.
#[tokio::test(flavor = "multi_thread")]
async fn a_leader_in_a_black_hole_is_followed_and_none_of_its_writes_arrives_late() {
    let _alone = ONE_AT_A_TIME.lock().await;
    let plane = ControlPlane::start(&Options { nodes: 3, args: vec!["--audit"] });
    let cluster = plane.cluster().await;
    let history = LeaseHistory::follow(&cluster, LEASE).await;
    let relay = Relay::start(&plane).await;
    let master = format!("--master={}", relay.url);
    let first = plane.coxswain("cut-off", &[&SHORT[..], &[&master]].concat());
    agree(&history, &[&first]).await;
    let second = plane.coxswain("follower", &SHORT);
    for (round, begun) in [1, 5, 20].into_iter().enumerate() {
        assert_eq!(agree(&history, &[&first, &second]).await.0, 0);
        let namespace = cluster.namespace("hole").await;
        let replicas = i32::try_from(PODS).expect("a few");
        namespace.deployment("web", replicas, serde_json::json!({})).await;
        until("a rollout under way", LIMIT, || namespace.pods(), |pods| pods.len() >= begun).await;
        let before = relay.kept();
        relay.swallow();
        let last = history.last().expect("a leader");
        taken_over(&history, &last).await;
        assert_eq!(agree(&history, &[&second]).await.0, 0);
        let exit = first.exited(LIMIT).await;
        assert!(exit.starts_with("exit status 1 "), "{exit}");
        assert!(relay.kept() > before, "round {round}: it sent nothing");
        relay.pass_on();
        until("the network to be empty", LIMIT, || async { relay.undecided() }, |left| *left == 0).await;
        let settled = || namespace.get_deployment("web");
        until("the rollout to end", LIMIT, settled, |deployment| {
            let status = deployment.status.clone().unwrap_or_default();
            status.available_replicas == Some(replicas) && status.replicas == Some(replicas)
        })
        .await;
        assert_eq!(namespace.pods().await.len(), PODS);
        first.start_again();
        second.stop();
        agree(&history, &[&first]).await;
        second.start_again();
    }
    let history = history.finish().await;
    assert_lawful(&history);
    let audit = plane.audit();
    let written = assert_no_late_write(&terms(&history, &audit), &audit);
    assert!(written >= 6, "Coxswain led and wrote in {written} terms only");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_that_is_not_to_be_released_expires_before_the_go_manager_leads() {
    let _alone = ONE_AT_A_TIME.lock().await;
    let plane = ControlPlane::start(&options(&[]));
    let cluster = plane.cluster().await;
    let history = LeaseHistory::follow(&cluster, LEASE).await;
    let gate = "--feature-gates=ControllerManagerReleaseLeaderElectionLockOnExit=false";
    let coxswain = plane.coxswain("coxswain", &[TIMING, &[gate]].concat());
    agree(&history, &[&coxswain]).await;
    let go = plane.go_manager("go", TIMING);
    assert_eq!(agree(&history, &[&coxswain, &go]).await.0, 0);
    let before = history.last().expect("a leader");
    coxswain.stop();
    assert!(coxswain.exit().starts_with("exit status 0"), "{}", coxswain.exit());
    taken_over(&history, &before).await;
    agree(&history, &[&go]).await;
    works(&cluster).await;
    let history = history.finish().await;
    assert_lawful(&history);
    assert!(history.iter().all(|held| !held.holder.is_empty()), "it was released: {history:?}");
}

/// What it takes for the API server to choose who leads.
const COORDINATED: [&str; 5] = [
    "--audit",
    "--feature-gates",
    "CoordinatedLeaderElection=true",
    "--apiserver-arg",
    "runtime-config=coordination.k8s.io/v1beta1=true",
];

/// The API server prefers the oldest release, and gives the Lease to whoever is left. It waits for candidates that have
/// died, and the original gives way by no longer renewing, so this takes its time.
#[tokio::test(flavor = "multi_thread")]
async fn the_api_server_chooses_between_coxswain_and_the_go_manager() {
    let _alone = ONE_AT_A_TIME.lock().await;
    let plane = ControlPlane::start(&options(&COORDINATED));
    let cluster = plane.cluster().await;
    let history = LeaseHistory::follow(&cluster, LEASE).await;
    let older = [TIMING, &["--emulated-version=1.35"]].concat();
    let oldest = [TIMING, &["--emulated-version=1.34"]].concat();

    let coxswain = plane.coxswain("coxswain", TIMING);
    agree(&history, &[&coxswain]).await;
    works(&cluster).await;
    // Coxswain gives way without ending, and gives the Lease back.
    let before = history.last().expect("a leader");
    let go = plane.go_manager("go-older", &older);
    let next = taken_over(&history, &before).await;
    let between = |held: &Held| held.version > before.version && held.version < next.version;
    let mut between = history.seen().into_iter().filter(between);
    assert!(between.any(|held| held.holder.is_empty()), "it is not released");
    assert_eq!(agree(&history, &[&coxswain, &go]).await.0, 1);
    assert_eq!(coxswain.exit(), "");
    works(&cluster).await;
    // It takes over when the Go manager ends.
    go.stop();
    agree(&history, &[&coxswain]).await;
    works(&cluster).await;
    let before = history.last().expect("a leader");
    go.start_again();
    taken_over(&history, &before).await;
    assert_eq!(agree(&history, &[&coxswain, &go]).await.0, 1, "it is older still");

    // The Go manager gives way to a Coxswain that is older, by ending.
    let elder = plane.coxswain("coxswain-oldest", &oldest);
    go.exited(LIMIT).await;
    assert_eq!(agree(&history, &[&coxswain, &elder]).await.0, 1);
    works(&cluster).await;
    elder.stop();
    assert!(elder.exit().starts_with("exit status 0"), "{}", elder.exit());
    agree(&history, &[&coxswain]).await;
    works(&cluster).await;
    coxswain.stop();

    let audit = plane.audit();
    let refused = audit.iter().find(|event| {
        event.object_ref.resource == "leasecandidates"
            && event.coxswain().is_some()
            && event.response_status.code == 403
    });
    assert!(refused.is_none(), "{refused:?}");
    let written = assert_no_late_write(&terms_of_the_api_server(&history.finish().await), &audit);
    assert!(written >= 4, "Coxswain led and wrote in {written} terms only");
}

/// Terms that the API server begins: from when it names a holder to when it names the next.
fn terms_of_the_api_server(history: &[Held]) -> Vec<Term> {
    begun(history, |held| held.renewed, |from| from)
}
