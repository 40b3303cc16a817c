//! `preflight`: observes a cluster, and on a control-plane node its files, before Coxswain takes over. Calls no replica, and changes
//! nothing.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{ArgMatches, Command, value_parser};
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::coordination::v1::Lease;
use serde::Deserialize;
use tokio::time::sleep;

use super::Context;
use super::uninstall::{pods, read_lease, replicas};
use super::valued;
use crate::admin::Group;
use crate::cli::common;
use crate::cli::discover::MainLease;
use crate::cli::error::{CliError, Exit};
use crate::cli::left;
use crate::cli::manifest::{Manifest, ManifestError};
use crate::cli::output::Format;
use crate::cli::preflight::access::{self, Answer, Question};
use crate::cli::preflight::flags::{self, Manager, Unread};
use crate::cli::preflight::leases::{self, Leases, is_live};
use crate::cli::preflight::{Check, Report, node, server_version};
use coxswain_machinery::api::kinds::CONFIG_MAPS;
use coxswain_machinery::client::{ApiClient, ApiError, Query, RequestIntent, RequestPath};

/// Path of kubeadm's manifest, below the root of the node.
const MANIFEST: &str = "etc/kubernetes/manifests/kube-controller-manager.yaml";
/// Namespace of Leases of replicas and of overrides.
const NAMESPACE: &str = "kube-system";
/// Number of times that an expired Lease is read again, and the pause in between. A holder renews it every 2 s.
const RENEWALS: (usize, Duration) = (5, Duration::from_secs(1));
/// Access reviews that are under way at the same time.
const REVIEWS: usize = 8;
/// The port of the manager if no flag names one.
const PORT: u16 = 10257;

pub(super) fn command() -> Command {
    Command::new("preflight")
        .about("Check whether Coxswain can take over a cluster, without changing anything")
        .after_help(
            "As root on a control-plane node, the command also checks the port and the files that the manifest names.\n\
             Exit code 0: ready; 1: a finding blocks the takeover. Each finding has an entry in docs/install/preflight.md.",
        )
        .arg(
            valued(
                "manifest",
                "FILE",
                "Manifest of the static pod kube-controller-manager [default: kubeadm's manifest, if it exists]",
            )
            .value_parser(value_parser!(PathBuf)),
        )
        .arg(
            valued("node-root", "DIR", "Directory where the root of the node is mounted")
                .value_parser(value_parser!(PathBuf))
                .default_value("/"),
        )
        .arg(valued("user", "NAME", "User whose access rights are checked, as in the manager's kubeconfig").default_value(access::USER))
        .arg(common::output("Output format"))
}

/// The manifest of this node.
struct Local {
    path: PathBuf,
    manifest: Result<Manifest, ManifestError>,
}

pub(super) async fn run(matches: &ArgMatches, context: &Context) -> Result<(), CliError> {
    let format = common::format(matches);
    let root = matches.get_one::<PathBuf>("node-root").cloned().unwrap_or_default();
    let local = local(matches.get_one::<PathBuf>("manifest"), &root)?;
    let user = common::text(matches, "user").unwrap_or_else(|| access::USER.to_owned());
    let api = context.finder.api().await?;
    let main = context.finder.main_lease();

    let version = version(&api).await.map_err(failed)?;
    let managers = managers(&api, local.as_ref()).await.map_err(failed)?;
    let is_bootstrapped = is_bootstrapped(&api).await.map_err(failed)?;
    let leases = leases(&api, main, &managers, context).await.map_err(failed)?;
    let (asked, denied) = access(&api, managers.iter().find(|manager| manager.flags.is_ok()), &user).await;

    let mut checks = vec![
        server_version(&version),
        flags::check(&managers, main, is_bootstrapped),
        access::check(&asked, &denied, &user),
        leases::check(&leases, main, context.now()),
    ];
    checks.extend(node_checks(local.as_ref(), &root)?);
    let report = Report(checks);
    let text = match format {
        Format::Json => serde_json::to_string_pretty(&report.value())
            .map(|text| text + "\n")
            .map_err(|error| CliError::Encoding(error.to_string()))?,
        Format::Yaml => serde_yaml_ng::to_string(&report.value())
            .map_err(|error| CliError::Encoding(error.to_string()))?,
        Format::Table | Format::Wide => report.text(context.palette),
    };
    context.screen.print(&text)?;
    if report.blocking() > 0 { Err(CliError::Said(Exit::Failed)) } else { Ok(()) }
}

fn failed(error: ApiError) -> CliError {
    let message = error.to_string();
    CliError::Outcome { message, exit: CliError::Cluster(error).exit() }
}

/// Reads the manifest. Without the flag, and without the file, this is no control-plane node.
fn local(given: Option<&PathBuf>, root: &Path) -> Result<Option<Local>, CliError> {
    let path = given.cloned().unwrap_or_else(|| root.join(MANIFEST));
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error)
            if given.is_none()
                && matches!(error.kind(), ErrorKind::NotFound | ErrorKind::PermissionDenied) =>
        {
            return Ok(None);
        }
        Err(error) => return Err(CliError::Usage(format!("read {}: {error}", path.display()))),
    };
    Ok(Some(Local { path, manifest: Manifest::parse(&text) }))
}

