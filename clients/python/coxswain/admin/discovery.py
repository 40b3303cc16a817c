"""Finds replicas by their Leases, and selects the credentials to send to each of them."""

from __future__ import annotations

import dataclasses
import http.client
import ipaddress
import json
import os
import re
import ssl
import urllib.parse
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, Protocol

from coxswain.admin.connection import Client, Options, connect_with

DEFAULT_LEASE_NAME = "kube-controller-manager"
"""Default name of the leader-election Lease (--leader-elect-resource-name)."""
DEFAULT_LEASE_NAMESPACE = "kube-system"
"""Default namespace of the leader-election Lease (--leader-elect-resource-namespace)."""

CERTIFICATE_NAME = "coxswain.kube-system.svc"
"""Name in the serving certificates that the cluster's CA signs for Coxswain. Certificates of nodes must not contain it."""

_REPLICA_NAMESPACE = "kube-system"
_REPLICA_SELECTOR = "coxswain.dev/component=replica"
_ADDRESS = "coxswain.dev/admin-address"
_AUTHORITY = "coxswain.dev/admin-ca"
# The replica's leader-election Lease, as "NAMESPACE/NAME", and the replica's identity.
_LEASE = "coxswain.dev/lease"
_POD = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_SECONDS = 10.0
# A Lease has at most some kilobytes.
_MAX_ANSWER = 16 << 20
# Matches valid hosts. The address comes from a Lease, so it must not contain a scheme of gRPC.
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")


@dataclasses.dataclass(frozen=True)
class Lease:
    """Contains the used fields of a Lease (coordination.k8s.io/v1)."""

    name: str
    annotations: Mapping[str, str] = dataclasses.field(default_factory=dict)
    # Empty if the Lease has no holder.
    holder_identity: str = ""
    # Time of the last renewal, with a time zone, and the time from it to the expiry.
    renew_time: datetime | None = None
    lease_duration: timedelta = timedelta(0)

    @classmethod
    def from_json(cls, lease: Mapping[str, Any]) -> Lease:
        """Parses the JSON of a Lease."""
        metadata, spec = lease.get("metadata") or {}, lease.get("spec") or {}
        renewed = spec.get("renewTime")
        return cls(
            name=metadata.get("name") or "",
            annotations=metadata.get("annotations") or {},
            holder_identity=spec.get("holderIdentity") or "",
            renew_time=datetime.fromisoformat(renewed.replace("Z", "+00:00")) if renewed else None,
            lease_duration=timedelta(seconds=spec.get("leaseDurationSeconds") or 0),
        )


class Leases(Protocol):
    """Reads Leases from the cluster.

    `ApiServer` implements it. You can also implement it with an existing client of the cluster.
    """

    def list(self, namespace: str, label_selector: str) -> Iterable[Lease]:
        """Lists the Leases of a namespace that match a label selector."""

    def get(self, namespace: str, name: str) -> Lease | None:
        """Returns one Lease; `None` if the Lease does not exist or the caller cannot read it."""


class ApiServerError(Exception):
    """A request to the API server failed."""


