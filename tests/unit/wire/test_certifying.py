# SPDX-License-Identifier: Apache-2.0
"""One call of Certify, on real sockets: who is called, and which answers are used."""

from __future__ import annotations

import datetime

import pytest

from handfast import errors
from handfast.pki import keys, names, pairs, pem, requests
from handfast.rules.mesh import issuer
from handfast.runtime import addresses
from handfast.wire import certifying, mesh_messages
from tests.unit.wire import identity_service
from tests.unit.wire.identity_service import DAY, IdentityService
from tests.world.clock import START

OWN = "web.shop.sa.linkerd-identity.linkerd.cluster.local"
KEY = keys.generate()
CSR = pem.one(requests.build(names.Subject(), names.Sans(dns=(OWN,)), KEY), pem.CERTIFICATE_REQUEST)
REQUEST = certifying.Request(OWN, b"not-to-be-printed", CSR)


async def certified(
    world: IdentityService, address: addresses.Address, name: str | None = None
) -> certifying.Certified:
    service = certifying.Service(str(address), name)
    return await certifying.certify(service, REQUEST, world.anchors, clock=world.clock, pair=None, seconds=10)


def test_the_token_is_not_printed():
    assert "not-to-be-printed" not in repr(REQUEST)


async def test_a_workload_is_certified_in_plaintext_on_loopback_and_through_tls():
    world = IdentityService()
    async with world.serving() as plain, world.serving(identity_service.NAME) as door:
        for answer in [await certified(world, plain), await certified(world, door, identity_service.NAME)]:
            pair = pairs.Pair(answer.chain, KEY)
            assert pair.leaf.sans.dns == (OWN,)
            assert answer.until == pair.leaf.not_after
    assert world.tokens == [REQUEST.token] * 2


async def test_without_a_name_only_loopback_is_called():
    with pytest.raises(errors.Refused) as refused:
        await certified(IdentityService(), addresses.Address("192.0.2.1", 8080))
    assert refused.value.reason == "PlaintextNotLoopback"


@pytest.mark.parametrize("shown", [OWN, "*.linkerd.sa.linkerd-identity.linkerd.cluster.local"])
async def test_a_false_service_is_told_nothing(shown):
    world = IdentityService()
    async with world.serving(shown) as address:
        with pytest.raises(errors.Unavailable, match="is not believed"):
            await certified(world, address, identity_service.NAME)
    assert world.tokens == []


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("FAILED_PRECONDITION", "CertificateRefused"),
        ("INVALID_ARGUMENT", "CertificateRefused"),
        ("INTERNAL", "CallFailed"),
    ],
)
async def test_a_no_is_told_apart_from_what_may_pass(code, reason):
    world = IdentityService()
    world.is_down, world.says_no = True, (code, "the account is revoked")
    async with world.serving() as address:
        with pytest.raises((errors.Refused, errors.Unavailable), match="the account is revoked") as refused:
            await certified(world, address)
    assert refused.value.reason == reason


async def test_it_ends_when_the_answer_says_so():
    world = IdentityService()
    world.says = int((START + DAY / 2).timestamp())
    async with world.serving() as address:
        answer = await certified(world, address)
    assert answer.until == START + DAY / 2


WRONG = {
    "of another CA": ({"signing": issuer.generate(START)}, "UnknownAuthority"),
    "another's": ({"names": ("api.shop.sa.linkerd-identity.linkerd.cluster.local",)}, "WrongName"),
    "a wildcard": ({"names": ("*.shop.sa.linkerd-identity.linkerd.cluster.local",)}, "BadCertifyAnswer"),
    "one name more": ({"names": (OWN, "api.example")}, "BadCertifyAnswer"),
    "without an end": ({"says": 0}, "BadCertifyAnswer"),
    "said to be over": ({"says": int(START.timestamp()) - 1}, "BadCertifyAnswer"),
}


@pytest.mark.parametrize(("faults", "reason"), WRONG.values(), ids=WRONG)
async def test_an_answer_that_cannot_be_used_is_refused(faults, reason):
    world = IdentityService()
    for name, value in faults.items():
        setattr(world, name, value)
    async with world.serving() as address:
        with pytest.raises(errors.Refused) as refused:
            await certified(world, address)
    assert refused.value.reason == reason


async def test_a_certificate_that_is_over_is_refused():
    world = IdentityService()
    world.lifetime = datetime.timedelta(seconds=60)
    async with world.serving() as address:
        answer = await certified(world, address)
    message = mesh_messages.CertifyResponse(
        leaf_certificate=answer.chain[0],
        intermediate_certificates=answer.chain[1:],
        valid_until={"seconds": int((START + DAY).timestamp())},
    )
    with pytest.raises(errors.Refused) as refused:
        certifying.judged(message, OWN, world.anchors, START + DAY / 2)
    assert refused.value.reason == "Expired"
