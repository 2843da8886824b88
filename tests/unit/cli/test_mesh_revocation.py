# SPDX-License-Identifier: Apache-2.0
"""Taking an identity back over the API: what is written, once, and what is told of it."""

from __future__ import annotations

from typing import Any

import pytest

from handfast import errors
from handfast.api import status
from handfast.cli import mesh_revocation
from handfast.cli.mesh_revocation import Target
from handfast.rules.ledger import entries, segments
from tests.unit.controllers.fake_api import FakeClient, failing
from tests.unit.rules.mesh.issued_cases import HOUR, NOW, entry
from tests.world.clock import MovableClock

CLOCK = MovableClock(NOW)
WEB = Target(kind="account", namespace="shop", name="web")
POD = Target(kind="pod", namespace="shop", name="web-1")


@pytest.fixture
def client() -> FakeClient:
    made = FakeClient()
    made.put("serviceaccounts", "web", "shop")
    made.put("pods", "web-1", "shop", metadata={"uid": "u-1"})
    rows = [
        entry(),
        entry(number=2, pod="shop/web-2/u-2/n1", lives=2 * HOUR),
        entry("db", number=3, pod="shop/gone/u-3/n1"),
    ]
    segment = segments.extended(segments.following(None, segments.MESH), [entries.encode(row) for row in rows])
    stored = (*segment.entries, "not an entry")
    made.put("issuancelogs", segment.name, spec={**segments.spec_of(segment), "entries": list(stored)})
    made.put("issuancelogs", "segment-0000000001", spec={"entries": ["x"], "sequence": 1})
    return made


async def revoke(client: FakeClient, target: Target, reason: str = "", expires: str = "") -> mesh_revocation.Outcome:
    return await mesh_revocation.revoke(client, CLOCK, target, reason, expires)


def spec(client: FakeClient, name: str) -> Any:
    return client.objects["revocations", "", name]["spec"]


async def test_an_account_is_refused_by_its_user_name(client):
    outcome = await revoke(client, WEB, "stolen", "2030-01-31T12:00:00Z")
    assert spec(client, "account-shop.web") == {
        "user": "system:serviceaccount:shop:web",
        "reason": "stolen",
        "expires": "2030-01-31T12:00:00Z",
    }
    assert (outcome.changed, outcome.known, outcome.reason) == (True, True, "stolen")
    assert [row.serial for row in outcome.certificates or ()] == ["02", "01"]
    again = await revoke(client, WEB, "stolen", "2030-01-31T12:00:00Z")
    assert not again.changed
    assert not (await revoke(client, Target(kind="account", namespace="shop", name="none"))).known


async def test_a_pod_is_refused_by_its_uid(client):
    outcome = await revoke(client, POD)
    assert spec(client, "pod-shop.web-1.u-1") == {"pod": {"namespace": "shop", "name": "web-1", "uid": "u-1"}}
    assert ([row.serial for row in outcome.certificates or ()], outcome.known) == (["01"], True)


async def test_a_pod_that_is_gone_is_known_by_the_ledger(client):
    outcome = await revoke(client, Target(kind="pod", namespace="shop", name="gone"))
    assert (outcome.target.uid, outcome.known) == ("u-3", False)
    with pytest.raises(errors.Refused) as refused:
        await revoke(client, Target(kind="pod", namespace="shop", name="never"))
    assert refused.value.reason == "NoSuchPod"
    assert refused.value.hint


async def test_a_certificate_is_refused_by_its_serial_number(client):
    outcome = await revoke(client, Target(kind="serial", name="1"))
    assert spec(client, "serial-1") == {"serialNumber": "1"}
    assert ([row.serial for row in outcome.certificates or ()], outcome.known) == (["01"], True)
    assert (await revoke(client, Target(kind="serial", name="ff"))).known is False


async def test_who_may_not_read_may_revoke_all_the_same(client):
    def forbid(_verb: str, plural: str, name: str) -> None:
        if plural in {"issuancelogs", "pods", "serviceaccounts"}:
            raise status.forbidden(plural, "", name, "no")

    client.before = forbid
    outcome = await revoke(client, WEB)
    assert (outcome.changed, outcome.known, outcome.certificates) == (True, None, None)
    assert (await revoke(client, Target(kind="serial", name="1"))).known is None
    with pytest.raises(errors.Refused) as refused:
        await revoke(client, POD)
    assert "or you may not read it" in refused.value.message


@pytest.mark.parametrize("plural", ["issuancelogs", "serviceaccounts"])
async def test_other_errors_are_passed_on(client, plural):
    client.before = failing(status.StatusError("InternalError", "broken"), plural=plural)
    with pytest.raises(status.StatusError):
        await revoke(client, WEB)


async def test_undoing_deletes_it_and_tells_of_others(client):
    await revoke(client, WEB)
    client.put("revocations", "by-hand", spec={"user": "system:serviceaccount:shop:web"})
    outcome = await mesh_revocation.undo(client, WEB)
    assert (outcome.changed, outcome.revocations, outcome.others) == (True, ["account-shop.web"], ["by-hand"])
    assert not (await mesh_revocation.undo(client, WEB)).changed


async def test_undoing_a_pod_is_about_every_pod_of_its_name(client):
    await revoke(client, POD)
    client.put("pods", "web-1", "shop", metadata={"uid": "u-9"})
    await revoke(client, POD)
    pod = {"namespace": "shop", "name": "web-1"}
    client.put("revocations", "by-hand", spec={"pod": pod})
    client.put("revocations", "by-uid", spec={"pod": {**pod, "uid": "u-9"}})
    client.put("revocations", "another", spec={"pod": {**pod, "name": "web-2"}})
    outcome = await mesh_revocation.undo(client, POD)
    assert list(outcome.revocations) == ["pod-shop.web-1.u-1", "pod-shop.web-1.u-9"]
    assert (outcome.changed, list(outcome.others)) == (True, ["by-hand", "by-uid"])
    again = await mesh_revocation.undo(client, POD)
    assert (again.changed, list(again.revocations)) == (False, [])


def test_no_two_are_called_alike_and_none_is_too_long():
    first = Target(kind="account", namespace="a-b", name="c").revocation
    assert first != Target(kind="account", namespace="a", name="b-c").revocation
    long = Target(kind="pod", namespace="n" * 63, name="p" * 253, uid="u" * 36)
    assert len(long.revocation) <= 253
    assert long.revocation.startswith("pod-")


@pytest.mark.parametrize(
    ("words", "target"),
    [
        (("shop/web", None, None), WEB),
        ((None, "shop/web-1", None), POD),
        ((None, None, "0A:1b"), Target(kind="serial", name="a1b")),
    ],
)
def test_what_is_typed_is_read(words, target):
    assert mesh_revocation.read(*words) == target


@pytest.mark.parametrize(
    "words",
    [
        (None, None, None),
        ("shop/web", "shop/web-1", None),
        ("shop/web", None, "1"),
        ("web", None, None),
        ("shop/", None, None),
        ("/web", None, None),
        ("a.b/web", None, None),
        ("shop/Web", None, None),
        ("shop/a/b", None, None),
        (None, "web-1", None),
        (None, None, ""),
        (None, None, "xyz"),
        (None, None, "f" * 41),
        ("", None, None),
    ],
)
def test_what_cannot_be_is_refused_with_a_next_step(words):
    with pytest.raises(errors.Refused) as refused:
        mesh_revocation.read(*words)
    assert refused.value.hint
