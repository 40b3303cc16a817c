//! Keys over which reconciling panics, beside others.

use tokio::task::JoinSet;
use tokio::time::sleep;

use super::*;

fn poison() -> Key {
    Key::new("ns", "poison")
}

#[tokio::test(start_paused = true)]
async fn a_key_that_panics_is_tried_late_and_the_others_go_on() {
    let bench = Bench::new();
    let (script, worker) = (Arc::clone(&bench.script), Arc::new(bench.worker));
    let mut tasks = JoinSet::new();
    tasks.spawn(Arc::clone(&worker).run());
    worker.queue.add(poison());
    let error = "panicked: cannot bear this".to_owned();
    let synced = worker.sync(poison()).await.unwrap();
    assert_eq!(synced.outcome, Outcome::failed(error.clone(), true));
    // Ten minutes in which others come all the time.
    for round in 1..=600 {
        worker.queue.add(key());
        sleep(Duration::from_secs(1)).await;
        assert_eq!(script.asked.lock().len(), round, "each is served at once");
        assert_eq!(worker.stats.first_panicked(), Some((poison(), "cannot bear this".to_owned(), 1)));
    }
    let tries = worker.stats.errors();
    assert!(tries <= 2, "{tries} tries in ten minutes");
    assert_eq!(worker.stats.failing(10)[0].error, error);

    script.poisoned.store(false, Ordering::Relaxed);
    sleep(Duration::from_secs(1000)).await;
    assert_eq!((worker.stats.first_panicked(), worker.stats.failing_keys()), (None, 0), "it was tried again");
    worker.queue.shut_down_now();
    tasks.join_all().await;
}

#[tokio::test(start_paused = true)]
async fn a_change_of_the_object_is_another_try_once_a_second() {
    let bench = Bench::new();
    let worker = Arc::new(bench.worker);
    let mut tasks = JoinSet::new();
    tasks.spawn(Arc::clone(&worker).run());
    for _ in 0..100 {
        worker.queue.add(poison());
        sleep(Duration::from_millis(100)).await;
    }
    let tries = worker.stats.errors();
    assert!((8..=11).contains(&tries), "{tries} tries in ten seconds of changes");
    worker.queue.shut_down_now();
    tasks.join_all().await;
}
