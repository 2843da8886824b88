# SPDX-License-Identifier: Apache-2.0
"""A node is killed with SIGKILL at every call of its bootstrap and of its rotation, and started again.

It proves, for every call of a clean run: what lies under its final name is whole, no request exists whose key is not on
disk, there is one request and one pair for one key, and the next start ends with a valid pair, the link and the kubeconfig in place.
At every call an approver of the test answers, so that hundreds of deaths take a minute; at the calls that matter most it is the
csrapproving and csrsigning controllers of `handfast up`.
It says nothing about power loss: the kernel keeps what was written but not synced. That what must be synced is synced
before anything relies on it is shown by the order of the calls.
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import os
import pathlib
import random
import re
import shutil
from collections.abc import AsyncIterator
from typing import Any

import pytest

from handfast.api import resources
from handfast.bootstrap import kubeconfig
from handfast.client import api, connection
from handfast.node import certificate_store
from handfast.pki import keys, pairs, requests
from handfast.rules import user_names
from handfast.runtime import clock as clocks
from tests.scenarios import up_world
from tests.world import certifying, killing
from tests.world import world as worlds

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240), pytest.mark.usefixtures("quiet")]

SIGKILL = 9


class Stage:
    """One API server and one zygote for all the deaths."""

    def __init__(self, certifier: certifying.Certifier, zygote: killing.Zygote, root: pathlib.Path) -> None:
        self.certifier = certifier
        self.zygote = zygote
        self._root = root
        self._parsed: dict[str, requests.Request] = {}

    def order(self, scenario: str, number: int) -> killing.Order:
        """A fresh directory with a bootstrap kubeconfig, and for a rotation a pair from before."""
        directory = self._root / f"{scenario}-{number}"
        directory.mkdir()
        cluster = kubeconfig.Cluster(
            name="c",
            server=self.certifier.world.base,
            certificate_authority_data=self.certifier.world.place.ca_certificate.read_bytes(),
        )
        user = kubeconfig.User(name="u", token=certifying.TOKEN)
        text = kubeconfig.render(kubeconfig.Kubeconfig(context="x", cluster=cluster, user=user))
        (directory / "bootstrap-kubelet.conf").write_text(text)
        order = killing.Order(scenario, str(directory), f"{scenario}-{number}", number)
        return self._equipped(order) if scenario == "rotate" else order

    def _equipped(self, order: killing.Order) -> killing.Order:
        certificate, key = certifying.pair_for(self.certifier, order.node)
        pair = pairs.join(certificate, key)
        store_of(order).save(pair)
        root = pathlib.Path(order.directory)
        shutil.copy(root / "bootstrap-kubelet.conf", root / "kubelet.conf")
        return dataclasses.replace(order, first=pair.leaf.serial)

    async def requests_of(self, order: killing.Order) -> list[requests.Request]:
        """The key of every request filed for this node."""
        for item in await self.certifier.client.list(resources.SIGNING_REQUESTS):
            name = item["metadata"]["name"]
            if name not in self._parsed:
                self._parsed[name] = requests.parse(base64.b64decode(item["spec"]["request"]))
        subject = user_names.node_subject(order.node)
        return [request for request in self._parsed.values() if request.subject == subject]


class RealStage(Stage):
    """`handfast up`, whose own controllers approve and sign; a rotation follows a bootstrap that lived."""

    def __init__(self, plane: up_world.Up, zygote: killing.Zygote, root: pathlib.Path) -> None:
        self.zygote = zygote
        self._plane = plane
        self._root = root
        self._bootstrap = root / "bootstrap.conf"
        self._parsed = {}
        self._before: dict[str, set[str]] = {}
        admin = plane.directory / "admin.conf"
        made = up_world.run("token", "create", "--print-join-command", "--kubeconfig", admin)
        words = (*made.stdout.split()[1:], "--discovery-only", "--bootstrap-kubeconfig", self._bootstrap)
        done = up_world.run(*words)
        assert done.returncode == 0, (made.stderr, done.stderr)

    async def fresh(self, scenario: str, number: int) -> killing.Order:
        directory = self._root / f"{scenario}-{number}"
        directory.mkdir()
        shutil.copy(self._bootstrap, directory / "bootstrap-kubelet.conf")
        order = killing.Order("boot", str(directory), f"{scenario}-{number}")
        if scenario == "rotate":
            first = (await lived(self, order))["serial"]
            self._before[order.node] = {name for name, _ in self._filed(order)}
            order = dataclasses.replace(order, scenario=scenario, first=first)
        return dataclasses.replace(order, kill_at=number)

    def _filed(self, order: killing.Order) -> list[tuple[str, requests.Request]]:
        found = self._plane.call("GET", api.path(resources.SIGNING_REQUESTS))[1]["items"]
        parsed = [
            (item["metadata"]["name"], requests.parse(base64.b64decode(item["spec"]["request"]))) for item in found
        ]
        return [row for row in parsed if row[1].subject == user_names.node_subject(order.node)]

    async def requests_of(self, order: killing.Order) -> list[requests.Request]:
        before = self._before.get(order.node, set())
        return [request for name, request in self._filed(order) if name not in before]

    def decided_by(self, order: killing.Order) -> set[str]:
        """Why its requests were approved, in the approver's words."""
        found = self._plane.call("GET", api.path(resources.SIGNING_REQUESTS))[1]["items"]
        mine = {name for name, _ in self._filed(order)}
        conditions = [row for item in found if item["metadata"]["name"] in mine for row in item["status"]["conditions"]]
        return {f"{row['type']}: {row['reason']}" for row in conditions}


