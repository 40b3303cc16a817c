//! Flags of the kube-controller-managers: what Coxswain does not accept, and what a cluster may miss.

use std::collections::{BTreeMap, BTreeSet};

use coxswain_controllers::registry::REGISTRY;
use coxswain_machinery::framework::{DefaultState, Descriptor};
use coxswain_machinery::options::{self, Config, Invocation, OptionErrors, WrittenFlag};

use super::{
    BOOTSTRAP_CONTROLLERS, CONTROLLERS_LEFT_OUT, Check, ELECTION_OFF, Entry, FLAG_UNKNOWN, FLAG_VALUE,
    FLAG_WARNING, FLAGS_DIFFER, FLAGS_HIDDEN, Finding, LEASE_NAME, MANAGER_MISSING, NODE_CIDRS, ROOT_CA,
    SERVICE_RANGE, SIGNING_FILES, TOKEN_KEY,
};
use crate::cli::discover::MainLease;
use crate::cli::manifest::judge;

/// Flags whose values are a node's own.
const OF_A_NODE: [&str; 2] = ["bind-address", "v"];
/// Flags that decide which controllers run, as whom, and by which Lease.
const SELECTION: [&str; 5] = [
    "controllers",
    "feature-gates",
    "emulated-version",
    "use-service-account-credentials",
    "enable-leader-migration",
];
/// The Lease of a leader migration whose configuration names none.
const MIGRATION_LEASE_NAME: &str = "cloud-provider-extraction-migration";
/// The controllers that kubeadm adds to `--controllers`.
const BOOTSTRAP: [&str; 2] = ["bootstrap-signer-controller", "token-cleaner-controller"];

/// A kube-controller-manager.
#[derive(Clone, Debug)]
pub(in crate::cli) struct Manager {
    /// The name of its pod or its manifest.
    pub(in crate::cli) name: String,
    pub(in crate::cli) flags: Result<Vec<WrittenFlag>, Unread>,
}

/// The reason why the flags of a kube-controller-manager are not known.
#[derive(Clone, Debug)]
pub(in crate::cli) enum Unread {
    /// Its pod or its manifest does not contain them.
    Hidden(String),
    /// They contain a flag that Coxswain does not have.
    Unknown(String),
}

impl Manager {
    /// Reads the flags among the words of a command, without the program.
    pub(in crate::cli) fn new(name: impl Into<String>, words: &[String]) -> Self {
        Self {
            name: name.into(),
            flags: options::split(words).map_err(|OptionErrors(errors)| {
                let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
                Unread::Unknown(errors.join("; "))
            }),
        }
    }

    /// Returns a manager whose pod or manifest does not contain its flags.
    pub(in crate::cli) fn hidden(name: impl Into<String>, why: impl Into<String>) -> Self {
        Self { name: name.into(), flags: Err(Unread::Hidden(why.into())) }
    }

    fn written(&self) -> &[WrittenFlag] {
        self.flags.as_deref().unwrap_or_default()
    }

    /// The last value of a flag.
    pub(in crate::cli) fn value(&self, name: &str) -> Option<&str> {
        let written = self.written().iter().rev().find(|written| written.flag.name() == name);
        written.map(|written| written.value.as_str()).filter(|value| !value.is_empty())
    }

    fn is_on(&self, name: &str) -> bool {
        self.value(name).is_some_and(|value| matches!(value, "1" | "t" | "T" | "true" | "TRUE" | "True"))
    }

    /// The configuration as far as it decides which controllers run, and as whom.
    pub(in crate::cli) fn selection(&self) -> Config {
        let words = self.written().iter().filter(|written| SELECTION.contains(&written.flag.name().as_str()));
        let words = words.map(|written| format!("--{}={}", written.flag.name(), written.value).into());
        match options::parse(words, REGISTRY) {
            Ok(Invocation::Run(startup)) => startup.config,
            _ => Config::default(),
        }
    }

    /// The name of the second Lease, with which controllers migrate to another manager.
    pub(in crate::cli) fn migration_lease(&self) -> Option<&'static str> {
        self.is_on("enable-leader-migration").then_some(MIGRATION_LEASE_NAME)
    }

    /// The Lease by which it leads.
    fn lease(&self) -> MainLease {
        let usual = MainLease::default();
        let value = |name: &str, usual: String| self.value(name).map_or(usual, str::to_owned);
        MainLease {
            namespace: value("leader-elect-resource-namespace", usual.namespace),
            name: value("leader-elect-resource-name", usual.name),
        }
    }
}

/// Checks the flags. `main` is the Lease that the client looks for; `is_bootstrapped` means that nodes join with bootstrap tokens.
pub(in crate::cli) fn check(managers: &[Manager], main: &MainLease, is_bootstrapped: bool) -> Check {
    let hidden: Vec<String> = managers
        .iter()
        .filter_map(|manager| match &manager.flags {
            Err(Unread::Hidden(why)) => Some(format!("{}: {why}", manager.name)),
            _ => None,
        })
        .collect();
    if hidden.len() == managers.len() {
        let message = if hidden.is_empty() {
            "no static pod and no manifest of kube-controller-manager was found, so its flags are unknown"
                .to_owned()
        } else {
            format!("the flags of kube-controller-manager were not found: {}", hidden.join("; "))
        };
        let finding = Finding::new(MANAGER_MISSING, message);
        return Check::made("flags", "no flags of kube-controller-manager", vec![finding]);
    }
    let mut found: Vec<(&Entry, String, Vec<&str>)> = Vec::new();
    for manager in managers {
        for (entry, message) in check_one(manager, main, is_bootstrapped) {
            match found.iter_mut().find(|(other, text, _)| (*other, text) == (entry, &message)) {
                Some((.., names)) => names.push(&manager.name),
                None => found.push((entry, message, vec![&manager.name])),
            }
        }
    }
    let finding = |(entry, message, names): (_, String, Vec<&str>)| {
        Finding::new(entry, format!("{}: {message}", names.join(", ")))
    };
    let mut findings: Vec<Finding> =
        hidden.into_iter().map(|message| Finding::new(FLAGS_HIDDEN, message)).collect();
    findings.extend(found.into_iter().map(finding));
    if let Some(message) = differences(managers) {
        findings.push(Finding::new(FLAGS_DIFFER, message));
    }
    let names: Vec<&str> = managers.iter().map(|manager| manager.name.as_str()).collect();
    Check::made("flags", names.join(", "), findings)
}

