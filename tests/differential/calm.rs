//! The time without a write after which a control plane is calm. It is longer where a controller of the list waits before it acts.

use std::time::Duration;

use crate::operation::{Action, Named, Operation};

/// The time before a comparison in the middle of a list. The Job controller batches the changes of pods for a second.
const CALM: Duration = Duration::from_millis(1_300);
/// The time before the last comparison.
const LAST: Duration = Duration::from_secs(3);
/// The last time in a list with Jobs. A Job creates a pod 10 seconds after another failed.
const LAST_OF_JOBS: Duration = Duration::from_secs(11);
/// The time after the deletion of the namespace. The namespace controller begins 5 seconds after the deletion.
const OF_NAMESPACE: Duration = Duration::from_millis(6_500);

/// The time in a list in which a pod must be ready for a second before it is available.
const OF_AVAILABILITY: Duration = Duration::from_millis(2_800);

/// The time in a list with an autoscaler, which acts every 4 seconds (`plane`).
const OF_AUTOSCALERS: Duration = Duration::from_millis(4_500);

/// The period after which the volume controllers reconcile all volumes, and some time for it. If the worker of claims is busy,
/// kube-controller-manager joins the deletion of a claim and the creation of the next one of its name, and releases the volume then.
const OF_VOLUMES: Duration = Duration::from_millis(15_500);

/// The wait before a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Calm {
    /// The time that passes in any case.
    pub(crate) pause: Duration,
    /// The time without a write.
    pub(crate) quiet: Duration,
    /// Whether an autoscaler may scale in several steps. The pause is then repeated until no number of replicas changes in it.
    pub(crate) is_scaled: bool,
}

/// Returns the calm after these operations.
pub(crate) fn after(operations: &[Operation], is_last: bool) -> Calm {
    let has =
        |kind: &str| operations.iter().filter_map(Operation::applied).any(|object| object["kind"] == kind);
    let deletes_namespace = operations.iter().any(|operation| match &operation.action {
        Action::Delete(named, _) => named.kind == "Namespace",
        _ => false,
    });
    let mut quiet = if is_last { LAST } else { CALM };
    if is_last && (has("Job") || has("CronJob")) {
        quiet = quiet.max(LAST_OF_JOBS);
    }
    if operations.iter().any(|operation| operation.to_string().contains("\"minReadySeconds\":1")) {
        quiet = quiet.max(OF_AVAILABILITY);
    }
    if deletes_namespace {
        quiet = quiet.max(OF_NAMESPACE);
    }
    let pause = if replaces_claim(operations) { OF_VOLUMES } else { Duration::ZERO };
    if has("HorizontalPodAutoscaler") {
        // An autoscaler without metrics writes an event whenever it acts, so there is no longer time without a write.
        return Calm { pause: pause.max(quiet).max(OF_AUTOSCALERS), quiet: CALM, is_scaled: true };
    }
    Calm { pause, quiet, is_scaled: false }
}

/// Returns whether the last round deletes a claim and creates it again.
fn replaces_claim(operations: &[Operation]) -> bool {
    let round = operations.rsplit(|operation| operation.action == Action::Calm).next().unwrap_or_default();
    let mut deleted: Vec<&str> = Vec::new();
    round.iter().any(|operation| match &operation.action {
        Action::Delete(named, _) if named.kind == "PersistentVolumeClaim" => {
            deleted.push(&named.name);
            false
        }
        // Linear: a round has a few operations.
        Action::Apply(object) | Action::Wire(object) => {
            let named = Named::of(object);
            named.kind == "PersistentVolumeClaim" && deleted.contains(&named.name.as_str())
        }
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the times of the calm after these operations.
    fn calm(lines: &str, is_last: bool) -> (Duration, Duration) {
        let calm = after(
            &lines.lines().map(|line| line.parse().expect("an operation")).collect::<Vec<_>>(),
            is_last,
        );
        (calm.pause, calm.quiet)
    }

    #[test]
    fn calm_is_longer_than_the_delays_of_the_controllers_of_a_list() {
        let apply = |kind: &str| format!("user apply {{\"kind\":\"{kind}\"}}");
        let no = Duration::ZERO;
        assert_eq!(calm("", false), (no, CALM));
        assert_eq!(calm("", true), (no, LAST));
        assert_eq!(calm(&apply("Job"), false), (no, CALM));
        assert_eq!(calm(&apply("CronJob"), true), (no, LAST_OF_JOBS));
        let deletion = "user delete Namespace/NAMESPACE background\nall calm";
        assert_eq!(calm(deletion, false), (no, OF_NAMESPACE));
        assert_eq!(calm(&format!("{}\n{deletion}", apply("Job")), true), (no, LAST_OF_JOBS));
        assert_eq!(calm("user delete Job/web background", false), (no, CALM));
        let claim = |name: &str| {
            format!("user apply {{\"kind\":\"PersistentVolumeClaim\",\"metadata\":{{\"name\":\"{name}\"}}}}")
        };
        let deletion = "user delete PersistentVolumeClaim/web background";
        assert_eq!(calm(&format!("{deletion}\n{}", claim("web")), false), (OF_VOLUMES, CALM));
        assert_eq!(calm(&format!("{deletion}\n{}", claim("db")), false), (no, CALM));
        assert_eq!(calm(&format!("{}\n{deletion}", claim("web")), false), (no, CALM));
        assert_eq!(calm(&format!("{deletion}\nall calm\n{}", claim("web")), false), (no, CALM));
        let availability = "other patch Deployment/web {\"spec\":{\"minReadySeconds\":1}}";
        assert_eq!(calm(availability, false), (no, OF_AVAILABILITY));
        let autoscaler = apply("HorizontalPodAutoscaler");
        assert_eq!(calm(&autoscaler, false), (OF_AUTOSCALERS, CALM));
        assert_eq!(calm(&format!("{}\n{autoscaler}", apply("Job")), true), (LAST_OF_JOBS, CALM));
    }
}
