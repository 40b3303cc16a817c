//! What the log says, and how much of it, while the manager runs.

use std::time::Duration;

use serde_json::Value;

use crate::harness::{Caller, ControlPlane, Manager, until};

const LIMIT: Duration = Duration::from_secs(30);
const LEVEL: &str = "/debug/flags/v";

/// Sets the verbosity, and waits until the log says so for the `nth` time.
async fn set(manager: &Manager<'_>, level: &'static str, nth: usize) {
    let answer = manager.port(Caller::Admin).await.put(LEVEL, level).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(answer.text, format!("successfully set klog.logging.verbosity to {level}\n"));
    let said = || async { manager.log().matches("Log verbosity changed").count() };
    until("the log to say so", LIMIT, said, |said| *said == nth).await;
}

#[tokio::test]
async fn verbosity_changes_while_the_manager_runs() {
    let plane = ControlPlane::shared();
    for format in ["text", "json"] {
        let manager = plane.coxswain(&format!("verbose-{format}"), &[&format!("--logging-format={format}")]);
        let ask = async |path: &str| assert_eq!(manager.page(Caller::Admin, path).await.status, 404);
        ask("/nowhere/before").await;
        set(&manager, "4", 1).await;
        ask("/nowhere/meanwhile").await;
        set(&manager, "2", 2).await;
        ask("/nowhere/after").await;
        set(&manager, "2", 3).await;
        let log = manager.log();
        assert!(log.contains("/nowhere/meanwhile"), "{log}");
        assert!(!log.contains("/nowhere/before") && !log.contains("/nowhere/after"), "{log}");

        // Others may not.
        let anonymous = manager.port(Caller::Anonymous).await;
        assert_eq!(anonymous.put(LEVEL, "9").await.status, 403);
        let stranger = manager.port(Caller::Bearer("nonsense")).await;
        assert_eq!(stranger.put(LEVEL, "9").await.status, 401);
        assert_eq!(manager.log().matches("Log verbosity changed").count(), 3);
        manager.stop();
        if format == "json" {
            assert_json(&manager.log());
        }
    }
}

/// Every line has what readers of the original's lines look for.
fn assert_json(log: &str) {
    // The launcher's own words stand between.
    let lines: Vec<&str> = log.lines().filter(|line| line.starts_with('{')).collect();
    assert!(lines.len() > 5, "{log}");
    for line in lines {
        let object: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        assert!(object["ts"].as_f64().is_some_and(|ts| ts > 1.6e12), "milliseconds: {line}");
        assert!(object["caller"].as_str().is_some_and(|caller| caller.contains(':')), "{line}");
        assert!(object["msg"].is_string(), "{line}");
        assert!(object["v"].is_u64() || object["level"] == "error", "{line}");
        assert_eq!(object.get("error"), None, "it is called err: {line}");
    }
}
