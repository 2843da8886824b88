# SPDX-License-Identifier: Apache-2.0
"""One exchange: which key is asked for, what is stored, and what is left for the next attempt."""

from __future__ import annotations

import pytest

from handfast import errors
from handfast.client import requests
from handfast.node import certificate_store, renewal
from handfast.rules.certificates import wishes
from handfast.runtime import tls
from tests.unit.node import pairing
from tests.world.clock import MovableClock


class Exchange:
    def __init__(self, directory):
        self.clock = MovableClock()
        self.store = certificate_store.CertificateStore(directory, certificate_store.CLIENT, self.clock)
        self.keys = []
        self.error = None

    async def obtain(self, client, key, wanted, *, clock, seconds, on_waiting=None):
        assert (client, clock, seconds) == ("client", self.clock, 9)
        self.keys.append(key)
        assert self.store.has_pending_key()
        if self.error is not None:
            raise self.error
        return pairing.pair(key=key, sans=wanted.sans).certificate_pem

    async def renew(self):
        wanted = wishes.node_client("n1")
        return await renewal.renew(self.store, "client", wanted, clock=self.clock, seconds=9)  # type: ignore[arg-type]


@pytest.fixture
def exchange(tmp_path, monkeypatch):
    made = Exchange(tmp_path / "pki")
    monkeypatch.setattr(requests, "file_and_wait", made.obtain)
    return made


async def test_stored_with_its_key(exchange):
    pair = await exchange.renew()
    assert exchange.store.load() == pair
    assert not exchange.store.has_pending_key()
    assert (await exchange.renew()).key.public != pair.key.public


@pytest.mark.parametrize(
    ("error", "kept"),
    [
        (errors.Unavailable("away", reason="Unreachable"), True),
        (errors.Refused("odd", reason="Other"), True),
        *((errors.Refused("no", reason=reason), False) for reason in sorted(requests.KEY_IS_SPENT)),
    ],
)
async def test_a_failure_keeps_the_key_unless_it_is_spent(exchange, error, kept):
    exchange.error = error
    with pytest.raises(type(error)) as raised:
        await exchange.renew()
    assert raised.value is error
    assert exchange.store.has_pending_key() is kept
    exchange.error = None
    await exchange.renew()
    assert (exchange.keys[0].public == exchange.keys[1].public) is kept


async def test_what_tls_does_not_take_is_not_stored(exchange, monkeypatch):
    def refuse(*_):
        raise errors.Refused("no")

    monkeypatch.setattr(tls, "load_pair", refuse)
    with pytest.raises(errors.Refused) as refused:
        await exchange.renew()
    assert refused.value.reason == "WrongCertificate"
    assert (exchange.store.load(), exchange.store.has_pending_key()) == (None, False)
