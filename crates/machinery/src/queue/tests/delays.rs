//! Delays of the keys of deleted objects.

use super::*;

/// A Job may be deleted long before the time at which its controller wants to see it again.
#[tokio::test(start_paused = true)]
async fn delay_of_a_deleted_object_ends() {
    let queue = WorkQueue::new("test", &QueueMetrics::register(&Registry::new()).unwrap());
    let footprint = || queue.shared.state.lock().footprint();
    let years = Duration::from_hours(24 * 365 * 68);
    for key in 0..5000 {
        queue.add_planned(key, years);
        queue.add(key);
        let item = take(&queue).unwrap();
        queue.drop_delay(&key);
        item.done();
    }
    let (keys, slots, heap) = footprint();
    assert_eq!((keys, slots, queue.snapshot(0).delayed), (0, 1, 0));
    assert!(heap < 100, "{heap} heap entries for no key");
}

#[tokio::test(start_paused = true)]
async fn delay_that_was_asked_for_in_flight_or_is_short_stays() {
    let (queue, hour) = (queue(), Duration::from_hours(1));
    // The reconcile requests a longer delay than the key has.
    queue.add_planned("asked for", hour);
    queue.add("asked for");
    let item = take(&queue).unwrap();
    queue.add_after("asked for", 2 * hour);
    queue.drop_delay(&"asked for");
    item.done();
    queue.add_after("short", Duration::from_mins(1));
    queue.add("short");
    let item = take(&queue).unwrap();
    queue.drop_delay(&"short");
    item.done();
    assert_eq!(queue.snapshot(0).delayed, 2);
    advance(Duration::from_mins(1)).await;
    assert_eq!(work_off(&queue), ["short"]);
    advance(hour).await;
    assert_eq!(work_off(&queue), ["asked for"]);
    // The first delay has passed, so the key has no delay when it is taken again.
    queue.add("asked for");
    let item = take(&queue).unwrap();
    queue.drop_delay(&"asked for");
    item.done();
    assert_eq!(queue.shared.state.lock().footprint().0, 0);
}

#[tokio::test(start_paused = true)]
async fn key_of_a_deleted_object_is_added_if_it_has_a_long_delay_or_is_in_flight() {
    let queue = queue();
    queue.add_gone("unknown");
    queue.add_after("short", Duration::from_mins(1));
    queue.add_gone("short");
    assert_eq!(queue.len(), 0);
    queue.add_planned("long", Duration::from_hours(1));
    queue.add_gone("long");
    assert_eq!(work_off(&queue), ["long"]);
    // The reconcile in flight may request a delay that nothing else would end.
    queue.add("in flight");
    let item = take(&queue).unwrap();
    queue.add_gone("in flight");
    item.done();
    assert_eq!(work_off(&queue), ["in flight"]);
}
