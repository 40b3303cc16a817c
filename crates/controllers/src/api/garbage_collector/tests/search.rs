//! Owners to which references point at many places: a reconcile reads a few of them, and the next one continues.

use std::collections::BTreeSet;
use std::time::Duration;

use super::super::graph::{AffectedObjects, Graph, Place, READS_PER_TURN};
use super::super::plan::plan;
use super::super::view::{Attempt, Kinds, Subject, View, observe};
use super::fixtures::*;
use coxswain_machinery::api::Kind;
use coxswain_machinery::api::meta::ObjectMeta;
use coxswain_machinery::framework::{Observation, Read, Reads};
use coxswain_machinery::model::{Key, Plan};

/// More places than a quadratic search ends with in a test run.
const VERY_MANY: usize = 30_000;

fn owner(name: &str) -> ObjectMeta {
    ObjectMeta { name: name.into(), ..object("owner") }
}

/// A dependent with references to one UID at this number of names.
fn dependent(names: usize) -> ObjectMeta {
    (0..names)
        .fold(object("dependent"), |dependent, at| dependent.owned_by(&THING, &owner(&format!("o{at}"))))
}

/// A search for the owner on an API server that has `live`.
struct Searching {
    graph: Graph,
    live: Option<ObjectMeta>,
    /// Keys of all live reads, in order.
    read: Vec<Key>,
}

impl Searching {
    fn of(dependents: &[&ObjectMeta]) -> Self {
        let mut graph = Graph::new();
        let _ = see(&mut graph, dependents);
        Self { graph, live: None, read: Vec::new() }
    }

    /// Reconciles once, and returns the view, the plan and the affected objects.
    fn reconcile(&mut self, kinds: &dyn Kinds) -> (View, Plan, Vec<String>) {
        let (attempt, mut reads, mut count) = (Attempt::Delete(uid(&owner(""))), Reads::default(), 0);
        loop {
            match observe(&self.graph, kinds, &attempt, false, &reads).expect("nothing fails") {
                Observation::Nothing => panic!("it is looked for"),
                Observation::Needs(needs) => {
                    for read in needs.into_iter().map(Read::from) {
                        let Read::Object(kind, key) = read else { panic!("{read:?}") };
                        let found = self.live.as_ref().filter(|live| Key::of(live) == key).map(partial);
                        assert!(reads.object(kind, &key).is_none(), "nothing is read twice");
                        self.read.push(key.clone());
                        count += 1;
                        reads = reads.with_object(kind, key, Ok(found));
                    }
                }
                Observation::View(view) => {
                    assert!(count <= READS_PER_TURN, "{count} reads in one reconcile");
                    let affected = told(|affected| self.commit(&view, affected)).0;
                    let plan = plan(&view);
                    return (view, plan, affected);
                }
            }
        }
    }

    fn commit(&mut self, view: &View, affected: &mut AffectedObjects) {
        match &view.subject {
            Subject::Search(turn) => self.graph.record_turn(&uid(&owner("")), turn.clone()),
            _ => self.graph.end_search(&uid(&owner(""))),
        }
        self.graph.record_absences(view.absent.clone(), affected);
    }

    fn turn(&mut self) -> (View, Plan, Vec<String>) {
        self.reconcile(&Discovered(resolve))
    }

    /// Reconciles once, which must not be the last time.
    fn part(&mut self) {
        let (view, plan, affected) = self.turn();
        assert!(matches!(view.subject, Subject::Search(_)), "{view:?}");
        assert_eq!(
            (plan.requeue_after, plan.has_more),
            (Some(Duration::ZERO), true),
            "other keys come first"
        );
        assert!(plan.retry.is_none() && plan.is_empty());
        assert_eq!(affected, Vec::<String>::new(), "the dependents are affected when the search ends");
    }

    fn is_under_way(&self) -> bool {
        self.graph.search(&uid(&owner(""))).is_some()
    }
}

