//! `uninstall`: the steps before and after `helm uninstall`, which the chart's hooks run. Calls no replica.

use std::time::Duration;

use clap::{Arg, ArgMatches, Command};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::time::{Instant, sleep};

use super::Context;
use crate::cli::common;
use crate::cli::discover::{self, MainLease};
use crate::cli::error::{CliError, Exit};
use crate::cli::uninstall::{Deletion, MANAGERS, NAMESPACE, Observation, Takeover, remains};
use coxswain_machinery::api::Kind;
use coxswain_machinery::api::kinds::{LEASES, PODS};
use coxswain_machinery::client::{ApiClient, ApiError, DeleteOptions, Query, RequestIntent, RequestPath};
use coxswain_machinery::model::Key;

/// How long `check` waits for another manager: a standby takes an expired Lease over after 15 s by default.
const CHECK: Duration = Duration::from_secs(45);
/// How long `clean` waits for the pods of the release to end. Helm waits for 5 minutes by default.
const CLEAN: Duration = Duration::from_mins(3);
/// A replica that renews its Lease no more within this time has ended: the Lease lasts 40 s, and a request takes up to 5 s.
const RENEWAL: Duration = Duration::from_secs(45);
/// The time between two observations.
const INTERVAL: Duration = Duration::from_secs(2);

pub(super) fn command() -> Command {
    Command::new("uninstall")
        .about("Check for another controller manager, or delete leftover Leases")
        .after_help(
            "The chart runs both steps as hooks of helm uninstall. clean waits until the pods of the release have terminated. \
             Then clean deletes the overrides, the Leases of stopped replicas and, if --leader-elect-resource-name is set, the \
             leader-election Lease of that name.",
        )
        .arg(
            Arg::new("step")
                .value_name("STEP")
                .required(true)
                .value_parser(["check", "clean"])
                .help("check runs before the uninstall, clean after it"),
        )
}

pub(super) async fn run(matches: &ArgMatches, context: &Context) -> Result<(), CliError> {
    let api = context.finder.api().await?;
    let limit = context.finder.timeout();
    let text = if common::text(matches, "step").as_deref() == Some("check") {
        check(&api, Instant::now() + limit.unwrap_or(CHECK)).await?
    } else {
        clean(&api, context.finder.main_lease(), Instant::now() + limit.unwrap_or(CLEAN)).await?
    };
    context.screen.print(&text)
}

async fn check(api: &ApiClient, deadline: Instant) -> Result<String, CliError> {
    let mut takeover = Takeover::default();
    loop {
        let now = until(deadline, async || observe(api).await).await?;
        let why = match takeover.observe(&now) {
            Ok(manager) => return Ok(format!("{manager} takes over\n")),
            Err(why) => why,
        };
        if Instant::now() >= deadline {
            let message =
                format!("{why}; start kube-controller-manager first, or use helm uninstall --no-hooks");
            return Err(CliError::Outcome { message, exit: Exit::Refused });
        }
        sleep(INTERVAL).await;
    }
}

async fn clean(api: &ApiClient, main: &MainLease, deadline: Instant) -> Result<String, CliError> {
    loop {
        let pods = until(deadline, async || pods(api).await).await?;
        let left = Observation { pods, ..Observation::default() }.release_pods().join(", ");
        if left.is_empty() {
            break;
        }
        if Instant::now() >= deadline {
            let message = format!("timed out waiting for the release's pods to terminate: {left}");
            return Err(CliError::Outcome { message, exit: Exit::TimedOut });
        }
        sleep(INTERVAL).await;
    }
    let before = until(deadline, async || replicas(api).await).await?;
    if !remains(&[], &before, main).live.is_empty() {
        sleep(RENEWAL).await;
    }
    let now = until(deadline, async || replicas(api).await).await?;
    let remains = remains(&before, &now, main);
    let mut deleted = Vec::new();
    for deletion in remains.deletions(main) {
        let done = until(deadline, async || match &deletion {
            Deletion::Named(namespace, name) => delete_named(api, namespace, name).await,
            Deletion::Seen(lease) => delete(api, &lease.metadata).await,
        });
        deleted.extend(done.await?);
    }
    let live = remains.live;
    let mut lines: Vec<String> = deleted.iter().map(|name| format!("lease {name} deleted")).collect();
    if !live.is_empty() {
        lines.push(format!("overrides kept, because these replicas are still running: {}", live.join(", ")));
    }
    Ok(lines.iter().flat_map(|line| [line.as_str(), "\n"]).collect())
}

/// Tries again until the deadline: rights that were granted a moment ago may not be in force yet.
async fn until<T>(deadline: Instant, request: impl AsyncFn() -> Result<T, ApiError>) -> Result<T, CliError> {
    loop {
        match request().await {
            Ok(done) => return Ok(done),
            // A Lease that changes while it is deleted is that of a replica that has just started.
            Err(error) if error.is_conflict() || Instant::now() >= deadline => {
                let message = error.to_string();
                return Err(CliError::Outcome { message, exit: CliError::Cluster(error).exit() });
            }
            Err(_) => sleep(INTERVAL).await,
        }
    }
}

async fn observe(api: &ApiClient) -> Result<Observation, ApiError> {
    let MainLease { namespace, name } = MainLease::default();
    Ok(Observation {
        pods: pods(api).await?,
        replicas: replicas(api).await?,
        main: read_lease(api, &namespace, &name).await?,
    })
}

#[derive(Deserialize)]
struct List<T> {
    items: Vec<T>,
}

async fn list<T: DeserializeOwned>(
    api: &ApiClient,
    kind: &'static Kind,
    selector: &str,
) -> Result<Vec<T>, ApiError> {
    let query = Query::default().with("labelSelector", selector);
    let path = RequestPath::collection(kind, NAMESPACE);
    let List { items } = api.json(RequestIntent::List, path, &query, None::<&()>).await?;
    Ok(items)
}

/// Lists the pods of controller managers.
pub(super) async fn pods(api: &ApiClient) -> Result<Vec<Pod>, ApiError> {
    list(api, &PODS, MANAGERS).await
}

/// Lists the Leases of replicas.
pub(super) async fn replicas(api: &ApiClient) -> Result<Vec<Lease>, ApiError> {
    list(api, &LEASES, discover::SELECTOR).await
}

/// Reads a Lease; `None` if it does not exist.
pub(super) async fn read_lease(
    api: &ApiClient,
    namespace: &str,
    name: &str,
) -> Result<Option<Lease>, ApiError> {
    let path = RequestPath::object(&LEASES, namespace, name);
    match api.json(RequestIntent::Get, path, Query::NONE, None::<&()>).await {
        Ok(lease) => Ok(Some(lease)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

async fn delete_named(api: &ApiClient, namespace: &str, name: &str) -> Result<Option<String>, ApiError> {
    match read_lease(api, namespace, name).await? {
        Some(lease) => delete(api, &lease.metadata).await,
        None => Ok(None),
    }
}

/// Deletes exactly this version of a Lease; `None` if it is gone.
async fn delete(api: &ApiClient, lease: &ObjectMeta) -> Result<Option<String>, ApiError> {
    let options = DeleteOptions {
        uid: lease.uid.clone(),
        resource_version: lease.resource_version.clone(),
        ..DeleteOptions::default()
    };
    let name = lease.name.clone().unwrap_or_default();
    let key = Key::new(lease.namespace.as_deref().unwrap_or(NAMESPACE), name.as_str());
    match api.delete(&LEASES, &key, &options).await {
        Ok(_) => Ok(Some(name)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}
