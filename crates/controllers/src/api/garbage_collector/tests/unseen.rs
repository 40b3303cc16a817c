//! Dependents whose watch has ended, as when the server prefers another version or discovery lacks a group for a moment: owners
//! that wait for them go on waiting until a live read or another watch shows that they are gone.

use std::time::Duration;

use proptest::prelude::*;
use proptest::sample::Index;

use super::super::graph::{AffectedObjects, Blocker, Graph};
use super::super::plan::plan;
use super::super::view::{Attempt, Kinds, Subject, View, observe};
use super::fixtures::*;
use coxswain_machinery::api::Kind;
use coxswain_machinery::api::meta::ObjectMeta;
use coxswain_machinery::framework::{ApiError, Observation, ObserveError, Read, Reads};
use coxswain_machinery::model::Key;
use coxswain_machinery::model::plan::Step;
use coxswain_machinery::wire::Str;

/// Another version of [`GADGET`].
static GADGET_V2: Kind = Kind { version: "v2", ..row("ex.io", "Gadget", "gadgets", true) };

/// A kind of another resource.
static WIDGET: Kind = row("ex.io", "Widget", "widgets", true);

/// What discovery says of gadgets.
#[derive(Clone, Copy)]
enum Gadgets {
    Unknown,
    NotServed,
    In(&'static Kind),
}

impl Kinds for Gadgets {
    fn named(&self, api_version: &str, kind: &str) -> Result<&'static Kind, String> {
        resolve(api_version, kind)
    }

    fn served(&self, kind: &'static Kind) -> Result<Option<&'static Kind>, String> {
        assert_eq!((kind.group, kind.resource), ("ex.io", "gadgets"));
        match self {
            Self::Unknown => Err("discovery of the resources of ex.io".to_owned()),
            Self::NotServed => Ok(None),
            Self::In(row) => Ok(Some(row)),
        }
    }

    fn is_settling(&self, _: &str) -> bool {
        false
    }
}

/// The group `ex.io`, which has just returned.
struct Returned;

impl Kinds for Returned {
    fn named(&self, api_version: &str, kind: &str) -> Result<&'static Kind, String> {
        resolve(api_version, kind)
    }

    fn served(&self, kind: &'static Kind) -> Result<Option<&'static Kind>, String> {
        Ok(Some(kind))
    }

    fn is_settling(&self, group: &str) -> bool {
        group == "ex.io"
    }
}

/// Both are of one group and were forgotten after ten minutes without it. The owner is listed first.
#[test]
fn orphaning_owner_whose_group_has_just_returned_waits_for_its_dependents() {
    let mut graph = Graph::new();
    let owner = object("owner").orphaning();
    let elsewhere = object("elsewhere").orphaning();
    let _ = told(|affected| graph.observe(&GADGET, &owner, affected));
    let _ = see(&mut graph, &[&elsewhere]);
    let looked = |graph: &Graph, kinds: &dyn Kinds, kind: &'static Kind, meta: &ObjectMeta| {
        let reads = Reads::default().with_object(kind, Key::of(meta), Ok(Some(partial(meta))));
        let Ok(Observation::View(view)) = observe(graph, kinds, &Attempt::Orphan(uid(meta)), false, &reads)
        else {
            panic!("it is enough")
        };
        let plan = plan(&view);
        let written: Vec<String> =
            plan.steps.iter().flat_map(Step::writes).map(|write| write.key.to_string()).collect();
        (written, plan.requeue_after)
    };
    assert_eq!(looked(&graph, &Returned, &GADGET, &owner), (Vec::new(), Some(Duration::from_secs(1))));
    let (written, _) = looked(&graph, &Returned, &THING, &elsewhere);
    assert_eq!(written, ["a/elsewhere"], "other groups go on");
    let dependent = object("dependent").owned_by(&GADGET, &owner);
    let _ = told(|affected| graph.observe(&GADGET, &dependent, affected));
    let (written, _) = looked(&graph, &Gadgets::In(&GADGET), &GADGET, &owner);
    assert_eq!(written, ["a/dependent", "a/owner"]);
}

