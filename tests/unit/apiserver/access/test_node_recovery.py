# SPDX-License-Identifier: Apache-2.0
"""Expired certificates of nodes: which let their holder ask for the next, and nothing else.

The names of the table in `apiserver/access/node_recovery.py` are here; the whole story over real TLS is in the scenarios.
"""

from __future__ import annotations

import datetime
from typing import Any, cast

import msgspec
import pytest

from handfast.api import objects
from handfast.apiserver import identity, request
from handfast.apiserver.access import authn, node_recovery, revocations
from handfast.apiserver.state import envelope, items, replica
from handfast.pki import bundles, certificates
from handfast.rules.ledger import entries, segments
from handfast.rules.nodes import recovery as rules
from handfast.serving import peer
from handfast.store import protocol
from tests.unit.apiserver.access.test_authn import subject
from tests.unit.pki.making import CLIENT, DAY, NOW, SERVER, Made, ca, leaf
from tests.unit.rules.ledger_cases import entry

ROOT = ca("root", not_before=NOW - 400 * DAY, not_after=NOW + 400 * DAY)
OTHER = ca("other", not_before=NOW - 400 * DAY, not_after=NOW + 400 * DAY)
WINDOW = 30 * DAY
CREATE = request.parse("POST", "/apis/certificates.k8s.io/v1/certificatesigningrequests")
USER = identity.User("system:node-recovery:a", ("system:node-recovery", "system:authenticated"))


def old(issuer: Made = ROOT, usage: Any = CLIENT, *groups: str, name: str = "system:node:a", ago: int = 1) -> Made:
    """A certificate that expired so many days ago."""
    until = NOW - ago * DAY
    return leaf(
        issuer, usage, subject=subject(name, *(groups or ("system:nodes",))), not_before=until - DAY, not_after=until
    )


class World:
    """A server's copy of the store, and its authenticator."""

    def __init__(self, *cas: Made) -> None:
        self.copy = replica.Replica(cast("protocol.Store", None), envelope.Envelopes(None, ()))
        self.denied = revocations.Revocations(self.copy)
        self.recovery = node_recovery.NodeRecovery(self.copy, self.denied, WINDOW)
        bundle = bundles.TrustBundle.of(made.der for made in cas or (ROOT,))
        self.authenticator = authn.Authenticator(bundle, deny_list=self.denied, recovery=self.recovery)
        self.put("core/nodes/", "a", at=NOW - 100 * DAY)
        self.denied.load()

    def put(self, prefix: str, name: str, namespace: str = "", **document: Any) -> None:
        meta = {"name": name, "creationTimestamp": objects.timestamp(document.pop("at", NOW))}
        given = {"apiVersion": "v1", "kind": "X", "metadata": meta, **document}
        item = items.Item(namespace, name, 1, envelope.encode_document(given))
        self.copy.collection(prefix).apply(namespace, name, item, 1)

    def record(self, *shown: Made, sequence: int = 1, at: datetime.datetime = NOW - 3 * DAY, **more: Any) -> None:
        """Have the ledger say that these were issued."""
        lines = [
            entries.encode(
                entry(
                    key_fingerprint=certificates.read(made.der).public_key.fingerprint,
                    **{"names": ("CN=system:node:a", "O=system:nodes"), **more},
                )
            )
            for made in shown
        ]
        segment = segments.extended(segments.Segment(sequence=sequence, previous=segments.GENESIS), lines)
        self.put("handfast.dev/issuancelogs/", segment.name, at=at, spec=segments.spec_of(segment))

    def ask(self, *chain: Made, info: request.RequestInfo | None = CREATE, header: str | None = None) -> identity.User:
        found = peer.Peer.of(tuple(made.der for made in chain), "192.0.2.1", "tls")
        return self.authenticator.authenticate(found, header, NOW, info)

    def refusal(self, *chain: Made, **more: Any) -> str:
        with pytest.raises(identity.Unauthorized) as caught:
            self.ask(*chain, **more)
        return caught.value.why


@pytest.fixture
def world() -> World:
    return World()


def test_a_node_comes_back(world: World) -> None:
    shown = old()
    world.record(shown)
    for _ in range(2):
        user = world.ask(shown)
        assert (user.name, user.groups) == (USER.name, USER.groups)
        assert (user.method, user.until) == ("node-recovery", NOW - DAY + WINDOW)
        facts = certificates.read(shown.der)
        assert (user.serial, user.key_fingerprint) == (facts.serial, facts.public_key.fingerprint)
        assert user.extra["authentication.kubernetes.io/node-name"] == ("a",)
    world.copy.collection("core/nodes/").buckets.clear()
    assert world.refusal(shown) == "NodeGone"


