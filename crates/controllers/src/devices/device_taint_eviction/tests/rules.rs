//! What the status of a rule says.

use std::sync::Arc;

use super::super::keys::own_rule;
use super::fixtures::{Bench, at, claim, exists, pod, rule, slice};
use coxswain_machinery::api::AnyObject;
use coxswain_machinery::api::meta::Condition;
use coxswain_machinery::informer::Delta;
use coxswain_machinery::wire::Time;

fn says(bench: &Bench, seconds: i64) -> String {
    bench.judge(at(seconds)).map_or_else(|| "nothing".to_owned(), |says| says.join(" "))
}

#[test]
fn the_status_says_how_far_it_has_come() {
    let bench = Bench::new(claim(vec![exists("broken", Some(30))]), &[]);
    bench.put(rule(Some(["d", "*", "*"]), "NoExecute"));
    assert_eq!(says(&bench, 0), "True PodsPendingEviction 1 pod needs to be evicted in 1 namespace.");
    let mut terminating = pod();
    terminating.metadata.deletion_timestamp = Time::from_seconds(5);
    bench.put(terminating);
    assert_eq!(says(&bench, 0), "False NotStarted ", "it goes by itself");
    bench.put(pod());
    bench.reconcile(at(30));
    bench.remove("Pod", &coxswain_machinery::model::Key::new("ns", "web"));
    assert_eq!(says(&bench, 31), "False Completed 1 pod evicted since starting the controller.");
    bench.put(rule(Some(["d", "*", "*"]), "NoSchedule"));
    assert_eq!(
        says(&bench, 32),
        "False OtherEffect Eviction only happens for the NoExecute effect. 1 pod evicted since starting the controller."
    );
    bench.put(rule(None, "NoExecute"));
    bench.room.timers.forget_rule(&"rule-uid".into());
    assert_eq!(says(&bench, 33), "False NotStarted ");
}

#[test]
fn a_rule_without_an_effect_tells_once_what_it_would_do() {
    let bench = Bench::new(claim(vec![exists("broken", None)]), &[]);
    bench.put(slice("s", 1, &[("a", &[]), ("b", &[])]));
    bench.put(slice("old", 0, &[("c", &[])]));
    bench.put(rule(Some(["d", "*", "*"]), "None"));
    assert_eq!(
        says(&bench, 0),
        "False NoEffect 2 published devices selected. 1 allocated device selected. 0 pods would be evicted in 0 different \
         namespaces if the effect was NoExecute. This information will not be updated again. Recreate the DeviceTaintRule to \
         trigger an update."
    );
    bench.put(claim(vec![]));
    assert_eq!(says(&bench, 20), "nothing", "it was told");
    let mut changed = rule(Some(["d", "p", "a"]), "None");
    changed.metadata.generation = 2;
    bench.put(changed);
    assert!(says(&bench, 40).contains(
        "1 published device selected. 1 allocated device selected. 1 pod would be evicted in 1 namespace if"
    ));
}

#[test]
fn a_deleted_rule_is_forgotten() {
    let bench = Bench::new(claim(vec![exists("broken", None)]), &[]);
    let rule = rule(Some(["d", "*", "*"]), "None");
    bench.put(rule.clone());
    assert!(says(&bench, 0).contains("NoEffect"));
    let told = &bench.rules.told;
    assert_eq!(told.len(), 1);
    let (own_rule, gone) = (own_rule(Arc::clone(told)), Arc::new(rule) as AnyObject);
    let resync = Delta { old: Some(&gone), new: Some(&gone), initial: false, resync: true };
    own_rule(resync, &mut |_| {});
    assert_eq!(told.len(), 1);
    own_rule(Delta { old: Some(&gone), new: None, initial: false, resync: false }, &mut |_| {});
    assert_eq!(told.len(), 0);
}

#[test]
fn the_same_is_not_written_and_another_only_after_a_pause() {
    let bench = Bench::new(claim(vec![exists("broken", Some(30))]), &[]);
    let held = |reason: &str, message: &str| {
        let mut rule = rule(Some(["d", "*", "*"]), "NoExecute");
        rule.status.conditions = vec![Condition {
            r#type: "EvictionInProgress".into(),
            status: "True".into(),
            reason: reason.into(),
            message: message.into(),
            observed_generation: 1,
            last_transition_time: Time::from_seconds(super::fixtures::SINCE),
        }];
        rule
    };
    let message = "1 pod needs to be evicted in 1 namespace.";
    bench.put(held("PodsPendingEviction", message));
    assert_eq!(says(&bench, 20), "nothing");
    bench.put(held("PodsPendingEviction", "2 pods need to be evicted in 1 namespace."));
    assert_eq!(says(&bench, 9), "nothing", "ten seconds are not over");
    assert_eq!(says(&bench, 10), format!("True PodsPendingEviction {message}"));
    let mut ahead = held("PodsPendingEviction", "2 pods need to be evicted in 1 namespace.");
    ahead.status.conditions[0].last_transition_time = Time::from_seconds(253_402_300_799);
    bench.put(ahead);
    assert_eq!(
        says(&bench, 1),
        format!("True PodsPendingEviction {message}"),
        "a time ahead is not waited for"
    );
    let mut new = held("NotStarted", "");
    new.metadata.generation = 2;
    bench.put(new);
    assert_eq!(says(&bench, 1), format!("True PodsPendingEviction {message}"), "another spec does not wait");
}
