"""What `connect` sends and whom it trusts."""

from __future__ import annotations

import unittest
from typing import Any

import grpc

from coxswain.admin import connect
from coxswain.admin.v1 import leader_pb2, leader_pb2_grpc
from fixtures import Authority, Case


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


class Connect(Case):
    def setUp(self) -> None:
        super().setUp()
        authority = Authority(self.folder, "authority")
        self.ca = authority.file
        certificate, key = authority.issue("server")
        self.address = self.serve(
            grpc.ssl_server_credentials([(key, certificate)]),
            lambda server: leader_pb2_grpc.add_LeaderServiceServicer_to_server(Leader(), server),
        )

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
        cases: list[dict[str, Any]] = [
            {"token": "a", "token_file": "b"},
            {"cert_file": "a"},
            {"ca": b"a", "ca_file": "b"},
            {"ca": b"a"},
        ]
        for options in cases:
            with self.subTest(options=options), self.assertRaises(ValueError):
                connect("localhost:1", **options)


if __name__ == "__main__":
    unittest.main()
