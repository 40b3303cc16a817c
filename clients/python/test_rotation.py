"""A client outlives a rotation of certificates, keys and authorities."""

from __future__ import annotations

import threading
import unittest
from collections.abc import Iterator
from typing import Any

import grpc

from coxswain.admin import Client, connect
from coxswain.admin.connection import Files, Options, RotatingChannel
from coxswain.admin.v1 import leader_pb2, leader_pb2_grpc
from fixtures import Authority, Case


class Mirror(leader_pb2_grpc.LeaderServiceServicer):
    """Answers with the name in the client's certificate."""

    def GetLeader(self, request: leader_pb2.GetLeaderRequest, context: Any) -> leader_pb2.GetLeaderResponse:
        name = context.auth_context()["x509_common_name"][0].decode()
        return leader_pb2.GetLeaderResponse(leader=leader_pb2.Leader(holder_identity=name))

    def WatchLeader(
        self, request: leader_pb2.WatchLeaderRequest, context: Any
    ) -> Iterator[leader_pb2.WatchLeaderResponse]:
        while True:
            yield leader_pb2.WatchLeaderResponse(leader=self.GetLeader(leader_pb2.GetLeaderRequest(), context).leader)

    def StepDown(self, request: leader_pb2.StepDownRequest, context: Any) -> leader_pb2.StepDownResponse:
        raise NotImplementedError


class Rotation(Case):
    def setUp(self) -> None:
        super().setUp()
        self.first, self.second = Authority(self.folder, "first"), Authority(self.folder, "second")
        self.authority = self.first
        self.rotate(self.first, "jane")

        def configuration() -> grpc.ServerCertificateConfiguration:
            certificate, key = self.authority.issue("server")
            return grpc.ssl_server_certificate_configuration([(key, certificate)], self.authority.pem)

        self.address = self.serve(
            grpc.dynamic_ssl_server_credentials(configuration(), configuration, require_client_authentication=True),
            lambda server: leader_pb2_grpc.add_LeaderServiceServicer_to_server(Mirror(), server),
        )

    def rotate(self, authority: Authority, name: str) -> None:
        certificate, key = authority.issue(name)
        self.authority = authority
        self.write("ca.pem", authority.pem)
        self.write("client.pem", certificate)
        self.write("client.key", key)

    def connect(self) -> Client:
        return connect(
            self.address,
            ca_file=self.folder / "ca.pem",
            cert_file=self.folder / "client.pem",
            key_file=self.folder / "client.key",
        )

    def test_a_client_outlives_a_rotation(self) -> None:
        request = leader_pb2.GetLeaderRequest()
        with self.connect() as client:
            self.assertEqual(client.leader.GetLeader(request).leader.holder_identity, "jane")
            stream = client.leader.WatchLeader(leader_pb2.WatchLeaderRequest())
            self.assertEqual(next(stream).leader.holder_identity, "jane")
            self.rotate(self.second, "joan")
            self.assertEqual(client.leader.GetLeader(request).leader.holder_identity, "joan")
            self.assertEqual(client.leader.GetLeader.future(request).result().leader.holder_identity, "joan")
            self.assertEqual(client.leader.GetLeader.with_call(request)[0].leader.holder_identity, "joan")
            # What runs goes on, on the connection of old.
            self.assertEqual(next(stream).leader.holder_identity, "jane")
            stream.cancel()

    def test_what_was_read_last_holds_until_the_files_fit(self) -> None:
        request = leader_pb2.GetLeaderRequest()
        with self.connect() as client:
            certificate, key = self.first.issue("joan")
            self.write("client.pem", certificate)
            with self.assertLogs("coxswain.admin", "WARNING") as logged:
                self.assertEqual(client.leader.GetLeader(request).leader.holder_identity, "jane")
            self.assertIn("client.key", logged.output[0])
            with self.assertNoLogs("coxswain.admin"):
                self.assertEqual(client.leader.GetLeader(request).leader.holder_identity, "jane", "said once")
            self.write("client.key", key)
            with self.assertNoLogs("coxswain.admin"):
                self.assertEqual(client.leader.GetLeader(request).leader.holder_identity, "joan")
            self.write("ca.pem", b"")
            with self.assertLogs("coxswain.admin", "WARNING") as logged:
                self.assertEqual(client.leader.GetLeader(request).leader.holder_identity, "joan")
            self.assertIn("ca.pem: contains no certificate", logged.output[0])


class FakeChannel:
    """Has no server, and knows whether it was closed."""

    def __init__(self) -> None:
        self.ended = threading.Event()

    @property
    def closed(self) -> bool:
        return self.ended.is_set()

    def close(self) -> None:
        self.ended.set()


class Closing(unittest.TestCase):
    def test_a_channel_is_closed_with_its_last_call(self) -> None:
        made: list[FakeChannel] = []

        def dial(files: Files) -> Any:
            made.append(FakeChannel())
            return made[-1]

        content = b"1"
        channel = RotatingChannel(lambda last: Files(content, None, None), dial)
        first = channel.enter()
        self.assertIs(channel.enter(), first)
        content = b"2"
        second = channel.enter()
        self.assertEqual((len(made), made[0].closed), (2, False))
        channel.leave(first)
        self.assertFalse(made[0].closed, "there is a call on it")
        channel.leave(first)
        self.assertTrue(made[0].ended.wait(10))
        channel.leave(second)
        content = b"3"
        channel.leave(channel.enter())
        self.assertTrue(made[1].closed, "nobody used it when it was replaced")
        channel.enter()
        content = b"4"
        channel.enter()
        self.assertFalse(made[2].closed)
        channel.close()
        self.assertTrue(made[2].closed and made[3].closed, "calls on it end, wherever they are")

    def test_keys_and_tokens_are_not_shown(self) -> None:
        self.assertNotIn("secret", repr(Options(token="secret")) + repr(Files(None, None, b"secret")))


if __name__ == "__main__":
    unittest.main()