/// The checks of files and of the port.
fn node_checks(local: Option<&Local>, root: &Path) -> Result<Vec<Check>, CliError> {
    let manifest = match local {
        None => Err("no manifest is readable on this machine; run preflight as root on a control-plane node"
            .to_owned()),
        Some(Local { path, manifest: Err(_) }) => Err(format!("{} cannot be used", path.display())),
        Some(Local { manifest: Ok(manifest), .. }) => Ok(manifest),
    };
    let manifest = match manifest {
        Ok(manifest) => manifest,
        Err(why) => return Ok(["files", "port"].map(|name| Check::skipped(name, why.clone())).into()),
    };
    let files = node::check_files(manifest, root).map_err(|error| CliError::Usage(error.to_string()))?;
    let value = |name: &str| {
        let written = manifest.flags().iter().rev().find(|written| written.flag.name() == name);
        written.map(|written| written.value.as_str())
    };
    let address = value("bind-address").and_then(|address| address.parse().ok());
    let port = value("secure-port").and_then(|port| port.parse().ok()).unwrap_or(PORT);
    let address = address.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
    Ok(vec![files, node::check_port(address, port, &root.join("proc"))])
}

async fn version(api: &ApiClient) -> Result<String, ApiError> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Version {
        git_version: String,
    }
    let Version { git_version } =
        api.json(RequestIntent::Get, RequestPath::VERSION, Query::NONE, None::<&()>).await?;
    Ok(git_version)
}

/// The kube-controller-managers of the pods, and that of the manifest.
async fn managers(api: &ApiClient, local: Option<&Local>) -> Result<Vec<Manager>, ApiError> {
    let mut managers = Vec::new();
    if let Some(Local { path, manifest }) = local {
        let name = path.display().to_string();
        let flags = match manifest {
            Ok(manifest) => Ok(manifest.flags().to_vec()),
            Err(error @ ManifestError::Flags(_)) => Err(Unread::Unknown(error.to_string())),
            Err(error) => Err(Unread::Hidden(error.to_string())),
        };
        managers.push(Manager { name, flags });
    }
    let pods = pods(api).await?;
    managers.extend(left::managers(&pods).into_iter().map(|(name, words)| match words {
        Ok(words) => Manager::new(name, &words),
        Err(why) => Manager::hidden(name, why),
    }));
    Ok(managers)
}

/// Whether kubeadm publishes the cluster to nodes that join.
async fn is_bootstrapped(api: &ApiClient) -> Result<bool, ApiError> {
    let path = RequestPath::object(&CONFIG_MAPS, "kube-public", "cluster-info");
    let found: Result<serde::de::IgnoredAny, ApiError> =
        api.json(RequestIntent::Get, path, Query::NONE, None::<&()>).await;
    match found {
        Ok(_) => Ok(true),
        Err(error) if matches!(error.code(), 403 | 404) => Ok(false),
        Err(error) => Err(error),
    }
}

async fn leases(
    api: &ApiClient,
    main: &MainLease,
    managers: &[Manager],
    context: &Context,
) -> Result<Leases, ApiError> {
    let mut seen = read_lease(api, &main.namespace, &main.name).await?;
    let mut is_renewed = false;
    let renewed =
        |lease: &Option<Lease>| lease.as_ref().and_then(|lease| lease.spec.as_ref()?.renew_time.clone());
    for _ in 0..RENEWALS.0 {
        if is_renewed || seen.as_ref().is_some_and(|lease| is_live(lease, context.now())) {
            break;
        }
        // This machine's clock may be wrong, so a renewal counts, too.
        sleep(RENEWALS.1).await;
        let again = read_lease(api, &main.namespace, &main.name).await?;
        is_renewed = renewed(&again) != renewed(&seen);
        seen = again;
    }
    let migration = match managers.iter().find_map(Manager::migration_lease) {
        Some(name) => Some((format!("{NAMESPACE}/{name}"), read_lease(api, NAMESPACE, name).await?)),
        None => None,
    };
    let group = Group::new(&main.namespace, &main.name);
    Ok(Leases {
        main: seen,
        is_renewed,
        migration,
        replicas: replicas(api).await?,
        overrides: read_lease(api, NAMESPACE, &group.overrides_lease()).await?,
    })
}

/// Asks about all permissions. Returns the number of questions and those that were denied, or why they cannot be asked.
async fn access(
    api: &ApiClient,
    manager: Option<&Manager>,
    user: &str,
) -> (Result<usize, String>, Vec<Question>) {
    let questions: BTreeSet<Question> = access::questions(manager);
    let number = questions.len();
    let answers = stream::iter(questions).map(|question| async move {
        let is_allowed = ask(api, &question, user).await?;
        Ok::<_, ApiError>((question, is_allowed))
    });
    match answers.buffered(REVIEWS).try_collect::<Vec<_>>().await {
        Ok(answers) => {
            let denied = answers.into_iter().filter(|(_, is_allowed)| !is_allowed);
            (Ok(number), denied.map(|(question, _)| question).collect())
        }
        Err(error) => (Err(error.to_string()), Vec::new()),
    }
}

async fn ask(api: &ApiClient, question: &Question, user: &str) -> Result<bool, ApiError> {
    for namespace in question.namespaces() {
        let review = question.review(user, namespace);
        let path = RequestPath::ACCESS_REVIEWS;
        let answer: Answer = api.json(RequestIntent::Create, path, Query::NONE, Some(&review)).await?;
        if answer.status.allowed {
            return Ok(true);
        }
    }
    Ok(false)
}
