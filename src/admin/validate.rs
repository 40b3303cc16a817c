//! What requests must look like, as pure functions that complain about fields.

use std::time::Duration;

use super::errors::Violations;
use super::events::{Filter as EventFilter, Severity, Start};
use super::manager::ControllerName;
use super::overrides::MAX_REASON_BYTES;
use super::proto;
use coxswain_machinery::model::Key;
use coxswain_machinery::wire::text::is_unprintable;

/// The shortest override.
pub const MIN_DURATION: Duration = Duration::from_secs(1);
/// The longest override.
pub const MAX_DURATION: Duration = Duration::from_hours(366 * 24);
/// Values in a filter's list.
pub(super) const MAX_VALUES: usize = 100;
/// Longest name of anything: an object, a controller, a replica.
const MAX_NAME_BYTES: usize = 512;
/// `min_interval` of counts.
/// The most keys of a queue that one call may ask for.
pub const MOST_KEYS: usize = 1000;
const MIN_COUNTS_INTERVAL: Duration = Duration::from_secs(1);

/// A name that must be there.
pub fn name(field: &str, value: &str, violations: &mut Violations) {
    if value.is_empty() {
        violations.add(field, "must not be empty");
    } else {
        optional_name(field, value, violations);
    }
}

/// A name that may be empty.
pub fn optional_name(field: &str, value: &str, violations: &mut Violations) {
    if value.len() > MAX_NAME_BYTES {
        violations.add(field, format!("{} bytes; the maximum is {MAX_NAME_BYTES}", value.len()));
    } else if value.chars().any(char::is_control) {
        violations.add(field, "must not contain control characters");
    }
}

/// Why something is done. It ends up in logs and on screens: lines and control characters have no place in it.
pub fn reason(value: &str, violations: &mut Violations) {
    if value.len() > MAX_REASON_BYTES {
        violations.add("reason", format!("{} bytes; the maximum is {MAX_REASON_BYTES}", value.len()));
    } else if value.chars().any(is_unprintable) {
        violations.add("reason", "must not contain control or format characters");
    }
}

/// For how long an override lasts.
pub fn lasting(value: Option<&prost_types::Duration>, violations: &mut Violations) -> Option<Duration> {
    within("duration", value?, MIN_DURATION, MAX_DURATION, violations)
}

fn within(
    field: &str,
    value: &prost_types::Duration,
    least: Duration,
    most: Duration,
    violations: &mut Violations,
) -> Option<Duration> {
    // The conversion that comes with the message overflows on the smallest of numbers.
    let seconds = u64::try_from(value.seconds).ok();
    let nanos = u32::try_from(value.nanos).ok().filter(|nanos| *nanos < 1_000_000_000);
    let parsed = seconds.zip(nanos).map(|(seconds, nanos)| Duration::new(seconds, nanos));
    let parsed = parsed.filter(|parsed| (least..=most).contains(parsed));
    if parsed.is_none() {
        violations.add(field, format!("must be between {}s and {}s", least.as_secs(), most.as_secs()));
    }
    parsed
}

/// How often mere counts are worth a message.
pub fn counts_interval(
    value: Option<&prost_types::Duration>,
    violations: &mut Violations,
) -> Option<Duration> {
    within("counts_interval", value?, MIN_COUNTS_INTERVAL, Duration::from_hours(24), violations)
}

/// The version expected of one controller; of `*` there is none.
pub fn expected_version(name: &str, version: Option<&str>, violations: &mut Violations) {
    let Some(version) = version else { return };
    if name == "*" {
        violations.add("expected_version", "must be unset for *");
    } else if version.is_empty() || version.len() > 64 {
        violations.add("expected_version", "must have 1 to 64 bytes");
    }
}

/// An object's key.
pub fn object_key(field: &str, key: Option<&proto::ObjectKey>, violations: &mut Violations) -> Key {
    let Some(key) = key else {
        violations.add(field, "must be set");
        return Key::default();
    };
    name(&format!("{field}.name"), &key.name, violations);
    optional_name(&format!("{field}.namespace"), &key.namespace, violations);
    for (part, value) in [("name", &key.name), ("namespace", &key.namespace)] {
        if value.contains('/') {
            violations.add(&format!("{field}.{part}"), "must not contain a slash");
        }
    }
    Key::new(key.namespace.as_str(), key.name.as_str())
}

/// How many keys of a queue.
pub fn max_keys(value: i32, violations: &mut Violations) -> usize {
    match usize::try_from(value) {
        Ok(0) => 20,
        Ok(count) if count <= MOST_KEYS => count,
        _ => {
            violations.add("max_keys", format!("must be between 0 and {MOST_KEYS}"));
            0
        }
    }
}

fn length(field: &str, count: usize, violations: &mut Violations) {
    if count > MAX_VALUES {
        violations.add(field, format!("{count} values; the maximum is {MAX_VALUES}"));
    }
}