def store_of(order: killing.Order) -> certificate_store.CertificateStore:
    directory = pathlib.Path(order.directory) / "pki"
    return certificate_store.CertificateStore(directory, certificate_store.CLIENT, clocks.SystemClock())


@pytest.fixture
async def stage(tmp_path: pathlib.Path) -> AsyncIterator[Stage]:
    async with contextlib.AsyncExitStack() as stack:
        world = await stack.enter_async_context(worlds.world(tmp_path / "world", clock=clocks.SystemClock()))
        certifier = await stack.enter_async_context(certifying.certified(world))
        zygote = await killing.Zygote.start()
        stack.push_async_callback(zygote.stop)
        (tmp_path / "nodes").mkdir()
        yield Stage(certifier, zygote, tmp_path / "nodes")


def whole_keys(order: killing.Order) -> set[bytes]:
    """The keys on disk; a file with a final name that is not whole fails."""
    found = set()
    for path in (pathlib.Path(order.directory) / "pki").glob("*"):
        if path.is_symlink() or path.name.startswith("."):
            continue
        assert path.stat().st_mode & 0o777 == 0o600, path
        if path.name.endswith(".key.tmp"):
            found.add(keys.private_from_pem(path.read_bytes()).public.spki)
        else:
            found.add(pairs.read(path.read_bytes()).key.public.spki)
    own = pathlib.Path(order.directory) / "kubelet.conf"
    if own.exists():
        kubeconfig.parse(own.read_text())
    return found


async def after_death(stage: Stage, order: killing.Order) -> None:
    on_disk = whole_keys(order)
    filed = await stage.requests_of(order)
    assert {request.public_key.spki for request in filed} <= on_disk, "a request without its key"
    assert len(filed) <= 1


async def after_restart(stage: Stage, order: killing.Order, serial: str) -> None:
    filed = await stage.requests_of(order)
    assert len(filed) == 1, "one key, one request"
    found = store_of(order).find()
    assert found.pair is not None
    assert (found.linked, found.problems, found.pair.leaf.serial) == (True, (), serial)
    assert found.pair.key.public.spki == filed[0].public_key.spki
    assert not store_of(order).has_pending_key()
    stored = [pairs.read(path.read_bytes()) for path in (pathlib.Path(order.directory) / "pki").glob("*-2*.pem")]
    assert len(stored) == len({pair.key.public.spki for pair in stored}), "one key, one pair"
    assert not list((pathlib.Path(order.directory) / "pki").glob(".*")), "leftovers"
    config = connection.load(str(pathlib.Path(order.directory) / "kubelet.conf"))
    if order.scenario == "boot":
        assert config.cert_pem == found.pair.pem


async def lived(stage: Stage, order: killing.Order) -> dict[str, Any]:
    outcome = await stage.zygote.run(order)
    assert set(outcome) == {"serial", "calls"}, outcome
    return outcome


@pytest.mark.parametrize("scenario", ["boot", "rotate"])
async def test_killed_at_every_call(stage: Stage, scenario: str) -> None:
    clean = await lived(stage, stage.order(scenario, 0))
    calls = clean["calls"]
    assert len(calls) > 25, calls
    for number in range(1, len(calls) + 1):
        order = stage.order(scenario, number)
        outcome = await stage.zygote.run(order)
        if outcome != {"signal": SIGKILL}:
            # Events that arrive together are read by one call, so that a busy machine may make a few less.
            assert len(calls) - 3 < number, (number, calls[number - 1], outcome)
            assert len(outcome["calls"]) < number, (number, calls[number - 1], outcome)
        await after_death(stage, order)
        again = dataclasses.replace(order, kill_at=0)
        await after_restart(stage, again, (await lived(stage, again))["serial"])


# Where something is in the world that was not before: the key, the request, its answer, the pair, the link.
TURNING = ("api > POST", "api < POST", "api < event", "link ", "replace ", "unlink /pki/kubelet-client.key.tmp")


async def test_killed_under_the_real_controllers(tmp_path: pathlib.Path) -> None:
    """A clean run, and a death at the last call of each kind; one control plane for both scenarios, since a start takes time."""
    (tmp_path / "nodes").mkdir()
    with up_world.Up(tmp_path / "data") as plane:
        zygote = await killing.Zygote.start()
        try:
            stage = RealStage(plane.ready(), zygote, tmp_path / "nodes")
            for scenario in ("boot", "rotate"):
                await die_at_turning_points(stage, scenario)
        finally:
            await zygote.stop()


