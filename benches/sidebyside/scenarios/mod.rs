//! All scenarios: what each needs, what it does, and when it is done.

mod attaching;
mod autoscaling;
mod binding;
mod budgets;
mod churn;
mod crowd;
mod daemonsets;
mod failover;
mod fleet;
mod garbage;
mod idle;
mod jobs;
mod namespaces;
mod nodes;
mod policies;
mod relist;
mod rollouts;
mod schedules;
mod sets;
mod signing;
mod start;
mod statefulsets;

use crate::bench::{Bench, Qps};
use crate::scenario::Scenario;

pub(crate) use start::pods_of;

/// All scenarios, in their order: those that want an empty cluster, and then those that fill it ever more.
pub(crate) fn all(bench: &Bench) -> Vec<Box<dyn Scenario>> {
    let mut all: Vec<Box<dyn Scenario>> = vec![Box::new(idle::Idle::of(bench))];
    let mut levels = start::levels(bench).into_iter();
    all.extend(levels.next().map(|level| Box::new(level) as _));
    all.push(Box::new(rollouts::Rollouts::of(bench, Qps::Usual)));
    all.push(Box::new(rollouts::Rollouts::of(bench, Qps::Unlimited)));
    all.push(Box::new(crowd::Crowded::of(bench)));
    all.push(Box::new(jobs::Jobs::of(bench)));
    all.push(Box::new(jobs::Storm::of(bench)));
    all.push(Box::new(schedules::CronJobs::of(bench)));
    all.push(Box::new(schedules::Cleanup::of(bench)));
    all.push(Box::new(statefulsets::StatefulSets::of(bench)));
    all.push(Box::new(daemonsets::DaemonSets::of(bench)));
    all.extend(churn::all(bench).into_iter().map(|churn| Box::new(churn) as _));
    all.push(Box::new(namespaces::Namespaces::of(bench)));
    all.push(Box::new(garbage::Garbage::of(bench)));
    all.push(Box::new(nodes::NotReady::of(bench)));
    all.push(Box::new(fleet::Fleet::of(bench)));
    all.push(Box::new(fleet::Zone::of(bench)));
    all.push(Box::new(policies::Policies::of(bench)));
    all.push(Box::new(budgets::Budgets::of(bench)));
    all.push(Box::new(autoscaling::Autoscaling::of(bench)));
    all.push(Box::new(signing::Signing::of(bench)));
    all.push(Box::new(binding::Binding::of(bench)));
    all.push(Box::new(attaching::Attach::of(bench)));
    all.push(Box::new(failover::Failover { kill: false }));
    all.push(Box::new(failover::Failover { kill: true }));
    all.extend(levels.map(|level| Box::new(level) as _));
    all.push(Box::new(relist::Relist::of(bench)));
    all
}

/// The names of all.
pub(crate) fn names(bench: &Bench) -> Vec<String> {
    all(bench).iter().map(|scenario| scenario.name()).collect()
}
