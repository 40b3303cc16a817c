//! `sync` and `explain`: an object reconciled now, or what a reconcile would do and why nothing happens.

use clap::{Arg, ArgMatches, Command};

use super::{Context, namespace, object_key, queues, valued};
use crate::admin::proto::{
    ExplainObjectRequest, ObjectKey, Queue, QueueFilter, SyncObjectRequest, SyncObjectResponse, SyncOutcome,
};
use crate::cli::common;
use crate::cli::connect::{CALL, Session};
use crate::cli::error::{CliError, Exit};
use crate::cli::output::{names, objects, sync as show};
use crate::cli::{kinds, output};

fn arguments(command: Command) -> Command {
    command
        .arg(
            Arg::new("object")
                .value_name("NAMESPACE/NAME")
                .required(true)
                .help("NAMESPACE/NAME of the object; NAME alone if it is cluster-scoped or -n is given"),
        )
        .arg(namespace("Namespace of the object"))
        .arg(valued("queue", "NAME", "Queue to use, if the controller has several"))
        .arg(common::output("Output format"))
}

pub(super) fn sync() -> Command {
    let command = Command::new("sync")
        .about("Reconcile an object now")
        .after_help("Exits 1 if the reconcile fails, 5 if the object does not exist.")
        .arg(
            Arg::new("controller")
                .value_name("CONTROLLER")
                .required(true)
                .help("Name or alias of the controller"),
        );
    arguments(command)
}

pub(super) fn explain() -> Command {
    let command =
        Command::new("explain").about("Show what a reconcile of an object would do, without doing it").arg(
            Arg::new("kind")
                .value_name("KIND")
                .required(true)
                .help("Kind of the object, as in kubectl: deploy, Deployment, deployments.apps"),
        );
    arguments(command).arg(valued(
        "controller",
        "NAME",
        "Controller to use, if several have queues for this kind",
    ))
}

pub(super) async fn run_sync(matches: &ArgMatches, context: &Context) -> Result<(), CliError> {
    let request = SyncObjectRequest {
        controller: common::text(matches, "controller").unwrap_or_default(),
        object: Some(object_key(
            &required(matches, "object"),
            common::text(matches, "namespace").as_deref(),
        )?),
        queue: common::text(matches, "queue").unwrap_or_default(),
        explain: false,
    };
    let answer = context.finder.of_leader(async |session| call(session, request.clone()).await).await?;
    finish(&request, &answer, matches, context)
}

fn required(matches: &ArgMatches, name: &str) -> String {
    common::text(matches, name).unwrap_or_default()
}

async fn call(session: &Session, request: SyncObjectRequest) -> Result<SyncObjectResponse, CliError> {
    let mut client = session.queues();
    session.call(request, CALL, |request| async move { client.sync_object(request).await }).await
}

/// Asks what a reconcile would do, of a replica of an older version too.
async fn ask(session: &Session, request: SyncObjectRequest) -> Result<SyncObjectResponse, CliError> {
    let question = ExplainObjectRequest {
        controller: request.controller.clone(),
        object: request.object.clone(),
        queue: request.queue.clone(),
    };
    let mut client = session.queues();
    match session.call(question, CALL, |question| async move { client.explain_object(question).await }).await
    {
        Ok(answer) => Ok(SyncObjectResponse {
            outcome: answer.outcome,
            actions: answer.actions,
            message: answer.message,
            requeue_after: answer.requeue_after,
            duration: answer.duration,
            trace_id: String::new(),
            queue: answer.queue,
            reasons: answer.reasons,
        }),
        Err(CliError::Refused(status)) if status.code() == tonic::Code::Unimplemented => {
            call(session, request).await
        }
        Err(error) => Err(error),
    }
}

