"""Sends calls to the current leader."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, suppress
from datetime import datetime, timezone
from types import TracebackType
from typing import Any, TypeVar

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from coxswain.admin.connection import Client
from coxswain.admin.discovery import Finder, NotVouchedFor
from coxswain.admin.events import Position, is_deposed, leadership
from coxswain.admin.v1 import events_pb2, leader_pb2

R = TypeVar("R")

_DOMAIN = "admin.coxswain.dev"
_NOT_LEADER = "NOT_LEADER"
_EVENT_LOG_CHANGED = "EVENT_LOG_CHANGED"
# Status codes of a stream whose replica stopped or whose connection was lost.
_LOST = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.UNKNOWN, grpc.StatusCode.INTERNAL, grpc.StatusCode.CANCELLED)
_DEPOSED, _ENDED = "the replica no longer leads", "the replica closed the stream"
# A live replica responds sooner.
_PROBE_SECONDS = 5.0
# An election takes seconds. Each pause is twice as long as the previous one.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.25, 4.0


class NoLeader(Exception):
    """No leader was found. The cause is the last error."""


class _Unreachable(Exception):
    """No replica responds. The call can be repeated, because nothing was sent."""


class _Session:
    """A client with the number of its calls. A retired session is closed after its last call."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.calls = 1
        self.retired = False


class _Search:
    """A search for the leader, in progress until `done`, with the error for waiting calls."""

    def __init__(self) -> None:
        self.done = threading.Event()
        self.error: _Unreachable | None = None


class _Guard:
    """Cancels a stream of events when its replica no longer leads, regardless of the stream's filter."""

    def __init__(self, client: Client, guarded: Any) -> None:
        # Whether the replica no longer leads, and the error for which the guard canceled the stream.
        self.is_deposed = False
        self.error: Exception | None = None
        self._guarded = guarded
        self._stream = client.events.StreamEvents(leadership())
        threading.Thread(target=self._run, daemon=True).start()

    def cancel(self) -> None:
        self._stream.cancel()

    def _run(self) -> None:
        try:
            self.is_deposed = any(is_deposed(answer) for answer in self._stream)
            self.error = _Unreachable(_DEPOSED if self.is_deposed else _ENDED)
        except grpc.RpcError as error:
            self.error = error
        self._stream.cancel()
        self._guarded.cancel()


