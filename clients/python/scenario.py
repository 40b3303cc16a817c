"""Runs against a live manager what the clients in the other languages run as well.

Who leads, list, follow the leader, disable for some seconds, watch it come back, and the events of it all. With an API
server, the leader is found by its Lease.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

import grpc
from google.protobuf.duration_pb2 import Duration

from coxswain.admin import ApiServer, ApiServerError, Client, Finder, Follower, NoLeader, Options, connect
from coxswain.admin.v1 import controllers_pb2, events_pb2, leader_pb2, queues_pb2

REASON = "the scenario of the Python client"
SECONDS = 60.0


class Failed(Exception):
    """Something is not as it should be."""


def expect(holds: bool, message: str, found: object) -> None:
    if not holds:
        raise Failed(f"{message}: {found}")


def leader(client: Client, _: str) -> None:
    found = client.leader.GetLeader(leader_pb2.GetLeaderRequest(), timeout=SECONDS).leader
    expect(bool(found.holder_identity) and found.leading, "the replica called should lead", found)


def list_all(client: Client, name: str) -> None:
    names: list[str] = []
    request = controllers_pb2.ListControllersRequest(page_size=10)
    while True:
        page = client.controllers.ListControllers(request, timeout=SECONDS)
        names += [controller.name for controller in page.controllers]
        request.page_token = page.next_page_token
        if not request.page_token:
            break
    expect(name in names, f"{name} should be listed", names)
    expect(len(names) == page.total_size >= 40, f"{page.total_size} controllers should be listed", names)


def unknown(client: Client, name: str) -> None:
    try:
        client.controllers.GetController(controllers_pb2.GetControllerRequest(name=name + "x"), timeout=SECONDS)
    except grpc.RpcError as error:
        assert isinstance(error, grpc.Call)
        expect(error.code() == grpc.StatusCode.NOT_FOUND, "NOT_FOUND was expected", error)
        expect(name in (error.details() or ""), f"{name} should be named", error)
    else:
        raise Failed("an unknown name was found")


def follow(address: str, server: str | None, options: Options, name: str) -> None:
    finder = Finder(addresses=[address], options=options)
    if server is not None:
        finder = Finder(leases=ApiServer(server, options), options=options)
        found = finder.replicas()
        leads = [each.identity for each in found.candidates if each.leads]
        expect(len(found.candidates) == 1 and leads == [found.holder], "one replica that leads was expected", found)

    def call(client: Client, seconds: float) -> None:
        request = queues_pb2.ListQueuesRequest(filter=queues_pb2.QueueFilter(controllers=[name]))
        queues = client.queues.ListQueues(request, timeout=seconds).queues
        expect(len(queues) > 0, f"{name} should have a queue", queues)
        # Only the leader answers this. Both are questions, so it is no matter that a second run asks both again.
        client.queues.GetQueue(queues_pb2.GetQueueRequest(name=queues[0].name), timeout=seconds)

    with Follower(finder) as follower:
        follower.call(call, timeout=SECONDS)


def toggle(client: Client, name: str) -> None:
    watch = client.controllers.WatchControllers(
        controllers_pb2.WatchControllersRequest(filter=controllers_pb2.ControllerFilter(names=[name])),
        timeout=SECONDS,
    )
    first = next(watch)
    expect(len(first.snapshot.controllers) == 1, "a snapshot of one controller was expected", first)
    events = client.events.StreamEvents(
        events_pb2.StreamEventsRequest(
            filter=events_pb2.EventFilter(controllers=[name], types=[events_pb2.EVENT_TYPE_PHASE_CHANGED]),
        ),
        timeout=SECONDS,
    )
    start = next(events)
    expect(bool(start.started.log_id), "the start of the stream was expected", start)

    answer = client.controllers.DisableController(
        controllers_pb2.DisableControllerRequest(name=name, reason=REASON, duration=Duration(seconds=3), wait=True),
        timeout=SECONDS,
    )
    controller = answer.controllers[0]
    order = controller.desired.override
    disabled = controller.phase == controllers_pb2.PHASE_DISABLED
    expect(disabled and order.reason == REASON and order.HasField("expire_time"), "not disabled for a while", answer)

    comes_back(watch)
    wanted = {controllers_pb2.PHASE_DISABLED, controllers_pb2.PHASE_RUNNING}
    for item in events:
        wanted.discard(item.event.phase_changed.current)
        if not wanted:
            break
    expect(not wanted, "phases that no event told of", wanted)
    watch.cancel()
    events.cancel()


def comes_back(watch: Iterator[controllers_pb2.WatchControllersResponse]) -> None:
    """Returns when the controller was stopped and runs again because the flags say so."""
    stopped = False
    for update in watch:
        controller = update.changed
        if controller.phase == controllers_pb2.PHASE_DISABLED:
            stopped = True
        elif stopped and controller.phase == controllers_pb2.PHASE_RUNNING:
            ended = controller.desired.source != controllers_pb2.DESIRED_SOURCE_OVERRIDE
            expect(ended, "the override should have ended", controller)
            return
    raise Failed("the watch ended")


def main() -> None:
    if not 4 <= len(sys.argv) <= 6:
        sys.exit("usage: scenario.py ADDRESS CA_FILE TOKEN_FILE [CONTROLLER [API_SERVER]]")
    address, ca_file, token_file = sys.argv[1:4]
    name = sys.argv[4] if len(sys.argv) > 4 else "deployment-controller"
    server = sys.argv[5] if len(sys.argv) > 5 else None
    options = Options(ca_file=ca_file, token_file=token_file)
    steps: list[tuple[str, Callable[[Client, str], None]]] = [
        ("leader", leader),
        ("list", list_all),
        ("an unknown name", unknown),
        ("follow the leader", lambda _, name: follow(address, server, options, name)),
        ("disable, watch, stream", toggle),
    ]
    with connect(address, ca_file=ca_file, token_file=token_file) as client:
        for step, run in steps:
            try:
                run(client, name)
            except (Failed, NoLeader, ApiServerError, grpc.RpcError) as error:
                sys.exit(f"python scenario: {step}: {error}")
            print(f"python scenario: {step}: ok")
    print("python scenario: ok")


if __name__ == "__main__":
    main()
