//! `debug dump`: collects what a report of a problem needs in one file, through the admin API and the pages of a replica.

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use clap::{ArgMatches, Command, value_parser};
use prost::Message;
use serde_json::json;

use super::uninstall::{read_lease, replicas};
use super::{Context, controllers, queues, valued};
use crate::admin::proto::stream_events_request::Start;
use crate::admin::proto::{
    ControllerFilter, GetLeaderRequest, GetQueueRequest, QueueFilter, StreamEventsRequest,
};
use crate::cli::connect::{CALL, Session};
use crate::cli::dump::{Bundle, LONGEST_PART};
use crate::cli::error::{CliError, Exit};
use crate::cli::find::Whom;
use crate::cli::output::{Format, objects};
use coxswain_machinery::options::versions;

/// Events that are asked for; a replica keeps fewer.
const EVENTS: u32 = 10_000;
/// Keys of each sort of a queue.
const KEYS: i32 = 100;
/// Pages of a replica's port.
const PAGES: [(&str, &str, &str); 7] = [
    ("/flagz", "flagz.txt", "flags in force"),
    ("/configz", "configz.json", "component configuration"),
    ("/statusz", "statusz.txt", "version and uptime"),
    ("/healthz?verbose", "healthz.txt", "health checks"),
    ("/livez?verbose", "livez.txt", "checks of the liveness probe"),
    ("/readyz?verbose", "readyz.txt", "checks of the readiness probe"),
    ("/metrics", "metrics.txt", "metrics"),
];
const UNREAD: &str = "no replica was reached";

pub(super) fn command() -> Command {
    Command::new("debug")
        .about("Collect data for a problem report")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .disable_help_subcommand(true)
        .subcommand(
            Command::new("dump")
                .about("Write a support bundle of the leader, or of the replica given by --server")
                .after_help(
                    "contents.json in the bundle lists the parts, and the reason for each part that could not be read. The command removes \
                     tokens, passwords and private keys, and keeps names of objects, users and addresses. Exit code 1: parts are \
                     missing.",
                )
                .arg(
                    valued("output", "FILE", "New file to write [default: coxswain-dump-TIME.tar.gz]")
                        .short('o')
                        .value_parser(value_parser!(PathBuf)),
                ),
        )
}

pub(super) async fn run(matches: &ArgMatches, context: &Context) -> Result<(), CliError> {
    match matches.subcommand() {
        Some(("dump", matches)) => dump(matches, context).await,
        _ => Err(CliError::Usage("there is nothing to collect".to_owned())),
    }
}

async fn dump(matches: &ArgMatches, context: &Context) -> Result<(), CliError> {
    let now = context.now();
    let folder = format!("coxswain-dump-{}", now.strftime("%Y%m%dT%H%M%SZ"));
    let path = matches.get_one::<PathBuf>("output").cloned();
    let path = path.unwrap_or_else(|| PathBuf::from(format!("{folder}.tar.gz")));
    let mut bundle = Bundle::default();
    bundle.add("leases.json", "Leases of the leader, of replicas and of overrides", leases(context).await);
    let session = context.finder.connect(Whom::Leader).await;
    let replica = match &session {
        Ok(session) => {
            collect(&mut bundle, session, context).await;
            json!({ "identity": session.identity, "address": session.address.to_string() })
        }
        Err(error) => {
            bundle.add(
                "replica.json",
                "all data read from a replica",
                Err(format!("{UNREAD}: {}", error.text())),
            );
            json!(null)
        }
    };
    let facts = json!({ "time": now.to_string(), "client": versions::COXSWAIN, "replica": replica });
    write(&bundle, &path, &folder, (&facts, now.as_second()))?;
    let gaps = bundle.gaps();
    for gap in &gaps {
        context.screen.note(&format!("not read: {gap}"));
    }
    context.screen.print(&format!("{} written\n", path.display()))?;
    if gaps.is_empty() { Ok(()) } else { Err(CliError::Said(Exit::Failed)) }
}