#[test]
fn garbage_collector_looks_less_and_less_often_for_an_owner_that_no_watch_shows() {
    let delay = |seconds: u64| {
        let known_for = Duration::from_secs(seconds);
        let subject =
            Subject::Virtual { there: true, unknown: None, is_long: false, is_outdated: false, known_for };
        plan(&View { subject, absent: Vec::new() }).requeue_after.unwrap().as_secs()
    };
    assert_eq!([0, 1, 30, 60, 120, 960, 9000].map(delay), [30, 30, 30, 60, 120, 960, 1000]);
}

fn owner() -> ObjectMeta {
    object("owner").foreground()
}

fn gadget(name: &str) -> ObjectMeta {
    object(name).blocking(&THING, &owner())
}

/// An owner that waits for these gadgets, whose watch has ended.
fn waiting_for(gadgets: &[&ObjectMeta]) -> (Graph, Vec<String>) {
    let mut graph = Graph::new();
    let _ = see(&mut graph, &[&owner()]);
    let _ = told(|affected| gadgets.iter().for_each(|gadget| graph.observe(&GADGET, gadget, affected)));
    let to_look_at = told(|affected| graph.forget_kind(&GADGET, affected)).0;
    (graph, to_look_at)
}

fn look(graph: &Graph, kinds: Gadgets, reads: &Reads) -> Result<Observation<View>, ObserveError> {
    observe(graph, &kinds, &Attempt::Delete(uid(&owner())), false, reads)
}

/// What a look at the owner finds with this answer to its one read, which is of `row`.
fn found(
    graph: &Graph,
    kinds: Gadgets,
    row: &'static Kind,
    name: &str,
    answer: Result<Option<&ObjectMeta>, ApiError>,
) -> (Option<Blocker>, bool) {
    let key = Key::new("a", name);
    let needs = look(graph, kinds, &Reads::default());
    let Ok(Observation::Needs(needs)) = needs else { panic!("a read is needed") };
    assert_eq!(needs, [Read::Object(row, key.clone())]);
    let reads = Reads::default().with_object(row, key, answer.map(|live| live.map(partial)));
    let Ok(Observation::View(view)) = look(graph, kinds, &reads) else { return (None, false) };
    let plan = plan(&view);
    assert!(plan.steps.is_empty(), "nothing is written for what a look finds");
    let Subject::Blocked { by, found } = view.subject else { panic!("{:?}", view.subject) };
    assert_eq!(by.to_str(), format!("uid-{name}"));
    (Some(found), plan.requeue_after.is_some())
}

/// Whether the owner's finalizer goes.
fn is_released(graph: &Graph) -> bool {
    let Ok(Observation::View(view)) = look(graph, Gadgets::Unknown, &Reads::default()) else { return false };
    matches!(view.subject, Subject::Released { .. }) && matches!(plan(&view).steps[..], [Step::Write(_)])
}

fn not_served() -> ApiError {
    ApiError::Refused {
        request: "GET /".to_owned(),
        code: 404,
        reason: Str::EMPTY,
        message: "404 page not found".to_owned(),
        status: Box::default(),
        retry_after: None,
    }
}

#[test]
fn an_owner_waits_on_while_a_live_read_finds_its_dependent() {
    let child = gadget("child");
    let (graph, to_look_at) = waiting_for(&[&child]);
    assert_eq!(to_look_at, ["uid-owner"]);
    for (kinds, row) in [(Gadgets::NotServed, &GADGET), (Gadgets::In(&GADGET_V2), &GADGET_V2)] {
        let there = Blocker::There(child.owner_references.clone());
        assert_eq!(found(&graph, kinds, row, "child", Ok(Some(&child))), (Some(there), true));
    }
    let Ok(Observation::View(unknown)) = look(&graph, Gadgets::Unknown, &Reads::default()) else {
        panic!("nothing is read")
    };
    assert!(plan(&unknown).retry.is_some() && plan(&unknown).steps.is_empty());
    assert!(!is_released(&graph));
}

