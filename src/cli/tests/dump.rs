//! `debug dump`: what is in a bundle, and what is not.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use flate2::read::GzDecoder;
use serde_json::Value;

use super::server::*;
use crate::admin::events::{Body, ReconcileAttempt};
use crate::cli::error::Exit;

/// A JSON web token, in parts so that no scanner takes it for one.
const JWT: [&str; 3] = ["eyJhbGciOiJSUzI1NiJ9", "eyJpc3MiOiJrdWJlcm5ldGVzIn0", "c2lnbmF0dXJl"];

/// The files of a bundle by their names without the folder.
fn unpack(path: &Path) -> BTreeMap<String, String> {
    let mut archive = tar::Archive::new(GzDecoder::new(fs::File::open(path).unwrap()));
    let entries = archive.entries().unwrap().map(|entry| {
        let mut entry = entry.unwrap();
        let name = entry.path().unwrap().to_str().unwrap().to_owned();
        let (folder, name) = name.split_once('/').unwrap();
        assert_eq!(folder, "coxswain-dump-20270115T080000Z");
        let mut text = String::new();
        entry.read_to_string(&mut text).unwrap();
        (name.to_owned(), text)
    });
    entries.collect()
}

#[tokio::test]
async fn bundle_has_every_part_and_no_secret() {
    let replica = Replica::start().await;
    let jwt = JWT.join(".");
    let key = replica.client.1.clone();
    let error = format!(
        "webhook https://jane:hunter2@hook.test said: Bearer {jwt}; {key} token: abcdef.0123456789abcdef"
    );
    let attempt = ReconcileAttempt { queue: "deployment", number: 1, queue_wait: Duration::ZERO };
    let failed =
        Body::ReconcileFailed { attempt, duration: Duration::ZERO, actions: Vec::new(), error, retry: true };
    replica.events.publish(Some("deployment-controller"), None, None, failed);
    let reason = "new password: hunter2";
    assert_eq!(replica.run(&["disable", "deployment", "--reason", reason]).await.exit, Exit::Done);
    for page in ["/flagz", "/configz", "/statusz", "/healthz", "/livez", "/readyz"] {
        replica.serve_page(page, &format!("page {page}\n"));
    }
    let kubeconfig = replica.kubeconfig(&replica.authority, &serde_json::json!({ "token": TOKEN }));
    replica.serve_page("/metrics", &fs::read_to_string(kubeconfig).unwrap());

    let path = replica.path("bundle.tar.gz");
    let ran = replica.run(&["debug", "dump", "-o", &path]).await;
    assert_eq!((ran.exit, ran.out), (Exit::Done, format!("{path} written\n")), "{}", ran.err);
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let files = unpack(Path::new(&path));
    let names: Vec<&str> = files.keys().map(String::as_str).collect();
    assert_eq!(
        names,
        [
            "configz.json",
            "contents.json",
            "controllers.json",
            "events.jsonl",
            "flagz.txt",
            "healthz.txt",
            "leader.json",
            "leases.json",
            "livez.txt",
            "metrics.txt",
            "queues.json",
            "readyz.txt",
            "statusz.txt",
            "tasks.json",
        ]
    );
    for (file, expected) in [
        ("controllers.json", "deployment-controller"),
        ("controllers.json", "new password: REDACTED"),
        ("events.jsonl", "webhook https://REDACTED@hook.test said: "),
        ("tasks.json", "inFlightKeys"),
        ("leader.json", "holderIdentity"),
        ("leases.json", "coxswain.dev/admin-address"),
        ("healthz.txt", "page /healthz\n"),
        ("metrics.txt", r#""token":"REDACTED""#),
    ] {
        assert!(files[file].contains(expected), "{expected}: {}", files[file]);
    }
    let key_lines = key.lines().filter(|line| !line.starts_with('-'));
    let secrets = ["hunter2", TOKEN, JWT[2], "0123456789abcdef"].into_iter().chain(key_lines);
    for secret in secrets {
        for (file, text) in &files {
            assert!(!text.contains(secret), "{file} has {secret}");
        }
    }
    let again = replica.run(&["debug", "dump", "-o", &path]).await;
    assert!(again.exit == Exit::Usage && again.err.contains("File exists"), "{again:?}");
}

#[tokio::test]
async fn bundle_names_the_parts_that_could_not_be_read() {
    let replica = Replica::start().await;
    let path = replica.path("bundle.tar.gz");
    let ran = replica.run(&["debug", "dump", "-o", &path]).await;
    assert_eq!(ran.exit, Exit::Failed, "{ran:?}");
    assert!(ran.err.contains("not read: metrics.txt: GET /metrics: "), "{ran:?}");
    let contents: Value = serde_json::from_str(&unpack(Path::new(&path))["contents.json"]).unwrap();
    let parts = contents["parts"].as_array().unwrap();
    let of = |file: &str| parts.iter().find(|part| part["file"] == file).unwrap();
    assert!(of("metrics.txt")["error"].as_str().unwrap().contains("serves only the admin API"), "{contents}");
    assert_eq!(of("controllers.json")["error"], Value::Null);

    // Without a replica the Leases remain, with the reason.
    replica.announce(&[other(0)], None);
    let path = replica.path("other.tar.gz");
    let ran = replica.run(&["debug", "dump", "-o", &path]).await;
    assert_eq!(ran.exit, Exit::Failed, "{ran:?}");
    assert!(ran.err.contains("not read: replica.json: no replica was reached: "), "{ran:?}");
    assert_eq!(unpack(Path::new(&path)).keys().collect::<Vec<_>>(), ["contents.json", "leases.json"]);
}