class Follower:
    """Sends calls to the current leader. It is thread-safe. The first call searches for the leader.

    `attempts` is the maximum number of attempts of a call.
    """

    def __init__(self, finder: Finder, *, attempts: int = 10) -> None:
        self._finder = finder
        self._attempts = attempts
        self._lock = threading.Lock()
        self._current: _Session | None = None
        self._search: _Search | None = None
        self._closed = False
        # Tests replace it.
        self._pause: Callable[[float], None] = time.sleep

    def call(self, call: Callable[[Client, float], R], timeout: float = 30.0) -> R:
        """Runs `call` with a client of the leader and the remaining seconds of `timeout`.

        If the replica does not lead (NOT_LEADER), the follower searches for the leader and runs `call` again: after
        NOT_LEADER, nothing was changed. It raises any other error unchanged, because the request may have been applied.
        After UNAVAILABLE, the next call searches for the leader. `call` must make exactly one request, because it can
        run several times. Raises `NoLeader` after the last attempt or at the timeout. Reading the Leases has a separate
        timeout: an `ApiServer` has 10 seconds for each request.
        """
        end = time.monotonic() + timeout
        wait, following, asked = _FIRST_PAUSE, "", set[str]()
        for attempt in range(1, self._attempts + 1):
            try:
                return self._once(call, following, end)
            except (grpc.RpcError, _Unreachable) as error:
                found = _leader_address(error)
                if found is None and not isinstance(error, _Unreachable):
                    raise
                following = found or ""
                # A new address is called at once; otherwise the election is still in progress.
                pause = 0.0 if following and following not in asked else wait
                if attempt == self._attempts or time.monotonic() + pause >= end:
                    raise NoLeader(f"no leader in {attempt} attempts: {_text(error)}") from error
                if pause:
                    self._pause(pause)
                    wait = min(2 * wait, _LONGEST_PAUSE)
                asked.add(following)
        raise NoLeader("attempts must be at least 1")

    def step_down(
        self, request: leader_pb2.StepDownRequest | None = None, timeout: float = 30.0
    ) -> leader_pb2.StepDownResponse:
        """Makes the current leader step down.

        The follower sends the request once. If another replica has become the leader in the meantime, it raises the
        replica's error (LEADER_CHANGED), and no leader steps down. Raises `NoLeader` if no replica leads.
        """
        end = time.monotonic() + timeout
        sent, following = leader_pb2.StepDownRequest(), ""
        if request is not None:
            sent.CopyFrom(request)
        if not sent.HasField("expected_leader_identity"):

            def ask(client: Client, seconds: float) -> leader_pb2.GetLeaderResponse:
                return client.leader.GetLeader(leader_pb2.GetLeaderRequest(), timeout=seconds)

            leader = self.call(ask, timeout).leader
            if not leader.holder_identity:
                raise NoLeader("the Lease has no holder")
            sent.expected_leader_identity = leader.holder_identity
            if not leader.leading:
                self._forget()
                following = leader.admin_address
        try:
            return self._once(lambda client, seconds: client.leader.StepDown(sent, timeout=seconds), following, end)
        except _Unreachable as error:
            raise NoLeader(str(error)) from error

    def follow_events(
        self, request: events_pb2.StreamEventsRequest | None = None, timeout: float = 30.0
    ) -> Iterator[events_pb2.StreamEventsResponse]:
        """Streams events of the leader and yields each response.

        The follower resumes the stream at the leader when the replica stops, the connection is lost, the stream reaches
        its maximum age, or a LeadershipChanged event shows that the replica no longer leads. In the same log, the stream
        resumes after the last event. In the log of another replica, it resumes with the newer events. Because the clocks
        of two replicas may differ, these include events that are up to 60 seconds older than the last one. Each stream
        starts with a `started` response, and `dropped` responses report gaps.

        If the filter excludes LeadershipChanged events, a second stream reads them, and they are not yielded.

        The follower raises other errors unchanged, including EVENT_LOG_CHANGED: the leader does not have the log of the
        request's `log_id`, so the events since then are lost. In this case, call `follow_events` again without `log_id`,
        and with `since_sequence` 0 for all events in the leader's log. Raises `NoLeader` if no replica resumes the
        stream. `timeout` limits each search for the leader. With `replay_only`, it ends after the past events.
        """
        position = Position(request, datetime.now(timezone.utc))
        attempt, wait = 0, _FIRST_PAUSE
        while True:
            received = False
            lost: Exception
            try:
                with closing(self._events(position, timeout)) as answers:
                    for answer in answers:
                        received = True
                        if not position.take(answer):
                            continue
                        yield answer
                        if position.has_moved(answer):
                            self._forget()
                            raise _Unreachable(_DEPOSED)
                if position.replay_only:
                    return
                lost = _Unreachable(_ENDED)
            except _Unreachable as error:
                lost = error
            except grpc.RpcError as error:
                if _reason(error) == _EVENT_LOG_CHANGED and not position.is_callers:
                    position.forget_log()
                elif error.code() not in _LOST:
                    raise
                lost = error
            if received:
                attempt, wait = 0, _FIRST_PAUSE
            attempt += 1
            if attempt >= self._attempts:
                raise NoLeader(f"no leader in {attempt} attempts: {_text(lost)}") from lost
            self._pause(wait)
            wait = min(2 * wait, _LONGEST_PAUSE)

    def _events(self, position: Position, timeout: float) -> Generator[events_pb2.StreamEventsResponse, None, None]:
        """Yields the responses of one stream. If the stream is lost, its session is retired."""
        session = self._enter("", time.monotonic() + timeout)
        stream = session.client.events.StreamEvents(position.request())
        guard = _Guard(session.client, stream) if position.leaves_leadership_out else None
        try:
            try:
                yield from stream
            except grpc.RpcError as error:
                if guard is None or guard.error is None:
                    raise
                if guard.is_deposed:
                    # The guard may be ahead of the stream, so the rest of the log is read. Errors are ignored there.
                    stream = session.client.events.StreamEvents(position.rest())
                    with suppress(grpc.RpcError):
                        yield from stream
                raise guard.error from error
            self._retire(session)
        except _Unreachable:
            self._retire(session)
            raise
        except grpc.RpcError as error:
            if error.code() in _LOST:
                self._retire(session)
            raise
        finally:
            stream.cancel()
            if guard is not None:
                guard.cancel()
            with self._lock:
                session.calls -= 1
            self._sweep(session)

    def close(self) -> None:
        """Closes the connection after the last call on it."""
        with self._lock:
            self._closed = True
        self._forget()

    def _forget(self) -> None:
        """Makes the next call search for the leader."""
        with self._lock:
            current = self._current
        if current is not None:
            self._retire(current)

    def __enter__(self) -> Follower:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _once(self, call: Callable[[Client, float], R], following: str, end: float) -> R:
        session = self._enter(following, end)
        try:
            return call(session.client, max(end - time.monotonic(), 0.0))
        except grpc.RpcError as error:
            if _leader_address(error) is not None or error.code() == grpc.StatusCode.UNAVAILABLE:
                self._retire(session)
            raise
        finally:
            with self._lock:
                session.calls -= 1
            self._sweep(session)

    def _enter(self, following: str, end: float) -> _Session:
        """Adds a call to the session. Without a session, only one of the concurrent calls searches for the leader."""
        own = _Search()
        while True:
            with self._lock:
                if self._closed:
                    raise ValueError("the follower is closed")
                if self._current is not None:
                    self._current.calls += 1
                    return self._current
                if self._search is None:
                    self._search = own
                    break
                other = self._search
            if not other.done.wait(max(end - time.monotonic(), 0.0)):
                raise _Unreachable("timed out while another call was searching for the leader")
            if other.error is not None:
                raise _Unreachable(str(other.error))
        try:
            session = _Session(self._find(following, end))
            with self._lock:
                session.retired = self._closed
                if not self._closed:
                    self._current = session
            return session
        except _Unreachable as error:
            # An error caused by this call's timeout does not concern the other calls.
            if time.monotonic() < end:
                own.error = error
            raise
        finally:
            with self._lock:
                self._search = None
            own.done.set()

    def _retire(self, session: _Session) -> None:
        with self._lock:
            session.retired = True
            if self._current is session:
                self._current = None
        self._sweep(session)

    def _sweep(self, session: _Session) -> None:
        with self._lock:
            done = session.retired and session.calls == 0
        if done:
            session.client.close()

    def _find(self, following: str, end: float) -> Client:
        """Connects to the leader: `following` if it is set, else by the Leases, else by a replica's response."""
        replicas = self._finder.replicas()
        candidates = list(replicas.candidates)
        if following:
            candidates = [replicas.at(following)] + [each for each in candidates if each.address != following]
        tried: list[str] = []
        refusals: list[Exception] = []
        for candidate in candidates:
            replica = candidate
            # The replica itself, then the leader that it returns.
            for _ in range(2):
                try:
                    client = self._finder.connect(replica)
                except (NotVouchedFor, ValueError) as error:
                    # An invalid Lease must not prevent calls to the other replicas.
                    refusals.append(error)
                    tried.append(f"{replica}: {error}")
                    break
                try:
                    leader = _probe(client, end)
                except grpc.RpcError as error:
                    client.close()
                    if error.code() not in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
                        raise
                    tried.append(f"{replica}: {_text(error)}{self._finder.hint(replica)}")
                    break
                elsewhere = leader.admin_address
                if leader.leading or elsewhere in ("", replica.address) or replica is not candidate:
                    return client
                client.close()
                replica = replicas.at(elsewhere)
        if refusals and len(refusals) == len(tried):
            # Another attempt would fail in the same way.
            raise refusals[0]
        tried += replicas.passed_over
        if not tried:
            raise _Unreachable("no Lease announces a replica that serves the admin API")
        raise _Unreachable("no replica could be reached: " + "; ".join(tried))


