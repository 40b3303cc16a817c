//! Commands that go on until somebody ends them.

use std::ffi::OsString;
use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::server::*;
use crate::admin::events::{Body, ReconcileAttempt};
use crate::admin::manager::Phase;
use crate::admin::proto::stream_events_request::Start;
use crate::admin::proto::stream_events_response::Item;
use crate::admin::proto::{self, StreamEventsRequest};
use crate::admin::testing::fake::{ME, OTHER};
use crate::cli::commands::events::Position;
use crate::cli::environment::Environment;
use crate::cli::error::Exit;
use crate::cli::output::Screen;

/// Passes on what is written.
struct Tap(mpsc::Sender<String>);

impl Write for Tap {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(bytes).into_owned();
        self.0.try_send(text).map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Runs a command until `looker` has seen enough of its output.
async fn follow(replica: &Replica, line: &[&str], looker: impl AsyncFnOnce(&mut mpsc::Receiver<String>)) {
    follow_as(replica, &json!({ "token": TOKEN }), line, looker).await;
}

/// The same as the user of a kubeconfig.
async fn follow_as(
    replica: &Replica,
    user: &Value,
    line: &[&str],
    looker: impl AsyncFnOnce(&mut mpsc::Receiver<String>),
) {
    let kubeconfig = replica.kubeconfig(&replica.authority, user);
    let environment =
        Environment::new(replica.manager.clock(), &[("KUBECONFIG", kubeconfig.to_str().unwrap())]);
    let (sender, mut receiver) = mpsc::channel(64);
    let err = Arc::new(Mutex::new(Vec::new()));
    let screen = Screen::new(Arc::new(Mutex::new(Tap(sender))), Arc::clone(&err) as _);
    let line: Vec<OsString> = line.iter().map(OsString::from).collect();
    tokio::select! {
        exit = crate::cli::execute(crate::cli::Called::Directly, &line, environment, screen) => {
            panic!("{exit:?}: {}", String::from_utf8_lossy(&err.lock()));
        }
        () = looker(&mut receiver) => {}
    }
}

async fn next(receiver: &mut mpsc::Receiver<String>) -> String {
    receiver.recv().await.unwrap()
}

fn publish(replica: &Replica) {
    let attempt = ReconcileAttempt { queue: "deployment", number: 1, queue_wait: Duration::ZERO };
    replica.events.publish(Some("deployment-controller"), None, None, Body::ReconcileStarted(attempt));
}

#[tokio::test]
async fn events_of_the_past_end_and_new_ones_go_on() {
    let replica = Replica::start().await;
    for _ in 0..3 {
        publish(&replica);
    }
    let ran = replica.run(&["events"]).await;
    assert_eq!((ran.exit, ran.out.lines().count()), (Exit::Done, 3), "{ran:?}");
    let line =
        "2027-01-15T08:00:00.000Z   DEBUG     reconcile-started   deployment-controller   <none>   started";
    assert_eq!(ran.out.lines().next(), Some(line));
    let colored = replica.run(&["events", "--tail", "1", "--color", "always"]).await;
    assert!(colored.out.contains("\u{1b}["), "{colored:?}");
    let ran = replica.run(&["events", "--since", "2", "-o", "json"]).await;
    let items: Vec<Value> = ran.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(items[0]["started"]["logId"], "log-1");
    assert_eq!(items[1]["event"]["sequence"], 3);
    assert_eq!(items[2]["replayFinished"]["sequence"], 3);
    let ran = replica.run(&["events", "--since", "9"]).await;
    assert!(ran.exit == Exit::Refused && ran.err.contains("the newest sequence number is 3"), "{ran:?}");
    assert_eq!(replica.run(&["events", "--since", "1", "--log", "log-0"]).await.exit, Exit::Refused);

    follow(&replica, &["events", "-f", "-o", "wide", "--tail", "1"], async |lines| {
        assert!(next(lines).await.starts_with("3  "));
        publish(&replica);
        assert!(next(lines).await.starts_with("4  "));
    })
    .await;
}

#[tokio::test]
async fn events_go_on_with_the_replica_that_leads_next() {
    let (next_leader, leader) = (Replica::start().await, Replica::with_log("log-2").await);
    let own = lease(ME, &next_leader.address, 0, None);
    let leases = [lease(OTHER, &leader.address, 0, Some(&leader.authority)), own.clone()];
    next_leader.announce(&leases, Some(OTHER));
    let line = ["events", "-f", "-o", "wide", "--trust-announced-authority"];
    follow(&next_leader, &line, async |lines| {
        publish(&leader);
        assert!(next(lines).await.starts_with("1  "));
        publish(&leader);
        assert!(next(lines).await.starts_with("2  "));
        drop(leader);
        next_leader.announce(&[own], Some(ME));
        publish(&next_leader);
        assert!(next(lines).await.starts_with("1  "));
        publish(&next_leader);
        assert!(next(lines).await.starts_with("2  "));
    })
    .await;
}

#[tokio::test]
async fn credential_plugin_runs_again_when_its_token_is_refused_and_not_before() {
    let replica = Replica::start().await;
    let plugin = Plugin::of(&replica);
    let config = replica.kubeconfig(&replica.authority, &plugin.user());
    let kubeconfig = [("KUBECONFIG", config.to_str().unwrap())];
    // Refused by both the API server and the replica, or by neither.
    for (accepted, runs) in [("token-1", 1), ("token-3", 3)] {
        replica.accept(accepted);
        let ran = replica.run_in(&kubeconfig, &["controllers"]).await;
        assert_eq!((ran.exit, plugin.runs()), (Exit::Done, runs), "{ran:?}");
    }
    replica.accept("none of them");
    let ran = replica.run_in(&kubeconfig, &["controllers"]).await;
    assert_eq!((ran.exit, plugin.runs()), (Exit::Denied, 5), "once more, and not for ever: {ran:?}");

    // Without an API server the replica alone refuses it.
    replica.accept("token-7");
    let server = ["--server", &replica.address];
    let ran = replica.run_in(&kubeconfig, &[&["controllers"], &server[..]].concat()).await;
    assert_eq!((ran.exit, plugin.runs()), (Exit::Done, 7), "{ran:?}");
}

#[tokio::test]
async fn every_stream_goes_on_at_the_next_replica_with_a_fresh_token() {
    for command in [&["events", "-f", "--tail", "1"][..], &["controllers", "job", "-w"], &["leader", "-w"]] {
        let (next_leader, leader) = (Replica::start().await, Replica::with_log("log-2").await);
        let own = lease(ME, &next_leader.address, 0, None);
        let leases = [lease(OTHER, &leader.address, 0, Some(&leader.authority)), own.clone()];
        next_leader.announce(&leases, Some(OTHER));
        next_leader.accept("token-1");
        leader.accept("token-1");
        publish(&leader);
        publish(&next_leader);
        let plugin = Plugin::of(&next_leader);
        let line = [command, &["--trust-announced-authority"]].concat();
        follow_as(&next_leader, &plugin.user(), &line, async |lines| {
            next(lines).await;
            assert_eq!(plugin.runs(), 1, "{command:?}");
            next_leader.accept("token-2");
            drop(leader);
            next_leader.announce(&[own], Some(ME));
            if command[0] == "events" {
                publish(&next_leader);
            }
            next(lines).await;
            assert_eq!(plugin.runs(), 2, "{command:?}");
        })
        .await;
    }
}

/// A credential plugin whose tokens are `token-1`, `token-2` and so on.
struct Plugin {
    script: String,
    count: String,
}

impl Plugin {
    fn of(replica: &Replica) -> Self {
        let (script, count) = (replica.path("plugin"), replica.path("runs"));
        let status = r#"{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"token-%s"}}"#;
        let text = format!("echo >> {count}\nprintf '{status}' $(wc -l < {count})\n");
        std::fs::write(&script, text).unwrap();
        Self { script, count }
    }

