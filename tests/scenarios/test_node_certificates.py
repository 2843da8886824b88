# SPDX-License-Identifier: Apache-2.0
"""What can go wrong between a node and its certificate, one test each: what the operator reads, and that it heals.

Proves: no failure takes the certificate in use away, every one is told in words that name the cause, none leaves a heap
of requests behind, and when the cause is gone the node goes on without help.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import datetime
import errno
import os
import pathlib
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
from structlog.testing import capture_logs

from handfast import errors
from handfast.api import resources
from handfast.bootstrap import kubeconfig
from handfast.client import api
from handfast.node import certificates as certificate_keepers
from handfast.node import identity as identities
from handfast.pki import keys, names, pairs, profiles
from handfast.rules.certificates import wishes
from tests.world import certifying
from tests.world import small_disk as disks
from tests.world import world as worlds
from tests.world.clock import MovableClock

pytestmark = pytest.mark.slow

HOUR = 3600.0
DAY = 24 * HOUR
REVIEWS = api.Resource("authentication.k8s.io", "v1", "selfsubjectreviews", False)
# The line of the log about an attempt that failed, but for its cause.
WHY_NOT = {"event": "no certificate was obtained", "log_level": "warning", "name": "kubelet-client"}


class JumpingClock:
    """The world's clock as one machine has it: the wall clock can be wrong, waiting goes on as everywhere."""

    def __init__(self, true: MovableClock) -> None:
        self._true = true
        self.off = 0.0

    def now(self) -> datetime.datetime:
        return self._true.now() + datetime.timedelta(seconds=self.off)

    def monotonic(self) -> float:
        return self._true.monotonic()

    async def sleep(self, seconds: float) -> None:
        await self._true.sleep(seconds)


class Line:
    """The network between node and API server, which can be cut."""

    def __init__(self, port: int) -> None:
        self._target = port
        self.port = 0
        self._server: asyncio.Server | None = None
        self._writers: list[asyncio.StreamWriter] = []

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._carry, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def cut(self) -> None:
        assert self._server is not None
        self._server.close()
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()
        await asyncio.sleep(0.01)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target)
        self._writers += [writer, far_writer]
        await asyncio.gather(_copy(reader, far_writer), _copy(far_reader, writer))


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError, asyncio.CancelledError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()


class Node:
    """One machine: its directory, its clock, and its agent's identity while it runs."""

    def __init__(
        self, certifier: certifying.Certifier, root: pathlib.Path, server: str, true: MovableClock, name: str = "n1"
    ) -> None:
        self.certifier = certifier
        self.root = root
        self.clock = JumpingClock(true)
        self._true = true
        self.places = identities.Places(
            node=name,
            kubeconfig=root / "kubelet.conf",
            bootstrap_kubeconfig=root / "bootstrap.conf",
            directory=root / "pki",
            rotate=True,
        )
        self._cluster = kubeconfig.Cluster(
            name="c",
            server=server,
            certificate_authority_data=certifier.world.place.ca_certificate.read_bytes(),
        )
        self.provide(kubeconfig.User(name="u", token=certifying.TOKEN), self.places.bootstrap_kubeconfig)
        self._identity: identities.Identity | None = None
        self._running: asyncio.Task[None] | None = None

    def provide(self, user: kubeconfig.User, path: pathlib.Path | None) -> str:
        """What a deployer puts on a machine: a kubeconfig with these credentials."""
        assert path is not None
        text = kubeconfig.render(kubeconfig.Kubeconfig(context="x", cluster=self._cluster, user=user))
        path.write_text(text)
        return text

    def boot(self) -> identities.Identity:
        self._identity = identities.Identity(self.places, clock=self.clock, chance=lambda: 0.5)
        return self._identity

    @property
    def identity(self) -> identities.Identity:
        assert self._identity is not None
        return self._identity

    async def joined(self) -> None:
        """A node that has a certificate and renews it."""
        self.boot()
        ensuring = asyncio.create_task(self.identity.ensure())
        await self.pass_until(ensuring.done)
        await ensuring
        self._running = asyncio.create_task(self.keeper.run())

    @property
    def keeper(self) -> certificate_keepers.CertificateKeeper:
        return self.identity.keeper

    @property
    def serial(self) -> str:
        pair = self.keeper.current()
        assert pair is not None
        return pair.leaf.serial

    async def pass_until(self, condition: Callable[[], Any], step: float = 0.5) -> None:
        for _ in range(3000):
            if condition():
                return
            await self._true.advance(step)
            await asyncio.sleep(0.002)
        raise AssertionError(f"never; the last error: {self.keeper.last_error}")

    async def fails(self, reason: str, step: float = 0.5) -> str:
        """What the operator reads, once an attempt has failed for this reason."""
        await self.pass_until(lambda: self.keeper.last_error and self.keeper.last_error.reason == reason, step)
        assert self.keeper.last_error is not None
        return self.keeper.last_error.message

    async def heals(self, before: str) -> None:
        """A new certificate, the old one in use until then, nothing left over, and the server knows it."""
        await self.pass_until(lambda: self.serial != before)
        assert self.keeper.last_error is None
        assert not self.identity.store.has_pending_key()
        answer = await self.identity.client.get(resources.SIGNING_REQUESTS, wishes.name_of(self.key, self.wanted))
        assert answer["spec"]["username"] in {f"system:node:{self.places.node}", "system:bootstrap:abcdef"}

    @property
    def key(self) -> keys.PublicKey:
        pair = self.keeper.current()
        assert pair is not None
        return pair.key.public

    @property
    def wanted(self) -> wishes.Wanted:
        return wishes.node_client(self.places.node)

    async def stop(self) -> None:
        if self._running is not None:
            self._running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._running
            self._running = None
        if self._identity is not None:
            await self._identity.close()
            self._identity = None