async def die_at_turning_points(stage: RealStage, scenario: str) -> None:
    clean = await stage.fresh(scenario, 0)
    outcome = await lived(stage, clean)
    await after_restart(stage, clean, outcome["serial"])
    assert stage.decided_by(clean) == {"Approved: AutoApproved"}
    calls = outcome["calls"]
    last = {what: max(at for at, call in enumerate(calls, 1) if call.startswith(what)) for what in TURNING}
    for number in sorted(set(last.values())):
        order = await stage.fresh(scenario, number)
        died = await stage.zygote.run(order)
        # How many events there are depends on the controllers' pace.
        assert died == {"signal": SIGKILL} or len(died["calls"]) < number, (calls[number - 1], died)
        await after_death(stage, order)
        again = dataclasses.replace(order, kill_at=0)
        await after_restart(stage, again, (await lived(stage, again))["serial"])


@pytest.mark.parametrize("scenario", ["boot", "rotate"])
async def test_killed_again_and_again(stage: Stage, scenario: str) -> None:
    """A start after a death may die, too, anywhere, several times over."""
    calls = (await lived(stage, stage.order(scenario, 0)))["calls"]
    choice = random.Random(scenario)
    for number in range(1, 13):
        order = stage.order(scenario, 1000 + number)
        for _ in range(4):
            victim = dataclasses.replace(order, kill_at=choice.randint(1, len(calls)))
            outcome = await stage.zygote.run(victim)
            await after_death(stage, order)
            if outcome != {"signal": SIGKILL}:
                break
        again = dataclasses.replace(order, kill_at=0)
        await after_restart(stage, again, (await lived(stage, again))["serial"])


@pytest.mark.parametrize("scenario", ["boot", "rotate"])
async def test_order_of_a_clean_run(stage: Stage, scenario: str) -> None:
    """The key is durable before it is asked for; the pair is durable before the link; the key goes last."""
    calls = (await lived(stage, stage.order(scenario, 0)))["calls"]
    asked = calls.index("api > POST /apis/certificates.k8s.io/v1/certificatesigningrequests")
    stored = next(i for i, call in enumerate(calls) if call.startswith("link "))
    swapped = next(i for i, call in enumerate(calls) if call.startswith("replace ") and "-current.pem" in call)
    forgotten = next(i for i, call in enumerate(calls) if call == "unlink /pki/kubelet-client.key.tmp")
    named = next(i for i, call in enumerate(calls) if call.startswith("replace ") and call.endswith("key.tmp"))
    assert named < asked < stored < swapped < forgotten
    # File, name, and the name's directory.
    assert calls[:named].count("fsync") >= 1
    assert "fsync" in calls[named:asked]
    assert "fsync" in calls[asked:stored]
    assert "fsync" in calls[stored:swapped]
    assert "fsync" in calls[swapped:forgotten]
    sent = [call for call in calls if call.startswith("api > ") and "certificatesigningrequests" in call]
    assert [call.split()[2] for call in sent] == ["POST", "WATCH"], "one create, one watch"


TRACED = (
    *("openat", "mkdir", "rename", "renameat", "renameat2", "link", "linkat", "symlink", "symlinkat", "unlink"),
    *("unlinkat", "write", "pwrite64", "fsync", "fdatasync", "fchmod", "chmod", "fchmodat", "ftruncate", "truncate"),
)
# One call, several names: those of Python and those of the kernel.
SAME = {"rename": "replace", "remove": "unlink", "openat": "open"}


@pytest.mark.parametrize("scenario", ["boot", "rotate"])
async def test_strace_counts_the_same(stage: Stage, tmp_path: pathlib.Path, scenario: str) -> None:
    """No call that the kernel sees goes uncounted."""
    if shutil.which("strace") is None:
        # In CI the calls are counted by the kernel, too, or the run has failed.
        give_up = pytest.fail if os.environ.get("CI") == "true" else pytest.skip
        give_up("not run: there is no strace")
    trace = tmp_path / "trace"
    traced = f"trace={','.join(TRACED)}"
    zygote = await killing.Zygote.start("strace", "-f", "-y", "-qq", "-s", "256", "-e", traced, "-o", str(trace))
    order = stage.order(scenario, 0)
    outcome = await zygote.run(order)
    await zygote.stop()
    calls = [call.split()[0] for call in outcome["calls"] if not call.startswith("api")]
    seen = []
    for line in trace.read_text().splitlines():
        match = re.match(r"^\d+\s+(\w+)\((.*)$", line)
        # To read the names in a directory it is opened, too, from C.
        if match and order.directory in match[2] and "O_NONBLOCK|O_CLOEXEC|O_DIRECTORY" not in line:
            seen.append(match[1] if match[1] == "openat" else re.sub(r"at2?$", "", match[1]))
    assert [SAME.get(name, name) for name in seen] == [SAME.get(name, name) for name in calls]
    assert len(seen) > 20