#[test]
fn search_at_few_places_takes_one_reconcile() {
    for names in [1, READS_PER_TURN] {
        let mut searching = Searching::of(&[&dependent(names)]);
        let (view, plan, affected) = searching.turn();
        assert!(matches!(view.subject, Subject::Virtual { there: false, unknown: None, is_long: false, .. }));
        assert_eq!((view.absent.len(), searching.read.len()), (names, names));
        assert!(plan.requeue_after.is_none() && plan.retry.is_none());
        assert_eq!(affected, ["uid-dependent"]);
        assert!(!searching.is_under_way());
    }
}

#[test]
fn search_at_many_places_reads_eight_per_reconcile_and_each_once() {
    let mut searching = Searching::of(&[&dependent(20)]);
    searching.part();
    searching.part();
    assert!(searching.is_under_way());
    let (view, plan, affected) = searching.turn();
    assert!(matches!(view.subject, Subject::Virtual { there: false, unknown: None, is_long: true, .. }));
    assert_eq!((view.absent.len(), searching.read.len()), (20, 20));
    assert_eq!(searching.read.iter().collect::<BTreeSet<_>>().len(), 20, "each place is read once");
    assert!(plan.requeue_after.is_none() && plan.retry.is_none());
    assert_eq!(affected, ["uid-dependent"]);
    assert!(!searching.is_under_way());
    let (view, ..) = searching.turn();
    assert_eq!((view.absent.len(), searching.read.len()), (0, 20), "the absences are known");
}

#[test]
fn search_that_finds_the_owner_in_an_early_part_looks_again_later() {
    let mut searching = Searching::of(&[&dependent(12)]);
    searching.live = Some(owner("o0"));
    searching.part();
    let (view, plan, _) = searching.turn();
    assert!(matches!(view.subject, Subject::Virtual { there: true, .. }), "{view:?}");
    assert_eq!((view.absent.len(), searching.read.len()), (11, 12));
    assert_eq!(plan.requeue_after, Some(Duration::from_secs(30)));
}

#[test]
fn search_for_a_cluster_scoped_owner_reads_it_once_for_all_namespaces() {
    let realm = ObjectMeta { namespace: "".into(), ..owner("realm") };
    let dependents: Vec<ObjectMeta> = (0..20)
        .map(|at| object(&format!("d{at}")).in_namespace(&format!("n{at}")).owned_by(&REALM, &realm))
        .collect();
    let mut searching = Searching::of(&dependents.iter().collect::<Vec<_>>());
    let (view, _, affected) = searching.turn();
    assert!(matches!(view.subject, Subject::Virtual { there: false, is_long: false, .. }), "{view:?}");
    assert_eq!(searching.read, [Key::new("", "realm")]);
    assert_eq!(affected.len(), 20);
}

/// The end of a search after which another search follows at once.
fn check_outdated(view: &View, plan: &Plan) {
    assert!(matches!(view.subject, Subject::Virtual { is_outdated: true, .. }), "{view:?}");
    assert_eq!((plan.requeue_after, plan.has_more), (Some(Duration::ZERO), true));
    assert!(plan.retry.is_none() && plan.is_empty());
}

#[test]
fn reference_that_appears_during_a_search_is_followed_by_the_next_search() {
    let mut searching = Searching::of(&[&dependent(12)]);
    searching.part();
    let late = object("late").owned_by(&THING, &owner("late-owner"));
    let _ = see(&mut searching.graph, &[&late]);
    let (view, plan, affected) = searching.turn();
    check_outdated(&view, &plan);
    assert_eq!((view.absent.len(), searching.read.len()), (12, 12));
    assert_eq!(affected, ["uid-dependent"]);
    let (view, plan, affected) = searching.turn();
    assert!(matches!(view.subject, Subject::Virtual { is_outdated: false, .. }), "{view:?}");
    assert_eq!((view.absent.len(), searching.read.len()), (1, 13));
    assert_eq!(affected, ["uid-late"]);
    assert!(plan.requeue_after.is_none() && !plan.has_more);
}

