//! token-cleaner-controller: deletes bootstrap tokens that have ended.
//!
//! Keys are Secrets of the type in `kube-system`, whatever their names. One that will end is looked at again at that very
//! moment; a change of it is heard of at once. A failed delete is tried again after backoff, where the original waits for the
//! Secret to change. It is off unless it is named, and touches no other Secret.
//! Differs: token-deletes-retried.

use std::sync::Arc;

use jiff::Timestamp;

use super::bootstrap_tokens::{Expiry, SELECTOR, is_token};
use coxswain_machinery::api::core::Secret;
use coxswain_machinery::api::kinds::SECRETS;
use coxswain_machinery::framework::{
    Build, BuildError, Built, DefaultState, Descriptor, Grant, Loop, LoopSettings, Observation, ObserveError,
    Reads, Room, RoomAdapter, wake,
};
use coxswain_machinery::informer::Lister;
use coxswain_machinery::model::plan::{Tolerate, Verb};
use coxswain_machinery::model::words::time;
use coxswain_machinery::model::{Failure, Key, Plan, Step, Write};

/// The registry's row.
pub const DESCRIPTOR: Descriptor = Descriptor {
    name: "token-cleaner-controller",
    aliases: &["tokencleaner"],
    description: "Deletes bootstrap tokens that have expired.",
    gates: &[],
    default: DefaultState::Off,
    cloud: false,
    special: false,
    service_account: Some("token-cleaner"),
    event_source: None,
    writes: &[Grant { group: "", resource: "secrets", verbs: &["delete"] }],
    build: Some(build),
};

/// Builds the controller.
pub fn build(build: &Build<'_>) -> Result<Built, BuildError> {
    let secrets = build.watch_selected::<Secret>(&SECRETS, SELECTOR);
    let room = Cleaner { secrets: secrets.lister() };
    Ok(Built {
        loops: vec![Loop {
            queue: "token_cleaner",
            kind: Some(&SECRETS),
            settings: LoopSettings::default(),
            wake_ups: vec![secrets.wakes(wake::existing())],
            reconcile: Arc::new(RoomAdapter::new(room)),
        }],
    })
}

/// The room: what it reads.
struct Cleaner {
    secrets: Lister<Secret>,
}

/// A token, and when it ends.
#[derive(Debug)]
struct View {
    secret: Arc<Secret>,
    expiry: Expiry,
}

impl Room for Cleaner {
    type View = View;

    fn observe(&self, key: &Key, _: &[Failure], _: &Reads) -> Result<Observation<View>, ObserveError> {
        let secret = self.secrets.get(key).filter(|secret| is_token(secret));
        Ok(secret.map(|secret| View { expiry: Expiry::of(&secret), secret }).into())
    }

    fn plan(view: &View, now: Timestamp) -> Plan {
        let mut plan = Plan { requeue_after: view.expiry.left(now), ..Plan::default() };
        let secret = &view.secret.metadata;
        if view.expiry.is_over(now) && !secret.is_deleting() {
            // The one that was judged, as it was judged: one that was made anew under the name stays, and so does one that
            // was prolonged a moment ago.
            let delete = Verb::delete_as_seen(secret);
            plan.steps.push(Step::Write(Write {
                tolerate: Tolerate { absent: true, ..Tolerate::default() },
                ..Write::new(&SECRETS, Key::of(secret), delete)
            }));
        }
        plan
    }

