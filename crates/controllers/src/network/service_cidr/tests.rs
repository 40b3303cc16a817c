//! The plan's tables, and a property: no address is ever left without a range.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use proptest::prelude::*;

use super::plan::plan;
use super::*;
use coxswain_machinery::api::meta::{Condition, ObjectMeta};
use coxswain_machinery::api::{AnyObject, Kind, Object};
use coxswain_machinery::framework::{ApiError, Read};
use coxswain_machinery::informer::{Store, downcast};
use coxswain_machinery::model::plan::{Expect, Step, Verb};
use coxswain_machinery::wire::{Message, Str, Time};

const NOW: i64 = 1_700_000_000;
const BLOCKED: &str = "There are still IPAddresses referencing the ServiceCIDR, \
    please remove them or create a new ServiceCIDR";

fn now() -> Timestamp {
    Timestamp::from_second(NOW).unwrap()
}

fn meta(name: &str) -> ObjectMeta {
    ObjectMeta {
        name: name.into(),
        uid: format!("{name}-uid").into(),
        resource_version: "1".into(),
        ..ObjectMeta::default()
    }
}

/// A ServiceCIDR that is ready, with the finalizer and one of somebody else's.
fn cidr(name: &str, ranges: &[&str], change: impl FnOnce(&mut ServiceCidr)) -> ServiceCidr {
    let mut cidr = ServiceCidr { metadata: meta(name), ..ServiceCidr::default() };
    cidr.metadata.finalizers = vec!["example.com/other".into(), FINALIZER.into()];
    cidr.spec.cidrs = ranges.iter().map(|range| (*range).into()).collect();
    cidr.status.conditions = vec![ready("True", "", "Kubernetes Service CIDR is ready")];
    change(&mut cidr);
    cidr
}

fn ready(status: &str, reason: &str, message: &str) -> Condition {
    Condition {
        r#type: "Ready".into(),
        status: status.into(),
        last_transition_time: Time::from_seconds(5),
        reason: reason.into(),
        message: message.into(),
        ..Condition::default()
    }
}

fn deleted(seconds_ago: i64) -> impl Fn(&mut ServiceCidr) {
    move |cidr| cidr.metadata.deletion_timestamp = Time::from_seconds(NOW - seconds_ago)
}

struct Bench {
    cidrs: Arc<Store>,
    addresses: Arc<Store>,
    /// What a live list finds beside.
    unheard_of: Vec<AnyObject>,
}

impl Bench {
    fn new(cidrs: impl IntoIterator<Item = ServiceCidr>, addresses: &[&str]) -> Self {
        let bench = Self {
            cidrs: Arc::new(Store::new(&SERVICE_CIDRS)),
            addresses: Arc::new(Store::new(&IP_ADDRESSES)),
            unheard_of: Vec::new(),
        };
        cidrs.into_iter().for_each(|cidr| bench.add(&bench.cidrs, &cidr));
        for address in addresses {
            bench.add(&bench.addresses, &given_out(address));
        }
        bench
    }

    /// Stores an object as the API server would send it.
    fn add<T: Object + Message>(&self, store: &Store, object: &T) {
        let _ = self;
        store.upsert(&(store.kind().decode)(&object.to_bytes().into()).unwrap());
    }

    fn room(&self) -> Controller {
        Controller {
            cidrs: Lister::new(Arc::clone(&self.cidrs)),
            addresses: Lister::new(Arc::clone(&self.addresses)),
        }
    }

    fn live(&self) -> Reads {
        let all = self.addresses.list().into_iter().chain(self.unheard_of.clone()).collect();
        Reads::default().with_list(&IP_ADDRESSES, Str::EMPTY, Ok(all))
    }

    /// Observes, with a live list if one is asked for, and plans.
    fn plan(&self, name: &str) -> Plan {
        let (room, key) = (self.room(), Key::new("", name));
        let observed = match room.observe(&key, &[], &Reads::default()).unwrap() {
            Observation::Needs(needs) => {
                assert_eq!(needs, [Read::List(&IP_ADDRESSES, Str::EMPTY)]);
                room.observe(&key, &[], &self.live()).unwrap()
            }
            observed => observed,
        };
        let Observation::View(view) = observed else { panic!("{observed:?}") };
        plan(&view, now())
    }

