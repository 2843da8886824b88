# SPDX-License-Identifier: Apache-2.0
"""The boot sequence: which of the things on disk a node becomes somebody with, and what it leaves there."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import pathlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
from structlog.testing import capture_logs

from handfast import errors
from handfast.api import status
from handfast.bootstrap import kubeconfig
from handfast.client import api, connection, requests
from handfast.node import certificate_store, kubeconfig_file
from handfast.node import identity as identities
from handfast.pki import keys, pairs
from handfast.rules.certificates import wishes
from tests.unit.node import pairing
from tests.world.clock import MovableClock, settle

CLUSTER = kubeconfig.Cluster(
    name="c", server="https://192.0.2.1:6443", certificate_authority_data=pairing.CA.pem, tls_server_name="api"
)


class Machine:
    """A directory, and a server that answers with a certificate; `asked` is by which credential."""

    def __init__(self, root: pathlib.Path) -> None:
        self.root = root
        self.clock = MovableClock()
        self.asked: list[str] = []
        self.refuse: set[str] = set()
        self.own = root / "kubelet.conf"
        self.bootstrap = root / "bootstrap.conf"

    async def obtain(self, client: api.Client, key: keys.PrivateKey, wanted: wishes.Wanted, **_: Any) -> bytes:
        link = client.transport._connection
        self.asked.append(
            link.token or (pairs.join(link.cert_pem, _key(link)).leaf.serial if link.cert_pem else "nobody")
        )
        if self.asked[-1] in self.refuse:
            raise status.StatusError("Unauthorized", "Unauthorized")
        return pairing.pair(begins=self.clock.now(), key=key).certificate_pem

    def config(self, path: pathlib.Path, **user: Any) -> None:
        who = kubeconfig.User(name="u", **user)
        path.write_text(kubeconfig.render(kubeconfig.Kubeconfig(context="x", cluster=CLUSTER, user=who)))

    def store(self, pair: pairs.Pair) -> None:
        certificate_store.CertificateStore(self.root / "pki", "kubelet-client", self.clock).save(pair)

    def places(self, *, rotate: bool = True, bootstrap_kubeconfig: bool = True) -> identities.Places:
        return identities.Places(
            node="n1",
            kubeconfig=self.own,
            bootstrap_kubeconfig=self.bootstrap if bootstrap_kubeconfig else None,
            directory=self.root / "pki",
            rotate=rotate,
        )

    @contextlib.asynccontextmanager
    async def booted(self, **options: Any) -> AsyncIterator[identities.Identity]:
        identity = identities.Identity(self.places(**options), clock=self.clock, chance=lambda: 0.0)
        try:
            ensuring = asyncio.create_task(identity.ensure())
            while not ensuring.done():
                await settle(30)
                await self.clock.advance(1)
            await ensuring
            yield identity
        finally:
            await identity.close()

    def refused(self, **options: Any) -> errors.Refused:
        with pytest.raises(errors.Refused) as caught:
            identities.Identity(self.places(**options), clock=self.clock)
        return caught.value


def _key(link: connection.Connection) -> keys.PrivateKey:
    assert link.key_pem is not None
    return keys.private_from_pem(link.key_pem)


@pytest.fixture
def machine(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Machine(tmp_path)
    monkeypatch.setattr(requests, "file_and_wait", made.obtain)
    return made


def held(identity: identities.Identity) -> pairs.Pair:
    pair = identity.keeper.current()
    assert pair is not None
    return pair


def serial(identity: identities.Identity) -> str:
    return held(identity).leaf.serial


@pytest.mark.parametrize("rotate", [True, False])
async def test_from_nothing(machine: Machine, rotate: bool):
    machine.config(machine.bootstrap, token="t0")
    async with machine.booted(rotate=rotate) as identity:
        link = identity.connection()
        assert (link.server, link.token, link.tls_server_name) == (CLUSTER.server, None, "api")
        assert link.cert_pem == held(identity).certificate_pem
        assert identity.client.transport._connection == link
    assert machine.asked == ["t0"]
    assert machine.own.stat().st_mode & 0o777 == 0o600
    written = kubeconfig.parse(machine.own.read_text())
    current = str(machine.root / "pki" / "kubelet-client-current.pem")
    assert (written.context, written.namespace) == ("default-context", "default")
    assert written.cluster == kubeconfig.Cluster(
        name="default-cluster",
        server=CLUSTER.server,
        certificate_authority_data=pairing.CA.pem,
        tls_server_name="api",
    )
    assert written.user == kubeconfig.User(name="default-auth", client_certificate=current, client_key=current)
    # The next start asks for nothing, and the bootstrap kubeconfig may be gone.
    machine.bootstrap.unlink()
    before = machine.own.read_text()
    async with machine.booted(rotate=rotate):
        assert machine.asked == ["t0"]
    assert machine.own.read_text() == before


async def test_the_crash_before_the_kubeconfig_was_written(machine: Machine):
    machine.config(machine.bootstrap, token="t0")
    made = pairing.fresh()
    machine.store(made)
    async with machine.booted() as identity:
        assert serial(identity) == made.leaf.serial
    assert machine.asked == []
    assert connection.load(str(machine.own)).cert_pem == made.pem


class TestKubeconfig:
    @pytest.mark.parametrize("form", ["data", "files"])
    async def test_its_pair_is_used_and_the_bootstrap_one_ignored(self, machine: Machine, form: str):
        made = pairing.fresh()
        if form == "data":
            machine.config(machine.own, client_certificate_data=made.certificate_pem, client_key_data=made.key_pem)
        else:
            (machine.root / "c.crt").write_bytes(made.certificate_pem)
            (machine.root / "c.key").write_bytes(made.key_pem)
            machine.config(machine.own, client_certificate="c.crt", client_key="c.key")
        before = machine.own.read_text()
        for options in ({"rotate": False}, {"rotate": False, "bootstrap_kubeconfig": False}, {"rotate": True}):
            async with machine.booted(**options) as identity:
                assert serial(identity) == made.leaf.serial
        assert (machine.asked, machine.own.read_text()) == ([], before)

    @pytest.mark.parametrize("trouble", ["expired", "garbage", "no file", "mismatch", "no user"])
    async def test_of_no_use_it_is_bootstrapped_again(self, machine: Machine, trouble: str):
        machine.config(machine.bootstrap, token="t0")
        old, other = pairing.expired(), pairing.fresh()
        machine.config(machine.own, client_certificate_data=old.certificate_pem, client_key_data=old.key_pem)
        if trouble == "garbage":
            machine.own.write_text("{")
        elif trouble == "no file":
            machine.config(machine.own, client_certificate="gone", client_key="gone")
        elif trouble == "mismatch":
            machine.config(machine.own, client_certificate_data=old.certificate_pem, client_key_data=other.key_pem)
        elif trouble == "no user":
            machine.config(machine.own)
        async with machine.booted():
            assert machine.asked == ["t0"]
        assert (
            connection.load(str(machine.own)).cert_pem == (machine.root / "pki/kubelet-client-current.pem").read_bytes()
        )

    def test_with_neither_kubeconfig_there_are_no_credentials(self, machine: Machine):
        error = machine.refused(bootstrap_kubeconfig=False)
        assert error.reason == "NoCredentials"
        assert error.message == (
            f"there are no credentials for node n1: cannot read {machine.own}: no such file or directory"
        )
        machine.config(machine.own)
        error = machine.refused(bootstrap_kubeconfig=False)
        assert error.message == f"the kubeconfig {machine.own} has no certificate and no token that can be used"

    def test_no_bootstrap_kubeconfig(self, machine: Machine):
        error = machine.refused()
        assert error.reason == "NoBootstrapKubeconfig"
        assert error.message == (
            f"unable to load bootstrap kubeconfig: stat {machine.bootstrap}: no such file or directory"
        )
        assert "handfast join" in (error.hint or "")
        machine.bootstrap.write_text("{")
        assert (
            f"unable to load bootstrap kubeconfig: {machine.bootstrap}: kubeconfig: not one"
            in machine.refused().message
        )
        machine.config(machine.own)
        assert "has no certificate and no token that can be used" in (machine.refused().hint or "")

    def test_out_of_reach_is_not_the_same_as_absent(self, machine: Machine, monkeypatch: pytest.MonkeyPatch):
        machine.config(machine.own, token="t")
        plain = os.open

        def refuse(path: Any, *more: Any, **named: Any) -> int:
            if str(path) == str(machine.own):
                raise OSError(errno.EACCES, os.strerror(errno.EACCES))
            return plain(path, *more, **named)

        monkeypatch.setattr(os, "open", refuse)
        assert machine.refused().message == f"cannot read {machine.own}: permission denied"

    async def test_it_leads_to_a_link_that_is_mended_first(self, machine: Machine):
        machine.config(machine.bootstrap, token="t0")
        async with machine.booted() as identity:
            before = serial(identity)
        machine.bootstrap.unlink()
        (machine.root / "pki" / "kubelet-client-current.pem").unlink()
        async with machine.booted(bootstrap_kubeconfig=False) as identity:
            assert serial(identity) == before


class TestToken:
    async def test_used_as_it_is_without_rotation(self, machine: Machine):
        machine.config(machine.own, token="static")
        for given in (True, False):
            async with machine.booted(rotate=False, bootstrap_kubeconfig=given) as identity:
                assert identity.connection().token == "static"
        assert machine.asked == []
        assert not (machine.root / "pki").exists()

    async def test_asks_for_a_certificate_with_rotation(self, machine: Machine):
        machine.config(machine.own, token="static")
        before = machine.own.read_text()
        async with machine.booted(bootstrap_kubeconfig=False) as identity:
            assert identity.connection().token is None
        assert (machine.asked, machine.own.read_text()) == (["static"], before)


class TestExpired:
    @pytest.mark.parametrize("named", [True, False])
    async def test_nothing_but_the_expired_pair(self, machine: Machine, named: bool):
        """A server that allows recovery lets it in for one request; that the bootstrap kubeconfig is gone is told."""
        old = pairing.expired()
        machine.config(machine.own, client_certificate_data=old.certificate_pem, client_key_data=old.key_pem)
        with capture_logs() as logs:
            async with machine.booted(bootstrap_kubeconfig=named) as identity:
                assert serial(identity) != old.leaf.serial
        assert machine.asked == [old.leaf.serial]
        told = [log["error"] for log in logs if log["event"] == "the expired certificate is tried"]
        gone = f"unable to load bootstrap kubeconfig: stat {machine.bootstrap}: no such file or directory"
        assert told == ([gone] if named else [])
        # The kubeconfig had the expired pair in it, and now leads to the new one.
        assert connection.load(str(machine.own)).cert_pem == held(identity).pem

    async def test_the_bootstrap_token_is_kept_in_use_while_it_is_refused(self, machine: Machine):
        machine.config(machine.bootstrap, token="t0")
        machine.refuse = {"t0"}
        identity = identities.Identity(machine.places(), clock=machine.clock)
        ensuring = asyncio.create_task(identity.ensure(10))
        while not ensuring.done():
            await settle(30)
            await machine.clock.advance(1)
        with pytest.raises(errors.Unavailable, match="the last error: Unauthorized"):
            await ensuring
        await identity.close()
        assert machine.asked == ["t0"] * 3

    async def test_both_are_tried_in_turns(self, machine: Machine):
        machine.config(machine.bootstrap, token="t0")
        old = pairing.expired()
        machine.store(old)
        machine.refuse = {"t0"}
        async with machine.booted():
            assert machine.asked == ["t0", old.leaf.serial]


async def test_renewals_go_out_with_the_current_pair(machine: Machine):
    machine.config(machine.bootstrap, token="t0")
    async with machine.booted() as identity:
        first = serial(identity)
        running = asyncio.create_task(identity.keeper.run())
        identity.keeper.renew_now()
        while serial(identity) == first:
            await settle(5)
        await settle(20)
        running.cancel()
        await asyncio.wait([running])
        assert machine.asked == ["t0", first]
        assert identity.client.transport._connection.cert_pem == held(identity).certificate_pem


async def test_a_bootstrap_kubeconfig_that_was_replaced_counts_at_the_next_request(machine: Machine):
    machine.config(machine.bootstrap, token="revoked")
    machine.refuse = {"revoked"}
    identity = identities.Identity(machine.places(), clock=machine.clock, chance=lambda: 0.0)
    try:
        ensuring = asyncio.create_task(identity.ensure())
        while not machine.asked:
            await settle(30)
            await machine.clock.advance(1)
        # What cannot be read changes nothing.
        machine.bootstrap.write_text("{")
        while len(machine.asked) < 2:
            await settle(30)
            await machine.clock.advance(1)
        machine.config(machine.bootstrap, token="fresh")
        while not ensuring.done():
            await settle(30)
            await machine.clock.advance(1)
        await ensuring
        assert machine.asked[:2] == ["revoked", "revoked"]
        assert machine.asked[-1] == "fresh"
        assert identity._retired_bootstrap_clients == []
    finally:
        await identity.close()


async def test_a_bootstrap_kubeconfig_that_comes_later_counts(machine: Machine):
    """An expired pair is there, and the configuration brings the kubeconfig while the agent runs."""
    expired = pairing.pair(begins=machine.clock.now() - 3 * pairing.HOUR, lasts=pairing.HOUR)
    machine.store(expired)
    machine.config(
        machine.own, client_certificate="pki/kubelet-client-current.pem", client_key="pki/kubelet-client-current.pem"
    )
    machine.refuse = {expired.leaf.serial}
    identity = identities.Identity(machine.places(), clock=machine.clock, chance=lambda: 0.0)
    try:
        ensuring = asyncio.create_task(identity.ensure())
        while not machine.asked:
            await settle(30)
            await machine.clock.advance(1)
        machine.config(machine.bootstrap, token="fresh")
        while not ensuring.done():
            await settle(30)
            await machine.clock.advance(1)
        await ensuring
        assert machine.asked[-1] == "fresh"
    finally:
        await identity.close()


async def test_a_bootstrap_kubeconfig_that_may_not_be_read_any_more_changes_nothing(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
):
    machine.config(machine.bootstrap, token="t0")
    identity = identities.Identity(machine.places(), clock=machine.clock, chance=lambda: 0.0)

    def denied(_: pathlib.Path) -> None:
        raise errors.Refused("cannot read it", reason="PermissionDenied")

    monkeypatch.setattr(kubeconfig_file, "loaded", denied)
    with capture_logs() as lines:
        client = identity._client_for_request()
    assert client.transport._connection.token == "t0"
    assert [line["event"] for line in lines] == ["the bootstrap kubeconfig cannot be read"]
    await identity.close()