@pytest.fixture
async def node(tmp_path: pathlib.Path) -> AsyncIterator[Node]:
    clock = MovableClock(datetime.datetime.now(datetime.UTC))
    async with (
        worlds.world(tmp_path / "world", clock=clock) as world,
        certifying.certified(world) as certifier,
    ):
        (tmp_path / "node").mkdir()
        made = Node(certifier, tmp_path / "node", world.base, clock)
        yield made
        await made.stop()


async def test_renewed_in_time(node: Node) -> None:
    node.certifier.lifetime = datetime.timedelta(hours=1)
    await node.joined()
    pair, due = node.keeper.current(), node.keeper.next_renewal
    assert pair is not None
    assert due is not None
    await node.pass_until(lambda: node.serial != pair.leaf.serial, step=10)
    # How many steps of its clock an attempt takes depends on how busy this machine is.
    assert due <= node.clock.now() < pair.leaf.not_after
    assert len(node.certifier.requests) == 2


async def test_the_credential_of_the_bootstrap_kubeconfig_is_a_certificate(node: Node) -> None:
    """A client certificate of the group that may ask, and no token."""
    key = keys.generate()
    subject = names.Subject(common_name="newcomer", organizations=("system:bootstrappers",))
    now = node.clock.now()
    issued = node.certifier.authority.issue(key.public, subject, names.Sans(), profiles.CLIENT, now)
    user = kubeconfig.User(name="u", client_certificate_data=issued.pem, client_key_data=key.to_pem())
    node.provide(user, node.places.bootstrap_kubeconfig)
    await node.joined()
    [name] = node.certifier.requests
    assert (await node.certifier.client.get(resources.SIGNING_REQUESTS, name))["spec"]["username"] == "newcomer"
    pair = node.keeper.current()
    assert pair is not None
    assert (pair.leaf.subject, pair.key.public == key.public) == (node.wanted.subject, False)
    # What was written leads to the new pair, and no longer to the newcomer's.
    assert "newcomer" not in node.places.kubeconfig.read_text()


