//! Why a volume grows, or what it waits for, in words.

use super::flex::Course;
use super::plan::{Verdict, verdict};
use super::view::{View, text};

pub(super) fn reasons(view: &View) -> Vec<String> {
    let claim = &view.claim;
    let (wanted, has) = (text(&claim.spec.resources.requests), text(&claim.status.capacity));
    let asks = format!("The claim asks for {wanted} and has {has}");
    let said = match verdict(view) {
        Verdict::Unbound => "The claim is not bound: there is no volume to grow.".to_owned(),
        Verdict::Satisfied => format!("{asks}: there is nothing to grow."),
        Verdict::Migrated(of) => format!(
            "{asks}. Its volume of {} was migrated to CSI: the resizer of {} is waited for.",
            of.plugin, of.driver
        ),
        Verdict::External => {
            format!(
                "{asks}. Its volume is grown by whoever provides it, a CSI resizer mostly: that is waited for."
            )
        }
        Verdict::Flex(driver, course) => format!("{asks}. Its volume is {driver}'s: {}.", next(&course)),
    };
    vec![said]
}

fn next(course: &Course) -> String {
    match course {
        Course::Finish => "the node has grown it, and the volume's annotation goes".to_owned(),
        Course::Grow(size) => format!("it grows to {size}"),
        Course::Go => "it has grown, and the node is told".to_owned(),
        Course::MarkPending => "the node could not grow its file system, and is told to try again".to_owned(),
        Course::Wait => {
            "it has grown, and its file system grows on the node, when a pod uses it there".to_owned()
        }
    }
}
