//! Workers after a restore of etcd, until their controller is stopped.

use super::*;
use crate::informer::Epochs;

#[tokio::test(start_paused = true)]
async fn plan_of_an_earlier_epoch_is_not_performed() {
    let epochs = Epochs::register(&Registry::new()).unwrap();
    let mut bench = Bench::new();
    let caches = Caches::new(Some(&PODS), vec![Arc::clone(&bench.store)]);
    bench.worker.freshness.caches = caches.in_epoch(epochs.present());
    bench.plan(vec![create()]);
    bench.server.answer(201, pod("7"));
    let outcome = bench.reconcile().await;
    assert!(matches!(outcome, Outcome::Done { writes: 1, .. }), "{outcome:?}");
    bench.store.bookmark("7");

    bench.plan(vec![create()]);
    bench.server.answer(201, pod("6"));
    assert!(epochs.present().compare(&"pods", 7, 5).is_some());
    let outcome = bench.reconcile().await;
    assert!(matches!(outcome, Outcome::Failed { quiet: true, retry: true, .. }), "{outcome:?}");
    assert_eq!(bench.server.1.lock().len(), 1, "nothing is sent");
}
