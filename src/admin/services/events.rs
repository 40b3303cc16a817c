//! `EventService`.

use tonic::{Request, Response, Status};

use super::watch::{Feed, answers_in};
use super::{Answers, Shared};
use crate::admin::authorize::{self, STREAM_EVENTS};
use crate::admin::errors::{ErrorReply, Reason, Violations};
use crate::admin::events::{EncodedResponse, LogItem, LogReader};
use crate::admin::metrics::AdminMetrics;
use crate::admin::proto;
use crate::admin::proto::event_service_server::EventService;
use crate::admin::proto::stream_events_response as response;
use crate::admin::validate;

pub(super) struct Service(pub(super) Shared);

#[tonic::async_trait]
impl EventService for Service {
    type StreamEventsStream = Answers<EncodedResponse>;

    async fn stream_events(
        &self,
        request: Request<proto::StreamEventsRequest>,
    ) -> Result<Response<Self::StreamEventsStream>, Status> {
        let shared = &self.0;
        let (_, caller, request) = request.into_parts();
        // Before anything of the request is read.
        authorize::caller(&caller)?;
        let mut namespaces =
            request.filter.as_ref().map(|filter| filter.namespaces.clone()).unwrap_or_default();
        namespaces.truncate(validate::MAX_VALUES);
        shared.allow_in(&caller, STREAM_EVENTS, &namespaces).await?;
        let mut violations = Violations::default();
        let names = shared.manager.names();
        let filter = validate::event_filter(request.filter.as_ref(), names, &mut violations);
        validate::optional_name("log_id", &request.log_id, &mut violations);
        violations.check()?;

        let log = &shared.events;
        if !request.log_id.is_empty() && request.log_id != log.id() {
            let message = "log_id does not match: this replica restarted or is a different one";
            return Err(ErrorReply::new(Reason::EventLogChanged, message).with("log_id", log.id()).into());
        }
        let start = validate::event_start(request.start.as_ref());
        let reader = log.read(filter, start, request.replay_only).map_err(|error| {
            ErrorReply::new(Reason::SequenceInFuture, error.to_string())
                .with("log_id", log.id())
                .with("newest_sequence", error.newest.to_string())
        })?;
        let feed = EventFeed { reader, log_id: log.id().to_owned(), metrics: shared.metrics.clone() };
        Ok(Response::new(answers_in(shared, &caller, (Some(STREAM_EVENTS), namespaces), feed)?))
    }
}

struct EventFeed {
    reader: LogReader,
    log_id: String,
    metrics: AdminMetrics,
}

impl Feed for EventFeed {
    type Message = EncodedResponse;

    async fn next(&mut self) -> Option<EncodedResponse> {
        let item = match self.reader.next().await? {
            LogItem::Event(event) => return Some(EncodedResponse::of_event(&event)),
            LogItem::Started { oldest, newest } => response::Item::Started(proto::StreamStarted {
                log_id: self.log_id.clone(),
                oldest_sequence: oldest,
                newest_sequence: newest,
            }),
            LogItem::Dropped { first, last } => {
                let count = last + 1 - first;
                self.metrics.events_dropped(count);
                response::Item::Dropped(proto::EventsDropped {
                    count,
                    first_sequence: first,
                    last_sequence: last,
                })
            }
            LogItem::ReplayFinished(sequence) => {
                response::Item::ReplayFinished(proto::ReplayFinished { sequence })
            }
        };
        Some(EncodedResponse::of(item))
    }
}