def test_only_so_many_are_remembered(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_recovery, "_REMEMBERED", 1)
    world.put("core/nodes/", "b", at=NOW - 100 * DAY)
    first, second = old(), old(name="system:node:b")
    world.record(first)
    world.record(second, sequence=2, names=("CN=system:node:b", "O=system:nodes"))
    for _ in range(2):
        assert world.ask(first).name == "system:node-recovery:a"
        assert world.ask(second).name == "system:node-recovery:b"
    assert len(world.recovery._known) == 1


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/api/v1/nodes/a"),
        ("GET", "/api/v1/pods"),
        ("GET", "/version"),
        ("DELETE", "/apis/certificates.k8s.io/v1/certificatesigningrequests/x"),
        ("PUT", "/apis/certificates.k8s.io/v1/certificatesigningrequests/x/approval"),
        ("GET", "/apis/certificates.k8s.io/v1/certificatesigningrequests/x/status"),
        ("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"),
    ],
)
def test_only_for_certificate_requests(world: World, method: str, path: str) -> None:
    shown = old()
    world.record(shown)
    assert world.refusal(shown, info=request.parse(method, path)) == "Expired"
    assert world.refusal(shown, info=None) == "Expired"
    assert world.refusal(shown, header="Bearer x") == "Expired"
    assert world.ask(shown).name == USER.name


def test_without_recovery_expired_is_expired(world: World) -> None:
    shown = old()
    world.record(shown)
    plain = authn.Authenticator(bundles.TrustBundle.of([ROOT.der]))
    with pytest.raises(identity.Unauthorized) as caught:
        plain.authenticate(peer.Peer.of((shown.der,), "192.0.2.1", "tls"), None, NOW, CREATE)
    assert caught.value.why == "Expired"


def test_who_else_does_not(world: World) -> None:
    for shown, why in (
        (old(ago=31), "Expired"),
        (old(name="kubernetes-admin"), "Expired"),
        (old(ROOT, CLIENT, "system:nodes", "system:masters"), "Expired"),
        (old(name="system:node:b"), "NodeGone"),
        (old(), "KeyNotOnRecord"),
    ):
        if why != "KeyNotOnRecord":
            world.record(shown)
        assert world.refusal(shown) == why
    world.record(shown, names=("CN=system:node:b", "O=system:nodes"))
    assert world.refusal(shown) == "KeyNotOnRecord"


def test_a_retired_ca(world: World) -> None:
    shown = old(OTHER)
    world.record(shown)
    assert world.refusal(shown) == "UnknownAuthority"
    both = World(ROOT, OTHER)
    both.record(shown)
    assert both.ask(shown).name == USER.name
    both.authenticator.trust(bundles.TrustBundle.of([ROOT.der]))
    assert both.refusal(shown) == "UnknownAuthority"


def test_a_ca_that_has_expired() -> None:
    gone = ca("gone", not_before=NOW - 400 * DAY, not_after=NOW - DAY / 2)
    world = World(gone, ROOT)
    shown = old(gone)
    world.record(shown)
    assert world.refusal(shown) == "UnknownAuthority"
    # … also where the certificate itself would still be in force.
    assert World(gone).refusal(old(gone, ago=-1)) in {"Expired", "UnknownAuthority"}


def test_an_intermediate_that_has_expired(world: World) -> None:
    good = ca("between", ROOT, not_before=NOW - 300 * DAY, not_after=NOW + DAY)
    ended = ca("between", ROOT, not_before=NOW - 300 * DAY, not_after=NOW - DAY / 2)
    for issuer, refused in ((good, False), (ended, True)):
        shown = old(issuer)
        world.record(shown)
        if refused:
            assert world.refusal(shown, issuer) == "Expired"
        else:
            assert world.ask(shown, issuer).name == USER.name


def test_a_serving_certificate(world: World) -> None:
    shown = old(ROOT, SERVER)
    world.record(shown)
    assert world.refusal(shown) in {"Expired", "WrongPurpose"}


def test_a_node_that_runs(world: World) -> None:
    shown = old()
    world.record(shown)
    renewed = objects.micro_timestamp(NOW - datetime.timedelta(seconds=5))
    spec = {"renewTime": renewed, "leaseDurationSeconds": 40}
    world.put("coordination.k8s.io/leases/", "a", "kube-node-lease", spec=spec)
    assert world.refusal(shown) == "NodeRunning"
    world.put("coordination.k8s.io/leases/", "a", "kube-node-lease", spec={})
    assert world.ask(shown).name == USER.name


@pytest.mark.parametrize("by", ["node", "user", "serialNumber", "keyFingerprint", "recovering user"])
def test_a_revoked_node_does_not_come_back(world: World, by: str) -> None:
    shown = old()
    world.record(shown)
    facts = certificates.read(shown.der)
    assert world.ask(shown).name == USER.name
    values = {
        "node": {"node": "a"},
        "user": {"user": "system:node:a"},
        "serialNumber": {"serialNumber": facts.serial},
        "keyFingerprint": {"keyFingerprint": f"sha256:{facts.public_key.fingerprint}"},
        "recovering user": {"user": USER.name},
    }
    world.put(revocations.PREFIX, "r", spec=values[by])
    assert world.refusal(shown) == "Revoked"


