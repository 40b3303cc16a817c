//! Controllers start, whatever becomes of one of them. Nothing answers here: no cache is ever filled.

use std::time::Duration;

use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::manager;
use crate::framework::Phase;
use crate::registry::REGISTRY;
use crate::serve::{Probe, Unobserved};

const TOKENS: &str = "serviceaccount-token-controller";

#[tokio::test(start_paused = true)]
async fn caches_that_stay_unfilled_hold_up_no_other_controller_and_show_in_health() {
    let manager = Box::pin(manager()).await;
    let controllers = &manager.controllers;
    let stop = CancellationToken::new();
    let everything = |_: &_| true;
    assert!(timeout(Duration::from_mins(1), controllers.start(&everything, &stop)).await.is_ok());
    assert!(timeout(Duration::from_secs(1), controllers.token_controller_started(&stop)).await == Ok(true));
    sleep(Duration::from_mins(1)).await;
    for row in REGISTRY.iter().filter(|row| row.build.is_some()) {
        assert_ne!(controllers.get(row.name).unwrap().phase(), Phase::Standby, "{}", row.name);
    }
    assert_eq!(controllers.get(TOKENS).unwrap().phase(), Phase::Starting);

    // The page names the cache and the error, and the check fails no probe.
    let report = manager.health.report_one(Probe::Livez, TOKENS, &Unobserved).unwrap();
    assert!(
        report.text.starts_with("ok, degraded: ") && report.text.contains(": not filled for "),
        "{report:?}"
    );
    assert!(report.text.contains("GET "), "{report:?}");
    for probe in Probe::ALL {
        let report = manager.health.report(probe, &[], true, &Unobserved);
        let line = format!("[+]{TOKENS} ok, degraded: reason withheld\n");
        assert!(report.text.contains(&line), "{report:?}");
    }

    stop.cancel();
    controllers.stopped().await;
    manager.runtime.informers.shutdown().await;
}
