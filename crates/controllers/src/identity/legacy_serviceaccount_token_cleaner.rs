//! legacy-serviceaccount-token-cleaner-controller: the token Secrets that old clusters made for every ServiceAccount are marked as
//! invalid when nobody has used them for a period, and deleted when another has passed (KEP-2799).
//!
//! One key, one pass a day and at the start. The API servers note uses in a label, and in a ConfigMap since when they do: a Secret
//! is judged once both have run for the period, by dates. What cannot be told is left alone: Secrets that were made by hand, that
//! belong to nobody who is there, or that a pod names. A Secret that could not be written waits for the next pass. Only these
//! Secrets are written, and only their label.

use std::sync::Arc;
use std::time::Duration;

use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use super::serviceaccount_token::{ACCOUNT_NAME, ACCOUNT_UID, TOKEN_SECRETS, TOKEN_TYPE};
use crate::live_reads::TOKEN_TRACKING;
use coxswain_machinery::api::core::{ConfigMap, Secret, ServiceAccount};
use coxswain_machinery::api::kinds::{CONFIG_MAPS, PODS, SECRETS, SERVICE_ACCOUNTS};
use coxswain_machinery::api::pod::Pod;
use coxswain_machinery::framework::{
    Build, BuildError, Built, DefaultState, Descriptor, Grant, Loop, LoopSettings, Observation, ObserveError,
    Read, Reads, Room, RoomAdapter,
};
use coxswain_machinery::informer::Lister;
use coxswain_machinery::model::plan::{Patch, Tolerate, Verb};
use coxswain_machinery::model::{Failure, Key, Plan, Step, Write};
use coxswain_machinery::random::HashSet;

/// Label: when the token was last used.
const LAST_USED: &str = "kubernetes.io/legacy-token-last-used";
/// Label: since when the token is invalid.
const INVALID_SINCE: &str = "kubernetes.io/legacy-token-invalid-since";
/// The ConfigMap that says, under `since`, from when on uses are noted.
const TRACKING: (&str, &str) = ("kube-system", "kube-apiserver-legacy-service-account-token-tracking");
/// From one pass to the next.
const DAY: Duration = Duration::from_hours(24);

/// The registry's row.
pub const DESCRIPTOR: Descriptor = Descriptor {
    name: "legacy-serviceaccount-token-cleaner-controller",
    aliases: &["legacy-service-account-token-cleaner"],
    description: "Invalidates and later deletes unused service account token Secrets.",
    gates: &[],
    default: DefaultState::On,
    cloud: false,
    special: false,
    service_account: Some("legacy-service-account-token-cleaner"),
    event_source: None,
    writes: &[Grant { group: "", resource: "secrets", verbs: &["delete", "patch"] }],
    build: Some(build),
};

/// Builds the controller.
pub fn build(build: &Build<'_>) -> Result<Built, BuildError> {
    let period = build.config.flags.legacy_service_account_token_clean_up_period;
    if period.is_zero() {
        let why = "failed to init the legacy service account token cleaner: invalid CleanUpPeriod: 0s";
        return Err(BuildError::Invalid(why.to_owned()));
    }
    let secrets = build.watch_selected::<Secret>(&SECRETS, TOKEN_SECRETS);
    let accounts = build.watch::<ServiceAccount>(&SERVICE_ACCOUNTS);
    let pods = build.watch::<Pod>(&PODS);
    let room = Cleaner {
        secrets: secrets.lister(),
        accounts: accounts.lister(),
        pods: pods.lister(),
        period: SignedDuration::try_from(period).unwrap_or(SignedDuration::MAX),
    };
    Ok(Built {
        loops: vec![Loop {
            queue: "legacy_serviceaccount_token_cleaner",
            kind: None,
            settings: LoopSettings::rounds(DAY),
            wake_ups: Vec::new(),
            reconcile: Arc::new(RoomAdapter::new(room)),
        }],
    })
}

