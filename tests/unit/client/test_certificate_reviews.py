# SPDX-License-Identifier: Apache-2.0
"""What is asked of the API before a node's request is approved. What comes of it: tests of the approver."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from handfast import errors
from handfast.api import signer_names
from handfast.bootstrap import cluster_info
from handfast.client import certificate_reviews
from handfast.pki import names
from handfast.rules import decision
from handfast.rules.certificates import kubelet
from tests.unit.controllers.csr_world import SERVING, World
from tests.unit.rules.csr_cases import ROOT


def facts(**more: Any) -> kubelet.Facts:
    world = World()
    return world.requests.facts(world.add(**more))


@pytest.mark.parametrize(
    ("status", "kind", "sentence"),
    [
        pytest.param({"allowed": True, "reason": "by a role"}, decision.Approve, "by a role", id="allowed"),
        pytest.param({"allowed": True}, decision.Approve, "allowed", id="allowed, nothing said"),
        pytest.param({"allowed": False}, decision.NotMine, "not allowed", id="not allowed"),
        pytest.param({"allowed": "true"}, decision.NotMine, "not allowed", id="a word is no yes"),
        pytest.param({"evaluationError": "broken"}, decision.NotMine, "broken", id="broken"),
        pytest.param({"allowed": False, "denied": True, "reason": "no"}, decision.NotMine, "no", id="denied"),
        pytest.param(None, decision.NotMine, "not allowed", id="no status"),
    ],
)
async def test_each_answer_of_the_server_becomes_a_decision(status: Any, kind: type[object], sentence: str) -> None:
    class Client:
        async def create(self, resource: Any, document: Any) -> Any:
            return {**document, "status": status}

    found = await certificate_reviews.ask_permission(Client(), facts(), "nodeclient")  # type: ignore[arg-type]
    assert isinstance(found, kind)
    assert found.sentence == sentence


async def test_addresses_are_asked_for_serving_only() -> None:
    world = World()
    addresses = [{"type": "InternalIP", "address": "192.0.2.7"}, {"type": "Hostname"}]
    world.client.put("nodes", "n1", status={"addresses": addresses})
    serving = {
        "signerName": signer_names.KUBELET_SERVING,
        "usages": list(SERVING),
        "sans": names.make_sans(dns=["a.b"]),
    }
    ask = certificate_reviews.node_addresses
    assert await ask(world.client, facts(**serving)) == ("192.0.2.7", "")
    assert await ask(world.client, facts(**serving, common_name="system:node:n2")) is None
    assert await ask(world.client, facts(**serving, common_name="mike")) is None
    assert await ask(world.client, facts()) is None


INFO = cluster_info.build(
    cluster_info.ClusterInfo(
        ("https://192.0.2.1:6443", "https://[2001:db8::1]:6443", "https://Api.example"), ROOT.pem, ""
    )
)


async def test_what_is_reserved() -> None:
    world = World()
    serving = {
        "signerName": signer_names.KUBELET_SERVING,
        "usages": list(SERVING),
        "sans": names.make_sans(dns=["a.b"]),
    }
    ask = certificate_reviews.reserved
    assert await ask(world.client, facts(**serving)) == {""}
    world.client.put("configmaps", "cluster-info", "kube-public", data={"kubeconfig": INFO})
    assert await ask(world.client, facts(**serving)) == {"", "192.0.2.1", "2001:db8::1", "api.example"}
    del world.client.objects["configmaps", "kube-public", "cluster-info"]
    spec = {"clusterIP": "10.96.0.1", "clusterIPs": ["10.96.0.1", "fd00::1"]}
    world.client.put("services", "kubernetes", "default", spec=spec)
    assert await ask(world.client, facts(**serving)) == {"10.96.0.1", "fd00::1"}
    del world.client.objects["services", "default", "kubernetes"]
    world.client.put("nodes", "n1", status={"addresses": [{"address": "192.0.2.7"}]})
    world.client.put("nodes", "n2", status={"addresses": [{"address": "192.0.2.8"}, {"type": "Hostname"}]})
    world.client.put("nodes", "n3", status={})
    world.client.put("nodes", "n4")
    assert await ask(world.client, facts(**serving)) == {"192.0.2.8", ""}


async def test_nothing_is_read_for_client_certificates() -> None:
    world = World()

    def refuse(*what: str) -> None:
        raise AssertionError(what)

    world.client.before = refuse
    assert await certificate_reviews.reserved(world.client, facts()) == frozenset()


async def test_a_cluster_info_that_cannot_be_read_is_an_error() -> None:
    world = World()
    world.client.put("configmaps", "cluster-info", "kube-public", data={"kubeconfig": "junk"})
    serving = {
        "signerName": signer_names.KUBELET_SERVING,
        "usages": list(SERVING),
        "sans": names.make_sans(dns=["a.b"]),
    }
    with pytest.raises(errors.Refused, match="kubeconfig: the document must be a mapping"):
        await certificate_reviews.reserved(world.client, facts(**serving))


class Slow:
    """A server that answers when it is told to."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.allowed = True
        self.fails = False
        self.held = asyncio.Event()

    async def create(self, resource: Any, document: Any) -> Any:
        self.asked.append(document["spec"]["user"])
        allowed = self.allowed
        await self.held.wait()
        if self.fails:
            raise errors.Unavailable("gone", reason="Unreachable")
        return {"status": {"allowed": allowed}}


