//! Lists of several pages from a server that refuses some of them with a time to come back.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tower::util::BoxCloneSyncService;

use super::Bench;
use crate::api::kinds::PODS;
use crate::api::meta::ObjectMeta;
use crate::api::pod::Pod;
use crate::client::{ApiClient, BoxError, Discovery, WaitSeats, WriteGate};
use crate::framework::blocking::BlockingPool;
use crate::framework::reader::Reader;
use crate::framework::reads::{Pass, Read, Reads};
use crate::framework::room::{ObserveError, PlanNote, Reconcile};
use crate::framework::worker::Worker;
use crate::model::Key;
use crate::model::live_reads::TEST_READ;
use crate::model::plan::{Failure, Plan};
use crate::wire::splice::put_bytes;
use crate::wire::{Message, Str, wrap_envelope};

const PAGES: usize = 30;

/// Page `at` of a list of one pod per page.
fn page(at: usize) -> Vec<u8> {
    let (mut meta, mut list) = (Vec::new(), Vec::new());
    put_bytes(&mut meta, 2, b"9");
    if at + 1 < PAGES {
        put_bytes(&mut meta, 3, (at + 1).to_string().as_bytes());
    }
    put_bytes(&mut list, 1, &meta);
    let metadata = ObjectMeta { name: at.to_string().into(), ..ObjectMeta::default() };
    put_bytes(&mut list, 2, &Pod { metadata, ..Pod::default() }.to_bytes());
    wrap_envelope("v1", "PodList", &list)
}

/// A server of such lists that refuses a page as often as its script says. It notes the pages that it is asked for.
#[derive(Default)]
struct Pages {
    refusals: Mutex<[usize; PAGES]>,
    /// The pages whose tokens have expired, and how often the server answers so.
    expired: Mutex<[usize; PAGES]>,
    /// The refusals after the first page whose token has expired.
    refusals_then: Mutex<Option<[usize; PAGES]>>,
    asked: Mutex<Vec<usize>>,
}

impl Pages {
    fn client(self: &Arc<Self>) -> ApiClient {
        let server = Arc::clone(self);
        let service = tower::service_fn(move |request: Request<Full<Bytes>>| {
            let query = request.uri().query().unwrap_or_default();
            let token = query.split('&').find_map(|pair| pair.strip_prefix("continue="));
            let at = token.map_or(0, |token| token.parse().unwrap());
            server.asked.lock().push(at);
            let mut refusals = server.refusals.lock();
            let is_refused = refusals[at] > 0;
            refusals[at] -= usize::from(is_refused);
            let expired = &mut server.expired.lock()[at];
            let is_expired = !is_refused && *expired > 0;
            *expired -= usize::from(is_expired);
            if is_expired && let Some(then) = server.refusals_then.lock().take() {
                *refusals = then;
            }
            let (code, body) = match (is_refused, is_expired) {
                (true, _) => (429, Vec::new()),
                (_, true) => (410, Vec::new()),
                _ => (200, page(at)),
            };
            async move {
                sleep(Duration::from_millis(1)).await;
                let body = Full::new(Bytes::from(body)).map_err(BoxError::from).boxed_unsync();
                Response::builder().status(code).header("retry-after", "1").body(body).map_err(BoxError::from)
            }
        });
        let client = ApiClient::new(BoxCloneSyncService::new(service), "test");
        client.patient(WriteGate::new(), Duration::from_secs(70))
    }
}

/// Lists the pods, and notes the names that each key has found, or the error.
#[derive(Default)]
struct Lister(Mutex<Vec<Result<Vec<Str>, String>>>);

impl Reconcile for Lister {
    fn plan(&self, _: &Key, _: &[Failure], reads: &Reads, _: Timestamp) -> Result<Pass, ObserveError> {
        let everywhere = Str::EMPTY;
        let Some(found) = reads.list(&PODS, &everywhere) else {
            return Ok(Pass::Needs(vec![TEST_READ.of(Read::List(&PODS, everywhere))]));
        };
        let names = |object: &crate::api::AnyObject| object.meta().name.clone();
        self.0.lock().push(match found {
            Ok(list) => Ok(list.complete().unwrap().iter().map(names).collect()),
            Err(error) => Err(error.to_string()),
        });
        Ok(Pass::Plan(Plan::default(), PlanNote::default()))
    }
}

