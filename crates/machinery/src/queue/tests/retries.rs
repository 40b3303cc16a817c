//! Retries that take no token of the shared bucket, and namespaces that share it.

use super::*;

#[tokio::test(start_paused = true)]
async fn keys_that_fail_for_ever_leave_the_bucket_to_the_others() {
    let queue = WorkQueue::<usize>::new("test", &QueueMetrics::register(&Registry::new()).unwrap());
    // As many as would take all that the bucket gives, each tried once in its longest backoff or pause.
    let (longest, keys) = (QueueConfig::default().max_delay, 10_000);
    for key in 0..keys {
        (0..20).for_each(|_| queue.add_failed(key, longest));
    }
    advance(longest).await;
    let mut tried = 0;
    while let Some(item) = take(&queue) {
        let key = *item.key();
        item.done();
        tried += 1;
        if key % 2 == 0 {
            assert_eq!(queue.add_rate_limited(key), longest);
        } else {
            queue.add_failed(key, longest);
        }
    }
    assert_eq!(tried, keys);
    // The burst and the rate are there for those that fail now.
    let delays: Vec<_> = (keys..=keys + 100).map(|key| queue.add_rate_limited(key)).collect();
    assert_eq!(delays[..100], vec![ms(5); 100]);
    assert_eq!(delays[100], ms(100));
}

#[tokio::test(start_paused = true)]
async fn retries_of_one_namespace_do_not_delay_those_of_another() {
    let metrics = QueueMetrics::register(&Registry::new()).unwrap();
    let queue = WorkQueue::<(&'static str, usize)>::new("test", &metrics).fair_by(|key| key.0);
    let alone = WorkQueue::<(&'static str, usize)>::new("alone", &metrics);
    // A thousand keys of one namespace fail at once: with it alone the delays are those of one bucket.
    for key in 0..1000 {
        let delay = queue.add_rate_limited(("a", key));
        assert_eq!(delay, alone.add_rate_limited(("a", key)), "{key}");
    }
    assert_eq!(alone.add_rate_limited(("b", 0)), ms(90_100));
    // The burst is used up, and not more: the next token comes in a tenth of a second.
    assert_eq!(queue.add_rate_limited(("b", 0)), ms(100));
    advance(ms(10_100)).await;
    let delays: Vec<_> = (1..=100).map(|key| queue.add_rate_limited(("b", key))).collect();
    assert_eq!(delays, vec![ms(5); 100], "the shared bucket is full again though the namespace waits on");
    assert!(queue.add_rate_limited(("a", 1000)) > ms(79_000));
}

#[tokio::test(start_paused = true)]
async fn namespaces_that_fail_no_longer_have_no_bucket() {
    let queue = WorkQueue::<String>::new("test", &QueueMetrics::register(&Registry::new()).unwrap())
        .fair_by(|key| key.as_str());
    for at in 0..10_000 {
        queue.add_rate_limited(at.to_string());
        advance(ms(200)).await;
    }
    assert!(queue.shared.state.lock().parts() <= 64);
}