fn check_one(manager: &Manager, main: &MainLease, is_bootstrapped: bool) -> Vec<(&'static Entry, String)> {
    let flags = match &manager.flags {
        Ok(flags) => flags,
        Err(Unread::Unknown(error)) => return vec![(FLAG_UNKNOWN, error.clone())],
        Err(Unread::Hidden(_)) => return Vec::new(),
    };
    let mut findings = Vec::new();
    let mut add = |entry, message: String| findings.push((entry, message));
    let judgment = judge(flags);
    for error in judgment.values {
        add(FLAG_VALUE, error.to_string());
    }
    for warning in judgment.warnings {
        add(FLAG_WARNING, warning.to_string());
    }
    if manager.value("leader-elect").is_some() && !manager.is_on("leader-elect") {
        add(ELECTION_OFF, "--leader-elect=false: both managers would be active at once".to_owned());
    }
    let lease = manager.lease();
    if lease != *main {
        add(
            LEASE_NAME,
            format!(
                "kube-controller-manager uses the Lease {}/{} for leader election",
                lease.namespace, lease.name
            ),
        );
    }
    if !manager.is_on("allocate-node-cidrs") {
        add(
            NODE_CIDRS,
            "--allocate-node-cidrs is not set, so kube-controller-manager assigns no pod CIDRs to nodes"
                .to_owned(),
        );
    } else if manager.value("cluster-cidr").is_none() {
        add(
            NODE_CIDRS,
            "--cluster-cidr is not set, so kube-controller-manager assigns no pod CIDRs to nodes".to_owned(),
        );
    } else if manager.value("service-cluster-ip-range").is_none() {
        add(
            SERVICE_RANGE,
            "--service-cluster-ip-range is not set, so pod CIDRs may overlap addresses of Services"
                .to_owned(),
        );
    }
    let signs = |suffix: &str| {
        flags.iter().any(|written| {
            let name = written.flag.name();
            name.starts_with("cluster-signing-") && name.ends_with(suffix) && !written.value.is_empty()
        })
    };
    if !signs("cert-file") || !signs("key-file") {
        add(SIGNING_FILES, "no files for signing, so certificate requests stay unsigned".to_owned());
    }
    if manager.value("service-account-private-key-file").is_none() {
        add(
            TOKEN_KEY,
            "--service-account-private-key-file is not set, so token Secrets stay empty".to_owned(),
        );
    }
    if manager.value("root-ca-file").is_none() {
        add(
            ROOT_CA,
            "--root-ca-file is not set, so the CA in kube-controller-manager's kubeconfig is published"
                .to_owned(),
        );
    }
    let config = manager.selection();
    let is_selected = |descriptor: &Descriptor| config.selection(descriptor).selected;
    let left_out: Vec<&str> = REGISTRY
        .iter()
        .filter(|descriptor| {
            descriptor.default == DefaultState::On && descriptor.build.is_some() && !is_selected(descriptor)
        })
        .map(|descriptor| descriptor.name)
        .collect();
    if !left_out.is_empty() {
        add(CONTROLLERS_LEFT_OUT, format!("--controllers leaves out {}", left_out.join(", ")));
    }
    let mut bootstrap = REGISTRY.iter().filter(|descriptor| BOOTSTRAP.contains(&descriptor.name));
    if is_bootstrapped && bootstrap.any(|descriptor| !is_selected(descriptor)) {
        add(
            BOOTSTRAP_CONTROLLERS,
            "--controllers leaves out bootstrapsigner or tokencleaner, so kubeadm join fails with new tokens"
                .to_owned(),
        );
    }
    findings
}

/// The names of flags that managers have with different values.
fn differences(managers: &[Manager]) -> Option<String> {
    let mut values: BTreeMap<String, BTreeSet<Vec<&str>>> = BTreeMap::new();
    let read: Vec<&Manager> = managers.iter().filter(|manager| manager.flags.is_ok()).collect();
    let names: BTreeSet<String> =
        read.iter().flat_map(|manager| manager.written()).map(|written| written.flag.name()).collect();
    for name in names.into_iter().filter(|name| !OF_A_NODE.contains(&name.as_str())) {
        for manager in &read {
            let given = manager.written().iter().filter(|written| written.flag.name() == name);
            values
                .entry(name.clone())
                .or_default()
                .insert(given.map(|written| written.value.as_str()).collect());
        }
    }
    let differ: Vec<String> = values
        .into_iter()
        .filter(|(_, values)| values.len() > 1)
        .map(|(name, _)| format!("--{name}"))
        .collect();
    (!differ.is_empty()).then(|| format!("the kube-controller-managers differ in {}", differ.join(", ")))
}
