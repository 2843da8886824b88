# SPDX-License-Identifier: Apache-2.0
"""What is signed, what fails, what is retried, and that nothing is handed out before it is in the ledger."""

from __future__ import annotations

import base64
import datetime
import pathlib
from typing import Any

import pytest

from handfast import errors
from handfast.api import signer_names
from handfast.client import cache, partial, revoked
from handfast.controllers import loop
from handfast.controllers.certificates import authorities as signing_authorities
from handfast.controllers.certificates import signer
from handfast.pki import authority, certificates, keys, names, pem, profiles
from handfast.rules.ledger import entries
from tests.unit.controllers.csr_world import PLURAL, SERVING, START, key
from tests.unit.controllers.csr_world import World as Base

SANS = names.make_sans(dns=["n1.example"])
HOUR = datetime.timedelta(hours=1)


class FakeLedger:
    """A ledger that remembers, or refuses."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.entries: list[entries.Entry] = []
        self.error: errors.HandfastError | None = None

    async def append(self, entry: entries.Entry) -> None:
        # Nothing may be out when this is called.
        assert not self.world.stored(entry.request).get("status", {}).get("certificate")
        if self.error is not None:
            raise self.error
        self.entries.append(entry)


class World(Base):
    def __init__(self, directory: pathlib.Path, longest: datetime.timedelta = profiles.YEAR, **ca: Any) -> None:
        super().__init__()
        ca_key = keys.generate(keys.Kind.P256)
        made = authority.self_signed_ca(
            names.Subject(common_name="ca"), ca_key, ca.get("since", START - HOUR), ttl=ca.get("ttl")
        )
        pair_files = signing_authorities.Files(certificate=directory / "ca.crt", key=directory / "ca.key")
        pair_files.certificate.write_bytes(made.pem)
        pair_files.key.write_bytes(ca_key.to_pem())
        pair_files.key.chmod(0o600)
        which = ca.get("signers", signer_names.SIGNERS)
        authorities = signing_authorities.SigningAuthorities(dict.fromkeys(which, pair_files), self.clock)
        context = loop.Context(client=self.client, informers=cache.Informers(self.client, self.clock), clock=self.clock)
        self.ledger = FakeLedger(self)
        self.revoked = cache.Informer(revoked.SOURCE)
        self.handler = signer.CsrSigner(
            context,
            self.requests,
            authorities,
            self.ledger,  # type: ignore[arg-type]
            longest,
            revoked.Revoked(self.revoked),
        )

    async def sign(self, *conditions: str, **more: Any) -> None:
        self.add("x", *conditions or ("Approved",), **more)
        assert await self.handler.reconcile("x") is None

    def certificate(self) -> certificates.Certificate:
        text = self.stored()["status"]["certificate"]
        return certificates.read(pem.one(base64.b64decode(text), pem.CERTIFICATE))

    def updates(self) -> list[tuple[str, str, str]]:
        return [call for call in self.client.calls if call[1] == PLURAL]


SIGNED = [
    pytest.param({}, id="kubelet client"),
    pytest.param({"usages": ["digital signature", "key encipherment", "client auth"]}, id="kubelet client, RSA"),
    pytest.param(
        {"signerName": signer_names.KUBELET_SERVING, "usages": list(SERVING), "sans": SANS}, id="kubelet serving"
    ),
    pytest.param(
        {"signerName": signer_names.KUBE_APISERVER_CLIENT, "usages": ["client auth"], "common_name": "ann"},
        id="API server client",
    ),
    pytest.param(
        {"signerName": signer_names.LEGACY_UNKNOWN, "usages": ["any", "code signing"], "common_name": "ann"},
        id="legacy",
    ),
]


@pytest.mark.parametrize("more", SIGNED)
async def test_an_approved_request_gets_what_it_asked_for(tmp_path: pathlib.Path, more: dict[str, Any]) -> None:
    world = World(tmp_path)
    await world.sign(**more)
    issued = world.certificate()
    spec = world.stored()["spec"]
    assert issued.usages == frozenset(spec["usages"])
    assert (issued.sans, issued.is_ca, issued.issuer) == (more.get("sans", names.Sans()), False, "CN=ca")
    assert issued.public_key.spki == key().public.spki
    assert (issued.not_before, issued.not_after) == (
        START - datetime.timedelta(minutes=5),
        START + profiles.YEAR - datetime.timedelta(minutes=5),
    )
    assert world.updates() == [("update status", PLURAL, "x")]
    assert world.conditions() == [("Approved", "Test", "m")]
    assert world.ledger.entries == [
        entries.Entry(
            issued_at=START,
            signer=spec["signerName"],
            requester="joiner",
            authenticated_by="unknown",
            token_id="",
            key_fingerprint=key().public.fingerprint,
            serial=issued.serial,
            names=entries.names_of(issued.subject, issued.sans),
            not_after=issued.not_after,
            rule="ByHand: Test",
            request="x",
            certificate=issued.fingerprint,
        )
    ]
    # Done is done.
    assert await world.handler.reconcile("x") is None
    assert len(world.updates()) == 1


@pytest.mark.parametrize(
    ("more", "message"),
    [
        pytest.param({"organizations": ["a"]}, "subject organization is not system:nodes", id="organization"),
        pytest.param({"common_name": "a"}, "subject common name does not begin with system:node:", id="common name"),
        pytest.param({"sans": SANS}, "DNS subjectAltNames are not allowed", id="a name in a client certificate"),
        pytest.param(
            {"signerName": signer_names.KUBELET_SERVING, "usages": list(SERVING)},
            "DNS or IP subjectAltName is required",
            id="no name in a serving certificate",
        ),
        pytest.param(
            {"signerName": signer_names.KUBE_APISERVER_CLIENT, "usages": ["server auth"]},
            "invalid usage for client certificate: server auth",
            id="a server by the client signer",
        ),
        pytest.param(
            {"signerName": signer_names.KUBE_APISERVER_CLIENT, "usages": ["digital signature"]},
            "missing required usage for client certificate: client auth",
            id="no client",
        ),
        pytest.param(
            {"signerName": signer_names.KUBE_APISERVER_CLIENT, "common_name": "", "organizations": []},
            "a certificate needs a subject or an alternative name",
            id="nobody",
        ),
        pytest.param({"request": "junk"}, "text outside a block", id="unreadable"),
    ],
)
async def test_what_may_not_be_signed_fails_with_its_reason(
    tmp_path: pathlib.Path, more: dict[str, Any], message: str
) -> None:
    world = World(tmp_path)
    await world.sign(**more)
    (approved, (kind, reason, said)) = world.conditions()
    assert (approved[0], kind, reason) == ("Approved", "Failed", "SignerValidationFailure")
    assert message in said
    assert "certificate" not in world.stored()["status"]
    assert (world.ledger.entries, world.updates()) == ([], [("update status", PLURAL, "x")])


@pytest.mark.parametrize(
    ("conditions", "more"),
    [
        pytest.param(("Other",), {}, id="not approved"),
        pytest.param(("Approved", "Denied"), {}, id="denied too"),
        pytest.param(("Approved", "Failed"), {}, id="failed"),
        pytest.param(("Approved",), {"certificate": "c"}, id="issued"),
        pytest.param(("Approved",), {"signerName": "example.com/x"}, id="another's signer"),
        pytest.param(("Approved",), {"signerName": signer_names.KUBELET_SERVING}, id="a signer without a CA"),
    ],
)
async def test_not_its_business(tmp_path: pathlib.Path, conditions: tuple[str, ...], more: dict[str, Any]) -> None:
    world = World(tmp_path, signers=[signer_names.KUBELET_CLIENT])
    await world.sign(*conditions, **more)
    assert (world.client.calls, world.ledger.entries) == ([], [])


@pytest.mark.parametrize(
    ("asked", "longest", "lives"),
    [
        pytest.param(1800, HOUR, 1800, id="30 m"),
        pytest.param(10800, HOUR, 3600, id="3 h of at most 1 h"),
        pytest.param(599, HOUR, 600, id="9 m 59 s"),
        pytest.param(600, HOUR, 600, id="10 m"),
        pytest.param(None, HOUR, 3600, id="nothing said"),
        pytest.param(None, 24 * HOUR, 24 * 3600 - 300, id="a long one counts its backdating"),
    ],
)
async def test_a_certificate_lives_no_longer_than_it_was_asked_for_or_allowed(
    tmp_path: pathlib.Path, asked: int | None, longest: datetime.timedelta, lives: int
) -> None:
    world = World(tmp_path, longest)
    await world.sign(**({} if asked is None else {"expirationSeconds": asked}))
    assert (world.certificate().not_after - START).total_seconds() == lives


async def test_the_ledger_names_the_token(tmp_path: pathlib.Path) -> None:
    world = World(tmp_path)
    await world.sign(username="system:bootstrap:abcdef")
    (entry,) = world.ledger.entries
    assert (entry.authenticated_by, entry.token_id) == ("bootstrap-token", "abcdef")


async def test_it_ends_with_its_ca(tmp_path: pathlib.Path) -> None:
    world = World(tmp_path, 48 * HOUR, ttl=24 * HOUR, since=START)
    await world.sign()
    assert world.certificate().not_after == START + 24 * HOUR - datetime.timedelta(minutes=5)


async def test_an_expired_ca_is_told_of_once_and_retried(tmp_path: pathlib.Path) -> None:
    world = World(tmp_path, since=START - 48 * HOUR, ttl=24 * HOUR)
    for _ in range(2):
        with pytest.raises(errors.Unavailable, match="the signer has expired: NotAfter=2029-12-3"):
            await world.sign()
    assert [reason for reason, _ in world.events()] == ["SignerExpired"]
    assert (world.updates(), world.ledger.entries) == ([], [])
    # Another of the same name is told of, too.
    world.handler.forget("x")
    with pytest.raises(errors.Unavailable):
        await world.handler.reconcile("x")
    counts = [row["count"] for (plural, _, _), row in world.client.objects.items() if plural == "events"]
    assert counts == [2]


async def test_without_the_ledger_nothing_is_handed_out(tmp_path: pathlib.Path) -> None:
    world = World(tmp_path)
    world.ledger.error = errors.Unavailable("no room", reason="NoSpace")
    with pytest.raises(errors.Unavailable, match="no room"):
        await world.sign()
    assert (world.updates(), [reason for reason, _ in world.events()]) == ([], ["NoSpace"])
    world.ledger.error = None
    assert await world.handler.reconcile("x") is None
    assert len(world.ledger.entries) == 1


async def test_a_lost_race_leaves_an_entry_and_no_event(tmp_path: pathlib.Path) -> None:
    world = World(tmp_path)
    world.add("x", "Approved")
    world.stored()["metadata"]["resourceVersion"] = "99"
    with pytest.raises(errors.Refused) as caught:
        await world.handler.reconcile("x")
    assert (caught.value.reason, len(world.ledger.entries), world.events()) == ("Conflict", 1, [])


async def test_deleted_just_then(tmp_path: pathlib.Path) -> None:
    world = World(tmp_path)

    def go(verb: str, *_: str) -> None:
        if verb == "update":
            world.client.objects.clear()

    world.client.before = go
    await world.sign()
    assert world.client.objects == {}


async def test_a_failure_to_say_failed_is_retried(tmp_path: pathlib.Path) -> None:
    world = World(tmp_path)
    world.add("x", "Approved", organizations=["a"])
    world.stored()["metadata"]["resourceVersion"] = "99"
    with pytest.raises(errors.Refused) as caught:
        await world.handler.reconcile("x")
    assert caught.value.reason == "Conflict"


async def test_nothing_is_signed_in_a_revoked_name(tmp_path: pathlib.Path) -> None:
    """Whoever approved it: the entry of the ledger comes with the signature, and there is neither."""
    world = World(tmp_path)
    world.revoked.put(revoked.Revocation(partial.Meta("gone"), {"node": "n1", "reason": "stolen"}))
    await world.sign()
    (failed,) = [row for row in world.conditions() if row[0] == "Failed"]
    assert failed[1:] == ("Revoked", 'user "system:node:n1" is refused by Revocation "gone"')
    assert (world.ledger.entries, world.stored()["status"].get("certificate")) == ([], None)


async def test_nothing_is_signed_while_revocations_may_not_be_read(tmp_path: pathlib.Path) -> None:
    world = World(tmp_path)
    world.revoked.refused("revocations is forbidden: no right")
    world.add("x", "Approved")
    for _ in range(2):
        with pytest.raises(revoked.RevocationsForbidden, match="no right"):
            await world.handler.reconcile("x")
    assert [reason for reason, _ in world.events()] == ["RevocationsForbidden"]
    assert (world.ledger.entries, world.stored()["status"].get("certificate")) == ([], None)
    world.revoked.refused("")
    await world.handler.reconcile("x")
    assert world.stored()["status"]["certificate"]