fn lister(server: &Arc<Pages>) -> (Arc<Worker>, Arc<Lister>) {
    let mut bench = Bench::new();
    let lister = Arc::new(Lister::default());
    bench.worker.reconcile = Arc::clone(&lister) as _;
    bench.worker.settings.workers = 2;
    bench.worker.wait_seats = WaitSeats::new(bench.worker.settings.waits_beside());
    let discovery = Arc::new(Discovery::new(server.client()));
    bench.worker.reader = Reader::new(server.client(), discovery, BlockingPool::inline());
    (Arc::new(bench.worker), lister)
}

/// Reconciles one key, and returns the list that it has read and the pages that the server was asked for.
async fn read_list(server: &Arc<Pages>) -> (Result<Vec<Str>, String>, Vec<usize>) {
    let (worker, lister) = lister(server);
    worker.wait_seats.scope(&Str::default()).run(worker.reconcile(&Key::new("ns", "a"), &|| {})).await;
    let found = lister.0.lock()[0].clone();
    let asked = server.asked.lock().clone();
    (found, asked)
}

/// Starts to reconcile the key of this name.
fn spawn_reconcile(tasks: &mut JoinSet<()>, worker: &Arc<Worker>, name: &str) {
    let (worker, key) = (Arc::clone(worker), Key::new("ns", name));
    tasks.spawn(async move {
        let scope = worker.wait_seats.scope(&Str::default());
        scope.run(worker.reconcile(&key, &|| {})).await;
    });
}

fn all() -> Vec<Str> {
    (0..PAGES).map(|at| at.to_string().into()).collect()
}

#[tokio::test(start_paused = true)]
async fn page_of_a_list_that_the_server_refuses_is_repeated_and_no_page_before_it() {
    // One page in 10, or each page twice: more often than one request would be repeated.
    for refused in [|at: usize| usize::from(at % 10 == 5), |_| 2] {
        let server = Arc::new(Pages::default());
        *server.refusals.lock() = std::array::from_fn(refused);
        let (worker, lister) = lister(&server);
        let began = Instant::now();
        worker.wait_seats.scope(&Str::default()).run(worker.reconcile(&Key::new("ns", "a"), &|| {})).await;
        assert_eq!(*lister.0.lock(), [Ok(all())]);
        let expected: Vec<usize> =
            (0..PAGES).flat_map(|at| std::iter::repeat_n(at, 1 + refused(at))).collect();
        assert_eq!(*server.asked.lock(), expected);
        let refusals = (0..PAGES).map(refused).sum::<usize>() as u64;
        assert_eq!(began.elapsed().as_secs(), refusals);
    }
}

/// The wait for a refused page may outlast the token.
#[tokio::test(start_paused = true)]
async fn list_whose_token_has_expired_is_read_again_once() {
    let read = async |refused: usize, expired: usize, at: usize| {
        let server = Arc::new(Pages::default());
        (server.refusals.lock()[at], server.expired.lock()[at]) = (refused, expired);
        read_list(&server).await
    };
    let until = |at: usize, times: usize| (0..at).chain(std::iter::repeat_n(at, times)).collect::<Vec<_>>();
    for refused in [0, 2] {
        let (found, asked) = read(refused, 1, 5).await;
        assert_eq!(found, Ok(all()));
        assert_eq!(asked, [until(5, 1 + refused), (0..PAGES).collect()].concat());
        // Each list is read twice at most.
        let (found, asked) = read(refused, usize::MAX, 5).await;
        assert!(found.as_ref().is_err_and(|error| error.contains("410")), "{found:?}");
        assert_eq!(asked, [until(5, 1 + refused), until(5, 1)].concat());
    }
    // The first page has no token.
    let (found, asked) = read(0, 1, 0).await;
    assert!(found.as_ref().is_err_and(|error| error.contains("410")), "{found:?}");
    assert_eq!(asked, [0]);
}

