//! What becomes of Services with more addresses than Endpoints may hold.

use super::super::super::objects::named_port;
use super::fixtures::{Bench, pod, ready, service};
use coxswain_machinery::api::pod::Pod;
use coxswain_machinery::wire::IntOrString;

const MARK: &str = "endpoints.kubernetes.io/over-capacity";

/// Numbers of ready and not ready addresses, by subset; and the mark.
fn counts(bench: &Bench) -> (Vec<(usize, usize)>, Option<String>) {
    bench.reconcile();
    assert!(bench.plan().is_empty());
    let held = bench.held();
    let subsets = held.subsets().unwrap();
    let counts = subsets.iter().map(|subset| (subset.ready.len(), subset.not_ready.len())).collect();
    (counts, held.metadata.annotations.get(MARK).map(ToString::to_string))
}

fn pods(port: i32, from: usize, count: usize, is_ready: bool) -> impl Iterator<Item = Pod> {
    (from..from + count).map(move |number| {
        pod(number, |pod| {
            ready(pod, is_ready, 10);
            named_port(pod, "http", port, "TCP");
        })
    })
}

/// Two subsets, of the ports 1 and 2: so many ready and not ready in each.
fn of(first: (usize, usize), second: (usize, usize)) -> Bench {
    let by_name =
        service(|service| service.spec.ports[0].target_port = Some(IntOrString::Str("http".into())));
    Bench::of(
        &by_name,
        pods(1, 0, first.0, true)
            .chain(pods(1, 3000, first.1, false))
            .chain(pods(2, 6000, second.0, true))
            .chain(pods(2, 9000, second.1, false)),
    )
}

#[test]
fn a_thousand_addresses_fit() {
    assert_eq!(counts(&of((600, 0), (300, 100))), (vec![(600, 0), (300, 100)], None));
}

#[test]
fn what_is_too_much_is_left_out() {
    let mark = || Some("truncated".to_owned());
    for (first, second, left) in [
        // The ready ones fit: the others share what room is left.
        ((600, 10), (300, 190), vec![(600, 5), (300, 95)]),
        ((600, 1), (0, 400), vec![(600, 1), (0, 399)]),
        // They do not: of the others none is left.
        ((1500, 5), (500, 5), vec![(750, 0), (250, 0)]),
        ((1001, 0), (0, 7), vec![(1000, 0)]),
        // Shares are rounded up; the last one gets what is left.
        ((1001, 0), (1000, 0), vec![(501, 0), (499, 0)]),
        ((1000, 10), (0, 10), vec![(1000, 0)]),
    ] {
        assert_eq!(counts(&of(first, second)), (left, mark()), "{first:?} {second:?}");
    }
}

#[test]
fn the_mark_comes_and_goes() {
    let bench = of((1001, 0), (0, 0));
    assert_eq!(counts(&bench), (vec![(1000, 0)], Some("truncated".to_owned())));
    bench.remove(&coxswain_machinery::api::kinds::PODS, "p1000");
    assert_eq!(bench.reconcile(), ["update"]);
    assert_eq!(counts(&bench), (vec![(1000, 0)], None));
    // The one that was there before it meant that all were kept.
    let edits = [coxswain_machinery::model::metadata::annotation_edit(MARK, Some("warning".to_owned()))];
    bench.put(coxswain_machinery::wire::splice::edit(&bench.held().raw, &edits).unwrap());
    assert_eq!(bench.reconcile(), ["update"]);
    assert_eq!(counts(&bench).1, None);
}
