# SPDX-License-Identifier: Apache-2.0
"""A real etcd for tests: Debian's, or the one that `ETCD` names. It tests nothing.

One runs for each process of the tests, from when it is first wanted until the end; every store has a prefix of its own in it.
Of what every server writes when it starts, most are the default roles. The first world of a process writes them, and all later ones
begin with a copy, put there at once: to start is most of what a short story costs.
"""

from __future__ import annotations

import atexit
import base64
import contextlib
import functools
import http.client
import itertools
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from handfast.runtime import addresses
from handfast.store.etcd import place as places

BINARY = os.environ.get("ETCD") or shutil.which("etcd") or "/usr/bin/etcd"
_numbers = itertools.count(1)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        return int(sock.getsockname()[1])


class Etcd:
    """One member, in a directory of its own."""

    def __init__(self, directory: pathlib.Path, flags: Sequence[str] = (), *, scheme: str = "http") -> None:
        self.directory = directory
        self.address = addresses.Address("127.0.0.1", _free_port())
        self._flags = tuple(flags)
        self._scheme = scheme
        self._peer = f"http://127.0.0.1:{_free_port()}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        url = f"{self._scheme}://{self.address}"
        data = self.directory / "data"
        command = [BINARY, "--name=one", f"--data-dir={data}", f"--listen-client-urls={url}"]
        command += [f"--advertise-client-urls={url}", f"--listen-peer-urls={self._peer}", "--log-level=error"]
        command += [f"--initial-advertise-peer-urls={self._peer}", f"--initial-cluster=one={self._peer}", *self._flags]
        with (self.directory / "log").open("ab") as log:
            # No fsync: nothing here is about what a power cut leaves of etcd.
            self._process = subprocess.Popen([*command, *_unsafe()], stdout=log, stderr=log)
        until = time.monotonic() + 60
        while True:
            try:
                with socket.create_connection((self.address.host, self.address.port), timeout=1):
                    return
            except OSError:
                code = self._process.poll()
                if code is not None or time.monotonic() > until:
                    text = (self.directory / "log").read_text(errors="replace")[-2000:]
                    raise AssertionError(f"etcd did not start ({code}): {text}") from None
                time.sleep(0.05)

    def kill(self, number: signal.Signals = signal.SIGKILL) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            if number in {signal.SIGKILL, signal.SIGTERM}:
                self._process.wait()
                self._process = None
            elif number is signal.SIGSTOP:
                _until_stopped(self._process.pid)

    def freeze(self) -> None:
        self.kill(signal.SIGSTOP)

    def thaw(self) -> None:
        self.kill(signal.SIGCONT)

    def ask(self, method: str, message: Mapping[str, Any]) -> Any:
        """The answer to a call of etcd's JSON gateway."""
        with contextlib.closing(http.client.HTTPConnection(self.address.host, self.address.port, timeout=60)) as link:
            link.request("POST", f"/v3/{method}", json.dumps(message))
            answer = link.getresponse()
            text = answer.read()
        assert answer.status == http.client.OK, text
        return json.loads(text)

    def make_room(self) -> None:
        """What is compacted is given back, and the alarm cleared: as an operator does it with `etcdctl`."""
        self.ask("maintenance/defragment", {})
        for alarm in self.ask("maintenance/alarm", {"action": "GET"}).get("alarms", ()):
            self.ask("maintenance/alarm", {"action": "DEACTIVATE", **alarm})

    def place(self, prefix: str = "") -> places.Place:
        return places.Place((self.address,), prefix or f"test/{next(_numbers)}")


def three(directory: pathlib.Path) -> list[Etcd]:
    """Three members that are one etcd, not started. What is said last to etcd counts."""
    made = []
    for name in ("m0", "m1", "m2"):
        (directory / name).mkdir(parents=True)
        made.append(Etcd(directory / name))
    cluster = ",".join(f"m{number}={each._peer}" for number, each in enumerate(made))
    for number, each in enumerate(made):
        each._flags = (f"--name=m{number}", f"--initial-cluster={cluster}")
    return made


def _until_stopped(pid: int) -> None:
    """Each thread stops when it notices the signal; until then it may answer."""
    until = time.monotonic() + 60
    while any(
        state.read_text().rpartition(")")[2].split()[0] != "T"
        for state in pathlib.Path(f"/proc/{pid}/task").glob("*/stat")
    ):
        assert time.monotonic() < until, "etcd does not stop"
        time.sleep(0.001)


@contextlib.contextmanager
def running(directory: pathlib.Path, flags: Sequence[str] = (), *, scheme: str = "http") -> Iterator[Etcd]:
    """One that ends with the block."""
    etcd = Etcd(directory, flags, scheme=scheme)
    etcd.start()
    try:
        yield etcd
    finally:
        etcd.kill()


@functools.cache
def _unsafe() -> tuple[str, ...]:
    said = subprocess.run([BINARY, "--help"], capture_output=True, text=True, check=False)
    return ("--unsafe-no-fsync",) if "--unsafe-no-fsync" in said.stdout + said.stderr else ()


@functools.cache
def shared() -> Etcd:
    """The one of this process."""
    directory = pathlib.Path(tempfile.mkdtemp(prefix="handfast-etcd-"))
    etcd = Etcd(directory)
    etcd.start()

    def end() -> None:
        etcd.kill()
        shutil.rmtree(directory, ignore_errors=True)

    atexit.register(end)
    return etcd


# The default roles and bindings, as the first world has written them: key within the store -> value in base64.
_defaults: dict[bytes, str] = {}
_ROLES = b"rbac.authorization.k8s.io/"


@functools.cache
def url_of(directory: pathlib.Path) -> str:
    """The store of a data directory in the etcd of this process: the same one whenever it is asked for."""
    return str(shared().place())


@functools.cache
def begin(directory: pathlib.Path) -> None:
    """The store of a data directory is open. If it was never open before, it gets the defaults."""
    if _defaults:
        objects = places.parse(url_of(directory)).objects
        put = [{"requestPut": {"key": _text(objects + key), "value": value}} for key, value in _defaults.items()]
        assert shared().ask("kv/txn", {"success": put})["succeeded"]


def started(directory: pathlib.Path) -> None:
    """A server has started, and nobody has used it yet: if it is the first one, others begin with its defaults."""
    if not _defaults:
        objects = places.parse(url_of(directory)).objects
        span = {"key": _text(objects + _ROLES), "rangeEnd": _text(places.after_all(objects + _ROLES))}
        found = shared().ask("kv/range", span)
        _defaults.update({base64.b64decode(row["key"])[len(objects) :]: row["value"] for row in found["kvs"]})


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()
