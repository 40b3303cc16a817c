//! certificatesigningrequest-cleaner-controller: deletes CertificateSigningRequests that have served their purpose, whoever was to
//! sign them.
//!
//! One that nobody decided, or that was approved and not signed, has a day; one that was issued, denied or failed has an hour. Keys
//! are requests. Each is looked at again at the moment at which it may have become old, so one goes up to an hour earlier than with
//! kube-controller-manager, which looks once an hour. A certificate that this process has seen appear stays for an hour from then, however old
//! its approval is: whoever asked for it has that time to fetch it. A delete is of the version that was judged.
//! Differs: requests-deleted-when-due.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;

use super::certificates;
use coxswain_machinery::api::certificates::CertificateSigningRequest;
use coxswain_machinery::api::kinds::CERTIFICATE_SIGNING_REQUESTS;
use coxswain_machinery::framework::{
    Build, BuildError, Built, DeclaredRead, DefaultState, Descriptor, Grant, KeyMap, Loop, LoopSettings,
    Observation, ObserveError, ParserInput, Reads, Room, RoomAdapter, wake,
};
use coxswain_machinery::informer::{Delta, Lister};
use coxswain_machinery::model::clock::Stopwatch;
use coxswain_machinery::model::plan::{Tolerate, Verb};
use coxswain_machinery::model::words::time;
use coxswain_machinery::model::{Failure, Key, Plan, Step, Write};
use coxswain_machinery::random::HashMap;
use coxswain_machinery::wire::{Time, Uid};

/// How long what waits may wait, for a decision or for its certificate.
const WAITING: SignedDuration = SignedDuration::from_hours(24);
/// How long what is done with stays.
const DONE: SignedDuration = SignedDuration::from_hours(1);
/// What is old is older than its limit.
const OLDER: SignedDuration = SignedDuration::from_millis(1);
/// It is looked at again so soon at the latest, for clocks may be set.
const LATEST_LOOK: Duration = Duration::from_hours(1);

/// The registry's row.
pub const DESCRIPTOR: Descriptor = Descriptor {
    name: "certificatesigningrequest-cleaner-controller",
    aliases: &["csrcleaner"],
    description: "Deletes certificate requests that have been decided or have waited too long.",
    gates: &[],
    default: DefaultState::On,
    cloud: false,
    special: false,
    service_account: Some("certificate-controller"),
    event_source: None,
    writes: &[Grant {
        group: "certificates.k8s.io",
        resource: "certificatesigningrequests",
        verbs: &["delete"],
    }],
    build: Some(build),
};

/// Builds the controller.
pub fn build(build: &Build<'_>) -> Result<Built, BuildError> {
    let requests = build.watch::<CertificateSigningRequest>(&CERTIFICATE_SIGNING_REQUESTS);
    let issued = Arc::new(Issued::default());
    let room = Cleaner { requests: requests.lister(), issued: Arc::clone(&issued) };
    Ok(Built {
        loops: vec![Loop {
            queue: "certificate_cleaner",
            kind: Some(&CERTIFICATE_SIGNING_REQUESTS),
            settings: LoopSettings::default(),
            wake_ups: vec![requests.wakes(noting(issued))],
            reconcile: Arc::new(RoomAdapter::new(room)),
        }],
    })
}

/// The room: what it reads.
struct Cleaner {
    requests: Lister<CertificateSigningRequest>,
    issued: Arc<Issued>,
}

/// When certificates appeared that were not there when this process began, by the clock of this process.
#[derive(Debug)]
struct Issued {
    clock: Stopwatch,
    seen: Mutex<HashMap<Key, (Uid, Duration)>>,
}

impl Default for Issued {
    fn default() -> Self {
        Self { clock: Stopwatch::start(), seen: Mutex::default() }
    }
}

