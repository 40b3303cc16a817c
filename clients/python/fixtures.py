"""Certificates and servers of the tests' own."""

from __future__ import annotations

import subprocess
import tempfile
import unittest
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc


class Authority:
    """Signs certificates."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder, self._name = folder, name
        self.file = folder / f"{name}.pem"
        self._issue(name, ["-x509"])
        self.pem = self.file.read_bytes()

    def issue(self, name: str, *names: str) -> tuple[bytes, bytes]:
        """A certificate for a client of this name, and for servers on loopback and with the other names; and its key."""
        alternatives = ",".join(["IP:127.0.0.1", *(f"DNS:{other}" for other in names)])
        signer = ["-CA", str(self.file), "-CAkey", str(self._folder / f"{self._name}.key")]
        return self._issue(
            f"{self._name}-{name}", ["-x509", *signer, "-addext", f"subjectAltName={alternatives}"], name
        )

    def _issue(self, file: str, arguments: list[str], name: str = "authority") -> tuple[bytes, bytes]:
        certificate, key = self._folder / f"{file}.pem", self._folder / f"{file}.key"
        new = ["openssl", "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
        paths = ["-subj", f"/CN={name}", "-keyout", str(key), "-out", str(certificate)]
        subprocess.run([*new, *arguments, *paths], check=True, capture_output=True)
        return certificate.read_bytes(), key.read_bytes()


class Case(unittest.TestCase):
    """A test with a folder of its own."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def write(self, name: str, content: bytes) -> Path:
        path = self.folder / name
        path.write_bytes(content)
        return path

    def serve(self, credentials: grpc.ServerCredentials, add: Any) -> str:
        """Serves what `add` adds until the test ends. Returns the address."""
        server = grpc.server(futures.ThreadPoolExecutor(4))
        add(server)
        address = f"127.0.0.1:{server.add_secure_port('127.0.0.1:0', credentials)}"
        server.start()
        self.addCleanup(lambda: server.stop(None).wait())
        return address
