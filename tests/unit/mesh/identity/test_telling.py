# SPDX-License-Identifier: Apache-2.0
"""The Events of Certify: one for each account, a few at a time, and none that a call waits for."""

from __future__ import annotations

import datetime

import pytest

from handfast import errors
from handfast.mesh.identity import telling
from handfast.pki import certificates
from handfast.pki import names as pki_names
from handfast.rules.mesh import certify, names
from handfast.wire import server
from tests.unit.mesh.identity import identity_world
from tests.unit.mesh.identity.identity_world import NAME, NOW
from tests.world.clock import settle


async def test_an_account_has_one_event_that_counts_its_certificates():
    world = identity_world.World()
    world.install()
    async with world.running():
        first = await world.certify()
        await settle(20)
        event = world.event("IssuedLeafCertificate")
        digest = certificates.fingerprint(first.leaf_certificate)
        assert event["message"] == f"issued certificate for {NAME} until 2030-01-01T23:59:40Z: {digest}"
        assert event["involvedObject"] == {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "name": "web",
            "namespace": "shop",
            "uid": "u",
        }
        for _ in range(11):
            last = await world.certify()
        await settle(20)
        # Not before its time has come.
        assert world.event("IssuedLeafCertificate")["count"] == 1
        await world.clock.advance(telling.EVERY_SECONDS)
        await settle(20)
        event = world.event("IssuedLeafCertificate")
        assert event["count"] == 12
        digest = certificates.fingerprint(last.leaf_certificate)
        assert event["message"] == f"issued 11 certificates for {NAME}, the last until 2030-01-01T23:59:40Z: {digest}"
    writes = [call for call in world.client.calls if call[1] == "events"]
    assert len(writes) == 2


class Gathering(identity_world.World):
    """Certificates of many accounts, without the calls that they came of."""

    def issue(self, count: int) -> None:
        trust = self.trust.current
        assert trust is not None
        issued = trust.issuer.authority.issue(
            trust.issuer.certificate.public_key,
            pki_names.Subject(),
            pki_names.make_sans(dns=["a.test"]),
            certify.profile(trust.settings, trust.issuer, NOW),
            NOW,
        )
        for number in range(count):
            account = names.Account(namespace="shop", name=f"web-{number}", uid=f"u{number}")
            review = certify.Reviewed(account=account, username=f"system:serviceaccount:shop:web-{number}")
            self.telling.issued(review, f"web-{number}.test", issued)


async def test_a_storm_is_told_a_few_accounts_at_a_time():
    world = Gathering()
    world.install()
    async with world.running():
        world.issue(25)
        counts = []
        for _ in range(4):
            await settle(60)
            counts.append(len(world.events()))
            await world.clock.advance(telling.EVERY_SECONDS)
    assert counts == [10, 20, 25, 25]


async def test_of_accounts_that_wait_there_are_so_many_and_the_rest_is_counted(monkeypatch):
    monkeypatch.setattr(telling, "MOST_WAITING", 5)
    before = telling.LEFT_OUT._value.get()
    world = Gathering()
    world.install()
    async with world.running():
        world.issue(8)
        await settle(60)
        assert len(world.events()) == 5
    assert telling.LEFT_OUT._value.get() == before + 3


async def test_an_event_that_cannot_be_written_fails_no_call():
    world = identity_world.World()
    world.install()
    world.refuse(errors.Unavailable("no"), "events")
    async with world.running():
        assert (await world.certify()).leaf_certificate
        await settle(20)
        assert (await world.certify()).leaf_certificate
    assert world.events() == []


async def test_an_issuer_that_may_not_sign_is_told_once_a_minute():
    world = identity_world.World()
    world.install()
    async with world.running():
        world.clock.set_wall(datetime.timedelta(days=400).total_seconds())
        for _ in range(3):
            with pytest.raises(server.Refusal) as caught:
                await world.certify()
            assert caught.value.code == "UNKNOWN"
            await world.clock.advance(telling.EVERY_SECONDS)
            await settle(20)
        event = world.event("IssuerValidationFailed")
        assert (event["type"], event["count"]) == ("Warning", 1)
        assert event["involvedObject"]["name"] == "linkerd-identity-signing"
        assert "expired" in event["message"]
        await world.clock.advance(60)
        await settle(20)
        assert world.event("IssuerValidationFailed")["count"] >= 1
