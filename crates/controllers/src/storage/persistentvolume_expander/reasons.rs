//! Why a volume grows, or what it waits for, in words.

use super::flex::Course;
use super::plan::{Verdict, verdict};
use super::view::{View, text};

pub(super) fn reasons(view: &View) -> Vec<String> {
    let claim = &view.claim;
    let (wanted, has) = (text(&claim.spec.resources.requests), text(&claim.status.capacity));
    let asks = format!("The claim requests {wanted} and has a capacity of {has}");
    let said = match verdict(view) {
        Verdict::Unbound => "The claim is not bound; it has no volume to expand.".to_owned(),
        Verdict::Satisfied => format!("{asks}; no expansion is needed."),
        Verdict::Migrated(of) => format!(
            "{asks}. The volume of the claim uses {}, which was migrated to CSI; the resizer of {} must expand the \
             volume.",
            of.plugin, of.driver
        ),
        Verdict::External => {
            format!(
                "{asks}. An external controller, usually a CSI resizer, must expand the volume of the claim."
            )
        }
        Verdict::Flex(driver, course) => {
            format!("{asks}. The volume of the claim uses the driver {driver}: {}.", next(&course))
        }
    };
    vec![said]
}

fn next(course: &Course) -> String {
    match course {
        Course::Finish => {
            "the node has expanded the volume, and the volume's annotation is removed".to_owned()
        }
        Course::Grow(size) => format!("the volume is expanded to {size}"),
        Course::Go => "the volume is expanded, and the claim is marked for expansion on the node".to_owned(),
        Course::MarkPending => {
            "the node failed to expand the file system of the volume, and the claim is marked for a retry"
                .to_owned()
        }
        Course::Wait => {
            "the volume is expanded, and the node expands the file system of the volume when a pod uses \
                         the volume"
                .to_owned()
        }
    }
}
