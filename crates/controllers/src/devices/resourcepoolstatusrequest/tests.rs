//! Tables of the plans, on stores that are filled by hand.

use super::plan::plan;
use super::*;
use coxswain_machinery::api::meta::Condition;
use coxswain_machinery::api::resource::{
    AllocatedDevice, AllocationResult, Device, DeviceAllocationResult, PoolStatus,
    ResourcePoolStatusRequestStatus,
};
use coxswain_machinery::api::{AnyObject, Object as _};
use coxswain_machinery::executor::{ActionResult, planned};
use coxswain_machinery::framework::{Meter as _, Outcome, ReconcileEnd, RoomMetrics};
use coxswain_machinery::informer::{Store, downcast};
use coxswain_machinery::model::plan::{Cooldown, Verb};
use coxswain_machinery::telemetry::Registry;
use coxswain_machinery::wire::{Message as _, Time};

const NOW: i64 = 1_700_000_000;

fn now() -> Timestamp {
    Timestamp::from_second(NOW).unwrap()
}

fn request(change: impl FnOnce(&mut ResourcePoolStatusRequest)) -> ResourcePoolStatusRequest {
    let mut request = ResourcePoolStatusRequest::default();
    request.metadata.name = "ask".into();
    request.metadata.uid = "uid".into();
    request.metadata.resource_version = "7".into();
    request.metadata.creation_timestamp = Time::from_seconds(NOW);
    request.spec.driver = "d".into();
    change(&mut request);
    request
}

/// A slice of a pool, of its generation, one of so many, on a node, with so many devices.
fn slice(name: &str, pool: &str, generation: i64, of: i64, node: &str, devices: usize) -> ResourceSlice {
    let mut slice = ResourceSlice::default();
    slice.metadata.name = name.into();
    slice.spec.driver = "d".into();
    slice.spec.pool.name = pool.into();
    slice.spec.pool.generation = generation;
    slice.spec.pool.resource_slice_count = of;
    slice.spec.node_name = node.into();
    slice.spec.devices = vec![Device::default(); devices];
    slice
}

fn claim(namespace: &str, devices: &[(&str, &str)]) -> ResourceClaim {
    let mut claim = ResourceClaim::default();
    claim.metadata.namespace = namespace.into();
    claim.metadata.name = "claim".into();
    let device = |(driver, pool): &(&str, &str)| AllocatedDevice {
        driver: (*driver).into(),
        pool: (*pool).into(),
        ..AllocatedDevice::default()
    };
    let results = devices.iter().map(device).collect();
    claim.status.allocation =
        Some(Box::new(AllocationResult { devices: DeviceAllocationResult { results } }));
    claim
}

fn view(
    request: &ResourcePoolStatusRequest,
    slices: &[ResourceSlice],
    claims: &[ResourceClaim],
) -> Option<View> {
    let [requests, known, given] = [&RESOURCE_POOL_STATUS_REQUESTS, &RESOURCE_SLICES, &RESOURCE_CLAIMS]
        .map(|kind| Arc::new(Store::new(kind)));
    requests.upsert(&(RESOURCE_POOL_STATUS_REQUESTS.decode)(&request.to_bytes().into()).unwrap());
    for slice in slices {
        known.upsert(&(Arc::new(slice.clone()) as AnyObject));
    }
    for claim in claims {
        given.upsert(&(Arc::new(claim.clone()) as AnyObject));
    }
    let room = Answers {
        requests: Lister::new(requests),
        slices: Indexed::new(&known, &BY_DRIVER),
        claims: Lister::new(given),
    };
    view::observe(&room, &Key::of(&request.metadata))
}

/// The answer; `None` if there is none.
fn answer(
    request: &ResourcePoolStatusRequest,
    slices: &[ResourceSlice],
    claims: &[ResourceClaim],
) -> Option<ResourcePoolStatusRequestStatus> {
    let plan = plan(&view(request, slices, claims)?, now());
    let write = plan.writes().next()?;
    assert_eq!((write.subresource, write.key.to_string().as_str()), ("status", "ask"));
    let Verb::Update(bytes) = &write.verb else { panic!("{write}") };
    let answered: Arc<ResourcePoolStatusRequest> =
        downcast((RESOURCE_POOL_STATUS_REQUESTS.decode)(bytes).unwrap()).unwrap();
    assert_eq!(answered.metadata.resource_version, "7");
    Some(*answered.status.clone().unwrap())
}

