//! Long computations of reconciles: parsers run on the pool, and polls that hold a thread are found.

use std::sync::atomic::AtomicUsize;
use std::sync::mpsc;

use tokio::sync::oneshot;
use tokio::task::{JoinSet, yield_now};

use super::*;
use crate::environment::Threads;
use crate::framework::parsing::{Parser, ParserInput};

static PARSES: AtomicUsize = AtomicUsize::new(0);
/// The sender of the test that lets the parser go on.
static LET_GO: Mutex<Option<mpsc::Receiver<()>>> = Mutex::new(None);

/// Returns whether the test went on while the parser ran.
static SLOW: Parser = Parser {
    name: "slow",
    parse: |_| {
        PARSES.fetch_add(1, Ordering::Relaxed);
        let gate = LET_GO.lock().take().unwrap();
        Arc::new(gate.recv_timeout(Duration::from_secs(5)).is_ok())
    },
};

#[tokio::test]
async fn long_parse_does_not_hold_the_thread_of_its_reconcile() {
    let mut bench = Bench::new();
    let discovery = Arc::new(Discovery::new(bench.server.client()));
    let pool = BlockingPool::new(Threads::Own, 1);
    bench.worker.reader = Reader::new(bench.server.client(), discovery, pool);
    let input = ParserInput::of(&Bytes::from_static(b"input"));
    let needs = vec![Read::Parsed(&SLOW, input)];
    bench.script.needs.lock().push_back(needs);
    let (go, gate) = mpsc::sync_channel(1);
    *LET_GO.lock() = Some(gate);
    let (others, went_on) = oneshot::channel();
    let mut other = JoinSet::new();
    other.spawn(async move {
        while PARSES.load(Ordering::Relaxed) == 0 {
            yield_now().await;
        }
        go.send(()).unwrap();
        others.send(()).unwrap();
    });
    assert_eq!(bench.reconcile().await, Outcome::Absent);
    went_on.await.unwrap();
    other.join_all().await;
    assert_eq!(PARSES.load(Ordering::Relaxed), 1);
    assert_eq!(bench.script.read.lock().len(), 1);
}

#[test]
fn parsed_value_is_that_of_the_same_bytes() {
    static LENGTH: Parser = Parser { name: "length", parse: |input| Arc::new(input.len()) };
    let text = Bytes::from_static(b"text");
    let reads = Reads::default().with_parsed(&LENGTH, ParserInput::of(&text));
    assert_eq!(reads.parsed::<usize>(&LENGTH, &ParserInput::of(&text)).as_deref(), Some(&4));
    assert_eq!(reads.parsed::<String>(&LENGTH, &ParserInput::of(&text)), None, "another type");
    assert_eq!(reads.parsed::<usize>(&SLOW, &ParserInput::of(&text)), None, "another parser");
    let copy = ParserInput::of(&Bytes::copy_from_slice(&text));
    assert_eq!(reads.parsed::<usize>(&LENGTH, &copy), None, "an object that was read again");
    assert_eq!(format!("{:?}", Read::Parsed(&LENGTH, copy)), "Parsed(length, 4 bytes)");
}

/// A room that holds its thread: the key and the controller are shown.
#[tokio::test]
async fn worker_reports_the_key_that_holds_its_thread() {
    let bench = Bench::new();
    let asked = Arc::clone(&bench.script);
    let watchdog = bench.worker.watchdog.clone();
    assert_eq!(watchdog.slow_poll("test-controller"), None);
    asked.blocks.store(true, Ordering::Relaxed);
    bench.worker.queue.add(key());
    let worker = Arc::new(bench.worker);
    worker.queue.shut_down();
    Arc::clone(&worker).run().await;
    let shown = watchdog.slow_poll("test-controller").expect("it is reported");
    assert_eq!((&shown.key, shown.hangs), (&key(), false));
    assert!(shown.took >= BLOCK, "{shown:?}");
}