/// Values of an enum; the zero value and unknown ones are complained about.
fn enums<E: TryFrom<i32> + Copy>(field: &str, values: &[i32], violations: &mut Violations) -> Vec<E> {
    length(field, values.len(), violations);
    let mut parsed = Vec::new();
    for value in values.iter().take(MAX_VALUES) {
        match E::try_from(*value) {
            Ok(known) if *value != 0 => parsed.push(known),
            _ => violations.add(field, format!("unknown enum value {value}")),
        }
    }
    parsed
}

/// Which controllers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ControllerFilter {
    names: Vec<String>,
    phases: Vec<proto::Phase>,
    sources: Vec<proto::DesiredSource>,
    healths: Vec<proto::Health>,
    enabled: Option<bool>,
}

impl ControllerFilter {
    /// Checks a filter.
    pub fn parse(filter: Option<&proto::ControllerFilter>, violations: &mut Violations) -> Self {
        let Some(filter) = filter else { return Self::default() };
        names("filter.names", &filter.names, violations);
        Self {
            names: filter.names.clone(),
            phases: enums("filter.phases", &filter.phases, violations),
            sources: enums("filter.desired_sources", &filter.desired_sources, violations),
            healths: enums("filter.healths", &filter.healths, violations),
            enabled: filter.desired_enabled,
        }
    }

    /// Whether a controller is wanted.
    pub fn matches(&self, controller: &proto::Controller) -> bool {
        fn any<T: PartialEq>(wanted: &[T], found: &T) -> bool {
            wanted.is_empty() || wanted.contains(found)
        }
        let named = |name: &String| self.names.contains(name);
        let desired = controller.desired.as_ref();
        (self.names.is_empty() || named(&controller.name) || controller.aliases.iter().any(named))
            && any(&self.phases, &controller.phase())
            && any(&self.healths, &controller.health())
            && any(&self.sources, &desired.map(proto::DesiredState::source).unwrap_or_default())
            && self.enabled.is_none_or(|enabled| desired.is_some_and(|desired| desired.enabled == enabled))
    }
}

fn names(field: &str, values: &[String], violations: &mut Violations) {
    length(field, values.len(), violations);
    for value in values.iter().take(MAX_VALUES) {
        name(field, value, violations);
    }
}

/// Which queues.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueFilter {
    controllers: Option<Vec<&'static str>>,
    resource: String,
    busy: bool,
}

impl QueueFilter {
    /// Checks a filter. Unknown controllers match nothing.
    pub fn parse(
        filter: Option<&proto::QueueFilter>,
        controllers: &[ControllerName],
        violations: &mut Violations,
    ) -> Self {
        let Some(filter) = filter else { return Self::default() };
        names("filter.controllers", &filter.controllers, violations);
        optional_name("filter.resource", &filter.resource, violations);
        Self {
            controllers: resolve_all(&filter.controllers, controllers),
            resource: filter.resource.clone(),
            busy: filter.busy,
        }
    }

    /// Whether a queue is wanted.
    pub fn matches(&self, queue: &proto::Queue) -> bool {
        self.controllers.as_ref().is_none_or(|names| names.contains(&queue.controller.as_str()))
            && (self.resource.is_empty() || self.resource == queue.resource)
            && (!self.busy || queue.depth + queue.in_flight + queue.waiting + queue.failing > 0)
    }
}

/// Permanent names by names or aliases; `None` for no restriction. Unknown ones are left out.
fn resolve_all(asked: &[String], controllers: &[ControllerName]) -> Option<Vec<&'static str>> {
    if asked.is_empty() {
        return None;
    }
    Some(asked.iter().filter_map(|name| resolve(name, controllers)).collect())
}

/// A controller's permanent name by that name or an alias.
pub fn resolve(name: &str, controllers: &[ControllerName]) -> Option<&'static str> {
    controllers.iter().find(|each| each.name == name || each.aliases.contains(&name)).map(|each| each.name)
}

/// Which events.
pub fn event_filter(
    filter: Option<&proto::EventFilter>,
    controllers: &[ControllerName],
    violations: &mut Violations,
) -> EventFilter {
    let Some(filter) = filter else { return EventFilter::default() };
    names("filter.controllers", &filter.controllers, violations);
    names("filter.namespaces", &filter.namespaces, violations);
    length("filter.objects", filter.objects.len(), violations);
    for object in filter.objects.iter().take(MAX_VALUES) {
        if *object == proto::ObjectReference::default() {
            violations.add("filter.objects", "must not contain an empty reference");
        }
    }
    let types: Vec<proto::EventType> = enums("filter.types", &filter.types, violations);
    let min_severity = match proto::Severity::try_from(filter.min_severity) {
        Ok(proto::Severity::Unspecified) => None,
        Ok(proto::Severity::Debug) => Some(Severity::Debug),
        Ok(proto::Severity::Info) => Some(Severity::Info),
        Ok(proto::Severity::Warning) => Some(Severity::Warning),
        Ok(proto::Severity::Error) => Some(Severity::Error),
        Err(_) => {
            violations.add("filter.min_severity", format!("unknown enum value {}", filter.min_severity));
            None
        }
    };
    EventFilter {
        controllers: resolve_all(&filter.controllers, controllers).map(|names| names.into_iter().collect()),
        types: (!types.is_empty())
            .then(|| types.into_iter().fold(0, |bits, each| bits | super::events::bit(each))),
        namespaces: (!filter.namespaces.is_empty()).then(|| filter.namespaces.iter().cloned().collect()),
        objects: filter.objects.clone(),
        min_severity,
    }
}

