//! The checks of `preflight`, and the page of the manual about their findings.

use std::collections::BTreeSet;
use std::fs;

use k8s_openapi::api::coordination::v1::Lease;
use serde_json::{Value, json};

use super::server;
use crate::cli::discover::MainLease;
use crate::cli::manifest::Manifest;
use crate::cli::output::Palette;
use crate::cli::preflight::flags::{self, Manager};
use crate::cli::preflight::leases::{self, Leases};
use crate::cli::preflight::{Check, ENTRIES, Finding, Report, access, node, server_version};

const KUBEADM: &str = include_str!("../../../tests/data/peer/kubeadm-controller-manager.yaml");

/// The words of kubeadm's command, changed.
fn words(before: &str, after: &str) -> Vec<String> {
    let manifest: Value = serde_yaml_ng::from_str(KUBEADM).unwrap();
    let words = manifest["spec"]["containers"][0]["command"].as_array().unwrap().iter().skip(1);
    let words: Vec<String> = words.map(|word| word.as_str().unwrap().to_owned()).collect();
    assert!(before.is_empty() || words.iter().any(|word| word.contains(before)), "{before}");
    words.into_iter().map(|word| word.replace(before, after)).filter(|word| !word.is_empty()).collect()
}

fn manager(before: &str, after: &str) -> Manager {
    Manager::new("node-1", &words(before, after))
}

fn names(check: &Check) -> Vec<&'static str> {
    check.findings.iter().map(|finding| finding.entry.name).collect()
}

fn checked(managers: &[Manager]) -> Check {
    flags::check(managers, &MainLease::default(), true)
}

#[test]
fn server_of_another_version_blocks() {
    for (version, expected) in [
        ("v1.36.0", &[][..]),
        ("v1.37.2-gke.100", &[]),
        ("v1.35.9", &["server-version"]),
        ("v1.38.0", &["server-version"]),
        ("v2.36.0", &["server-version"]),
    ] {
        assert_eq!(names(&server_version(version)), expected, "{version}");
    }
}

#[test]
fn flags_of_kubeadm_have_no_finding() {
    let check = checked(&[manager("", "")]);
    assert_eq!((check.findings.as_slice(), check.detail.as_str()), (&[][..], "node-1"));
}

#[test]
fn flags_that_coxswain_or_the_cluster_misses_are_found() {
    for (before, after, expected) in [
        ("--cluster-name=kubernetes", "--no-such-flag=1", "flag-unknown"),
        ("--cluster-cidr=10.244.0.0/16", "--cluster-cidr=10.244.0.0", "flag-value"),
        ("--leader-elect=true", "--leader-elect=false", "election-off"),
        ("--leader-elect=true", "--leader-elect-resource-name=other", "lease-name"),
        ("--allocate-node-cidrs=true", "", "node-cidrs"),
        ("--service-cluster-ip-range=10.96.0.0/12", "", "service-range"),
        ("--cluster-signing-key-file=/etc/kubernetes/pki/ca.key", "", "signing-files"),
        ("--service-account-private-key-file=/etc/kubernetes/pki/sa.key", "", "token-key"),
        ("--root-ca-file=/etc/kubernetes/pki/ca.crt", "", "root-ca"),
        ("*,bootstrapsigner,tokencleaner", "*,bootstrapsigner,tokencleaner,-job", "controllers-left-out"),
        ("*,bootstrapsigner,tokencleaner", "*,bootstrapsigner", "bootstrap-controllers"),
    ] {
        let check = checked(&[manager(before, after)]);
        assert!(names(&check).contains(&expected), "{before} {after}: {check:?}");
        assert!(check.findings[0].message.starts_with("node-1: "), "{check:?}");
    }
    assert_eq!(names(&checked(&[])), ["manager-missing"]);
    let hidden = Manager::hidden("node-2", "starts /bin/sh, which may start kube-controller-manager");
    let check = checked(std::slice::from_ref(&hidden));
    assert_eq!(names(&check), ["manager-missing"]);
    assert!(check.findings[0].entry.fix.contains("--manifest"), "{check:?}");
    assert!(
        check.findings[0]
            .message
            .ends_with("not found: node-2: starts /bin/sh, which may start kube-controller-manager"),
        "{check:?}"
    );
    let check = checked(&[hidden, manager("", "")]);
    assert_eq!(names(&check), ["flags-hidden"]);
    assert!(check.findings[0].message.starts_with("node-2: starts /bin/sh"), "{check:?}");
    let job = checked(&[manager("tokencleaner", "tokencleaner,-job")]);
    assert!(job.findings[0].message.ends_with("leaves out job-controller"), "{job:?}");
    let joins_otherwise =
        flags::check(&[manager("bootstrapsigner,tokencleaner", "-none")], &MainLease::default(), false);
    assert!(!names(&joins_otherwise).contains(&"bootstrap-controllers"));
    // A flag without effect; no file is missing.
    let plain = ["--allocate-node-cidrs=false", "--cluster-cidr=10.0.0.0"];
    let check = checked(&[Manager::new("node-1", &plain.map(str::to_owned))]);
    assert!(names(&check).contains(&"flag-warning"), "{check:?}");
}