    /// What the plan writes, the object as it would be afterwards.
    fn written(&self, name: &str) -> (&'static str, ServiceCidr) {
        let plan = self.plan(name);
        let Some(Step::Write(write)) = plan.steps.last() else { panic!("{plan:?}") };
        assert!(plan.steps[..plan.steps.len() - 1].iter().all(|step| matches!(step, Step::Verify(_))));
        let (what, bytes) = match &write.verb {
            Verb::Update(bytes) if write.subresource == "status" => ("status", bytes),
            Verb::Update(bytes) => ("object", bytes),
            other => panic!("{other:?}"),
        };
        let cidr: Arc<ServiceCidr> = downcast((SERVICE_CIDRS.decode)(bytes).unwrap()).unwrap();
        (what, Arc::unwrap_or_clone(cidr))
    }
}

fn given_out(address: &str) -> PartialObjectMetadata {
    let mut metadata = meta(address);
    metadata.labels = [(MANAGED_BY, ALLOCATOR)].into_iter().collect();
    PartialObjectMetadata { metadata }
}

#[test]
fn a_new_one_gets_its_finalizer_and_then_its_condition() {
    let new = cidr("a", &["10.0.0.0/24"], |new| {
        new.metadata.finalizers = vec!["example.com/other".into()];
        new.status.conditions.clear();
    });
    let bench = Bench::new([new.clone()], &[]);
    let (what, mut written) = bench.written("a");
    assert_eq!((what, written.metadata.finalizers.len()), ("object", 2));
    assert_eq!(written.metadata.finalizers[1], FINALIZER);
    assert_eq!((&written.metadata.uid, &written.metadata.resource_version), (&"a-uid".into(), &"1".into()));
    written.metadata.resource_version = "2".into();
    let bench = Bench::new([written], &[]);
    let (what, written) = bench.written("a");
    let mut expected = ready("True", "", "Kubernetes Service CIDR is ready");
    expected.last_transition_time = Time::from_seconds(NOW);
    assert_eq!((what, written.status.conditions), ("status", vec![expected]));
    assert!(Bench::new([cidr("a", &["10.0.0.0/24"], |_| {})], &["10.0.0.9"]).plan("a").is_empty());
}

#[test]
fn it_is_told_when_it_cannot_be_said_to_be_ready() {
    let told = |change: &dyn Fn(&mut ServiceCidr), addresses: &[&str]| {
        let plan = Bench::new([cidr("a", &["10.0.0.0/24"], change)], addresses).plan("a");
        let write = plan.writes().next().unwrap();
        let event = write.on_failure.as_ref();
        assert_eq!(write.tolerate.conflict, event.is_some(), "a conflict is no refusal");
        event.map(|event| (event.warning, event.reason, event.message.clone(), event.regarding.key.clone()))
    };
    let message = "The ServiceCIDR Status can not be set to Ready=True".to_owned();
    let expected = (true, "KubernetesServiceCIDRError", message, Key::new("", "a"));
    assert_eq!(told(&|new| new.status.conditions.clear(), &[]), Some(expected));
    // Seen with the Go manager: of other writes nothing is told.
    assert_eq!(told(&|new| new.metadata.finalizers.clear(), &[]), None);
    assert_eq!(told(&deleted(60), &["10.0.0.9"]), None);
    assert_eq!(told(&deleted(60), &[]), None);
}

#[test]
fn a_condition_that_says_less_is_completed_and_keeps_its_time() {
    let half = cidr("a", &["10.0.0.0/24"], |half| half.status.conditions = vec![ready("True", "", "")]);
    let (_, written) = Bench::new([half], &[]).written("a");
    assert_eq!(written.status.conditions, [ready("True", "", "Kubernetes Service CIDR is ready")]);
}

