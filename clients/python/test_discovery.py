"""Which replicas are found, and what each of them sees of the caller."""

from __future__ import annotations

import json
import ssl
import threading
import unittest
from datetime import datetime, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import grpc

from coxswain.admin import ApiServer, ApiServerError, Finder, Lease, NotVouchedFor, Options, Replica, Replicas
from coxswain.admin.discovery import CERTIFICATE_NAME, Facts, choose
from coxswain.admin.v1 import leader_pb2, leader_pb2_grpc
from fixtures import Authority, Case
from test_connect import Leader

TABLES = Path(__file__).parent.parent / "go" / "testdata"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/"


class Tables(unittest.TestCase):
    """The tables are those of the command line, which has the same rules."""

    def test_trust(self) -> None:
        names = {
            "authority": "authority", "trustAnnounced": "trust_announced", "named": "named", "announced": "announced",
            "clusterAuthority": "cluster_authority", "token": "token", "certificate": "certificate",
        }
        rows = json.loads((TABLES / "trust.json").read_text())
        self.assertEqual(len(rows), 128)
        for row in rows:
            decision = Facts(**{ours: theirs in row["facts"] for theirs, ours in names.items()}).decide()
            found = (decision.voucher, decision.send_token, decision.name) if decision else (None, False, None)
            self.assertEqual(found, (row["voucher"], row["sendToken"], row["name"]), row)

    def test_leases(self) -> None:
        file = json.loads((TABLES / "leases.json").read_text())
        now = datetime.fromisoformat(file["now"].replace("Z", "+00:00"))
        for case in file["cases"]:
            leases = [Lease.from_json(lease) for lease in case["leases"]]
            wanted = [
                Replica(
                    address=each["address"],
                    name=f"coxswain-replica-{each['identity']}",
                    identity=each["identity"],
                    authority=each["authority"] or "",
                    leads=each["leads"],
                )
                for each in case["candidates"]
            ]
            found = choose(leases, case.get("lease", "kube-system/kube-controller-manager"), case["holder"], now)
            self.assertEqual(found, Replicas(wanted, case["passedOver"], case["holder"]), case["about"])


class Cluster(Case):
    """An API server that has pages for who shows the token "secret"."""

    def setUp(self) -> None:
        super().setUp()
        self.authority = Authority(self.folder, "authority")
        self.pages: dict[str, Any] = {}
        pages = self.pages

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                if self.headers["Authorization"] != "Bearer secret":
                    self.answer(403, {"message": "leases is forbidden"})
                elif self.path in pages:
                    self.answer(200, pages[self.path])
                else:
                    self.answer(404, {})

            def answer(self, status: int, body: Any) -> None:
                self.send_response(status)
                self.end_headers()
                self.wfile.write(json.dumps(body).encode())

            def log_message(self, format: str, *args: Any) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.authority.issue("server")
        context.load_cert_chain(self.folder / "authority-server.pem", self.folder / "authority-server.key")
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        self.server = f"https://127.0.0.1:{server.server_port}"

    def test_replicas_are_found_by_a_lease_of_another_name(self) -> None:
        annotations = {"coxswain.dev/admin-address": "10.0.0.2:10257"}
        spec = {"holderIdentity": "b", "renewTime": "2026-11-21T15:30:00.000000Z", "leaseDurationSeconds": 40}
        lease = {"metadata": {"name": "coxswain-replica-1", "annotations": annotations}, "spec": spec}
        selected = "kube-system/leases?labelSelector=coxswain.dev%2Fcomponent%3Dreplica"
        self.pages[LEASES + selected] = {"items": [lease]}
        self.pages[LEASES + "managers/leases/coxswain"] = {"spec": {"holderIdentity": "b"}}
        options = Options(ca_file=self.authority.file, token_file=self.write("token", b"secret\n"))
        leases = ApiServer(self.server, options)

        def now() -> datetime:
            return datetime(2026, 11, 21, 15, 30, 30, tzinfo=timezone.utc)

        found = Finder(leases=leases, now=now).replicas()
        replica = Replica("10.0.0.2:10257", "coxswain-replica-1", "b")
        self.assertEqual((found.candidates, found.holder), ([replica], ""), "by the usual name nobody leads")
        found = Finder(leases=leases, now=now, lease_name="coxswain", lease_namespace="managers").replicas()
        self.assertEqual((found.candidates[0].leads, found.holder), (True, "b"))

    def test_an_api_server_that_does_not_answer_says_why(self) -> None:
        for token, wanted in {"secret": "404", "other": "coxswain-admin-discovery"}.items():
            leases = ApiServer(self.server, Options(ca=self.authority.pem, token=token))
            with self.assertRaisesRegex(ApiServerError, wanted):
                leases.list("kube-system", "")
            self.assertIsNone(leases.get("kube-system", "x"))
        stranger = Authority(self.folder, "stranger")
        with self.assertRaisesRegex(ApiServerError, "CERTIFICATE_VERIFY_FAILED"):
            ApiServer(self.server, Options(ca=stranger.pem, token="secret")).list("kube-system", "")
        for server in ("http://localhost:1", "localhost:1", "https://", "https://jane:secret@localhost:1"):
            with self.subTest(server=server), self.assertRaisesRegex(ValueError, "expected https:"):
                ApiServer(server, Options())


