//! `preflight`: checks a cluster before Coxswain takes it over. The checks are functions of what was observed; `commands::preflight`
//! observes. Each finding has an entry of the same name in `docs/install/preflight.md`.

pub(super) mod access;
pub(super) mod flags;
pub(super) mod leases;
pub(super) mod node;

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::output::{Palette, clean, table::table};

/// The page of the manual with an entry for each finding.
const PAGE: &str = "https://github.com/coxswain-dev/coxswain/blob/main/docs/install/preflight.md";
/// The minor versions of API servers with which this version works, `docs/decide/versions.md`.
const SERVERS: [&str; 2] = ["1.36", "1.37"];

/// A kind of finding.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// Its name, which is a heading of the manual.
    pub(super) name: &'static str,
    /// Whether Coxswain must not be started.
    pub(super) blocks: bool,
    /// The remedy, in a few words.
    pub(super) fix: &'static str,
}

/// Defines the entries, and a list of all.
macro_rules! entries {
    ($($constant:ident: $name:literal, $blocks:literal, $fix:literal;)*) => {
        $(pub(super) const $constant: &Entry = &Entry { name: $name, blocks: $blocks, fix: $fix };)*
        /// All entries, in the order of the manual.
        #[cfg(test)]
        pub(super) const ENTRIES: &[&Entry] = &[$($constant),*];
    };
}

entries! {
    SERVER_VERSION: "server-version", true, "upgrade the API servers first, or use a Coxswain version that supports their version";
    MANAGER_MISSING: "manager-missing", true, "name the manifest of kube-controller-manager with --manifest";
    FLAGS_HIDDEN: "flags-hidden", false, "run preflight again with --manifest and a manifest that contains the flags";
    FLAG_UNKNOWN: "flag-unknown", true, "remove the flag from the manifest";
    FLAG_VALUE: "flag-value", true, "correct the flag in the manifest";
    FLAG_WARNING: "flag-warning", false, "decide whether the cluster needs the flag";
    FLAGS_DIFFER: "flags-differ", false, "give all kube-controller-managers the same flags";
    ELECTION_OFF: "election-off", true, "remove --leader-elect=false, or stop kube-controller-manager before Coxswain starts";
    LEASE_NAME: "lease-name", false, "give the client --leader-elect-resource-name and --leader-elect-resource-namespace with these values";
    NODE_CIDRS: "node-cidrs", false, "make sure that something else assigns pod CIDRs to nodes";
    SERVICE_RANGE: "service-range", false, "add --service-cluster-ip-range with the value of the API server";
    SIGNING_FILES: "signing-files", false, "add --cluster-signing-cert-file and --cluster-signing-key-file, unless another program signs";
    TOKEN_KEY: "token-key", false, "add --service-account-private-key-file";
    ROOT_CA: "root-ca", false, "add --root-ca-file with the CA of the cluster";
    CONTROLLERS_LEFT_OUT: "controllers-left-out", false, "make sure that another program runs these controllers";
    BOOTSTRAP_CONTROLLERS: "bootstrap-controllers", false, "add bootstrapsigner and tokencleaner to --controllers";
    FILE: "file", true, "create the file or make it readable, or correct the flag";
    PORT: "port", true, "stop the program that uses the port, or set --secure-port";
    MANAGER_ACCESS: "manager-access", true, "restore the ClusterRole system:kube-controller-manager and its binding";
    CONTROLLER_ACCESS: "controller-access", true, "restore the ClusterRoles system:controller:* and their bindings";
    ACCESS_UNKNOWN: "access-unknown", false, "run preflight as a user who may create SubjectAccessReviews";
    LEASE_FREE: "lease-free", true, "start kube-controller-manager, and repair what keeps it from leading";
    LEASE_EXPIRED: "lease-expired", true, "repair the leading kube-controller-manager first";
    MIGRATION_LEASE: "migration-lease", false, "start the manager that uses this leader-election Lease, or disable leader migration";
    COXSWAIN_RUNS: "coxswain-runs", false, "roll back or uninstall the running Coxswain before you install it by a different method";
    OVERRIDES: "overrides", false, "list the overrides after Coxswain has started: coxswain controllers --source override";
}

