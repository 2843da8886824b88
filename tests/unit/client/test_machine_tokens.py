# SPDX-License-Identifier: Apache-2.0
"""A token for one machine, over an API: the order of its making, and what is left when a step fails."""

from __future__ import annotations

import json
from typing import Any

import pytest

from handfast import errors
from handfast.api import status
from handfast.client import machine_tokens
from handfast.pki import jwt, keys
from handfast.rules.machines import bootstrapper, inventory
from handfast.rules.machines import machine_tokens as rules
from tests.unit.controllers.fake_api import FakeClient

SIGNER = jwt.Signer(keys.generate())
NAME = "node-bootstrapper-w1"
MACHINE = inventory.Machine(group=inventory.OPENSHIFT, namespace="fleet", name="w1", uid="u-1")


class Issuing(FakeClient):
    """Issues tokens, and serves the Machines of these groups."""

    def __init__(self, *groups: str) -> None:
        super().__init__()
        self.groups = set(groups)
        self.issued = 0
        self.claims: dict[str, Any] = {"jti": "first"}

    async def create(self, resource: Any, document: Any, *, namespace: str = "", **more: Any) -> dict[str, Any]:
        if more.get("subresource") != "token":
            return await super().create(resource, document, namespace=namespace, **more)
        self.before("create", "token", more["name"])
        self.issued += 1
        token = SIGNER.sign(json.dumps(self.claims).encode())
        return {**document, "status": {"token": token, "expirationTimestamp": "2031-01-01T00:00:00Z"}}

    @property
    def secret(self) -> dict[str, Any] | None:
        return self.objects.get(("secrets", bootstrapper.NAMESPACE, NAME))


async def test_the_id_of_the_token_is_on_the_secret_before_anybody_has_it():
    client = Issuing()
    issued = await machine_tokens.create(client, MACHINE, 3600)
    assert (issued.secret, issued.id, issued.expires.year) == (NAME, "JTI=first", 2031)
    assert rules.read(client.secret) == rules.Credential(NAME, "fleet/w1", "u-1", "JTI=first")
    assert [call[0] for call in client.calls] == ["create", "patch"]
    assert issued.token not in repr(issued)


@pytest.mark.parametrize(("verb", "plural"), [("create", "token"), ("patch", "secrets")])
async def test_where_a_step_fails_nothing_is_left(verb: str, plural: str):
    client = Issuing()

    def fail(at: str, which: str, _name: str) -> None:
        if (at, which) == (verb, plural):
            raise errors.Unavailable("away", reason="Unreachable")

    client.before = fail
    with pytest.raises(errors.Unavailable, match="away"):
        await machine_tokens.create(client, MACHINE, 3600)
    assert client.secret is None


async def test_a_token_without_an_id_is_not_kept():
    client = Issuing()
    client.claims = {}
    with pytest.raises(errors.Refused, match="without an id"):
        await machine_tokens.create(client, MACHINE, 3600)
    assert client.secret is None


async def test_a_token_that_is_there_is_replaced_on_demand_only():
    client = Issuing()
    await machine_tokens.create(client, MACHINE, 3600)
    with pytest.raises(errors.Refused, match="has a credential already") as refused:
        await machine_tokens.create(client, MACHINE, 3600)
    assert refused.value.reason == "CredentialExists"
    client.claims = {"jti": "second"}
    assert (await machine_tokens.create(client, MACHINE, 3600, replace=True)).id == "JTI=second"
    credential = rules.read(client.secret)
    assert credential is not None
    assert credential.id == "JTI=second"


async def test_a_secret_of_somebody_elses_is_left_alone():
    client = Issuing()
    client.put("secrets", NAME, bootstrapper.NAMESPACE, data={"mine": "x"})
    with pytest.raises(errors.Refused, match="no credential of a machine") as refused:
        await machine_tokens.create(client, MACHINE, 3600, replace=True)
    assert (refused.value.reason, client.issued) == ("SecretTaken", 0)
    assert client.secret is not None
    assert client.secret["data"] == {"mine": "x"}


async def test_without_the_namespace_the_way_to_it_is_named():
    client = Issuing()

    def missing(at: str, which: str, _name: str) -> None:
        if (at, which) == ("create", "secrets"):
            raise status.not_found("namespaces", "", bootstrapper.NAMESPACE)

    client.before = missing
    with pytest.raises(status.StatusError) as caught:
        await machine_tokens.create(client, MACHINE, 3600)
    assert "init --machines" in (caught.value.hint or "")
