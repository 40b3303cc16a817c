"""Calls go to who leads, and are sent again only if nothing was done."""

from __future__ import annotations

import socket
import threading
import unittest
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import Any, cast

import grpc
from google.protobuf import any_pb2

from coxswain.admin import Client, Finder, Follower, Lease, NoLeader, NotVouchedFor, Options
from coxswain.admin.v1 import events_pb2, events_pb2_grpc, leader_pb2, leader_pb2_grpc, queues_pb2, queues_pb2_grpc, types_pb2
from coxswain.admin.follower import _ERROR_INFO, _STATUS, _reason
from fixtures import Authority, Case


def not_leader(address: str, reason: str = "NOT_LEADER") -> bytes:
    """The details of a refusal."""
    info = _ERROR_INFO(reason=reason, domain="admin.coxswain.dev")
    if address:
        info.metadata.add(key="leader", value="b")
        info.metadata.add(key="leader_address", value=address)
    status = _STATUS()
    status.details.add(type_url="type.googleapis.com/google.rpc.RetryInfo", value=b"\x00")
    status.details.add(type_url="type.googleapis.com/google.rpc.ErrorInfo", value=info.SerializeToString())
    return cast(bytes, status.SerializeToString())


class Fleet:
    """Replicas on loopback, one of which leads."""

    def __init__(self, case: Case, size: int) -> None:
        self.authority = Authority(case.folder, "authority")
        certificate, key = self.authority.issue("replica")
        credentials = grpc.ssl_server_credentials([(key, certificate)])
        self.lock = threading.Lock()
        # The index of who leads, or -1, and whether the others know where.
        self.leader, self.known = 0, True
        self.calls: list[int] = []
        self.listed = 0
        # What the leader answers in place of an answer.
        self.fails: grpc.StatusCode | None = None
        # The leaders that requests to step down were for, and how far leadership moves before such a request.
        self.expected: list[str] = []
        self.moves = 0
        # The logs of the replicas, and what was asked of them.
        self.events: dict[int, list[events_pb2.Event]] = {}
        self.streams: list[tuple[int, str, int]] = []
        # Takes leadership from the first replica, which reports it to readers of LeadershipChanged. Streams do not end then.
        self.depose: Callable[[], None] | None = None
        self.ended = threading.Event()
        case.addCleanup(self.ended.set)
        self.announced: dict[str, str] = {}
        self.addresses: list[str] = []
        for index in range(size):
            member = Member(self, index)
            self.addresses.append(case.serve(credentials, member.add_to))

    @property
    def address(self) -> str:
        return self.addresses[self.leader] if self.leader >= 0 and self.known else ""

    def asked(self) -> list[int]:
        """Who got a call, since the last time."""
        with self.lock:
            calls, self.calls = self.calls, []
            return calls

    def list(self, namespace: str, label_selector: str) -> list[Lease]:
        self.listed += 1
        now = datetime.now(timezone.utc)
        return [
            Lease("lease", {"coxswain.dev/admin-address": address, **self.announced}, chr(ord("a") + index), now, timedelta(hours=1))
            for index, address in enumerate(self.addresses)
        ]

    def get(self, namespace: str, name: str) -> Lease | None:
        return None


def past(sequence: int, seconds: int, message: str) -> events_pb2.Event:
    """An event so many seconds from now."""
    event = events_pb2.Event(sequence=sequence, message=message)
    event.time.FromDatetime(datetime.now(timezone.utc) + timedelta(seconds=seconds))
    return event