async def test_nodes_with_and_without_rotation_go_together(node: Node, tmp_path: pathlib.Path) -> None:
    """One control plane, one moment: one node rotates, one uses what it was given; neither disturbs the other."""
    node.certifier.lifetime = datetime.timedelta(hours=1)
    (tmp_path / "still").mkdir()
    still = Node(node.certifier, tmp_path / "still", node.certifier.world.base, node._true, name="n2")
    certificate, key = certifying.pair_for(node.certifier, "n2")
    user = kubeconfig.User(name="u", client_certificate_data=certificate, client_key_data=key.to_pem())
    still.provide(user, still.places.kubeconfig)
    still.places = dataclasses.replace(still.places, rotate=False, bootstrap_kubeconfig=None)
    await still.joined()
    await node.joined()
    first, static = node.serial, still.serial
    await node.pass_until(lambda: node.serial != first, step=10)
    assert still.serial == static
    # Both are heard, each by its own name, and only one of them ever asked for a certificate.
    for each in (node, still):
        mine = await each.identity.client.create(REVIEWS, {})
        assert mine["status"]["userInfo"]["username"] == f"system:node:{each.places.node}"
    requests = [await node.certifier.client.get(resources.SIGNING_REQUESTS, name) for name in node.certifier.requests]
    assert [each["spec"]["username"] for each in requests] == ["system:bootstrap:abcdef", "system:node:n1"]
    await still.stop()


async def test_clock_jumps_forward_a_day(node: Node) -> None:
    node.certifier.lifetime = datetime.timedelta(hours=12)
    await node.joined()
    before = node.serial
    node.clock.off = DAY
    text = await node.fails("WrongCertificate")
    assert text.startswith("the certificate returned is refused: it expired at ")
    assert text.endswith("here")
    assert node.keeper.last_error is not None
    assert node.keeper.last_error.hint is not None
    assert "clock" in node.keeper.last_error.hint
    assert node.serial == before
    assert node.keeper.usable() is False
    node.clock.off = 0.0
    # By its own clock the certificate is good again, and nothing more is asked for.
    assert node.keeper.usable()
    node.keeper.renew_now()
    await node.heals(before)


async def test_clock_jumps_back_a_day(node: Node) -> None:
    """The renewal comes when it would have come, not a day later."""
    node.certifier.lifetime = datetime.timedelta(hours=1)
    await node.joined()
    before, due = node.serial, node.keeper.next_renewal
    assert due is not None
    node.clock.off = -DAY
    text = await node.fails("CertificateNotYetValid", step=10)
    assert (node.clock.now() + datetime.timedelta(days=1) - due).total_seconds() < 120
    assert text.startswith("the certificate returned is not valid before ")
    assert node.serial == before
    # The same request is asked for again and again, not another.
    await node.pass_until(lambda: node.keeper.renew_errors > 3, step=5)
    assert len(node.certifier.requests) == 2
    node.clock.off = 0.0
    await node.heals(before)
    assert len(node.certifier.requests) == 2


async def test_api_server_down_for_longer_than_the_certificate_lasts(node: Node, tmp_path: pathlib.Path) -> None:
    line = Line(node.certifier.world.server.address[1])
    await line.open()
    (tmp_path / "far").mkdir()
    node.certifier.lifetime = datetime.timedelta(hours=1)
    far = Node(node.certifier, tmp_path / "far", f"https://127.0.0.1:{line.port}", node._true)
    await far.joined()
    before = far.serial
    await line.cut()
    text = await far.fails("Unreachable", step=20)
    assert f"https://127.0.0.1:{line.port} cannot be reached" in text
    await far.pass_until(lambda: not far.keeper.usable(), step=20)
    assert far.serial == before
    assert far.keeper.server_healthy is False
    assert f"expired at {far.keeper.current().leaf.not_after:%Y-%m-%dT%H:%M:%SZ}" in (far.keeper.due() or "")  # type: ignore[union-attr]
    await line.open()
    await far.heals(before)
    await far.stop()
    await line.cut()


def failing(monkeypatch: pytest.MonkeyPatch, name: str, code: int, root: pathlib.Path, *, flag: int = 0) -> None:
    """A file system that refuses: to root, too, whom modes do not hold back."""
    plain = getattr(os, name)

    def refuse(first: Any, *rest: Any, **named: Any) -> Any:
        inside = str(first).startswith(str(root)) if not isinstance(first, int) else first > 2 and _in(first, root)
        if inside and (not flag or (rest and rest[0] & flag)):
            raise OSError(code, os.strerror(code))
        return plain(first, *rest, **named)

    monkeypatch.setattr(os, name, refuse)