#[test]
fn findings_of_several_managers_are_one() {
    let other = |before: &str, after: &str| Manager::new("node-2", &words(before, after));
    let check = checked(&[
        manager("--root-ca-file=/etc/kubernetes/pki/ca.crt", ""),
        other("--root-ca-file=/etc/kubernetes/pki/ca.crt", ""),
    ]);
    assert_eq!(names(&check), ["root-ca"]);
    assert!(check.findings[0].message.starts_with("node-1, node-2: "), "{check:?}");
    let check = checked(&[manager("", ""), other("10.244.0.0/16", "10.245.0.0/16")]);
    assert_eq!(names(&check), ["flags-differ"]);
    assert!(check.findings[0].message.ends_with("differ in --cluster-cidr"), "{check:?}");
    let check = checked(&[manager("", ""), other("--bind-address=127.0.0.1", "--bind-address=0.0.0.0")]);
    assert_eq!(names(&check), [""; 0], "an address is a node's own");
}

fn lease(identity: &str, renewed: i64) -> Lease {
    serde_json::from_value(server::lease(identity, "", renewed, None)).unwrap()
}

fn checked_leases(leases: &Leases) -> Check {
    leases::check(leases, &MainLease::default(), super::now())
}

#[test]
fn leases_that_are_not_held_or_held_by_coxswain_are_found() {
    let live = Leases { main: Some(lease("node-1_a", -3)), ..Leases::default() };
    let check = checked_leases(&live);
    assert_eq!(
        (names(&check), check.detail.as_str()),
        (vec![], "node-1_a holds kube-system/kube-controller-manager, renewed 3s ago")
    );
    let mut given_up = lease("node-1_a", 0);
    given_up.spec.as_mut().unwrap().holder_identity = Some(String::new());
    let old = Leases { main: Some(lease("node-1_a", -100)), ..Leases::default() };
    for (leases, expected) in [
        (Leases::default(), &["lease-free"][..]),
        (Leases { main: Some(given_up), ..Leases::default() }, &["lease-free"]),
        (old.clone(), &["lease-expired"]),
        (Leases { is_renewed: true, ..old }, &[]),
        (
            Leases { migration: Some(("kube-system/m".to_owned(), None)), ..live.clone() },
            &["migration-lease"],
        ),
        (
            Leases {
                migration: Some(("kube-system/m".to_owned(), Some(lease("cloud", -1)))),
                ..live.clone()
            },
            &[],
        ),
        (
            Leases { replicas: vec![lease("coxswain-a", -1), lease("coxswain-b", -100)], ..live.clone() },
            &["coxswain-runs"],
        ),
        (Leases { overrides: Some(lease("coxswain-overrides", -100)), ..live.clone() }, &["overrides"]),
    ] {
        let check = checked_leases(&leases);
        assert_eq!(names(&check), expected, "{check:?}");
    }
}

#[test]
fn access_is_asked_for_the_manager_and_for_the_accounts_of_its_controllers() {
    let questions = access::questions(Some(&manager("", "")));
    let accounts: BTreeSet<_> = questions.iter().map(|question| question.account).collect();
    for account in [None, Some("job-controller"), Some("token-cleaner"), Some("generic-garbage-collector")] {
        assert!(accounts.contains(&account), "{account:?}");
    }
    let without_jobs = access::questions(Some(&manager("tokencleaner", "tokencleaner,-job")));
    assert!(!without_jobs.iter().any(|question| question.account == Some("job-controller")));
    let as_itself = access::questions(Some(&manager("--use-service-account-credentials=true", "")));
    assert!(as_itself.iter().all(|question| question.account.is_none()), "they act as the manager");
    let review =
        |question: &access::Question| serde_json::to_value(question.review(access::USER, "")).unwrap();
    let all: Vec<Value> = questions.iter().map(review).collect();
    let of = |user: &str, attributes: Value| {
        all.iter().any(|review| {
            let found = &review["spec"]["resourceAttributes"];
            review["spec"]["user"] == user
                && attributes.as_object().unwrap().iter().all(|(field, value)| found[field] == *value)
        })
    };
    let job = "system:serviceaccount:kube-system:job-controller";
    assert!(of(
        job,
        json!({ "group": "batch", "resource": "jobs", "subresource": "status", "verb": "update" })
    ));
    assert!(of(access::USER, json!({ "group": "*", "resource": "*", "verb": "watch" })));
    assert!(of(
        access::USER,
        json!({ "group": "coordination.k8s.io", "resource": "leases", "verb": "create" })
    ));
    assert!(of(
        access::USER,
        json!({ "resource": "serviceaccounts", "subresource": "token", "name": "job-controller", "verb": "create" })
    ));

    let denied: Vec<_> =
        questions.into_iter().filter(|question| question.account == Some("token-cleaner")).collect();
    let check = access::check(&Ok(9), &denied, access::USER);
    assert_eq!(names(&check), ["controller-access"]);
    let message = &check.findings[0].message;
    assert!(
        message.starts_with("system:serviceaccount:kube-system:token-cleaner may not ")
            && message.contains("delete secrets"),
        "{message}"
    );
    let own: Vec<_> =
        access::questions(None).into_iter().filter(|question| question.account.is_none()).collect();
    assert_eq!(names(&access::check(&Ok(9), &own, access::USER)), ["manager-access"]);
    assert_eq!(names(&access::check(&Err("no".to_owned()), &[], access::USER)), ["access-unknown"]);
}