class TestPermissions:
    async def test_those_who_wait_share_the_next_answer(self) -> None:
        client = Slow()
        permissions = certificate_reviews.Permissions(client)  # type: ignore[arg-type]
        found = facts()
        first = asyncio.create_task(permissions.ask(found, "nodeclient"))
        await asyncio.sleep(0)
        # It is on its way: who asks now must not get what was true before.
        client.allowed = False
        late = [asyncio.create_task(permissions.ask(found, "nodeclient")) for _ in range(5)]
        await asyncio.sleep(0)
        client.held.set()
        assert isinstance(await first, decision.Approve)
        assert all(isinstance(answer, decision.NotMine) for answer in await asyncio.gather(*late))
        assert len(client.asked) == 2
        assert len(permissions._questions) == 0

    async def test_other_questions_are_asked_by_themselves(self) -> None:
        client = Slow()
        client.held.set()
        permissions = certificate_reviews.Permissions(client)  # type: ignore[arg-type]
        await asyncio.gather(
            permissions.ask(facts(), "nodeclient"),
            permissions.ask(facts(), "selfnodeclient"),
            permissions.ask(facts(username="other"), "nodeclient"),
        )
        assert len(client.asked) == 3

    async def test_an_error_is_everybodys_and_is_not_kept(self) -> None:
        client = Slow()
        client.fails = True
        permissions = certificate_reviews.Permissions(client)  # type: ignore[arg-type]
        found = facts()
        asking = [asyncio.create_task(permissions.ask(found, "nodeclient")) for _ in range(3)]
        await asyncio.sleep(0)
        client.held.set()
        outcomes = await asyncio.gather(*asking, return_exceptions=True)
        assert all(isinstance(outcome, errors.Unavailable) for outcome in outcomes)
        # The first, and one for those who came while it was under way.
        assert len(client.asked) == 2
        client.fails = False
        assert isinstance(await permissions.ask(found, "nodeclient"), decision.Approve)

    async def test_who_goes_away_takes_nobody_along(self) -> None:
        client = Slow()
        permissions = certificate_reviews.Permissions(client)  # type: ignore[arg-type]
        found = facts()
        first, second = (asyncio.create_task(permissions.ask(found, "nodeclient")) for _ in range(2))
        await asyncio.sleep(0)
        first.cancel()
        client.held.set()
        assert isinstance(await second, decision.Approve)
        with pytest.raises(asyncio.CancelledError):
            await first
