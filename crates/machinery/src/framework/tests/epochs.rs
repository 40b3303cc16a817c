//! Workers after a restore of etcd, until their controller is stopped.

use super::*;
use crate::executor::{AnsweredWrite, ObserveWrites};
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

/// Ends the epoch when a write is answered.
struct EndsEpoch(Arc<Epochs>);

impl ObserveWrites for EndsEpoch {
    fn wrote(&self, _: &AnsweredWrite<'_>) {
        assert!(self.0.present().compare(&"pods", 7, 5).is_some(), "one write");
    }
}

#[tokio::test(start_paused = true)]
async fn plan_under_way_sends_nothing_after_the_end_of_its_epoch() {
    let epochs = Epochs::register(&Registry::new()).unwrap();
    let mut bench = Bench::new();
    let caches = Caches::new(Some(&PODS), vec![Arc::clone(&bench.store)]);
    bench.worker.freshness.caches = caches.in_epoch(epochs.present());
    let ends = Arc::new(EndsEpoch(Arc::clone(&epochs)));
    bench.worker.executor = bench.worker.executor.in_epoch(epochs.present()).observed_by(ends);
    bench.plan(vec![create(), create_another()]);
    bench.server.answer(201, pod("7"));
    bench.server.answer(201, pod("8"));
    let outcome = bench.reconcile().await;
    assert!(
        matches!(outcome, Outcome::Failed { quiet: true, retry: true, refused: false, .. }),
        "{outcome:?}"
    );
    assert_eq!(bench.server.1.lock().len(), 1, "the second write is not sent");
}
