//! `events`: what a replica has done lately, and what it does.

use clap::{ArgMatches, Command};

use super::controllers::ended;
use super::{Context, choice, chosen, many, namespace, switch, valued};
use crate::admin::proto::stream_events_request::Start;
use crate::admin::proto::stream_events_response::Item;
use crate::admin::proto::{EventFilter, ObjectReference, StreamEventsRequest};
use crate::cli::common;
use crate::cli::error::CliError;
use crate::cli::find::Whom;
use crate::cli::output::events::EventLines;
use crate::cli::output::{names, objects};

/// Events of the past that are shown before new ones, if nobody says how many.
const TAIL: u32 = 10;

pub(super) fn command() -> Command {
    Command::new("events")
        .about("Shows what a replica has done, and with -f what it does")
        .after_help(
            "Without --tail and --since: all that the replica still has; with -f, the last 10 and what comes.\n\
             Each replica has a log of its own, with a bound. The leader is asked, if it is known.",
        )
        .arg(switch("follow", "Go on with new events").short('f'))
        .arg(
            valued("tail", "N", "Begin with the last so many that match")
                .value_parser(clap::value_parser!(u32))
                .conflicts_with("since"),
        )
        .arg(
            valued("since", "SEQ", "Begin after the event with this sequence number (see -o wide)")
                .value_parser(clap::value_parser!(u64)),
        )
        .arg(valued("log", "ID", "The log that --since is about; fails if it is another one now").requires("since"))
        .arg(many(valued("controller", "NAME", "Only about these controllers, by name or alias")))
        .arg(many(choice("type", &names::event_types(), "Only of these types")))
        .arg(many(namespace("Only about objects in these namespaces")))
        .arg(many(
            valued("object", "OBJECT", "Only about these objects: NAME, NAMESPACE/NAME, RESOURCE/NAMESPACE/NAME \
                    (deployments.apps/default/web)"),
        ))
        .arg(choice("severity", &names::severities(), "Only what is at least this severe"))
        .arg(common::output("Form of events; json is a line for each message of the stream"))
}

/// `name`, `namespace/name` or `resource/namespace/name`.
fn object(text: &str) -> Result<ObjectReference, CliError> {
    let parts: Vec<&str> = text.split('/').collect();
    let (resource, namespace, name) = match parts.as_slice() {
        [name] => ("", "", *name),
        [namespace, name] => ("", *namespace, *name),
        [resource, namespace, name] => (*resource, *namespace, *name),
        _ => return Err(CliError::Usage(format!("--object {text:?} has too many slashes"))),
    };
    let [resource, namespace, name] = [resource, namespace, name].map(str::to_owned);
    Ok(ObjectReference { resource, namespace, name, uid: String::new() })
}

/// The request that the command line asks for.
pub(in crate::cli) fn request(matches: &ArgMatches) -> Result<StreamEventsRequest, CliError> {
    let follow = matches.get_flag("follow");
    let start = match (matches.get_one::<u32>("tail"), matches.get_one::<u64>("since")) {
        (Some(last), _) => Start::Last(*last),
        (None, Some(sequence)) => Start::SinceSequence(*sequence),
        (None, None) if follow => Start::Last(TAIL),
        (None, None) => Start::SinceSequence(0),
    };
    let objects: Result<Vec<_>, _> =
        common::texts(matches, "object").iter().map(|text| object(text)).collect();
    let severity = chosen(matches, "severity", &names::severities()).first().copied();
    let filter = EventFilter {
        controllers: common::texts(matches, "controller"),
        types: chosen(matches, "type", &names::event_types()).into_iter().map(i32::from).collect(),
        namespaces: common::texts(matches, "namespace"),
        objects: objects?,
        min_severity: severity.map_or(0, i32::from),
    };
    Ok(StreamEventsRequest {
        filter: Some(filter),
        start: Some(start),
        log_id: common::text(matches, "log").unwrap_or_default(),
        replay_only: !follow,
    })
}

pub(super) async fn run(matches: &ArgMatches, context: &Context) -> Result<(), CliError> {
    let format = common::format(matches);
    let request = request(matches)?;
    let follow = !request.replay_only;
    let session = context.finder.connect(Whom::Anyone).await?;
    let mut stream = session.events().stream_events(session.stream(request)).await?.into_inner();
    let mut lines = EventLines::new(format, context.palette);
    while let Some(message) = stream.message().await? {
        let text = if format.is_object() {
            objects::item(format, "StreamEventsResponse", &message)?
        } else {
            match &message.item {
                Some(Item::Event(event)) => lines.event(event),
                Some(Item::Dropped(dropped)) => lines.dropped(dropped),
                _ => continue,
            }
        };
        context.screen.print(&text)?;
    }
    if follow { Err(ended()) } else { Ok(()) }
}