def _probe(client: Client, end: float) -> leader_pb2.Leader:
    """Reads the leader with a call that can be repeated, so that calls are not sent to an unreachable replica."""
    seconds = min(_PROBE_SECONDS, max(end - time.monotonic(), 0.0))
    try:
        return client.leader.GetLeader(leader_pb2.GetLeaderRequest(), timeout=seconds).leader
    except grpc.RpcError as error:
        # A caller without this permission continues, because the call itself shows the leader.
        if error.code() == grpc.StatusCode.PERMISSION_DENIED:
            return leader_pb2.Leader()
        raise


def _text(error: Exception) -> str:
    if isinstance(error, grpc.RpcError):
        return f"{error.code().name}: {error.details()}"
    return str(error)


def _leader_address(error: Exception) -> str | None:
    """Returns the leader's address from the error of a replica that does not lead; empty if it is unknown."""
    if not isinstance(error, grpc.RpcError) or error.code() != grpc.StatusCode.FAILED_PRECONDITION:
        return None
    info = _info(error)
    if info is None or info.reason != _NOT_LEADER:
        return None
    addresses = (entry.value for entry in info.metadata if entry.key == "leader_address")
    return str(next(addresses, ""))


def _reason(error: grpc.RpcError) -> str:
    """Returns the reason of an error of this API; empty for other errors."""
    info = _info(error)
    return "" if info is None else str(info.reason)


