//! A crowd without credentials: connections that do nothing, streams, requests with made-up tokens for made-up paths. Probes are
//! answered all the while, whoever is known is served, and the process does not grow.

use std::collections::VecDeque;
use std::time::Duration;

use coxswain::admin::proto;
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};
use tonic::body::Body;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

use super::{Admin, LIMIT, Who, all_run, assert_unharmed, bare, operator};
use crate::harness::{Caller, ControlPlane, Manager, Status, by_depth, turn};

/// Ten thousand in a minute.
const EVERY: Duration = Duration::from_millis(6);
/// What the crowd holds on to at its end: more than strangers have places.
const HELD: usize = 700;
/// What the process may grow by, in KiB.
const GROWTH: u64 = 10 << 10;

/// What one of the crowd holds on to, for as long as it is let: a connection, and what is open on it.
type Grip = Box<dyn Send>;

/// One of the crowd. What it comes to is of no interest.
async fn intrude(plane: &ControlPlane, manager: &Manager<'_>, n: usize) -> Option<Grip> {
    let address = manager.url.trim_start_matches("https://");
    match n % 4 {
        0 => Some(Box::new(TcpStream::connect(address).await.ok()?)),
        1 => {
            let old = Admin::of_old(plane, manager, Who::Nobody);
            old.raw("/healthz", &[], Body::empty()).await.ok()?;
            Some(Box::new(old))
        }
        2 => {
            let nobody = Admin::of(plane, manager, Who::Nobody);
            let request = HealthCheckRequest { service: "x".repeat(400) };
            let stream = HealthClient::new(nobody.clone()).watch(request).await.ok()?.into_inner();
            Some(Box::new((nobody, stream)))
        }
        _ => {
            let token = format!("made-up-{n}");
            let stranger = Admin::of(plane, manager, Who::Token(&token));
            stranger.raw(&format!("/made/up/{n}"), &[], Body::empty()).await.ok()?;
            None
        }
    }
}

/// Sends the crowd for so long, and says how many they were.
async fn send(plane: &ControlPlane, manager: &Manager<'_>, length: Duration) -> usize {
    let mut held = VecDeque::new();
    let mut pace = interval(EVERY);
    pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (end, mut sent) = (Instant::now() + length, 0);
    // Each intruder borrows the plane, so they are polled here and not spawned.
    let mut intruders = FuturesUnordered::new();
    while Instant::now() < end {
        tokio::select! {
            biased;
            _ = pace.tick() => {
                intruders.push(timeout(LIMIT, intrude(plane, manager, sent)));
                sent += 1;
            }
            Some(grip) = intruders.next() => {
                held.extend(grip.ok().flatten());
                while held.len() > HELD {
                    drop(held.pop_front());
                }
            }
        }
    }
    sent
}

/// Probes the port as a kubelet does, which takes three failures in a row for one; and uses it. Says how many probes failed.
async fn probe(manager: &Manager<'_>, operator: &Admin) -> usize {
    let mut failed = 0;
    for path in ["/healthz", "/readyz"] {
        let mut tries = 0;
        while manager.try_page(Caller::Anonymous, path).await.is_none_or(|page| page.status != 200) {
            tries += 1;
            assert!(tries < 3, "{path} is not answered");
        }
        failed += tries;
    }
    let list = proto::ListControllersRequest::default();
    operator.controllers().list_controllers(list).await.expect("an answer to who is known");
    failed
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crowd_of_strangers_keeps_no_probe_out_and_takes_no_memory() {
    let _turn = turn().await;
    let plane = ControlPlane::start(&bare());
    let manager = plane.coxswain("coxswain", &[]);
    all_run(&Admin::master(&plane, &manager)).await;
    let known = operator(&plane);
    let operator = Admin::of(&plane, &manager, Who::Certificate(&known));
    assert_eq!(probe(&manager, &operator).await, 0, "nobody is here yet");
    let resident = || Status::of(manager.pid).field("VmRSS:");
    let before = resident();
    let length = by_depth(Duration::from_secs(6), Duration::from_mins(2));

    // The crowd has a thread of its own: what it computes delays no probe.
    let runtime = Handle::current();
    let (sent, probes, failed) = std::thread::scope(|scope| {
        let crowd = scope.spawn(|| runtime.block_on(send(&plane, &manager, length)));
        let probing = async {
            let (mut probes, mut failed) = (0, 0);
            while !crowd.is_finished() {
                failed += probe(&manager, &operator).await;
                probes += 2;
            }
            (probes, failed)
        };
        let (probes, failed) = tokio::task::block_in_place(|| runtime.block_on(probing));
        (crowd.join().expect("the crowd"), probes, failed)
    });
    let after = resident();
    eprintln!(
        "{sent} strangers in {length:?}; {failed} of {probes} probes failed; {before} KiB before, {after} KiB after"
    );
    assert!(sent > 100 && probes > 0, "there was no crowd");
    assert!(after <= before + GROWTH, "from {before} KiB to {after} KiB");
    assert_unharmed(&plane, &manager);
}
