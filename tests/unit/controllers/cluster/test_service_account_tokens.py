# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import base64
import uuid
from typing import Any

import msgspec
import pytest
import structlog

from handfast.api import status
from handfast.client import cache, events, partial
from handfast.controllers import loop
from handfast.controllers.cluster import service_account_tokens as module
from handfast.pki import jwt, keys
from handfast.rules.tokens import claims as token_claims
from handfast.rules.tokens import service_accounts as rules
from tests.unit.controllers.fake_api import FakeClient
from tests.world import clock

KEY = keys.generate()
KEYS = jwt.KeySet([KEY.public])
TYPE = "kubernetes.io/service-account-token"
NAME = "kubernetes.io/service-account.name"
UID = "kubernetes.io/service-account.uid"


def text(value: str) -> str:
    return base64.b64decode(value).decode()


class World:
    def __init__(self, ca: bytes = b"PEM", key: keys.PrivateKey = KEY) -> None:
        self.client = FakeClient()
        self.secrets: cache.Informer[Any] = cache.Informer(module._SECRETS)
        self.accounts: cache.Informer[partial.Partial] = cache.Informer(module._ACCOUNTS)
        self.handler = module.ServiceAccountTokens(
            self.client,
            self.secrets,
            self.accounts,
            jwt.Signer(key),
            issuer=token_claims.LEGACY_ISSUER,
            root_ca_pem=ca,
            recorder=events.Recorder(self.client, clock.MovableClock(), module.NAME),
        )
        self.account("builder")

    def account(self, name: str, uid: str = "uid-sa") -> None:
        made = self.client.put("serviceaccounts", name, "ns", metadata={"uid": uid})
        self.accounts.put(msgspec.convert(made, partial.Partial))

    def secret(self, name: str = "token", annotations: Any = None, data: Any = None, **metadata: Any) -> None:
        if annotations is None:
            annotations = {NAME: "builder"}
        metadata["annotations"] = annotations
        self.client.put("secrets", name, "ns", type=TYPE, data=data, metadata=metadata)
        self.see(name)

    def see(self, name: str = "token") -> None:
        self.secrets.put(msgspec.convert(self.client.objects["secrets", "ns", name], module._View))

    async def reconcile(self, name: str = "token") -> dict[str, Any] | None:
        await self.handler.reconcile(("ns", name))
        return self.client.objects.get(("secrets", "ns", name))

    def writes(self) -> list[str]:
        return [call[0] for call in self.client.calls]


async def test_an_empty_secret_is_filled_with_a_token():
    world = World()
    world.secret()
    made = await world.reconcile()
    assert made is not None
    assert made["metadata"]["annotations"] == {NAME: "builder", UID: "uid-sa"}
    assert {key: text(value) for key, value in made["data"].items() if key != "token"} == {
        "ca.crt": "PEM",
        "namespace": "ns",
    }
    token = text(made["data"]["token"])
    claims = KEYS.verify(token)
    assert claims["iss"] == "kubernetes/serviceaccount"
    assert uuid.UUID(claims["jti"]).version == 4
    assert token_claims.read_legacy(claims) == token_claims.Legacy(
        namespace="ns", account=token_claims.Reference("builder", "uid-sa"), secret_name="token", id=claims["jti"]
    )
    secret = rules.StoredSecret(token.encode())
    rules.judge_legacy(token_claims.read_legacy(claims), token, secret, rules.Stored("uid-sa"))
    # And then it is left alone.
    world.see()
    await world.reconcile()
    assert world.writes() == ["update"]


@pytest.mark.parametrize("kind", [keys.Kind.P256, keys.Kind.RSA])
async def test_a_secret_made_anew_has_another_token(kind: keys.Kind):
    """Of the same name, for the same account; an RSA signature of the same claims would be the same."""
    world = World(key=keys.generate(kind))
    filled = []
    for _ in range(2):
        world.secret()
        made = await world.reconcile()
        assert made is not None
        filled.append(made["data"]["token"])
        del world.client.objects["secrets", "ns", "token"]
    assert filled[0] != filled[1]


async def test_what_is_missing_is_filled_again():
    world = World()
    world.secret(
        data={"token": "b2xk", "namespace": "b3RoZXI=", "mine": "eA=="}, annotations={NAME: "builder", "a": "b"}
    )
    made = await world.reconcile()
    assert made is not None
    # A token that is there stays, and so does what the owner put beside it.
    assert made["data"] == {"token": "b2xk", "namespace": "b3RoZXI=", "mine": "eA==", "ca.crt": "UEVN"}
    assert made["metadata"]["annotations"] == {NAME: "builder", "a": "b", UID: "uid-sa"}
    for change in ({"token": ""}, {"token": None}, {"ca.crt": "b2xk"}, {"namespace": ""}):
        made["data"] = {**made["data"], **change}
        made["metadata"]["resourceVersion"] += "1"
        world.see()
        made = await world.reconcile()
        assert made is not None
        assert all(made["data"][key] for key in ("token", "namespace"))
        assert made["data"]["ca.crt"] == "UEVN"
    assert KEYS.verify(text(made["data"]["token"]))
    assert world.writes() == ["update"] * 5


async def test_no_ca_is_known():
    world = World(ca=b"")
    world.secret()
    made = await world.reconcile()
    assert made is not None
    assert set(made["data"]) == {"token", "namespace"}


