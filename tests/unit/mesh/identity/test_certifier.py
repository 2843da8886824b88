# SPDX-License-Identifier: Apache-2.0
"""Certify from the message to the answer: what is asked of whom, in which order, and what a refusal says."""

from __future__ import annotations

import asyncio
import datetime

import pytest
import structlog

from handfast import errors
from handfast.api import status
from handfast.client import partial, revoked
from handfast.mesh.identity import turns
from handfast.pki import bundles, certificates, chains, pem
from handfast.rules.ledger import segments
from handfast.rules.mesh import issuer
from handfast.wire import server
from tests.unit.mesh.identity import identity_world
from tests.unit.mesh.identity.identity_world import NAME, NOW, World
from tests.world.clock import settle


async def refusal(world: World, *arguments, **more) -> tuple[str, str]:
    with pytest.raises(server.Refusal) as refused:
        await world.certify(*arguments, **more)
    return refused.value.code, refused.value.message


async def test_a_good_call_is_answered_with_a_chain_that_verifies():
    world = World()
    world.install()
    async with world.running():
        answer = await world.certify()
    chain = [answer.leaf_certificate, *answer.intermediate_certificates]
    anchors = bundles.TrustBundle.of(pem.certificates_from_pem(world.material.anchors))
    verified = chains.verify(chain, anchors, chains.Client(), NOW)
    chains.verify(chain, anchors, chains.Server(NAME), NOW)
    assert verified.sans.texts() == [f"DNS:{NAME}"]
    assert answer.valid_until.seconds == int(verified.not_after.timestamp())
    (entry,) = world.entries()
    assert entry.certificate == certificates.fingerprint(answer.leaf_certificate)
    assert {segment.chain for segment in _segments(world)} == {segments.MESH}


def _segments(world: World) -> list[segments.Segment]:
    return [segments.read(value) for key, value in world.client.objects.items() if key[0] == "issuancelogs"]


async def test_before_there_is_an_issuer_everybody_is_told_to_wait():
    world = World()
    assert await refusal(world) == ("UNAVAILABLE", "cert issuer not ready yet")


async def test_where_identity_is_switched_off_nothing_is_signed():
    world = World()
    world.install(enabled=False, default_enabled=False)
    async with world.running():
        assert await refusal(world) == ("UNAVAILABLE", "cert issuer not ready yet")
        assert "switched off" in world.trust.why_not


@pytest.mark.parametrize(
    ("identity", "token", "csr", "text"),
    [
        ("", b"t", None, "missing identity"),
        (NAME, b"", None, "missing token"),
        (NAME, b"t", b"", "missing certificate signing request"),
    ],
)
async def test_what_the_message_shows_is_refused_before_the_api_server_is_asked(identity, token, csr, text):
    world = World()
    world.install()
    async with world.running():
        assert await refusal(world, identity, token, csr) == ("INVALID_ARGUMENT", text)
    assert world.client.specs == []


async def test_an_issuer_that_has_expired_signs_nothing():
    world = World()
    world.install()
    async with world.running():
        await world.clock.advance(400 * 86400)
        code, text = await refusal(world)
    assert code == "UNKNOWN"
    assert "Invalid After" in text


async def test_the_token_is_reviewed_for_the_audience_of_the_service_alone():
    world = World()
    world.install()
    world.client.status = {"error": "token audiences [a] is invalid for the target audiences [identity.l5d.io]"}
    async with world.running():
        code, text = await refusal(world)
    assert (code, text) == ("INVALID_ARGUMENT", world.client.status["error"])
    assert world.client.specs == [{"token": "t0ken", "audiences": ["identity.l5d.io"]}]


async def test_by_setting_a_token_for_the_api_is_accepted():
    world = World()
    world.install(accept_api_audience=True)
    world.client.answers = [{"error": "no"}, {**world.client.status, "audiences": ["https://kubernetes"]}]
    async with world.running():
        assert (await world.certify()).leaf_certificate
    assert world.client.specs[1] == {"token": "t0ken"}


async def test_a_review_that_fails_is_internal_and_one_that_has_to_wait_says_so():
    world = World()
    world.install()
    async with world.running():
        world.refuse(errors.Unavailable("no answer"), "tokenreviews")
        assert await refusal(world) == ("INTERNAL", f"error validating token for {NAME}: no answer")
        world.refuse(status.StatusError("Forbidden", "not you"), "tokenreviews")
        assert (await refusal(world))[0] == "INTERNAL"
        world.refuse(status.StatusError("TooManyRequests", "later"), "tokenreviews")
        assert await refusal(world) == ("RESOURCE_EXHAUSTED", "later")


async def test_another_accounts_name_is_refused_and_nothing_is_written():
    world = World()
    world.install()
    other = NAME.replace("web", "db")
    async with world.running():
        code, text = await refusal(world, other)
    assert code == "FAILED_PRECONDITION"
    assert text == f"requested identity did not match provided token: requested={other}; found={NAME}"
    assert world.entries() == []


async def test_nothing_is_handed_out_that_is_not_in_the_ledger():
    world = World()
    world.install()
    async with world.running():
        world.refuse(errors.Unavailable("the disk is full"), "issuancelogs")
        assert await refusal(world) == ("UNAVAILABLE", "the disk is full")
        assert world.entries() == []


