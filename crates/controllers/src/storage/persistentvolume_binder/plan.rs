//! What the plans of both loops are made of. [`claim`](super::claim) and [`volume`](super::volume) make them.

use coxswain_machinery::model::{Plan, Step};

/// These.
pub(super) fn steps(steps: Vec<Step>) -> Plan {
    Plan { steps, ..Plan::default() }
}

/// These, and another look, to which their answers are known.
pub(super) fn again(steps: Vec<Step>) -> Plan {
    Plan { look_again: true, ..self::steps(steps) }
}

/// The same, if they write anything.
pub(super) fn settled(steps: Vec<Step>) -> Plan {
    let look_again = steps.iter().any(|step| step.writes().next().is_some());
    Plan { look_again, ..self::steps(steps) }
}