class ApiServer:
    """Reads Leases from the cluster's API server. It requires HTTPS.

    `server` is "https://HOST[:PORT]". The files of `options` are read for every request.
    """

    def __init__(self, server: str, options: Options) -> None:
        url = urllib.parse.urlsplit(server)
        if url.scheme != "https" or not url.hostname or "@" in url.netloc:
            raise ValueError(f"API server {server!r}: expected https://HOST[:PORT]")
        if options.server_name is not None:
            raise ValueError("server_name must be unset: the URL contains the name of the API server")
        self._host, self._port, self._path = url.hostname, url.port, url.path.rstrip("/")
        self._options = options
        self._context()

    def list(self, namespace: str, label_selector: str) -> list[Lease]:
        """Lists the Leases of a namespace that match a label selector."""
        query = urllib.parse.urlencode({"labelSelector": label_selector})
        path = f"{_leases(namespace)}?{query}"
        status, answer = self._get(path)
        if status == 200:
            return [Lease.from_json(lease) for lease in answer.get("items") or []]
        hint = " (bind the Role coxswain-admin-discovery)" if status == 403 else ""
        raise ApiServerError(f"GET {path}: {status} {answer.get('message', '')}{hint}")

    def get(self, namespace: str, name: str) -> Lease | None:
        """Returns one Lease; `None` if the Lease does not exist or the caller cannot read it."""
        path = f"{_leases(namespace)}/{urllib.parse.quote(name, safe='')}"
        status, answer = self._get(path)
        if status in (403, 404):
            return None
        if status == 200:
            return Lease.from_json(answer)
        raise ApiServerError(f"GET {path}: {status} {answer.get('message', '')}")

    def _context(self) -> ssl.SSLContext:
        files = self._options.read_files()
        context = ssl.create_default_context(cadata=_ascii(files.ca))
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if self._options.cert_file is not None:
            context.load_cert_chain(self._options.cert_file, self._options.key_file)
        return context

    def _get(self, path: str) -> tuple[int, dict[str, Any]]:
        headers = {"Accept": "application/json"}
        token = self._options.read_token()
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        # Each request opens a connection: requests are rare, and rotated certificates apply at once.
        connection = http.client.HTTPSConnection(
            self._host, self._port, timeout=_SECONDS, context=self._context()
        )
        try:
            connection.request("GET", self._path + path, headers=headers)
            response = connection.getresponse()
            body = response.read(_MAX_ANSWER)
        except (OSError, http.client.HTTPException) as error:
            raise ApiServerError(f"GET {path} of {self._host}: {error}") from error
        finally:
            connection.close()
        try:
            answer = json.loads(body)
        except ValueError as error:
            if response.status == 200:
                raise ApiServerError(f"GET {path}: decode the Leases: {error}") from error
            answer = {}
        return response.status, answer if isinstance(answer, dict) else {}


def _ascii(pem: bytes | None) -> str | None:
    # Only comments contain non-ASCII characters.
    return None if pem is None else pem.decode("ascii", "ignore")


def _leases(namespace: str) -> str:
    return f"/apis/coordination.k8s.io/v1/namespaces/{urllib.parse.quote(namespace, safe='')}/leases"


def in_cluster() -> tuple[str, Options]:
    """Returns the URL of the API server and the options of the pod's service account. It works only in a pod."""
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT")
    if not host or not port:
        raise ValueError("not in a pod: KUBERNETES_SERVICE_HOST or KUBERNETES_SERVICE_PORT is unset")
    server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    return server, Options(ca_file=_POD / "ca.crt", token_file=_POD / "token")


@dataclasses.dataclass(frozen=True)
class Replica:
    """A running Coxswain that serves the admin API."""

    # Host and port.
    address: str
    # Name of the replica's Lease, and identity in the leader election; empty if the replica was not found by a Lease.
    name: str = ""
    identity: str = ""
    # CA (PEM) in the replica's Lease; empty if the Lease contains none. Any account that can write Leases can set it.
    authority: str = ""
    # True if the replica holds the leader-election Lease.
    leads: bool = False

    def __str__(self) -> str:
        return f"{self.identity} at {self.address}" if self.identity else self.address


@dataclasses.dataclass(frozen=True)
class Replicas:
    """Contains the result of reading the Leases."""

    # Replicas to call: the leader first, then the others by identity. It contains replicas with expired Leases only if
    # all Leases are expired, because this machine's clock may be wrong.
    candidates: Sequence[Replica]
    # Descriptions of the other replicas, with the reasons why they are not called.
    passed_over: Sequence[str] = ()
    # Identity of the Lease's holder, which may be a kube-controller-manager; empty if the Lease has no holder, or the
    # caller cannot read the Lease.
    holder: str = ""

    def at(self, address: str) -> Replica:
        """Returns the replica at an address that another replica returned."""
        return next((each for each in self.candidates if each.address == address), Replica(address))


