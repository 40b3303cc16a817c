//! Streams of events and of health: replay, slow readers, limits, ends.

use std::time::Duration;

use tonic::{Code, Streaming};

use super::fake::OTHER;
use super::*;
use crate::admin::events::{Body, ReconcileAttempt};
use crate::admin::manager::Phase;
use crate::admin::proto;
use crate::admin::proto::event_service_client::EventServiceClient;
use crate::admin::proto::stream_events_request::Start;
use crate::admin::proto::stream_events_response::Item;

type Events = Streaming<proto::StreamEventsResponse>;

impl Bench {
    fn publish(&self, count: usize) {
        for _ in 0..count {
            let attempt = ReconcileAttempt { queue: "deployment", number: 1, queue_wait: Duration::ZERO };
            self.events.publish(Some("deployment-controller"), None, None, Body::ReconcileStarted(attempt));
        }
    }

    async fn stream(&self, request: proto::StreamEventsRequest) -> Result<Events, Status> {
        let mut client = EventServiceClient::new(self.channel.clone());
        client.stream_events(jane(request)).await.map(tonic::Response::into_inner)
    }
}

async fn next(stream: &mut Events) -> String {
    match stream.message().await.unwrap().unwrap().item.unwrap() {
        Item::Started(started) => {
            format!("{} {}-{}", started.log_id, started.oldest_sequence, started.newest_sequence)
        }
        Item::Event(event) => event.sequence.to_string(),
        Item::Dropped(dropped) => {
            format!("{} dropped {}-{}", dropped.count, dropped.first_sequence, dropped.last_sequence)
        }
        Item::ReplayFinished(replay) => format!("replayed {}", replay.sequence),
    }
}

fn since(sequence: u64) -> proto::StreamEventsRequest {
    proto::StreamEventsRequest { start: Some(Start::SinceSequence(sequence)), ..Default::default() }
}

#[tokio::test(start_paused = true)]
async fn events_are_replayed_and_followed() {
    let bench = Bench::with(AdminOptions::default(), 4).await;
    bench.publish(6);
    let mut stream = bench.stream(since(1)).await.unwrap();
    for expected in ["log-1 3-6", "1 dropped 2-2", "3", "4", "5", "6", "replayed 6"] {
        assert_eq!(next(&mut stream).await, expected);
    }
    bench.publish(2);
    assert_eq!(next(&mut stream).await, "7");
    assert_eq!(next(&mut stream).await, "8");

    let last =
        proto::StreamEventsRequest { start: Some(Start::Last(1)), replay_only: true, ..Default::default() };
    let mut stream = bench.stream(last).await.unwrap();
    for expected in ["log-1 5-8", "8", "replayed 8"] {
        assert_eq!(next(&mut stream).await, expected);
    }
    assert!(stream.message().await.unwrap().is_none());
}

