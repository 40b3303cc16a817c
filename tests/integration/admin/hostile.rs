//! Callers without rights, without manners and without end, while a rollout proceeds: each gets the code that it should,
//! and nobody else notices.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use bytes::{BufMut as _, Bytes, BytesMut};
use coxswain::admin::proto::{self, Health, Phase};
use futures::StreamExt as _;
use http::{Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::Incoming;
use k8s_openapi::api::core::v1::ServiceAccount;
use prost::Message as _;
use rand::rngs::StdRng;
use rand::{Rng, RngCore as _, SeedableRng};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tonic::body::Body;
use tonic::{Code, Request, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

use super::caller::reason;
use super::{Admin, LIMIT, Who, all_run, assert_unharmed, built, operator};
use crate::harness::{ControlPlane, Manager, Namespace, Options, turn, until};

const GET: &str = "/coxswain.admin.v1.ControllerService/GetController";
const STREAM: &str = "/coxswain.admin.v1.EventService/StreamEvents";
/// More streams than may be open at a time: places of abandoned ones are given back.
const ABANDONED: usize = 4500;
/// After more resets than about a thousand, clients give a connection up by themselves.
const PER_CONNECTION: usize = 500;
const SLOW: usize = 50;
const GARBAGE: usize = 300;
const SEED: u64 = 5;
/// The server's own limit, and some.
const SLOW_LIMIT: Duration = Duration::from_secs(20);

/// A gRPC frame.
fn framed(message: &[u8]) -> Bytes {
    let mut frame = BytesMut::new();
    frame.put_u8(0);
    frame.put_u32(message.len() as u32);
    frame.put_slice(message);
    frame.freeze()
}

fn get_request() -> Bytes {
    framed(&proto::GetControllerRequest { name: "deployment".to_owned() }.encode_to_vec())
}

fn whole(bytes: impl Into<Bytes>) -> Body {
    Body::new(Full::new(bytes.into()))
}

/// A body that begins and never goes on.
fn stuck(begin: Bytes) -> Body {
    let begin = futures::stream::iter([Ok::<_, std::convert::Infallible>(Frame::data(begin))]);
    Body::new(StreamBody::new(begin.chain(futures::stream::pending())))
}

/// The status that an answer ends in.
async fn status(response: Response<Incoming>) -> Code {
    let (head, body) = response.into_parts();
    let of = |headers: &http::HeaderMap| {
        let value = headers.get("grpc-status")?.to_str().ok()?.parse::<i32>().ok()?;
        Some(Code::from_i32(value))
    };
    if let Some(code) = of(&head.headers) {
        return code;
    }
    let body = body.collect().await.expect("a whole answer");
    body.trailers().and_then(of).unwrap_or_else(|| panic!("no status: {head:?}"))
}

async fn code_of(admin: &Admin, path: &str, headers: &[(&'static str, &'static str)], body: Body) -> Code {
    let answer = timeout(LIMIT, admin.raw(path, headers, body)).await.expect("an answer in time");
    status(answer.expect("an answer")).await
}

fn assert_refused(refused: Result<impl std::fmt::Debug, Status>, code: Code, why: &str) {
    let status = refused.expect_err("refused");
    assert_eq!((status.code(), reason(&status).as_str()), (code, why), "{status:?}");
}

/// Those who may not: nobody, a liar, and one without a role.
async fn strangers(plane: &ControlPlane, manager: &Manager<'_>, token: &str) {
    // A stranger's call is its connection's last.
    let nobody = || Admin::of(plane, manager, Who::Nobody);
    let health = HealthClient::new(nobody()).check(HealthCheckRequest::default()).await;
    let serving = tonic_health::pb::health_check_response::ServingStatus::Serving;
    assert_eq!(health.expect("health is for all").into_inner().status(), serving);
    let list = proto::ListControllersRequest::default();
    assert_refused(
        nobody().controllers().list_controllers(list.clone()).await,
        Code::Unauthenticated,
        "UNAUTHENTICATED",
    );
    assert_refused(
        nobody().toggle("deployment", false, false).await,
        Code::Unauthenticated,
        "UNAUTHENTICATED",
    );
    let reflection = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";
    assert_eq!(code_of(&nobody(), reflection, &[], whole(framed(b""))).await, Code::Unauthenticated);

    let liar = Admin::of(plane, manager, Who::Token("eyJhbGciOiJub25lIn0.e30."));
    let refused = liar.controllers().list_controllers(list.clone()).await.expect_err("refused");
    assert_eq!(refused.code(), Code::Unauthenticated, "{refused:?}");

    let plain = plane.identity("plain", &[]);
    for stranger in
        [Admin::of(plane, manager, Who::Certificate(&plain)), Admin::of(plane, manager, Who::Token(token))]
    {
        let forbidden = |refused| assert_refused(refused, Code::PermissionDenied, "FORBIDDEN");
        forbidden(stranger.controllers().list_controllers(list.clone()).await.map(drop));
        forbidden(stranger.toggle("deployment", false, false).await);
        forbidden(stranger.toggle("*", false, false).await);
        forbidden(stranger.events().stream_events(proto::StreamEventsRequest::default()).await.map(drop));
        forbidden(stranger.leader().step_down(proto::StepDownRequest::default()).await.map(drop));
        forbidden(stranger.queues().list_queues(proto::ListQueuesRequest::default()).await.map(drop));
    }
}

/// Bytes that are no request.
async fn malformed(admin: &Admin) {
    let call = |body: Body| code_of(admin, GET, &[], body);
    for bytes in [&[0xff; 5][..], &[0x0a, 0x7f, b'x'], &[0x0a, 0x02, 0xff, 0xfe]] {
        let code = call(whole(framed(bytes))).await;
        assert!(matches!(code, Code::Internal | Code::InvalidArgument), "{bytes:x?}: {code:?}");
    }
    // A length without the bytes, another encoding, and nothing at all.
    let code = call(whole(&[0, 0, 0, 0, 100, 1, 2][..])).await;
    assert!(matches!(code, Code::Internal | Code::InvalidArgument), "{code:?}");
    let code = call(whole(&[1, 0, 0, 0, 1, 0][..])).await;
    assert!(matches!(code, Code::Internal | Code::Unimplemented), "{code:?}");
    let code = call(whole(Bytes::new())).await;
    assert!(matches!(code, Code::Internal | Code::InvalidArgument), "{code:?}");

    let mut dice = StdRng::seed_from_u64(SEED);
    let mut codes: BTreeMap<String, usize> = BTreeMap::new();
    for path in [GET, STREAM, "/coxswain.admin.v1.QueueService/SyncObject"].iter().cycle().take(GARBAGE) {
        let mut bytes = vec![0; dice.random_range(1..200)];
        dice.fill_bytes(&mut bytes);
        // What happens to be a request of events has an end.
        let code = code_of(admin, path, &[("grpc-timeout", "2S")], whole(framed(&bytes))).await;
        assert!(!matches!(code, Code::Unknown | Code::DataLoss | Code::Unavailable), "{path}: {code:?}");
        *codes.entry(format!("{code:?}")).or_default() += 1;
    }
    eprintln!("{GARBAGE} bodies of random bytes: {codes:?}");
}

async fn oversized(admin: &Admin) {
    let large = proto::GetControllerRequest { name: "x".repeat(100_000) };
    let refused = admin.controllers().get_controller(large).await.expect_err("too large");
    assert_eq!(refused.code(), Code::OutOfRange, "{refused:?}");
    let code = code_of(admin, GET, &[], whole(&[0, 0xff, 0xff, 0xff, 0xff, 0][..])).await;
    assert_eq!(code, Code::OutOfRange);
}

async fn unknown(admin: &Admin) {
    for path in ["/coxswain.admin.v1.ControllerService/DropTables", "/nobody.v1.Service/Method", "/"] {
        assert_eq!(code_of(admin, path, &[], whole(get_request())).await, Code::Unimplemented, "{path}");
    }
    let code = code_of(admin, GET, &[("grpc-encoding", "brainfog")], whole(&[1, 0, 0, 0, 1, 0][..])).await;
    assert_eq!(code, Code::Unimplemented);
    let code = code_of(admin, GET, &[("grpc-timeout", "soon")], whole(get_request())).await;
    assert_eq!(code, Code::InvalidArgument);
}

/// Time that is too short, for answers as well as for streams.
async fn hurried(admin: &Admin) {
    fn hurried<T>(message: T) -> Request<T> {
        let mut request = Request::new(message);
        request.set_timeout(Duration::from_millis(1));
        request
    }
    async fn end<T>(stream: Result<tonic::Response<tonic::Streaming<T>>, Status>) -> Code {
        let mut stream = match stream {
            Ok(stream) => stream.into_inner(),
            Err(status) => return status.code(),
        };
        loop {
            match timeout(LIMIT, stream.message()).await.expect("an end in time") {
                Ok(Some(_)) => {}
                Ok(None) => return Code::Ok,
                Err(status) => return status.code(),
            }
        }
    }
    let watch =
        admin.controllers().watch_controllers(hurried(proto::WatchControllersRequest::default())).await;
    assert_eq!(end(watch).await, Code::DeadlineExceeded);
    let events = admin.events().stream_events(hurried(proto::StreamEventsRequest::default())).await;
    assert_eq!(end(events).await, Code::DeadlineExceeded);
    let leader = admin.leader().watch_leader(hurried(proto::WatchLeaderRequest::default())).await;
    assert_eq!(end(leader).await, Code::DeadlineExceeded);
    for _ in 0..50 {
        let list =
            admin.controllers().list_controllers(hurried(proto::ListControllersRequest::default())).await;
        let code = list.map_or_else(|status| status.code(), |_| Code::Ok);
        assert!(matches!(code, Code::Ok | Code::DeadlineExceeded), "{code:?}");
    }
}

/// Bodies that never end: with a deadline, without one, and with nobody left to wait for the answer.
async fn slow(admin: &Admin) {
    let begin = get_request().slice(..6);
    let code = code_of(admin, GET, &[("grpc-timeout", "300m")], stuck(begin.clone())).await;
    assert_eq!(code, Code::DeadlineExceeded);
    let mut calls = JoinSet::new();
    for _ in 0..SLOW {
        let (admin, begin) = (admin.clone(), begin.clone());
        calls.spawn(async move {
            let answer = timeout(SLOW_LIMIT, admin.raw(GET, &[], stuck(begin))).await;
            status(answer.expect("an answer within the server's own limit").expect("an answer")).await
        });
    }
    for code in calls.join_all().await {
        assert_eq!(code, Code::DeadlineExceeded);
    }
    let impatient = timeout(Duration::from_millis(50), admin.raw(GET, &[], stuck(begin))).await;
    assert!(impatient.is_err(), "nothing can have been answered");
}

/// Calls whose callers go away in the middle.
async fn abandoned(plane: &ControlPlane, manager: &Manager<'_>, operator: &Path) {
    for _ in 0..ABANDONED / PER_CONNECTION {
        let admin = Admin::of(plane, manager, Who::Certificate(operator));
        let streams = futures::stream::iter(0..PER_CONNECTION).map(|_| async {
            let request = proto::StreamEventsRequest::default();
            let mut stream = admin.events().stream_events(request).await.expect("a place").into_inner();
            stream.message().await.expect("the first message").expect("a message")
        });
        assert_eq!(streams.buffer_unordered(40).count().await, PER_CONNECTION);
    }
    let admin = Admin::of(plane, manager, Who::Certificate(operator));
    for at in 0..200 {
        let wait = Duration::from_micros(at * 20);
        let request = proto::ListControllersRequest::default();
        drop(timeout(wait, admin.controllers().list_controllers(request)).await);
    }
}

/// Connections that speak something else, or nothing.
async fn uncouth(plane: &ControlPlane, manager: &Manager<'_>, operator: &Path) {
    let address = manager.url.trim_start_matches("https://");
    let mut plain = TcpStream::connect(address).await.expect("a connection");
    plain.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.expect("sent");
    let mut answer = Vec::new();
    timeout(LIMIT, plain.read_to_end(&mut answer)).await.expect("an end").expect("an answer");
    assert!(answer.starts_with(b"HTTP/1.0 400 "), "{}", String::from_utf8_lossy(&answer));
    let mut silent = Vec::new();
    for at in 0..30_u8 {
        let mut stream = TcpStream::connect(address).await.expect("a connection");
        match at % 3 {
            0 => stream.write_all(&[0x16, 3, 1, 0xff, 0xff, at]).await.expect("sent"),
            1 => stream.write_all(&[at; 100]).await.expect("sent"),
            _ => {}
        }
        if at % 2 == 0 {
            silent.push(stream);
        }
    }

    // Whoever could not read the status gets no answer that needs one.
    for who in [Who::Certificate(operator), Who::Nobody] {
        let old = Admin::of_old(plane, manager, who);
        let answer = old.raw(GET, &[], whole(get_request())).await.expect("an answer");
        assert_eq!(answer.status(), StatusCode::HTTP_VERSION_NOT_SUPPORTED, "{answer:?}");
    }
}

/// Rolls a Deployment until `work` is done, and then a last time to its end.
async fn beside_a_rollout(namespace: &Namespace, work: impl Future<Output = ()>) {
    const REPLICAS: i32 = 20;
    namespace.deployment("web", REPLICAS, json!({})).await;
    let finished = async |image: &str| {
        namespace.set_image("web", image).await;
        let observe = || async {
            let deployment = namespace.get_deployment("web").await;
            let (generation, status) =
                (deployment.metadata.generation, deployment.status.unwrap_or_default());
            let seen = status.observed_generation == generation;
            (seen, status.replicas, status.updated_replicas, status.available_replicas)
        };
        let all = Some(REPLICAS);
        until("a rollout to end", LIMIT, observe, |seen| *seen == (true, all, all, all)).await;
    };
    let mut rounds = 0;
    let rolling = async {
        loop {
            finished(&format!("nginx:{}", rounds % 2)).await;
            rounds += 1;
        }
    };
    tokio::select! {
        () = work => {}
        () = rolling => unreachable!("it has no end"),
    }
    eprintln!("{rounds} rollouts of {REPLICAS} pods were finished meanwhile");
    finished("nginx:last").await;
    assert!(rounds > 0, "not one rollout was finished");
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_callers_get_the_right_codes_and_nobody_else_notices() {
    let _turn = turn().await;
    let plane = ControlPlane::start(&Options { nodes: 3, args: vec!["--audit"] });
    let manager = plane.coxswain("coxswain", &[]);
    all_run(&Admin::master(&plane, &manager)).await;
    let operator = operator(&plane);
    let admin = Admin::of(&plane, &manager, Who::Certificate(&operator));
    let namespace = plane.cluster().await.namespace("hostile").await;
    namespace.create::<ServiceAccount>(json!({ "metadata": { "name": "stranger" } })).await;
    let token = plane.kubectl(&["-n", &namespace.name, "create", "token", "stranger"]);

    Box::pin(beside_a_rollout(&namespace, async {
        strangers(&plane, &manager, token.trim()).await;
        let other = Admin::of(&plane, &manager, Who::Certificate(&operator));
        tokio::join!(slow(&other), abandoned(&plane, &manager, &operator), async {
            malformed(&admin).await;
            oversized(&admin).await;
            unknown(&admin).await;
            hurried(&admin).await;
            uncouth(&plane, &manager, &operator).await;
        });
    }))
    .await;

    for each in admin.list(&built()).await {
        assert_eq!(
            (each.phase(), each.health(), each.restarts),
            (Phase::Running, Health::Healthy, 0),
            "{each:?}"
        );
    }
    assert_unharmed(&plane, &manager);
}