#[test]
fn files_of_the_node_are_read_by_their_volumes() {
    let root = tempfile::tempdir().unwrap();
    let check = |text: &str| node::check_files(&Manifest::parse(text).unwrap(), root.path()).unwrap();
    let missing = check(KUBEADM);
    assert!(
        !missing.findings.is_empty() && names(&missing).iter().all(|name| *name == "file"),
        "{missing:?}"
    );
    let key = root.path().join("etc/kubernetes/pki/sa.key");
    assert!(
        missing.findings.iter().any(|finding| finding.message.contains(key.to_str().unwrap())),
        "{missing:?}"
    );
    // The container has the file at another path than the node.
    let moved = KUBEADM.replace("--kubeconfig=/etc/kubernetes/", "--kubeconfig=/inside/").replace(
        "mountPath: /etc/kubernetes/controller-manager.conf",
        "mountPath: /inside/controller-manager.conf",
    );
    fs::create_dir_all(root.path().join("etc/kubernetes")).unwrap();
    fs::write(root.path().join("etc/kubernetes/controller-manager.conf"), "").unwrap();
    let found = check(&moved);
    assert!(!found.findings.iter().any(|finding| finding.message.starts_with("--kubeconfig: ")), "{found:?}");
    let authentication = "--authentication-kubeconfig: no volume of the manifest holds /etc/kubernetes/controller-manager.conf";
    assert!(found.findings.iter().any(|finding| finding.message == authentication), "{found:?}");
}

#[test]
fn report_counts_what_blocks_and_links_the_manual() {
    let entry = |name: &str| *ENTRIES.iter().find(|entry| entry.name == name).unwrap();
    let warned = Check::made("flags", "node-1", vec![Finding::new(entry("root-ca"), "node-1: x")]);
    let report = Report(vec![server_version("v1.36.3"), warned, Check::skipped("port", "elsewhere")]);
    assert_eq!(report.blocking(), 0);
    let text = report.text(Palette::default());
    let expected = "\
CHECK    RESULT    DETAIL
server   ok        v1.36.3
flags    warning   node-1
port     skipped   elsewhere

warning root-ca: node-1: x
  fix: add --root-ca-file with the CA of the cluster
  see: https://github.com/coxswain-dev/coxswain/blob/main/docs/install/preflight.md#root-ca

Ready, with 1 warning.
";
    assert_eq!(text, expected);
    assert_eq!(report.value()["ready"], true);
    let report = Report(vec![server_version("v1.20.0\u{1b}[m")]);
    let text = report.text(Palette::default());
    assert!(
        text.ends_with("\nNot ready: 1 blocking finding, 0 warnings.\n") && !text.contains('\u{1b}'),
        "{text}"
    );
    let value = report.value();
    assert_eq!(
        (&value["ready"], &value["checks"][0]["findings"][0]["name"]),
        (&json!(false), &json!("server-version"))
    );
}

/// Each finding has a heading in the manual, which says whether it blocks, and no other heading is there.
#[test]
fn manual_has_an_entry_for_each_finding() {
    let page = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/install/preflight.md")).unwrap();
    let (_, findings) = page.split_once("\n## Findings\n").unwrap();
    let entries: Vec<(&str, bool)> = findings
        .split("\n### ")
        .skip(1)
        .map(|entry| {
            let (name, text) = entry.split_once('\n').unwrap();
            assert!(text.contains("**Cause:** ") && text.contains("**Fix:** "), "{name}");
            let blocks = text.starts_with("**Blocks:** yes. ");
            assert!(blocks || text.starts_with("**Blocks:** no. "), "{name}");
            (name, blocks)
        })
        .collect();
    let expected: Vec<(&str, bool)> = ENTRIES.iter().map(|entry| (entry.name, entry.blocks)).collect();
    assert_eq!(entries, expected);
}
