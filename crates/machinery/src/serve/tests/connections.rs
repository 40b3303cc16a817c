//! Connections: limits, slow callers, both versions of HTTP.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::fixtures::{FakeReviews, Setup, request};
use crate::serve::*;

/// Long enough for anything that is to happen at all.
const SURELY: Duration = Duration::from_secs(30);
/// A limit short enough to wait for.
const SHORT: Duration = Duration::from_millis(100);

async fn read_to_end(mut stream: impl tokio::io::AsyncRead + Unpin) -> String {
    let mut all = Vec::new();
    // A connection that is cut without a goodbye is closed as well.
    let _cut = timeout(SURELY, stream.read_to_end(&mut all)).await.expect("the server never closed");
    String::from_utf8_lossy(&all).into_owned()
}

#[tokio::test]
async fn both_versions_are_spoken_unless_http2_is_disabled() {
    let mut setup = Setup::new(FakeReviews::default());
    let running = setup.start().await;
    assert_eq!(running.get("/healthz").await.body, "ok");
    assert_eq!(running.client().with_h1().get("/healthz").await.body, "ok");
    setup.options.disable_http2 = true;
    let running = setup.start().await;
    assert!(
        running.client().tls().await.is_err(),
        "a client that insists on HTTP/2 finds no common protocol"
    );
    assert_eq!(running.client().with_h1().get("/healthz").await.body, "ok");
}

#[tokio::test]
async fn strangers_get_one_request_per_http2_connection_and_friends_many() {
    let setup = Setup::new(FakeReviews::default());
    let running = setup.start().await;
    let mut stranger = running.client().connect().await;
    assert_eq!(stranger.get("/healthz").await.unwrap().status, StatusCode::OK);
    timeout(SURELY, stranger.tasks.join_next()).await.expect("the server did not part with it");

    let mut friend = running.client().with_cert(&setup.client_ca.client("jane", &[])).connect().await;
    for _ in 0..5 {
        assert_eq!(friend.get("/healthz").await.unwrap().status, StatusCode::OK);
    }
    let mut probe = running.client().with_h1().connect().await;
    for _ in 0..3 {
        assert_eq!(probe.get("/healthz").await.unwrap().status, StatusCode::OK);
    }
}

#[tokio::test]
async fn a_stranger_s_call_is_the_connection_s_last() {
    let setup = Setup::new(FakeReviews::default());
    setup.router.mount_grpc(sync_handler(|_| text(StatusCode::OK, "called")), false);
    let running = setup.start().await;
    let call = || request(Method::POST, "/any.Service/Call", &[("content-type", "application/grpc")]);
    let mut stranger = running.client().connect().await;
    assert_eq!(stranger.send(call()).await.unwrap().body, "called");
    timeout(SURELY, stranger.tasks.join_next()).await.expect("the server did not part with it");

    let mut friend = running.client().with_cert(&setup.client_ca.client("jane", &[])).connect().await;
    for _ in 0..5 {
        assert_eq!(friend.send(call()).await.unwrap().body, "called");
    }
}

#[tokio::test]
async fn plain_http_is_told_so() {
    let setup = Setup::new(FakeReviews::default());
    let running = setup.start().await;
    let mut stream = TcpStream::connect(running.address).await.unwrap();
    stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    let answer = read_to_end(stream).await;
    assert_eq!(answer, "HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n");
}

#[tokio::test]
async fn who_dawdles_is_cut_off() {
    let mut setup = Setup::new(FakeReviews::default());
    setup.options.limits.handshake = SHORT;
    setup.options.limits.header_time = SHORT;
    let running = setup.start().await;

    let silent = TcpStream::connect(running.address).await.unwrap();
    assert_eq!(read_to_end(silent).await, "", "no handshake");

    let mut slow = running.client().with_h1().tls().await.unwrap();
    slow.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-Slow: ").await.unwrap();
    assert!(!read_to_end(slow).await.contains("200 OK"), "headers without an end");

    let idle = running.client().tls().await.unwrap();
    read_to_end(idle).await;
    let mut preface = running.client().tls().await.unwrap();
    preface.write_all(b"PRI * HTTP/2.0\r\n").await.unwrap();
    read_to_end(preface).await;
    assert_eq!(running.get("/healthz").await.body, "ok");
}

#[tokio::test]
async fn an_idle_http2_connection_is_closed() {
    let mut setup = Setup::new(FakeReviews::default());
    setup.options.limits.idle = SHORT;
    let running = setup.start().await;
    let mut friend = running.client().with_cert(&setup.client_ca.client("jane", &[])).connect().await;
    assert_eq!(friend.get("/healthz").await.unwrap().status, StatusCode::OK);
    timeout(SURELY, friend.tasks.join_next()).await.expect("the server kept it");
}

#[tokio::test]
async fn oversized_headers_are_431_on_either_version() {
    let mut setup = Setup::new(FakeReviews::default());
    setup.options.limits.header_bytes = 16 << 10;
    let running = setup.start().await;
    let big = "a".repeat(15 << 10);
    for client in [running.client(), running.client().with_h1()] {
        let headers = [("x-a", big.as_str()), ("x-b", big.as_str())];
        let reply = client.send(request(Method::GET, "/healthz", &headers)).await;
        assert_eq!(reply.status, StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE);
    }
}

