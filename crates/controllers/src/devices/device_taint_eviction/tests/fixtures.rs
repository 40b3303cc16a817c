//! Claims, slices, rules and pods; stores, and what the API server would answer.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::super::keys::{CLAIMS_BY_POOL, PODS_BY_GROUP, SLICES_BY_POOL, Users};
use super::super::memory::{Note, Timers};
use super::super::view::View;
use super::super::world::Caches;
use super::super::{Controller, rules};
use coxswain_machinery::api::AnyObject;
use coxswain_machinery::api::kinds::{DEVICE_TAINT_RULES, PODS, RESOURCE_CLAIMS, RESOURCE_SLICES};
use coxswain_machinery::api::meta::OwnerReference;
use coxswain_machinery::api::pod::{Pod, PodExtendedResourceClaimStatus, PodResourceClaimStatus};
use coxswain_machinery::api::resource::{
    AllocatedDevice, AllocationResult, Device, DeviceTaint, DeviceTaintRule, DeviceTaintSelector,
    DeviceToleration, ResourceClaim, ResourceClaimConsumer, ResourceSlice, RuleTaint,
};
use coxswain_machinery::api::shape::{PodResourceClaim, PodShape};
use coxswain_machinery::framework::{Memory as _, Observation, Read, Reads, Room as _};
use coxswain_machinery::informer::{Indexed, Lister, Store};
use coxswain_machinery::model::{Key, Plan, Step};
use coxswain_machinery::wire::Time;

/// When taints came.
pub(super) const SINCE: i64 = 1_700_000_000;

/// So many seconds after the taints came.
pub(super) fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(SINCE).unwrap() + SignedDuration::from_secs(seconds)
}

/// `KEY`, `KEY=VALUE` or either with `:EFFECT`; `NoExecute` without.
pub(super) fn taint(text: &str) -> DeviceTaint {
    let (text, effect) = text.split_once(':').unwrap_or((text, "NoExecute"));
    let (key, value) = text.split_once('=').unwrap_or((text, ""));
    DeviceTaint {
        key: key.into(),
        value: value.into(),
        effect: effect.into(),
        time_added: Time::from_seconds(SINCE),
    }
}

/// A toleration of taints of a key with the effect `NoExecute`, for so many seconds; for ever without.
pub(super) fn exists(key: &str, seconds: Option<i64>) -> DeviceToleration {
    DeviceToleration {
        key: key.into(),
        operator: "Exists".into(),
        effect: "NoExecute".into(),
        toleration_seconds: seconds,
        ..DeviceToleration::default()
    }
}

/// A slice of the pool `p`, with these devices and their taints.
pub(super) fn slice(name: &str, generation: i64, devices: &[(&str, &[&str])]) -> ResourceSlice {
    let mut slice = ResourceSlice::default();
    slice.metadata.name = name.into();
    slice.metadata.uid = name.into();
    slice.spec.driver = "d".into();
    slice.spec.pool.name = "p".into();
    slice.spec.pool.generation = generation;
    let device = |(name, taints): &(&str, &[&str])| Device {
        name: (*name).into(),
        taints: taints.iter().map(|text| taint(text)).collect(),
    };
    slice.spec.devices = devices.iter().map(device).collect();
    slice
}

/// The pod `web` on a node, with the claim `gpu` by its spec.
pub(super) fn pod() -> Pod {
    let mut pod = Pod::default();
    pod.metadata.name = "web".into();
    pod.metadata.namespace = "ns".into();
    pod.metadata.uid = "web-uid".into();
    pod.metadata.resource_version = "77".into();
    pod.spec.node_name = "one".into();
    let entry = PodResourceClaim { name: "gpu".into(), claim: Some("gpu".into()), template: None };
    pod.shape = PodShape { resource_claims: vec![entry], ..PodShape::default() }.into();
    pod
}

/// The same with a claim that was made for it.
pub(super) fn pod_with_template() -> Pod {
    let mut pod = pod();
    let entry = PodResourceClaim { name: "gpu".into(), claim: None, template: Some("gpus".into()) };
    pod.shape = PodShape { resource_claims: vec![entry], ..PodShape::default() }.into();
    let made = PodResourceClaimStatus { name: "gpu".into(), resource_claim_name: Some("gpu".into()) };
    pod.status.resource_claim_statuses = [made].into_iter().collect();
    pod
}

