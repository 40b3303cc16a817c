//! Tables and properties of the disruption controller.

mod failures;
mod fixtures;
mod keys;
mod overlaps;
mod properties;
mod reasons;
mod replicas;
mod stale;
mod statuses;

use coxswain_machinery::framework::rig::Rig;
use coxswain_machinery::options::Config;

#[test]
fn a_budget_whose_scale_is_read_slowly_holds_up_no_other_budget() {
    let built = Rig::new(Config::default()).build(super::build).unwrap();
    let budgets = built.loops.iter().find(|each| each.queue == "disruption").unwrap();
    assert!(budgets.settings.sets_aside && !budgets.settings.serial);
}
