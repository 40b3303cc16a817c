"""Connects to the admin API of Coxswain, a Kubernetes controller manager.

The messages and stubs are generated; see `coxswain.admin.v1`. This module is the small part around them: TLS and
credentials.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import TracebackType

import grpc

from coxswain.admin.v1.controllers_pb2_grpc import ControllerServiceStub
from coxswain.admin.v1.events_pb2_grpc import EventServiceStub
from coxswain.admin.v1.leader_pb2_grpc import LeaderServiceStub
from coxswain.admin.v1.queues_pb2_grpc import QueueServiceStub

__all__ = ["Client", "connect"]

_KEEPALIVE = [("grpc.keepalive_time_ms", 30_000), ("grpc.keepalive_timeout_ms", 10_000)]


class _Bearer(grpc.AuthMetadataPlugin):
    """Sends a token with every call, over TLS only."""

    def __init__(self, token: Callable[[], str]) -> None:
        self._token = token

    def __call__(self, context: grpc.AuthMetadataContext, callback: grpc.AuthMetadataPluginCallback) -> None:
        try:
            callback((("authorization", f"Bearer {self._token()}"),), None)
        except Exception as error:  # noqa: BLE001: gRPC tells the caller.
            callback((), error)


class Client:
    """All services of one replica. Closing it ends all calls on it."""

    def __init__(self, channel: grpc.Channel) -> None:
        self.channel = channel
        self.controllers = ControllerServiceStub(channel)
        self.events = EventServiceStub(channel)
        self.leader = LeaderServiceStub(channel)
        self.queues = QueueServiceStub(channel)

    def close(self) -> None:
        """Ends the connection."""
        self.channel.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def connect(
    address: str,
    *,
    ca_file: str | Path | None = None,
    cert_file: str | Path | None = None,
    key_file: str | Path | None = None,
    token: str | None = None,
    token_file: str | Path | None = None,
    server_name: str | None = None,
) -> Client:
    """Makes a client of the replica at `address` ("host:port"). The connection is made with the first call.

    `ca_file` holds the authorities (PEM) that may vouch for the server; without it gRPC's own are trusted.
    `cert_file` and `key_file` are a client certificate (PEM). `token` is a bearer token; `token_file` holds one that
    is read anew for every call, as tokens in pods are rotated. `server_name` is expected in the server's certificate
    instead of the address' host.
    """
    if (cert_file is None) != (key_file is None):
        raise ValueError("of cert_file and key_file only one is given")
    if token is not None and token_file is not None:
        raise ValueError("token and token_file are both given")

    def read(path: str | Path | None) -> bytes | None:
        return None if path is None else Path(path).read_bytes()

    credentials = grpc.ssl_channel_credentials(read(ca_file), read(key_file), read(cert_file))
    if token is not None:
        credentials = _with_token(credentials, lambda: token)
    elif token_file is not None:
        credentials = _with_token(credentials, lambda: Path(token_file).read_text().strip())
    options: list[tuple[str, int | str]] = list(_KEEPALIVE)
    if server_name is not None:
        options.append(("grpc.ssl_target_name_override", server_name))
    return Client(grpc.secure_channel(address, credentials, options))


def _with_token(credentials: grpc.ChannelCredentials, token: Callable[[], str]) -> grpc.ChannelCredentials:
    return grpc.composite_channel_credentials(credentials, grpc.metadata_call_credentials(_Bearer(token)))