/// Where a stream of events starts.
pub fn event_start(start: Option<&proto::stream_events_request::Start>) -> Start {
    match start {
        None => Start::Live,
        Some(proto::stream_events_request::Start::SinceSequence(since)) => Start::Since(*since),
        Some(proto::stream_events_request::Start::Last(count)) => Start::Last(*count as usize),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints(check: impl FnOnce(&mut Violations)) -> Vec<String> {
        let mut violations = Violations::default();
        check(&mut violations);
        violations.fields().map(str::to_owned).collect()
    }

    fn lasts(seconds: i64, nanos: i32) -> (Option<Duration>, Vec<String>) {
        let mut parsed = None;
        let value = prost_types::Duration { seconds, nanos };
        let complaints = complaints(|violations| parsed = lasting(Some(&value), violations));
        (parsed, complaints)
    }

    #[test]
    fn durations_have_bounds() {
        assert_eq!(lasts(1800, 0), (Some(Duration::from_mins(30)), vec![]));
        for (seconds, nanos) in
            [(0, 0), (0, 999_999_999), (-5, 0), (366 * 86400, 1), (i64::MAX, 0), (i64::MIN, -1)]
        {
            assert_eq!(lasts(seconds, nanos), (None, vec!["duration".to_owned()]), "{seconds} {nanos}");
        }
        assert_eq!(complaints(|violations| assert!(lasting(None, violations).is_none())), [""; 0]);
    }

    #[test]
    fn texts_have_bounds() {
        assert_eq!(complaints(|violations| reason(&"é".repeat(512), violations)), [""; 0]);
        assert_eq!(complaints(|violations| reason(&"x".repeat(1025), violations)), ["reason"]);
        assert_eq!(complaints(|violations| reason("two\nlines", violations)), ["reason"]);
        for odd in ['\u{202e}', '\u{2066}', '\u{200b}', '\u{2028}', '\u{feff}', '\u{e0041}', '\u{7f}'] {
            assert_eq!(
                complaints(|violations| reason(&format!("a{odd}b"), violations)),
                ["reason"],
                "{odd:?}"
            );
        }
        assert_eq!(complaints(|violations| reason("a\u{200d}b café \u{a0}", violations)), [""; 0]);
        assert_eq!(complaints(|violations| name("name", "", violations)), ["name"]);
        assert_eq!(complaints(|violations| name("name", &"x".repeat(513), violations)), ["name"]);
    }

    #[test]
    fn a_version_is_of_one_controller() {
        assert_eq!(
            complaints(|violations| expected_version("*", Some("1"), violations)),
            ["expected_version"]
        );
        assert_eq!(
            complaints(|violations| expected_version("a", Some(""), violations)),
            ["expected_version"]
        );
        assert_eq!(complaints(|violations| expected_version("a", Some("1"), violations)), [""; 0]);
        assert_eq!(complaints(|violations| expected_version("*", None, violations)), [""; 0]);
    }

    #[test]
    fn keys_are_keys() {
        let key =
            |namespace: &str, name: &str| proto::ObjectKey { namespace: namespace.into(), name: name.into() };
        let check = |key: Option<proto::ObjectKey>| {
            complaints(|violations| {
                object_key("object", key.as_ref(), violations);
            })
        };
        assert_eq!(check(None), ["object"]);
        assert_eq!(check(Some(key("a", "b"))), [""; 0]);
        assert_eq!(check(Some(key("", "b"))), [""; 0]);
        assert_eq!(check(Some(key("a/b", ""))), ["object.name", "object.namespace"]);
    }

    #[test]
    fn enums_are_known_and_set() {
        let filter = proto::ControllerFilter { phases: vec![1, 0, 99], ..Default::default() };
        let fields = complaints(|violations| {
            ControllerFilter::parse(Some(&filter), violations);
        });
        assert_eq!(fields, ["filter.phases", "filter.phases"]);
        let filter = proto::EventFilter {
            min_severity: 77,
            types: vec![1; 101],
            objects: vec![proto::ObjectReference::default()],
            ..Default::default()
        };
        let fields = complaints(|violations| {
            event_filter(Some(&filter), &[], violations);
        });
        assert_eq!(fields, ["filter.objects", "filter.types", "filter.min_severity"]);
    }
}