/// The room: what it reads.
struct Cleaner {
    secrets: Lister<Secret>,
    accounts: Lister<ServiceAccount>,
    pods: Lister<Pod>,
    period: SignedDuration,
}

/// What a pass rests on.
#[derive(Debug)]
struct View {
    /// What the ConfigMap says, if it does.
    since: Option<Date>,
    period: SignedDuration,
    secrets: Vec<Token>,
}

/// A token Secret.
#[derive(Debug)]
struct Token {
    secret: Arc<Secret>,
    /// Its account, if that is there.
    account: Option<Arc<ServiceAccount>>,
    /// Whether a pod names it.
    is_in_use: bool,
}

/// What becomes of a Secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// It stays as it is.
    Stays,
    /// It is marked as invalid.
    Marked,
    /// It goes.
    Goes,
}

impl Room for Cleaner {
    type View = View;

    fn observe(&self, _: &Key, _: &[Failure], read: &Reads) -> Result<Observation<View>, ObserveError> {
        let tracking = Key::new(TRACKING.0, TRACKING.1);
        let Some(found) = read.object(&CONFIG_MAPS, &tracking) else {
            return Ok(Observation::Needs(vec![TOKEN_TRACKING.of(Read::Object(&CONFIG_MAPS, tracking))]));
        };
        let found = found.map_err(|error| ObserveError::Retry(error.to_string()))?;
        let map = found.and_then(|found| {
            let any: &dyn std::any::Any = &**found;
            any.downcast_ref::<ConfigMap>()
        });
        let since = map.and_then(|map| date(map.data.get("since")?));
        let secrets = if since.is_some() { self.tokens() } else { Vec::new() };
        Ok(Observation::View(View { since, period: self.period, secrets }))
    }

    fn plan(view: &View, now: Timestamp) -> Plan {
        // What fails is tried again tomorrow.
        let mut plan = Plan { requeue_after: Some(DAY), end: true, ..Plan::default() };
        let writes: Vec<Write> =
            view.secrets.iter().filter_map(|token| write(token, view.fate(token, now), now)).collect();
        if !writes.is_empty() {
            plan.steps.push(Step::Each(writes));
        }
        plan
    }

    fn reasons(view: &View, now: Timestamp) -> Vec<String> {
        let Some(limit) = view.limit(now) else {
            return vec![match view.since {
                None => "The start date of token tracking is unknown; no Secret is checked.".to_owned(),
                Some(since) => {
                    format!(
                        "Token use has been tracked only since {since}, for less than the clean-up period; no \
                         Secret is checked."
                    )
                }
            }];
        };
        let of = |fate| view.secrets.iter().filter(|token| view.fate(token, now) == fate).count();
        vec![format!(
            "Existing token Secrets: {}. Unused since {limit}, and marked as invalid now: {}. Marked as invalid \
             before {limit}, and deleted now: {}.",
            view.secrets.len(),
            of(Fate::Marked),
            of(Fate::Goes),
        )]
    }
}

impl Cleaner {
    fn tokens(&self) -> Vec<Token> {
        let secrets = self.secrets.list().into_iter().filter(|secret| secret.r#type == TOKEN_TYPE);
        let pods = self.pods.list();
        let named = pods
            .iter()
            .flat_map(|pod| pod.shape.secrets.iter().map(|secret| (pod.metadata.namespace.as_str(), secret)));
        let named: HashSet<(&str, &str)> =
            named.map(|(namespace, secret)| (namespace, secret.as_str())).collect();
        let tokens = secrets.map(|secret| {
            let meta = &secret.metadata;
            let name = meta.annotations.get(ACCOUNT_NAME).filter(|name| !name.is_empty());
            let account =
                name.and_then(|name| self.accounts.get(&Key::new(meta.namespace.clone(), name.clone())));
            let is_in_use =
                account.is_some() && named.contains(&(meta.namespace.as_str(), meta.name.as_str()));
            Token { secret, account, is_in_use }
        });
        tokens.collect()
    }
}

impl View {
    /// The day by which uses and marks are old; `None` if nothing can be judged yet.
    fn limit(&self, now: Timestamp) -> Option<Date> {
        // Uses on the day itself may have come before.
        let tracked = self.since?.tomorrow().ok()?.to_zoned(TimeZone::UTC).ok()?.timestamp();
        let judged_from = tracked.checked_add(self.period).ok()?;
        (now >= judged_from).then(|| Some(day(now.checked_sub(self.period).ok()?))).flatten()
    }