#[test]
fn one_with_addresses_stays_and_says_so_once() {
    let (what, mut written) =
        Bench::new([cidr("a", &["10.0.0.0/24"], deleted(60))], &["10.0.0.9"]).written("a");
    let mut expected = ready("False", "Terminating", BLOCKED);
    expected.last_transition_time = Time::from_seconds(NOW);
    assert_eq!((what, &written.status.conditions), ("status", &vec![expected]));
    written.metadata.resource_version = "2".into();
    let bench = Bench::new([written], &["10.0.0.9"]);
    let plan = bench.plan("a");
    assert!(plan.steps.is_empty() && plan.requeue_after.is_none() && plan.retry.is_none());
}

#[test]
fn one_without_addresses_goes_after_its_grace() {
    let bench = Bench::new([cidr("a", &["10.0.0.0/24"], deleted(3))], &["10.0.1.9", "fd00::1"]);
    let plan = bench.plan("a");
    assert_eq!((plan.steps.len(), plan.requeue_after), (0, Some(Duration::from_secs(7))));
    // A clock that is behind.
    let bench = Bench::new([cidr("a", &["10.0.0.0/24"], deleted(-100))], &[]);
    assert_eq!(bench.plan("a").requeue_after, Some(GRACE_SECONDS));
    let bench = Bench::new([cidr("a", &["10.0.0.0/24"], deleted(10))], &["10.0.1.9"]);
    let (what, written) = bench.written("a");
    assert_eq!((what, written.metadata.finalizers), ("object", vec!["example.com/other".into()]));
    let gone = cidr("a", &["10.0.0.0/24"], |cidr| {
        deleted(60)(cidr);
        cidr.metadata.finalizers.pop();
    });
    assert!(Bench::new([gone], &[]).plan("a").steps.is_empty());
}

#[test]
fn the_ends_of_a_range_are_not_given_out_from_it() {
    let rows = [
        ("10.0.0.0/24", "10.0.0.128", "10.0.0.128/28", false),
        ("10.0.0.0/24", "10.0.0.129", "10.0.0.128/28", true),
        ("10.0.0.0/24", "10.0.0.143", "10.0.0.128/28", false),
        ("10.0.0.0/24", "10.0.0.128", "10.0.0.0/16", true),
        ("fd00::/64", "fd00::100", "fd00::100/120", false),
        ("fd00::/64", "fd00::1ff", "fd00::100/120", true),
    ];
    for (range, address, heir, goes) in rows {
        let all = [cidr("a", &[range], deleted(60)), cidr("b", &[heir], |_| {})];
        let (what, _) = Bench::new(all, &[address]).written("a");
        assert_eq!(what, if goes { "object" } else { "status" }, "{address} of {range}, {heir}");
    }
}

#[test]
fn servicecidr_is_not_held_by_the_ends_of_its_own_range() {
    for (range, address) in
        [("10.0.0.0/24", "10.0.0.0"), ("10.0.0.0/24", "10.0.0.255"), ("fd00::/64", "fd00::")]
    {
        let (what, _) = Bench::new([cidr("a", &[range], deleted(60))], &[address]).written("a");
        assert_eq!(what, "object", "{address} of {range}");
    }
}

const GRACE_SECONDS: Duration = Duration::from_secs(10);

#[test]
fn an_address_that_only_a_live_list_tells_of_is_looked_at_again() {
    let mut bench = Bench::new([cidr("a", &["10.0.0.0/24"], deleted(60))], &[]);
    bench.unheard_of.push(Arc::new(given_out("10.0.0.9")));
    let (what, written) = bench.written("a");
    assert_eq!((what, &*written.status.conditions[0].reason), ("status", "Terminating"));
    assert_eq!(bench.plan("a").requeue_after, Some(GRACE_SECONDS));
    // The cache tells when one goes that it has shown.
    let bench = Bench::new([cidr("a", &["10.0.0.0/24"], deleted(60))], &["10.0.0.9"]);
    assert_eq!(bench.plan("a").requeue_after, None);
}

#[test]
fn addresses_of_others_do_not_count() {
    let bench = Bench::new([cidr("a", &["10.0.0.0/24"], deleted(60))], &[]);
    bench.add(&bench.addresses, &PartialObjectMetadata { metadata: meta("10.0.0.9") });
    assert_eq!(bench.written("a").0, "object");
}

