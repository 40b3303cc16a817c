//! Why a volume grows, or what it waits for, in words.

use super::flex::Course;
use super::plan::{Verdict, verdict};
use super::view::{View, text};

pub(super) fn reasons(view: &View) -> Vec<String> {
    let claim = &view.claim;
    let (wanted, has) = (text(&claim.spec.resources.requests), text(&claim.status.capacity));
    let asks = format!("The claim requests {wanted} and has {has}");
    let said = match verdict(view) {
        Verdict::Unbound => "The claim is not bound; it has no volume to expand.".to_owned(),
        Verdict::Satisfied => format!("{asks}; no expansion is needed."),
        Verdict::Migrated(of) => format!(
            "{asks}. Its volume of {} was migrated to CSI; the resizer of {} must expand it.",
            of.plugin, of.driver
        ),
        Verdict::External => {
            format!("{asks}. An external controller, usually a CSI resizer, must expand its volume.")
        }
        Verdict::Flex(driver, course) => {
            format!("{asks}. Its volume uses the driver {driver}: {}.", next(&course))
        }
    };
    vec![said]
}

fn next(course: &Course) -> String {
    match course {
        Course::Finish => "the node has expanded it, and the volume's annotation is removed".to_owned(),
        Course::Grow(size) => format!("it is expanded to {size}"),
        Course::Go => "it is expanded, and the claim is marked for expansion on the node".to_owned(),
        Course::MarkPending => {
            "the node failed to expand its file system, and the claim is marked for a retry".to_owned()
        }
        Course::Wait => "it is expanded, and the node expands its file system when a pod uses it".to_owned(),
    }
}