#[tokio::test]
async fn bodies_that_are_too_long_or_too_slow_are_refused() {
    let mut setup = Setup::new(FakeReviews::default());
    setup.options.limits.body_bytes = 100;
    setup.options.limits.body_time = SHORT;
    setup.router.add(
        "/sink",
        handler(async |request| match request.into_body().collect().await {
            Ok(body) => text(StatusCode::OK, body.to_bytes().len().to_string()),
            Err(error) => text(StatusCode::BAD_REQUEST, error.to_string()),
        }),
    );
    let running = setup.start().await;
    let admin = running.client().with_cert(&setup.client_ca.client("admin", &["system:masters"]));
    for (size, status) in [(100, StatusCode::OK), (101, StatusCode::BAD_REQUEST)] {
        let mut post = request(Method::POST, "/sink", &[]);
        *post.body_mut() = Full::new(Bytes::from(vec![b'x'; size]));
        assert_eq!(admin.send(post).await.status, status);
    }
    let mut slow = admin.with_h1().tls().await.unwrap();
    slow.write_all(b"POST /sink HTTP/1.1\r\nHost: x\r\nContent-Length: 50\r\n\r\nhalf").await.unwrap();
    let mut answer = [0; 12];
    timeout(SURELY, slow.read_exact(&mut answer)).await.unwrap().unwrap();
    assert_eq!(&answer, b"HTTP/1.1 400");
}

#[tokio::test]
async fn strangers_make_room_and_who_is_known_and_busy_does_not() {
    let mut setup = Setup::new(FakeReviews::default());
    setup.options.limits.connections = 2;
    let (entered, release) = slow_page(&setup);
    let running = setup.start().await;
    let admin = running.client().with_cert(&setup.client_ca.client("admin", &["system:masters"]));
    let mut friend = admin.connect().await;
    let crowd = async {
        entered.notified().await;
        let mut stranger = running.client().with_h1().connect().await;
        assert_eq!(stranger.get("/healthz").await.unwrap().body, "ok");
        for _ in 0..5 {
            assert_eq!(running.client().with_h1().get("/healthz").await.body, "ok");
        }
        assert!(stranger.get("/healthz").await.is_err(), "the newcomers have its place");
        release.notify_one();
    };
    let (reply, ()) = timeout(SURELY, async { futures::join!(friend.get("/slow"), crowd) }).await.unwrap();
    assert_eq!(reply.unwrap().body, "done");
}

#[tokio::test]
async fn who_can_have_no_place_is_told_at_once() {
    let mut setup = Setup::new(FakeReviews::default());
    setup.options.limits.connections = 1;
    let (entered, release) = slow_page(&setup);
    let running = setup.start().await;
    let admin = running.client().with_cert(&setup.client_ca.client("admin", &["system:masters"]));
    let mut friend = admin.connect().await;
    let others = async {
        entered.notified().await;
        assert!(timeout(SURELY, running.client().tls()).await.expect("left to wait").is_err());
        release.notify_one();
    };
    let (reply, ()) = futures::join!(friend.get("/slow"), others);
    assert_eq!(reply.unwrap().body, "done");
    // The server hears of the end of an answer when it gets round to it; then who is idle makes room.
    let idle = async { while running.client().tls().await.is_err() {} };
    timeout(SURELY, idle).await.expect("who is idle does not make room");
    assert_eq!(running.get("/healthz").await.body, "ok");
}

#[tokio::test]
async fn crowds_of_idle_connections_do_not_keep_a_probe_out() {
    let mut setup = Setup::new(FakeReviews::default());
    setup.options.limits.connections = 8;
    let running = setup.start().await;
    let (mut silent, mut idle) = (Vec::new(), Vec::new());
    for n in 0..40 {
        silent.push(TcpStream::connect(running.address).await.unwrap());
        idle.push(running.client().tls().await.unwrap());
        if n % 4 == 0 {
            let probe = timeout(SURELY, running.get("/healthz")).await;
            assert_eq!(probe.expect("kept out").body, "ok");
        }
    }
}