#[test]
fn its_addresses_may_be_left_to_one_that_lasts() {
    for (other, goes) in [
        (cidr("b", &["10.0.0.0/16"], |_| {}), true),
        (cidr("b", &["10.0.0.0/24"], |_| {}), true),
        (cidr("b", &["10.0.0.8/29"], |_| {}), true),
        (cidr("b", &["10.0.0.0/29"], |_| {}), false),
        (cidr("b", &["fd00::/64"], |_| {}), false),
        (cidr("b", &["nonsense"], |_| {}), false),
        // The API server refuses leading zeros, and kube-controller-manager skips such a range.
        (cidr("b", &["010.0.0.0/16"], |_| {}), false),
        (cidr("b", &["10.0.0.0/016"], |_| {}), false),
        (cidr("b", &["10.0.0.0/16"], deleted(1)), false),
        (cidr("b", &["10.0.0.0/16"], |b| b.status.conditions.clear()), false),
        (cidr("b", &["10.0.0.0/16"], |b| b.status.conditions = vec![ready("False", "", "")]), false),
    ] {
        let what = format!("{other:?}");
        let bench = Bench::new([cidr("a", &["10.0.0.0/24"], deleted(60)), other], &["10.0.0.9", "10.0.0.10"]);
        assert_eq!(bench.written("a").0 == "object", goes, "{what}");
        if goes {
            let verified: Vec<Expect> = bench
                .plan("a")
                .steps
                .into_iter()
                .filter_map(|step| match step {
                    Step::Verify(verify) => Some(verify.expect),
                    _ => None,
                })
                .collect();
            assert_eq!(verified, [Expect::Alive("b-uid".into())]);
        }
    }
}

#[test]
fn an_address_that_the_cache_does_not_know_keeps_it() {
    let mut bench = Bench::new([cidr("a", &["10.0.0.0/24"], deleted(60))], &[]);
    assert_eq!(bench.written("a").0, "object");
    bench.unheard_of = vec![Arc::new(given_out("10.0.0.9"))];
    let (what, written) = bench.written("a");
    assert_eq!((what, written.status.conditions[0].reason.as_str()), ("status", "Terminating"));
    // What the cache knows is enough to keep it: nothing is read.
    let bench = Bench::new([cidr("a", &["10.0.0.0/24"], deleted(60))], &["10.0.0.9"]);
    let observed = bench.room().observe(&Key::new("", "a"), &[], &Reads::default()).unwrap();
    assert!(matches!(observed, Observation::View(_)));
    let failed = Reads::default().with_list(&IP_ADDRESSES, Str::EMPTY, Err(unreachable()));
    let bench = Bench::new([cidr("a", &["10.0.0.0/24"], deleted(60))], &[]);
    let observed = bench.room().observe(&Key::new("", "a"), &[], &failed);
    assert!(matches!(observed, Err(ObserveError::Retry(_))));
}

fn unreachable() -> ApiError {
    ApiError::Malformed { request: "list ipaddresses".to_owned(), what: "nonsense".to_owned() }
}

