# SPDX-License-Identifier: Apache-2.0
"""Two control planes on one etcd, as real processes, set up as docs/two-servers.md says.

One after the other is started anew under load; the machine whose controllers work is killed; both sign into one ledger.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import pathlib
import signal
import ssl
import subprocess
from collections.abc import Iterator
from typing import Any
from urllib import parse as urls

import pytest

from handfast.api import objects
from handfast.pki import keys, names, requests
from tests import page_text
from tests.page_facts import ROOT
from tests.scenarios import outliving, up_world
from tests.world import etcds

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/handfast-controllers"
REQUESTS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
PAGE = ROOT / "docs" / "two-servers.md"
DIRECTORY = "/var/lib/handfast"


def command(first: str) -> str:
    """The command of the page that begins with these words."""
    return next(step.line for step in page_text.steps(PAGE.read_text()) if step.line.startswith(first))


class Planes:
    """The two control planes, their etcd, and a client that asks either."""

    def __init__(self, directory: pathlib.Path) -> None:
        self.store = str(etcds.shared().place())
        self.directories = [directory / "one", directory / "other"]
        self.ups = [self.start(0)]
        self.copy_keys()
        self.ups.append(self.start(1))

    def start(self, number: int) -> up_world.Up:
        words = command("handfast up").split()
        flags = words[words.index("--leader-elect") :]
        flags[flags.index("--store") + 1] = self.store
        return up_world.Up(self.directories[number], *flags, "--unsafe-lift-limits").ready()

    def start_again(self, number: int) -> None:
        with self.ups[number]:
            assert self.ups[number].stop()[0] == 0
        self.ups[number] = self.start(number)

    def copy_keys(self) -> None:
        """What the page says, with another way to the other machine."""
        here, there = map(str, self.directories)
        words = command("tar --create").replace("ssh second", "sh -c")
        sent, received = words.split("|")
        typed = f"{sent.replace(DIRECTORY, here)}|{received.replace(DIRECTORY, there)}"
        subprocess.run(["sh", "-c", typed], check=True, timeout=60)

    def port(self, number: int) -> int:
        return urls.urlsplit(self.ups[number].facts["apiserver"]).port or 0

    def client(self) -> outliving.Client:
        return outliving.Client((self.port(0), self.port(1)), self.ups[0].context())

    def end(self) -> None:
        with contextlib.ExitStack() as stack:
            for up in self.ups:
                stack.enter_context(up)


@pytest.fixture(scope="module")
def planes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Planes]:
    made = Planes(tmp_path_factory.mktemp("planes"))
    yield made
    made.end()


def test_one_set_of_keys_serves_both(planes: Planes) -> None:
    """The administrator of one is the other's, and a write on one is in the next read of the other."""
    one, other = planes.ups
    for number in range(10):
        one.create_config_map(f"seen-{number}")
        assert other.has_config_map(f"seen-{number}")
    # The other's own kubeconfig is good at the first, too.
    context = other.context()
    with contextlib.closing(one.connection(context)) as connection:
        connection.request("GET", CONFIG_MAPS)
        assert connection.getresponse().status == 200
    # Private as they were.
    for name in ("pki/ca.key", "pki/sa.key", "encryption.key"):
        assert (planes.directories[1] / name).stat().st_mode & 0o077 == 0


async def test_one_after_the_other_starts_anew_under_load(planes: Planes) -> None:
    """No request fails for a client that tries again, and no watch has to list again."""
    client = planes.client()
    version = await client.version_of(CONFIG_MAPS)
    watchers = [outliving.Watcher(client, CONFIG_MAPS, version, "&labelSelector=load") for _ in range(20)]
    following = [asyncio.ensure_future(watcher.follow("last")) for watcher in watchers]
    written: list[str] = []
    ended = asyncio.Event()

    async def write() -> None:
        while not ended.is_set():
            name = f"load-{len(written)}"
            written.append(name)
            reply = await client.ask("POST", CONFIG_MAPS, {"metadata": {"name": name, "labels": {"load": "yes"}}})
            assert reply.status in {201, 409}, reply.body
            reply = await client.ask("GET", f"{CONFIG_MAPS}/{name}")
            assert reply.status == 200, reply.body

    writing = asyncio.ensure_future(write())
    for number in range(2):
        before = len(written)
        pid = planes.ups[number].pids()["apiserver"]
        os.kill(pid, signal.SIGTERM)
        async with asyncio.timeout(90):
            # Between the old one and the new one there is none.
            while len(written) < before + 20 or planes.ups[number].pids().get("apiserver", pid) == pid:
                await asyncio.sleep(0.05)
            while (await outliving.Client((planes.port(number),), client.context).ask("GET", "/readyz")).status != 200:
                await asyncio.sleep(0.1)
    ended.set()
    await writing
    reply = await client.ask("POST", CONFIG_MAPS, {"metadata": {"name": "last", "labels": {"load": "yes"}}})
    assert reply.status in {201, 409}
    async with asyncio.timeout(60):
        await asyncio.gather(*following)
    assert sum(watcher.relists for watcher in watchers) == 0
    assert {tuple(watcher.names) for watcher in watchers} == {(*written, "last")}


