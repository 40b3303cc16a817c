//! Memory of a queue during and after a burst of keys.

use super::*;

#[tokio::test(start_paused = true)]
async fn memory_follows_the_number_of_keys() {
    let queue = WorkQueue::new("test", &QueueMetrics::register(&Registry::new()).unwrap());
    let footprint = || queue.shared.state.lock().footprint();
    for key in 0..5000 {
        queue.add(key);
    }
    while let Some(item) = take(&queue) {
        drop(item);
    }
    // Storage for a few keys is kept.
    let (keys, slots, heap) = footprint();
    assert_eq!((keys, heap), (0, 0));
    assert!(slots <= 256, "{slots} slots for no key");
    for delay in (1..5000).rev() {
        queue.add_after(7, ms(delay));
    }
    let (keys, slots, heap) = footprint();
    assert!(keys == 1 && slots <= 256, "{slots} slots for one key");
    assert!(heap < 100, "{heap} heap entries for one key");
}

#[tokio::test(start_paused = true)]
async fn memory_of_a_burst_is_given_back_although_a_key_is_delayed() {
    let queue = WorkQueue::new("test", &QueueMetrics::register(&Registry::new()).unwrap());
    let footprint = || queue.shared.state.lock().footprint();
    let mut held = Vec::new();
    for key in 0..5000 {
        queue.add(key);
        if key % 1000 == 0 {
            held.extend(take(&queue));
        }
    }
    for (key, delay) in [(10_000, 300), (10_001, 100), (10_002, 200)] {
        queue.add_after(key, ms(delay));
    }
    while let Some(item) = take(&queue) {
        drop(item);
    }
    drop(held);
    for key in 0..2000 {
        queue.add(key);
        drop(take(&queue));
    }
    let (keys, slots, heap) = footprint();
    assert_eq!((keys, heap), (3, 3));
    assert!(slots <= 256, "{slots} slots for three keys");
    let mut order = Vec::new();
    for _ in 0..3 {
        advance(ms(100)).await;
        order.extend(take(&queue).map(|item| *item.key()));
    }
    assert_eq!(order, [10_001, 10_002, 10_000]);
    assert!(queue.is_empty());
}

#[tokio::test(start_paused = true)]
async fn keys_in_flight_in_the_last_slots_survive_the_end_of_a_burst() {
    let queue = WorkQueue::new("test", &QueueMetrics::register(&Registry::new()).unwrap());
    let slots = || queue.shared.state.lock().footprint().1;
    (0..5000).for_each(|key| queue.add(key));
    let mut held: Vec<_> = std::iter::from_fn(|| take(&queue)).collect();
    drop(held.drain(..4998));
    // As many slots remain as the last key in flight needs, and its worker still names its slot.
    assert_eq!(slots(), 5000);
    queue.add(4999);
    queue.add_after(7, ms(100));
    for key in 0..2000 {
        queue.add(key);
        drop(take(&queue));
    }
    assert_eq!(held.iter().map(|item| *item.key()).collect::<Vec<_>>(), [4998, 4999]);
    drop(held);
    let again = take(&queue).expect("the key that was added while it was in flight");
    assert_eq!(*again.key(), 4999);
    drop(again);
    advance(ms(100)).await;
    let late = take(&queue).expect("the delayed key");
    assert_eq!(*late.key(), 7);
    drop(late);
    assert!(queue.is_empty());
    assert!(slots() <= 256, "{} slots for no key", slots());
}
