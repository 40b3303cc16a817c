//! Reconciles that read discovery while the API server asks for patience.

use tokio::task::JoinSet;
use tokio::time::sleep;

use super::*;

/// Reads discovery for each key but one.
struct Discoverer {
    read: Read,
    planned: Mutex<Vec<Key>>,
}

impl Reconcile for Discoverer {
    fn plan(&self, key: &Key, _: &[Failure], reads: &Reads, _: Timestamp) -> Result<Pass, ObserveError> {
        let found = reads.resources().or_else(|| reads.latest_resources());
        if key.namespace != "free" {
            let Some(found) = found else { return Ok(Pass::Needs(vec![TEST_READ.of(self.read.clone())])) };
            found.map_err(|error| ObserveError::Retry(error.to_string()))?;
        }
        self.planned.lock().push(key.clone());
        Ok(Pass::Nothing)
    }
}

/// A server that asks for five seconds of patience with discovery, and serves it after that time.
fn discovery_after_five_seconds() -> ApiClient {
    let began = tokio::time::Instant::now();
    let service = tower::service_fn(move |request: Request<Full<Bytes>>| async move {
        let is_refused = began.elapsed() < Duration::from_secs(5);
        let body = match request.uri().path() {
            _ if is_refused => "",
            "/api" => r#"{"kind":"APIVersions","versions":[]}"#,
            _ => r#"{"kind":"APIGroupList","groups":[]}"#,
        };
        let body = Full::new(Bytes::from(body)).map_err(BoxError::from).boxed_unsync();
        let code = if is_refused { 429 } else { 200 };
        Response::builder().status(code).header("retry-after", "5").body(body).map_err(BoxError::from)
    });
    let client = ApiClient::new(BoxCloneSyncService::new(service), "test");
    client.patient(WriteGate::new(), Duration::from_secs(70))
}

#[tokio::test(start_paused = true)]
async fn discovery_that_the_server_refuses_is_read_again_when_it_asks_for_that() {
    for read in [Read::Resources, Read::SearchedResources("Widget".into()), Read::LatestResources] {
        let mut bench = Bench::new();
        let discoverer = Arc::new(Discoverer { read: read.clone(), planned: Mutex::default() });
        bench.worker.reconcile = Arc::clone(&discoverer) as _;
        bench.worker.settings.workers = 2;
        bench.worker.wait_seats = WaitSeats::new(bench.worker.settings.waits_beside());
        let client = discovery_after_five_seconds();
        let discovery = Arc::new(Discovery::new(client.clone()));
        bench.worker.reader = Reader::new(client, discovery, BlockingPool::inline());
        let worker = Arc::new(bench.worker);
        (0..8).for_each(|at| worker.queue.add(Key::new("ns", at.to_string())));
        worker.queue.add(Key::new("free", "1"));
        let mut tasks = JoinSet::new();
        (0..2).for_each(|_| _ = tasks.spawn(Arc::clone(&worker).run()));
        sleep(Duration::from_millis(1)).await;
        // The keys that wait leave the workers to others.
        assert_eq!(*discoverer.planned.lock(), [Key::new("free", "1")], "{read:?}");
        sleep(Duration::from_secs(6)).await;
        assert_eq!((discoverer.planned.lock().len(), worker.stats.errors()), (9, 0), "{read:?}");
        tasks.shutdown().await;
    }
}