def _in(descriptor: int, root: pathlib.Path) -> bool:
    with contextlib.suppress(OSError):
        return str(pathlib.Path(f"/proc/self/fd/{descriptor}").readlink()).startswith(str(root))
    return False


@pytest.mark.parametrize(
    ("call", "flag", "code", "reason", "says"),
    [
        ("write", 0, errno.ENOSPC, "NoSpace", "no space left on device"),
        ("open", os.O_CREAT, errno.EROFS, "PermissionDenied", "read-only file system"),
        ("open", os.O_CREAT, errno.EACCES, "PermissionDenied", "permission denied"),
    ],
    ids=["disk full", "read-only", "permission lost"],
)
async def test_a_directory_that_cannot_be_written(
    node: Node, monkeypatch: pytest.MonkeyPatch, call: str, flag: int, code: int, reason: str, says: str
) -> None:
    await node.joined()
    before = node.serial
    with monkeypatch.context() as patched:
        failing(patched, call, code, node.places.directory, flag=flag)
        node.keeper.renew_now()
        with capture_logs() as lines:
            text = await node.fails(reason)
        assert text == f"cannot write {node.places.directory}/kubelet-client.key.tmp: {says}"
        assert WHY_NOT | {"reason": reason, "error": text} in lines
        # Nothing is asked for whose key could not be kept.
        assert len(node.certifier.requests) == 1
        assert node.serial == before
    await node.heals(before)
    assert len(node.certifier.requests) == 2


@pytest.fixture
def small_disk(node: Node) -> Iterator[pathlib.Path]:
    """A file system of its own for the certificates, of five pages."""
    where = node.places.directory
    where.mkdir(mode=0o755)
    with disks.mounted(where, "size=20k,mode=0755"):
        yield where


async def test_a_disk_that_is_really_full(node: Node, small_disk: pathlib.Path) -> None:
    await node.joined()
    before = node.serial
    with contextlib.suppress(OSError):
        (small_disk / "ballast").write_bytes(bytes(64 << 10))
    node.keeper.renew_now()
    assert await node.fails("NoSpace") == f"cannot write {small_disk}/kubelet-client.key.tmp: no space left on device"
    assert (node.serial, len(node.certifier.requests)) == (before, 1)
    assert sorted(small_disk.glob(".*")) == []
    (small_disk / "ballast").unlink()
    await node.heals(before)
    assert len(node.certifier.requests) == 2


async def test_a_disk_that_is_really_read_only(node: Node, small_disk: pathlib.Path) -> None:
    await node.joined()
    before = node.serial
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    node.keeper.renew_now()
    text = await node.fails("PermissionDenied")
    assert text == f"cannot write {small_disk}/kubelet-client.key.tmp: read-only file system"
    # A start finds the pair all the same.
    await node.stop()
    await node.joined()
    assert node.serial == before
    subprocess.run(["mount", "-o", "remount,rw", str(small_disk)], check=True)
    node.keeper.renew_now()
    await node.heals(before)


