# SPDX-License-Identifier: Apache-2.0
"""An expired certificate asks for its successor: when there is anything to ask, with what, and what a no means."""

from __future__ import annotations

from typing import Any

import pytest

from handfast import errors
from handfast.api import status
from handfast.bootstrap import kubeconfig
from handfast.client import requests
from handfast.node import certificate_store, recovery
from handfast.pki import keys, names, pairs, profiles
from handfast.rules.certificates import wishes
from tests.unit.node import pairing
from tests.world.clock import START, MovableClock

EXPIRED: dict[str, Any] = {"begins": START - 2 * pairing.HOUR, "lasts": pairing.HOUR}


class Machine:
    def __init__(self, root, monkeypatch):
        self.clock = MovableClock()
        self.store = certificate_store.CertificateStore(root / "pki", certificate_store.CLIENT, self.clock)
        self.kubeconfig = root / "kubelet.conf"
        cluster = kubeconfig.Cluster(
            name="c", server="https://192.0.2.1:6443", certificate_authority_data=pairing.CA.pem
        )
        user = kubeconfig.User(name="u", token="another")
        self.kubeconfig.write_text(kubeconfig.render(kubeconfig.Kubeconfig(context="x", cluster=cluster, user=user)))
        self.error = None
        self.asked = []
        monkeypatch.setattr(requests, "file_and_wait", self.obtain)

    async def obtain(self, client, key, wanted, *, clock, seconds, on_waiting=None):
        self.asked.append((client.transport._connection, key, wanted, seconds))
        if self.error is not None:
            raise self.error
        return pairing.pair(begins=self.clock.now(), key=key).certificate_pem

    async def recover(self, pair):
        return await recovery.recover(self.store, pair, self.kubeconfig, clock=self.clock, seconds=9)


@pytest.fixture
def machine(tmp_path, monkeypatch):
    return Machine(tmp_path, monkeypatch)


class TestExpired:
    def test_none_at_all(self, machine):
        with pytest.raises(errors.Refused) as refused:
            recovery.expired(machine.store, machine.clock)
        assert refused.value.reason == "NoCertificate"
        assert str(refused.value.hint).startswith("join this machine with: handfast join; ")

    def test_a_directory_that_is_none(self, machine):
        machine.store.directory.write_text("")
        with pytest.raises(errors.Refused) as refused:
            recovery.expired(machine.store, machine.clock)
        assert refused.value.reason == "NotADirectory"

    def test_none_that_can_be_read(self, machine):
        machine.store.save(pairing.pair(**EXPIRED)).write_text("broken")
        with pytest.raises(errors.Refused) as refused:
            recovery.expired(machine.store, machine.clock)
        assert "kubelet-client-" in refused.value.message

    def test_in_force(self, machine):
        machine.store.save(pairing.pair())
        assert recovery.expired(machine.store, machine.clock) is None

    def test_an_expired_pair_is_the_one_to_recover_by(self, machine):
        pair = pairing.pair(**EXPIRED)
        machine.store.save(pair)
        assert recovery.expired(machine.store, machine.clock) == pair


async def test_the_expired_pair_asks_for_its_successor(machine):
    old = pairing.pair(**EXPIRED)
    machine.store.save(old)
    new = await machine.recover(old)
    link, key, wanted, seconds = machine.asked[0]
    assert (link.cert_pem, link.key_pem, link.token) == (old.certificate_pem, old.key_pem, None)
    assert (wanted, seconds) == (wishes.node_client("n1"), 9)
    # A fresh key, and it is the current pair from now on.
    assert key.public != old.key.public
    assert machine.store.load() == new
    assert not machine.store.has_pending_key()


@pytest.mark.parametrize("reason", ["Unauthorized", "Forbidden"])
async def test_a_server_that_does_not_let_it(machine, reason):
    old = pairing.pair(**EXPIRED)
    machine.store.save(old)
    machine.error = status.StatusError(reason, "no such thing here")
    with pytest.raises(errors.Refused) as refused:
        await machine.recover(old)
    assert refused.value.reason == "NotRecoverable"
    assert "https://192.0.2.1:6443 does not let node n1 recover" in refused.value.message
    assert "no such thing here" in refused.value.message
    assert "handfast token create --print-join-command --ttl 1h --max-uses 1 --node n1" in str(refused.value.hint)
    assert machine.store.load() == old


@pytest.mark.parametrize(
    ("error", "kept"),
    [
        (status.StatusError("InternalError", "broken"), True),
        (errors.Unavailable("away", reason="Unreachable"), True),
        (errors.Refused("denied", reason="RequestDenied"), False),
        (errors.Refused("odd", reason="Other"), True),
    ],
)
async def test_other_failures_are_themselves(machine, error, kept):
    old = pairing.pair(**EXPIRED)
    machine.store.save(old)
    machine.error = error
    with pytest.raises(type(error)) as raised:
        await machine.recover(old)
    assert raised.value is error
    # The key of a request that will never be answered is of no more use.
    assert machine.store.has_pending_key() is kept


@pytest.mark.parametrize("name", ["kubernetes-admin", "system:node:"])
def test_only_a_nodes(name):
    key = keys.generate()
    subject = names.Subject(common_name=name)
    issued = pairing.CA.issue(key.public, subject, names.Sans(), profiles.CLIENT, START)
    with pytest.raises(errors.Refused) as refused:
        recovery.node_of(pairs.join(issued.pem, key))
    assert refused.value.reason == "NotANode"