class Trust(Case):
    def test_a_token_does_not_go_on_to_whom_a_named_replica_names(self) -> None:
        """Whoever may write Leases can have a named replica name any address as the leader's."""
        finder = Finder(addresses=["admin.test:443"], options=Options(token="secret"))
        finder.connect(Replica("admin.test:443")).close()
        for other in ("leader.test:443", "admin.test:444"):
            with self.subTest(other), self.assertRaises(NotVouchedFor):
                finder.connect(Replica(other))

    def test_a_token_does_not_go_where_only_a_lease_says_so(self) -> None:
        authority = Authority(self.folder, "authority")
        certificate, key = authority.issue("server")
        address = self.serve(
            grpc.ssl_server_credentials([(key, certificate)]),
            lambda server: leader_pb2_grpc.add_LeaderServiceServicer_to_server(Leader(), server),
        )
        replica = Replica(address, identity="b", authority=authority.pem.decode())
        request = leader_pb2.GetLeaderRequest()
        options, addresses = Options(token="secret"), _NoLeases()
        with self.assertRaises(NotVouchedFor):
            Finder(leases=addresses, options=options).connect(replica)
        with Finder(leases=addresses, options=options, trust_announced=True).connect(replica) as client:
            self.assertEqual(client.leader.GetLeader(request).leader.holder_identity, "Bearer secret")
        # A certificate gives nothing away; the token beside it would.
        certificate, key = authority.issue("jane")
        both = Options(
            token="secret", cert_file=self.write("client.pem", certificate), key_file=self.write("client.key", key)
        )
        with Finder(leases=addresses, options=both).connect(replica) as client:
            with self.assertRaises(grpc.RpcError) as caught:
                client.leader.GetLeader(request)
            self.assertEqual(caught.exception.code(), grpc.StatusCode.UNAUTHENTICATED)
        nonsense = Replica(address, identity="b", authority="nonsense")
        with self.assertRaisesRegex(ValueError, "the Lease of b at .*no certificate"):
            Finder(leases=addresses, options=both).connect(nonsense)

    def test_certificate_of_the_clusters_ca_with_another_name_gets_no_token(self) -> None:
        authority = Authority(self.folder, "cluster")
        request = leader_pb2.GetLeaderRequest()

        def serve(pair: tuple[bytes, bytes]) -> str:
            certificate, key = pair
            return self.serve(
                grpc.ssl_server_credentials([(key, certificate)]),
                lambda server: leader_pb2_grpc.add_LeaderServiceServicer_to_server(Leader(), server),
            )

        options = Options(token="secret")
        finder = Finder(leases=_NoLeases(), options=options, cluster_ca_file=authority.file)
        address = serve(authority.issue("coxswain", CERTIFICATE_NAME))
        with finder.connect(Replica(address, identity="b")) as client:
            self.assertEqual(client.leader.GetLeader(request).leader.holder_identity, "Bearer secret")
        # Whoever may write Leases announces a node, which has a certificate for its address.
        certificate, key = authority.issue("node")
        node = Replica(serve((certificate, key)), identity="b")
        with finder.connect(node) as client, self.assertRaises(grpc.RpcError) as caught:
            client.leader.GetLeader(request)
        self.assertEqual(caught.exception.code(), grpc.StatusCode.UNAVAILABLE)
        self.assertIn(CERTIFICATE_NAME, finder.hint(node))
        # The user may name the server.
        named = Finder(addresses=[node.address], options=options, cluster_ca_file=authority.file)
        with named.connect(node) as client:
            self.assertEqual(client.leader.GetLeader(request).leader.holder_identity, "Bearer secret")
        # A client certificate needs no other name, and the token beside it stays here.
        both = Options(
            token="secret", cert_file=self.write("client.pem", certificate), key_file=self.write("client.key", key)
        )
        certified = Finder(leases=_NoLeases(), options=both, cluster_ca_file=authority.file)
        with certified.connect(node) as client, self.assertRaises(grpc.RpcError) as caught:
            client.leader.GetLeader(request)
        self.assertEqual(caught.exception.code(), grpc.StatusCode.UNAUTHENTICATED)

    def test_addresses_that_a_replica_can_not_have(self) -> None:
        finder = Finder(leases=_NoLeases())
        wrong = ["", "a", "a:0", "a:65536", "a:x", "unix:/run/x", "unix:/x:1", "dns:///a:1", "https://a:1", "a@b:1",
                 "fd00::2:1", "[a]:1", "a b:1", "a\n:1"]
        for address in wrong:
            with self.subTest(address=address), self.assertRaisesRegex(ValueError, "expected HOST:PORT"):
                finder.connect(Replica(address))
        for address in ("a:1", "node-1.example:10257", "10.0.0.2:10257", "[fd00::2]:10257"):
            finder.connect(Replica(address)).close()

    def test_finders_that_can_not_be(self) -> None:
        cases: list[dict[str, Any]] = [{}, {"leases": _NoLeases(), "addresses": ["a:1"]}]
        for options in cases:
            with self.assertRaisesRegex(ValueError, "exactly one"):
                Finder(**options)


class _NoLeases:
    def list(self, namespace: str, label_selector: str) -> list[Lease]:
        return []

    def get(self, namespace: str, name: str) -> Lease | None:
        return None


if __name__ == "__main__":
    unittest.main()
