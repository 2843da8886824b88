# SPDX-License-Identifier: Apache-2.0
"""`handfast mesh run` as real processes, on a control plane with a mesh. Nothing here is under test."""

from __future__ import annotations

import contextlib
import json
import pathlib
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from typing import Any, Self
from urllib import request as urls
from urllib.error import HTTPError

import pytest

from tests.scenarios import mesh_world, test_mesh_up, up_world

SHOP = "shop"
# Says what it got, and who asked; its port is the first word.
SERVER = """
import http.server, json, os, sys
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        body = json.dumps({"pod": os.environ["POD_NAME"], "path": self.path, "headers": dict(self.headers)}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_):
        pass
print(json.dumps(dict(os.environ)), flush=True)
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""
# Asks what it reads from its standard input, line by line.
CLIENT = """
import json, os, sys, urllib.error, urllib.request
print(json.dumps(dict(os.environ)), flush=True)
for line in sys.stdin:
    try:
        with urllib.request.urlopen(line.strip(), timeout=20) as answer:
            said = [answer.status, dict(answer.headers), answer.read().decode()]
    except urllib.error.HTTPError as error:
        said = [error.code, dict(error.headers), error.read().decode()]
    except OSError as error:
        said = [0, {}, str(error)]
    print(json.dumps(said), flush=True)
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def plane(directory: pathlib.Path, *words: object) -> Iterator[mesh_world.Plane]:
    """`handfast up --mesh`, with all its services, and a namespace with accounts; what is kept in memory is kept in a directory of its own."""
    with (
        pytest.MonkeyPatch.context() as patched,
        tempfile.TemporaryDirectory(prefix="hf-", dir="/dev/shm") as memory,
        mesh_world.Plane(directory / "data", "--mesh", *mesh_world.FREE, *words) as plane,
    ):
        patched.setenv("XDG_RUNTIME_DIR", memory)
        plane.ready()
        test_mesh_up.all_ready(plane)
        for account in ("web", "client"):
            plane.account(SHOP, account)
        yield plane


