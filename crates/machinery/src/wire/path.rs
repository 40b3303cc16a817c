//! Field numbers by name: where something is in an encoded message is said by the path that Kubernetes' documentation
//! uses, and looked up in the declared messages when the program is compiled. A misspelt path does not compile.
//!
//! [`path!`] is a whole path, for edits and [`get`](super::splice::get); [`field!`] is the number of its last field alone.
//! Numbers stand in `message!` declarations only, which a test compares with upstream's definitions.

/// What is declared of an upstream message.
#[derive(Debug)]
pub struct MessageRow {
    /// Full name of the upstream message.
    pub upstream: &'static str,
    /// Its declared fields.
    pub fields: &'static [FieldRow],
}

/// A declared field.
#[derive(Debug)]
pub struct FieldRow {
    /// Upstream's number.
    pub number: u32,
    /// Upstream's name, in snake case.
    pub name: &'static str,
    /// The message that it holds, one or many of them, if that is declared.
    pub message: Option<&'static MessageRow>,
}

/// Where a field is in an encoded message: field numbers from the outside in.
pub type Path = &'static [u32];

impl MessageRow {
    /// The field of this name, in camel case; `None` if it is not declared.
    pub const fn field(&self, name: &str) -> Option<&'static FieldRow> {
        let mut at = 0;
        while at < self.fields.len() {
            if is_same_name(self.fields[at].name, name) {
                return Some(&self.fields[at]);
            }
            at += 1;
        }
        None
    }
}

/// The numbers of the fields of which each is in the message that the one before holds.
///
/// # Panics
/// When one is not declared. It is called while the program is compiled, by [`path!`].
#[expect(clippy::panic, reason = "it is evaluated while the program is compiled, and fails the build")]
pub const fn numbers<const N: usize>(row: &'static MessageRow, names: &[&str]) -> [u32; N] {
    let mut numbers = [0; N];
    let mut message = Some(row);
    let mut at = 0;
    while at < N {
        let Some(within) = message else { panic!("{}", names[at]) };
        let Some(field) = within.field(names[at]) else { panic!("{}", names[at]) };
        numbers[at] = field.number;
        message = field.message;
        at += 1;
    }
    numbers
}

/// Whether `ours`, in snake case and perhaps a raw identifier, is `theirs`, in camel case. Upstream writes abbreviations in
/// capitals (`clusterIP`), which snake case can't tell.
const fn is_same_name(ours: &str, theirs: &str) -> bool {
    let (ours, theirs) = (ours.as_bytes(), theirs.as_bytes());
    let mut our = if ours.len() > 2 && ours[0] == b'r' && ours[1] == b'#' { 2 } else { 0 };
    let mut their = 0;
    while our < ours.len() {
        if ours[our] == b'_' {
            our += 1;
            continue;
        }
        if their == theirs.len() || !ours[our].eq_ignore_ascii_case(&theirs[their]) {
            return false;
        }
        our += 1;
        their += 1;
    }
    their == theirs.len()
}

/// The path of a field of a message, as a [`Path`]: `path!(Deployment, spec.template)`.
#[doc(hidden)]
#[macro_export]
macro_rules! field_path {
    ($message:ty, $($name:tt).+) => {{
        const NAMES: &[&str] = &[$(stringify!($name)),+];
        const NUMBERS: [u32; NAMES.len()] =
            $crate::wire::path::numbers(<$message as $crate::wire::Message>::ROW, NAMES);
        let path: $crate::wire::Path = &NUMBERS;
        path
    }};
}
pub use crate::field_path as path;

/// The number of the last field of a path: `field!(Deployment, spec.template)`.
#[doc(hidden)]
#[macro_export]
macro_rules! field {
    ($message:ty, $($name:tt).+) => {{
        const NAMES: &[&str] = &[$(stringify!($name)),+];
        const NUMBERS: [u32; NAMES.len()] =
            $crate::wire::path::numbers(<$message as $crate::wire::Message>::ROW, NAMES);
        NUMBERS[NUMBERS.len() - 1]
    }};
}
pub use crate::field;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::apps::Deployment;
    use crate::api::core::Service;
    use crate::wire::Message;

    #[test]
    fn paths_are_looked_up_by_upstreams_names() {
        const NUMBER: u32 = field!(Deployment, spec.template);
        assert_eq!(path!(Deployment, metadata.annotations), [1, 12]);
        assert_eq!(path!(Deployment, status.conditions.type), [3, 6, 1]);
        assert_eq!(path!(Deployment, spec.strategy.rollingUpdate.maxSurge), [2, 4, 2, 2]);
        assert_eq!(path!(Service, spec.clusterIP), [2, 3]);
        assert_eq!(NUMBER, 3);
    }

    #[test]
    fn only_whole_names_are_the_same() {
        let same = [("r#type", "type"), ("cluster_ip", "clusterIP"), ("uid", "uid"), ("raw", "raw")];
        let other = [("name", "names"), ("names", "name"), ("generate_name", "name"), ("", "x"), ("x", "")];
        assert!(same.iter().all(|(ours, theirs)| is_same_name(ours, theirs)));
        assert!(!other.iter().any(|(ours, theirs)| is_same_name(ours, theirs)));
        assert!(Deployment::ROW.field("templates").is_none());
    }
}
