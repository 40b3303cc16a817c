//! A crowd without credentials, and a user with many connections. Probes are answered all the while, each of them, whoever is known is
//! served, and the process does not grow.

use std::time::Duration;

use coxswain::admin::proto;
use http::{Request, StatusCode};
use tokio::time::{Instant, interval, timeout};
use tonic::body::Body;
use tower::Service as _;

use super::{Admin, Who, all_run, assert_unharmed, bare, operator};
use crate::harness::{ControlPlane, Crowd, Manager, Status, by_depth, turn, turn_beside_another};

/// Strangers that come at 10,000 a minute: in `make test-all` for two minutes.
const STRANGERS: (usize, usize) = (1000, 20_000);
/// What the process may grow by, in KiB.
const GROWTH: u64 = 10 << 10;
/// More often than a kubelet asks.
const EVERY: Duration = Duration::from_millis(200);

/// What kubeadm lets a probe take.
const PATIENCE: Duration = Duration::from_secs(15);

/// The limit of open files of a manager, and the number of connections that a user opens.
const FEW_FILES: (&str, usize) = ("--nofile=320:320", 350);

/// Probes the port as a kubelet does, by connections of its own; and uses it.
async fn probe(plane: &ControlPlane, manager: &Manager<'_>, operator: &Admin) {
    for path in ["/healthz", "/readyz"] {
        let mut prober = Admin::of_old(plane, manager, Who::Nobody);
        let request = Request::get(path).body(Body::empty()).expect("a request");
        let answer = timeout(PATIENCE, prober.call(request)).await;
        let answer = answer.unwrap_or_else(|_| panic!("{path} is not answered within {PATIENCE:?}"));
        assert_eq!(answer.expect("an answer").status(), StatusCode::OK, "{path}");
    }
    let list = proto::ListControllersRequest::default();
    operator.controllers().list_controllers(list).await.expect("an answer to who is known");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crowd_of_strangers_keeps_no_probe_out_and_takes_no_memory() {
    let _turn = turn().await;
    let plane = ControlPlane::start(&bare());
    let manager = plane.coxswain("coxswain", &[]);
    all_run(&Admin::master(&plane, &manager)).await;
    let known = operator(&plane);
    let operator = Admin::of(&plane, &manager, Who::Certificate(&known));
    probe(&plane, &manager, &operator).await;
    let resident = || Status::of(manager.pid).field("VmRSS:");
    let (before, mut most, mut probes) = (resident(), 0, 0);

    let (crowd, began) = (Crowd::gather(&plane, &manager), Instant::now());
    let mut pace = interval(EVERY);
    while crowd.sent() < by_depth(STRANGERS.0, STRANGERS.1) {
        pace.tick().await;
        probe(&plane, &manager, &operator).await;
        probes += 1;
        most = most.max(resident());
    }
    let (sent, served, length) = (crowd.sent(), crowd.served(), began.elapsed());
    drop(crowd);
    eprintln!(
        "{sent} strangers in {length:?}, {served} were answered; {probes} probes; {before} KiB before, {most} KiB at most"
    );
    assert!(served > 0, "nobody came to the port");
    assert!(most <= before + GROWTH, "from {before} KiB to {most} KiB");
    assert_unharmed(&plane, &manager);
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_of_one_user_use_up_no_files_of_the_process() {
    let _turn = turn_beside_another().await;
    let plane = ControlPlane::start(&bare());
    let (limit, count) = FEW_FILES;
    let manager = plane.coxswain_with("few-files", &["prlimit", limit], &[]);
    all_run(&Admin::master(&plane, &manager)).await;
    let known = operator(&plane);
    let operator = Admin::of(&plane, &manager, Who::Certificate(&known));
    // A token without any role, such as that of a pod.
    let token = plane.kubectl(&["-n", "default", "create", "token", "default"]);
    let mut callers = Vec::new();
    for at in 0..count {
        let caller = Admin::of(&plane, &manager, Who::Token(token.trim()));
        let list = proto::ListControllersRequest::default();
        // The answer, if there is one, is a refusal; the connection stays open.
        drop(timeout(Duration::from_secs(1), caller.controllers().list_controllers(list)).await);
        callers.push(caller);
        if at.is_multiple_of(50) {
            probe(&plane, &manager, &operator).await;
        }
    }
    probe(&plane, &manager, &operator).await;
    assert_unharmed(&plane, &manager);
}
