"""Which replicas there are, by the Leases that they keep, and what each of them may see of the caller."""

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
"""The Lease by which the leader leads, unless the manager is told otherwise (--leader-elect-resource-name)."""
DEFAULT_LEASE_NAMESPACE = "kube-system"
"""The namespace of that Lease (--leader-elect-resource-namespace)."""

CERTIFICATE_NAME = "coxswain.kube-system.svc"
"""The name in the serving certificates of Coxswain that the cluster's CA signs, and in no certificate of a node."""

_REPLICA_NAMESPACE = "kube-system"
_REPLICA_SELECTOR = "coxswain.dev/component=replica"
_ADDRESS = "coxswain.dev/admin-address"
_AUTHORITY = "coxswain.dev/admin-ca"
# The Lease by which the replica leads, as "NAMESPACE/NAME", and the replica's identity.
_LEASE = "coxswain.dev/lease"
_POD = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_SECONDS = 10.0
# A Lease has some kilobytes at most.
_MAX_ANSWER = 16 << 20
# What a host may look like. A Lease says where to call, so nothing may pass that gRPC takes for a scheme.
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")


@dataclasses.dataclass(frozen=True)
class Lease:
    """What counts here of a Lease (coordination.k8s.io/v1)."""

    name: str
    annotations: Mapping[str, str] = dataclasses.field(default_factory=dict)
    # Empty if nobody holds it.
    holder_identity: str = ""
    # The holder's last sign of life, with a time zone, and for how long it counts.
    renew_time: datetime | None = None
    lease_duration: timedelta = timedelta(0)

    @classmethod
    def from_json(cls, lease: Mapping[str, Any]) -> Lease:
        """Reads the JSON of a Lease."""
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

    `ApiServer` does so; who has a client of the cluster already writes the two methods with it.
    """

    def list(self, namespace: str, label_selector: str) -> Iterable[Lease]:
        """Lists the Leases of a namespace that have a label."""

    def get(self, namespace: str, name: str) -> Lease | None:
        """Reads one Lease. `None` if there is none of this name, or if the caller may not read it."""


class ApiServerError(Exception):
    """The API server does not answer, or not as it should."""


class ApiServer:
    """Reads Leases from the cluster's API server, over HTTPS and nothing else.

    `server` is "https://HOST[:PORT]". The files of `options` are read anew for every request.
    """

    def __init__(self, server: str, options: Options) -> None:
        url = urllib.parse.urlsplit(server)
        if url.scheme != "https" or not url.hostname or "@" in url.netloc:
            raise ValueError(f"{server!r} is no API server: https://HOST[:PORT] is allowed")
        if options.server_name is not None:
            raise ValueError("server_name is given: an API server has the name in its URL, and no other is allowed")
        self._host, self._port, self._path = url.hostname, url.port, url.path.rstrip("/")
        self._options = options
        self._context()

    def list(self, namespace: str, label_selector: str) -> list[Lease]:
        """Lists Leases by a label."""
        query = urllib.parse.urlencode({"labelSelector": label_selector})
        path = f"{_leases(namespace)}?{query}"
        status, answer = self._get(path)
        if status == 200:
            return [Lease.from_json(lease) for lease in answer.get("items") or []]
        hint = " (the Role coxswain-admin-discovery allows it)" if status == 403 else ""
        raise ApiServerError(f"GET {path}: {status} {answer.get('message', '')}{hint}")

    def get(self, namespace: str, name: str) -> Lease | None:
        """Reads one Lease."""
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
        # Each request has a connection of its own: they are rare, and rotated certificates count at once.
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
                raise ApiServerError(f"GET {path}: no JSON of Leases: {error}") from error
            answer = {}
        return response.status, answer if isinstance(answer, dict) else {}


def _ascii(pem: bytes | None) -> str | None:
    # What is no ASCII stands in comments.
    return None if pem is None else pem.decode("ascii", "ignore")


def _leases(namespace: str) -> str:
    return f"/apis/coordination.k8s.io/v1/namespaces/{urllib.parse.quote(namespace, safe='')}/leases"


def in_cluster() -> tuple[str, Options]:
    """Says, in a pod, where the API server is and who the pod's service account is there."""
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT")
    if not host or not port:
        raise ValueError("this is no pod: KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not both set")
    server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    return server, Options(ca_file=_POD / "ca.crt", token_file=_POD / "token")


