//! The room's tables, on a store that is filled by hand.

use proptest::prelude::*;
use serde_json::json;

use super::*;
use coxswain_machinery::api::AnyObject;
use coxswain_machinery::informer::Store;
use coxswain_machinery::model::plan::{Patch, Verb};

fn node(name: &str, annotation: Option<&str>) -> AnyObject {
    let mut node = Node::default();
    node.metadata.name = name.into();
    node.metadata.uid = format!("{name}-uid").into();
    node.metadata.annotations =
        annotation.map(|text| ("node.alpha.kubernetes.io/ttl", text)).into_iter().collect();
    Arc::new(node)
}

/// A room that has counted so many nodes, one of which is `one`.
fn room(count: usize, annotation: Option<&str>) -> Controller {
    let nodes = Arc::new(Store::new(&NODES));
    nodes.upsert(&node("one", annotation));
    let size = Arc::new(Size::default());
    (0..count).for_each(|_| size.grow());
    Controller { nodes: Lister::new(nodes), size }
}

/// What is written on the node `one`.
fn written(room: &Controller) -> Option<serde_json::Value> {
    let observed = room.observe(&Key::new("", "one"), &[], &Reads::default()).unwrap();
    let Observation::View(view) = observed else { panic!("{observed:?}") };
    let plan = Controller::plan(&view, Timestamp::UNIX_EPOCH);
    let write = plan.writes().next()?;
    assert!(write.subresource.is_empty() && write.tolerate.absent);
    let Verb::Patch(Patch::Strategic(patch)) = &write.verb else { panic!("{write}") };
    Some(patch.clone())
}

#[test]
fn a_number_is_written_unless_it_is_there_however_it_is_written() {
    for (annotation, stays) in [
        (None, false),
        (Some("15"), true),
        (Some("+15"), true),
        (Some("015"), true),
        (Some("0"), false),
        (Some("-15"), false),
        (Some("15s"), false),
        (Some(" 15"), false),
        (Some(""), false),
        (Some("99999999999999999999"), false),
    ] {
        let expected = json!({
            "metadata": { "uid": "one-uid", "annotations": { "node.alpha.kubernetes.io/ttl": "15" } },
        });
        assert_eq!(written(&room(101, annotation)), (!stays).then_some(expected), "{annotation:?}");
    }
    assert!(written(&room(1, None)).is_some(), "none is a number, too");
    assert_eq!(written(&room(1, Some("-0"))), None);
    let gone = room(1, None).observe(&Key::new("", "another"), &[], &Reads::default());
    assert!(matches!(gone, Ok(Observation::Nothing)));
}

#[test]
fn steps_overlap_and_their_bounds_are_exclusive() {
    let size = Size::default();
    let to = |wanted: usize| {
        while size.now().0 < wanted {
            size.grow();
        }
        while size.now().0 > wanted {
            size.shrink();
        }
        size.now().1
    };
    for (count, seconds) in [
        (100, 0),
        (101, 15),
        (95, 15),
        (90, 15),
        (89, 0),
        (100, 0),
        (500, 15),
        (501, 30),
        (450, 30),
        (449, 15),
        (1000, 30),
        (1001, 60),
        (900, 60),
        (899, 30),
        (2001, 300),
        (1800, 300),
        (1799, 60),
        (0, 0),
    ] {
        assert_eq!(to(count), seconds, "{count}");
    }
}

#[test]
fn who_comes_and_goes_is_counted_and_updates_are_not() {
    let size = Arc::new(Size::default());
    let keys = counted(Arc::clone(&size));
    let (a, b) = (node("a", None), node("b", None));
    let tell = |old: Option<&AnyObject>, new: Option<&AnyObject>, initial, resync| {
        let mut queued = Vec::new();
        keys(Delta { old, new, initial, resync }, &mut |key| queued.push(key.name.to_string()));
        (queued, size.now().0)
    };
    assert_eq!(tell(None, Some(&a), true, false), (vec!["a".to_owned()], 1), "at the start");
    assert_eq!(tell(None, Some(&b), false, false), (vec!["b".to_owned()], 2));
    assert_eq!(tell(Some(&b), Some(&b), false, false), (vec!["b".to_owned()], 2), "a heartbeat");
    assert_eq!(tell(Some(&a), Some(&a), false, true), (vec!["a".to_owned()], 2), "a resync");
    assert_eq!(tell(Some(&b), None, false, false), (vec![], 1), "gone, however that was seen");
}

#[test]
fn reasons_tell_of_the_size() {
    let reasons = |room: &Controller| {
        let observed = room.observe(&Key::new("", "one"), &[], &Reads::default()).unwrap();
        let Observation::View(view) = observed else { panic!("{observed:?}") };
        Controller::reasons(&view, Timestamp::UNIX_EPOCH)
    };
    assert_eq!(
        reasons(&room(101, None)),
        ["The cluster has 101 nodes; the node's kubelet may cache Secrets and ConfigMaps for 15s, and the \
             annotation is updated."]
    );
    assert_eq!(
        reasons(&room(1, Some("0"))),
        [
            "The cluster has 1 node; the node's kubelet does not cache Secrets and ConfigMaps, and the annotation \
             is up to date."
        ]
    );
}

proptest! {
    /// However nodes come and go, the step is one whose bounds hold the count, and each event moves it by one at most.
    #[test]
    fn the_step_fits_the_count(bursts in prop::collection::vec((any::<bool>(), 0_usize..700), 1..20)) {
        let size = Size::default();
        let seconds = [0, 15, 30, 60, 300];
        let bounds = [(0, 100), (90, 500), (450, 1000), (900, 2000), (1800, usize::MAX)];
        let at = |seconds_now: u32| seconds.iter().position(|each| *each == seconds_now).unwrap();
        for (grows, by) in bursts {
            for _ in 0..by {
                let before = at(size.now().1);
                if grows { size.grow() } else { size.shrink() }
                let (count, now) = size.now();
                let (from, to) = bounds[at(now)];
                prop_assert!((from..=to).contains(&count), "{count} nodes, {now} s");
                prop_assert!(before.abs_diff(at(now)) <= 1);
            }
        }
    }
}
