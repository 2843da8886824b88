# SPDX-License-Identifier: Apache-2.0
"""How long one request keeps an API server from answering anybody else: a real server, a steady prober, an attack.

The prober asks `/livez` every few milliseconds on a connection of its own. While an attack is handled, the longest wait
for one of its answers is the stall. Of that wait only what the server itself computed is counted (its process's CPU
time, which the kernel tells to the nanosecond): on a machine that does other things, too, waiting for a core would be
counted otherwise. A server that waits on purpose, for a disk or for its worker threads, is seen in `wall`.

It judges nothing: the bounds are in the tests.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import pathlib
import re
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self, TypeVar

from handfast.bootstrap import kubeconfig, tokens
from handfast.datadir import layout
from handfast.pki import authority, keys, names, pem, profiles
from handfast.runtime import clock, tls

T = TypeVar("T")
# A server may give more warnings than this client takes by itself.
http.client._MAXHEADERS = 10_000  # type: ignore[attr-defined]
# Seconds between an answer to the prober and its next question.
PAUSE = 0.002
# Longer than any request may take; a server that has not answered by then is started anew.
PATIENCE = 30.0
ADMIN, TOKEN, NODE, EDIT, USER, ANONYMOUS = "admin", "token", "node", "edit", "user", "anonymous"
NODE_NAME = "n1"
BOOTSTRAP_TOKEN = "foobar.circumnavigation"
JSON = {"Content-Type": "application/json"}
_STARTED = re.compile(r'"?address"?[=:]\s*"?127\.0\.0\.1:(\d+)')
_BINDINGS = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings"
_CLUSTER_BINDINGS = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
# CPU seconds of `calibrate` on a quiet machine of the kind that the bounds were chosen on.
QUIET = 0.0150
# … and of reading a text of three million letters.
QUIET_TEXT = 0.0070
_TEXT = json.dumps({"k": "a" * 3_000_000})


@dataclass(frozen=True, kw_only=True)
class Attack:
    """One request. `{name}` in paths is a name of its own for every try, as the body is made with it."""

    name: str
    caller: str
    method: str
    path: str
    body: Callable[[str], bytes] | None = None
    media: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)
    # Done by the administrator before and after, and not measured: method, path, document.
    before: Sequence[tuple[str, str, Callable[[str], Any] | None]] = ()
    after: Sequence[tuple[str, str]] = ()
    # Whether the server may refuse what is done before, as too large: then there is nothing to attack.
    may_be_refused: bool = False
    # For a watch, and anything else that does not end by itself: it ends after so many seconds without anything.
    ends_after: float = 0.0
    # Where the caller may write one object only.
    fixed_name: str = ""


@dataclass(frozen=True)
class Stall:
    """What an attack did: the longest stall in seconds, of computing and by the clock, and the answer."""

    attack: str
    held: float
    wall: float
    code: int
    reason: str
    message: str = ""
    took: float = 0.0
    size: int = 0
    answered: int = 0

    def __str__(self) -> str:
        shown = f"{self.held * 1000:8.1f} {self.wall * 1000:8.1f} {self.took * 1000:8.1f} {self.size:8d}"
        return f"{shown}  {self.code:3d} {self.reason:22s} {self.attack}"


TITLE = " held ms  wall ms  took ms    bytes code reason                 attack"


@dataclass(frozen=True, slots=True)
class Probe:
    begun: float
    ended: float
    computed: float
    code: int


class Hung(Exception):
    """The server did not answer within PATIENCE."""


def calibrate() -> float:
    """How many times slower this machine computes now than the one that the bounds were chosen on; at least 1."""
    best = min(_fixed_work() for _ in range(5))
    text = min(_fixed_reading() for _ in range(5))
    return max(1.0, best / QUIET, text / QUIET_TEXT)


def _fixed_work() -> float:
    begun = time.thread_time()
    found: dict[str, int] = {}
    for number in range(30_000):
        found[f"k{number}"] = len(found) + number % 7
    return time.thread_time() - begun


def _fixed_reading() -> float:
    """Large texts cost memory, which neighbours use up in another measure than they do a core."""
    begun = time.thread_time()
    read = json.loads(_TEXT)
    read["k"].encode().decode().isascii()
    re.search("b", read["k"])
    return time.thread_time() - begun


def cpu_clock(pid: int) -> int:
    """The clock of a process's CPU time (clock_getcpuclockid(3): the pid, inverted, and CPUCLOCK_SCHED)."""
    return ((~pid) << 3) | 2


