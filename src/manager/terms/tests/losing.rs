//! Events about a Lease that is lost.

use super::*;

use http_body_util::BodyExt as _;

#[tokio::test(start_paused = true)]
async fn leader_that_loses_its_lease_records_that_it_stopped_leading() {
    let server = Arc::new(Server::default());
    let sent = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&sent);
    let events = tower::service_fn(move |request: Request<Full<Bytes>>| -> BoxFuture<'static, _> {
        let log = Arc::clone(&log);
        Box::pin(async move {
            let Ok(body) = request.into_body().collect().await;
            log.lock().push(body.to_bytes());
            // A refused event is not sent again.
            let mut refused =
                Response::new(Full::<Bytes>::default().map_err(|never| match never {}).boxed_unsync());
            *refused.status_mut() = http::StatusCode::FORBIDDEN;
            Ok::<Response<ResponseBody>, BoxError>(refused)
        })
    });
    let client = ApiClient::new(HttpService::new(events), "events");
    let clock: SharedClock = Arc::new(PausedClock(Instant::now()));
    let broadcaster = EventBroadcaster::new(clock, EventMetrics::register(&Registry::new()).unwrap());
    let recorder = broadcaster.recorder("test", client);
    let lock = Lock { recorder, ..lock("a", "main", &server, &Registry::new()) };
    let (stop, gate) = (CancellationToken::new(), WriteGate::new());
    assert!(lock.acquire(&stop).await.unwrap());
    server.down.store(true, Ordering::SeqCst);
    assert_eq!(lock.hold(&stop, &gate).await, TermEnd::Lost);
    let is_sent = || {
        let told = b"a stopped leading";
        sent.lock().iter().any(|body| body.windows(told.len()).any(|part| part == told))
    };
    until("the event is sent", is_sent).await;
}