async def test_who_is_revoked_is_refused_from_that_moment_on():
    world = World()
    world.install()
    async with world.running():
        await world.certify()
        meta = partial.Meta(name="r", resource_version="1")
        world.revocations.put(revoked.Revocation(meta, {"user": identity_world.USER}))
        assert (await refusal(world))[0] == "FAILED_PRECONDITION"


async def test_nothing_is_signed_while_revocations_cannot_be_read():
    world = World()
    world.install()
    async with world.running():
        world.revocations.refused("revocations is forbidden")
        code, text = await refusal(world)
    assert code == "UNAVAILABLE"
    assert "whether it is revoked cannot be read" in text


async def test_nothing_is_signed_before_revocations_were_listed():
    world = World()
    world.install()
    world.revocations._synced.clear()
    async with world.running():
        assert (await refusal(world))[0] == "UNAVAILABLE"
        assert world.entries() == []
        world.revocations.end()
        await world.certify()


async def test_a_revocation_that_comes_while_it_is_signed_counts():
    world = World()
    world.install()

    def meanwhile(_verb: str, plural: str, _name: str) -> None:
        if plural == "issuancelogs":
            meta = partial.Meta(name="r", resource_version="1")
            world.revocations.put(revoked.Revocation(meta, {"user": identity_world.USER}))

    async with world.running():
        world.client.before = meanwhile
        assert (await refusal(world))[0] == "FAILED_PRECONDITION"
        # It is written down, so that the deny list has it; and nobody has it.
        assert len(world.entries()) == 1


async def test_a_full_line_is_told_when_to_come_again():
    world = World(turns.Turns(at_once=0, waiting=0))
    world.install()
    async with world.running():
        with pytest.raises(server.Refusal) as refused:
            await world.certify()
    assert (refused.value.code, refused.value.retry_ms) == ("RESOURCE_EXHAUSTED", 1000)


async def test_what_is_too_large_does_not_wait_for_its_turn():
    world = World(turns.Turns(at_once=0, waiting=8))
    world.install()
    async with world.running(), asyncio.timeout(10):
        code, text = await refusal(world, token=b"x" * (1 << 20))
    assert (code, text) == ("INVALID_ARGUMENT", "token: it has 1048576 bytes; at most 16384 are allowed")


async def test_one_token_does_not_fill_the_ledger(monkeypatch):
    monkeypatch.setattr("handfast.mesh.identity.certifier.AT_ONCE", 2)
    world = World()
    world.install()
    async with world.running():
        for _ in range(2):
            await world.certify()
        code, text = await refusal(world)
        assert (code, text) == ("RESOURCE_EXHAUSTED", "too many certificates for this token; try again later")
        assert len(world.entries()) == 2
        # Another token of the same account is another one.
        (user,) = [world.client.status["user"]]
        user["extra"] = {**user.get("extra", {}), "authentication.kubernetes.io/credential-id": ["JTI=other"]}
        await world.certify()
        assert len(world.entries()) == 3


async def test_no_line_of_the_log_has_the_token():
    world = World()
    world.install()
    with structlog.testing.capture_logs() as lines:
        async with world.running():
            await world.certify()
            world.client.status = {"error": "invalid bearer token"}
            await refusal(world)
    said = [line["event"] for line in lines]
    assert said.count("issued certificate") == 1
    assert "certificate refused" in said
    assert "t0ken" not in repr(lines)


async def test_a_new_issuer_signs_from_the_next_call_on_and_a_bad_one_never():
    world = World()
    world.install()
    second = issuer.generate(NOW)
    both = world.material.anchors + second.anchors
    async with world.running():
        first = await world.certify()
        # The key of another: the old one stays.
        world.install(issuer.Material(second.certificate, world.material.key, both))
        await settle()
        assert (await world.certify()).intermediate_certificates == first.intermediate_certificates
        world.install(issuer.Material(second.certificate, second.key, both))
        await settle()
        swapped = await world.certify()
    assert swapped.intermediate_certificates[0] == pem.certificates_from_pem(second.certificate)[0]
    events = [event for event in world.events() if event[0] != "IssuedLeafCertificate"]
    assert [reason for reason, _ in events] == ["IssuerUpdateSkipped", "IssuerUpdated"]
    assert "IssuerKeyMismatch" in events[0][1]
    assert "the one before stays in use" in events[0][1]


async def test_what_is_not_installed_is_named():
    world = World()
    async with world.running():
        for name in ("linkerd-config", "linkerd-trust-anchor", "linkerd-identity-signing"):
            world.informer(name).end()
        await settle()
        assert "linkerd-config" in world.trust.why_not
        world.install()
        await settle()
        assert world.trust.why_not == ""
        assert (await world.certify()).leaf_certificate


async def test_the_seconds_that_are_left_are_measured():
    world = World()
    assert world.trust._left("issuer") == 0
    world.install()
    async with world.running():
        year = datetime.timedelta(days=365).total_seconds()
        assert year * 0.9 < world.trust._left("issuer") <= year
        assert world.trust._left("anchor") > 9 * year