    fn user(&self) -> Value {
        let version = "client.authentication.k8s.io/v1";
        let exec = json!({
            "apiVersion": version, "command": "sh", "args": [self.script], "interactiveMode": "Never",
        });
        json!({ "exec": exec })
    }

    fn runs(&self) -> usize {
        std::fs::read_to_string(&self.count).unwrap_or_default().lines().count()
    }
}

#[test]
fn a_stream_goes_on_where_it_was_lost_or_with_what_is_newer() {
    let at = |seconds| Some(prost_types::Timestamp { seconds, nanos: 0 });
    let event = |sequence, seconds| {
        Item::Event(proto::Event { sequence, time: at(seconds), ..proto::Event::default() })
    };
    let started =
        |log: &str| Item::Started(proto::StreamStarted { log_id: log.to_owned(), ..Default::default() });
    let finished = |sequence| Item::ReplayFinished(proto::ReplayFinished { sequence });
    let first = StreamEventsRequest { start: Some(Start::Last(10)), ..StreamEventsRequest::default() };
    let asks = |position: &Position| {
        let request = position.request(&first);
        (request.log_id, request.start)
    };

    let mut position = Position::new(Timestamp::from_second(100).unwrap());
    let shown = |position: &mut Position, item: Item| position.take_in(Some(&item));
    assert!(shown(&mut position, started("a")) && shown(&mut position, event(5, 90)));
    assert_eq!(asks(&position), ("a".to_owned(), Some(Start::SinceSequence(5))));
    // Those that did not match are known of by their numbers alone.
    assert!(shown(&mut position, finished(8)));
    assert_eq!(asks(&position), ("a".to_owned(), Some(Start::SinceSequence(8))));
    assert!(shown(&mut position, event(9, 110)));
    let dropped = proto::EventsDropped { count: 11, first_sequence: 10, last_sequence: 20 };
    assert!(shown(&mut position, Item::Dropped(dropped)));
    // The same log again.
    assert!(shown(&mut position, started("a")));
    assert_eq!(asks(&position), ("a".to_owned(), Some(Start::SinceSequence(20))));
    // Another one, with a past of its own.
    position.forget_log();
    assert_eq!(asks(&position), (String::new(), Some(Start::SinceSequence(0))));
    assert!(shown(&mut position, started("b")));
    assert!(!shown(&mut position, event(1, 109)));
    assert!(shown(&mut position, event(2, 110)) && shown(&mut position, event(3, 120)));
    assert!(shown(&mut position, finished(3)));
    assert!(shown(&mut position, event(4, 119)), "what is new is shown, whatever its clock says");
    assert_eq!(asks(&position), ("b".to_owned(), Some(Start::SinceSequence(4))));
}

#[tokio::test]
async fn controllers_and_the_leader_are_watched() {
    let replica = Replica::start().await;
    follow(&replica, &["controllers", "deployment", "-w"], async |lines| {
        let first = next(lines).await;
        assert_eq!(first.lines().count(), 2, "{first}");
        replica.manager.set_phase("deployment-controller", Phase::Stopping);
        let second = next(lines).await;
        assert!(second.starts_with("deployment-controller   enabled   default   Stopping   "), "{second}");
    })
    .await;
    follow(&replica, &["leader", "--watch"], async |lines| {
        assert!(next(lines).await.starts_with("HOLDER "));
        replica.manager.lose(OTHER);
        assert!(next(lines).await.starts_with("node-b_2 "));
    })
    .await;
    follow(&replica, &["leader", "--watch", "-o", "json"], async |lines| {
        let message: Value = serde_json::from_str(&next(lines).await).unwrap();
        assert_eq!(message["leader"]["holderIdentity"], OTHER);
    })
    .await;
}

#[tokio::test]
async fn a_reader_that_goes_ends_the_command_quietly() {
    let replica = Replica::start().await;
    let kubeconfig = replica.kubeconfig(&replica.authority, &json!({ "token": TOKEN }));
    let environment =
        Environment::new(replica.manager.clock(), &[("KUBECONFIG", kubeconfig.to_str().unwrap())]);
    let (sender, receiver) = mpsc::channel(1);
    drop(receiver);
    let err = Arc::new(Mutex::new(Vec::new()));
    let screen = Screen::new(Arc::new(Mutex::new(Tap(sender))), Arc::clone(&err) as _);
    let exit = crate::cli::execute(
        crate::cli::Called::Directly,
        &["controllers".into(), "-w".into()],
        environment,
        screen,
    )
    .await;
    assert_eq!(exit, Exit::Done);
    assert!(err.lock().is_empty());
}
