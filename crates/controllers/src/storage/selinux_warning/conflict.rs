//! When two pods cannot mount one volume on one node. Pure.

use coxswain_machinery::wire::Str;

/// How a pod mounts a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Mounted {
    /// `USER:ROLE:TYPE:LEVEL`, or empty.
    pub(super) label: Str,
    /// `MountOption` or `Recursive`.
    pub(super) policy: Str,
}

/// In what two pods differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Property {
    /// How labels are changed.
    Policy,
    /// The label.
    Label,
}

impl Property {
    /// As events and the metric say it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Policy => "SELinuxChangePolicy",
            Self::Label => "SELinuxLabel",
        }
    }

    /// What events about it are called.
    pub(super) fn reason(self) -> &'static str {
        match self {
            Self::Policy => "SELinuxChangePolicyConflict",
            Self::Label => "SELinuxLabelConflict",
        }
    }

    /// What a pod has of it.
    pub(super) fn of(self, mounted: &Mounted) -> &Str {
        match self {
            Self::Policy => &mounted.policy,
            Self::Label => &mounted.label,
        }
    }
}

/// In what two pods on one volume differ so that they cannot be on one node.
pub(super) fn conflicts(one: &Mounted, other: &Mounted) -> impl Iterator<Item = Property> {
    let policy = (one.policy != other.policy).then_some(Property::Policy);
    let label = labels_differ(&one.label, &other.label).then_some(Property::Label);
    policy.into_iter().chain(label)
}

/// Parts that only one of both says are no difference, but for the level: it is the node's default then, which is another.
fn labels_differ(one: &str, other: &str) -> bool {
    let ([one_parts @ .., one_level], [other_parts @ .., other_level]) = (parts(one), parts(other));
    let differ = |(one, other): (&str, &str)| !one.is_empty() && !other.is_empty() && one != other;
    one_level != other_level || one_parts.into_iter().zip(other_parts).any(differ)
}

/// User, role, type and level, which has colons of its own.
fn parts(label: &str) -> [&str; 4] {
    let mut parts = label.splitn(4, ':');
    std::array::from_fn(|_| parts.next().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_level_decides_and_other_parts_need_two_values() {
        let table = [
            ("system_u:system_r:container_t:s0:c1,c2", ":::s0:c1,c2", false),
            ("system_u:system_r:container_t:s0:c1,c2", ":::s0:c98,c99", true),
            (":::s0:c1,c2", "", true),
            ("", "", false),
            ("u:r:t:", "", false),
            ("u:r:t:s0", "v:r:t:s0", true),
            ("u:r:t:s0", "u:s:t:s0", true),
            ("u:r:t:s0", "u:r:x:s0", true),
            ("u::t:s0", "u:r::s0", false),
            ("::t:s0", "::x:s0", true),
            ("::t:s0", "::x:", true),
        ];
        for (one, other, expected) in table {
            assert_eq!(labels_differ(one, other), expected, "{one} and {other}");
            assert_eq!(labels_differ(other, one), expected, "{other} and {one}");
        }
    }

    #[test]
    fn label_and_policy_are_two_conflicts() {
        let mounted = |label: &str, policy: &str| Mounted { label: label.into(), policy: policy.into() };
        let between = |one: &Mounted, other: &Mounted| conflicts(one, other).collect::<Vec<_>>();
        let labeled = mounted(":::s0:c1,c2", "MountOption");
        assert_eq!(between(&labeled, &labeled), []);
        assert_eq!(between(&labeled, &mounted(":::s0:c3", "MountOption")), [Property::Label]);
        let recursive = mounted("", "Recursive");
        assert_eq!(between(&labeled, &recursive), [Property::Policy, Property::Label]);
        assert_eq!(between(&mounted("u:::", "MountOption"), &recursive), [Property::Policy]);
        assert_eq!(between(&recursive, &recursive), []);
    }
}