class Member(
    events_pb2_grpc.EventServiceServicer, leader_pb2_grpc.LeaderServiceServicer, queues_pb2_grpc.QueueServiceServicer
):
    def __init__(self, fleet: Fleet, index: int) -> None:
        self.fleet, self.index = fleet, index

    def add_to(self, server: grpc.Server) -> None:
        events_pb2_grpc.add_EventServiceServicer_to_server(self, server)
        leader_pb2_grpc.add_LeaderServiceServicer_to_server(self, server)
        queues_pb2_grpc.add_QueueServiceServicer_to_server(self, server)

    def GetLeader(self, request: leader_pb2.GetLeaderRequest, context: Any) -> leader_pb2.GetLeaderResponse:
        leading = self.fleet.leader == self.index
        leader = leader_pb2.Leader(leading=leading, admin_address=self.fleet.address)
        if self.fleet.leader >= 0:
            leader.holder_identity = chr(ord("a") + self.fleet.leader)
        return leader_pb2.GetLeaderResponse(leader=leader)

    def StepDown(self, request: leader_pb2.StepDownRequest, context: Any) -> leader_pb2.StepDownResponse:
        with self.fleet.lock:
            self.fleet.calls.append(self.index)
            self.fleet.expected.append(request.expected_leader_identity)
            # The next one leads before the request arrives.
            self.fleet.leader += self.fleet.moves
            leads, address = self.fleet.leader == self.index, self.fleet.address
        if not leads:
            context.set_trailing_metadata((("grpc-status-details-bin", not_leader(address)),))
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, "another replica leads")
        return leader_pb2.StepDownResponse()

    def SyncObject(self, request: queues_pb2.SyncObjectRequest, context: Any) -> queues_pb2.SyncObjectResponse:
        with self.fleet.lock:
            self.fleet.calls.append(self.index)
            leads, fails, address = self.fleet.leader == self.index, self.fleet.fails, self.fleet.address
        if not leads:
            context.set_trailing_metadata((("grpc-status-details-bin", not_leader(address)),))
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, "another replica leads")
        if fails is not None:
            context.abort(fails, "lost on the way")
        return queues_pb2.SyncObjectResponse()

    def StreamEvents(self, request: events_pb2.StreamEventsRequest, context: Any) -> Any:
        """Sends the past of the replica's log, and then the replica is lost."""
        log = f"log-{self.index}"
        if list(request.filter.types) == [events_pb2.EVENT_TYPE_LEADERSHIP_CHANGED]:
            yield from self.guard(context)
            return
        with self.fleet.lock:
            self.fleet.streams.append((self.index, request.log_id, request.since_sequence))
            events = list(self.fleet.events[self.index])
        if request.log_id not in ("", log):
            context.set_trailing_metadata((("grpc-status-details-bin", not_leader("", "EVENT_LOG_CHANGED")),))
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, "another log")
        yield events_pb2.StreamEventsResponse(started=events_pb2.StreamStarted(log_id=log))
        for event in events:
            if event.sequence <= request.since_sequence:
                continue
            if event.message == "dropped":
                dropped = events_pb2.EventsDropped(count=1, first_sequence=event.sequence, last_sequence=event.sequence)
                yield events_pb2.StreamEventsResponse(dropped=dropped)
                continue
            yield events_pb2.StreamEventsResponse(event=event)
        finished = events_pb2.ReplayFinished(sequence=events[-1].sequence)
        yield events_pb2.StreamEventsResponse(replay_finished=finished)
        if request.replay_only:
            return
        if self.fleet.depose is not None:
            self.wait(context)
        context.abort(grpc.StatusCode.UNAVAILABLE, "lost")

    def guard(self, context: Any) -> Any:
        """Sends the LeadershipChanged event of the first replica."""
        if self.index == 0 and self.fleet.depose is not None:
            self.fleet.depose()
            event = past(90, 0, "another replica leads")
            event.leadership_changed.holder = "b"
            yield events_pb2.StreamEventsResponse(event=event)
        self.wait(context)

    def wait(self, context: Any) -> None:
        """Waits until the stream or the test ends."""
        while context.is_active() and not self.fleet.ended.wait(0.01):
            pass

    def WatchLeader(self, request: Any, context: Any) -> Any:
        raise NotImplementedError

    ListQueues = GetQueue = ExplainObject = WatchLeader


def reconcile(client: Client, seconds: float) -> queues_pb2.SyncObjectResponse:
    return client.queues.SyncObject(queues_pb2.SyncObjectRequest(), timeout=seconds)