#[tokio::test]
async fn crowd_of_one_user_with_few_open_files_keeps_out_neither_probes_nor_other_users() {
    let mut setup = Setup::new(FakeReviews::default().knows("pod", "system:serviceaccount:shop:default"));
    // 22 connections.
    setup.options.limits = Limits::for_open_files(300, 1);
    setup.options.limits.connections_of_address = setup.options.limits.connections;
    let running = setup.start().await;
    let admin = running.client().with_cert(&setup.client_ca.client("admin", &["system:masters"]));
    let mut friend = admin.connect().await;
    assert_eq!(friend.get("/healthz").await.unwrap().body, "ok");
    let token = [("authorization", "Bearer pod")];
    let mut crowd = Vec::new();
    for _ in 0..40 {
        let mut session = running.client().connect().await;
        // Known, and without a role.
        let answer = session.send(request(Method::GET, "/metrics", &token)).await;
        assert_eq!(answer.unwrap().status, StatusCode::FORBIDDEN);
        crowd.push(session);
        let probe = timeout(SURELY, running.get("/healthz")).await;
        assert_eq!(probe.expect("kept out").body, "ok");
        assert_eq!(friend.get("/healthz").await.expect("the friend was cut off").body, "ok");
    }
    let share = setup.options.limits.connections_of_user;
    let cut_off = async {
        while crowd.len() > share {
            crowd.retain_mut(|session| session.tasks.try_join_next().is_none());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(SURELY, cut_off).await.expect("the user keeps more than the share");
    assert_eq!(crowd.len(), share);
    for session in &mut crowd {
        session.get("/healthz").await.expect("the share is kept");
    }
}

#[test]
fn places_of_the_port_follow_the_limit_of_open_files() {
    for (files, connections) in [(0, 16), (300, 22), (1024, 384), (8448, 4096), (u64::MAX, 4096)] {
        let limits = Limits::for_open_files(files, 1);
        assert_eq!(limits.connections, connections, "{files}");
        let shares = [limits.connections_of_address, limits.connections_of_user, limits.strangers];
        assert!(shares.iter().all(|share| (1..=connections / 4).contains(share)), "{files}: {limits:?}");
        assert!(limits.connections_of_user <= limits.connections_of_address.div_ceil(2), "{files}");
        assert!((1..=limits.strangers).contains(&limits.strangers_of_address), "{files}");
    }
    assert_eq!(Limits::for_open_files(65_536, 1).strangers, Limits::DEFAULT.strangers);
    assert_eq!(Limits::for_open_files(1024, 2).connections, 192, "of each of two ports");
}

#[tokio::test]
async fn a_peer_that_takes_no_answer_is_cut_off_in_the_end() {
    let mut setup = Setup::new(FakeReviews::default());
    setup.options.limits.farewell = SHORT;
    let running = setup.start().await;
    let io = TokioIo::new(running.client().tls().await.unwrap());
    let mut builder = http2::Builder::new(TokioExecutor::new());
    let (mut sender, conn) = builder.initial_stream_window_size(0).handshake(io).await.unwrap();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move { drop(conn.await) });
    let answer = sender.send_request(request(Method::GET, "/healthz", &[])).await.unwrap();
    assert_eq!(answer.status(), StatusCode::OK);
    timeout(SURELY, tasks.join_next()).await.expect("the server kept it");
    drop(answer);
}

fn slow_page(setup: &Setup) -> (Arc<Notify>, Arc<Notify>) {
    let (entered, release) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (enter, go) = (Arc::clone(&entered), Arc::clone(&release));
    setup.router.add(
        "/slow",
        handler(move |_| {
            let (enter, go) = (Arc::clone(&enter), Arc::clone(&go));
            async move {
                enter.notify_one();
                go.notified().await;
                text(StatusCode::OK, "done")
            }
        }),
    );
    (entered, release)
}

#[tokio::test]
async fn shutdown_lets_requests_end_and_takes_no_more() {
    for h1 in [false, true] {
        let setup = Setup::new(FakeReviews::default());
        let (entered, release) = slow_page(&setup);
        let mut running = setup.start().await;
        let mut client = running.client().with_cert(&setup.client_ca.client("admin", &["system:masters"]));
        client.h1 = h1;
        let stop = async {
            entered.notified().await;
            running.shutdown.cancel();
            // The listener is gone before the request is done.
            while TcpStream::connect(running.address).await.is_ok() {
                tokio::task::yield_now().await;
            }
            release.notify_one();
        };
        let (reply, ()) = futures::join!(client.get("/slow"), stop);
        assert_eq!(reply.body, "done");
        timeout(SURELY, running.tasks.join_next()).await.expect("still running").unwrap().unwrap();
    }
}

#[tokio::test]
async fn shutdown_waits_no_longer_than_its_grace() {
    let mut setup = Setup::new(FakeReviews::default());
    setup.options.shutdown_grace = SHORT;
    let (entered, _never) = slow_page(&setup);
    let mut running = setup.start().await;
    let client = running.client().with_cert(&setup.client_ca.client("admin", &["system:masters"]));
    let mut session = client.connect().await;
    let stop = async {
        entered.notified().await;
        running.shutdown.cancel();
        timeout(SURELY, running.tasks.join_next()).await.expect("still running").unwrap().unwrap();
    };
    let (reply, ()) = futures::join!(session.get("/slow"), stop);
    assert!(reply.is_err());
}

#[tokio::test]
async fn a_taken_port_is_reported_and_a_shared_one_is_not() {
    let mut setup = Setup::new(FakeReviews::default());
    setup.options.permit_port_sharing = true;
    let first = setup.bind().await.unwrap();
    setup.options.address = first.local_addr();
    setup.bind().await.expect("shared");
    setup.options.permit_port_sharing = false;
    let error = setup.bind().await.unwrap_err();
    assert!(error.to_string().starts_with(&format!("listen on {}: ", first.local_addr())), "{error}");
}