pub(super) async fn run_explain(matches: &ArgMatches, context: &Context) -> Result<(), CliError> {
    let kind = required(matches, "kind");
    let object = object_key(&required(matches, "object"), common::text(matches, "namespace").as_deref())?;
    let picked =
        Picked { controller: common::text(matches, "controller"), queue: common::text(matches, "queue") };
    let (request, answer) = context
        .finder
        .of_leader(async |session| {
            let filter = QueueFilter {
                controllers: picked.controller.clone().into_iter().collect(),
                ..QueueFilter::default()
            };
            let queues = queues::fetch(session, &filter).await?.queues;
            let request = resolve(&kind, &object, &picked, &queues)?;
            let answer = ask(session, request.clone()).await?;
            Ok((request, answer))
        })
        .await?;
    finish(&request, &answer, matches, context)
}

/// What the user has picked where there is a choice.
#[derive(Default)]
pub(in crate::cli) struct Picked {
    /// `--controller`.
    pub(in crate::cli) controller: Option<String>,
    /// `--queue`.
    pub(in crate::cli) queue: Option<String>,
}

/// The request for an object of a kind: to the one controller that has a queue for it. `queues` are those of the
/// controller picked, if one is.
pub(in crate::cli) fn resolve(
    kind: &str,
    object: &ObjectKey,
    picked: &Picked,
    queues: &[Queue],
) -> Result<SyncObjectRequest, CliError> {
    let not_found = |message: String| CliError::Outcome { message, exit: Exit::NotFound };
    if let (Some(controller), []) = (&picked.controller, queues) {
        return Err(not_found(format!(
            "--controller {controller:?}: no running controller of this name has a queue; `coxswain queues` lists queues"
        )));
    }
    let wanted: Vec<&Queue> =
        queues.iter().filter(|queue| picked.queue.as_ref().is_none_or(|name| *name == queue.name)).collect();
    if let (Some(queue), []) = (&picked.queue, wanted.as_slice()) {
        return Err(not_found(format!("--queue {queue:?}: no such queue; `coxswain queues` lists queues")));
    }
    let resource =
        kinds::resolve(kind, wanted.iter().map(|queue| queue.resource.as_str())).map_err(not_found)?;
    match (kinds::is_namespaced(resource), object.namespace.as_str()) {
        (Some(true), "") => {
            let name = &object.name;
            return Err(CliError::Usage(format!("{resource} are namespaced; use NAMESPACE/{name} or -n")));
        }
        (Some(false), namespace) if !namespace.is_empty() => {
            return Err(CliError::Usage(format!(
                "{resource} are cluster-scoped; use {} without a namespace",
                object.name
            )));
        }
        _ => {}
    }
    let matching: Vec<&&Queue> = wanted.iter().filter(|queue| queue.resource == resource).collect();
    let [queue] = matching.as_slice() else {
        let choices: Vec<String> = matching
            .iter()
            .map(|queue| format!("\n  --controller {} --queue {}", queue.controller, queue.name))
            .collect();
        return Err(CliError::Usage(format!(
            "several queues are for {resource}; use one of:{}",
            choices.concat()
        )));
    };
    Ok(SyncObjectRequest {
        controller: queue.controller.clone(),
        object: Some(object.clone()),
        queue: queue.name.clone(),
        explain: true,
    })
}

/// Shows the answer; fails if the object is not as it should be afterwards.
fn finish(
    request: &SyncObjectRequest,
    answer: &SyncObjectResponse,
    matches: &ArgMatches,
    context: &Context,
) -> Result<(), CliError> {
    let format = common::format(matches);
    let text = if format.is_object() {
        objects::document(format, "SyncObjectResponse", answer)?
    } else {
        show::sheet(request, answer)
    };
    context.screen.print(&text)?;
    let exit = match SyncOutcome::try_from(answer.outcome) {
        Ok(SyncOutcome::Done | SyncOutcome::Explained) => return Ok(()),
        Ok(SyncOutcome::NoObject) => Exit::NotFound,
        _ => Exit::Failed,
    };
    let outcome = names::outcome(answer.outcome);
    let message = match answer.message.as_str() {
        "" => outcome,
        message => format!("{outcome}: {}", output::clean(message)),
    };
    Err(CliError::Outcome { message, exit })
}