    fn fate(&self, token: &Token, now: Timestamp) -> Fate {
        let Some(limit) = self.limit(now) else { return Fate::Stays };
        let meta = &token.secret.metadata;
        let is_old = |made: Timestamp| now.checked_sub(self.period).is_ok_and(|then| made < then);
        let made = meta.creation_timestamp.map(Timestamp::from);
        let last_used = meta.labels.get(LAST_USED).map(|label| date(label));
        let was_used = match last_used {
            None => false,
            Some(used) => used.is_none_or(|used| used >= limit),
        };
        if !made.is_none_or(is_old)
            || meta.is_deleting()
            || was_used
            || !token.is_generated()
            || token.is_in_use
        {
            return Fate::Stays;
        }
        match meta.labels.get(INVALID_SINCE).and_then(|label| date(label)) {
            None => Fate::Marked,
            Some(since) if since >= limit => Fate::Stays,
            Some(_) => Fate::Goes,
        }
    }
}

impl Token {
    /// Whether it was made for its account by the cluster: the account is there, and lists it.
    fn is_generated(&self) -> bool {
        let meta = &self.secret.metadata;
        let Some(account) = &self.account else { return false };
        let uid = meta.annotations.get(ACCOUNT_UID).filter(|uid| !uid.is_empty());
        uid.is_none_or(|uid| account.metadata.uid == uid.as_str())
            && account.secrets.iter().any(|listed| listed.name == meta.name)
    }
}

/// What makes it so.
fn write(token: &Token, fate: Fate, now: Timestamp) -> Option<Write> {
    let meta = &token.secret.metadata;
    let verb = match fate {
        Fate::Stays => return None,
        Fate::Marked => Verb::Patch(Patch::Merge(json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {
                "name": meta.name.as_str(),
                "namespace": meta.namespace.as_str(),
                "uid": meta.uid.to_string(),
                // A token may have been used meanwhile.
                "resourceVersion": meta.resource_version.as_str(),
                "labels": { INVALID_SINCE: day(now).to_string() },
            },
        }))),
        Fate::Goes => Verb::delete_as_seen(meta),
    };
    // It has changed or is gone: the next pass will see.
    let tolerate = Tolerate { absent: true, conflict: true, ..Tolerate::default() };
    Some(Write { tolerate, ..Write::new(&SECRETS, Key::of(meta), verb) })
}

/// The day of a moment, in UTC.
fn day(at: Timestamp) -> Date {
    at.to_zoned(TimeZone::UTC).date()
}

