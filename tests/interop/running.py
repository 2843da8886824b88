# SPDX-License-Identifier: Apache-2.0
"""A running control plane and the real kubectl, as objects tests can use. It proves nothing itself.

A kubectl that is missing or too old for a command is reported as not run (a skip that says so), never as passed; where
`CI=true` is set, a missing kubectl is a failure.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pytest

from handfast.pki import authority, keys, names, pem, profiles
from handfast.runtime import clock
from tests.world import looking

Found = TypeVar("Found")
# Generous, for machines that are busy with other things.
DEADLINE = 30.0


def eventually(look: Callable[[], Found], what: str, seconds: float = DEADLINE) -> Found:
    """What `look` finds, as soon as it finds something that counts as true."""
    begun = looked = time.monotonic()
    while True:
        found = look()
        if found:
            return found
        now = time.monotonic()
        assert now < begun + seconds, f"not within {seconds:g} s: {what}"
        time.sleep(looking.pause(now - looked, now - begun))
        looked = time.monotonic()


def free_ports(count: int) -> list[int]:
    """Ports of this machine that nobody listens on, all different."""
    with contextlib.ExitStack() as stack:
        probes = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [int(probe.getsockname()[1]) for probe in probes]


@contextlib.contextmanager
def process(
    words: Sequence[object], log: pathlib.Path, environment: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """A program that runs while the block does, and writes to `log`."""
    with log.open("ab") as opened:
        started = subprocess.Popen(
            [*map(str, words)], stdin=subprocess.DEVNULL, stdout=opened, stderr=opened, env=environment
        )
    try:
        yield started
    finally:
        started.terminate()
        try:
            started.wait(DEADLINE)
        except subprocess.TimeoutExpired:
            started.kill()
            started.wait()


class ControlPlane:
    """`handfast up` in its own process, on ports of its own choice, with these flags."""

    def __init__(self, directory: pathlib.Path, *flags: str) -> None:
        self.directory = directory
        self._flags = flags
        self.log = directory.parent / f"{directory.name}.log"
        self._start("127.0.0.1:0")

    def _start(self, listen: str) -> None:
        command = [sys.executable, "-m", "handfast", "up", "--dir", str(self.directory), "--listen", listen]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*command, "--admin-listen", "127.0.0.1:0", *self._flags],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        eventually(self._ready, "handfast up says that it is ready")

    def _ready(self) -> bool:
        assert self.process.poll() is None, f"handfast up ended: {self.log.read_text()}"
        return b"Handfast is ready" in self.log.read_bytes() and self.endpoints_file.exists()

    @property
    def endpoints_file(self) -> pathlib.Path:
        return self.directory / "endpoints.json"

    @property
    def kubeconfig(self) -> pathlib.Path:
        return self.directory / "admin.conf"

    def endpoints(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.endpoints_file.read_bytes())
        return found

    @property
    def server(self) -> str:
        return str(self.endpoints()["apiserver"])

    @property
    def pki(self) -> pathlib.Path:
        return self.directory / "pki"

    def issue(
        self, home: pathlib.Path, common_name: str, *organizations: str, profile: profiles.Profile = profiles.CLIENT
    ) -> tuple[str, ...]:
        """A certificate of this cluster's CA, as flags of kubectl; certificates lie below `home`."""
        ca = authority.Authority(
            pem.certificates_from_pem((self.pki / "ca.crt").read_bytes())[0],
            keys.private_from_pem((self.pki / "ca.key").read_bytes()),
        )
        key = keys.generate()
        subject = names.Subject(common_name=common_name, organizations=organizations)
        issued = ca.issue(key.public, subject, names.Sans(), profile, clock.SystemClock().now())
        certificate, private = home / f"{key.public.fingerprint}.crt", home / f"{key.public.fingerprint}.key"
        certificate.write_bytes(issued.pem)
        private.write_bytes(key.to_pem())
        return "--client-certificate", str(certificate), "--client-key", str(private)

    def kill_apiserver(self) -> None:
        """End the API server's process without a word; the supervisor starts another one on the same socket."""
        before = self.endpoints()["pids"]["apiserver"]
        os.kill(before, signal.SIGKILL)
        eventually(lambda: self._successor(before), "another API server in endpoints.json")

    def _successor(self, before: int) -> bool:
        # The file is replaced atomically, but may be gone for a moment.
        with contextlib.suppress(FileNotFoundError):
            return bool(self.endpoints()["pids"].get("apiserver", before) != before)
        return False

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(DEADLINE) == 0, self.log.read_text()

    def failures(self) -> list[str]:
        """Requests that ended in an internal error: whatever a client sends, there should be none."""
        return [line for line in self.log.read_text().splitlines() if '"event":"request failed"' in line]


@dataclass(frozen=True, slots=True)
class Result:
    """What a command printed and how it ended."""

    out: str
    err: str
    code: int

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()

    def json(self) -> Any:
        return json.loads(self.out)


