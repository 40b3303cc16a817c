//! `queues` and `queue`: what waits to be reconciled, and what fails.

use clap::{Arg, ArgMatches, Command};

use super::{Context, many, switch, valued};
use crate::admin::proto::{GetQueueRequest, ListQueuesRequest, ListQueuesResponse, QueueFilter};
use crate::cli::common;
use crate::cli::connect::{CALL, Session};
use crate::cli::error::CliError;
use crate::cli::find::Whom;
use crate::cli::kinds;
use crate::cli::output::{objects, queues as show};

pub(super) fn list() -> Command {
    Command::new("queues")
        .about("List the work queues of running controllers")
        .arg(many(valued("controller", "NAME", "Filter by controller name or alias")))
        .arg(valued("resource", "KIND", "Filter by the kind of the keys: deploy, deployments.apps"))
        .arg(switch("busy", "Only queues with waiting or failing keys"))
        .arg(common::output("Output format"))
}

pub(super) fn show() -> Command {
    Command::new("queue")
        .about("Show a queue with its oldest and failing keys")
        .arg(
            Arg::new("name")
                .value_name("NAME")
                .required(true)
                .help("Name of the queue, as listed by `queues`"),
        )
        .arg(
            valued("keys", "N", "Maximum number of keys in each list [default: 20]")
                .value_parser(clap::value_parser!(i32).range(1..=1000)),
        )
        .arg(common::output("Output format"))
}

/// All pages as one.
pub(super) async fn fetch(session: &Session, filter: &QueueFilter) -> Result<ListQueuesResponse, CliError> {
    let mut all = ListQueuesResponse::default();
    loop {
        let page_token = std::mem::take(&mut all.next_page_token);
        let request = ListQueuesRequest { filter: Some(filter.clone()), page_size: 0, page_token };
        let mut client = session.queues();
        let page =
            session.call(request, CALL, |request| async move { client.list_queues(request).await }).await?;
        all.queues.extend(page.queues);
        all.total_size = page.total_size;
        all.next_page_token = page.next_page_token;
        if all.next_page_token.is_empty() {
            return Ok(all);
        }
    }
}

pub(super) async fn run_list(matches: &ArgMatches, context: &Context) -> Result<(), CliError> {
    let format = common::format(matches);
    let filter = QueueFilter {
        controllers: common::texts(matches, "controller"),
        resource: String::new(),
        busy: matches.get_flag("busy"),
    };
    let session = context.finder.connect(Whom::Leader).await?;
    let mut all = fetch(&session, &filter).await?;
    if let Some(kind) = common::text(matches, "resource") {
        all.queues.retain(|queue| kinds::names(&kind, &queue.resource));
        all.total_size = i32::try_from(all.queues.len()).unwrap_or(i32::MAX);
    }
    if format.is_object() {
        return context.screen.print(&objects::document(format, "ListQueuesResponse", &all)?);
    }
    if all.queues.is_empty() {
        context.screen.note("no queue matches; only the leader's running controllers have queues");
        return Ok(());
    }
    context.screen.print(&show::list(&all.queues, format))
}

pub(super) async fn run_show(matches: &ArgMatches, context: &Context) -> Result<(), CliError> {
    let format = common::format(matches);
    let request = GetQueueRequest {
        name: common::text(matches, "name").unwrap_or_default(),
        max_keys: matches.get_one::<i32>("keys").copied().unwrap_or(0),
    };
    let answer = context
        .finder
        .of_leader(async |session| {
            let mut client = session.queues();
            session
                .call(request.clone(), CALL, |request| async move { client.get_queue(request).await })
                .await
        })
        .await?;
    let text = if format.is_object() {
        objects::document(format, "GetQueueResponse", &answer)?
    } else {
        show::sheet(&answer, context.now())
    };
    context.screen.print(&text)
}