fn write(
    bundle: &Bundle,
    path: &Path,
    folder: &str,
    (facts, second): (&serde_json::Value, i64),
) -> Result<(), CliError> {
    let failed = |error: std::io::Error| CliError::Usage(format!("write {}: {error}", path.display()));
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map_err(failed)?;
    let second = u64::try_from(second).unwrap_or_default();
    bundle.write(&file, folder, facts, second).and_then(|()| file.sync_all()).map_err(|error| {
        // A part of a bundle is no bundle.
        drop(std::fs::remove_file(path));
        failed(error)
    })
}

async fn leases(context: &Context) -> Result<String, String> {
    let api = context.finder.api().await.map_err(|error| error.text())?;
    let main = context.finder.main_lease();
    let group = crate::admin::Group::new(&main.namespace, &main.name);
    let wrong = |error: coxswain_machinery::client::ApiError| error.to_string();
    let found = json!({
        "leader": read_lease(&api, &main.namespace, &main.name).await.map_err(wrong)?,
        "replicas": replicas(&api).await.map_err(wrong)?,
        "overrides": read_lease(&api, "kube-system", &group.overrides_lease()).await.map_err(wrong)?,
    });
    pretty(&found)
}

fn pretty(value: &serde_json::Value) -> Result<String, String> {
    serde_json::to_string_pretty(value).map(|text| text + "\n").map_err(|error| error.to_string())
}

/// Shows an answer, or its error.
fn shown<M: Message>(name: &str, answer: Result<M, CliError>) -> Result<String, String> {
    let answer = answer.map_err(|error| error.text())?;
    objects::document(Format::Json, name, &answer).map_err(|error| error.text())
}

async fn collect(bundle: &mut Bundle, session: &Session, context: &Context) {
    let mut client = session.leader();
    let leader = session
        .call(GetLeaderRequest::default(), CALL, |request| async move { client.get_leader(request).await });
    bundle.add(
        "leader.json",
        "leader, and all replicas with their versions",
        shown("GetLeaderResponse", leader.await),
    );
    let listed = controllers::fetch_from(session, &ControllerFilter::default()).await;
    bundle.add(
        "controllers.json",
        "all controllers with overrides, health and caches",
        shown("ListControllersResponse", listed),
    );
    let all = queues::fetch(session, &QueueFilter::default()).await;
    let names: Vec<String> = all.iter().flat_map(|all| &all.queues).map(|queue| queue.name.clone()).collect();
    bundle.add("queues.json", "all work queues", shown("ListQueuesResponse", all));
    let mut tasks = Vec::new();
    let mut failure = None;
    for name in names {
        let mut client = session.queues();
        let request = GetQueueRequest { name: name.clone(), max_keys: KEYS };
        let answer =
            session.call(request, CALL, |request| async move { client.get_queue(request).await }).await;
        match answer.and_then(|answer| objects::value("GetQueueResponse", &answer)) {
            Ok(answer) => tasks.push(answer),
            Err(error) => failure = Some(format!("{name}: {}", error.text())),
        }
    }
    let tasks = failure.map_or_else(|| pretty(&tasks.into()), Err);
    bundle.add("tasks.json", "for each queue: keys in flight, failing keys and waiting keys", tasks);
    bundle.add("events.jsonl", "events of the replica's log", events(session).await);
    for (page, file, about) in PAGES {
        let text = session.page(page, LONGEST_PART).await;
        bundle.add(file, about, text);
    }
    context.screen.note(&format!("read from {} at {}", session.identity, session.address));
}

async fn events(session: &Session) -> Result<String, String> {
    let request = StreamEventsRequest {
        start: Some(Start::Last(EVENTS)),
        replay_only: true,
        ..StreamEventsRequest::default()
    };
    let wrong = |status: tonic::Status| CliError::from(status).text();
    let read = async {
        let mut stream =
            session.events().stream_events(session.stream(request)).await.map_err(wrong)?.into_inner();
        let mut text = String::new();
        while let Some(message) = stream.message().await.map_err(wrong)? {
            let line = objects::item(Format::Json, "StreamEventsResponse", &message)
                .map_err(|error| error.text())?;
            text.push_str(&line);
        }
        Ok(text)
    };
    tokio::time::timeout(CALL, read).await.unwrap_or_else(|_| Err("no answer in time".to_owned()))
}