impl Issued {
    /// Notes a change of a request.
    fn note(
        &self,
        old: Option<&CertificateSigningRequest>,
        new: Option<&CertificateSigningRequest>,
        initial: bool,
    ) {
        let is_issued = |request: &CertificateSigningRequest| !request.status.certificate.is_empty();
        let Some(new) = new else {
            if let Some(old) = old {
                self.seen.lock().remove(&Key::of(&old.metadata));
            }
            return;
        };
        let uid = &new.metadata.uid;
        let was_issued = old.is_some_and(|old| is_issued(old) && old.metadata.uid == *uid);
        if is_issued(new) && !was_issued && !initial {
            self.seen.lock().insert(Key::of(&new.metadata), (uid.clone(), self.clock.elapsed()));
        }
    }

    /// How long ago the certificate of a request appeared; `None` if it was there before.
    fn age(&self, request: &CertificateSigningRequest) -> Option<Duration> {
        let seen = self.seen.lock();
        let (_, at) =
            seen.get(&Key::of(&request.metadata)).filter(|(uid, _)| *uid == request.metadata.uid)?;
        Some(self.clock.elapsed().saturating_sub(*at))
    }
}

/// A change of a request concerns its own key, and is noted.
fn noting(issued: Arc<Issued>) -> KeyMap {
    let own = wake::existing();
    Arc::new(move |delta: Delta<'_>, add: &mut dyn FnMut(Key)| {
        let (old, new) = delta.typed::<CertificateSigningRequest>();
        issued.note(old, new, delta.initial);
        own(delta, add);
    })
}

/// A request, and when its certificate ends.
#[derive(Debug)]
struct View {
    request: Arc<CertificateSigningRequest>,
    certificate_ends: Option<Timestamp>,
    /// How long ago the certificate appeared; `None` if it was there when this process began.
    issued_for: Option<Duration>,
}

/// From when on a request is to go, and why.
struct Due {
    from: Timestamp,
    why: &'static str,
}

impl Room for Cleaner {
    type View = View;

    fn observe(&self, key: &Key, _: &[Failure], read: &Reads) -> Result<Observation<View>, ObserveError> {
        let request = self.requests.get(key).filter(|request| !request.metadata.is_deleting());
        let Some(request) = request else { return Ok(Observation::Nothing) };
        let text = &request.status.certificate.0;
        if text.is_empty() {
            return Ok(Observation::View(View { request, certificate_ends: None, issued_for: None }));
        }
        let input = ParserInput::of(text);
        let Some(end) = read.parsed::<certificates::End>(&certificates::PARSER, &input) else {
            return Ok(Observation::Needs(vec![DeclaredRead::parsed(&certificates::PARSER, input)]));
        };
        let issued_for = self.issued.age(&request);
        Ok(Observation::View(View { request, certificate_ends: end.0, issued_for }))
    }

    fn plan(view: &View, now: Timestamp) -> Plan {
        let Some(due) = due(view, now) else { return Plan::default() };
        let left = due.from.duration_since(now);
        if left.is_positive() {
            return Plan { requeue_after: Some(left.unsigned_abs().min(LATEST_LOOK)), ..Plan::default() };
        }
        let request = &view.request.metadata;
        let delete = Verb::delete_as_seen(request);
        let delete = Write {
            // It has changed or is gone: the cache will tell.
            tolerate: Tolerate { absent: true, conflict: true, ..Tolerate::default() },
            ..Write::new(&CERTIFICATE_SIGNING_REQUESTS, Key::of(request), delete)
        };
        Plan { steps: vec![Step::Write(delete)], ..Plan::default() }
    }

    fn reasons(view: &View, now: Timestamp) -> Vec<String> {
        let Some(due) = due(view, now) else {
            return vec![
                "No condition of the request limits how long it is kept; the request is not deleted."
                    .to_owned(),
            ];
        };
        let left = due.from.duration_since(now);
        let when = if left.is_positive() {
            format!("it is deleted in {}", time(left.unsigned_abs()))
        } else {
            "it is deleted now".to_owned()
        };
        vec![format!("{}: {when}.", due.why)]
    }
}

impl Due {
    /// The later one.
    fn at_least(self, other: Option<Self>) -> Self {
        other.filter(|other| other.from > self.from).unwrap_or(self)
    }
}

