"""How far a stream of events has been shown, so that another stream goes on from there."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

from coxswain.admin.v1 import events_pb2

# The supported offset between the clocks of two replicas. The alert CoxswainClockOffset allows each replica 30 seconds from the clock
# of the API server.
_CLOCK_OFFSET = timedelta(seconds=60)
# Bounds how many logs of former leaders a position remembers.
_MAX_FORMER_LOGS = 16


class Position:
    """A position in the log of a replica, and in time for the log of another one."""

    def __init__(self, request: events_pb2.StreamEventsRequest | None, now: datetime) -> None:
        self._request = events_pb2.StreamEventsRequest()
        if request is not None:
            self._request.CopyFrom(request)
        # Log and number of the last event, and whether there was one.
        self._log_id, self._sequence, self._is_known = "", 0, False
        # How far the logs of former leaders were followed, the oldest first, and how far this one was followed then.
        self._former: dict[str, int] = {}
        self._shown = 0
        # The time of the event that was shown last, and the time before which events are hidden while catching up.
        self._latest = self._oldest = now
        # Whether the past is being sent, and whether it is that of another replica.
        self._replaying, self._catching_up = False, False

    @property
    def replay_only(self) -> bool:
        return self._request.replay_only

    @property
    def is_callers(self) -> bool:
        """Whether the next stream begins where the caller's request does, in the caller's log if it names one."""
        return not self._is_known

    @property
    def leaves_leadership_out(self) -> bool:
        """Whether the stream goes on without LeadershipChanged events.

        These are about no controller and no object, and of severity INFO.
        """
        wanted = self._request.filter
        if self.replay_only:
            return False
        if wanted.controllers or wanted.namespaces or wanted.objects or wanted.min_severity > events_pb2.SEVERITY_INFO:
            return True
        return bool(wanted.types) and events_pb2.EVENT_TYPE_LEADERSHIP_CHANGED not in wanted.types

    def request(self) -> events_pb2.StreamEventsRequest:
        """The request of the stream that goes on from here."""
        self._replaying = True
        request = events_pb2.StreamEventsRequest()
        request.CopyFrom(self._request)
        if self._is_known:
            request.log_id, request.since_sequence = self._log_id, self._sequence
        return request

    def rest(self) -> events_pb2.StreamEventsRequest:
        """The request for what the replica's log has from here on, without waiting for more."""
        request = self.request()
        request.replay_only = True
        return request

    def forget_log(self) -> None:
        """Has the next stream begin with all that the log of another replica has."""
        self._former.pop(self._log_id, None)
        self._former[self._log_id] = self._sequence
        if len(self._former) > _MAX_FORMER_LOGS:
            del self._former[next(iter(self._former))]
        self._log_id, self._sequence, self._is_known, self._catching_up = "", 0, True, True
        self._oldest = self._latest - _CLOCK_OFFSET

    def take(self, answer: events_pb2.StreamEventsResponse) -> bool:
        """Takes note of an answer. Returns whether it is to be shown."""
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
        """Whether an answer of the present tells that the replica no longer leads."""
        return not self._replaying and is_deposed(answer)

    def _go_on_to(self, sequence: int) -> None:
        self._sequence, self._is_known = max(self._sequence, sequence), True


def leadership() -> events_pb2.StreamEventsRequest:
    """The request for new LeadershipChanged events alone."""
    wanted = events_pb2.EventFilter(types=[events_pb2.EVENT_TYPE_LEADERSHIP_CHANGED])
    return events_pb2.StreamEventsRequest(filter=wanted)


def is_deposed(answer: events_pb2.StreamEventsResponse) -> bool:
    """Whether an answer shows that its replica does not lead."""
    if answer.WhichOneof("item") != "event":
        return False
    return answer.event.WhichOneof("details") == "leadership_changed" and not answer.event.leadership_changed.leading