class Stream:
    """A kubectl that goes on running: what it has printed so far, line by line."""

    def __init__(self, process: subprocess.Popen[bytes], output: pathlib.Path) -> None:
        self.process = process
        self._output = output

    def lines(self) -> list[str]:
        return self._output.read_text().splitlines()

    def wait_for(self, *patterns: str) -> list[str]:
        """All lines, once each pattern is found in one of them, in this order."""

        def look() -> list[str] | None:
            lines = self.lines()
            rest = iter(lines)
            return lines if all(any(re.search(pattern, line) for line in rest) for pattern in patterns) else None

        try:
            return eventually(look, f"{patterns}") or []
        except AssertionError as error:
            raise AssertionError(f"{error}; kubectl printed {self.lines()}") from None

    def ended(self) -> tuple[int, str]:
        """The exit code and everything printed, once it has ended by itself."""
        return self.process.wait(DEADLINE), self._output.read_text()


@dataclass(slots=True)
class Kubectl:
    """The real kubectl, pointed at one control plane and, where that matters, one namespace."""

    binary: str
    home: pathlib.Path
    kubeconfig: pathlib.Path
    version: tuple[int, int]
    namespace: str = ""
    flags: tuple[str, ...] = ()
    _streams: int = field(default=0)

    def __call__(
        self, *arguments: str, stdin: str = "", code: int | None = 0, environment: dict[str, str] | None = None
    ) -> Result:
        """Run it to its end; `code` is the exit code that is expected, None if any will do."""
        done = subprocess.run(
            self._command(arguments),
            input=stdin.encode(),
            capture_output=True,
            env=self._environment(environment),
            timeout=2 * DEADLINE,
            check=False,
        )
        result = Result(done.stdout.decode(), _without_skew(done.stderr.decode()), done.returncode)
        if code is not None and done.returncode != code:
            pytest.fail(f"kubectl {' '.join(arguments)} ended with {result.code}: {result.out}{result.err}")
        return result

    def fails(self, *arguments: str, stdin: str = "") -> str:
        """What it says when it refuses, in one piece."""
        result = self(*arguments, stdin=stdin, code=None)
        assert result.code != 0, f"kubectl {' '.join(arguments)} succeeded: {result.out}"
        return result.err.strip()

    def json(self, *arguments: str, stdin: str = "") -> Any:
        return self(*arguments, "-o", "json", stdin=stdin).json()

    def resource_version(self, *arguments: str) -> str:
        return self("get", *arguments, "-o", "jsonpath={.metadata.resourceVersion}").out

    @contextlib.contextmanager
    def running(self, *arguments: str) -> Iterator[Stream]:
        """Run it while the block runs, and end it after, if it has not ended."""
        self._streams += 1
        output = self.home / f"stream-{self.namespace}-{self._streams}"
        with output.open("wb") as sink:
            process = subprocess.Popen(
                self._command(arguments),
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                env=self._environment(None),
            )
        try:
            yield Stream(process, output)
        finally:
            process.kill()
            process.wait()

    def presenting(self, plane: ControlPlane, *credential: str) -> Kubectl:
        """The same kubectl without a kubeconfig: it knows the server, its CA, and what is given here."""
        known = ("--server", plane.server, "--certificate-authority", str(plane.pki / "ca.crt"))
        return dataclasses.replace(self, kubeconfig=pathlib.Path(os.devnull), flags=(*known, *credential))

    def needs(self, minor: int, what: str) -> None:
        """Not run, and said so, if this kubectl is older than the command."""
        if self.version < (1, minor):
            pytest.skip(f"not run: {what} came with kubectl 1.{minor}, this is {self.version[0]}.{self.version[1]}")

    def _command(self, arguments: tuple[str, ...]) -> list[str]:
        space = ["--namespace", self.namespace] if self.namespace else []
        return [self.binary, *self.flags, *space, *arguments]

    def _environment(self, more: dict[str, str] | None) -> dict[str, str]:
        # The discovery cache lies below HOME in old versions: neither may leak from one server to the next.
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "KUBECACHEDIR": str(self.home / "cache"),
            "KUBECONFIG": str(self.kubeconfig),
            "TMPDIR": str(self.home),
            **(more or {}),
        }


def _without_skew(text: str) -> str:
    # `kubectl version` and `explain` remark upon the distance to the server's version; that is no error.
    return "".join(line for line in text.splitlines(keepends=True) if "version skew" not in line)


def find_kubectl() -> tuple[str, tuple[int, int]]:
    """Where kubectl is (`KUBECTL` names another one), and its version."""
    binary = os.environ.get("KUBECTL") or shutil.which("kubectl")
    if binary is None:
        if os.environ.get("CI") == "true":
            pytest.fail("kubectl is not on PATH, and CI needs it")
        pytest.skip("not run: kubectl is not on PATH")
    printed = subprocess.run(
        [binary, "version", "--client", "-o", "json"], capture_output=True, check=True, timeout=DEADLINE
    ).stdout
    found = re.match(r"v(\d+)\.(\d+)", json.loads(printed)["clientVersion"]["gitVersion"])
    assert found is not None, printed
    return binary, (int(found[1]), int(found[2]))