def _info(error: grpc.RpcError) -> Any:
    """Returns the ErrorInfo of an error of this API."""
    for item in error.trailing_metadata() or ():
        if item.key != "grpc-status-details-bin":
            continue
        try:
            for detail in _STATUS.FromString(item.value).details:
                if detail.type_url.rpartition("/")[2] != "google.rpc.ErrorInfo":
                    continue
                info = _ERROR_INFO.FromString(detail.value)
                if info.domain == _DOMAIN:
                    return info
        except DecodeError:
            return None
    return None


def _details() -> tuple[Any, Any]:
    """Returns classes with the used fields of `google.rpc.Status` and `google.rpc.ErrorInfo`, in a separate pool.

    The client therefore does not depend on another package for two messages, and does not conflict with one.
    """
    file = descriptor_pb2.FileDescriptorProto(name="coxswain/details.proto", package="details", syntax="proto3")
    field = descriptor_pb2.FieldDescriptorProto
    # Any, and an entry of a map, have these two fields on the wire.
    shapes: dict[str, list[tuple[str, int, Any]]] = {
        "Detail": [("type_url", 1, field.TYPE_STRING), ("value", 2, field.TYPE_BYTES)],
        "Entry": [("key", 1, field.TYPE_STRING), ("value", 2, field.TYPE_STRING)],
        "Status": [("details", 3, "Detail")],
        "ErrorInfo": [("reason", 1, field.TYPE_STRING), ("domain", 2, field.TYPE_STRING), ("metadata", 3, "Entry")],
    }
    for name, fields in shapes.items():
        message = file.message_type.add(name=name)
        for field_name, number, kind in fields:
            added = message.field.add(name=field_name, number=number, label=field.LABEL_OPTIONAL)
            if isinstance(kind, str):
                added.type, added.label, added.type_name = field.TYPE_MESSAGE, field.LABEL_REPEATED, f".details.{kind}"
            else:
                added.type = kind
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    status, info = (pool.FindMessageTypeByName(f"details.{name}") for name in ("Status", "ErrorInfo"))
    return message_factory.GetMessageClass(status), message_factory.GetMessageClass(info)


_STATUS, _ERROR_INFO = _details()