/// The keys that a change concerns, as it comes after what is in the bench.
fn keys(bench: &Bench, kind: &'static Kind, change: impl FnOnce(&Store)) -> Vec<String> {
    let room = bench.room();
    let (store, keys) = if kind == &SERVICE_CIDRS {
        (&bench.cidrs, keys_of_cidrs(room.cidrs))
    } else {
        (&bench.addresses, keys_of_addresses(room.cidrs))
    };
    let found = Arc::new(parking_lot::Mutex::new(Vec::new()));
    let into = Arc::clone(&found);
    let handler = store.add_handler(
        "test",
        Arc::new(move |delta: Delta<'_>| keys(delta, &mut |key| into.lock().push(key.to_string()))),
    );
    let initial = std::mem::take(&mut *found.lock());
    if kind == &SERVICE_CIDRS {
        assert_eq!(initial.len(), store.len(), "each is told of itself at the start");
    } else {
        assert!(initial.is_empty());
    }
    change(store);
    store.remove_handler(handler);
    let mut found = std::mem::take(&mut *found.lock());
    found.sort();
    found
}

#[test]
fn a_change_concerns_those_that_wait() {
    let bench = || {
        let all = [
            cidr("stays", &["10.0.0.0/16"], |_| {}),
            cidr("goes", &["10.0.0.0/24"], deleted(1)),
            cidr("goes-too", &["10.9.0.0/24", "fd00::/64"], deleted(1)),
        ];
        Bench::new(all, &["10.0.0.1"])
    };
    let add = |object: ServiceCidr| {
        move |store: &Store| {
            store.upsert(&(store.kind().decode)(&Bytes::from(object.to_bytes())).unwrap());
        }
    };
    let wide = cidr("wide", &["10.0.0.0/8"], |_| {});
    assert_eq!(keys(&bench(), &SERVICE_CIDRS, add(wide)), ["goes", "goes-too", "wide"]);
    let narrow = cidr("narrow", &["10.0.0.8/29"], |_| {});
    assert_eq!(keys(&bench(), &SERVICE_CIDRS, add(narrow)), ["goes", "narrow"]);
    let gone = |store: &Store| {
        store.remove_key(&Key::new("", "stays"), "9");
    };
    assert_eq!(keys(&bench(), &SERVICE_CIDRS, gone), ["goes"]);
    let address = |name: &'static str| {
        move |store: &Store| {
            store.upsert(&(store.kind().decode)(&given_out(name).to_bytes().into()).unwrap());
        }
    };
    assert_eq!(keys(&bench(), &IP_ADDRESSES, address("10.0.0.2")), ["goes"]);
    assert_eq!(keys(&bench(), &IP_ADDRESSES, address("fd00::2")), ["goes-too"]);
    assert!(keys(&bench(), &IP_ADDRESSES, address("10.0.1.2")).is_empty());
    assert!(keys(&bench(), &IP_ADDRESSES, address("nonsense")).is_empty());
    let freed = |store: &Store| {
        store.remove_key(&Key::new("", "10.0.0.1"), "9");
    };
    assert_eq!(keys(&bench(), &IP_ADDRESSES, freed), ["goes"]);
}

fn any_cidr(name: usize) -> impl Strategy<Value = ServiceCidr> {
    (0_u8..8, 27_u8..32, any::<bool>(), 0_i64..20, any::<bool>()).prop_map(
        move |(at, prefix, goes, ago, is_ready)| {
            let range = format!("10.0.0.{}/{prefix}", at * 4);
            cidr(&format!("c{name}"), &[&range], |cidr| {
                if goes {
                    deleted(ago)(cidr);
                }
                if !is_ready {
                    cidr.status.conditions.clear();
                }
            })
        },
    )
}

proptest! {
    /// Whatever goes, and whatever goes after it: an address that had a range that lasts, or that was blocked, has one.
    #[test]
    fn no_address_is_left_without_a_range(
        first in any_cidr(0), second in any_cidr(1), third in any_cidr(2), addresses in prop::collection::vec(0_u8..32, 0..6)
    ) {
        let all = [first, second, third];
        let names: Vec<String> = addresses.iter().map(|last| format!("10.0.0.{last}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let bench = Bench::new(all.clone(), &names);
        // Everybody decides before any decision shows.
        let stay = |cidr: &&ServiceCidr| {
            let plan = bench.plan(&cidr.metadata.name);
            !plan.steps.iter().any(|step| {
                matches!(step, Step::Write(write) if write.subresource.is_empty() && matches!(write.verb, Verb::Update(_)))
            })
        };
        let left: Vec<&ServiceCidr> = all.iter().filter(stay).collect();
        for name in names {
            let address: IpAddr = name.parse().unwrap();
            let had = all.iter().any(|cidr| gives_out(&ranges(cidr), address));
            let has = left.iter().any(|cidr| gives_out(&ranges(cidr), address));
            prop_assert_eq!(had, has, "{} is given out", name);
        }
    }
}
