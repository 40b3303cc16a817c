//! Keys whose writes meet conflicts again and again.

use super::*;

/// Lets the key's next plan be a write that meets a conflict, which the plan tolerates or not.
fn meet_conflict(bench: &Bench, is_tolerated: bool) {
    let mut write = create();
    let Step::Write(written) = &mut write else { panic!("{write:?}") };
    written.tolerate.conflict = is_tolerated;
    bench.plan(vec![write]);
    bench.server.answer(409, br#"{"kind":"Status","code":409,"reason":"Conflict"}"#.to_vec());
}

/// Processes the key when it is due.
async fn process(bench: &Bench) {
    let item = bench.worker.queue.get().await.unwrap();
    bench.worker.process(item).await;
}

#[tokio::test(start_paused = true)]
async fn key_is_contended_after_three_conflicts_in_a_row() {
    for is_tolerated in [true, false] {
        let bench = Bench::new();
        bench.script.heedless.store(true, Ordering::Relaxed);
        bench.worker.queue.add(key());
        for _ in 0..4 {
            meet_conflict(&bench, is_tolerated);
            process(&bench).await;
        }
        bench.plan(Vec::new());
        process(&bench).await;
        bench.worker.queue.add(key());
        bench.plan(Vec::new());
        process(&bench).await;
        let is_contended = |read: &String| read.contains("is_contended: true");
        let planned: Vec<bool> = bench.script.read.lock().iter().map(is_contended).collect();
        assert_eq!(planned, [false, false, false, true, true, false], "tolerated: {is_tolerated}");
    }
}

#[test]
fn key_that_is_not_reconciled_again_is_forgotten() {
    let contentions = Contentions::default();
    let done = |requeue_after| Outcome::Done { writes: 1, requeue_after, cooldown: Cooldown::default() };
    contentions.note(&key(), true, &[], &done(Some(Duration::from_secs(10))));
    assert_eq!(contentions.len(), 1);
    contentions.note(&key(), true, &[], &done(None));
    assert_eq!(contentions.len(), 0);
}
