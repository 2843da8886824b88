# SPDX-License-Identifier: Apache-2.0
"""A cluster with two addresses loses one: who joined through it goes on by the other, on real processes.

Proves: a join keeps every published address and the cluster's id; the agent changes over within seconds, and starts with
the first address dead; commands answer; `kubeconfig refresh` takes the address that is left.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import pathlib
import shutil
import socket
import threading
from collections.abc import Iterator

import pytest

from handfast.api import objects
from handfast.bootstrap import kubeconfig
from tests.scenarios import up_world
from tests.scenarios.test_node_agent import LEASES, Machine

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]


class Door:
    """An address in front of an API server, which can be shut: then nobody listens there any more."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.url = f"https://{self.address}"
        self._behind: tuple[str, int] | None = None
        self._open: set[socket.socket] = set()

    def lead_to(self, port: int) -> None:
        self._behind = ("127.0.0.1", port)
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        assert self._behind is not None
        with contextlib.suppress(OSError):
            while True:
                here, _ = self._listener.accept()
                there = socket.create_connection(self._behind)
                self._open |= {here, there}
                for source, target in ((here, there), (there, here)):
                    threading.Thread(target=self._carry, args=(source, target), daemon=True).start()

    def _carry(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data)
        for end in (source, target):
            self._end(end)

    @staticmethod
    def _end(end: socket.socket) -> None:
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
        end.close()

    def shut(self) -> None:
        self._end(self._listener)
        for end in tuple(self._open):
            self._end(end)


@pytest.fixture
def doors() -> Iterator[tuple[Door, Door]]:
    first, second = Door(), Door()
    yield first, second
    first.shut()
    second.shut()


@pytest.fixture
def plane(tmp_path: pathlib.Path, doors: tuple[Door, Door]) -> Iterator[up_world.Up]:
    named = [word for door in doors for word in ("--advertise", door.address)]
    with up_world.Up(tmp_path / "data", *named) as made:
        made.ready()
        port = int(made.facts["apiserver"].rpartition(":")[2])
        for door in doors:
            door.lead_to(port)
        yield made


def renewed(plane: up_world.Up, node: str) -> datetime.datetime:
    code, lease = plane.call("GET", f"{LEASES}/{node}")
    assert code == 200, lease
    return objects.parse_timestamp(lease["spec"]["renewTime"])


def test_one_of_two_addresses_dies(plane: up_world.Up, doors: tuple[Door, Door], tmp_path: pathlib.Path) -> None:
    first, second = doors
    (tmp_path / "machine").mkdir()
    machine = Machine(plane, tmp_path / "machine", "w1").joined()
    described = kubeconfig.parse(machine.kubeconfig.read_text()).cluster
    assert described.server == first.url
    assert described.beside.servers == (first.url, second.url)
    assert described.beside.id == plane.call("GET", "/api/v1/namespaces/kube-system")[1]["metadata"]["uid"]

    # An administrator elsewhere, who came by the first address and has refreshed once.
    admin = tmp_path / "elsewhere.conf"
    shutil.copy(plane.directory / "admin.conf", admin)
    admin.write_text(admin.read_text().replace(plane.facts["apiserver"], first.url))
    assert up_world.run("kubeconfig", "refresh", "--kubeconfig", admin).returncode == 0
    # By whichever address: the data directory is that of the server that shows its certificate.
    told = up_world.run("status", "--dir", plane.directory, "--kubeconfig", admin, "-o", "json")
    states = {row["topic"]: row["state"] for row in json.loads(told.stdout)["topics"]}
    assert states["controllers"] == "ok", told.stdout

    with machine.agent() as agent:
        agent.until_well()
        assert agent.report()["server"] == first.url
        first.shut()
        dead = datetime.datetime.now(datetime.UTC)
        up_world.until(lambda: agent.report()["server"] == second.url, 10, f"another server: {agent.text()}")
        up_world.until(lambda: renewed(plane, "w1") > dead, 30, f"a Lease: {agent.text()}")
        assert agent.said("an API server does not answer; the next is asked")

    listed = up_world.run("csr", "list", "--kubeconfig", admin, "-o", "json")
    assert listed.returncode == 0, listed.stderr
    assert json.loads(listed.stdout)["items"]

    with machine.agent() as again:
        again.until_well()
        assert again.report()["server"] == second.url

    fresh = up_world.run("kubeconfig", "refresh", "--kubeconfig", machine.kubeconfig)
    assert fresh.returncode == 0, fresh.stderr
    described = kubeconfig.parse(machine.kubeconfig.read_text()).cluster
    assert described.server == second.url
    assert set(described.beside.servers) == {first.url, second.url}