class NotVouchedFor(Exception):
    """The replica is not trusted with the caller's token."""

    def __init__(self) -> None:
        super().__init__(
            "refusing to send a token: nothing but the replica's own Lease confirms the replica's identity; "
            "set ca_file, server_name, a client certificate, cluster_ca_file or trust_announced"
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Finder:
    """Finds the replicas and connects to them, without sending a token to an untrusted server.

    `leases` reads the replicas' Leases; `addresses` ("host:port") can be set instead, and one address is enough to find
    the leader. `options` contain the caller's credentials, and CAs to trust regardless of Leases. `cluster_ca_file` is a
    file with the CAs (PEM) of the cluster's API server, which are trusted if neither `options` nor the replica's Lease
    contains a CA. These CAs also sign certificates of nodes, so a token is sent only to a server with a certificate for
    `CERTIFICATE_NAME`. `trust_announced` allows sending a token to a replica whose CA only its own Lease contains: any
    account that can write Leases in kube-system can then steal the token. A client certificate cannot be stolen and does
    not require this. `lease_name` and `lease_namespace` are those of the leader-election Lease.
    """

    leases: Leases | None = None
    addresses: Sequence[str] = ()
    options: Options = Options()
    cluster_ca_file: str | Path | None = None
    trust_announced: bool = False
    lease_name: str = DEFAULT_LEASE_NAME
    lease_namespace: str = DEFAULT_LEASE_NAMESPACE
    now: Callable[[], datetime] = lambda: datetime.now(timezone.utc)

    def __post_init__(self) -> None:
        if (self.leases is None) == (not self.addresses):
            raise ValueError("set exactly one of leases and addresses")

    def replicas(self) -> Replicas:
        """Reads the Leases and returns the replicas to call."""
        if self.leases is None:
            return Replicas([Replica(address) for address in self.addresses])
        leases = list(self.leases.list(_REPLICA_NAMESPACE, _REPLICA_SELECTOR))
        # Without this Lease, each replica returns the leader.
        main = self.leases.get(self.lease_namespace, self.lease_name)
        group = f"{self.lease_namespace}/{self.lease_name}"
        return choose(leases, group, main.holder_identity if main is not None else "", self.now())

    def connect(self, replica: Replica) -> Client:
        """Returns a client of a replica, with the credentials that the replica is trusted with.

        Raises `NotVouchedFor` if the replica is not trusted with the caller's only credentials.
        """
        _check_address(replica.address)
        decision = self._facts(replica).decide()
        if decision is None:
            raise NotVouchedFor
        options = self.options
        if decision.name == "coxswain":
            options = dataclasses.replace(options, server_name=CERTIFICATE_NAME)
        if decision.voucher == "announcement":
            options = dataclasses.replace(options, ca=replica.authority.encode())
        elif decision.voucher == "cluster":
            options = dataclasses.replace(options, ca_file=self.cluster_ca_file)
        if not decision.send_token:
            options = dataclasses.replace(options, token=None, token_file=None)
        try:
            return connect_with(replica.address, options)
        except ValueError as error:
            if decision.voucher == "announcement":
                raise ValueError(f"load the CA in the Lease of {replica}: {error}") from error
            raise

    def hint(self, replica: Replica) -> str:
        """Returns a hint for a replica that is unreachable because its CA or name is not trusted."""
        decision = self._facts(replica).decide()
        hint = ""
        if replica.authority and decision is not None and decision.voucher not in ("announcement", "authority"):
            hint = (
                " (with a token, the CA in the replica's Lease is not trusted; set trust_announced to trust it)"
            )
        if decision is not None and decision.name == "coxswain":
            hint += f" (with cluster_ca_file, a token is sent only to a server with a certificate for {CERTIFICATE_NAME})"
        return hint

    def _facts(self, replica: Replica) -> Facts:
        return Facts(
            authority=self.options.ca_file is not None or self.options.ca is not None,
            trust_announced=self.trust_announced,
            # The leader's address from a named replica is not named by the user, because it comes from a Lease.
            named=replica.address in self.addresses or self.options.server_name is not None,
            announced=bool(replica.authority),
            cluster_authority=self.cluster_ca_file is not None,
            token=self.options.has_token,
            certificate=self.options.cert_file is not None,
        )


@dataclasses.dataclass(frozen=True)
class Decision:
    """Contains the source of the CA that verifies a server, and whether the token is sent."""

    voucher: str
    send_token: bool
    # Name to expect in the server's certificate: "address" for the host of the address or `server_name`, "coxswain" for
    # `CERTIFICATE_NAME`.
    name: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Facts:
    """Contains the facts that determine trust.

    Any account that can write Leases in kube-system can announce a replica with its own address and CA. An announcement
    is therefore sufficient for a client certificate, which a server cannot steal, but not for a token. The command line
    has the same rules, which a test compares.
    """

    # The user set a CA.
    authority: bool
    # The user allows sending a token to a replica that only its Lease identifies.
    trust_announced: bool
    # The user set the server's address or name.
    named: bool
    # The replica's Lease contains a CA.
    announced: bool
    # The user set the cluster's CA.
    cluster_authority: bool
    # The caller has a token, or a client certificate.
    token: bool
    certificate: bool

    def decide(self) -> Decision | None:
        """Returns the decision; `None` if the caller has only a token and the server is not trusted with it."""
        # A caller without a token can call any server, because no credential can be stolen.
        gives_nothing_away = self.certificate or not self.token
        name = "address"
        if self.authority:
            voucher, vouched = "authority", True
        elif self.announced and (self.trust_announced or gives_nothing_away):
            voucher, vouched = "announcement", self.trust_announced
        elif self.cluster_authority:
            # The cluster's CA also signs for nodes: a token is sent only to a server with Coxswain's name, unless the user
            # set the server. With a client certificate, the host of the address is sufficient.
            if not self.named and not gives_nothing_away:
                name = "coxswain"
            voucher, vouched = "cluster", self.named or name == "coxswain"
        else:
            # The system's CAs sign for any owner of a name, so the user must have set this server.
            voucher, vouched = "system", self.named
        send_token = self.token and vouched
        return Decision(voucher, send_token, name) if send_token or gives_nothing_away else None


def _leads_by(lease: Lease, main: str, holder: str) -> str:
    """Returns the leader-election Lease of a replica.

    Replicas of older versions do not announce it: it is the Lease that the replica holds, or else the default one.
    """
    name, _, identity = lease.annotations.get(_LEASE, "").partition(" ")
    # An annotation with another identity is left over from a predecessor.
    if identity == lease.holder_identity:
        return name
    return main if lease.holder_identity == holder else f"{DEFAULT_LEASE_NAMESPACE}/{DEFAULT_LEASE_NAME}"


def choose(leases: Iterable[Lease], main: str, holder: str, now: datetime) -> Replicas:
    """Returns the replicas to call, among those with the leader-election Lease `main`."""
    alive: list[Replica] = []
    silent: list[tuple[timedelta, Replica]] = []
    passed_over: list[str] = []
    for lease in leases:
        identity = lease.holder_identity
        # A Lease without a holder was released: its replica has stopped.
        if not identity:
            continue
        other = _leads_by(lease, main, holder)
        if other != main:
            passed_over.append(f"{identity} uses another leader-election Lease, {other}")
            continue
        address = lease.annotations.get(_ADDRESS, "")
        if not address:
            passed_over.append(f"{identity} does not serve the admin API")
            continue
        authority = lease.annotations.get(_AUTHORITY, "")
        replica = Replica(address, lease.name, identity, authority, leads=identity == holder)
        since = timedelta.max if lease.renew_time is None else now - lease.renew_time
        if since <= lease.lease_duration:
            alive.append(replica)
            continue
        silent.append((since, replica))
        never = "has never renewed its Lease"
        seconds = f"has not renewed its Lease for {int(since.total_seconds())}s"
        passed_over.append(f"{identity} {never if lease.renew_time is None else seconds}")
    alive.sort(key=lambda each: (not each.leads, each.identity))
    silent.sort(key=lambda each: (each[0], each[1].identity))
    return Replicas(alive or [replica for _, replica in silent], sorted(passed_over), holder)


def _check_address(address: str) -> None:
    host, _, port = address.rpartition(":")
    try:
        is_host = _HOST.fullmatch(host) is not None
        if host.startswith("[") and host.endswith("]"):
            is_host = ipaddress.ip_address(host[1:-1]).version == 6
    except ValueError:
        is_host = False
    if not is_host or not re.fullmatch("[0-9]{1,5}", port) or not 0 < int(port) < 65536:
        raise ValueError(f"replica address {address!r}: expected HOST:PORT")
