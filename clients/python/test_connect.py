"""What `connect` sends and whom it trusts."""

from __future__ import annotations

import subprocess
import tempfile
import unittest
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc

from coxswain.admin import connect
from coxswain.admin.v1 import leader_pb2, leader_pb2_grpc


class Leader(leader_pb2_grpc.LeaderServiceServicer):
    """Answers with the token that it was shown."""

    def GetLeader(self, request: leader_pb2.GetLeaderRequest, context: Any) -> leader_pb2.GetLeaderResponse:
        token: str = dict(context.invocation_metadata()).get("authorization", "")
        if not token:
            context.abort(grpc.StatusCode.UNAUTHENTICATED, "no token")
        return leader_pb2.GetLeaderResponse(leader=leader_pb2.Leader(holder_identity=token))

    def WatchLeader(self, request: leader_pb2.WatchLeaderRequest, context: Any) -> Any:
        raise NotImplementedError

    def StepDown(self, request: leader_pb2.StepDownRequest, context: Any) -> leader_pb2.StepDownResponse:
        raise NotImplementedError


class Connect(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.ca, key = self.folder / "ca.pem", self.folder / "key.pem"
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
             "-subj", "/CN=test", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", self.ca],
            check=True,
            capture_output=True,
        )
        server = grpc.server(futures.ThreadPoolExecutor(2))
        leader_pb2_grpc.add_LeaderServiceServicer_to_server(Leader(), server)
        pair = grpc.ssl_server_credentials([(key.read_bytes(), self.ca.read_bytes())])
        self.address = f"127.0.0.1:{server.add_secure_port('127.0.0.1:0', pair)}"
        server.start()
        self.addCleanup(lambda: server.stop(None).wait())

    def holder(self, **options: Any) -> str:
        with connect(self.address, **options) as client:
            return client.leader.GetLeader(leader_pb2.GetLeaderRequest()).leader.holder_identity

    def test_tokens_are_sent(self) -> None:
        self.assertEqual(self.holder(ca_file=self.ca, token="secret"), "Bearer secret")
        file = self.folder / "token"
        file.write_text("rotated\n")
        self.assertEqual(self.holder(ca_file=self.ca, token_file=file), "Bearer rotated")

    def test_what_does_not_hold_is_an_error(self) -> None:
        cases: list[tuple[dict[str, Any], grpc.StatusCode]] = [
            ({"ca_file": self.ca}, grpc.StatusCode.UNAUTHENTICATED),
            ({"token": "secret"}, grpc.StatusCode.UNAVAILABLE),
            ({"ca_file": self.ca, "token_file": "/nonexistent"}, grpc.StatusCode.UNAVAILABLE),
        ]
        for options, code in cases:
            with self.subTest(options=options), self.assertRaises(grpc.RpcError) as caught:
                self.holder(**options)
            self.assertEqual(caught.exception.code(), code)

    def test_options_that_can_not_be(self) -> None:
        cases: list[dict[str, Any]] = [{"token": "a", "token_file": "b"}, {"cert_file": "a"}]
        for options in cases:
            with self.assertRaises(ValueError):
                connect("localhost:1", **options)


if __name__ == "__main__":
    unittest.main()