    fn reasons(view: &View, now: Timestamp) -> Vec<String> {
        let what = match view.expiry {
            Expiry::Never => "has no expiration; it is kept".to_owned(),
            Expiry::Unreadable => {
                "has an expiration that is not an RFC 3339 time; it counts as expired and is deleted now"
                    .to_owned()
            }
            Expiry::At(end) => match view.expiry.left(now) {
                None => format!("expired at {end}; it is deleted now"),
                Some(left) => format!("expires at {end}; it is deleted in {}", time(left)),
            },
        };
        vec![format!("The bootstrap token {what}.")]
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::bootstrap_tokens::token;
    use super::*;
    use coxswain_machinery::informer::Store;
    use coxswain_machinery::wire::Time;

    const NAME: &str = "bootstrap-token-abcdef";

    fn now() -> Timestamp {
        "2026-01-01T12:00:00Z".parse().unwrap()
    }

    fn view(secret: Secret) -> View {
        View { expiry: Expiry::of(&secret), secret: Arc::new(secret) }
    }

    fn ends(expiration: &str) -> View {
        view(token(NAME, &[("expiration", expiration)]))
    }

    #[test]
    fn a_token_goes_when_it_has_ended() {
        let in_seconds = |seconds| (Some(Duration::from_secs(seconds)), false);
        for (expiration, (after, goes)) in [
            ("2026-01-01T12:00:00Z", (None, true)),
            ("2026-01-01T11:59:59Z", (None, true)),
            ("2020-01-01T00:00:00Z", (None, true)),
            ("2026-01-01T12:00:05Z", in_seconds(5)),
            ("2026-01-01T15:00:00+01:00", in_seconds(7200)),
            ("2026-01-01T7:00:00Z", (None, true)),
            ("2026-01-01T12:00:05,5Z", (Some(Duration::from_millis(5500)), false)),
            ("soon", (None, true)),
            ("", (None, false)),
        ] {
            let plan = Cleaner::plan(&ends(expiration), now());
            assert_eq!((plan.requeue_after, !plan.is_empty()), (after, goes), "{expiration:?}");
        }
        assert!(Cleaner::plan(&view(token(NAME, &[])), now()).is_empty(), "it does not say");
        // As people write "never", and the last seconds that the time library has.
        let ends_of_time = [
            "9999-12-31T23:59:59Z",
            "9999-12-31T23:59:59+14:00",
            "9999-12-30T22:00:01Z",
            "9999-12-30T22:00:00Z",
        ];
        for expiration in ends_of_time {
            let plan = Cleaner::plan(&ends(expiration), now());
            let left = plan.requeue_after.unwrap_or_default();
            assert!(
                plan.is_empty() && left > Duration::from_hours(24 * 365 * 7900),
                "{expiration}: {left:?}"
            );
        }
    }

    #[test]
    fn the_one_that_was_judged_is_deleted() {
        let mut soon = token(NAME, &[("expiration", "soon")]);
        soon.metadata.resource_version = "7".into();
        let plan = Cleaner::plan(&view(soon), now());
        let [Step::Write(write)] = plan.steps.as_slice() else { panic!("{plan:?}") };
        assert_eq!(write.to_string(), format!("delete secrets kube-system/{NAME}"));
        let delete = Verb::Delete {
            uid: format!("uid-{NAME}").into(),
            resource_version: Some("7".into()),
            propagation: None,
            grace_period: None,
        };
        assert_eq!(write.verb, delete);
        assert_eq!(write.tolerate, Tolerate { absent: true, ..Tolerate::default() });
        let mut going = token("ill-named", &[("expiration", "soon")]);
        assert!(!Cleaner::plan(&view(going.clone()), now()).is_empty(), "names do not count");
        going.metadata.deletion_timestamp = Time::from_seconds(1);
        assert!(Cleaner::plan(&view(going), now()).is_empty(), "it goes already");
    }

    #[test]
    fn only_tokens_of_the_system_are_looked_at() {
        let observed = |change: fn(&mut Secret)| {
            let mut secret = token(NAME, &[("expiration", "soon")]);
            change(&mut secret);
            let store = Arc::new(Store::new(&SECRETS));
            let key = Key::of(&secret.metadata);
            store.upsert(&(Arc::new(secret) as coxswain_machinery::api::AnyObject));
            Cleaner { secrets: Lister::new(store) }.observe(&key, &[], &Reads::default()).unwrap()
        };
        assert!(matches!(observed(|_| {}), Observation::View(_)));
        assert!(matches!(
            observed(|secret| secret.metadata.namespace = "default".into()),
            Observation::Nothing
        ));
        assert!(matches!(observed(|secret| secret.r#type = "Opaque".into()), Observation::Nothing));
    }

    #[test]
    fn a_token_says_until_when_it_stays() {
        let reasons = |view: &View| Cleaner::reasons(view, now()).join(" ");
        for (view, expected) in [
            (view(token(NAME, &[])), "The bootstrap token has no expiration; it is kept."),
            (
                ends("soon"),
                "The bootstrap token has an expiration that is not an RFC 3339 time; it counts as expired and is \
                 deleted now.",
            ),
            (
                ends("2026-01-01T11:00:00Z"),
                "The bootstrap token expired at 2026-01-01T11:00:00Z; it is deleted now.",
            ),
            (
                ends("2026-01-01T12:01:00Z"),
                "The bootstrap token expires at 2026-01-01T12:01:00Z; it is deleted in 1m.",
            ),
        ] {
            assert_eq!(reasons(&view), expected);
        }
    }
}