#[tokio::test]
async fn a_stream_that_would_mislead_is_refused() {
    let bench = Bench::new().await;
    bench.publish(3);
    let ahead = bench.stream(since(4)).await.map(|_| ());
    assert_eq!(fact(ahead.clone(), "newest_sequence"), "3");
    assert_eq!(why(ahead), (Code::OutOfRange, "SEQUENCE_IN_FUTURE".into()));
    let other = proto::StreamEventsRequest { log_id: "log-0".into(), ..since(1) };
    let refused = bench.stream(other).await.map(|_| ());
    assert_eq!(why(refused), (Code::FailedPrecondition, "EVENT_LOG_CHANGED".into()));
    assert!(bench.stream(proto::StreamEventsRequest { log_id: "log-1".into(), ..since(3) }).await.is_ok());
    let filter = proto::EventFilter { types: vec![99], min_severity: 9, ..Default::default() };
    let wrong = proto::StreamEventsRequest { filter: Some(filter), ..Default::default() };
    let refused = bench.stream(wrong).await.map(|_| ());
    assert_eq!(fields(refused), ["filter.types", "filter.min_severity"]);
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_does_not_read_holds_nothing_up() {
    let bench = Bench::with(AdminOptions::default(), 100).await;
    let mut stream = bench.stream(since(0)).await.unwrap();
    assert_eq!(next(&mut stream).await, "log-1 1-0");
    // Far more than all buffers between here and there hold.
    for _ in 0..200 {
        bench.publish(500);
        tokio::time::sleep(Duration::from_millis(30)).await;
    }
    let (mut expected, mut dropped, mut seen) = (1, 0, 0);
    while expected <= 100_000 {
        match stream.message().await.unwrap().unwrap().item.unwrap() {
            Item::Event(event) => {
                assert_eq!(event.sequence, expected);
                expected += 1;
                seen += 1;
            }
            Item::Dropped(marker) => {
                assert_eq!(marker.first_sequence, expected);
                assert_eq!(marker.count, marker.last_sequence - marker.first_sequence + 1);
                expected = marker.last_sequence + 1;
                dropped += marker.count;
            }
            Item::ReplayFinished(_) => {}
            Item::Started(started) => panic!("{started:?}"),
        }
    }
    assert_eq!(dropped + seen, 100_000);
    assert!(dropped > 0, "the ring went on");
}

#[tokio::test(start_paused = true)]
async fn places_are_limited_and_given_back() {
    let bench = Bench::with(AdminOptions { streams: 2, ..AdminOptions::default() }, 8).await;
    let live = proto::StreamEventsRequest::default;
    let first = bench.stream(live()).await.unwrap();
    let _second = bench.stream(live()).await.unwrap();
    let third = bench.stream(live()).await.map(|_| ());
    assert_eq!(why(third), (Code::ResourceExhausted, "TOO_MANY_STREAMS".into()));
    drop(first);
    // The server hears of it when it gets round to it.
    while bench.events.readers() > 1 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert!(bench.stream(live()).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn no_user_takes_the_streams_of_the_others() {
    let bench = Bench::with(AdminOptions { user_streams: 2, ..AdminOptions::default() }, 8).await;
    let open = async |user: &'static str| {
        let mut client = EventServiceClient::new(bench.channel.clone());
        client.stream_events(by(user, proto::StreamEventsRequest::default())).await
    };
    let first = open("viewer").await.unwrap();
    let _second = open("viewer").await.unwrap();
    let third = open("viewer").await.map(|_| ());
    assert!(again(&third).unwrap_err().message().contains("\"viewer\" has 2 open streams"));
    assert_eq!(why(third), (Code::ResourceExhausted, "TOO_MANY_STREAMS".into()));
    assert!(open("jane").await.is_ok());
    drop(first);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(open("viewer").await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn no_user_takes_the_calls_of_the_others() {
    use proto::controller_service_client::ControllerServiceClient;

    let bench = Bench::with(AdminOptions { user_calls: 2, ..AdminOptions::default() }, 8).await;
    bench.manager.state.lock().latency = Duration::from_secs(10);
    let order = async |user: &'static str| {
        let mut client = ControllerServiceClient::new(bench.channel.clone());
        let name = "deployment".to_owned();
        let request = proto::DisableControllerRequest { name, dry_run: true, ..Default::default() };
        client.disable_controller(by(user, request)).await.map(drop)
    };
    let later = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        (order("jane").await, order("joe").await)
    };
    let (first, second, (third, other)) = tokio::join!(order("jane"), order("jane"), later);
    assert!(first.is_ok() && second.is_ok() && other.is_ok());
    assert_eq!(why(third), (Code::ResourceExhausted, "TOO_MANY_CALLS".into()));
    assert!(order("jane").await.is_ok(), "answered calls are over");
}

#[tokio::test(start_paused = true)]
async fn streams_end_with_the_role_of_their_caller() {
    let bench = Bench::new().await;
    let mut streams = Vec::new();
    for user in ["jane", "joe"] {
        let mut client = EventServiceClient::new(bench.channel.clone());
        let request = by(user, proto::StreamEventsRequest::default());
        let mut stream = client.stream_events(request).await.unwrap().into_inner();
        assert_eq!(next(&mut stream).await, "log-1 1-0");
        assert_eq!(next(&mut stream).await, "replayed 0");
        streams.push(stream);
    }
    *bench.judge.revoked.lock() = Some("joe");
    let [jane, joe] = &mut streams[..] else { panic!("two streams") };
    let began = tokio::time::Instant::now();
    assert_eq!(why(joe.message().await), (Code::PermissionDenied, "FORBIDDEN".into()));
    assert!(began.elapsed() <= Duration::from_mins(2), "{:?}", began.elapsed());
    bench.publish(1);
    assert_eq!(next(jane).await, "1");
    // And each after half an hour, since the token may be invalid by then.
    let began = tokio::time::Instant::now();
    let ended = jane.message().await;
    assert!(again(&ended).unwrap_err().get_details_retry_info().is_some());
    assert_eq!(why(ended), (Code::Unavailable, "STREAM_EXPIRED".into()));
    let minutes = began.elapsed().as_secs() / 60;
    assert!((25..=30).contains(&minutes), "{minutes}");
}

#[tokio::test(start_paused = true)]
async fn a_review_without_an_answer_holds_up_no_message() {
    let bench = Bench::new().await;
    let mut stream = bench.stream(since(0)).await.unwrap();
    assert_eq!(next(&mut stream).await, "log-1 1-0");
    assert_eq!(next(&mut stream).await, "replayed 0");
    *bench.judge.silent.lock() = true;
    for minute in 1..5 {
        tokio::time::sleep(Duration::from_secs(61)).await;
        bench.publish(1);
        let began = tokio::time::Instant::now();
        assert_eq!(next(&mut stream).await, minute.to_string());
        assert!(began.elapsed() < Duration::from_secs(1), "{minute}: {:?}", began.elapsed());
    }
    bench.shutdown.cancel();
    assert_eq!(why(stream.message().await), (Code::Unavailable, "SHUTTING_DOWN".into()));
}

#[tokio::test(start_paused = true)]
async fn strangers_have_few_places_and_take_none_of_the_others() {
    use tonic_health::pb::HealthCheckRequest;
    use tonic_health::pb::health_client::HealthClient;

    let options = AdminOptions {
        streams: 2,
        stranger_streams: 3,
        anonymous_reflection: true,
        ..AdminOptions::default()
    };
    let bench = Bench::with(options, 8).await;
    let mut health = HealthClient::new(bench.channel.clone());
    let request = || HealthCheckRequest { service: "leader".to_owned() };
    let mut open = Vec::new();
    for _ in 0..3 {
        open.push(health.watch(request()).await.unwrap().into_inner());
    }
    let refused = health.watch(request()).await.map(drop);
    assert_eq!(why(refused), (Code::ResourceExhausted, "TOO_MANY_STREAMS".into()));
    let reflection = reflect_forever(&bench, None).await.map(drop);
    assert_eq!(why(reflection), (Code::ResourceExhausted, "TOO_MANY_STREAMS".into()));
    assert!(health.check(request()).await.is_ok(), "a question is no stream");

    // Those of the others are all there, and health has none but these for who is known.
    let first = bench.stream(proto::StreamEventsRequest::default()).await.unwrap();
    let second = health.watch(jane(request())).await.unwrap().into_inner();
    let third = bench.stream(proto::StreamEventsRequest::default()).await.map(drop);
    assert_eq!(why(third), (Code::ResourceExhausted, "TOO_MANY_STREAMS".into()));
    let reflection = reflect_forever(&bench, Some("jane")).await.map(drop);
    assert_eq!(why(reflection), (Code::ResourceExhausted, "TOO_MANY_STREAMS".into()), "it is a stream too");

    // A minute later the strangers are gone, and others may come; who is known stays.
    for mut stream in open {
        assert!(stream.message().await.unwrap().is_some());
        assert_eq!(why(stream.message().await).0, Code::DeadlineExceeded);
    }
    assert!(health.watch(request()).await.is_ok());
    assert!(bench.stream(proto::StreamEventsRequest::default()).await.is_err());
    drop((first, second));
}

/// A call of reflection that asks for nothing and does not end.
async fn reflect_forever(
    bench: &Bench,
    user: Option<&'static str>,
) -> Result<Streaming<tonic_reflection::pb::v1::ServerReflectionResponse>, Status> {
    use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;

    let silence = futures::stream::pending();
    let request = match user {
        Some(user) => by(user, silence),
        None => tonic::Request::new(silence),
    };
    let mut client = ServerReflectionClient::new(bench.channel.clone());
    client.server_reflection_info(request).await.map(tonic::Response::into_inner)
}

#[tokio::test]
async fn what_strangers_ask_for_has_a_short_name() {
    use tonic_health::pb::HealthCheckRequest;
    use tonic_health::pb::health_client::HealthClient;

    let bench = Bench::new().await;
    let mut health = HealthClient::new(bench.channel.clone());
    let named = |bytes: usize| HealthCheckRequest { service: "x".repeat(bytes) };
    assert_eq!(fields(health.check(named(600)).await), ["service"]);
    assert_eq!(fields(health.watch(named(600)).await.map(drop)), ["service"]);
    assert_eq!(health.watch(named(2000)).await.map(drop).unwrap_err().code(), Code::OutOfRange);
    assert!(health.watch(named(500)).await.is_ok(), "a name that nobody has is told so");
}

#[tokio::test(start_paused = true)]
async fn streams_end_with_their_deadline_and_with_the_process() {
    let bench = Bench::new().await;
    let mut client = EventServiceClient::new(bench.channel.clone());
    let mut request = jane(proto::StreamEventsRequest::default());
    request.metadata_mut().insert("grpc-timeout", "3S".parse().unwrap());
    let mut short = client.stream_events(request).await.unwrap().into_inner();
    let mut long = bench.stream(proto::StreamEventsRequest::default()).await.unwrap();
    for stream in [&mut short, &mut long] {
        next(stream).await;
        next(stream).await;
    }
    assert_eq!(why(short.message().await).0, Code::DeadlineExceeded);
    bench.shutdown.cancel();
    assert_eq!(why(long.message().await), (Code::Unavailable, "SHUTTING_DOWN".into()));
}

#[tokio::test]
async fn events_of_a_namespace_need_a_right_in_that_namespace_only() {
    let bench = Bench::new().await;
    let mut client = EventServiceClient::new(bench.channel.clone());
    let mut open = async |namespaces: &[&str]| {
        let namespaces = namespaces.iter().map(|name| (*name).to_owned()).collect();
        let filter = Some(proto::EventFilter { namespaces, ..Default::default() });
        let request = proto::StreamEventsRequest { filter, ..Default::default() };
        client.stream_events(by("tenant", request)).await.map(drop)
    };
    assert!(open(&["team"]).await.is_ok());
    for namespaces in [&[][..], &["other"], &["team", "other"], &["team", ""]] {
        assert_eq!(why(open(namespaces).await).0, Code::PermissionDenied, "{namespaces:?}");
    }
}

#[tokio::test]
async fn health_is_for_everyone_and_that_of_controllers_for_callers_with_credentials() {
    use tonic_health::pb::HealthCheckRequest;
    use tonic_health::pb::health_check_response::ServingStatus::{self, NotServing, ServiceUnknown, Serving};
    use tonic_health::pb::health_client::HealthClient;

    let bench = Bench::new().await;
    let mut client = HealthClient::new(bench.channel.clone());
    let request = |service: &str| HealthCheckRequest { service: service.to_owned() };
    for (name, expected) in [
        ("", Serving),
        ("coxswain.admin.v1.ControllerService", Serving),
        ("coxswain.admin.v1.QueueService", Serving),
        ("leader", Serving),
        ("deployment-controller", Serving),
        ("deployment", Serving),
        ("job-controller", NotServing),
        ("token-cleaner-controller", NotServing),
    ] {
        let status = client.check(by("outsider", request(name))).await.unwrap().into_inner().status();
        assert_eq!(status, expected, "{name}");
        let stranger = client.check(request(name)).await.map(|status| status.into_inner().status());
        if name.starts_with("deployment") || name.ends_with("-controller") {
            assert_eq!(why(stranger).0, Code::Unauthenticated, "{name}");
            assert_eq!(why(client.watch(request(name)).await.map(drop)).0, Code::Unauthenticated, "{name}");
        } else {
            assert_eq!(stranger.unwrap(), expected, "{name}");
        }
    }
    assert_eq!(client.check(request("nobody")).await.unwrap_err().code(), Code::NotFound);

    let status = |response: Option<tonic_health::pb::HealthCheckResponse>| -> ServingStatus {
        response.unwrap().status()
    };
    let mut leader = client.watch(request("leader")).await.unwrap().into_inner();
    let mut deployment = client.watch(jane(request("deployment-controller"))).await.unwrap().into_inner();
    let mut nobody = client.watch(request("nobody")).await.unwrap().into_inner();
    assert_eq!(status(leader.message().await.unwrap()), Serving);
    assert_eq!(status(deployment.message().await.unwrap()), Serving);
    assert_eq!(status(nobody.message().await.unwrap()), ServiceUnknown);
    bench.manager.set_phase("deployment-controller", Phase::Failed("panicked".to_owned()));
    assert_eq!(status(deployment.message().await.unwrap()), NotServing);
    bench.manager.lose(OTHER);
    assert_eq!(status(leader.message().await.unwrap()), NotServing);
    assert_eq!(client.check(request("leader")).await.unwrap().into_inner().status(), NotServing);
}
