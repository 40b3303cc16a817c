//! The names of the API's enum values: as flags take them, and as tables show them.

use crate::admin::proto;

/// Values of an enum by the names that flags take: `not-implemented`.
pub(in crate::cli) type Choices<E> = Vec<(String, E)>;

/// All values but the zero value. `name` gives the value's name in the proto file, which begins with `prefix`.
fn choices<E: TryFrom<i32> + Copy>(name: fn(&E) -> &'static str, prefix: &str) -> Choices<E> {
    (1..)
        .map_while(|number| E::try_from(number).ok())
        .map(|value| (kebab(name(&value), prefix), value))
        .collect()
}

/// `PHASE_NOT_IMPLEMENTED` as `not-implemented`.
fn kebab(name: &str, prefix: &str) -> String {
    name.strip_prefix(prefix).unwrap_or(name).to_ascii_lowercase().replace('_', "-")
}

/// `PHASE_NOT_IMPLEMENTED` as `NotImplemented`.
fn title(name: &str, prefix: &str) -> String {
    let mut titled = String::new();
    for word in name.strip_prefix(prefix).unwrap_or(name).split('_') {
        let (first, rest) = word.split_at(word.len().min(1));
        titled.push_str(first);
        titled.push_str(&rest.to_ascii_lowercase());
    }
    titled
}

/// What is shown for a number that this version has no name for.
fn unknown(number: i32) -> String {
    format!("Unknown({number})")
}

macro_rules! names {
    ($($(#[$doc:meta])* $choices:ident, $shown:ident: $ty:ident, $prefix:literal, $style:ident;)*) => {$(
        $(#[$doc])*
        pub(in crate::cli) fn $shown(number: i32) -> String {
            match proto::$ty::try_from(number) {
                Ok(value) => $style(value.as_str_name(), $prefix),
                Err(_) => unknown(number),
            }
        }

        /// The values that a flag takes.
        pub(in crate::cli) fn $choices() -> Choices<proto::$ty> {
            choices(proto::$ty::as_str_name, $prefix)
        }
    )*};
}

names! {
    /// What a controller is doing: `Running`.
    phases, phase: Phase, "PHASE_", title;
    /// Whether it is well: `Healthy`.
    healths, health: Health, "HEALTH_", title;
    /// Who says whether it is wanted: `override`.
    sources, source: DesiredSource, "DESIRED_SOURCE_", kebab;
    /// What sort of thing happened: `reconcile-failed`.
    event_types, event_type: EventType, "EVENT_TYPE_", kebab;
    /// How much it matters: `warning`.
    severities, severity: Severity, "SEVERITY_", kebab;
}

/// How a reconcile ended: `done`.
pub(in crate::cli) fn outcome(number: i32) -> String {
    match proto::SyncOutcome::try_from(number) {
        Ok(value) => kebab(value.as_str_name(), "SYNC_OUTCOME_").replace('-', " "),
        Err(_) => unknown(number),
    }
}

/// What became of a step: `Done`.
pub(in crate::cli) fn result(number: i32) -> String {
    match proto::ActionResult::try_from(number) {
        Ok(value) => title(value.as_str_name(), "ACTION_RESULT_"),
        Err(_) => unknown(number),
    }
}