@pytest.mark.parametrize(
    ("annotations", "account"),
    [
        ({NAME: "nobody"}, None),
        ({NAME: "nobody", UID: "uid-sa"}, None),
        ({NAME: "builder", UID: "uid-old"}, None),
        # The watch still shows the old account.
        ({NAME: "builder", UID: "uid-old"}, "uid-new"),
    ],
)
async def test_deleted_with_its_account(annotations: dict[str, str], account: str | None):
    world = World()
    world.secret(annotations=annotations)
    if account is not None:
        world.client.put("serviceaccounts", "builder", "ns", metadata={"uid": account})
    assert await world.reconcile() is None
    assert world.client.calls == [("delete", "secrets", "token")]
    # Gone by another hand meanwhile.
    assert await world.reconcile() is None
    assert len(world.client.calls) == 1


async def test_the_server_is_asked_before_a_delete():
    world = World()
    world.client.put("serviceaccounts", "late", "ns", metadata={"uid": "uid-late"})
    world.secret(annotations={NAME: "late"})
    made = await world.reconcile()
    assert made is not None
    assert made["metadata"]["annotations"][UID] == "uid-late"
    world.client.put("serviceaccounts", "builder", "ns", metadata={"uid": "uid-new"})
    world.secret("second", annotations={NAME: "builder", UID: "uid-new"})
    made = await world.reconcile("second")
    assert made is not None
    assert KEYS.verify(text(made["data"]["token"]))["kubernetes.io/serviceaccount/service-account.uid"] == "uid-new"


async def test_another_secret_of_that_name_is_not_deleted():
    world = World()
    world.secret(annotations={NAME: "nobody"})
    world.client.put("secrets", "token", "ns", type="Opaque", metadata={"uid": "uid-another"})
    with pytest.raises(status.StatusError) as caught:
        await world.reconcile()
    assert caught.value.reason == "Conflict"
    assert ("secrets", "ns", "token") in world.client.objects


async def test_left_alone():
    world = World()
    await world.reconcile("unknown")
    for named in ({}, {NAME: ""}, {UID: "uid-sa"}):
        world.secret(annotations=named)
        await world.reconcile()
    world.secret(deletionTimestamp="2026-01-01T00:00:00Z")
    await world.reconcile()
    # Gone, or changed, since it was seen.
    world.secret("gone")
    del world.client.objects["secrets", "ns", "gone"]
    await world.reconcile("gone")
    world.secret("changed")
    world.client.objects["secrets", "ns", "changed"]["metadata"]["resourceVersion"] = "999"
    await world.reconcile("changed")
    assert world.client.calls == []


async def test_what_concerns_it():
    client = FakeClient()
    client.put("serviceaccounts", "builder", "ns", metadata={"uid": "uid-sa"})
    now = clock.MovableClock()
    informers = cache.Informers(client, now)
    context = loop.Context(client=client, informers=informers, clock=now)
    controller = module.build(context, signer=jwt.Signer(KEY), root_ca_pem=b"PEM")
    assert controller.name == "serviceaccount-token-controller"
    secrets = informers.get(module._SECRETS)
    accounts = informers.get(module._ACCOUNTS)

    async def waiting() -> list[partial.Key]:
        found = []
        while len(controller.queue):
            found.append(await controller.queue.get())
            controller.queue.done(found[-1])
        return sorted(found)

    for name, account in (("one", "builder"), ("two", "builder"), ("three", "other")):
        made = client.put("secrets", name, "ns", type=TYPE, metadata={"annotations": {NAME: account}})
        secrets.put(msgspec.convert(made, module._View))
    assert await waiting() == [("ns", "one"), ("ns", "three"), ("ns", "two")]
    builder = msgspec.convert(client.objects["serviceaccounts", "ns", "builder"], partial.Partial)
    accounts.put(builder)
    assert await waiting() == [("ns", "one"), ("ns", "two")]
    accounts.remove(builder)
    assert await waiting() == [("ns", "one"), ("ns", "two")]
    third = secrets.get("ns", "three")
    assert third is not None
    secrets.remove(third)
    assert await waiting() == [("ns", "three")]


def test_only_metadata_is_followed():
    assert module._SECRETS.metadata
    assert module._SECRETS.scope.field_selector == f"type={TYPE}"
    view = msgspec.convert(
        {"metadata": {"name": "x", "annotations": None}, "data": {"token": "aGlkZGVu"}}, module._View
    )
    assert "aGlkZGVu" not in repr(view)
    assert view.annotation(NAME) == ""


@pytest.mark.parametrize("name", ["a/b", "..", "Builder", "a b", "../secrets/x", "x" * 300, "\x1b[2J", "a%2Fb", "-"])
async def test_what_is_no_name_is_told_once_and_not_tried_again(name: str):
    world = World()
    world.secret(annotations={NAME: name})
    with structlog.testing.capture_logs() as logs:
        for _ in range(3):
            # It does not raise, so that nothing is tried again.
            await world.handler.reconcile(("ns", "token"))
    assert [entry["event"] for entry in logs] == ["a token Secret names no account"]
    told = [found for (kind, _, _), found in world.client.objects.items() if kind == "events"]
    assert [(found["reason"], found["count"], found["type"]) for found in told] == [
        ("InvalidAccountName", 1, "Warning")
    ]
    assert "names no ServiceAccount: " in told[0]["message"]
    assert "\x1b" not in told[0]["message"]
    # It is left as it is.
    assert "token" not in (world.client.objects["secrets", "ns", "token"].get("data") or {})
    # Mended, it is filled; spoilt again, it is told of again.
    world.secret(annotations={NAME: "builder"})
    made = await world.reconcile()
    assert made is not None
    assert made["data"]["token"]
    world.secret(annotations={NAME: name})
    with structlog.testing.capture_logs() as logs:
        await world.reconcile()
    assert [entry["event"] for entry in logs] == ["a token Secret names no account"]
