"""Connections to one replica: TLS, credentials and their files."""

from __future__ import annotations

import dataclasses
import logging
import ssl
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

import grpc

from coxswain.admin.v1.controllers_pb2_grpc import ControllerServiceStub
from coxswain.admin.v1.events_pb2_grpc import EventServiceStub
from coxswain.admin.v1.leader_pb2_grpc import LeaderServiceStub
from coxswain.admin.v1.queues_pb2_grpc import QueueServiceStub

_LOG = logging.getLogger("coxswain.admin")
_KEEPALIVE = [("grpc.keepalive_time_ms", 30_000), ("grpc.keepalive_timeout_ms", 10_000)]
_BEGIN = b"-----BEGIN CERTIFICATE-----"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Contains the trusted CAs and the caller's credentials.

    Without options, gRPC's default CAs are trusted and no credentials are sent. `ca_file` is a file with the trusted CAs
    (PEM); `ca` is the content of such a file. `cert_file` and `key_file` are the files of a client certificate and its
    key (PEM). These files are read for every call; after a change, the call opens a new connection. `token` is a bearer
    token; `token_file` is a file with a bearer token, read for every call. `server_name` is the name to expect in the
    server's certificate, instead of the host of the address.
    """

    ca_file: str | Path | None = None
    ca: bytes | None = None
    cert_file: str | Path | None = None
    key_file: str | Path | None = None
    token: str | None = dataclasses.field(default=None, repr=False)
    token_file: str | Path | None = None
    server_name: str | None = None

    def __post_init__(self) -> None:
        if (self.cert_file is None) != (self.key_file is None):
            raise ValueError("cert_file and key_file: set both or neither")
        if self.token is not None and self.token_file is not None:
            raise ValueError("token and token_file are both set; set only one")
        if self.ca is not None and self.ca_file is not None:
            raise ValueError("ca and ca_file are both set; set only one")

    @property
    def has_token(self) -> bool:
        """True if a token or a token file is set."""
        return self.token is not None or self.token_file is not None

    def read_token(self) -> str | None:
        """Returns the current token."""
        if self.token_file is None:
            return self.token
        token = Path(self.token_file).read_text().strip()
        if not token:
            raise ValueError(f"token file {self.token_file}: the file contains no token")
        return token

    def read_files(self, last: Files | None = None) -> Files:
        """Returns the current content of the files, or `last` if nothing changed.

        Raises `OSError` or `ValueError` if a file cannot be read, or the key does not match the certificate.
        """
        ca = self.ca if self.ca_file is None else Path(self.ca_file).read_bytes()
        if ca is not None and _BEGIN not in ca:
            raise ValueError(f"{self.ca_file or 'ca'}: contains no certificate (PEM)")
        if self.cert_file is None or self.key_file is None:
            return Files(ca, None, None)
        files = Files(ca, Path(self.cert_file).read_bytes(), Path(self.key_file).read_bytes())
        if files == last:
            return last
        try:
            # gRPC does not check that the key matches the certificate. It does not support passwords.
            ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_cert_chain(self.cert_file, self.key_file, password="")
        except ssl.SSLError as error:
            raise ValueError(f"{self.cert_file} with {self.key_file}: {error}") from error
        return files


@dataclasses.dataclass(frozen=True)
class Files:
    """Contains the content of the files."""

    ca: bytes | None
    cert: bytes | None
    key: bytes | None = dataclasses.field(repr=False)


class Client:
    """Contains all services of one replica. Closing the client cancels all its calls."""

    def __init__(self, channel: grpc.Channel) -> None:
        self.channel = channel
        self.controllers = ControllerServiceStub(channel)
        self.events = EventServiceStub(channel)
        self.leader = LeaderServiceStub(channel)
        self.queues = QueueServiceStub(channel)

    def close(self) -> None:
        """Closes the connection."""
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
    ca: bytes | None = None,
    cert_file: str | Path | None = None,
    key_file: str | Path | None = None,
    token: str | None = None,
    token_file: str | Path | None = None,
    server_name: str | None = None,
) -> Client:
    """Returns a client of the replica at `address` ("host:port"). The first call opens the connection.

    The other arguments are those of `Options`.
    """
    return connect_with(
        address,
        Options(
            ca_file=ca_file,
            ca=ca,
            cert_file=cert_file,
            key_file=key_file,
            token=token,
            token_file=token_file,
            server_name=server_name,
        ),
    )


def connect_with(address: str, options: Options) -> Client:
    """Returns a client of the replica at `address`, like `connect`."""
    arguments: list[tuple[str, int | str]] = list(_KEEPALIVE)
    if options.server_name is not None:
        arguments.append(("grpc.ssl_target_name_override", options.server_name))

    def dial(files: Files) -> grpc.Channel:
        credentials = grpc.ssl_channel_credentials(files.ca, files.key, files.cert)
        if options.has_token:
            token = grpc.metadata_call_credentials(_Bearer(options.read_token))
            credentials = grpc.composite_channel_credentials(credentials, token)
        return grpc.secure_channel(address, credentials, arguments)

    return Client(RotatingChannel(options.read_files, dial))


class _Bearer(grpc.AuthMetadataPlugin):
    """Sends a token with every call, over TLS only."""

    def __init__(self, token: Callable[[], str | None]) -> None:
        self._token = token

    def __call__(self, context: grpc.AuthMetadataContext, callback: grpc.AuthMetadataPluginCallback) -> None:
        try:
            callback((("authorization", f"Bearer {self._token()}"),), None)
        except Exception as error:  # noqa: BLE001: gRPC tells the caller.
            callback((), error)


class _Generation:
    """A channel with the content of its files and the number of its calls."""

    def __init__(self, channel: grpc.Channel, files: Files) -> None:
        self.channel = channel
        self.files = files
        self.calls = 0


class RotatingChannel(grpc.Channel):
    """A channel that opens a new channel when its files change, because gRPC reads credentials once per channel.

    Running calls stay on the old channel, which is closed after its last call. While the files cannot be read or do not
    match, the previous credentials are used, and the logger `coxswain.admin` logs a warning.
    """

    def __init__(self, read: Callable[[Files | None], Files], dial: Callable[[Files], grpc.Channel]) -> None:
        self._read = read
        self._dial = dial
        self._lock = threading.Lock()
        self._closed = False
        # Old channels with running calls.
        self._old: list[_Generation] = []
        self._watchers: list[Callable[[grpc.ChannelConnectivity], None]] = []
        self._warned = ""
        files = read(None)
        self._current = _Generation(dial(files), files)

    def enter(self) -> _Generation:
        """Returns the channel for a new call."""
        files: Files | None = None
        warning = ""
        try:
            files = self._read(self._current.files)
        except (OSError, ValueError) as error:
            warning = str(error)
        # Logged once, not for every call.
        if warning and warning != self._warned:
            _LOG.warning("Failed to read the credentials; using the previous ones: %s", warning)
        self._warned = warning
        old: _Generation | None = None
        with self._lock:
            if files is not None and files != self._current.files and not self._closed:
                old, self._current = self._current, _Generation(self._dial(files), files)
                for watcher in self._watchers:
                    old.channel.unsubscribe(watcher)
                    self._current.channel.subscribe(watcher)
            generation = self._current
            generation.calls += 1
            unused = old is not None and old.calls == 0
            if old is not None and not unused:
                self._old.append(old)
        if old is not None and unused:
            old.channel.close()
        return generation

    def leave(self, generation: _Generation) -> None:
        """Records the end of a call on this channel."""
        with self._lock:
            generation.calls -= 1
            done = generation in self._old and generation.calls == 0
            if done:
                self._old.remove(generation)
        if done:
            # A stream ends on a thread of the channel, which cannot wait for itself.
            threading.Thread(target=generation.channel.close, daemon=True).start()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            old, self._old = self._old, []
        for generation in (*old, self._current):
            generation.channel.close()

    def subscribe(
        self, callback: Callable[[grpc.ChannelConnectivity], None], try_to_connect: bool = False
    ) -> None:
        with self._lock:
            self._watchers.append(callback)
            self._current.channel.subscribe(callback, try_to_connect)

    def unsubscribe(self, callback: Callable[[grpc.ChannelConnectivity], None]) -> None:
        with self._lock:
            self._watchers = [watcher for watcher in self._watchers if watcher is not callback]
            self._current.channel.unsubscribe(callback)

    def unary_unary(self, *args: Any, **kwargs: Any) -> Any:
        return _Method(self, "unary_unary", args, kwargs)

    def unary_stream(self, *args: Any, **kwargs: Any) -> Any:
        return _Method(self, "unary_stream", args, kwargs)

    def stream_unary(self, *args: Any, **kwargs: Any) -> Any:
        return _Method(self, "stream_unary", args, kwargs)

    def stream_stream(self, *args: Any, **kwargs: Any) -> Any:
        return _Method(self, "stream_stream", args, kwargs)

    def __enter__(self) -> RotatingChannel:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        self.close()


class _Method:
    """A method of a service, called on the current channel."""

    def __init__(self, channel: RotatingChannel, kind: str, args: Any, kwargs: Any) -> None:
        self._channel = channel
        self._kind = kind
        self._args = args
        self._kwargs = kwargs

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._call("__call__", args, kwargs)

    def with_call(self, *args: Any, **kwargs: Any) -> Any:
        return self._call("with_call", args, kwargs)

    def future(self, *args: Any, **kwargs: Any) -> Any:
        return self._call("future", args, kwargs)

    def _call(self, how: str, args: Any, kwargs: Any) -> Any:
        generation = self._channel.enter()
        ended = False

        def leave() -> None:
            self._channel.leave(generation)

        try:
            method = getattr(generation.channel, self._kind)(*self._args, **self._kwargs)
            result = getattr(method, how)(*args, **kwargs)
            # Streams and futures are still running; other calls have ended.
            ended = not (isinstance(result, grpc.RpcContext) and result.add_callback(leave))
            return result
        except BaseException:
            ended = True
            raise
        finally:
            if ended:
                leave()