async def test_the_disk_fills_up_between_key_and_certificate(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    await node.joined()
    before = node.serial
    node.identity.store.pending_key()
    with monkeypatch.context() as patched:
        failing(patched, "write", errno.ENOSPC, node.places.directory)
        node.keeper.renew_now()
        text = await node.fails("NoSpace")
        assert "kubelet-client-2" in text
        assert sorted(node.places.directory.glob(".*")) == []
    await node.heals(before)
    assert len(node.certifier.requests) == 2


async def test_stored_files_that_others_may_read(node: Node) -> None:
    await node.joined()
    await node.stop()
    for path in node.places.directory.glob("kubelet-client-2*.pem"):
        path.chmod(0o644)
    with pytest.raises(errors.Refused, match=r"holds secrets and can be opened by others \(mode 0644") as caught:
        node.boot()
    assert caught.value.reason == "FileNotPrivate"


async def test_permission_to_ask_lost(node: Node) -> None:
    await node.certifier.client.delete(certifying.BINDINGS, "bootstrappers")
    node.boot()
    ensuring = asyncio.create_task(node.identity.ensure())
    with capture_logs() as lines:
        text = await node.fails("Forbidden")
    assert WHY_NOT | {"reason": "Forbidden", "error": text} in lines
    assert 'certificatesigningrequests.certificates.k8s.io is forbidden: User "system:bootstrap:abcdef"' in text
    assert node.keeper.server_healthy
    await node.pass_until(ensuring.done, step=5)
    with pytest.raises(
        errors.Unavailable, match="no certificate was obtained within 300 seconds; the last error: "
    ) as e:
        await ensuring
    assert e.value.reason == "BootstrapTimeout"


async def test_nobody_answers_and_the_next_start_goes_on(node: Node) -> None:
    node.certifier.answer = certifying.ignore
    node.boot()
    ensuring = asyncio.create_task(node.identity.ensure())
    await node.pass_until(ensuring.done, step=5)
    with pytest.raises(errors.Unavailable, match="no certificate was obtained within 300 seconds") as caught:
        await ensuring
    [name] = node.certifier.requests
    assert caught.value.reason == "BootstrapTimeout"
    assert f'csr "{name}" was not approved within 300 seconds' in caught.value.message
    assert caught.value.hint == f"look at it on a control plane with: handfast csr explain {name}"
    await node.stop()
    again = asyncio.create_task(node.boot().ensure())
    await node.pass_until(lambda: node.keeper.last_error is None)
    await certifying.issue(node.certifier, await node.certifier.client.get(resources.SIGNING_REQUESTS, name))
    await node.pass_until(again.done)
    await again
    assert node.certifier.requests == [name]
    assert name == wishes.name_of(node.key, node.wanted)


async def deny(certifier: certifying.Certifier, document: dict[str, Any]) -> None:
    await certifier.decide(document, "Denied", "NotToday", "come back tomorrow")


async def delete(certifier: certifying.Certifier, document: dict[str, Any]) -> None:
    await certifier.client.delete(resources.SIGNING_REQUESTS, document["metadata"]["name"])


async def fail(certifier: certifying.Certifier, document: dict[str, Any]) -> None:
    approved = await certifier.decide(document, "Approved", "Yes")
    condition = {"type": "Failed", "status": "True", "reason": "SignerValidationFailure", "message": "no"}
    approved["status"]["conditions"].append(condition)
    await certifier.client.update_status(resources.SIGNING_REQUESTS, approved)


async def other_key(certifier: certifying.Certifier, document: dict[str, Any]) -> None:
    approved = await certifier.decide(document, "Approved", "Yes")
    await certifier.hand_out(approved, certifier.pem_for(document, key=keys.generate().public))


async def too_late(certifier: certifying.Certifier, document: dict[str, Any]) -> None:
    approved = await certifier.decide(document, "Approved", "Yes")
    past = certifier.world.clock.now() - datetime.timedelta(minutes=40)
    certifier.lifetime = datetime.timedelta(minutes=30)
    await certifier.hand_out(approved, certifier.pem_for(document, now=past))


@pytest.mark.parametrize(
    ("answer", "reason", "says"),
    [
        (
            deny,
            "RequestDenied",
            "certificate signing request is denied, reason: NotToday, message: come back tomorrow",
        ),
        (delete, "RequestDeleted", 'csr "{name}" was deleted'),
        (fail, "RequestFailed", "certificate signing request failed, reason: SignerValidationFailure, message: no"),
        (
            other_key,
            "WrongCertificate",
            "the certificate returned is refused: it is for a different key than the one requested for",
        ),
        (too_late, "WrongCertificate", "the certificate returned is refused: it expired at "),
    ],
)
async def test_an_answer_that_ends_the_request(node: Node, answer: certifying.Answer, reason: str, says: str) -> None:
    """It is asked again after a while, with a fresh key after a no, and the certificate in use stays in use."""
    await node.joined()
    await node._true.advance(HOUR)
    before = node.serial
    node.certifier.answer = answer
    node.keeper.renew_now()
    text = await node.fails(reason)
    assert text.startswith(says.format(name=node.certifier.requests[1]))
    assert node.serial == before
    node.certifier.answer, node.certifier.lifetime = certifying.issue, None
    await node.heals(before)
    # What was deleted comes again under its own name; after any other of these there is another key.
    names = len(set(node.certifier.requests))
    assert len(node.certifier.requests) >= 3
    assert names == (2 if reason == "RequestDeleted" else len(node.certifier.requests))


async def test_denials_come_further_and_further_apart(node: Node) -> None:
    await node.joined()
    node.certifier.answer = deny
    node.keeper.renew_now()
    began = node.clock.monotonic()
    await node.pass_until(lambda: node.clock.monotonic() - began > 2 * HOUR, step=20)
    # An upstream kubelet would have filed more than two hundred.
    assert 10 <= len(node.certifier.requests) <= 25


async def test_a_certificate_that_begins_later(node: Node) -> None:
    async def early(certifier: certifying.Certifier, document: dict[str, Any]) -> None:
        approved = await certifier.decide(document, "Approved", "Yes")
        later = certifier.world.clock.now() + datetime.timedelta(minutes=6)
        await certifier.hand_out(approved, certifier.pem_for(document, now=later))

    await node.joined()
    before = node.serial
    node.certifier.answer = early
    node.keeper.renew_now()
    text = await node.fails("CertificateNotYetValid")
    assert text.startswith("the certificate returned is not valid before ")
    await node.heals(before)
    assert len(node.certifier.requests) == 2


async def test_watches_end_and_resume_with_the_new_certificate(node: Node) -> None:
    """No connection that was made with the old certificate is left."""
    await node.joined()
    before = node.serial
    link = node.identity.client.transport
    ended = asyncio.Event()

    async def follow() -> None:
        path = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
        params = {"watch": "true", "fieldSelector": "metadata.name=absent", "resourceVersion": "0"}
        async with link.stream(path, params=params, accept="application/json", idle_seconds=600) as body:
            while await body.readany():
                pass
        ended.set()

    following = asyncio.create_task(follow())
    await asyncio.sleep(0.05)
    assert not ended.is_set()
    old = link._link
    node.keeper.renew_now()
    await node.heals(before)
    await asyncio.wait_for(ended.wait(), 5)
    await following
    assert link._link is not old
    assert old._session is None


async def test_rotation_off_uses_what_there_is_and_asks_for_nothing(node: Node) -> None:
    """KEP-266's rollback rows: on, off, on again."""
    node.certifier.lifetime = datetime.timedelta(hours=1)
    await node.joined()
    first = node.serial
    await node.stop()
    on = node.places
    node.places = identities.Places(
        node="n1", kubeconfig=on.kubeconfig, bootstrap_kubeconfig=on.bootstrap_kubeconfig, directory=on.directory
    )
    await node.joined()
    assert node.serial == first
    await node._true.advance(0.95 * HOUR)
    await asyncio.sleep(0.02)
    assert (node.serial, len(node.certifier.requests)) == (first, 1)
    with pytest.raises(errors.Refused, match="certificates are not rotated by this agent"):
        node.keeper.renew_now()
    await node.stop()
    node.places = on
    await node.joined()
    await node.heals(first)
    assert len(node.certifier.requests) == 2


async def test_static_credentials_stay_in_use_while_rotation_is_off(node: Node) -> None:
    certificate, key = certifying.pair_for(node.certifier, "n1")
    (node.root / "static.crt").write_bytes(certificate)
    (node.root / "static.key").write_bytes(key.to_pem())
    user = kubeconfig.User(name="u", client_certificate="static.crt", client_key="static.key")
    text = node.provide(user, node.places.kubeconfig)
    on = node.places
    off = identities.Places(node="n1", kubeconfig=on.kubeconfig, directory=on.directory)
    node.places = off
    await node.joined()
    static = pairs.join(certificate, key).leaf.serial
    assert (node.serial, node.certifier.requests) == (static, [])
    assert not on.directory.exists()
    await node.stop()
    # Turned on, the node replaces them at once; turned off, they count again.
    node.places = on
    await node.joined()
    await node.heals(static)
    assert on.kubeconfig.read_text() == text
    await node.stop()
    node.places = off
    await node.joined()
    assert node.serial == static