class Wire:
    """One kept connection, bytes in and out; made anew when the server has closed it."""

    def __init__(self, port: int, context: ssl.SSLContext | None, headers: Mapping[str, str]) -> None:
        self._port = port
        self._context = context
        self._headers = headers
        self._connection: http.client.HTTPConnection | None = None

    def ask(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, bytes]:
        for last in (False, True):
            connection = self._open()
            try:
                connection.request(method, path, body, {**self._headers, **(headers or {})})
                response = connection.getresponse()
                return response.status, response.read()
            except TimeoutError:
                self.close()
                raise Hung(f"{method} {path[:80]}: no answer within {PATIENCE} s") from None
            except (http.client.HTTPException, OSError):
                # Closed meanwhile, or the answer came before the body had gone out.
                self.close()
                if last:
                    raise
        raise AssertionError

    def read_for(self, path: str, seconds: float) -> tuple[int, bytes]:
        """An answer that does not end, as a watch's: what comes of it until nothing has come for so long."""
        connection = self._open()
        connection.request("GET", path, None, dict(self._headers))
        response = connection.getresponse()
        if response.status >= 400:
            return response.status, response.read()
        read = 0
        assert connection.sock is not None
        connection.sock.settimeout(seconds)
        # TLS tells a timeout as an error of its own.
        with contextlib.suppress(OSError, http.client.HTTPException):
            while part := response.read1(1 << 16):
                read += len(part)
        self.close()
        return response.status, b"%d bytes" % read

    def _open(self) -> http.client.HTTPConnection:
        if self._connection is None:
            made = (
                http.client.HTTPConnection("127.0.0.1", self._port, timeout=PATIENCE)
                if self._context is None
                else http.client.HTTPSConnection("127.0.0.1", self._port, context=self._context, timeout=PATIENCE)
            )
            made.connect()
            made.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._connection = made
        return self._connection

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class Prober:
    """Asks `/livez` without end while somebody wants to know, from a thread that does nothing but wait for sockets."""

    def __init__(self, wire: Wire, pid: int) -> None:
        self._wire = wire
        self._clock = cpu_clock(pid)
        self._stopping = threading.Event()
        # Between attacks it would only take processor time from who makes the next one.
        self._wanted = threading.Event()
        self._news = threading.Condition()
        self.probes: list[Probe] = []
        self.trouble: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            while self._wanted.wait() and not self._stopping.wait(PAUSE):
                begun, computed = time.monotonic(), time.clock_gettime(self._clock)
                code, _ = self._wire.ask("GET", "/livez")
                probe = Probe(begun, time.monotonic(), time.clock_gettime(self._clock) - computed, code)
                with self._news:
                    self.probes.append(probe)
                    self._news.notify_all()
        except BaseException as error:  # told to whoever waits
            with self._news:
                self.trouble = error
                self._news.notify_all()

    def since(self, begun: float, more: int = 2) -> list[Probe]:
        """The probes that ended after `begun`, with `more` that began after now: nothing is left to do then."""
        now = time.monotonic()
        with self._news:
            self._news.wait_for(
                lambda: self.trouble or sum(probe.begun > now for probe in self.probes[-more:]) >= more, PATIENCE + 1
            )
            if self.trouble is not None or not self.probes or self.probes[-1].begun <= now:
                raise Hung(f"the prober has no answer: {self.trouble}")
            found = [probe for probe in self.probes if probe.ended >= begun]
            self.probes = self.probes[-more:]
            return found

    def during(self, act: Callable[[], T]) -> tuple[float, float, float, T]:
        """The longest stall while `act` goes on and what it leaves behind is done, of computing and by the clock."""
        self._wanted.set()
        try:
            self.since(time.monotonic())
            begun = time.monotonic()
            result = act()
            took = time.monotonic() - begun
            probes = self.since(begun)
        finally:
            self._wanted.clear()
        if refused := [probe.code for probe in probes if probe.code != 200]:
            raise AssertionError(f"{refused} instead of 200 at /livez")
        waits = [(min(probe.computed, probe.ended - probe.begun), probe.ended - probe.begun) for probe in probes]
        return max(held for held, _ in waits), max(wall for _, wall in waits), took, result

    def stop(self) -> None:
        self._stopping.set()
        self._wanted.set()
        self._thread.join(PATIENCE + 5)
        self._wire.close()