/// Name, generation, slices, node, total, allocated and available devices of each pool.
fn pools(status: &ResourcePoolStatusRequestStatus) -> Vec<String> {
    let pool = |pool: &PoolStatus| {
        assert_eq!((pool.driver.as_str(), pool.unavailable_devices), ("d", Some(0)), "zeroes are written");
        let numbers =
            [pool.resource_slice_count, pool.total_devices, pool.allocated_devices, pool.available_devices];
        let numbers: Vec<String> = numbers.map(|number| number.unwrap().to_string()).to_vec();
        let node = pool.node_name.as_deref().unwrap_or("-");
        format!("{} {} {node} {}", pool.pool_name, pool.generation, numbers.join(" "))
    };
    status.pools.iter().map(pool).collect()
}

#[test]
fn the_pools_of_a_driver_are_told_in_order() {
    let slices = [
        slice("1", "b", 1, 1, "n1", 2),
        slice("2", "a", 3, 2, "n1", 4),
        slice("3", "a", 3, 2, "n2", 1),
        slice("4", "c", 1, 2, "n2", 0),
        slice("5", "c", 1, 2, "n2", 0),
        slice("6", "d", 1, 1, "", 1),
        ResourceSlice {
            spec: coxswain_machinery::api::resource::ResourceSliceSpec {
                driver: "other".into(),
                ..slice("7", "a", 9, 1, "", 9).spec
            },
            ..slice("7", "a", 9, 1, "", 9)
        },
    ];
    let told = answer(&request(|_| {}), &slices, &[]).unwrap();
    assert_eq!(pools(&told), ["a 3 - 2 5 0 5", "b 1 n1 1 2 0 2", "c 1 n2 2 0 0 0", "d 1 - 1 1 0 1"]);
    assert_eq!(told.pool_count, Some(4));
    let [complete] = told.conditions.as_slice() else { panic!("{told:?}") };
    assert_eq!(
        [&*complete.r#type, &*complete.status, &*complete.reason, &*complete.message],
        ["Complete", "True", "CalculationComplete", "Calculated status for 4 pools"]
    );
    assert_eq!((complete.last_transition_time, complete.observed_generation), (Time::from_seconds(NOW), 0));
    let one = answer(&request(|request| request.spec.pool_name = Some("b".into())), &slices, &[]).unwrap();
    assert_eq!((pools(&one).len(), one.pool_count), (1, Some(1)));
    for nobody in [
        request(|request| request.spec.driver = "x".into()),
        request(|request| request.spec.pool_name = Some("x".into())),
    ] {
        let told = answer(&nobody, &slices, &[]).unwrap();
        assert_eq!((told.pools.len(), told.pool_count), (0, Some(0)));
        assert_eq!(told.conditions[0].message, "Calculated status for 0 pools");
    }
}

#[test]
fn only_the_newest_generation_counts_even_if_slices_of_it_are_missing() {
    let old = [slice("1", "a", 1, 1, "n", 4)];
    let newer = [slice("2", "a", 2, 1, "n", 1)];
    for slices in [[&old[..], &newer].concat(), [&newer[..], &old].concat()] {
        assert_eq!(pools(&answer(&request(|_| {}), &slices, &[]).unwrap()), ["a 2 n 1 1 0 1"]);
    }
    let incomplete = [slice("2", "a", 2, 2, "n", 1)];
    assert_eq!(answer(&request(|_| {}), &[&old[..], &incomplete].concat(), &[]), None);
}

#[test]
fn an_incomplete_pool_holds_up_the_request_unless_the_limit_cuts_it_off() {
    let slices = [slice("1", "a", 1, 1, "", 1), slice("2", "b", 1, 1, "", 1), slice("3", "c", 1, 2, "", 1)];
    assert_eq!(answer(&request(|_| {}), &slices, &[]), None);
    let limited = |limit| request(|request| request.spec.limit = Some(limit));
    let told = answer(&limited(2), &slices, &[]).unwrap();
    assert_eq!((told.pools.len(), told.pool_count), (2, Some(3)), "the count comes before the cut");
    assert_eq!(told.conditions[0].message, "Calculated status for 2 pools");
    assert_eq!(answer(&limited(3), &slices, &[]), None);
    let waiting = plan(&view(&limited(3), &slices, &[]).unwrap(), now());
    assert_eq!(waiting.requeue_after, Some(Duration::from_mins(1)));
    let many: Vec<ResourceSlice> =
        (0..101).map(|at| slice(&at.to_string(), &format!("{at:03}"), 1, 1, "", 1)).collect();
    let told = answer(&request(|_| {}), &many, &[]).unwrap();
    assert_eq!((told.pools.len(), told.pool_count), (100, Some(101)));
}

#[test]
fn request_is_answered_after_a_minute_although_slices_are_missing() {
    let slices = [slice("1", "a", 1, 1, "n", 1), slice("2", "b", 3, 2, "n", 1)];
    let aged =
        |seconds| request(|request| request.metadata.creation_timestamp = Time::from_seconds(NOW - seconds));
    assert_eq!(answer(&aged(59), &slices, &[]), None);
    let told = answer(&aged(60), &slices, &[]).unwrap();
    assert_eq!((told.pools.len(), told.pool_count), (2, Some(2)));
    assert_eq!((told.pools[0].total_devices, told.pools[0].validation_error.clone()), (Some(1), None));
    let error = "pool d/b is incomplete: observed 1/2 slices at generation 3";
    let expected = PoolStatus {
        driver: "d".into(),
        pool_name: "b".into(),
        generation: 3,
        validation_error: Some(error.into()),
        ..PoolStatus::default()
    };
    assert_eq!(told.pools[1], expected);
    // The clock of the API server is ahead.
    let young = plan(&view(&aged(-500), &slices, &[]).unwrap(), now());
    assert_eq!(young.requeue_after, Some(Duration::from_mins(1)));
}

#[test]
fn devices_of_claims_anywhere_count_and_never_make_less_than_none() {
    let slices = [slice("1", "a", 1, 1, "n", 3), slice("2", "b", 1, 1, "n", 1)];
    let claims = [
        claim("ns", &[("d", "a"), ("d", "b"), ("other", "a"), ("d", "gone")]),
        claim("elsewhere", &[("d", "b"), ("d", "b")]),
    ];
    assert_eq!(
        pools(&answer(&request(|_| {}), &slices, &claims).unwrap()),
        ["a 1 n 1 3 1 2", "b 1 n 1 1 3 0"]
    );
}

#[test]
fn a_request_is_answered_once() {
    let answered = request(|request| request.status = Some(Box::default()));
    assert!(view(&answered, &[], &[]).is_none());
    let woken = |request: ResourcePoolStatusRequest, is_gone: bool| {
        let object = Arc::new(request) as AnyObject;
        let (old, new) = if is_gone { (Some(&object), None) } else { (None, Some(&object)) };
        let mut keys = 0;
        unanswered()(Delta { old, new, initial: false, resync: false }, &mut |_| keys += 1);
        keys
    };
    assert_eq!(
        [woken(request(|_| {}), false), woken(request(|_| {}), true), woken(answered, false)],
        [1, 0, 0]
    );
}

#[test]
fn a_slice_wakes_the_requests_that_wait_for_it() {
    let requests = Arc::new(Store::new(&RESOURCE_POOL_STATUS_REQUESTS));
    for (name, driver, status) in
        [("waits", "d", None), ("answered", "d", Some(Box::default())), ("other", "x", None)]
    {
        let request = request(|request| {
            request.metadata.name = name.into();
            request.spec.driver = driver.into();
            request.status = status;
        });
        requests.upsert(&(Arc::new(request) as AnyObject));
    }
    let slice: AnyObject = Arc::new(slice("1", "a", 1, 2, "", 1));
    let map = requests_that_wait(Lister::new(requests));
    for (old, new, initial, expected) in
        [(None, Some(&slice), false, 1), (Some(&slice), None, false, 1), (None, Some(&slice), true, 0)]
    {
        let mut keys = Vec::new();
        map(Delta { old, new, initial, resync: false }, &mut |key| keys.push(key.name.to_string()));
        assert_eq!(keys, vec!["waits"; expected]);
    }
}

#[test]
fn requests_go_an_hour_after_their_answer_or_a_day_after_they_were_asked() {
    let condition = |kind: &str, age: i64| Condition {
        r#type: kind.into(),
        last_transition_time: Time::from_seconds(NOW - age),
        ..Condition::default()
    };
    let answered = |conditions: Vec<Condition>| {
        Some(Box::new(ResourcePoolStatusRequestStatus {
            conditions,
            ..ResourcePoolStatusRequestStatus::default()
        }))
    };
    let day = 24 * 3600;
    for (what, age, status, goes) in [
        ("waits", day, None, false),
        ("has waited", day + 1, None, true),
        ("was just answered", day + 1, answered(vec![condition("Complete", 3600)]), false),
        ("was answered", 4000, answered(vec![condition("Other", 1), condition("Complete", 3601)]), true),
        ("has failed", 4000, answered(vec![condition("Failed", 3601), condition("Complete", 1)]), true),
        ("does not say when, and is old", 3601, answered(vec![]), true),
        ("does not say when, and is new", 3600, answered(vec![]), false),
    ] {
        let request = Arc::new(request(|request| {
            request.metadata.creation_timestamp = Time::from_seconds(NOW - age);
            request.status = status;
        }));
        let plan = Cleanup::plan(&vec![Arc::clone(&request)], now());
        assert_eq!(plan.requeue_after, Some(Duration::from_mins(10)));
        let deletes: Vec<_> = plan.writes().map(|write| (&write.verb, write.tolerate.absent)).collect();
        let expected = Verb::delete(request.meta().uid.clone());
        assert_eq!(deletes, if goes { vec![(&expected, true)] } else { vec![] }, "one that {what}");
        let said = Cleanup::reasons(&vec![request], now()).remove(0);
        assert_eq!(said.starts_with("ask is deleted"), goes, "{said}");
    }
}

#[test]
fn answers_are_counted_by_driver_and_so_are_those_that_fail() {
    let registry = Registry::new();
    let metrics = Metrics::register(&RoomMetrics::new(registry.clone())).unwrap();
    let (plan, note) = plan(&view(&request(|_| {}), &[], &[]).unwrap(), now()).into_parts();
    let outcome = Outcome::Done { writes: 1, requeue_after: None, cooldown: Cooldown::NONE };
    let key = Key::new("", "ask");
    for result in [ActionResult::Done, ActionResult::Failed("no".to_owned()), ActionResult::Planned] {
        let mut actions = planned(&plan);
        actions[0].result = result;
        metrics.planned(&key, &note);
        metrics.ended(
            &key,
            ReconcileEnd { outcome: &outcome, actions: &actions, took: Duration::from_millis(3) },
        );
    }
    metrics.planned(&key, &Note::default());
    metrics.ended(&key, ReconcileEnd { outcome: &outcome, actions: &[], took: Duration::ZERO });
    let families = registry.gather();
    let metric = |name: &str| {
        let family = families.iter().find(|family| family.name().ends_with(name)).unwrap();
        let metric = &family.get_metric()[0];
        assert_eq!(metric.get_label()[0].value(), "d");
        (metric.get_counter().get_value(), metric.get_histogram().get_sample_count())
    };
    assert!((metric("requests_processed_total").0 - 2.0).abs() < 0.1);
    assert!((metric("request_processing_errors_total").0 - 1.0).abs() < 0.1);
    assert_eq!(metric("request_processing_duration_seconds").1, 2);
}

#[test]
fn it_says_what_a_request_waits_for() {
    let said = |slices: &[ResourceSlice]| {
        Answers::reasons(&view(&request(|_| {}), slices, &[]).unwrap(), now()).join(" ")
    };
    let told = said(&[slice("1", "a", 2, 3, "", 1)]);
    assert_eq!(
        told,
        "The pool a has 1 of 3 slices of generation 2. The request is completed when all slices exist, or in 1m."
    );
    assert_eq!(
        said(&[slice("1", "a", 2, 1, "", 1)]),
        "1 pool of the driver d matches the request; the status lists 1."
    );
    assert!(said(&[]).starts_with("no pools of the driver d match the request"));
}