/// Until when the certificate that has appeared can be fetched.
fn fetched_by(view: &View, now: Timestamp) -> Option<Due> {
    let left = DONE.checked_sub(SignedDuration::try_from(view.issued_for?).ok()?)?;
    let from = now.checked_add(left).ok()?.checked_add(OLDER).ok()?;
    Some(Due {
        from,
        why: "The certificate was issued; the request is kept for 1 hour after the certificate was first seen",
    })
}

/// The first moment at which it is to go, by whichever line comes first; `None` if none ever does.
fn due(view: &View, now: Timestamp) -> Option<Due> {
    let status = &view.request.status;
    let is_issued = !status.certificate.is_empty();
    let after = |time: Option<Time>, limit: SignedDuration, why| {
        let time = Timestamp::from(time?);
        Some(Due { from: time.checked_add(limit).ok()?.checked_add(OLDER).ok()?, why })
    };
    let mut all = Vec::new();
    if status.conditions.is_empty() {
        let created = view.request.metadata.creation_timestamp;
        all.extend(after(
            created,
            WAITING,
            "The request is undecided; it is kept for 24 hours after its creation",
        ));
    }
    for condition in &status.conditions {
        let since = condition.last_update_time;
        match condition.r#type.as_str() {
            "Approved" if is_issued => {
                let approved = after(
                    since,
                    DONE,
                    "The certificate was issued; the request is kept for 1 hour after its approval",
                );
                all.extend(approved.map(|due| due.at_least(fetched_by(view, now))));
                let end = view.certificate_ends.and_then(|end| end.checked_add(OLDER).ok());
                all.extend(
                    end.map(|from| Due { from, why: "The request is kept until its certificate expires" }),
                );
            }
            "Approved" => {
                all.extend(after(
                    since,
                    WAITING,
                    "The request is approved and has no certificate; it is kept for 24 hours after its approval",
                ));
            }
            "Denied" => {
                all.extend(after(
                    since,
                    DONE,
                    "The request was denied; it is kept for 1 hour after the denial",
                ));
            }
            "Failed" => {
                all.extend(after(since, DONE, "The request failed; it is kept for 1 hour after the failure"));
            }
            _ => {}
        }
    }
    all.into_iter().min_by_key(|due| due.from)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use coxswain_machinery::api::certificates::CertificateSigningRequestCondition;

    const NOW: i64 = 1_800_000_000;
    const MINUTE: i64 = 60;
    const HOUR: i64 = 3600;

    fn now() -> Timestamp {
        Timestamp::from_second(NOW).unwrap()
    }

    /// A condition that was written so many seconds ago; without a time if `None`.
    fn condition(kind: &str, status: &str, ago: Option<i64>) -> CertificateSigningRequestCondition {
        CertificateSigningRequestCondition {
            r#type: kind.into(),
            status: status.into(),
            last_update_time: ago.and_then(|ago| Time::from_seconds(NOW - ago)),
            ..CertificateSigningRequestCondition::default()
        }
    }

    /// A request that was made so many seconds ago, with a certificate of which it is known when it ends, or that can't be read.
    #[expect(clippy::option_option, reason = "a certificate that can't be read has no end")]
    fn view(
        ago: i64,
        conditions: &[CertificateSigningRequestCondition],
        certificate: Option<Option<i64>>,
    ) -> View {
        let mut request = CertificateSigningRequest::default();
        request.metadata.name = "csr".into();
        request.metadata.uid = "uid".into();
        request.metadata.resource_version = "7".into();
        request.metadata.creation_timestamp = Time::from_seconds(NOW - ago);
        request.status.conditions = conditions.to_vec();
        if certificate.is_some() {
            request.status.certificate = bytes::Bytes::from_static(b"PEM").into();
        }
        let ends = certificate.flatten().map(|left| Timestamp::from_second(NOW + left).unwrap());
        View { request: Arc::new(request), certificate_ends: ends, issued_for: None }
    }

    #[test]
    fn certificate_of_an_old_approval_stays_for_an_hour_from_its_issue() {
        let old = condition("Approved", "True", Some(2 * HOUR));
        let issued_for = |seconds: u64| View {
            issued_for: Some(Duration::from_secs(seconds)),
            ..view(0, std::slice::from_ref(&old), Some(Some(HOUR * 24)))
        };
        assert_eq!(decided(&issued_for(0)), Some(3_600_000));
        assert_eq!(decided(&issued_for(3000)), Some(600_001));
        assert_eq!(decided(&issued_for(3601)), Some(0));
        assert_eq!(decided(&view(0, &[old], Some(Some(HOUR * 24)))), Some(0), "it was there before");
        let approved_later = View {
            issued_for: Some(Duration::from_mins(50)),
            ..view(0, &[condition("Approved", "True", Some(0))], Some(Some(HOUR * 24)))
        };
        assert_eq!(decided(&approved_later), Some(3_600_000));
    }

    #[test]
    fn certificate_counts_as_new_if_it_appears_while_the_process_watches() {
        let request = |uid: &str, is_issued: bool| {
            let mut request = CertificateSigningRequest::default();
            request.metadata.name = "csr".into();
            request.metadata.uid = uid.into();
            if is_issued {
                request.status.certificate = bytes::Bytes::from_static(b"PEM").into();
            }
            request
        };
        let (waiting, issued, other) = (request("a", false), request("a", true), request("b", true));
        let noted = |old: Option<&CertificateSigningRequest>, initial: bool| {
            let all = Issued::default();
            all.note(old, Some(&issued), initial);
            all.age(&issued).is_some()
        };
        assert!(noted(Some(&waiting), false));
        assert!(noted(None, false), "it was created meanwhile");
        assert!(noted(Some(&other), false), "another request of that name had one");
        assert!(!noted(Some(&issued), false));
        assert!(!noted(None, true), "it was there at the start");
        let all = Issued::default();
        all.note(Some(&waiting), Some(&issued), false);
        assert_eq!(all.age(&other), None, "another request of that name");
        all.note(Some(&issued), None, false);
        assert!(all.seen.lock().is_empty());
    }

    /// After how many milliseconds it is looked at again; 0 if it goes.
    fn decided(view: &View) -> Option<u128> {
        let plan = Cleaner::plan(view, now());
        match (plan.requeue_after, plan.steps.len()) {
            (after, 0) => after.map(|after| after.as_millis()),
            (None, 1) => Some(0),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn each_state_has_its_limit() {
        let approved = |ago: i64| condition("Approved", "True", Some(ago));
        let denied = |ago: i64| condition("Denied", "True", Some(ago));
        let failed = |ago: i64| condition("Failed", "True", Some(ago));
        let (day, week, hour) = (24 * HOUR, 168 * HOUR, Some(u128::from(3_600_000_u32)));
        let lasting = Some(Some(week));
        let table: Vec<(&str, View, Option<u128>)> = vec![
            ("new", view(0, &[], None), hour),
            ("a day old", view(day, &[], None), Some(1)),
            ("older", view(day + 1, &[], None), Some(0)),
            ("signed without approval", view(day + 1, &[], lasting), Some(0)),
            ("of a clock that runs ahead", view(-HOUR, &[], None), hour),
            ("approved now, made a week ago", view(week, &[approved(0)], None), hour),
            ("approved an hour ago", view(week, &[approved(HOUR + 1)], None), hour),
            ("approved a day ago", view(week, &[approved(day)], None), Some(1)),
            ("approved for longer", view(week, &[approved(day + 1)], None), Some(0)),
            ("issued now", view(week, &[approved(0)], lasting), Some(3_600_000)),
            ("issued an hour ago", view(0, &[approved(HOUR)], lasting), Some(1)),
            ("issued for longer", view(0, &[approved(HOUR + 1)], lasting), Some(0)),
            ("issued, and ends soon", view(0, &[approved(0)], Some(Some(10 * MINUTE))), Some(600_001)),
            ("issued, and ends now", view(0, &[approved(0)], Some(Some(0))), Some(1)),
            ("issued, and has ended", view(0, &[approved(0)], Some(Some(-1))), Some(0)),
            ("issued, and can't be read", view(0, &[approved(30 * MINUTE)], Some(None)), Some(1_800_001)),
            (
                "ended, not approved",
                view(week, &[condition("Other", "True", Some(week))], Some(Some(-1))),
                None,
            ),
            ("denied", view(0, &[denied(HOUR + 1)], None), Some(0)),
            ("denied lately", view(week, &[denied(HOUR - 60)], None), Some(60_001)),
            ("failed", view(0, &[failed(HOUR + 1)], None), Some(0)),
            ("approved and failed", view(0, &[approved(0), failed(HOUR + 1)], None), Some(0)),
            ("approved and denied", view(0, &[approved(HOUR + 1), denied(0)], None), Some(3_600_000)),
            ("of two the older", view(0, &[denied(0), denied(HOUR + 1)], None), Some(0)),
            ("of another status", view(0, &[condition("Denied", "False", Some(HOUR + 1))], None), Some(0)),
            ("of another type", view(week, &[condition("Other", "True", Some(week))], None), None),
            ("without times", view(week, &[condition("Denied", "True", None)], None), None),
            (
                "approved without a time",
                view(week, &[condition("Approved", "True", None)], Some(Some(60))),
                Some(60_001),
            ),
        ];
        for (what, view, expected) in table {
            // An hour and the moment after it are one look: no look is later than in an hour.
            assert_eq!(decided(&view), expected, "{what}");
        }
    }

    #[test]
    fn what_was_judged_is_deleted() {
        let plan = Cleaner::plan(&view(25 * HOUR, &[], None), now());
        let [Step::Write(write)] = plan.steps.as_slice() else { panic!("{plan:?}") };
        assert_eq!(write.to_string(), "delete certificatesigningrequests.certificates.k8s.io csr");
        let expected = Verb::Delete {
            uid: "uid".into(),
            resource_version: Some("7".into()),
            propagation: None,
            grace_period: None,
        };
        assert_eq!(write.verb, expected);
        assert_eq!(write.tolerate, Tolerate { absent: true, conflict: true, ..Tolerate::default() });
    }

    #[test]
    fn a_request_says_how_long_it_stays() {
        let reasons = |view: &View| Cleaner::reasons(view, now()).join(" ");
        for (view, expected) in [
            (
                view(0, &[], None),
                "The request is undecided; it is kept for 24 hours after its creation: it is deleted in 1d.",
            ),
            (
                view(0, &[condition("Denied", "True", Some(2 * HOUR))], None),
                "The request was denied; it is kept for 1 hour after the denial: it is deleted now.",
            ),
            (
                view(0, &[condition("Other", "True", None)], None),
                "No condition of the request limits how long it is kept; the request is not deleted.",
            ),
        ] {
            assert_eq!(reasons(&view), expected);
        }
    }

    proptest! {
        /// Whoever looks again when the plan says so finds it due in the end, and never before the limits.
        #[test]
        fn nothing_goes_early(
            ago in 0..200_000_i64,
            conditions in prop::collection::vec(
                ("(Approved|Denied|Failed|Other)", prop::option::of(0..200_000_i64)), 0..4),
            certificate in prop::option::of(prop::option::of(-10..10_000_i64)),
        ) {
            let conditions: Vec<_> =
                conditions.iter().map(|(kind, ago)| condition(kind, "True", *ago)).collect();
            let view = view(ago, &conditions, certificate);
            let goes = decided(&view) == Some(0);
            let old = |ago: Option<i64>, limit: i64| ago.is_some_and(|ago| ago > limit);
            let ages: Vec<(&str, Option<i64>)> = conditions
                .iter()
                .map(|each| (each.r#type.as_str(), each.last_update_time.map(|time| NOW - time.seconds())))
                .collect();
            let expected = conditions.is_empty() && ago > 24 * HOUR
                || ages.iter().any(|(kind, age)| match (*kind, certificate) {
                    ("Approved", None) => old(*age, 24 * HOUR),
                    ("Approved", Some(ends)) => old(*age, HOUR) || ends.is_some_and(|left| left < 0),
                    ("Denied" | "Failed", _) => old(*age, HOUR),
                    _ => false,
                });
            prop_assert_eq!(goes, expected);
        }
    }
}
