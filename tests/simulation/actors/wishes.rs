//! What users wish for: the objects that they create.

use serde_json::{Value as Json, json};

use crate::invariants::KEEPSAKE;
use apiserver_model::dice::Dice;

/// A class of which there is no object: volumes of it are made by hand.
pub(super) const BY_HAND: &str = "by-hand";

/// A pod template with labels that are its owner's alone, and fields that no controller knows.
pub(super) fn template(app: &str, version: u64, restart: &str) -> Json {
    json!({
        "metadata": { "labels": { "app": app }, "annotations": { KEEPSAKE: "template" } },
        "spec": {
            "restartPolicy": restart,
            "hostAliases": [{ "ip": "10.1.2.3", "hostnames": ["here"] }],
            "dnsConfig": { "options": [{ "name": "ndots", "value": "2" }] },
            "containers": [{
                "name": "main",
                "image": "main",
                "env": [{ "name": "VERSION", "value": version.to_string() }],
                "resources": { "requests": { "cpu": "10m" } },
            }],
        },
    })
}

/// A claim for a volume that somebody makes by hand.
pub(super) fn claim(size: &str) -> Json {
    json!({
        "storageClassName": BY_HAND,
        "accessModes": ["ReadWriteOnce"],
        "resources": { "requests": { "storage": size } },
    })
}

/// Pods of a StatefulSet have a claim each, which stays or goes.
fn with_claims(spec: &mut Json, dice: &mut Dice) {
    spec["volumeClaimTemplates"] = json!([{ "metadata": { "name": "data" }, "spec": claim("1Gi") }]);
    let mut policy = || *dice.pick(&["Retain", "Delete"]).unwrap_or(&"Retain");
    let retention = json!({ "whenDeleted": policy(), "whenScaled": policy() });
    spec["persistentVolumeClaimRetentionPolicy"] = retention;
}

/// Takes that away again.
pub(super) fn without_claims(set: &mut Json) {
    if let Some(spec) = set["spec"].as_object_mut() {
        spec.shift_remove("volumeClaimTemplates");
        spec.shift_remove("persistentVolumeClaimRetentionPolicy");
    }
}

/// A CronJob that is due every minute or two.
fn cron_job(name: &str, dice: &mut Dice) -> Json {
    let job = json!({
        "completions": dice.within(1, 2),
        "backoffLimit": 20,
        "template": template(name, 0, "Never"),
    });
    json!({
        "metadata": { "name": name, "labels": { "app": name }, "annotations": { KEEPSAKE: name } },
        "spec": {
            "schedule": dice.pick(&["* * * * *", "*/2 * * * *"]),
            "concurrencyPolicy": dice.pick(&["Allow", "Forbid", "Replace"]),
            "successfulJobsHistoryLimit": dice.within(0, 2),
            "failedJobsHistoryLimit": dice.within(0, 1),
            "jobTemplate": { "spec": job },
        },
    })
}

/// A workload of a resource; its name is also the label of its pods.
pub(super) fn workload(resource: &str, name: &str, dice: &mut Dice) -> Json {
    let replicas = dice.within(0, 6);
    let spec = match resource {
        "deployments" => {
            let strategy = if dice.permille(250) {
                json!({ "type": "Recreate" })
            } else {
                let (surge, unavailable) = *dice.pick(&[(1, 0), (2, 1), (0, 1), (1, 1)]).unwrap_or(&(1, 0));
                json!({ "type": "RollingUpdate", "rollingUpdate": { "maxSurge": surge, "maxUnavailable": unavailable } })
            };
            json!({ "replicas": replicas, "strategy": strategy, "revisionHistoryLimit": 2 })
        }
        "statefulsets" => {
            let policy = if dice.permille(300) { "Parallel" } else { "OrderedReady" };
            let mut spec =
                json!({ "replicas": replicas, "serviceName": name, "podManagementPolicy": policy });
            spec["updateStrategy"] = if dice.permille(200) {
                json!({ "type": "OnDelete" })
            } else {
                let partition = if dice.permille(400) { dice.within(0, 3) } else { 0 };
                let mut rolling = json!({ "partition": partition });
                if dice.permille(500) {
                    // Without its gate it means nothing.
                    rolling["maxUnavailable"] = json!(dice.within(1, 3));
                }
                json!({ "type": "RollingUpdate", "rollingUpdate": rolling })
            };
            if dice.permille(300) {
                with_claims(&mut spec, dice);
            }
            spec
        }
        "jobs" => {
            let mode = if dice.permille(300) { "Indexed" } else { "NonIndexed" };
            let (parallelism, completions) = (dice.within(1, 3), dice.within(1, 8));
            json!({ "parallelism": parallelism, "completions": completions, "completionMode": mode, "backoffLimit": 20 })
        }
        "daemonsets" => {
            let bounds = [(1, 0), (2, 0), (0, 1), (0, 2)];
            let (unavailable, surge) = *dice.pick(&bounds).unwrap_or(&(1, 0));
            let rolling = json!({ "maxUnavailable": unavailable, "maxSurge": surge });
            json!({ "updateStrategy": { "type": "RollingUpdate", "rollingUpdate": rolling } })
        }
        "cronjobs" => return cron_job(name, dice),
        _ => json!({ "replicas": replicas }),
    };
    let mut object = json!({
        "metadata": { "name": name, "labels": { "app": name }, "annotations": { KEEPSAKE: name } },
        "spec": spec,
    });
    if resource != "jobs" {
        let labels = json!({ "app": name });
        let is_old = resource == "replicationcontrollers";
        object["spec"]["selector"] = if is_old { labels } else { json!({ "matchLabels": labels }) };
    }
    let restart = if resource == "jobs" { "Never" } else { "Always" };
    object["spec"]["template"] = template(name, 0, restart);
    if dice.permille(400) {
        object["spec"]["template"]["spec"]["tolerations"] = json!([{
            "key": "node.kubernetes.io/unreachable",
            "operator": "Exists",
            "effect": "NoExecute",
            "tolerationSeconds": dice.within(0, 60),
        }]);
    }
    object
}
