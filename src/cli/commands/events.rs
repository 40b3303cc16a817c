//! `events`: what a replica has done lately, and what it does.

use clap::{ArgMatches, Command};
use jiff::Timestamp;
use tonic::{Status, Streaming};
use tonic_types::StatusExt as _;

use super::lasting::{ended, go_on, is_lost};
use super::{Context, choice, chosen, many, namespace, switch, valued};
use crate::admin::proto::stream_events_request::Start;
use crate::admin::proto::stream_events_response::Item;
use crate::admin::proto::{EventFilter, ObjectReference, StreamEventsRequest, StreamEventsResponse};
use crate::cli::common;
use crate::cli::error::CliError;
use crate::cli::find::Whom;
use crate::cli::output::events::EventLines;
use crate::cli::output::human::read_time;
use crate::cli::output::{Format, names, objects};

/// Events of the past that are shown before new ones, if nobody says how many.
const TAIL: u32 = 10;

pub(super) fn command() -> Command {
    Command::new("events")
        .about("Show a replica's recent events, or follow them with -f")
        .after_help(
            "Without --tail and --since, the command prints all events in the replica's log. With -f, it prints the last 10 \
             events and then new ones.\n\
             Each replica keeps its own bounded log. The command calls the leader if there is one. When the leader \
             stops, -f continues with the next leader.",
        )
        .arg(switch("follow", "Keep printing new events").short('f'))
        .arg(
            valued("tail", "N", "Start with the last N matching events")
                .value_parser(clap::value_parser!(u32))
                .conflicts_with("since"),
        )
        .arg(
            valued("since", "SEQ", "Start after the event with this sequence number (see -o wide)")
                .value_parser(clap::value_parser!(u64)),
        )
        .arg(valued("log", "ID", "ID of the log that --since refers to; fails if the replica has another log").requires("since"))
        .arg(many(valued("controller", "NAME", "Filter by controller name or alias")))
        .arg(many(choice("type", &names::event_types(), "Filter by event type")))
        .arg(many(namespace("Filter by the object's namespace")))
        .arg(many(
            valued("object", "OBJECT", "Filter by object: NAME, NAMESPACE/NAME or RESOURCE/NAMESPACE/NAME, such as deployments.apps/default/web"),
        ))
        .arg(choice("severity", &names::severities(), "Minimum severity"))
        .arg(common::output("Output format; json prints one line per message"))
}

/// `name`, `namespace/name` or `resource/namespace/name`.
fn object(text: &str) -> Result<ObjectReference, CliError> {
    let parts: Vec<&str> = text.split('/').collect();
    let (resource, namespace, name) = match parts.as_slice() {
        [name] => ("", "", *name),
        [namespace, name] => ("", *namespace, *name),
        [resource, namespace, name] => (*resource, *namespace, *name),
        _ => {
            return Err(CliError::Usage(format!(
                "--object {text:?}: expected NAME, NAMESPACE/NAME or RESOURCE/NAMESPACE/NAME"
            )));
        }
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
    let stream = session.events().stream_events(session.stream(request.clone())).await?.into_inner();
    let mut printer = Printer { format, lines: EventLines::new(format, context.palette), context };
    let mut position = Position::new(context.now());
    let mut outcome = printer.print_all(stream, &mut position).await;
    if !follow {
        return outcome;
    }
    loop {
        let why = match outcome {
            Ok(()) => ended(),
            Err(CliError::Refused(status)) if is_lost(&status) => CliError::Refused(status),
            Err(error) => return Err(error),
        };
        if context.finder.is_bounded() {
            return Err(why);
        }
        context.screen.note(&format!("{why}; looking for the leader"));
        let stream = go_on(async || open_again(&request, &mut position, context).await).await?;
        outcome = printer.print_all(stream, &mut position).await;
    }
}

async fn open_again(
    request: &StreamEventsRequest,
    position: &mut Position,
    context: &Context,
) -> Result<Streaming<StreamEventsResponse>, CliError> {
    let session = context.finder.anew().await?.connect(Whom::Leader).await?;
    let again = position.request(request);
    let opened = match session.events().stream_events(session.stream(again)).await {
        Err(status) if is_other_log(&status) => {
            position.forget_log();
            session.events().stream_events(session.stream(position.request(request))).await
        }
        opened => opened,
    };
    let stream = opened?.into_inner();
    context.screen.note(&format!("following events of {}", session.address));
    Ok(stream)
}

/// Whether the replica's log is not the one that was asked for.
fn is_other_log(status: &Status) -> bool {
    status.get_details_error_info().is_some_and(|info| info.reason == "EVENT_LOG_CHANGED")
}

/// How far events have been shown.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::cli) struct Position {
    /// The log, and the last sequence number in it; `None` before the first.
    log: Option<(String, u64)>,
    /// When the newest event took place that was shown.
    latest: Timestamp,
    /// Whether an event may have been shown already, or be of before this command: it is of another replica's past.
    is_replaying: bool,
}

impl Position {
    /// Before the first event, at this time.
    pub(in crate::cli) fn new(now: Timestamp) -> Self {
        Self { log: None, latest: now, is_replaying: false }
    }

    /// Takes note of what came; `false` if it is not to be shown.
    pub(in crate::cli) fn take_in(&mut self, item: Option<&Item>) -> bool {
        match item {
            Some(Item::Started(started)) => match &mut self.log {
                Some((log, _)) if *log == started.log_id => {}
                log => *log = Some((started.log_id.clone(), 0)),
            },
            Some(Item::Event(event)) => {
                self.went_on_to(event.sequence);
                let at = read_time(event.time.as_ref());
                if self.is_replaying && at.is_some_and(|at| at < self.latest) {
                    return false;
                }
                self.latest = at.unwrap_or(self.latest);
            }
            Some(Item::Dropped(dropped)) => self.went_on_to(dropped.last_sequence),
            Some(Item::ReplayFinished(finished)) => {
                self.went_on_to(finished.sequence);
                self.is_replaying = false;
            }
            None => {}
        }
        true
    }

    fn went_on_to(&mut self, sequence: u64) {
        if let Some((_, last)) = &mut self.log {
            *last = sequence.max(*last);
        }
    }

    /// The stream goes on with the log of another replica.
    pub(in crate::cli) fn forget_log(&mut self) {
        self.log = None;
        self.is_replaying = true;
    }

    /// The request of a stream that goes on from here: after the last event, or with all of another log, of which only
    /// what is newer is shown.
    pub(in crate::cli) fn request(&self, first: &StreamEventsRequest) -> StreamEventsRequest {
        let (log_id, last) = self.log.clone().unwrap_or_default();
        StreamEventsRequest { log_id, start: Some(Start::SinceSequence(last)), ..first.clone() }
    }
}

/// Shows what comes.
struct Printer<'a> {
    format: Format,
    lines: EventLines,
    context: &'a Context,
}

impl Printer<'_> {
    /// Until the stream ends.
    async fn print_all(
        &mut self,
        mut stream: Streaming<StreamEventsResponse>,
        position: &mut Position,
    ) -> Result<(), CliError> {
        while let Some(message) = stream.message().await? {
            if !position.take_in(message.item.as_ref()) {
                continue;
            }
            let text = if self.format.is_object() {
                objects::item(self.format, "StreamEventsResponse", &message)?
            } else {
                match &message.item {
                    Some(Item::Event(event)) => self.lines.event(event),
                    Some(Item::Dropped(dropped)) => self.lines.dropped(dropped),
                    _ => continue,
                }
            };
            self.context.screen.print(&text)?;
        }
        Ok(())
    }
}