/// A finding about this cluster.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Finding {
    pub(super) entry: &'static Entry,
    /// The fact and its place.
    pub(super) message: String,
}

impl Finding {
    pub(super) fn new(entry: &'static Entry, message: impl Into<String>) -> Self {
        Self { entry, message: message.into() }
    }

    /// The entry of the manual.
    fn manual(&self) -> String {
        format!("{PAGE}#{}", self.entry.name)
    }
}

/// A check that was made or skipped.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Check {
    /// Its name.
    pub(super) name: &'static str,
    /// The checked items; for a skipped check, the reason.
    pub(super) detail: String,
    pub(super) is_skipped: bool,
    pub(super) findings: Vec<Finding>,
}

impl Check {
    /// A check with its findings.
    pub(super) fn made(name: &'static str, detail: impl Into<String>, findings: Vec<Finding>) -> Self {
        Self { name, detail: detail.into(), is_skipped: false, findings }
    }

    /// A check that could not be made here.
    pub(super) fn skipped(name: &'static str, why: impl Into<String>) -> Self {
        Self { name, detail: why.into(), is_skipped: true, findings: Vec::new() }
    }

    fn result(&self) -> &'static str {
        if self.findings.iter().any(|finding| finding.entry.blocks) {
            "blocked"
        } else if !self.findings.is_empty() {
            "warning"
        } else if self.is_skipped {
            "skipped"
        } else {
            "ok"
        }
    }
}

/// The result of all checks.
#[derive(Debug, Default)]
pub(super) struct Report(pub(super) Vec<Check>);

impl Report {
    fn findings(&self) -> impl Iterator<Item = &Finding> {
        self.0.iter().flat_map(|check| &check.findings)
    }

    /// The number of findings that block.
    pub(super) fn blocking(&self) -> usize {
        self.findings().filter(|finding| finding.entry.blocks).count()
    }

    /// The report for people.
    pub(super) fn text(&self, palette: Palette) -> String {
        let rows = self
            .0
            .iter()
            .map(|check| vec![check.name.to_owned(), check.result().to_owned(), clean(&check.detail)]);
        let mut text = table(&["CHECK", "RESULT", "DETAIL"], rows);
        for finding in self.findings() {
            let (word, style) =
                if finding.entry.blocks { ("blocks", palette.bad()) } else { ("warning", palette.warning()) };
            let _ = write!(
                text,
                "\n{style}{word}{style:#} {}: {}\n  fix: {}\n  see: {}\n",
                finding.entry.name,
                clean(&finding.message),
                finding.entry.fix,
                finding.manual()
            );
        }
        let warnings = self.findings().count() - self.blocking();
        let noun =
            |number: usize, noun: &str| format!("{number} {noun}{}", if number == 1 { "" } else { "s" });
        let _ = match self.blocking() {
            0 => writeln!(text, "\nReady, with {}.", noun(warnings, "warning")),
            blocking => writeln!(
                text,
                "\nNot ready: {}, {}.",
                noun(blocking, "blocking finding"),
                noun(warnings, "warning")
            ),
        };
        text
    }

    /// The report for programs.
    pub(super) fn value(&self) -> Value {
        let finding = |finding: &Finding| {
            json!({
                "name": finding.entry.name,
                "blocks": finding.entry.blocks,
                "message": finding.message,
                "fix": finding.entry.fix,
                "manual": finding.manual(),
            })
        };
        let check = |check: &Check| {
            json!({
                "check": check.name,
                "result": check.result(),
                "detail": check.detail,
                "findings": check.findings.iter().map(finding).collect::<Vec<_>>(),
            })
        };
        json!({ "ready": self.blocking() == 0, "checks": self.0.iter().map(check).collect::<Vec<_>>() })
    }
}

/// Checks the version of the API server: `v1.36.3`.
pub(super) fn server_version(version: &str) -> Check {
    let minor = version.trim_start_matches('v').splitn(3, '.').take(2).collect::<Vec<_>>().join(".");
    let findings = if SERVERS.contains(&minor.as_str()) {
        Vec::new()
    } else {
        let works = SERVERS.join(" and ");
        vec![Finding::new(
            SERVER_VERSION,
            format!("the API server is {version}; this version of Coxswain works with {works}"),
        )]
    };
    Check::made("server", version, findings)
}