class Following(Case):
    def follow(self, fleet: Fleet, attempts: int = 10) -> Follower:
        follower = Follower(Finder(leases=fleet, options=Options(ca=fleet.authority.pem)), attempts=attempts)
        self.addCleanup(follower.close)
        self.pauses: list[float] = []
        follower._pause = self.pauses.append
        return follower

    def test_the_leader_is_followed_to_where_it_is(self) -> None:
        fleet = Fleet(self, 3)
        follower = self.follow(fleet)
        for leader in (2, 2, 0, 1):
            fleet.leader = leader
            self.assertEqual(follower.call(reconcile), queues_pb2.SyncObjectResponse())
            asked = fleet.asked()
            self.assertTrue(asked[-1] == leader and len(asked) <= 2, asked)
        self.assertEqual(self.pauses, [])

    def test_of_many_calls_one_looks_for_the_leader(self) -> None:
        fleet = Fleet(self, 2)
        follower = self.follow(fleet)
        errors: list[Exception] = []

        def call() -> None:
            try:
                follower.call(reconcile)
            except Exception as error:
                errors.append(error)

        threads = [threading.Thread(target=call) for _ in range(50)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual((errors, fleet.listed), ([], 1))

    def test_events_are_followed_across_a_failover(self) -> None:
        fleet = Fleet(self, 2)
        fleet.events[0] = [past(1, 1, "a"), past(2, 2, "b")]
        follower = self.follow(fleet)
        shown: list[str] = []
        replays = 0
        for answer in follower.follow_events():
            item = answer.WhichOneof("item")
            if item == "event":
                shown.append(answer.event.message)
            elif item == "dropped":
                shown.append(f"{answer.dropped.count} dropped")
            elif item == "replay_finished":
                replays += 1
                if replays == 1:
                    fleet.events[0] += [past(3, 3, "dropped"), past(4, 4, "c")]
                elif replays == 2:
                    fleet.leader = 1
                    fleet.events[1] = [past(7, -70, "of before"), past(8, 9, "d")]
                else:
                    break
        self.assertEqual(shown, ["a", "b", "1 dropped", "c", "d"])
        self.assertEqual(fleet.streams, [(0, "", 0), (0, "log-0", 2), (1, "log-0", 4), (1, "", 0)])

    def followed(
        self, fleet: Fleet, request: events_pb2.StreamEventsRequest, following: Callable[[int], bool], shown: list[str]
    ) -> None:
        """Follows events until `following` is false after a replay, and collects the messages of the events."""
        replays = 0
        for answer in self.follow(fleet).follow_events(request):
            if answer.WhichOneof("item") == "event":
                shown.append(answer.event.message)
            elif answer.WhichOneof("item") == "replay_finished":
                replays += 1
                if not following(replays):
                    return

    def test_events_of_a_log_that_the_caller_names_end_with_an_error_at_another_replica(self) -> None:
        fleet = Fleet(self, 2)
        fleet.leader = 1
        fleet.events = {0: [past(500, -60, "a"), past(501, -50, "b")], 1: [past(1, -40, "c"), past(2, 9, "d")]}
        request = events_pb2.StreamEventsRequest(log_id="log-0", since_sequence=500)
        shown: list[str] = []
        with self.assertRaises(grpc.RpcError) as caught:
            self.followed(fleet, request, lambda _: False, shown)
        self.assertEqual((caught.exception.code(), _reason(caught.exception)), (grpc.StatusCode.FAILED_PRECONDITION, "EVENT_LOG_CHANGED"))
        self.assertEqual((shown, fleet.streams), ([], [(1, "log-0", 500)]))
        # The follower goes on by itself once it has followed that log.
        fleet.leader = 0

        def following(replays: int) -> bool:
            fleet.leader = 1
            return replays < 2

        self.followed(fleet, request, following, shown)
        self.assertEqual(shown, ["b", "c", "d"])

    def test_events_without_leadership_changed_are_followed_when_the_replica_is_deposed(self) -> None:
        filters = {
            "controllers": events_pb2.EventFilter(controllers=["job-controller"]),
            "namespaces": events_pb2.EventFilter(namespaces=["default"]),
            "objects": events_pb2.EventFilter(objects=[types_pb2.ObjectReference(name="web")]),
            "types": events_pb2.EventFilter(types=[events_pb2.EVENT_TYPE_API_WRITE]),
            "severity": events_pb2.EventFilter(min_severity=events_pb2.SEVERITY_WARNING),
        }
        for name, wanted in filters.items():
            with self.subTest(name):
                fleet = Fleet(self, 2)
                fleet.events = {0: [past(1, 1, "a")], 1: [past(7, -70, "of before"), past(8, 9, "c")]}
                replayed = threading.Event()

                def depose() -> None:
                    replayed.wait()
                    # The stream does not have this one yet.
                    fleet.events[0].append(past(2, 2, "b"))
                    fleet.leader = 1

                def following(replays: int) -> bool:
                    if replays == 1:
                        replayed.set()
                    return replays < 3

                # Without a guard the test ends as well.
                timer = threading.Timer(10, fleet.ended.set)
                timer.start()
                fleet.depose = depose
                shown: list[str] = []
                self.followed(fleet, events_pb2.StreamEventsRequest(filter=wanted), following, shown)
                timer.cancel()
                self.assertEqual(shown, ["a", "b", "c"])
                self.assertEqual(fleet.streams, [(0, "", 0), (0, "log-0", 1), (1, "log-0", 2), (1, "", 0)])

    def test_events_of_a_leader_whose_clock_is_behind_are_shown_once(self) -> None:
        fleet = Fleet(self, 2)
        fleet.events = {0: [past(1, 70, "a")], 1: [past(1, 9, "61 seconds"), past(2, 11, "59 seconds")]}

        def following(replays: int) -> bool:
            fleet.leader = replays % 2
            if replays == 2:
                fleet.events[0].append(past(2, 71, "b"))
            return replays < 4

        shown: list[str] = []
        self.followed(fleet, events_pb2.StreamEventsRequest(), following, shown)
        self.assertEqual(shown, ["a", "59 seconds", "b"])

    def test_events_of_nobody_end_after_the_attempts(self) -> None:
        fleet = Fleet(self, 1)
        fleet.addresses.clear()
        follower = self.follow(fleet, attempts=3)
        with self.assertRaises(NoLeader):
            next(follower.follow_events())
        self.assertEqual(len(self.pauses), 2)

    def test_step_down_is_for_the_leader_that_was_found_and_is_sent_once(self) -> None:
        fleet = Fleet(self, 3)
        follower = self.follow(fleet)
        # The second time the connection is to a replica that leads no longer.
        for leader in (1, 2):
            fleet.leader = leader
            follower.step_down()
            self.assertEqual(fleet.asked(), [leader])
        # Another one leads by the time the request arrives: it is not asked.
        fleet.leader, fleet.moves = 0, 1
        with self.assertRaises(grpc.RpcError) as caught:
            follower.step_down(leader_pb2.StepDownRequest(reason="a drain"))
        self.assertEqual(caught.exception.code(), grpc.StatusCode.FAILED_PRECONDITION)
        self.assertEqual((fleet.asked(), fleet.expected), ([0], ["b", "c", "a"]))
        fleet.leader = -1
        with self.assertRaises(NoLeader):
            follower.step_down()

    def test_who_is_named_leads_to_the_leader_without_leases(self) -> None:
        fleet = Fleet(self, 2)
        with Follower(Finder(addresses=fleet.addresses[:1], options=Options(ca=fleet.authority.pem))) as follower:
            for leader in (1, 0):
                fleet.leader = leader
                follower.call(reconcile)
        self.assertEqual(fleet.asked(), [1, 1, 0])

    def test_an_election_is_waited_for(self) -> None:
        fleet = Fleet(self, 2)
        fleet.leader = -1
        follower = self.follow(fleet)

        def pause(seconds: float) -> None:
            self.pauses.append(seconds)
            if len(self.pauses) == 6:
                fleet.leader = 1

        follower._pause = pause
        follower.call(reconcile)
        self.assertEqual(self.pauses, [0.25, 0.5, 1.0, 2.0, 4.0, 4.0])
        self.assertEqual(fleet.asked(), [0, 0, 0, 0, 0, 0, 1])

    def test_there_is_an_end_to_it(self) -> None:
        fleet = Fleet(self, 1)
        fleet.leader = -1
        with self.assertRaisesRegex(NoLeader, "in 3 attempts: FAILED_PRECONDITION: another replica leads") as caught:
            self.follow(fleet, attempts=3).call(reconcile)
        self.assertIsInstance(caught.exception.__cause__, grpc.RpcError)
        self.assertEqual(len(fleet.asked()), 3)
        # The next pause would be longer than what is left.
        with self.assertRaisesRegex(NoLeader, "in 1 attempts"):
            self.follow(fleet).call(lambda client, _: reconcile(client, 30.0), timeout=0.2)
        self.assertEqual(self.pauses, [])

    def test_what_may_have_been_done_is_not_done_again(self) -> None:
        fleet = Fleet(self, 2)
        follower = self.follow(fleet)
        fleet.fails = grpc.StatusCode.UNAVAILABLE
        for leader in (0, 1):
            # The next one finds the leader anew.
            fleet.leader = leader
            with self.assertRaises(grpc.RpcError) as caught:
                follower.call(reconcile)
            self.assertEqual(caught.exception.code(), grpc.StatusCode.UNAVAILABLE)
            self.assertEqual(fleet.asked(), [leader])
        self.assertEqual(fleet.listed, 2)

    def test_a_replica_that_is_away_is_passed_by(self) -> None:
        fleet = Fleet(self, 1)
        with socket.create_server(("127.0.0.1", 0)) as listener:
            away = f"127.0.0.1:{listener.getsockname()[1]}"
        fleet.addresses.insert(0, away)
        fleet.known = False
        follower = self.follow(fleet)
        self.assertEqual(follower.call(lambda client, seconds: "called"), "called")
        del fleet.addresses[1:]
        with self.assertRaisesRegex(NoLeader, f"no replica could be reached: a at {away}: UNAVAILABLE"):
            self.follow(fleet, attempts=2).call(reconcile)

    def test_a_token_is_not_sent_in_vain(self) -> None:
        fleet = Fleet(self, 1)
        follower = Follower(Finder(leases=fleet, options=Options(token="secret")))
        with self.assertRaises(NotVouchedFor):
            follower.call(reconcile)
        # Announcements are set aside, for the sake of the token, and the cluster's authority is another one.
        fleet.announced = {"coxswain.dev/admin-ca": fleet.authority.pem.decode()}
        stranger = Authority(self.folder, "stranger")
        finder = Finder(leases=fleet, options=Options(token="secret"), cluster_ca_file=stranger.file)
        with Follower(finder, attempts=1) as careful, self.assertRaisesRegex(NoLeader, "trust_announced"):
            careful.call(reconcile)
        follower.close()
        with self.assertRaisesRegex(ValueError, "closed"):
            follower.call(reconcile)

    def test_other_errors_are_no_refusals(self) -> None:
        follower = self.follow(Fleet(self, 1))

        def fails(client: Client, seconds: float) -> None:
            raise KeyError("a mistake of the caller's own")

        with self.assertRaises(KeyError):
            follower.call(fails)

    def test_details_are_read_as_others_write_them(self) -> None:
        # With a code, a message and an Any of protobuf's own.
        wire = b"\x08\x09\x12\x02no" + not_leader("a:1")
        detail = any_pb2.Any.FromString(_STATUS.FromString(wire).details[1].SerializeToString())
        self.assertEqual(detail.type_url, "type.googleapis.com/google.rpc.ErrorInfo")
        self.assertEqual(_ERROR_INFO.FromString(detail.value).metadata[1].value, "a:1")


if __name__ == "__main__":
    unittest.main()