@dataclasses.dataclass(frozen=True)
class Replica:
    """A running Coxswain that serves the admin API."""

    # Host and port.
    address: str
    # The name of its Lease, and its own in the leader election; empty if no Lease told of it.
    name: str = ""
    identity: str = ""
    # Who vouches for it (PEM) by its Lease, which whoever may write Leases may have written; empty if nobody.
    authority: str = ""
    # Whether it holds the Lease by which the leader leads.
    leads: bool = False

    def __str__(self) -> str:
        return f"{self.identity} at {self.address}" if self.identity else self.address


@dataclasses.dataclass(frozen=True)
class Replicas:
    """What the Leases tell."""

    # Who may be called: the leader first, then the others by identity. Replicas that seem dead are among them only if
    # all do, for it may be this machine's clock.
    candidates: Sequence[Replica]
    # Who else there is, and why they are not called.
    passed_over: Sequence[str] = ()
    # Who leads, a manager of another make perhaps; empty if nobody does, or if the caller may not know.
    holder: str = ""

    def at(self, address: str) -> Replica:
        """The replica at an address that another one has named."""
        return next((each for each in self.candidates if each.address == address), Replica(address))


class NotVouchedFor(Exception):
    """A replica that a token is not sent to."""

    def __init__(self) -> None:
        super().__init__(
            "only its Lease says that it is a replica, and a token is not sent on that alone: give ca_file, "
            "server_name, a client certificate, cluster_ca_file, or trust_announced"
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Finder:
    """Finds the replicas, and connects to them as somebody whom it does not give away.

    `leases` tells which replicas there are; `addresses` names some ("host:port") in its place. `options` say who one is,
    and whom to trust whatever a Lease says. `cluster_ca_file` holds the cluster's authorities (PEM), those of the API
    server: they are trusted at a replica that neither `options` nor its Lease name an authority for. They sign the
    certificates of nodes as well, so a token goes only to a certificate for `CERTIFICATE_NAME`. `trust_announced`
    sends a token to a replica that only its own Lease vouches for: whoever may write Leases in kube-system can then
    get it. A client certificate gives nothing away, and needs no such consent. `lease_name` and `lease_namespace` are
    those of the Lease by which the leader leads.
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
            raise ValueError("of leases and addresses exactly one is to be given")

    def replicas(self) -> Replicas:
        """Reads the Leases, and tells which replicas to call and which not."""
        if self.leases is None:
            return Replicas([Replica(address) for address in self.addresses])
        leases = list(self.leases.list(_REPLICA_NAMESPACE, _REPLICA_SELECTOR))
        # Without it, those who answer know who leads.
        main = self.leases.get(self.lease_namespace, self.lease_name)
        group = f"{self.lease_namespace}/{self.lease_name}"
        return choose(leases, group, main.holder_identity if main is not None else "", self.now())

    def connect(self, replica: Replica) -> Client:
        """Makes a client of a replica, with the credentials that it may see; `NotVouchedFor` if that would be none."""
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
                raise ValueError(f"with the authority that the Lease of {replica} announces: {error}") from error
            raise

    def hint(self, replica: Replica) -> str:
        """Returns a hint for a replica that can't be reached because of the rule of trust."""
        decision = self._facts(replica).decide()
        hint = ""
        if replica.authority and decision is not None and decision.voucher not in ("announcement", "authority"):
            hint = (
                " (the authority that its Lease announces is not trusted with a token, unless trust_announced is given)"
            )
        if decision is not None and decision.name == "coxswain":
            hint += f" (with cluster_ca_file a token is sent only to a server with a certificate for {CERTIFICATE_NAME})"
        return hint

    def _facts(self, replica: Replica) -> Facts:
        return Facts(
            authority=self.options.ca_file is not None or self.options.ca is not None,
            trust_announced=self.trust_announced,
            # Not whom a named replica names as the leader: that address is what a Lease says.
            named=replica.address in self.addresses or self.options.server_name is not None,
            announced=bool(replica.authority),
            cluster_authority=self.cluster_ca_file is not None,
            token=self.options.has_token,
            certificate=self.options.cert_file is not None,
        )


@dataclasses.dataclass(frozen=True)
class Decision:
    """Whose word it is that a server is who it says, and whether the token goes to it."""

    voucher: str
    send_token: bool
    # The name that the server's certificate must have: "address" for the host of the address or `server_name`,
    # "coxswain" for `CERTIFICATE_NAME`.
    name: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Facts:
    """What decides about trust.

    Whoever may write Leases in kube-system may announce a replica, its address and its authority. So an announcement is
    good for client certificates, which prove the caller without giving anything away, and not for tokens, which are the
    caller to whoever holds them. The command line has the same rule; a test sees to that.
    """

    # The user has named an authority.
    authority: bool
    # The user trusts announcements with a token.
    trust_announced: bool
    # The user has named the server.
    named: bool
    # The replica announces an authority.
    announced: bool
    # The user has named the cluster's authority.
    cluster_authority: bool
    # The caller has a token, a client certificate.
    token: bool
    certificate: bool

    def decide(self) -> Decision | None:
        """Decides. `None` if nobody vouches for the server, and the token is all that the caller has."""
        # Who has nothing to give away may ask anybody: the answer is a refusal.
        gives_nothing_away = self.certificate or not self.token
        name = "address"
        if self.authority:
            voucher, vouched = "authority", True
        elif self.announced and (self.trust_announced or gives_nothing_away):
            voucher, vouched = "announcement", self.trust_announced
        elif self.cluster_authority:
            # The cluster's CA vouches for nodes as well: only a server with Coxswain's name gets a token, unless the
            # user has named it. A client certificate needs no other name than that of the address.
            if not self.named and not gives_nothing_away:
                name = "coxswain"
            voucher, vouched = "cluster", self.named or name == "coxswain"
        else:
            # The system's authorities vouch for names, and anybody may have one: the user has to have named this one.
            voucher, vouched = "system", self.named
        send_token = self.token and vouched
        return Decision(voucher, send_token, name) if send_token or gives_nothing_away else None


def _leads_by(lease: Lease, main: str, holder: str) -> str:
    """The Lease by which a replica leads.

    A replica of an older version announces none: it is the one that it holds, and else the default one.
    """
    name, _, identity = lease.annotations.get(_LEASE, "").partition(" ")
    # An annotation with another identity is left over from a predecessor.
    if identity == lease.holder_identity:
        return name
    return main if lease.holder_identity == holder else f"{DEFAULT_LEASE_NAMESPACE}/{DEFAULT_LEASE_NAME}"


def choose(leases: Iterable[Lease], main: str, holder: str, now: datetime) -> Replicas:
    """Decides whom to call of the replicas that lead by the Lease `main`."""
    alive: list[Replica] = []
    silent: list[tuple[timedelta, Replica]] = []
    passed_over: list[str] = []
    for lease in leases:
        identity = lease.holder_identity
        # A Lease without a holder was given up: its replica has ended.
        if not identity:
            continue
        other = _leads_by(lease, main, holder)
        if other != main:
            passed_over.append(f"{identity} leads by another Lease, {other}")
            continue
        address = lease.annotations.get(_ADDRESS, "")
        if not address:
            passed_over.append(f"{identity} serves no admin API")
            continue
        authority = lease.annotations.get(_AUTHORITY, "")
        replica = Replica(address, lease.name, identity, authority, leads=identity == holder)
        since = timedelta.max if lease.renew_time is None else now - lease.renew_time
        if since <= lease.lease_duration:
            alive.append(replica)
            continue
        silent.append((since, replica))
        never = "has never given a sign of life"
        seconds = f"has given no sign of life for {int(since.total_seconds())}s"
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
        raise ValueError(f"{address!r} is no address of a replica: HOST:PORT is allowed")