class Run:
    """One `mesh run`; leaving the block ends it."""

    def __init__(
        self, plane: mesh_world.Plane, *words: object, command: tuple[object, ...], log: pathlib.Path, **more: Any
    ) -> None:
        self.plane = plane
        self.log = log
        variables: Mapping[str, str] = more.pop("variables", {})
        credentials = more.pop("credentials", ("--dir", plane.directory))
        line = [*up_world.COMMAND, "mesh", "run", *map(str, (*credentials, *words, "--", *command))]
        with log.open("ab") as file:
            self.process = subprocess.Popen(
                line,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=file,
                env={**up_world.environment(), "HANDFAST_DEBUG": "1", **variables},
                text=True,
            )
        self._environment: dict[str, str] = {}

    @property
    def environment(self) -> dict[str, str]:
        """What the application was started with; it waits for it."""
        if not self._environment:
            assert self.process.stdout is not None
            line = self.process.stdout.readline()
            assert line, self.text()
            self._environment = json.loads(line)
        return self._environment

    def text(self) -> str:
        return self.log.read_text()

    @property
    def name(self) -> str:
        return self.environment["POD_NAME"]

    @property
    def ip(self) -> str:
        return self.environment["POD_IP"]

    def pod(self) -> dict[str, Any]:
        found: dict[str, Any] = self.plane.call("GET", f"/api/v1/namespaces/{SHOP}/pods/{self.name}")[1]
        return found

    def is_ready(self) -> bool:
        rows = self.pod().get("status", {}).get("conditions", ())
        return any(row["type"] == "Ready" and row["status"] == "True" for row in rows)

    def ready(self) -> Self:
        up_world.until(self.is_ready, 60, f"a ready Pod\n{self.text()}")
        return self

    def admin(self, path: str) -> tuple[int, str]:
        """What the proxy says of itself."""
        try:
            with urls.urlopen(self.environment["MESH_ADMIN"] + path, timeout=10) as answer:
                return answer.status, answer.read().decode()
        except HTTPError as error:
            with error:
                return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def identity(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self.admin("/identity")[1])
        return document

    def ask(self, url: str) -> tuple[int, dict[str, str], str]:
        """Have the client ask; code, headers and body."""
        assert self.environment
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{url}\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, self.text()
        code, headers, body = json.loads(line)
        return code, headers, body

    def descendants(self) -> list[int]:
        """The processes that it has started, and theirs."""
        return list(_descendants(self.process.pid))

    def directory(self) -> pathlib.Path:
        """Its directory in memory, by the environment of its proxy."""
        for pid in self.descendants():
            for row in pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                if row.startswith(b"TMPDIR=") and b"handfast-mesh-" in row:
                    return pathlib.Path(row.partition(b"=")[2].decode()).parent
        raise AssertionError(self.text())

    def stop(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(30)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(30)
        self.process.kill()
        self.process.wait(30)
        for stream in (self.process.stdin, self.process.stdout):
            assert stream is not None
            with contextlib.suppress(OSError):
                stream.close()


def _descendants(pid: int) -> Iterator[int]:
    with contextlib.suppress(OSError):
        for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                yield int(child)
                yield from _descendants(int(child))


def server(plane: mesh_world.Plane, directory: pathlib.Path, *words: object, account: str = "web", **more: Any) -> Run:
    """A server of an account, on port 8080 of its Pod."""
    port = free_port()
    flags = ("--service-account", f"{SHOP}/{account}", "--inbound", f"8080:{port}", "--label", f"app={account}", *words)
    log = directory / f"{account}-{time.monotonic_ns()}.log"
    return Run(plane, *flags, command=(sys.executable, "-c", SERVER, port), log=log, **more)


def client(
    plane: mesh_world.Plane, directory: pathlib.Path, *words: object, account: str = "client", **more: Any
) -> Run:
    """A client that asks what it is told to."""
    flags = ("--service-account", f"{SHOP}/{account}", *words)
    log = directory / f"{account}-{time.monotonic_ns()}.log"
    return Run(plane, *flags, command=(sys.executable, "-c", CLIENT), log=log, **more)


def service(plane: mesh_world.Plane, name: str = "web") -> None:
    """A Service that selects the servers of an account."""
    spec = {"selector": {"app": name}, "ports": [{"port": 8080, "targetPort": 8080}]}
    plane.post(f"/api/v1/namespaces/{SHOP}/services", {"metadata": {"name": name}, "spec": spec})


def endpoints(plane: mesh_world.Plane, name: str = "web") -> dict[str, bool]:
    """The addresses of a Service, and whether each is ready."""
    path = (
        f"/apis/discovery.k8s.io/v1/namespaces/{SHOP}/endpointslices?labelSelector=kubernetes.io/service-name%3D{name}"
    )
    rows = [row for item in plane.call("GET", path)[1]["items"] for row in item.get("endpoints") or ()]
    return {row["addresses"][0]: row["conditions"]["ready"] for row in rows}


def pods(plane: mesh_world.Plane) -> list[str]:
    return [item["metadata"]["name"] for item in plane.call("GET", f"/api/v1/namespaces/{SHOP}/pods")[1]["items"]]


def certificate_at(plane: mesh_world.Plane, ip: str, name: str, port: int = 8080) -> tuple[bytes, str]:
    """What a Pod shows for a name to who verifies it, and the version of TLS."""
    context = ssl.create_default_context(cadata=plane.anchors().decode())
    with (
        socket.create_connection((ip, port), 10) as sock,
        context.wrap_socket(sock, server_hostname=name) as secure,
    ):
        der = secure.getpeercert(binary_form=True)
        assert der is not None
        return der, str(secure.version())


def listens(ip: str, port: int = 8080) -> bool:
    with contextlib.suppress(OSError), socket.create_connection((ip, port), 5):
        return True
    return False


def has(ip: str, path: str = "/") -> int:
    """The code of a request in plaintext; 0: there was no answer."""
    try:
        with urls.urlopen(f"http://{ip}:8080{path}", timeout=10) as answer:
            return int(answer.status)
    except HTTPError as error:
        with error:
            return error.code
    except OSError:
        return 0
