"""Tracks the position in a stream of events, so that another stream can resume from it."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

from coxswain.admin.v1 import events_pb2

# The supported offset between the clocks of two replicas. The alert CoxswainClockOffset allows each replica 30 seconds from the clock
# of the API server.
_CLOCK_OFFSET = timedelta(seconds=60)
# Maximum number of logs of former leaders in a position.
_MAX_FORMER_LOGS = 16


class Position:
    """A position in the log of a replica, and in time for the log of another replica."""

    def __init__(self, request: events_pb2.StreamEventsRequest | None, now: datetime) -> None:
        self._request = events_pb2.StreamEventsRequest()
        if request is not None:
            self._request.CopyFrom(request)
        # Log and sequence number of the last event, and whether an event was received.
        self._log_id, self._sequence, self._is_known = "", 0, False
        # Positions in the logs of former leaders, oldest first, and the last sequence number that was shown of this log.
        self._former: dict[str, int] = {}
        self._shown = 0
        # Time of the last shown event, and the time before which events are hidden while catching up.
        self._latest = self._oldest = now
        # Whether past events are being sent, and whether they are those of another replica.
        self._replaying, self._catching_up = False, False

    @property
    def replay_only(self) -> bool:
        return self._request.replay_only

    @property
    def is_callers(self) -> bool:
        """True if the next stream starts at the position of the caller's request."""
        return not self._is_known

    @property
    def leaves_leadership_out(self) -> bool:
        """True if the filter excludes LeadershipChanged events.

        These events have no controller, no object and severity INFO.
        """
        wanted = self._request.filter
        if self.replay_only:
            return False
        if wanted.controllers or wanted.namespaces or wanted.objects or wanted.min_severity > events_pb2.SEVERITY_INFO:
            return True
        return bool(wanted.types) and events_pb2.EVENT_TYPE_LEADERSHIP_CHANGED not in wanted.types

    def request(self) -> events_pb2.StreamEventsRequest:
        """Returns the request that resumes the stream from this position."""
        self._replaying = True
        request = events_pb2.StreamEventsRequest()
        request.CopyFrom(self._request)
        if self._is_known:
            request.log_id, request.since_sequence = self._log_id, self._sequence
        return request

    def rest(self) -> events_pb2.StreamEventsRequest:
        """Returns the request for the remaining events in the replica's log, without new events."""
        request = self.request()
        request.replay_only = True
        return request

    def forget_log(self) -> None:
        """Makes the next stream start with all events in the log of another replica."""
        self._former.pop(self._log_id, None)
        self._former[self._log_id] = self._sequence
        if len(self._former) > _MAX_FORMER_LOGS:
            del self._former[next(iter(self._former))]
        self._log_id, self._sequence, self._is_known, self._catching_up = "", 0, True, True
        self._oldest = self._latest - _CLOCK_OFFSET

    def take(self, answer: events_pb2.StreamEventsResponse) -> bool:
        """Updates the position by a response. Returns True if the response is to be shown."""
        item = answer.WhichOneof("item")
        if item == "started":
            if self._log_id != answer.started.log_id:
                self._log_id, self._sequence = answer.started.log_id, 0
                self._shown = self._former.get(self._log_id, 0)
        elif item == "event":
            self._go_on_to(answer.event.sequence)
            at = answer.event.time.ToDatetime(tzinfo=timezone.utc)
            if self._catching_up and (answer.event.sequence <= self._shown or at < self._oldest):
                return False
            self._latest = at
        elif item == "dropped":
            self._go_on_to(answer.dropped.last_sequence)
        elif item == "replay_finished":
            self._go_on_to(answer.replay_finished.sequence)
            self._replaying, self._catching_up = False, False
        return True

    def has_moved(self, answer: events_pb2.StreamEventsResponse) -> bool:
        """Returns True if a new event shows that the replica no longer leads."""
        return not self._replaying and is_deposed(answer)

    def _go_on_to(self, sequence: int) -> None:
        self._sequence, self._is_known = max(self._sequence, sequence), True


def leadership() -> events_pb2.StreamEventsRequest:
    """Returns the request for new LeadershipChanged events only."""
    wanted = events_pb2.EventFilter(types=[events_pb2.EVENT_TYPE_LEADERSHIP_CHANGED])
    return events_pb2.StreamEventsRequest(filter=wanted)


def is_deposed(answer: events_pb2.StreamEventsResponse) -> bool:
    """Returns True if a response shows that its replica does not lead."""
    if answer.WhichOneof("item") != "event":
        return False
    return answer.event.WhichOneof("details") == "leadership_changed" and not answer.event.leadership_changed.leading