def test_a_copy_that_has_stopped(world: World) -> None:
    shown = old()
    world.record(shown)
    world.copy.failed = RuntimeError("stopped")
    assert world.refusal(shown) == "ReplicaStopped"


LEDGER = "handfast.dev/issuancelogs/"


@pytest.mark.parametrize("renewed", [NOW - 41 * DAY / 86400, NOW + DAY / 86400])
def test_a_renewed_node(world: World, renewed: datetime.datetime) -> None:
    """It has just been restarted, or its clock is ahead, and somebody has its old disk."""
    stolen = old(ago=20)
    current = leaf(ROOT, CLIENT, subject=subject("system:node:a", "system:nodes"), not_after=NOW + 300 * DAY)
    world.record(stolen, issued_at=NOW - 21 * DAY)
    assert world.ask(stolen).name == USER.name
    # What was let in before is not let in again.
    world.record(current, sequence=2, issued_at=NOW - DAY)
    spec = {"leaseDurationSeconds": 40, "renewTime": objects.micro_timestamp(renewed)}
    world.put("coordination.k8s.io/leases/", "a", "kube-node-lease", spec=spec)
    assert world.refusal(stolen) == ("NodeRunning" if renewed > NOW else "KeySuperseded")


def test_certificates_of_another_kind_are_no_successors(world: World) -> None:
    shown = old()
    world.record(shown)
    world.record(old(), sequence=2, signer="kubernetes.io/kubelet-serving")
    world.record(old(), sequence=3, names=("CN=system:node:a", "O=system:nodes", "DNS:a.example"))
    assert world.ask(shown).name == USER.name


def test_an_answer_that_was_lost(world: World) -> None:
    shown, fresh = old(), old()
    world.record(shown)
    asked: dict[str, Any] = {"requester": USER.name, "token_id": certificates.read(shown.der).fingerprint}
    world.record(fresh, sequence=2, issued_at=NOW - DAY / 24 / 10, **asked)
    assert world.ask(shown).name == USER.name
    world.record(fresh, sequence=3, issued_at=NOW - DAY / 24, **asked)
    assert world.refusal(shown) == "KeySuperseded"


def test_a_node_made_anew(world: World) -> None:
    shown = old(ago=20)
    world.record(shown)
    assert world.ask(shown).name == USER.name
    world.put("core/nodes/", "a", at=NOW - DAY)
    assert world.refusal(shown) == "NodeReplaced"


def test_the_ledger_is_read_through_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []

    class Pattern:
        def findall(self, body: bytes) -> list[bytes]:
            name = msgspec.json.decode(body)["metadata"]["name"]
            read.append(name.removeprefix("segment-000000000"))
            return named.findall(body)

    named = node_recovery._NAMED
    monkeypatch.setattr(node_recovery, "_NAMED", Pattern())
    shown = old()
    assert world.refusal(shown) == "KeyNotOnRecord"
    for sequence in range(1, 6):
        world.record(old(), sequence=sequence, names=(f"CN=system:node:n{sequence}", "O=system:nodes"))
    for _ in range(3):
        assert world.refusal(shown) == "KeyNotOnRecord"
    assert read == ["1", "2", "3", "4", "5"]
    # What may have changed since: the newest then, and those after it.
    world.record(old(), shown, sequence=5)
    world.record(old(), sequence=6, names=("CN=system:node:a1", "O=system:nodes"))
    assert world.ask(shown) == world.ask(shown)
    assert read[5:] == ["5", "6"]
    # What is deleted is forgotten.
    world.copy.collection(LEDGER).apply("", "segment-0000000001", None, 2)
    assert world.ask(shown).name == USER.name
    assert (read[7:], "n1" in world.recovery._index._segments) == (["2", "3", "4", "5", "6"], False)
    # One that goes in between, round all rules, is just not there.
    world.copy.collection(LEDGER).apply("", "segment-0000000005", None, 3)
    assert world.refusal(shown) == "KeyNotOnRecord"


def test_what_cannot_be_read(world: World) -> None:
    shown = old()
    world.record(shown)
    assert world.ask(shown).name == USER.name
    # Of others it says nothing; of this node it might be the newest.
    for name, why in (("ab", ""), ("a", "UnreadableLedger")):
        world.put(LEDGER, "segment-0000000002", spec={"entries": [f'x 1 {{"names":["CN=system:node:{name}"]}}']})
        if why:
            assert world.refusal(shown) == why
        else:
            assert world.ask(shown).name == USER.name


def test_the_group_is_the_servers_own(world: World) -> None:
    made = leaf(ROOT, CLIENT, subject=subject(USER.name, "system:node-recovery"))
    assert world.ask(made).groups == ("system:authenticated",)


def test_who_made_a_request(world: World) -> None:
    world.put(node_recovery.REQUEST_PREFIX, "mine", spec={"username": USER.name})
    owner = node_recovery.owner_of(world.copy)
    assert (owner("mine"), owner("none")) == (USER.name, None)
    assert rules.node_of(USER.name, USER.groups) == "a"