class Server:
    """`handfast serve apiserver` with every limit of rates lifted, and its callers. Leaving the block ends it."""

    def __init__(self, directory: pathlib.Path, *, profile: bool = False) -> None:
        self.directory = directory
        self.log = directory.parent / f"{directory.name}.log"
        start = [sys.executable, "-m", "tests.world.stall_profile" if profile else "handfast"]
        words = ["serve", "apiserver", "--dir", str(directory), "--listen", "127.0.0.1:0"]
        words += ["--unsafe-lift-limits", "--enable-bootstrap-token-auth", "--log-level", "info"]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("HANDFAST_")}
        if profile:
            environment["STALL_PROFILE"] = str(self.profiled)
        with self.log.open("wb") as log:
            self.process = subprocess.Popen([*start, *words], stdout=log, stderr=log, env=environment)
        self.clock = cpu_clock(self.process.pid)
        self.port = self._wait()
        self.place = layout.Layout.at(directory)
        self._wires: dict[str, Wire] = {}
        self._callers = self._credentials()
        self._prepare()
        self.prober = Prober(Wire(self.port, self._anonymous(), {}), self.process.pid)
        self._numbers = iter(range(1 << 30))

    @property
    def profiled(self) -> pathlib.Path:
        return self.directory.parent / f"{self.directory.name}.profile"

    def _wait(self) -> int:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and self.process.poll() is None:
            if found := _STARTED.search(self.log.read_text()):
                return int(found[1])
            time.sleep(0.02)
        raise AssertionError(f"not started:\n{self.log.read_text()}")

    def _anonymous(self) -> ssl.SSLContext:
        return tls.client_context(self.place.ca_certificate.read_bytes(), None, None)

    def _certified(self, common_name: str, *organizations: str) -> ssl.SSLContext:
        ca_pem = self.place.ca_certificate.read_bytes()
        key, ca_key = keys.generate(), keys.private_from_pem(self.place.ca_key.read_bytes())
        ca = authority.Authority(pem.certificates_from_pem(ca_pem)[0], ca_key)
        subject = names.Subject(common_name=common_name, organizations=organizations)
        issued = ca.issue(key.public, subject, names.Sans(), profiles.CLIENT, clock.SystemClock().now())
        return tls.client_context(ca_pem, issued.pem, key.to_pem())

    def _credentials(self) -> dict[str, tuple[ssl.SSLContext, dict[str, str]]]:
        config = kubeconfig.parse(self.place.admin_kubeconfig.read_text())
        assert config.user is not None
        admin = tls.client_context(
            config.cluster.certificate_authority_data,
            config.user.client_certificate_data,
            config.user.client_key_data,
        )
        return {
            ADMIN: (admin, {}),
            TOKEN: (self._anonymous(), {"Authorization": f"Bearer {BOOTSTRAP_TOKEN}"}),
            NODE: (self._certified(f"system:node:{NODE_NAME}", "system:nodes"), {}),
            EDIT: (self._certified("editor"), {}),
            USER: (self._certified("somebody"), {}),
            ANONYMOUS: (self._anonymous(), {}),
        }

    def _prepare(self) -> None:
        """What `handfast up` has: a bootstrap token that may ask to join, an editor, a service account for Pods."""
        token = tokens.parse(BOOTSTRAP_TOKEN)
        data = {
            tokens.KEY_ID: token.id,
            tokens.KEY_SECRET: token.secret,
            "usage-bootstrap-authentication": "true",
            "auth-extra-groups": "system:bootstrappers:kubeadm:default-node-token",
        }
        secret = {
            "metadata": {"name": tokens.secret_name(token.id)},
            "type": tokens.SECRET_TYPE,
            "stringData": data,
        }
        self.make("/api/v1/namespaces/kube-system/secrets", secret)
        self.make("/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "default"}})
        rbac = "rbac.authorization.k8s.io"
        for path, role, kind, who in (
            (_CLUSTER_BINDINGS, "system:node-bootstrapper", "Group", "system:bootstrappers:kubeadm:default-node-token"),
            (_BINDINGS, "edit", "User", "editor"),
        ):
            binding = {
                "metadata": {"name": f"stalls-{role.rpartition(':')[2]}"},
                "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": role},
                "subjects": [{"apiGroup": rbac, "kind": kind, "name": who}],
            }
            self.make(path, binding)

    def make(self, path: str, document: Any) -> None:
        code, answer = self.wire(ADMIN).ask("POST", path, json.dumps(document).encode(), JSON)
        assert code in {201, 409}, answer

    def wire(self, caller: str) -> Wire:
        if caller not in self._wires:
            self._wires[caller] = Wire(self.port, *self._callers[caller])
        return self._wires[caller]

    def measure(self, attack: Attack) -> Stall:
        """One try of one attack."""
        name = attack.fixed_name or f"stall-{next(self._numbers)}"
        for method, path, document in attack.before:
            body = None if document is None else json.dumps(document(name)).encode()
            code, answer = self.wire(ADMIN).ask(method, path.format(name=name), body, JSON)
            if attack.may_be_refused and 400 <= code < 500:
                return Stall(attack.name, 0.0, 0.0, code, *_reason(answer))
            # One that a finalizer has kept is as good.
            assert code < 300 or code == 409, (attack.name, method, path, code, answer[:500])
        body = attack.body(name) if attack.body is not None else None
        path = attack.path.replace("{name}", name)
        headers = {"Content-Type": attack.media, **attack.headers} if body is not None else dict(attack.headers)
        wire = self.wire(attack.caller)
        # The handshake is not what is measured.
        wire.ask("GET", "/livez")
        if attack.ends_after:
            held, wall, took, (code, answer) = self.prober.during(lambda: wire.read_for(path, attack.ends_after))
            reason, message = _reason(answer) if code >= 400 else ("", "")
        else:
            held, wall, took, (code, answer) = self.prober.during(lambda: wire.ask(attack.method, path, body, headers))
            reason, message = _reason(answer)
        for method, path in attack.after:
            self.wire(ADMIN).ask(method, path.format(name=name))
        return Stall(attack.name, held, wall, code, reason, message, took, len(body or b""), len(answer))

    def stop(self) -> None:
        self.process.kill()
        self.process.wait(30)
        self.prober.stop()
        for wire in self._wires.values():
            wire.close()

    def profile(self) -> str:
        """Where the time went since the last call; a server started with `profile` only."""
        self.profiled.unlink(missing_ok=True)
        self.process.send_signal(signal.SIGUSR1)
        deadline = time.monotonic() + 10
        while not self.profiled.exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        return self.profiled.read_text() if self.profiled.exists() else ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def _reason(answer: bytes) -> tuple[str, str]:
    """The reason and message of a Status; of anything else, its kind."""
    try:
        document = json.loads(answer)
    except ValueError:
        return "", answer[:100].decode("utf-8", "replace")
    if not isinstance(document, dict):
        return "", ""
    if document.get("kind") == "Status":
        return str(document.get("reason") or document.get("status")), str(document.get("message") or "")
    return str(document.get("kind", "")), ""