/// Its key is queued again, but the next reconcile of the search lists no places.
#[test]
fn reference_that_appears_before_the_first_part_is_recorded_is_followed_by_the_next_search() {
    let mut searching = Searching::of(&[&dependent(12)]);
    let mut reads = Reads::default();
    for at in 0..READS_PER_TURN {
        reads = reads.with_object(&THING, Key::new("a", format!("o{at}")), Ok(None));
    }
    let attempt = Attempt::Delete(uid(&owner("")));
    let observed = observe(&searching.graph, &Discovered(resolve), &attempt, false, &reads);
    let Ok(Observation::View(view)) = observed else { panic!("eight objects were read") };
    let late = object("late").owned_by(&THING, &owner("late-owner"));
    let _ = see(&mut searching.graph, &[&late]);
    searching.commit(&view, &mut AffectedObjects::default());
    let (view, plan, affected) = searching.turn();
    check_outdated(&view, &plan);
    assert_eq!(affected, ["uid-dependent"]);
    assert_eq!(searching.turn().2, ["uid-late"]);
}

#[test]
fn references_that_change_all_the_time_delay_other_dependents_by_one_search_at_most() {
    let names = |round: usize, count: usize| {
        let changing = (0..count).fold(object("dependent"), |changing, at| {
            changing.owned_by(&THING, &owner(&format!("o{round}-{at}")))
        });
        changing.at(round as u64 + 1)
    };
    for count in [12, 100] {
        let steady = object("steady").owned_by(&THING, &owner("steady-owner"));
        let mut searching = Searching::of(&[&names(0, count), &steady]);
        let mut affected = Vec::new();
        for round in 1..=2 {
            affected.extend(searching.turn().2);
            let _ = see(&mut searching.graph, &[&names(round, count)]);
        }
        assert!(affected.contains(&"uid-steady".to_owned()), "{count} names: {affected:?}");
        let again = searching.read.iter().filter(|key| key.name.as_str() == "steady-owner").count();
        assert_eq!(again, 1);
    }
}

#[test]
fn search_holds_no_more_places_than_references_exist() {
    let steady = object("steady").owned_by(&THING, &owner("steady-owner"));
    let mut searching = Searching::of(&[&dependent(1000), &steady]);
    searching.part();
    let size = |searching: &Searching| searching.graph.search(&uid(&owner(""))).expect("a search").size();
    assert_eq!(size(&searching), 1001);
    let _ = see(&mut searching.graph, &[&dependent(12).at(2)]);
    assert!(size(&searching) <= 2 * READS_PER_TURN + 12, "{} places", size(&searching));
    let (view, plan, affected) = searching.turn();
    check_outdated(&view, &plan);
    assert_eq!(affected, ["uid-steady"], "the other references are new");
    assert_eq!((view.absent.len(), searching.read.len()), (1, READS_PER_TURN + 1));
}

#[test]
fn two_dependents_at_one_place_are_affected_although_one_of_them_changes() {
    let other = object("other").owned_by(&THING, &owner("o10"));
    let mut searching = Searching::of(&[&dependent(12), &other]);
    searching.part();
    let _ = see(&mut searching.graph, &[&dependent(1).at(2)]);
    assert_eq!(searching.turn().2, ["uid-other"]);
}

#[test]
fn places_that_change_between_passes_do_not_raise_the_number_of_reads_or_passes() {
    let mut searching = Searching::of(&[&dependent(1)]);
    let (attempt, mut reads) = (Attempt::Delete(uid(&owner(""))), Reads::default());
    for pass in 1_u64..=8 {
        match observe(&searching.graph, &Discovered(resolve), &attempt, false, &reads) {
            Ok(Observation::Needs(needs)) => {
                for read in needs.into_iter().map(Read::from) {
                    let Read::Object(kind, key) = read else { panic!("{read:?}") };
                    reads = reads.with_object(kind, key, Ok(None));
                }
            }
            Ok(Observation::View(_)) => {
                assert!(reads.count() <= READS_PER_TURN, "{} reads", reads.count());
                return;
            }
            other => panic!("{other:?}"),
        }
        let renamed = object("dependent").owned_by(&THING, &owner(&format!("other-{pass}")));
        let _ = see(&mut searching.graph, &[&renamed.at(pass + 1)]);
    }
    panic!("no plan after eight passes");
}