/// A day, written `YYYY-MM-DD` and in no other way.
fn date(text: &str) -> Option<Date> {
    let date: Date = text.parse().ok()?;
    (date.to_string() == text).then_some(date)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use coxswain_machinery::api::AnyObject;
    use coxswain_machinery::api::core::ObjectReference;
    use coxswain_machinery::framework::Pass;
    use coxswain_machinery::framework::rig::Rig;
    use coxswain_machinery::options::{Config, Flags};
    use coxswain_machinery::wire::Time;

    const YEAR: SignedDuration = SignedDuration::from_hours(365 * 24);

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn noon() -> Timestamp {
        at("2026-06-15T12:00:00Z")
    }

    /// A Secret of an account that lists it, made long ago, with these labels.
    fn token(labels: &[(&str, &str)]) -> Token {
        let mut secret = Secret { r#type: TOKEN_TYPE.into(), ..Secret::default() };
        secret.metadata.namespace = "default".into();
        secret.metadata.name = "token".into();
        secret.metadata.uid = "uid".into();
        secret.metadata.resource_version = "7".into();
        secret.metadata.creation_timestamp = Time::from_seconds(at("2020-01-01T00:00:00Z").as_second());
        secret.metadata.labels = labels.iter().copied().collect();
        secret.metadata.annotations =
            [(ACCOUNT_NAME, "account"), (ACCOUNT_UID, "account-uid")].into_iter().collect();
        Token { secret: Arc::new(secret), account: Some(account("account-uid")), is_in_use: false }
    }

    fn account(uid: &str) -> Arc<ServiceAccount> {
        let mut account = ServiceAccount::default();
        account.metadata.namespace = "default".into();
        account.metadata.name = "account".into();
        account.metadata.uid = uid.into();
        account.secrets = vec![
            ObjectReference { name: "other".into(), ..ObjectReference::default() },
            ObjectReference { name: "token".into(), ..ObjectReference::default() },
        ];
        Arc::new(account)
    }

    fn changed(change: &dyn Fn(&mut Secret)) -> Token {
        let token = token(&[]);
        let mut secret = (*token.secret).clone();
        change(&mut secret);
        Token { secret: Arc::new(secret), ..token }
    }

    fn view(token: Token) -> View {
        View { since: date("2020-01-01"), period: YEAR, secrets: vec![token] }
    }

    fn fate(token: Token) -> Fate {
        let view = view(token);
        view.fate(&view.secrets[0], noon())
    }

    #[test]
    fn what_nobody_has_used_is_marked_and_then_goes() {
        // A period before noon is noon of 2025-06-15.
        for (labels, expected) in [
            (&[][..], Fate::Marked),
            (&[(LAST_USED, "2025-06-14")], Fate::Marked),
            (&[(LAST_USED, "2025-06-15")], Fate::Stays),
            (&[(LAST_USED, "2026-06-15")], Fate::Stays),
            (&[(LAST_USED, "nonsense")], Fate::Stays),
            (&[(LAST_USED, "2025-6-1")], Fate::Stays),
            (&[(LAST_USED, "")], Fate::Stays),
            (&[(INVALID_SINCE, "2025-06-14")], Fate::Goes),
            (&[(INVALID_SINCE, "2025-06-15")], Fate::Stays),
            (&[(INVALID_SINCE, "2026-06-15")], Fate::Stays),
            (&[(INVALID_SINCE, "nonsense")], Fate::Marked),
            (&[(INVALID_SINCE, "")], Fate::Marked),
            (&[(INVALID_SINCE, "2024-01-01"), (LAST_USED, "2024-01-01")], Fate::Goes),
            (&[(INVALID_SINCE, "2024-01-01"), (LAST_USED, "2026-01-01")], Fate::Stays),
        ] {
            assert_eq!(fate(token(labels)), expected, "{labels:?}");
        }
    }

    #[test]
    fn what_cannot_be_told_stays() {
        let annotated = |annotations: &'static [(&str, &str)]| {
            changed(&|secret| secret.metadata.annotations = annotations.iter().copied().collect())
        };
        let made = |text: &'static str| {
            changed(&|secret| {
                secret.metadata.creation_timestamp = Time::from_seconds(at(text).as_second());
            })
        };
        let deleting = changed(&|secret| secret.metadata.deletion_timestamp = Time::from_seconds(1));
        let hand_made = changed(&|secret| secret.metadata.name = "by-hand".into());
        let of_nobody = Token { account: None, ..token(&[]) };
        let of_namesake = Token { account: Some(account("another")), ..token(&[]) };
        let in_use = Token { is_in_use: true, ..token(&[]) };
        for (what, token, expected) in [
            ("made a period ago", made("2025-06-15T12:00:00Z"), Fate::Stays),
            ("made a moment earlier", made("2025-06-15T11:59:59Z"), Fate::Marked),
            ("being deleted", deleting, Fate::Stays),
            ("not listed by its account", hand_made, Fate::Stays),
            ("of an account that is not there", of_nobody, Fate::Stays),
            ("of an account that was made anew", of_namesake, Fate::Stays),
            ("without the account's UID", annotated(&[(ACCOUNT_NAME, "account")]), Fate::Marked),
            ("with an empty UID", annotated(&[(ACCOUNT_NAME, "account"), (ACCOUNT_UID, "")]), Fate::Marked),
            ("named by a pod", in_use, Fate::Stays),
        ] {
            assert_eq!(fate(token), expected, "{what}");
        }
    }

    #[test]
    fn nothing_is_judged_before_uses_were_noted_for_a_period() {
        for (since, now, expected) in [
            (Some("2025-06-13"), "2026-06-14T00:00:00Z", Fate::Marked),
            // The day after counts.
            (Some("2025-06-13"), "2026-06-13T23:59:59Z", Fate::Stays),
            (None, "2026-06-13T23:59:59Z", Fate::Stays),
        ] {
            let view = View { since: since.and_then(date), ..view(token(&[])) };
            assert_eq!(view.fate(&view.secrets[0], at(now)), expected, "{since:?} {now}");
        }
    }

    #[test]
    fn dates_are_written_in_one_way() {
        for text in
            ["2026-6-1", "2026-06-01T00:00:00Z", "20260601", "2026-13-01", "2026-02-30", "", "+002026-01-01"]
        {
            assert_eq!(date(text), None, "{text}");
        }
        assert_eq!(date("2026-02-28").map(|date| date.to_string()).as_deref(), Some("2026-02-28"));
    }

    #[test]
    fn a_mark_and_a_delete_name_the_version_that_was_judged() {
        let mut all = view(token(&[]));
        all.secrets.push(token(&[(INVALID_SINCE, "2024-01-01")]));
        all.secrets.push(token(&[(LAST_USED, "2026-06-01")]));
        let plan = Cleaner::plan(&all, noon());
        assert_eq!((plan.requeue_after, plan.end, &plan.retry), (Some(DAY), true, &None));
        let [Step::Each(writes)] = plan.steps.as_slice() else { panic!("{plan:?}") };
        let [mark, delete] = writes.as_slice() else { panic!("{writes:?}") };
        let expected = json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {
                "name": "token",
                "namespace": "default",
                "uid": "uid",
                "resourceVersion": "7",
                "labels": { "kubernetes.io/legacy-token-invalid-since": "2026-06-15" },
            },
        });
        assert_eq!(mark.verb, Verb::Patch(Patch::Merge(expected)));
        assert_eq!(mark.tolerate, Tolerate { absent: true, conflict: true, ..Tolerate::default() });
        let expected = Verb::Delete {
            uid: "uid".into(),
            resource_version: Some("7".into()),
            propagation: None,
            grace_period: None,
        };
        assert_eq!(delete.verb, expected);
        assert_eq!(delete.tolerate, Tolerate { absent: true, conflict: true, ..Tolerate::default() });
    }

    /// What the room plans in a namespace with the Secret, its account and a pod that names these Secrets.
    fn planned(since: Option<&str>, named: &[&str]) -> (Plan, usize) {
        let rig = Rig::new(Config::default());
        rig.add(&SECRETS, &*token(&[]).secret).unwrap();
        rig.add(&SERVICE_ACCOUNTS, &*account("account-uid")).unwrap();
        rig.put(&PODS, &pod_that_names(named)).unwrap();
        let built = rig.build(build).unwrap();
        let reconcile = &built.loops[0].reconcile;
        let tracking = Key::new(TRACKING.0, TRACKING.1);
        let Pass::Needs(needs) = reconcile.plan(&Key::EMPTY, &[], &Reads::default(), noon()).unwrap() else {
            panic!("it reads the ConfigMap live")
        };
        assert_eq!(needs, [Read::Object(&CONFIG_MAPS, tracking.clone())]);
        let map = since.map(|since| ConfigMap {
            data: [("since", since)].into_iter().collect(),
            ..ConfigMap::default()
        });
        let found = map.map(|map| Arc::new(map) as AnyObject);
        let reads = Reads::default().with_object(&CONFIG_MAPS, tracking, Ok(found));
        let Pass::Plan(plan, _) = reconcile.plan(&Key::EMPTY, &[], &reads, noon()).unwrap() else {
            panic!("it decides")
        };
        let writes = plan.writes().count();
        (plan, writes)
    }

    /// An encoded pod that names Secrets to pull images with.
    fn pod_that_names(secrets: &[&str]) -> bytes::Bytes {
        use coxswain_machinery::wire::splice::put_bytes;
        let field = |number, content: &[u8]| {
            let mut out = Vec::new();
            put_bytes(&mut out, number, content);
            out
        };
        let metadata = [field(1, b"pod"), field(3, b"default"), field(5, b"pod-uid")].concat();
        let spec: Vec<u8> = secrets.iter().flat_map(|name| field(15, &field(1, name.as_bytes()))).collect();
        [field(1, &metadata), field(2, &spec)].concat().into()
    }

    #[test]
    fn a_pass_reads_the_config_map_and_what_pods_name() {
        let (plan, writes) = planned(Some("2020-01-01"), &["another"]);
        assert_eq!((plan.requeue_after, writes), (Some(DAY), 1));
        for (since, named) in [
            (Some("2020-01-01"), &["token"][..]),
            (Some("2026-01-01"), &[]),
            (Some("nonsense"), &[]),
            (None, &[]),
        ] {
            let (plan, writes) = planned(since, named);
            assert_eq!((plan.requeue_after, writes), (Some(DAY), 0), "{since:?} {named:?}");
        }
    }

    #[test]
    fn a_period_of_nothing_is_refused() {
        let flags =
            Flags { legacy_service_account_token_clean_up_period: Duration::ZERO, ..Flags::default() };
        let error = Rig::new(Config { flags, ..Config::default() }).build(build).map(|_| ()).unwrap_err();
        let expected = "failed to init the legacy service account token cleaner: invalid CleanUpPeriod: 0s";
        assert_eq!(error.to_string(), expected);
    }

    #[test]
    fn a_pass_says_what_it_found() {
        for (view, expected) in [
            (
                View { since: None, ..view(token(&[])) },
                "The start date of token tracking is unknown; no Secret is checked.",
            ),
            (
                View { since: date("2026-01-01"), ..view(token(&[])) },
                "Token use has been tracked only since 2026-01-01, for less than the clean-up period; no Secret is \
                 checked.",
            ),
            (
                view(token(&[])),
                "Existing token Secrets: 1. Unused since 2025-06-15, and marked as invalid now: 1. Marked as invalid \
                 before 2025-06-15, and deleted now: 0.",
            ),
        ] {
            assert_eq!(Cleaner::reasons(&view, noon()), [expected]);
        }
    }

    proptest! {
        /// No token goes that was used within the period, or that was not marked for one.
        #[test]
        fn no_token_goes_that_was_used(
            used in prop::option::of(0..1000_i64),
            marked in prop::option::of(0..1000_i64),
            made in 0..3000_i64,
        ) {
            let ago = |days: i64| day(noon() - SignedDuration::from_hours(24 * days)).to_string();
            let labels: Vec<(&str, String)> =
                [(LAST_USED, used), (INVALID_SINCE, marked)].into_iter()
                    .filter_map(|(label, days)| Some((label, ago(days?)))).collect();
            let mut token = token(&labels.iter().map(|(key, value)| (*key, value.as_str())).collect::<Vec<_>>());
            let mut secret = (*token.secret).clone();
            secret.metadata.creation_timestamp = Time::from_seconds(noon().as_second() - made * 86_400);
            token.secret = Arc::new(secret);
            let fate = fate(token);
            let unused = used.is_none_or(|days| days > 365) && made > 365;
            let expected = match marked {
                _ if !unused => Fate::Stays,
                None => Fate::Marked,
                Some(days) if days > 365 => Fate::Goes,
                Some(_) => Fate::Stays,
            };
            prop_assert_eq!(fate, expected);
        }
    }
}
