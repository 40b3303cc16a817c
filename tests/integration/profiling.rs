//! Profiles of managers at work, as `go tool pprof` reads them.
//!
//! These managers stand by, and serve all the same.

use std::fs;
use std::process::Command;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Response};
use tokio::task::JoinSet;

use crate::harness::{Caller, ControlPlane, Manager, Status, until};

const LIMIT: Duration = Duration::from_mins(1);
/// Longer than any profile here takes.
const PATIENCE: Duration = Duration::from_secs(90);
/// Our own functions, by the beginning of their names.
const OURS: &str = "coxswain_machinery::serve";

/// A profile, or why there is none.
pub(crate) async fn profile(manager: &Manager<'_>, path: &str) -> Response<Bytes> {
    let port = manager.port(Caller::Admin).await;
    port.ask(Method::GET, path, "", PATIENCE).await.expect("an answer")
}

/// What `go tool pprof -top` makes of a profile, by what functions cost together with what they call.
fn top(profile: &Response<Bytes>) -> String {
    assert_eq!(profile.status(), 200, "{:?}", profile.body());
    assert_eq!(profile.headers()["content-type"], "application/octet-stream");
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("profile.pb.gz");
    fs::write(&file, profile.body()).expect("written");
    let output = Command::new("go")
        .args(["tool", "pprof", "-top", "-cum", "-nodecount=100000", "-nodefraction=0"])
        .arg(&file)
        .env("PPROF_TMPDIR", dir.path())
        .output()
        .expect("go is there");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

/// Asks for pages, on connections that stay, as long as the future takes.
async fn while_busy<T>(manager: &Manager<'_>, what: impl Future<Output = T>) -> T {
    let work = async {
        let mut ports = Vec::new();
        loop {
            let port = manager.port(Caller::Admin).await;
            for _ in 0..20 {
                port.try_get("/metrics").await;
            }
            ports.push(port);
        }
    };
    tokio::select! {
        done = what => done,
        never = work => never,
    }
}

#[tokio::test]
async fn cpu_time_is_told_by_function() {
    let plane = ControlPlane::shared();
    let manager = plane.coxswain("profiled", &[]);
    for path in ["/debug/pprof/", "/debug/pprof/profile?seconds=1", "/debug/pprof/heap?seconds=1"] {
        assert_eq!(manager.page(Caller::Anonymous, path).await.status, 403, "{path}");
        assert_eq!(manager.page(Caller::Bearer("nonsense"), path).await.status, 401, "{path}");
    }
    let resident = || Status::of(manager.pid).field("RssAnon:");
    let before = resident();
    let taken = while_busy(&manager, profile(&manager, "/debug/pprof/profile?seconds=3")).await;
    assert_eq!(taken.headers()["content-disposition"], "attachment; filename=\"profile\"");
    let text = top(&taken);
    assert!(text.contains("Type: cpu"), "{text}");
    assert!(text.contains(OURS), "{text}");
    println!("resident: {before} KiB before the first profile, {} KiB after", resident());

    // One at a time; whoever hangs up ends theirs.
    let port = manager.port(Caller::Admin).await;
    let mut long = JoinSet::new();
    long.spawn(async move {
        let path = "/debug/pprof/profile?seconds=600";
        // A short one may be under way.
        while port.ask(Method::GET, path, "", PATIENCE).await.is_some_and(|answer| answer.status() == 429) {}
    });
    let short = || async { profile(&manager, "/debug/pprof/profile?seconds=1").await.status().as_u16() };
    until("another to be refused", LIMIT, short, |status| *status == 429).await;
    long.shutdown().await;
    until("another to be taken", LIMIT, short, |status| *status == 200).await;
    manager.stop();
    assert_eq!(manager.errors(), [""; 0]);
    assert!(manager.exit().starts_with("exit status 0"), "{}", manager.exit());
}

#[tokio::test]
async fn memory_is_told_by_function() {
    let plane = ControlPlane::shared();
    // Far finer than usual, for there is little to see.
    let manager = plane.coxswain_with("heap", &["_RJEM_MALLOC_CONF=lg_prof_sample:10"], &[]);
    let refused = manager.page(Caller::Admin, "/debug/pprof/heap").await;
    assert_eq!(refused.status, 503);
    assert!(refused.text.contains("?seconds=N"), "{}", refused.text);
    for _ in 0..2 {
        let taken = while_busy(&manager, profile(&manager, "/debug/pprof/heap?seconds=2")).await;
        assert_eq!(taken.headers()["content-disposition"], "attachment; filename=\"heap\"");
        let text = top(&taken);
        assert!(text.contains("Type: inuse_space") && text.contains(OURS), "{text}");
    }
    assert_eq!(manager.page(Caller::Admin, "/debug/pprof/heap").await.status, 503, "it has ended");
    manager.stop();
    assert_eq!(manager.errors(), [""; 0]);

    let variable = "_RJEM_MALLOC_CONF=prof_active:true,lg_prof_sample:12";
    let manager = plane.coxswain_with("heap-from-the-start", &[variable], &[]);
    let text = top(&profile(&manager, "/debug/pprof/heap").await);
    assert!(text.contains("coxswain_machinery::options"), "{text}");
    assert_eq!(manager.page(Caller::Admin, "/debug/pprof/heap?seconds=1").await.status, 400);
    let cpu = while_busy(&manager, profile(&manager, "/debug/pprof/profile?seconds=2")).await;
    assert!(top(&cpu).contains(OURS), "both at once do not harm each other");
    manager.stop();
    assert_eq!(manager.errors(), [""; 0]);
}
