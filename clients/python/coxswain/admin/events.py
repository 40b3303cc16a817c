"""How far a stream of events has been shown, so that another stream goes on from there."""

from __future__ import annotations

from datetime import datetime, timezone

from coxswain.admin.v1 import events_pb2


class Position:
    """A position in the log of a replica, and in time for the log of another one."""

    def __init__(self, request: events_pb2.StreamEventsRequest | None, now: datetime) -> None:
        self._request = events_pb2.StreamEventsRequest()
        if request is not None:
            self._request.CopyFrom(request)
        # Log and number of the last event, and whether there was one.
        self._log_id, self._sequence, self._is_known = "", 0, False
        # When the newest event took place that was shown.
        self._latest = now
        # Whether the past is being sent, and whether it is that of another replica.
        self.replaying, self._catching_up = False, False

    @property
    def replay_only(self) -> bool:
        return self._request.replay_only

    def request(self) -> events_pb2.StreamEventsRequest:
        """The request of the stream that goes on from here."""
        self.replaying = True
        request = events_pb2.StreamEventsRequest()
        request.CopyFrom(self._request)
        if self._is_known:
            request.log_id, request.since_sequence = self._log_id, self._sequence
        return request

    def forget_log(self) -> None:
        """Has the next stream begin with all that the log of another replica has."""
        self._log_id, self._sequence, self._is_known, self._catching_up = "", 0, True, True

    def take(self, answer: events_pb2.StreamEventsResponse) -> bool:
        """Takes note of an answer. Returns whether it is to be shown."""
        item = answer.WhichOneof("item")
        if item == "started":
            if self._log_id != answer.started.log_id:
                self._log_id, self._sequence = answer.started.log_id, 0
        elif item == "event":
            self._go_on_to(answer.event.sequence)
            at = answer.event.time.ToDatetime(tzinfo=timezone.utc)
            if self._catching_up and at < self._latest:
                return False
            self._latest = at
        elif item == "dropped":
            self._go_on_to(answer.dropped.last_sequence)
        elif item == "replay_finished":
            self._go_on_to(answer.replay_finished.sequence)
            self.replaying, self._catching_up = False, False
        return True

    def has_moved(self, answer: events_pb2.StreamEventsResponse) -> bool:
        """Whether an answer of the present tells that the replica no longer leads."""
        if self.replaying or answer.WhichOneof("item") != "event":
            return False
        return answer.event.WhichOneof("details") == "leadership_changed" and not answer.event.leadership_changed.leading

    def _go_on_to(self, sequence: int) -> None:
        self._sequence, self._is_known = max(self._sequence, sequence), True