#[test]
fn an_owner_is_let_go_when_live_reads_find_no_dependent_left() {
    let (one, two) = (gadget("one"), gadget("two"));
    let (mut graph, _) = waiting_for(&[&one, &two]);
    let (first, again) = found(&graph, Gadgets::In(&GADGET_V2), &GADGET_V2, "one", Ok(None));
    assert_eq!((first, again), (Some(Blocker::Gone), false));
    assert_eq!(told(|affected| graph.looked_for(&uid(&one), &Blocker::Gone, affected)).0, ["uid-owner"]);
    assert!(!is_released(&graph), "the other one was not looked for");
    let another = ObjectMeta { uid: "another".into(), ..two.clone() };
    let (second, _) = found(&graph, Gadgets::NotServed, &GADGET, "two", Ok(Some(&another)));
    assert_eq!(second, Some(Blocker::Gone));
    let _ = told(|affected| graph.looked_for(&uid(&two), &Blocker::Gone, affected));
    assert!(is_released(&graph));
}

#[tokio::test(start_paused = true)]
async fn a_kind_is_gone_when_neither_discovery_nor_the_server_has_it() {
    let child = gadget("child");
    let (mut graph, _) = waiting_for(&[&child]);
    let in_discovery = found(&graph, Gadgets::In(&GADGET), &GADGET, "child", Err(not_served()));
    assert!(matches!(in_discovery, (Some(Blocker::Unreadable(_)), false)), "it is tried again");
    let gone = found(&graph, Gadgets::NotServed, &GADGET, "child", Err(not_served()));
    assert_eq!(gone, (Some(Blocker::NotServed), true));
    let mut look = || told(|affected| graph.looked_for(&uid(&child), &Blocker::NotServed, affected)).0;
    assert!(look().is_empty(), "an API may be installed anew");
    for _ in 0..9 {
        tokio::time::advance(Duration::from_mins(1)).await;
        assert!(look().is_empty());
    }
    tokio::time::advance(Duration::from_mins(1)).await;
    assert_eq!(look(), ["uid-owner"]);
    assert!(is_released(&graph));
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_is_gone_frees_all_its_owners_at_once() {
    let gadgets = ["one", "two", "three"].map(gadget);
    let other = object("other").foreground();
    let of_other = object("four").blocking(&THING, &other);
    let (mut graph, _) = waiting_for(&gadgets.each_ref());
    let _ = see(&mut graph, &[&other]);
    let _ = told(|affected| graph.observe(&GADGET, &of_other, affected));
    let _ = told(|affected| graph.forget_kind(&GADGET, affected));
    let mut look = |gadget| told(|affected| graph.looked_for(&uid(gadget), &Blocker::NotServed, affected)).0;
    // Owners that look in turn count the same ten minutes, and one read at their end is enough for all.
    for at in 0..10 {
        assert!(look([&gadgets[0], &of_other][at % 2]).is_empty());
        tokio::time::advance(Duration::from_mins(1)).await;
    }
    let mut told_of = look(&of_other);
    told_of.sort_unstable();
    told_of.dedup();
    assert_eq!(told_of, ["uid-other", "uid-owner"]);
    assert!(is_released(&graph));
    assert!(graph.unseen_blocker(&uid(&other)).is_none());
}

#[tokio::test(start_paused = true)]
async fn an_api_that_comes_back_begins_the_time_anew() {
    let child = gadget("child");
    let there = Blocker::There(child.owner_references.clone());
    let timeout = || Blocker::Unknown("timeout".to_owned());
    for (sign, begins_anew) in
        [(there, true), (Blocker::Unreadable("503".to_owned()), true), (timeout(), false)]
    {
        let (mut graph, _) = waiting_for(&[&child]);
        for minute in 0..=10 {
            let found = if minute == 5 { &sign } else { &Blocker::NotServed };
            let told_of = told(|affected| graph.looked_for(&uid(&child), found, affected)).0;
            assert_eq!(told_of.is_empty(), minute < 10 || begins_anew, "{sign:?} {minute}");
            tokio::time::advance(Duration::from_mins(1)).await;
        }
        assert_eq!(is_released(&graph), !begins_anew, "{sign:?}");
    }
}

/// Nobody looks while no owner waits. Meanwhile the API may come back and go again.
#[tokio::test(start_paused = true)]
async fn time_without_a_look_is_no_evidence_that_an_api_is_gone() {
    let child = gadget("child");
    let (mut graph, _) = waiting_for(&[&child]);
    let mut look = || told(|affected| graph.looked_for(&uid(&child), &Blocker::NotServed, affected)).0;
    assert!(look().is_empty());
    tokio::time::advance(Duration::from_hours(1)).await;
    assert!(look().is_empty());
    for _ in 0..5 {
        tokio::time::advance(Duration::from_mins(2)).await;
        look();
    }
    assert!(is_released(&graph));
}

#[test]
fn a_dependent_that_no_longer_blocks_is_no_reason_to_wait() {
    let child = gadget("child");
    let (mut graph, _) = waiting_for(&[&child]);
    let there = |meta: &ObjectMeta| Blocker::There(meta.owner_references.clone());
    let same = told(|affected| graph.looked_for(&uid(&child), &there(&child), affected)).0;
    assert!(same.is_empty(), "the owner is looked at again in a while: {same:?}");
    let free = told(|affected| graph.looked_for(&uid(&child), &there(&object("child")), affected)).0;
    assert_eq!(free, ["uid-owner"]);
    assert!(is_released(&graph));
}

#[test]
fn another_version_shows_what_is_left() {
    let (kept, lost) = (gadget("kept"), gadget("lost"));
    let (mut graph, _) = waiting_for(&[&kept, &lost]);
    let _ = told(|affected| graph.observe(&GADGET_V2, &kept, affected));
    assert_eq!(graph.unseen_blocker(&uid(&owner())).map(|held| held.uid), Some(uid(&lost)));
    assert!(told(|affected| graph.shown(&GADGET_V2, affected)).0.is_empty(), "the other one still blocks");
    assert!(graph.unseen_blocker(&uid(&owner())).is_none() && !is_released(&graph));
    let gone = told(|affected| graph.gone(&GADGET_V2, &kept.clone().at(9), affected)).0;
    assert_eq!(gone, ["uid-owner"]);
    assert!(is_released(&graph));
}

#[test]
fn what_happened_to_an_owner_meanwhile_is_told_when_its_dependent_is_seen_again() {
    let (mut graph, owner) = (Graph::new(), object("owner"));
    let child = object("child").owned_by(&THING, &owner);
    let _ = see(&mut graph, &[&owner]);
    let mut affected = AffectedObjects::default();
    graph.observe(&GADGET, &child, &mut affected);
    graph.forget_kind(&GADGET, &mut affected);
    let _ = told(|affected| graph.gone(&THING, &owner.clone().at(9), affected));
    assert!(told(|affected| graph.observe(&GADGET_V2, &child, affected)).0.contains(&"uid-child".to_owned()));
}

#[test]
fn dependents_out_of_sight_are_cut_loose_where_they_are_served() {
    let owner = object("owner").orphaning();
    let child = object("child").owned_by(&THING, &owner);
    let mut graph = Graph::new();
    let _ = see(&mut graph, &[&owner]);
    let _ = told(|affected| graph.observe(&GADGET, &child, affected));
    let _ = told(|affected| graph.forget_kind(&GADGET, affected));
    let reads = Reads::default().with_object(&THING, Key::of(&owner), Ok(Some(partial(&owner))));
    let attempt = Attempt::Orphan(uid(&owner));
    let seen = observe(&graph, &Gadgets::In(&GADGET_V2), &attempt, false, &reads);
    let Ok(Observation::View(view)) = seen else { panic!("it is enough") };
    let written: Vec<_> =
        plan(&view).steps.iter().flat_map(Step::writes).map(|write| write.kind.version).collect();
    assert_eq!(written, ["v2", "v1"], "the dependent, then the owner");
    assert!(matches!(
        observe(&graph, &Gadgets::Unknown, &attempt, false, &reads),
        Err(ObserveError::Retry(_))
    ));
}

#[tokio::test(start_paused = true)]
async fn objects_of_a_resource_that_never_returns_are_forgotten() {
    let (mut graph, owner) = (Graph::new(), object("owner"));
    let child = object("child").owned_by(&GADGET, &owner);
    let grandchild = object("grandchild").owned_by(&GADGET, &child);
    let _ = told(|affected| {
        for held in [&owner, &child, &grandchild] {
            graph.observe(&GADGET, held, affected);
        }
    });
    let held = object("held").owned_by(&THING, &owner);
    let _ = told(|affected| graph.forget_kind(&GADGET, affected));
    let nodes = |graph: &Graph| (graph.stats().nodes, graph.stats().virtual_nodes);
    // The owner of no object has no owners, and is a virtual node since then.
    assert_eq!(nodes(&graph), (3, 3));
    let sweep = async |graph: &mut Graph, kinds: Gadgets, minutes: u64| {
        let mut affected = told(|affected| graph.sweep_unseen(|kind| kinds.served(kind), affected)).0;
        for _ in 0..minutes {
            tokio::time::advance(Duration::from_mins(1)).await;
            affected.extend(told(|affected| graph.sweep_unseen(|kind| kinds.served(kind), affected)).0);
        }
        affected
    };
    for (kinds, minutes) in
        [(Gadgets::NotServed, 0), (Gadgets::NotServed, 9), (Gadgets::Unknown, 1), (Gadgets::NotServed, 9)]
    {
        assert!(sweep(&mut graph, kinds, minutes).await.is_empty());
        assert_eq!(nodes(&graph), (3, 3), "it may be installed again");
    }
    tokio::time::advance(Duration::from_mins(10)).await;
    assert!(sweep(&mut graph, Gadgets::NotServed, 0).await.is_empty());
    assert_eq!(nodes(&graph), (3, 3), "time without an answer of discovery is no evidence");
    let _ = see(&mut graph, &[&held]);
    assert!(sweep(&mut graph, Gadgets::NotServed, 10).await.is_empty(), "nobody depends on them");
    assert_eq!(nodes(&graph), (2, 1), "the owner of a living object stays, as far as that refers to it");
    let _ = told(|affected| graph.gone(&THING, &held.at(9), affected));
    assert!(graph.is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_object_that_others_depend_on_or_wait_for_is_not_forgotten() {
    let (waited, parent) = (gadget("waited"), object("parent").owned_by(&THING, &object("root")));
    let (mut graph, _) = waiting_for(&[&waited, &parent]);
    let _ = see(&mut graph, &[&object("child").owned_by(&GADGET, &parent)]);
    let nodes = graph.len();
    for _ in 0..30 {
        let affected = told(|affected| graph.sweep_unseen(|_| Ok(None), affected)).0;
        assert_eq!((graph.len(), affected), (nodes, Vec::new()));
        tokio::time::advance(Duration::from_mins(1)).await;
    }
    let _ = told(|affected| graph.gone(&THING, &object("child").at(9), affected));
    for _ in 0..20 {
        let _ = told(|affected| graph.sweep_unseen(|_| Ok(None), affected));
        tokio::time::advance(Duration::from_mins(1)).await;
    }
    assert_eq!(graph.len(), 2, "the owner, and the dependent that it waits for");
    assert!(!is_released(&graph));
}

/// Sweeps once a minute while discovery lacks every resource. Returns the affected objects.
async fn without_apis(graph: &mut Graph, minutes: u64) -> Vec<String> {
    let mut affected = Vec::new();
    for _ in 0..=minutes {
        affected.extend(told(|affected| graph.sweep_unseen(|_| Ok(None), affected)).0);
        tokio::time::advance(Duration::from_mins(1)).await;
    }
    affected
}

#[tokio::test(start_paused = true)]
async fn objects_in_a_circle_of_references_are_forgotten() {
    let mut graph = Graph::new();
    let own = object("own").owned_by(&GADGET, &object("own"));
    let (one, other) = (
        object("one").owned_by(&WIDGET, &object("other")),
        object("other").owned_by(&GADGET, &object("one")),
    );
    let _ = told(|affected| {
        graph.observe(&GADGET, &own, affected);
        graph.observe(&GADGET, &one, affected);
        graph.observe(&WIDGET, &other, affected);
    });
    let _ = told(|affected| graph.forget_kind(&GADGET, affected));
    let _ = without_apis(&mut graph, 7).await;
    let _ = told(|affected| graph.forget_kind(&WIDGET, affected));
    assert!(without_apis(&mut graph, 4).await.is_empty());
    assert_eq!(graph.len(), 2, "the object of another kind may be there");
    assert!(without_apis(&mut graph, 7).await.is_empty());
    assert!(graph.is_empty(), "{:?}", graph.stats());
}

#[tokio::test(start_paused = true)]
async fn a_circle_with_a_living_dependent_stays() {
    let mut graph = Graph::new();
    let (one, other) = (
        object("one").owned_by(&GADGET, &object("other")),
        object("other").owned_by(&GADGET, &object("one")),
    );
    let _ = told(|affected| {
        graph.observe(&GADGET, &one, affected);
        graph.observe(&GADGET, &other, affected);
    });
    let living = object("living").owned_by(&GADGET, &one);
    let _ = see(&mut graph, &[&living]);
    let _ = told(|affected| graph.forget_kind(&GADGET, affected));
    let _ = without_apis(&mut graph, 30).await;
    assert_eq!(graph.len(), 3);
    let _ = told(|affected| graph.gone(&THING, &living.at(9), affected));
    let _ = without_apis(&mut graph, 11).await;
    assert!(graph.is_empty(), "{:?}", graph.stats());
}

/// As in kube-controller-manager the owner waits until the API is back: otherwise the API's objects, which are to be kept, would be deleted.
#[tokio::test(start_paused = true)]
async fn a_dependent_of_an_orphaning_owner_is_not_forgotten() {
    let mut graph = Graph::new();
    let owner = object("owner");
    let dependent = object("dependent").owned_by(&THING, &owner);
    let _ = see(&mut graph, &[&owner]);
    let _ = told(|affected| graph.observe(&GADGET, &dependent, affected));
    let _ = told(|affected| graph.forget_kind(&GADGET, affected));
    let _ = see(&mut graph, &[&owner.clone().orphaning().at(8)]);
    let _ = without_apis(&mut graph, 30).await;
    for _ in 0..2 {
        let _ = told(|affected| graph.looked_for(&uid(&dependent), &Blocker::NotServed, affected));
        for _ in 0..11 {
            tokio::time::advance(Duration::from_mins(1)).await;
            let _ = told(|affected| graph.looked_for(&uid(&dependent), &Blocker::NotServed, affected));
        }
    }
    assert_eq!(graph.owners(&uid(&dependent)).len(), 1);
    let _ = told(|affected| graph.gone(&THING, &owner.at(9), affected));
    let _ = without_apis(&mut graph, 12).await;
    assert!(graph.is_empty(), "{:?}", graph.stats());
}

#[tokio::test(start_paused = true)]
async fn unseen_objects_are_swept_once_in_two_minutes_at_most() {
    let mut graph = Graph::new();
    let (first, second) =
        (object("first").owned_by(&THING, &object("x")), object("second").owned_by(&THING, &object("y")));
    let _ = told(|affected| {
        graph.observe(&GADGET, &first, affected);
        graph.observe(&WIDGET, &second, affected);
    });
    let sweep = |graph: &mut Graph| _ = told(|affected| graph.sweep_unseen(|_| Ok(None), affected));
    let owned = |graph: &Graph| [&first, &second].map(|object| graph.owners(&uid(object)).len());
    let _ = told(|affected| graph.forget_kind(&GADGET, affected));
    sweep(&mut graph);
    tokio::time::advance(Duration::from_secs(30)).await;
    let _ = told(|affected| graph.forget_kind(&WIDGET, affected));
    // The first sweep is after ten minutes. Widgets are due half a minute later, and wait for the next sweep.
    let mut sizes = Vec::new();
    for _ in 0..26 {
        sweep(&mut graph);
        sizes.push(owned(&graph));
        tokio::time::advance(Duration::from_secs(30)).await;
    }
    let lasted = |size| sizes.iter().filter(|held| **held == size).count();
    assert_eq!([lasted([1, 1]), lasted([0, 1]), lasted([0, 0])], [19, 4, 3], "{sizes:?}");
}

/// An object in [`sweep_removes_all_but_what_remaining_objects_need`].
#[derive(Clone, Debug)]
struct Sample {
    /// Gadgets and widgets are gone, things are served.
    kind: &'static Kind,
    /// How it is being deleted, if it is a thing.
    deletion: Deletion,
    /// Its owners, and whether each reference blocks the owner's deletion.
    owners: Vec<(Index, bool)>,
}

#[derive(Clone, Copy, Debug)]
enum Deletion {
    None,
    Foreground,
    Orphan,
}

fn samples() -> impl Strategy<Value = Vec<Sample>> {
    let kind = prop_oneof![4 => Just(&GADGET), 4 => Just(&WIDGET), 1 => Just(&THING)];
    let owners = prop::collection::vec((any::<Index>(), any::<bool>()), 0..3);
    let deletion = prop_oneof![Just(Deletion::None), Just(Deletion::Foreground), Just(Deletion::Orphan)];
    let sample =
        (kind, deletion, owners).prop_map(|(kind, deletion, owners)| Sample { kind, deletion, owners });
    prop::collection::vec(sample, 1..12)
}

fn metadata(samples: &[Sample]) -> Vec<ObjectMeta> {
    let base = |(at, sample): (usize, &Sample)| {
        let object = object(&format!("o{at}"));
        match sample.deletion {
            Deletion::Foreground if sample.kind == &THING => object.foreground(),
            Deletion::Orphan if sample.kind == &THING => object.orphaning(),
            _ => object,
        }
    };
    let all: Vec<ObjectMeta> = samples.iter().enumerate().map(base).collect();
    let refer = |(object, sample): (&ObjectMeta, &Sample)| {
        sample.owners.iter().fold(object.clone(), |object, (owner, blocks)| {
            let at = owner.index(all.len());
            let refer = if *blocks { ObjectMeta::blocking } else { ObjectMeta::owned_by };
            refer(object, samples[at].kind, &all[at])
        })
    };
    all.iter().zip(samples).map(refer).collect()
}

/// Returns for each object whether a remaining object needs it: an owner that waits for it, or a dependent.
fn needed(samples: &[Sample]) -> Vec<bool> {
    let is_served = |at: usize| samples[at].kind == &THING;
    let is_waited_for = |sample: &Sample| {
        let mut owners = sample.owners.iter().map(|(owner, blocks)| (owner.index(samples.len()), blocks));
        owners.any(|(owner, blocks)| match samples[owner].deletion {
            Deletion::Foreground => *blocks && is_served(owner),
            Deletion::Orphan => is_served(owner),
            Deletion::None => false,
        })
    };
    let mut needed: Vec<bool> = samples.iter().map(is_waited_for).collect();
    // A chain of references is no longer than the number of objects.
    for _ in 0..samples.len() {
        for (at, sample) in samples.iter().enumerate() {
            if is_served(at) || needed[at] {
                sample.owners.iter().for_each(|(owner, _)| needed[owner.index(samples.len())] = true);
            }
        }
    }
    needed
}

proptest! {
    #[test]
    fn sweep_removes_all_but_what_remaining_objects_need(samples in samples()) {
        let objects = metadata(&samples);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        let (graph, affected) = runtime.unwrap().block_on(async {
            let mut graph = Graph::new();
            for (sample, object) in samples.iter().zip(&objects) {
                graph.observe(sample.kind, object, &mut AffectedObjects::default());
            }
            for kind in [&GADGET, &WIDGET] {
                graph.forget_kind(kind, &mut AffectedObjects::default());
            }
            let affected = without_apis(&mut graph, 11).await;
            (graph, affected)
        });
        prop_assert!(graph.index_of_unseen_is_exact());
        prop_assert!(affected.is_empty(), "removed objects concern nobody: {affected:?}");
        for ((sample, object), needed) in samples.iter().zip(&objects).zip(needed(&samples)) {
            let stays = sample.kind == &THING || needed;
            let owners = if stays { sample.owners.len() } else { 0 };
            prop_assert_eq!(graph.owners(&uid(object)).len(), owners, "{}", object.name);
        }
    }
}