def lease(up: up_world.Up) -> dict[str, Any]:
    code, found = up.call("GET", LEASE)
    assert code == 200, found
    spec: dict[str, Any] = found["spec"]
    return spec


def sign(up: up_world.Up, name: str) -> None:
    """A certificate for a user, asked for, approved, and signed by whichever controllers work."""
    request = requests.build(names.Subject(common_name=name), names.Sans(), keys.generate(keys.Kind.P256))
    spec = {
        "signerName": "kubernetes.io/kube-apiserver-client",
        "request": base64.b64encode(request).decode(),
        "usages": ["digital signature", "client auth"],
    }
    code, made = up.call("POST", REQUESTS, {"metadata": {"name": name}, "spec": spec})
    assert code == 201, made
    made["status"] = {"conditions": [{"type": "Approved", "status": "True", "reason": "Test", "message": "so"}]}
    code, made = up.call("PUT", f"{REQUESTS}/{name}/approval", made)
    assert code == 200, made
    up_world.until(
        lambda: up.call("GET", f"{REQUESTS}/{name}")[1].get("status", {}).get("certificate"),
        60,
        f"{name}'s certificate",
    )


def entries(planes: Planes, number: int) -> int:
    """How many certificates the ledger has, whose chain is whole."""
    done = up_world.run("ledger", "verify", "--kubeconfig", planes.directories[number] / "admin.conf", "-o", "json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["good"], found["findings"]) == (True, [])
    return int(found["entries"])


STEPS = ("add", "publish", "switch", "reissue", "retire")


def rotate(planes: Planes, step: str) -> None:
    """One step at the first, as the page says: where the other's controllers work, it is told to copy and to go on."""
    words = ("ca", "rotate", "--dir", planes.directories[0], "--unsafe-skip-wait")
    done = up_world.run(*words)
    if done.returncode == 3:
        assert "reason: NotNoticed" in done.stderr
        planes.copy_keys()
        done = up_world.run(*words)
    assert (done.returncode, done.stdout.split()[:2]) == (0, ["done:", step]), done
    planes.copy_keys()


def status_at(up: up_world.Up, context: ssl.SSLContext) -> int:
    with contextlib.closing(up.connection(context)) as connection:
        connection.request("GET", CONFIG_MAPS)
        return connection.getresponse().status


def test_the_ca_is_replaced_at_both(planes: Planes) -> None:
    """Step by step at one of them, with its files copied after each; in the end the old CA is nobody's."""
    before = [up.context() for up in planes.ups]
    old = (planes.directories[0] / "pki" / "ca.crt").read_bytes()
    for step in STEPS:
        rotate(planes, step)
        # What is published tells clients of both CAs.
        for context in before:
            context.load_verify_locations(cadata=(planes.directories[0] / "pki" / "ca.crt").read_text())
        if step == "switch":
            planes.start_again(1)
        # Who has a certificate of the old CA is let in until it is retired.
        if step != "retire":
            assert [status_at(up, context) for up in planes.ups for context in before] == [200] * 4
    held = [(directory / "pki" / "ca.crt").read_bytes() for directory in planes.directories]
    assert held[0] == held[1] != old
    for up in planes.ups:
        # Each one's administrator, whose kubeconfig trusts the new CA alone, at either.
        assert [status_at(up, each.context()) for each in planes.ups] == [200, 200]
        assert [status_at(up, context) for context in before] == [401, 401]
        # Its controllers log in still, and sign with the new CA.
        sign(up, f"rotated-{planes.ups.index(up)}")
    # A server that starts with the files finds everything in order.
    planes.start_again(1)


def test_the_other_takes_over_within_the_lease_and_the_ledger_stays_whole(planes: Planes) -> None:
    """The machine whose controllers work loses its power: nothing of it ends in order. The other's go on where they were."""
    holder = lease(planes.ups[1])["holderIdentity"]
    pids = [up.pids() for up in planes.ups]
    before = entries(planes, 1)
    working = next(number for number in range(2) if f"_{pids[number]['controllers']}_" in holder)
    rest = 1 - working
    for number in range(2):
        sign(planes.ups[number], f"before-{number}")
    with planes.ups[working] as up:
        # First the one that would start the others again.
        os.kill(up.process.pid, signal.SIGSTOP)
        for pid in pids[working].values():
            os.kill(pid, signal.SIGKILL)
    last = lease(planes.ups[rest])
    assert last["holderIdentity"] == holder
    up_world.until(lambda: lease(planes.ups[rest])["holderIdentity"] != holder, 60, "another leader")
    after = lease(planes.ups[rest])
    # It is another's because the lease ran out, not because it was given back; and by its own words it took as long as is promised.
    assert f"_{pids[rest]['controllers']}_" in after["holderIdentity"]
    assert after["leaseTransitions"] == last["leaseTransitions"] + 1
    seconds = (
        objects.parse_timestamp(after["acquireTime"]) - objects.parse_timestamp(last["renewTime"])
    ).total_seconds()
    assert last["leaseDurationSeconds"] <= seconds <= 15
    sign(planes.ups[rest], "after-0")
    planes.ups[working] = planes.start(working)
    sign(planes.ups[working], "after-1")
    found = [entries(planes, number) for number in range(2)]
    assert found[0] == found[1] == before + 4
