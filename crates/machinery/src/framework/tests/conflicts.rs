//! Keys whose writes meet conflicts again and again.

use super::*;

const STATUS: &str = r#"{"kind":"Status","code":409,"reason":"Conflict"}"#;

/// Lets the key's next plan be a write that is answered with 409 and this body, which the plan tolerates or not.
fn meet_conflict(bench: &Bench, is_tolerated: bool, body: &str) {
    let mut write = create();
    let Step::Write(written) = &mut write else { panic!("{write:?}") };
    written.tolerate.conflict = is_tolerated;
    bench.plan(vec![write]);
    bench.server.answer(409, body.as_bytes().to_vec());
}

/// Processes the key when it is due.
async fn process(bench: &Bench) {
    let item = bench.worker.queue.get().await.unwrap();
    bench.worker.process(item).await;
}

#[tokio::test(start_paused = true)]
async fn key_is_contended_after_three_conflicts_in_a_row() {
    // Webhooks send a Status without a reason.
    let bare = r#"{"kind":"Status","code":409,"status":"Failure"}"#;
    for (is_tolerated, body) in [(true, STATUS), (false, STATUS), (true, bare), (false, bare)] {
        let bench = Bench::new();
        bench.script.heedless.store(true, Ordering::Relaxed);
        bench.worker.queue.add(key());
        for _ in 0..4 {
            meet_conflict(&bench, is_tolerated, body);
            process(&bench).await;
        }
        bench.plan(Vec::new());
        process(&bench).await;
        bench.worker.queue.add(key());
        bench.plan(Vec::new());
        process(&bench).await;
        let is_contended = |read: &String| read.contains("is_contended: true");
        let planned: Vec<bool> = bench.script.read.lock().iter().map(is_contended).collect();
        assert_eq!(planned, [false, false, false, true, true, false], "tolerated: {is_tolerated}, {body}");
    }
}

#[tokio::test(start_paused = true)]
async fn conflicts_of_a_key_that_is_not_reconciled_again_are_forgotten() {
    let bench = Bench::new();
    for _ in 0..2 {
        bench.worker.queue.add(key());
        meet_conflict(&bench, true, STATUS);
        process(&bench).await;
        assert_eq!(bench.worker.queue.conflicts(&key()), 1);
        bench.plan(Vec::new());
        process(&bench).await;
        assert_eq!(bench.worker.queue.conflicts(&key()), 0);
    }
    assert!(bench.worker.queue.is_empty());
}
