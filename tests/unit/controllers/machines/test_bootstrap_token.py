# SPDX-License-Identifier: Apache-2.0
"""The keeper of the worker's credential on an API server that fills Secrets in as Kubernetes does, with an RSA key: the same token for ever."""

from __future__ import annotations

import base64
from typing import Any

import msgspec
import pytest
import structlog

from handfast import errors
from handfast.api import objects, status
from handfast.client import cache
from handfast.controllers import views
from handfast.controllers.machines import bootstrap_token as module
from handfast.rules.machines import bootstrap_token as rules
from handfast.rules.machines import bootstrapper
from tests.unit.controllers.fake_api import FakeClient
from tests.world import clock

NS, ACCOUNT, SECRET = bootstrapper.NAMESPACE, bootstrapper.ACCOUNT, bootstrapper.TOKEN_SECRET
UID = "kubernetes.io/service-account.uid"


class Server(FakeClient):
    """Gives each object a UID of its own and an instant, as a server does."""

    def __init__(self, now: clock.MovableClock) -> None:
        super().__init__()
        self._now = now
        self.made = 0

    async def create(self, resource: Any, document: Any, *, namespace: str = "", **more: Any) -> dict[str, Any]:
        self.made += 1
        stamped = {"uid": f"uid-{self.made}", "creationTimestamp": objects.timestamp(self._now.now())}
        whole = {**document, "metadata": {**document["metadata"], **stamped}}
        return await super().create(resource, whole, namespace=namespace, **more)


class World:
    def __init__(self) -> None:
        self.clock = clock.MovableClock()
        self.client = Server(self.clock)
        self.namespaces: cache.Informer[views.Namespace] = cache.Informer(module._NAMESPACE)
        self.copies = [module.BootstrapToken(self.client, self.clock, self.namespaces) for _ in range(2)]
        self.namespace()

    def namespace(self, **more: Any) -> None:
        self.namespaces.put(msgspec.convert({"metadata": {"name": NS, "uid": "uid-ns"}, **more}, views.Namespace))

    @property
    def account(self) -> Any:
        return self.client.objects.get(("serviceaccounts", NS, ACCOUNT))

    @property
    def secret(self) -> Any:
        return self.client.objects.get(("secrets", NS, SECRET))

    def fill(self, more: str = "") -> None:
        """As kube-controller-manager does: nothing random in it."""
        token = f"{self.account['metadata']['uid']}{more}"
        self.secret["data"] = {"token": base64.b64encode(token.encode()).decode()}
        self.secret["metadata"]["annotations"][UID] = self.account["metadata"]["uid"]

    def revoke(self) -> None:
        del self.client.objects["secrets", NS, SECRET]

    async def turn(self, copy: int = 0) -> float | None:
        return await self.copies[copy].reconcile(module.KEY)

    async def settle(self) -> float | None:
        """By two copies in turn, until nothing is written any more."""
        wait: float | None = None
        for _ in range(10):
            before = len(self.client.calls)
            for copy in range(2):
                wait = await self.turn(copy)
            if len(self.client.calls) == before:
                return wait
        raise AssertionError(self.client.calls)

    def events(self) -> list[str]:
        return [found["reason"] for key, found in self.client.objects.items() if key[0] == "events"]

    def waits(self) -> list[str]:
        return [reason for reason in rules.REASONS if module.WAITING.labels(reason)._value.get() == 1]


async def test_account_and_secret_are_made_once():
    world = World()
    assert await world.settle() == rules.FILLED_WITHIN
    assert world.account["metadata"]["uid"] == "uid-1"
    assert world.secret["metadata"]["annotations"][UID] == "uid-1"
    assert "data" not in world.secret
    assert world.waits() == ["TokenNotFilledIn"]
    world.fill()
    assert await world.settle() is None
    assert world.waits() == []
    # What was filled in stays as it is.
    assert ("update", "secrets", SECRET) not in world.client.calls
    assert sorted(world.events()) == ["BootstrapAccountMade", "TokenSecretMade"]


async def test_a_deleted_secret_is_made_anew_and_its_token_remembered():
    world = World()
    await world.settle()
    world.fill("jti-1")
    await world.settle()
    first = world.secret["metadata"]["uid"]
    world.revoke()
    await world.settle()
    world.fill("jti-2")
    await world.settle()
    # Another token: the account stays.
    assert world.account["metadata"]["uid"] == "uid-1"
    seen = rules.read(world.account["metadata"]["annotations"][rules.MEMORY])
    assert list(seen.values()) == [first, world.secret["metadata"]["uid"]]
    assert "jti" not in str(world.account)


