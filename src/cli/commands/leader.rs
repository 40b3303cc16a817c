//! `leader` and `step-down`: who leads, and who is to lead next.

use clap::{ArgMatches, Command};

use super::{Context, lasting, switch, valued};
use crate::admin::proto::{GetLeaderRequest, StepDownRequest, WatchLeaderRequest, WatchLeaderResponse};
use crate::cli::common;
use crate::cli::connect::{CALL, Session, WAIT};
use crate::cli::error::CliError;
use crate::cli::find::Whom;
use crate::cli::output::table::{Columns, cells};
use crate::cli::output::{Format, clean, leader as show, objects};

pub(super) fn show() -> Command {
    Command::new("leader")
        .about("Show the leader and the other replicas")
        .arg(valued("lease", "NAMESPACE/NAME", "Leader-election Lease to show [default: the manager's]"))
        .arg(switch("watch", "Keep watching, and print each change").short('w'))
        .arg(switch("renewals", "With --watch, also print Lease renewals").requires("watch"))
        .arg(common::output("Output format; with --watch, json prints one line per message"))
}

pub(super) fn step_down() -> Command {
    Command::new("step-down")
        .about("Make the leader release its Lease")
        .arg(valued("to", "IDENTITY", "Replica that leads next [default: the first to acquire the Lease]"))
        .arg(valued("expected-leader", "IDENTITY", "Fail unless the replica with this identity leads"))
        .arg(valued("reason", "TEXT", "Reason to record with this change"))
        .arg(switch("wait", "Wait until another replica leads; with --force, until any replica leads"))
        .arg(switch("dry-run", "Check the request without changing anything"))
        .arg(switch("force", "Step down even if no other replica is live"))
        .arg(common::output("Output format"))
}

pub(super) async fn run_show(matches: &ArgMatches, context: &Context) -> Result<(), CliError> {
    let format = common::format(matches);
    let lease = common::text(matches, "lease").unwrap_or_default();
    if matches.get_flag("watch") {
        let request = WatchLeaderRequest { lease, include_renewals: matches.get_flag("renewals") };
        return watch(request, format, context).await;
    }
    let session = context.finder.connect(Whom::Anyone).await?;
    let mut client = session.leader();
    let request = GetLeaderRequest { lease };
    let answer =
        session.call(request, CALL, |request| async move { client.get_leader(request).await }).await?;
    let text = if format.is_object() {
        objects::document(format, "GetLeaderResponse", &answer)?
    } else {
        show::sheet(&answer, context.now())
    };
    context.screen.print(&text)
}

async fn watch(request: WatchLeaderRequest, format: Format, context: &Context) -> Result<(), CliError> {
    let open = async |session: &Session| {
        let opened = session.leader().watch_leader(session.stream(request.clone())).await;
        opened.map(tonic::Response::into_inner)
    };
    let mut columns = Columns::default();
    let mut headings = (!format.is_object()).then(|| cells(show::HEADINGS.map(str::to_owned).to_vec()));
    let show = |message: WatchLeaderResponse| {
        let text = if format.is_object() {
            objects::item(format, "WatchLeaderResponse", &message)?
        } else {
            let leader = message.leader.unwrap_or_default();
            let row = cells(show::row(&leader, &message.replicas, context.now()));
            let rows: Vec<_> = headings.take().into_iter().chain([row]).collect();
            columns.lines(&rows)
        };
        context.screen.print(&text)
    };
    lasting::watch(context, open, show).await
}

/// Returns the leader, if there is one and the caller may see it.
async fn holder(session: &Session) -> Result<Option<String>, CliError> {
    let mut client = session.leader();
    let asked = session
        .call(GetLeaderRequest::default(), CALL, |request| async move { client.get_leader(request).await });
    match asked.await {
        Ok(answer) => {
            Ok(answer.leader.map(|leader| leader.holder_identity).filter(|holder| !holder.is_empty()))
        }
        Err(CliError::Refused(status)) if status.code() == tonic::Code::PermissionDenied => Ok(None),
        Err(error) => Err(error),
    }
}

pub(super) async fn run_step_down(matches: &ArgMatches, context: &Context) -> Result<(), CliError> {
    let format = common::format(matches);
    let mut request = StepDownRequest {
        reason: common::text(matches, "reason").unwrap_or_default(),
        successor_identity: common::text(matches, "to").unwrap_or_default(),
        expected_leader_identity: common::text(matches, "expected-leader"),
        wait: matches.get_flag("wait"),
        dry_run: matches.get_flag("dry-run"),
        force: matches.get_flag("force"),
    };
    let limit = if request.wait { WAIT } else { CALL };
    let session = context.finder.connect(Whom::Leader).await?;
    if request.expected_leader_identity.is_none() {
        // By the Lease, or else as the replica tells.
        request.expected_leader_identity = match context.finder.holder().await? {
            Some(found) => Some(found),
            None => holder(&session).await?,
        };
    }
    let call = async |session: &Session| {
        let mut client = session.leader();
        session.call(request.clone(), limit, |request| async move { client.step_down(request).await }).await
    };
    // One request makes one replica step down: whoever leads by now was not found as the leader.
    let answer = if request.expected_leader_identity.is_some() {
        context.finder.follow(&session, call).await?
    } else {
        call(&session).await?
    };
    if format.is_object() {
        return context.screen.print(&objects::document(format, "StepDownResponse", &answer)?);
    }
    let leader = answer.leader.unwrap_or_default();
    let (me, holder) = (clean(&leader.replica_identity), clean(&leader.holder_identity));
    let line = if request.dry_run {
        format!("{me} would step down (dry run)\n")
    } else if request.wait && holder == me {
        format!("{me} has stepped down and leads again; nobody else took over\n")
    } else if holder.is_empty() || holder == me {
        format!("{me} is stepping down; no other replica leads yet\n")
    } else {
        format!("{me} has stepped down; {holder} leads\n")
    };
    context.screen.print(&line)
}