/// The same without claims in its spec: the claim was made for an extended resource.
pub(super) fn pod_with_extended_resource() -> Pod {
    let mut pod = pod();
    pod.shape = PodShape::default().into();
    let made = PodExtendedResourceClaimStatus { resource_claim_name: "gpu".into() };
    pod.status.extended_resource_claim_status = Some(Box::new(made));
    pod
}

pub(super) fn consumer(uid: &str) -> ResourceClaimConsumer {
    ResourceClaimConsumer {
        resource: "pods".into(),
        name: "web".into(),
        uid: uid.into(),
        ..ResourceClaimConsumer::default()
    }
}

/// The claim `gpu`, which has the device `a` of the pool `p` and is reserved for the pod.
pub(super) fn claim(tolerations: Vec<DeviceToleration>) -> ResourceClaim {
    let mut claim = ResourceClaim::default();
    claim.metadata.name = "gpu".into();
    claim.metadata.namespace = "ns".into();
    claim.metadata.uid = "gpu-uid".into();
    let device = AllocatedDevice { driver: "d".into(), pool: "p".into(), device: "a".into(), tolerations };
    let mut allocation = AllocationResult::default();
    allocation.devices.results = vec![device];
    claim.status.allocation = Some(Box::new(allocation));
    claim.status.reserved_for = vec![consumer("web-uid")];
    claim
}

/// The same, made for somebody.
pub(super) fn claim_of(kind: &str, name: &str, uid: &str) -> ResourceClaim {
    let mut claim = claim(vec![]);
    claim.metadata.owner_references = vec![OwnerReference {
        kind: kind.into(),
        name: name.into(),
        uid: uid.into(),
        controller: Some(true),
        ..OwnerReference::default()
    }];
    claim
}

/// A rule for devices of these names, `driver/pool/device`, `*` for any; without a selector if none is said.
pub(super) fn rule(selector: Option<[&str; 3]>, effect: &str) -> DeviceTaintRule {
    let mut rule = DeviceTaintRule::default();
    rule.metadata.name = "broken".into();
    rule.metadata.uid = "rule-uid".into();
    rule.metadata.generation = 1;
    let part = |part: &str| (part != "*").then(|| part.into());
    rule.spec.device_selector = selector.map(|[driver, pool, device]| {
        Box::new(DeviceTaintSelector { driver: part(driver), pool: part(pool), device: part(device) })
    });
    rule.spec.taint = RuleTaint {
        key: "broken".into(),
        value: "".into(),
        effect: effect.into(),
        time_added: Time::from_seconds(SINCE),
    };
    rule
}

/// Stores, a memory, and what the API server has that the caches do not know.
pub(super) struct Bench {
    pub(super) room: Controller,
    pub(super) rules: rules::Rules,
    stores: [Arc<Store>; 4],
    /// Instead of what the caches have.
    pub(super) live: Vec<(Read, Option<AnyObject>)>,
}

impl Bench {
    /// The pod, its claim, and a slice with its device.
    pub(super) fn new(claim: ResourceClaim, taints: &[&str]) -> Self {
        let bench = Self::empty(false);
        bench.put(claim);
        bench.put(pod());
        bench.put(slice("s", 1, &[("a", taints)]));
        bench
    }

    pub(super) fn empty(by_groups: bool) -> Self {
        let [pods, claims, slices, rules] = [&PODS, &RESOURCE_CLAIMS, &RESOURCE_SLICES, &DEVICE_TAINT_RULES]
            .map(|kind| Arc::new(Store::new(kind)));
        let caches = Arc::new(Caches {
            pods: Lister::new(Arc::clone(&pods)),
            claims: Lister::new(Arc::clone(&claims)),
            claims_by_pool: Indexed::new(&claims, &CLAIMS_BY_POOL),
            slices: Lister::new(Arc::clone(&slices)),
            slices_by_pool: Indexed::new(&slices, &SLICES_BY_POOL),
            rules: Some(Lister::new(Arc::clone(&rules))),
            by_groups,
        });
        let timers = Arc::new(Timers::default());
        let users = Users { caches: Arc::clone(&caches), by_group: Indexed::new(&pods, &PODS_BY_GROUP) };
        Self {
            room: Controller {
                pods: Lister::new(Arc::clone(&pods)),
                caches: Arc::clone(&caches),
                timers: Arc::clone(&timers),
            },
            rules: rules::Rules { caches, users, timers, told: Arc::default() },
            stores: [pods, claims, slices, rules],
            live: Vec::new(),
        }
    }