async def test_where_the_revoked_token_returns_the_account_is_made_anew():
    world = World()
    await world.settle()
    world.fill()
    await world.settle()
    token = world.secret["data"]["token"]
    replaced = module.STEPS.labels("account_replaced")._value.get()
    world.revoke()
    await world.settle()
    world.fill()
    assert world.secret["data"]["token"] == token
    with structlog.testing.capture_logs() as logs:
        await world.settle()
    # The account has another UID, and the Secret of the old one is gone: a new one waits to be filled in.
    assert world.account["metadata"]["uid"] != "uid-1"
    assert world.secret["metadata"]["annotations"][UID] == world.account["metadata"]["uid"]
    assert "data" not in world.secret
    world.fill()
    assert await world.settle() is None
    assert world.secret["data"]["token"] != token
    assert module.STEPS.labels("account_replaced")._value.get() == replaced + 1
    assert "RevokedTokenReturned" in world.events()
    assert token not in str(logs)


async def test_an_end_between_any_two_steps_does_no_harm():
    """Each write fails once, after which somebody else begins; and once more it is made, and its answer is lost."""
    world = World()
    failed: set[tuple[str, str]] = set()

    def fails_once(verb: str, plural: str, _name: str) -> None:
        if verb != "get" and (verb, plural) not in failed:
            failed.add((verb, plural))
            raise errors.Unavailable("killed")

    async def settle() -> None:
        for _ in range(12):
            for copy in (world.copies[0], module.BootstrapToken(world.client, world.clock, world.namespaces)):
                try:
                    await copy.reconcile(module.KEY)
                except errors.Unavailable:
                    continue

    world.client.before = fails_once
    await settle()
    world.fill()
    await settle()
    world.revoke()
    await settle()
    world.fill()
    await settle()
    world.fill()
    await settle()
    assert {("create", "serviceaccounts"), ("create", "secrets"), ("delete", "serviceaccounts")} <= failed
    assert world.account["metadata"]["uid"] != "uid-1"
    assert await world.settle() is None


async def test_it_waits_for_its_namespace():
    world = World()
    world.namespaces.remove(views.Namespace(msgspec.convert({"name": NS}, type(views.Namespace().metadata))))
    with structlog.testing.capture_logs() as logs:
        assert await world.settle() is None
    assert world.client.calls == []
    assert world.waits() == ["NamespaceMissing"]
    # Once for each copy, however often it looks.
    assert [entry["reason"] for entry in logs] == ["NamespaceMissing"] * 2
    world.namespace(status={"phase": "Terminating"})
    assert await world.settle() is None
    assert world.waits() == ["NamespaceTerminating"]


@pytest.mark.parametrize(
    "error",
    [
        status.not_found("namespaces", "", NS),
        status.StatusError("Forbidden", f"unable to create: namespace {NS} is being terminated"),
    ],
    ids=["gone", "ending"],
)
async def test_a_namespace_that_ends_meanwhile_is_no_error(error: status.StatusError):
    world = World()

    def fails(verb: str, plural: str, _name: str) -> None:
        if (verb, plural) == ("create", "serviceaccounts"):
            raise error

    world.client.before = fails
    assert await world.turn() == 10.0
    assert world.account is None


async def test_what_is_forbidden_is_an_error():
    world = World()

    def fails(verb: str, _plural: str, _name: str) -> None:
        if verb == "create":
            raise status.StatusError("Forbidden", "no")

    world.client.before = fails
    with pytest.raises(status.StatusError, match="no"):
        await world.turn()


async def test_somebody_elses_secret_stays_and_is_told_of():
    world = World()
    stamp = objects.timestamp(world.clock.now())
    mine = world.client.put(
        "secrets",
        SECRET,
        NS,
        kind="Secret",
        type="Opaque",
        data={"token": "bWluZQ=="},
        metadata={"creationTimestamp": stamp},
    )
    assert await world.settle() is None
    assert world.secret["data"] == mine["data"]
    assert "NotTheTokenSecret" in world.events()
    assert world.waits() == ["NotTheTokenSecret"]


async def test_a_secret_that_nobody_fills_in_is_told_of():
    world = World()
    assert await world.settle() == 60.0
    assert "TokenNotFilledIn" not in world.events()
    await world.clock.advance(60)
    assert await world.settle() is None
    assert "TokenNotFilledIn" in world.events()


async def test_a_token_that_is_taken_out_counts_as_revoked():
    world = World()
    await world.settle()
    world.fill()
    await world.settle()
    world.secret["data"] = {}
    await world.settle()
    world.fill()
    await world.settle()
    assert world.account["metadata"]["uid"] != "uid-1"
