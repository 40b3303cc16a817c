//! The time without a write after which a control plane is calm. It is longer where a controller of the list waits before it acts.

use std::time::Duration;

use crate::operation::{Action, Operation};

/// The time before a comparison in the middle of a list. The Job controller batches the changes of pods for a second.
const CALM: Duration = Duration::from_millis(1_300);
/// The time before the last comparison.
const LAST: Duration = Duration::from_secs(3);
/// The last time in a list with Jobs. A Job creates a pod 10 seconds after another failed.
const LAST_OF_JOBS: Duration = Duration::from_secs(11);
/// The time after the deletion of the namespace. The namespace controller begins 5 seconds after the deletion.
const OF_NAMESPACE: Duration = Duration::from_millis(6_500);

/// The time in a list with an autoscaler, which acts every 2 seconds (`plane`).
const OF_AUTOSCALERS: Duration = Duration::from_millis(3_300);

/// Returns the time for the calm after these operations.
pub(crate) fn after(operations: &[Operation], is_last: bool) -> Duration {
    let has =
        |kind: &str| operations.iter().filter_map(Operation::applied).any(|object| object["kind"] == kind);
    let deletes_namespace = operations.iter().any(|operation| match &operation.action {
        Action::Delete(named, _) => named.kind == "Namespace",
        _ => false,
    });
    let mut calm = if is_last { LAST } else { CALM };
    if is_last && (has("Job") || has("CronJob")) {
        calm = calm.max(LAST_OF_JOBS);
    }
    if has("HorizontalPodAutoscaler") {
        calm = calm.max(OF_AUTOSCALERS);
    }
    if deletes_namespace {
        calm = calm.max(OF_NAMESPACE);
    }
    calm
}

#[cfg(test)]
mod tests {
    use super::*;

    fn calm(lines: &str, is_last: bool) -> Duration {
        after(&lines.lines().map(|line| line.parse().expect("an operation")).collect::<Vec<_>>(), is_last)
    }

    #[test]
    fn calm_is_longer_than_the_delays_of_the_controllers_of_a_list() {
        let apply = |kind: &str| format!("user apply {{\"kind\":\"{kind}\"}}");
        assert_eq!(calm("", false), CALM);
        assert_eq!(calm("", true), LAST);
        assert_eq!(calm(&apply("Job"), false), CALM);
        assert_eq!(calm(&apply("CronJob"), true), LAST_OF_JOBS);
        let deletion = "user delete Namespace/NAMESPACE background\nall calm";
        assert_eq!(calm(deletion, false), OF_NAMESPACE);
        assert_eq!(calm(&format!("{}\n{deletion}", apply("Job")), true), LAST_OF_JOBS);
        assert_eq!(calm(&apply("HorizontalPodAutoscaler"), false), OF_AUTOSCALERS);
        assert_eq!(calm("user delete Job/web background", false), CALM);
    }
}