fn at_page(at: usize, count: usize) -> [usize; PAGES] {
    let mut counts = [0; PAGES];
    counts[at] = count;
    counts
}

/// A page of the second reading is refused. After the wait its token has expired, too.
#[tokio::test(start_paused = true)]
async fn list_that_was_read_again_is_not_begun_again_after_a_wait() {
    for at in [0, 3] {
        let server = Arc::new(Pages::default());
        *server.expired.lock() = at_page(5, usize::MAX);
        *server.refusals_then.lock() = Some(at_page(at, 1));
        let (found, asked) = read_list(&server).await;
        assert!(found.as_ref().is_err_and(|error| error.contains("410")), "{found:?}");
        let expected: Vec<usize> = (0..=5).chain(0..=at).chain(at..=5).collect();
        assert_eq!(asked, expected, "{at}");
    }
    // The second reading is always refused.
    let server = Arc::new(Pages::default());
    *server.expired.lock() = at_page(5, usize::MAX);
    *server.refusals_then.lock() = Some([usize::MAX; PAGES]);
    let (found, asked) = read_list(&server).await;
    assert!(found.as_ref().unwrap_err().contains("429"), "{found:?}");
    assert_eq!(asked.len(), 6 + 11);
}

/// The list of the first caller was read again and waits. The third caller begins a list, whose token may expire once.
#[tokio::test(start_paused = true)]
async fn list_that_begins_does_not_join_one_that_was_begun_again() {
    let server = Arc::new(Pages::default());
    *server.expired.lock() = at_page(5, 1);
    *server.refusals_then.lock() = Some(at_page(0, 1));
    let (worker, lister) = lister(&server);
    let mut tasks = JoinSet::new();
    // The first list resumes after about 1,007 ms, while the second is read. Then the third caller asks.
    spawn_reconcile(&mut tasks, &worker, "a");
    sleep(Duration::from_secs(1)).await;
    spawn_reconcile(&mut tasks, &worker, "b");
    sleep(Duration::from_millis(12)).await;
    spawn_reconcile(&mut tasks, &worker, "c");
    sleep(Duration::from_millis(10)).await;
    *server.expired.lock() = at_page(5, 1);
    tasks.join_all().await;
    assert_eq!(*lister.0.lock(), [Ok(all()), Ok(all()), Ok(all())]);
}

#[tokio::test(start_paused = true)]
async fn page_that_is_always_refused_ends_the_list_after_ten_repetitions() {
    let server = Arc::new(Pages::default());
    server.refusals.lock()[3] = usize::MAX;
    let (found, asked) = read_list(&server).await;
    assert!(found.as_ref().unwrap_err().contains("429"), "{found:?}");
    assert_eq!(asked.len(), 3 + 11);
}

/// The pages of an earlier list may lack an object that the other caller has to see.
#[tokio::test(start_paused = true)]
async fn list_that_waits_is_joined_by_callers_at_the_same_page_alone() {
    let server = Arc::new(Pages::default());
    server.refusals.lock()[20] = 1;
    let (worker, lister) = lister(&server);
    let mut tasks = JoinSet::new();
    // The first waits at page 20. It goes on while the list of the second is read, and then the third asks.
    spawn_reconcile(&mut tasks, &worker, "a");
    sleep(Duration::from_millis(1_010)).await;
    spawn_reconcile(&mut tasks, &worker, "b");
    sleep(Duration::from_millis(20)).await;
    spawn_reconcile(&mut tasks, &worker, "c");
    tasks.join_all().await;
    assert_eq!(*lister.0.lock(), [Ok(all()), Ok(all()), Ok(all())]);
    let from_the_start = server.asked.lock().iter().filter(|at| **at == 0).count();
    assert_eq!(from_the_start, 3, "each sees what was there when it asked");
}