class Worlds:
    """A server that is there, made anew where one was lost."""

    def __init__(self, directory: pathlib.Path, *, profile: bool = False) -> None:
        self._directory = directory
        self._profile = profile
        self._server: Server | None = None
        self._count = 0

    @property
    def server(self) -> Server:
        if self._server is None:
            self._count += 1
            self._server = Server(self._directory / f"stalls-{self._count}", profile=self._profile)
        return self._server

    def measure(self, attack: Attack, bound: float = 0.0, wall: float = 0.0, tries: int = 3) -> Stall:
        """The smallest stall of some tries: what is above a bound is tried again, for the machine's sake."""
        best: Stall | None = None
        for _ in range(tries):
            try:
                found = self.server.measure(attack)
            except Hung as error:
                self.close()
                return Stall(attack.name, PATIENCE, PATIENCE, 0, "Hung", str(error), PATIENCE)
            if best is None:
                best = found
            # Each by itself: the try that computed least may be the one that waited for a core.
            least = min(best, found, key=lambda stall: stall.held)
            best = replace(least, wall=min(best.wall, found.wall))
            if best.held <= bound and best.wall <= wall:
                break
        assert best is not None
        return best

    def close(self) -> None:
        if self._server is not None:
            self._server.stop()
            self._server = None


@contextlib.contextmanager
def worlds(directory: pathlib.Path, *, profile: bool = False) -> Iterator[Worlds]:
    made = Worlds(directory, profile=profile)
    try:
        yield made
    finally:
        made.close()