#[test]
fn names_that_no_request_can_contain_cost_no_read_and_no_memory() {
    let long = "x".repeat(100_000);
    let names = (0..20).map(|at| format!("a/{at}")).chain((0..20).map(|at| format!("{long}{at}")));
    let odd = names.fold(object("odd"), |odd, name| odd.owned_by(&THING, &owner(&name)));
    let mut searching = Searching::of(&[&odd]);
    let (view, plan, _) = searching.turn();
    assert!(matches!(view.subject, Subject::Virtual { unknown: Some(_), .. }), "{view:?}");
    assert!(searching.read.is_empty() && !searching.is_under_way());
    assert!(plan.retry.is_some_and(|why| why.contains("invalid resource name") && why.len() < 512));

    let mut searching = Searching::of(&[&odd, &dependent(12)]);
    searching.part();
    assert_eq!(searching.graph.search(&uid(&owner(""))).expect("a search").size(), 12);
}

#[test]
fn search_ends_when_the_owner_or_its_last_dependent_changes() {
    let mut searching = Searching::of(&[&dependent(12)]);
    searching.part();
    let _ = see(&mut searching.graph, &[&owner("o3")]);
    assert!(!searching.is_under_way(), "a watch shows the owner");

    let mut searching = Searching::of(&[&dependent(12)]);
    searching.part();
    let _ = lose(&mut searching.graph, &dependent(12));
    let _ = see(&mut searching.graph, &[&dependent(12).at(5)]);
    assert!(!searching.is_under_way(), "the first dependent is gone");
}

/// Finds no Gadgets.
fn without_gadgets(api_version: &str, kind: &str) -> Result<&'static Kind, String> {
    if kind == GADGET.kind { Err("no Gadgets".to_owned()) } else { resolve(api_version, kind) }
}

#[test]
fn long_search_with_an_unreadable_place_is_repeated_after_a_delay() {
    let gadget = object("other").owned_by(&GADGET, &owner("gadget"));
    let mut searching = Searching::of(&[&dependent(12), &gadget]);
    let kinds = Discovered(without_gadgets);
    let (view, ..) = searching.reconcile(&kinds);
    assert!(matches!(view.subject, Subject::Search(_)), "{view:?}");
    let (view, plan, affected) = searching.reconcile(&kinds);
    assert!(matches!(view.subject, Subject::Virtual { unknown: Some(_), is_long: true, .. }), "{view:?}");
    assert_eq!(affected, ["uid-dependent"]);
    assert_eq!((plan.requeue_after, plan.retry), (Some(Duration::from_secs(30)), None));
}

#[test]
fn short_search_with_an_unreadable_place_is_retried_with_backoff() {
    let gadget = object("other").owned_by(&GADGET, &owner("gadget"));
    let (_, plan, _) = Searching::of(&[&gadget]).reconcile(&Discovered(without_gadgets));
    assert!(plan.requeue_after.is_none() && plan.retry.is_some_and(|why| why.contains("no Gadgets")));
}

/// Quadratic code takes about a minute here.
#[test]
fn object_with_very_many_owners_needs_each_of_them_once() {
    let dependent = (0..VERY_MANY)
        .fold(object("dependent"), |dependent, at| dependent.owned_by(&THING, &object(&format!("o{at}"))));
    let dependent = dependent.owned_by(&THING, &object("o0"));
    let mut graph = Graph::new();
    let _ = see(&mut graph, &[&dependent]);
    let attempt = Attempt::Delete(uid(&dependent));
    let observed = observe(&graph, &Discovered(resolve), &attempt, false, &Reads::default());
    let Ok(Observation::Needs(needs)) = observed else { panic!("the owners are to be read") };
    assert_eq!(needs.len(), VERY_MANY);
}

/// Quadratic code takes about a minute here.
#[test]
fn very_many_absences_of_one_owner_affect_the_dependent() {
    let dependent = dependent(VERY_MANY);
    let mut graph = Graph::new();
    let _ = see(&mut graph, &[&dependent]);
    let places: Vec<Place> = graph.owners(&uid(&dependent));
    assert_eq!(places.len(), VERY_MANY);
    let affected = told(|affected| graph.record_absences(places, affected)).0;
    assert_eq!(affected, ["uid-dependent"]);
}