    fn store(&self, kind: &str) -> &Store {
        self.stores.iter().find(|store| store.kind().kind == kind).expect("a store")
    }

    pub(super) fn put<T: coxswain_machinery::api::Object>(&self, object: T) {
        let object: AnyObject = Arc::new(object);
        let any: &dyn std::any::Any = &*object;
        let kind = if any.is::<Pod>() {
            "Pod"
        } else if any.is::<ResourceClaim>() {
            "ResourceClaim"
        } else if any.is::<ResourceSlice>() {
            "ResourceSlice"
        } else {
            "DeviceTaintRule"
        };
        self.store(kind).upsert(&object);
    }

    pub(super) fn remove(&self, kind: &str, key: &Key) {
        self.store(kind).remove_key(key, "99");
    }

    /// What the API server answers: what the cache has, unless it is said otherwise.
    fn answer(&self, reads: Reads, read: &Read) -> Reads {
        let Read::Object(kind, key) = read else { panic!("{read:?}") };
        let said = self.live.iter().find(|(said, _)| said == read).map(|(_, object)| object.clone());
        let cached = || self.store(kind.kind).get(key);
        reads.with_object(kind, key.clone(), Ok(said.unwrap_or_else(cached)))
    }

    pub(super) fn view(&self) -> Option<View> {
        let key = Key::new("ns", "web");
        let mut reads = Reads::default();
        for _ in 0..5 {
            match self.room.observe(&key, &[], &reads).unwrap() {
                Observation::View(view) => return Some(view),
                Observation::Nothing => return None,
                Observation::Needs(needs) => {
                    for need in &needs {
                        reads = self.answer(reads, need);
                    }
                }
            }
        }
        panic!("it reads without end")
    }

    /// Reconciles until no other look is asked for; all writes succeed. What was done, and when the pod is looked at again, in
    /// seconds.
    pub(super) fn reconcile(&self, now: Timestamp) -> (Vec<String>, Option<u64>) {
        let mut done = Vec::new();
        for _ in 0..5 {
            let Some(view) = self.view() else { return (vec!["nothing".to_owned()], None) };
            let plan = Controller::plan(&view, now);
            done.extend(told(&plan));
            self.room.timers.commit(&Key::new("ns", "web"), plan.note);
            if !plan.look_again {
                return (done, plan.requeue_after.map(|after| after.as_secs()));
            }
        }
        panic!("it looks without end")
    }

    /// Reconciles the rule: the condition's status, reason and message, if it is written.
    pub(super) fn judge(&self, now: Timestamp) -> Option<[String; 3]> {
        let key = Key::new("", "broken");
        let Observation::View(view) = self.rules.observe(&key, &[], &Reads::default()).unwrap() else {
            return None;
        };
        let plan = rules::Rules::plan(&view, now);
        let written = plan.writes().next().map(|write| {
            let coxswain_machinery::model::plan::Verb::Patch(coxswain_machinery::model::plan::Patch::Apply {
                object,
                ..
            }) = &write.verb
            else {
                panic!("{write}")
            };
            let condition = &object["status"]["conditions"][0];
            ["status", "reason", "message"].map(|field| condition[field].as_str().unwrap().to_owned())
        });
        self.rules.told.commit(&key, plan.note);
        written
    }
}

pub(super) fn told(plan: &Plan<Note>) -> Vec<String> {
    let of_step = |step: &Step| match step {
        Step::Emit(event) => {
            assert_eq!((event.reason, event.warning), ("DeviceTaintManagerEviction", false));
            assert_eq!(event.regarding.uid.to_string(), "web-uid", "the event names the UID");
            event.message.clone()
        }
        Step::Write(write) => format!("{} {}", write.verb.name(), write.kind),
        step => panic!("{step:?}"),
    };
    plan.steps.iter().map(of_step).collect()
}

pub(super) const CANCELLED: &str = "Cancelling deletion";
pub(super) const GOES: [&str; 3] = ["Marking for deletion", "patch pods", "delete pods"];
