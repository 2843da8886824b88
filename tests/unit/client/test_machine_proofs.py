# SPDX-License-Identifier: Apache-2.0
"""Which proofs are made, and what is read for them."""

from __future__ import annotations

import pytest

from handfast.api import status
from handfast.client import machine_proofs
from handfast.rules import user_names
from handfast.rules.certificates import kubelet
from handfast.rules.machines import approval, bootstrapper, inventory, machine_tokens, proofs, settings, source_address
from tests.unit.controllers.fake_api import FakeClient
from tests.unit.rules.csr_cases import csr

ADDRESSES = (inventory.Address("InternalIP", "10.0.0.5"),)
MACHINE = inventory.Machine(group=inventory.OPENSHIFT, namespace="fleet", name="w1", uid="u-1", addresses=ADDRESSES)
EXTRA = {source_address.KEY: ["10.0.0.5"], user_names.CREDENTIAL_ID: ["JTI=own"]}
FACTS = kubelet.read(csr(user=bootstrapper.USER, extra=EXTRA))
BOTH = settings.Settings(source_address=True, credential=settings.PER_MACHINE)


async def reasons(client: FakeClient, chosen: settings.Settings = BOTH) -> list[str]:
    index = inventory.Index()
    index.put(MACHINE)
    checks = await machine_proofs.wanted(client, index, MACHINE, chosen)
    verdict = machine_proofs.proven(approval.Verdict((), MACHINE), FACTS, checks)
    return [step.reason for step in verdict.steps]


@pytest.fixture
def client() -> FakeClient:
    client = FakeClient()
    annotations = {machine_tokens.MACHINE_UID: "u-1", machine_tokens.CREDENTIAL_ID: "JTI=own"}
    client.put("secrets", "node-bootstrapper-w1", bootstrapper.NAMESPACE, metadata={"annotations": annotations})
    return client


async def test_nothing_is_read_where_nothing_is_asked_for(client):
    client.before = lambda *_: pytest.fail("somebody asks")
    assert await reasons(client, settings.DEFAULT) == []


async def test_a_machine_with_its_own_token_at_its_own_address_is_proven(client):
    assert await reasons(client) == ["", ""]


async def test_a_deleted_secret_takes_back_what_is_pending(client):
    client.objects.clear()
    assert await reasons(client) == ["", proofs.NO_CREDENTIAL]


async def test_a_secret_that_may_not_be_read_proves_nothing(client):
    def forbid(*_: str) -> None:
        raise status.StatusError("Forbidden", "secrets is forbidden")

    client.before = forbid
    assert await reasons(client) == ["", proofs.FORBIDDEN]


async def test_other_trouble_is_no_answer(client):
    def fail(*_: str) -> None:
        raise status.StatusError("InternalError", "later")

    client.before = fail
    with pytest.raises(status.StatusError, match="later"):
        await reasons(client)


@pytest.mark.parametrize(
    "verdict", [approval.Verdict(()), approval.Verdict((approval.node(FACTS, node_exists=True),), MACHINE)]
)
async def test_no_proof_is_made_for_a_request_that_fails_without(client, verdict):
    checks = await machine_proofs.wanted(client, inventory.Index(), MACHINE, BOTH)
    assert machine_proofs.proven(verdict, FACTS, checks) is verdict
