//! `controllers` and `controller`: what runs, and what does not and why.

use clap::{Arg, ArgMatches, Command};

use super::{Context, choice, chosen, lasting, many, message_duration, switch, valued};
use crate::admin::proto::watch_controllers_response::Update;
use crate::admin::proto::{
    Controller, ControllerFilter, GetControllerRequest, InvalidOverride, ListControllersRequest,
    ListControllersResponse, WatchControllersRequest, WatchControllersResponse,
};
use crate::cli::common::{self, parse_duration};
use crate::cli::connect::{CALL, Session};
use crate::cli::error::CliError;
use crate::cli::find::Whom;
use crate::cli::output::table::{Columns, cells};
use crate::cli::output::{Format, clean, controllers as show, names, objects};

pub(super) fn list() -> Command {
    Command::new("controllers")
        .about("List or watch controllers")
        .arg(
            Arg::new("name")
                .value_name("NAME")
                .num_args(0..)
                .help("Names or aliases of controllers [default: all]"),
        )
        .arg(many(choice("phase", &names::phases(), "Filter by phase")))
        .arg(many(choice("health", &names::healths(), "Filter by health")))
        .arg(many(choice("source", &names::sources(), "Filter by the source of the desired state")))
        .arg(switch("enabled", "Only enabled controllers").conflicts_with("disabled"))
        .arg(switch("disabled", "Only disabled controllers"))
        .arg(switch("watch", "Keep watching, and print each controller that changes").short('w'))
        .arg(
            valued("every", "DURATION", "With --watch, also print changed counters at this interval")
                .value_parser(parse_duration)
                .requires("watch"),
        )
        .arg(common::output("Output format; with --watch, json prints one line per message"))
}

pub(super) fn show() -> Command {
    Command::new("controller")
        .about("Show a controller in detail")
        .arg(Arg::new("name").value_name("NAME").required(true).help("Name or alias of the controller"))
        .arg(common::output("Output format"))
}

pub(super) async fn run_show(matches: &ArgMatches, context: &Context) -> Result<(), CliError> {
    let format = common::format(matches);
    let request = GetControllerRequest { name: common::text(matches, "name").unwrap_or_default() };
    let session = context.finder.connect(Whom::Anyone).await?;
    let mut client = session.controllers();
    let answer =
        session.call(request, CALL, |request| async move { client.get_controller(request).await }).await?;
    if answer.flags_differ {
        context.screen.note(FLAGS_DIFFER);
    }
    let controller = answer.controller.unwrap_or_default();
    let text = if format.is_object() {
        objects::document(format, "Controller", &controller)?
    } else {
        show::sheet(&controller, context.now())
    };
    context.screen.print(&text)
}

const FLAGS_DIFFER: &str = "warning: this replica's flags differ from the leader's flags, which apply; use --server to call the leader";

fn filter(matches: &ArgMatches) -> ControllerFilter {
    ControllerFilter {
        names: common::texts(matches, "name"),
        phases: chosen(matches, "phase", &names::phases()).into_iter().map(i32::from).collect(),
        desired_sources: chosen(matches, "source", &names::sources()).into_iter().map(i32::from).collect(),
        healths: chosen(matches, "health", &names::healths()).into_iter().map(i32::from).collect(),
        desired_enabled: match (matches.get_flag("enabled"), matches.get_flag("disabled")) {
            (true, _) => Some(true),
            (_, true) => Some(false),
            _ => None,
        },
    }
}

pub(super) async fn run_list(matches: &ArgMatches, context: &Context) -> Result<(), CliError> {
    let format = common::format(matches);
    let filter = filter(matches);
    if matches.get_flag("watch") {
        let every = matches.get_one::<std::time::Duration>("every").copied();
        return watch(filter, every, format, context).await;
    }
    let all = fetch(filter, context).await?;
    if format.is_object() {
        return context.screen.print(&objects::document(format, "ListControllersResponse", &all)?);
    }
    complain(&all.invalid_overrides, context);
    if all.flags_differ {
        context.screen.note(FLAGS_DIFFER);
    }
    if all.controllers.is_empty() {
        context.screen.note("no controller matches");
        return Ok(());
    }
    let now = context.now();
    let mut rows = vec![cells(show::headings(format))];
    rows.extend(all.controllers.iter().map(|controller| cells(show::row(controller, format, now))));
    context.screen.print(&Columns::default().lines(&rows))
}

async fn fetch(filter: ControllerFilter, context: &Context) -> Result<ListControllersResponse, CliError> {
    let session = context.finder.connect(Whom::Anyone).await?;
    fetch_from(&session, &filter).await
}

/// All pages as one.
pub(super) async fn fetch_from(
    session: &Session,
    filter: &ControllerFilter,
) -> Result<ListControllersResponse, CliError> {
    let mut all = ListControllersResponse::default();
    loop {
        let page_token = std::mem::take(&mut all.next_page_token);
        let request = ListControllersRequest { filter: Some(filter.clone()), page_size: 0, page_token };
        let mut client = session.controllers();
        let page = session
            .call(request, CALL, |request| async move { client.list_controllers(request).await })
            .await?;
        all.controllers.extend(page.controllers);
        (all.total_size, all.invalid_overrides) = (page.total_size, page.invalid_overrides);
        all.flags_differ |= page.flags_differ;
        all.next_page_token = page.next_page_token;
        if all.next_page_token.is_empty() {
            return Ok(all);
        }
    }
}

fn complain(overrides: &[InvalidOverride], context: &Context) {
    for held in overrides {
        let (key, message) = (clean(&held.key), clean(&held.message));
        context.screen.note(&format!("warning: the override {key} has no effect: {message}"));
    }
}

async fn watch(
    filter: ControllerFilter,
    every: Option<std::time::Duration>,
    format: Format,
    context: &Context,
) -> Result<(), CliError> {
    let request =
        WatchControllersRequest { filter: Some(filter), counts_interval: every.map(message_duration) };
    let open = async |session: &Session| {
        let opened = session.controllers().watch_controllers(session.stream(request.clone())).await;
        opened.map(tonic::Response::into_inner)
    };
    let mut columns = Columns::default();
    let mut lines = |controllers: &[Controller], headings: bool| {
        let now = context.now();
        let mut rows = Vec::new();
        if headings {
            rows.push(cells(show::headings(format)));
        }
        rows.extend(controllers.iter().map(|controller| cells(show::row(controller, format, now))));
        columns.lines(&rows)
    };
    let show = |message: WatchControllersResponse| {
        let text = if format.is_object() {
            objects::item(format, "WatchControllersResponse", &message)?
        } else {
            match message.update {
                Some(Update::Snapshot(snapshot)) => {
                    complain(&snapshot.invalid_overrides, context);
                    lines(&snapshot.controllers, true)
                }
                Some(Update::Changed(controller)) => lines(&[controller], false),
                Some(Update::InvalidOverrides(invalid)) => {
                    complain(&invalid.overrides, context);
                    return Ok(());
                }
                Some(Update::Unmatched(name)) => format!("{} no longer matches\n", clean(&name)),
                None => return Ok(()),
            }
        };
        context.screen.print(&text)
    };
    lasting::watch(context, open, show).await
}
