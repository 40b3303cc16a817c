//! podcertificaterequest-cleaner-controller: deletes PodCertificateRequests a quarter of an hour after they were made, whatever
//! became of them (KEP-4317).
//!
//! Keys are requests. Each is looked at again at the moment at which it is old enough: up to five minutes earlier than with the
//! original, which looks every five minutes, and never before its time. Only their metadata is read, and nothing else is written.
//! Differs: pod-requests-deleted-when-due.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use coxswain_machinery::api::kinds::POD_CERTIFICATE_REQUESTS;
use coxswain_machinery::api::meta::PartialObjectMetadata;
use coxswain_machinery::framework::{
    Build, BuildError, Built, DefaultState, Descriptor, Grant, Loop, LoopSettings, Observation, ObserveError,
    Reads, Room, RoomAdapter, wake,
};
use coxswain_machinery::informer::Lister;
use coxswain_machinery::model::plan::{Tolerate, Verb};
use coxswain_machinery::model::words::time;
use coxswain_machinery::model::{Failure, Key, Plan, Step, Write};

/// How long a request stays.
const STAYS: SignedDuration = SignedDuration::from_mins(15);
/// It is looked at again so soon at the latest, for clocks may be set.
const LATEST_LOOK: Duration = Duration::from_mins(5);

/// The registry's row.
pub const DESCRIPTOR: Descriptor = Descriptor {
    name: "podcertificaterequest-cleaner-controller",
    aliases: &[],
    description: "Deletes PodCertificateRequests 15 minutes after their creation.",
    gates: &["PodCertificateRequest"],
    default: DefaultState::On,
    cloud: false,
    special: false,
    service_account: Some("podcertificaterequestcleaner"),
    event_source: None,
    writes: &[Grant { group: "certificates.k8s.io", resource: "podcertificaterequests", verbs: &["delete"] }],
    build: Some(build),
};

/// Builds the controller.
pub fn build(build: &Build<'_>) -> Result<Built, BuildError> {
    let requests = build.watch::<PartialObjectMetadata>(&POD_CERTIFICATE_REQUESTS);
    let room = Cleaner { requests: requests.lister() };
    Ok(Built {
        loops: vec![Loop {
            queue: "podcertificaterequest_cleaner",
            kind: Some(&POD_CERTIFICATE_REQUESTS),
            settings: LoopSettings::default(),
            wake_ups: vec![requests.wakes(wake::existing())],
            reconcile: Arc::new(RoomAdapter::new(room)),
        }],
    })
}

/// The room: what it reads.
struct Cleaner {
    requests: Lister<PartialObjectMetadata>,
}

/// A request that is not being deleted.
#[derive(Debug)]
struct View {
    request: Arc<PartialObjectMetadata>,
}

impl View {
    /// Returns the time until the request is deleted. A request without a creation time, which only an edit in etcd can make, is deleted
    /// at once, as by kube-controller-manager.
    fn left(&self, now: Timestamp) -> SignedDuration {
        let made = self.request.metadata.creation_timestamp;
        made.map_or(SignedDuration::ZERO, |made| STAYS.saturating_sub(now.duration_since(made.into())))
    }
}

impl Room for Cleaner {
    type View = View;

    fn observe(&self, key: &Key, _: &[Failure], _: &Reads) -> Result<Observation<View>, ObserveError> {
        let request = self.requests.get(key).filter(|request| !request.metadata.is_deleting());
        Ok(request.map(|request| View { request }).into())
    }

    fn plan(view: &View, now: Timestamp) -> Plan {
        let left = view.left(now);
        if left.is_positive() {
            return Plan { requeue_after: Some(left.unsigned_abs().min(LATEST_LOOK)), ..Plan::default() };
        }
        let request = &view.request.metadata;
        let delete = Verb::delete(request.uid.clone());
        let delete = Write {
            tolerate: Tolerate { absent: true, ..Tolerate::default() },
            ..Write::new(&POD_CERTIFICATE_REQUESTS, Key::of(request), delete)
        };
        Plan { steps: vec![Step::Write(delete)], ..Plan::default() }
    }

    fn reasons(view: &View, now: Timestamp) -> Vec<String> {
        let left = view.left(now);
        let when = if view.request.metadata.creation_timestamp.is_none() {
            "has no creationTimestamp; it is deleted now".to_owned()
        } else if left.is_positive() {
            format!("is deleted 15 minutes after its creation, in {}", time(left.unsigned_abs()))
        } else {
            "is older than 15 minutes; it is deleted now".to_owned()
        };
        vec![format!("The request {when}.")]
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use coxswain_machinery::wire::Time;

    const NOW: i64 = 1_800_000_000;

    fn now() -> Timestamp {
        Timestamp::from_second(NOW).unwrap()
    }

    /// A request that was made so many seconds ago.
    fn view(ago: Option<i64>) -> View {
        let mut request = PartialObjectMetadata::default();
        request.metadata.namespace = "default".into();
        request.metadata.name = "pcr".into();
        request.metadata.uid = "uid".into();
        request.metadata.creation_timestamp = ago.and_then(|ago| Time::from_seconds(NOW - ago));
        View { request: Arc::new(request) }
    }

    /// After how many seconds it is looked at again; 0 if it goes.
    fn decided(view: &View) -> Option<u64> {
        let plan = Cleaner::plan(view, now());
        match (plan.requeue_after, plan.steps.len()) {
            (after, 0) => after.map(|after| after.as_secs()),
            (None, 1) => Some(0),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_request_stays_for_a_quarter_of_an_hour() {
        for (ago, expected) in [
            (Some(0), Some(300)),
            (Some(-60), Some(300)),
            (Some(601), Some(299)),
            (Some(899), Some(1)),
            (Some(900), Some(0)),
            (Some(100_000), Some(0)),
            (None, Some(0)),
        ] {
            assert_eq!(decided(&view(ago)), expected, "{ago:?}");
        }
    }

    #[test]
    fn the_one_that_was_judged_is_deleted() {
        let plan = Cleaner::plan(&view(Some(900)), now());
        let [Step::Write(write)] = plan.steps.as_slice() else { panic!("{plan:?}") };
        assert_eq!(write.to_string(), "delete podcertificaterequests.certificates.k8s.io default/pcr");
        assert_eq!(write.verb, Verb::delete("uid".into()));
        assert_eq!(write.tolerate, Tolerate { absent: true, ..Tolerate::default() });
    }

    #[test]
    fn a_request_says_how_long_it_stays() {
        for (ago, expected) in [
            (Some(0), "The request is deleted 15 minutes after its creation, in 15m."),
            (Some(900), "The request is older than 15 minutes; it is deleted now."),
            (None, "The request has no creationTimestamp; it is deleted now."),
        ] {
            assert_eq!(Cleaner::reasons(&view(ago), now()), [expected]);
        }
    }

    proptest! {
        /// Whoever looks again when the plan says so finds it due at its time, and never before.
        #[test]
        fn nothing_goes_early(ago in -10_000..10_000_i64) {
            let looked = decided(&view(Some(ago))).unwrap();
            prop_assert_eq!(looked == 0, ago >= 900);
            prop_assert!(looked <= 300 && ago + i64::try_from(looked).unwrap() <= ago.max(900));
        }
    }
}
