# SPDX-License-Identifier: Apache-2.0
"""Uses of limited tokens over a real store. The names of the table in `apiserver/admission/token_limits.py` are here."""

from __future__ import annotations

import asyncio
import base64
import pathlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import msgspec
import pytest

from handfast import errors
from handfast.api import objects, status
from handfast.apiserver import identity
from handfast.apiserver.access import authn, bootstrap_tokens
from handfast.apiserver.admission import plugin, token_limits
from handfast.apiserver.state import envelope, items, replica, storage
from handfast.bootstrap import token_limits as limits
from handfast.bootstrap import tokens
from handfast.pki import bundles, keys, names, requests
from handfast.rules.tokens import use as token_use
from handfast.runtime import tasks
from handfast.serving import peer
from handfast.store import protocol
from handfast.store.sqlite import engine
from tests.unit.apiserver import admission_world
from tests.world import clock as clocks

TOKEN = tokens.Token("foobar", "circumnavigation")
USER = identity.User("system:bootstrap:foobar", ("system:bootstrappers",), method="bootstrap-token", source="192.0.2.7")
CSRS = ("certificates.k8s.io", "certificatesigningrequests")
SECRETS = admission_world.KINDS["", "secrets"]


def csr(name: str = "worker-1", key: keys.PrivateKey | None = None) -> objects.Document:
    subject = names.Subject(common_name=f"system:node:{name}", organizations=("system:nodes",))
    request = requests.build(subject, names.Sans(), key or keys.generate(keys.Kind.P256))
    return {"metadata": {"name": "csr"}, "spec": {"request": base64.b64encode(request).decode()}}


class Server:
    """One server on a store: its copy, and its row of admission."""

    def __init__(self, store: protocol.Store) -> None:
        envelopes = envelope.Envelopes(None, ())
        self.replica = replica.Replica(store, envelopes)
        self.storage = storage.Storage(store, envelopes, self.replica)
        self.limits = token_limits.TokenLimits(self.storage)
        context = plugin.Context(self.replica, admission_world.refuses, clocks.MovableClock().now)
        self._chain = plugin.Chain((self.limits.row,), context)

    async def ask(self, document: objects.Document | None, **facts: Any) -> None:
        asked = plugin.Write(
            **{
                "operation": plugin.CREATE,
                "kind": admission_world.KINDS[CSRS],
                "subresource": "",
                "namespace": "",
                "name": "csr",
                "document": document,
                "old": None,
                "user": USER,
                "dry_run": False,
                **facts,
            }
        )
        await self._chain.run(asked)

    async def why(self, document: objects.Document, **facts: Any) -> plugin.Refusal:
        with pytest.raises(plugin.Refusal) as caught:
            await self.ask(document, **facts)
        return caught.value

    async def put(self, **noted: str) -> None:
        made = tokens.secret_document(TOKEN, usages=["authentication"])
        made["metadata"]["annotations"] = {f"handfast.dev/{key.replace('_', '-')}": noted[key] for key in noted}
        await self.storage.create(SECRETS, made)

    async def secret(self) -> items.Item:
        found = await self.storage.find(SECRETS, "kube-system", "bootstrap-token-foobar")
        assert found is not None
        return found

    async def uses(self) -> list[limits.Use]:
        return limits.uses((await self.secret()).document())

    def before_writing(self, act: Callable[[], Awaitable[None]]) -> None:
        """Let somebody else write between each look and each write."""
        replace = self.storage.replace

        async def late(kind: Any, document: objects.Document, old: items.Item) -> items.Item:
            await act()
            return await replace(kind, document, old)

        self.storage.replace = late  # type: ignore[method-assign]


@pytest.fixture
async def servers(tmp_path: pathlib.Path) -> AsyncIterator[tuple[Server, Server]]:
    """Two, on one store."""
    store = await engine.open_store(str(tmp_path / "store.db"))
    pair = Server(store), Server(store)
    async with tasks.Group("test") as group:
        for each in pair:
            await each.replica.load()
            group.start(each.replica.follow(), name="follow")
        yield pair
        group.end()
    await store.close()


@pytest.fixture
async def server(servers: tuple[Server, Server]) -> Server:
    return servers[0]


async def labelled(server: Server, value: str) -> None:
    """What an administrator might do to the Secret meanwhile."""
    found = await server.secret()
    document = found.document()
    document["metadata"]["labels"] = {"touched": value}
    await server.storage.replace(SECRETS, document, found)


async def test_a_use_is_on_the_secret_before_the_request_is_stored(server: Server) -> None:
    await server.put()
    await server.ask(csr())
    (use,) = await server.uses()
    assert (use.node, use.source, use.time) == ("worker-1", "192.0.2.7", clocks.MovableClock().now())
    # The rest of it is as it was.
    assert tokens.read((await server.secret()).document()).token == TOKEN


async def test_a_second_machine_is_told_why(server: Server) -> None:
    await server.put(max_uses="1")
    await server.ask(csr())
    refused = await server.why(csr("worker-2"))
    assert (refused.code, refused.reason, refused.why) == (403, "Forbidden", "TokenUsedUp")
    said = refused.document()
    assert said["message"].startswith(
        'certificatesigningrequests.certificates.k8s.io "csr" is forbidden: bootstrap token foobar was made for 1 use'
    )
    assert [cause["reason"] for cause in said["details"]["causes"]] == ["TokenUsedUp"]
    assert len(await server.uses()) == 1


@pytest.mark.parametrize("method", ["", "x509", "impersonation", "service-account-token"])
async def test_another_credential_of_that_name_uses_nothing_up(server: Server, method: str) -> None:
    await server.put(max_uses="1")
    await server.ask(csr(), user=msgspec.structs.replace(USER, method=method))
    assert await server.uses() == []
    await server.ask(csr())
    assert len(await server.uses()) == 1


async def test_another_kind_of_secret_is_not_written_on(server: Server) -> None:
    await server.put()
    found = await server.secret()
    await server.storage.delete(SECRETS, found)
    await server.storage.create(SECRETS, {**found.document(), "type": "Opaque"})
    assert (await server.why(csr())).why == "TokenGone"
    assert await server.uses() == []


async def test_a_retry_writes_nothing(server: Server) -> None:
    await server.put(max_uses="1")
    document = csr()
    await server.ask(document)
    version = (await server.secret()).version
    await server.ask(document)
    assert (await server.secret()).version == version


async def test_of_many_at_once_one_gets_in(server: Server) -> None:
    await server.put(max_uses="1")
    asked = await asyncio.gather(*(server.ask(csr(f"w-{number}")) for number in range(30)), return_exceptions=True)
    assert sorted(str(getattr(each, "why", each)) for each in asked) == ["None"] + ["TokenUsedUp"] * 29
    assert len(await server.uses()) == 1


async def test_another_servers_reservation_counts(servers: tuple[Server, Server]) -> None:
    one, other = servers
    await one.put(max_uses="3")
    asks = [each.ask(csr(f"w-{number}")) for number in range(10) for each in servers]
    asked = await asyncio.gather(*asks, return_exceptions=True)
    assert [each for each in asked if each is not None and not isinstance(each, plugin.Refusal)] == []
    assert asked.count(None) == 3
    assert len(await other.uses()) == 3


async def test_a_conflict_is_tried_again(servers: tuple[Server, Server]) -> None:
    one, other = servers
    await one.put(max_uses="1")
    changes = iter("abc")

    async def meddle() -> None:
        value = next(changes, "")
        if value:
            await labelled(other, value)

    one.before_writing(meddle)
    await one.ask(csr())
    assert len(await one.uses()) == 1
    assert (await one.secret()).document()["metadata"]["labels"] == {"touched": "c"}


async def test_who_was_faster_elsewhere_has_it(servers: tuple[Server, Server]) -> None:
    one, other = servers
    await one.put(max_uses="1")
    first = [csr("fast")]

    async def meddle() -> None:
        if first:
            await other.ask(first.pop())

    one.before_writing(meddle)
    assert (await one.why(csr("slow"))).why == "TokenUsedUp"
    assert [use.node for use in await one.uses()] == ["fast"]


async def test_endless_conflicts_end(servers: tuple[Server, Server]) -> None:
    one, other = servers
    await one.put()
    counter = iter(range(1000))

    async def meddle() -> None:
        await labelled(other, str(next(counter)))

    one.before_writing(meddle)
    with pytest.raises(errors.Unavailable, match="please try again") as caught:
        await one.ask(csr())
    assert caught.value.reason == "TokenContended"
    assert status.from_error(caught.value).retry_after == 1
    assert next(counter) < 50


async def test_a_token_deleted_meanwhile(servers: tuple[Server, Server]) -> None:
    one, other = servers
    await one.put()

    async def meddle() -> None:
        await other.storage.delete(SECRETS, await other.secret())

    one.before_writing(meddle)
    assert (await one.why(csr())).why == "TokenGone"


async def test_a_failure_afterwards_costs_nothing(server: Server) -> None:
    await server.put(max_uses="2")
    key = keys.generate(keys.Kind.P256)
    # Whatever became of the first two, the third is the same key's: and the second use is still there for another.
    for _ in range(3):
        await server.ask(csr(key=key))
    await server.ask(csr("worker-2"))
    assert (await server.why(csr("worker-3"))).why == "TokenUsedUp"


async def test_a_dry_run_reserves_nothing(server: Server) -> None:
    await server.put(max_uses="1", allowed_nodes="worker-*")
    version = (await server.secret()).version
    await server.ask(csr(), dry_run=True)
    assert (await server.secret()).version == version
    assert (await server.why(csr("db-1"), dry_run=True)).why == "TokenNotForThisNode"
    await server.ask(csr())
    assert (await server.why(csr("worker-2"), dry_run=True)).why == "TokenUsedUp"


@pytest.mark.parametrize(
    "facts",
    [
        {"user": admission_world.JANE},
        {"subresource": "status"},
        {"operation": plugin.UPDATE},
        {"kind": admission_world.KINDS["", "configmaps"]},
        {"document": None},
    ],
    ids=lambda facts: next(iter(facts)),
)
async def test_not_looked_at(server: Server, facts: dict[str, Any]) -> None:
    await server.put(max_uses="1", use_count="1")
    await server.ask(**{"document": csr(), **facts})


async def test_limits_that_cannot_be_read_let_nobody_in(servers: tuple[Server, Server]) -> None:
    one, other = servers
    await one.put(max_uses="2")
    # What was readable is remembered, and is no help once it is not.
    await one.ask(csr("worker-1"))
    found = await other.secret()
    await other.storage.replace(SECRETS, limits_of(found, "many"), found)
    version = (await one.secret()).version
    asked = await asyncio.gather(*(one.ask(csr(f"w-{number}")) for number in range(3)), return_exceptions=True)
    assert [getattr(each, "why", each) for each in asked] == ["BadTokenLimits"] * 3
    said = str(getattr(asked[0], "message", ""))
    assert "the limits of bootstrap token foobar cannot be read: handfast.dev/max-uses: " in said
    assert (await one.secret()).version == version, "nothing is written on it"
    # As soon as it is mended, the use of before counts.
    found = await other.secret()
    await other.storage.replace(SECRETS, limits_of(found, "2"), found)
    await one.ask(csr("worker-2"))
    assert (await one.why(csr("worker-3"))).why == "TokenUsedUp"


def limits_of(item: items.Item, max_uses: str) -> objects.Document:
    document = item.document()
    document["metadata"]["annotations"][limits.MAX_USES_KEY] = max_uses
    return document


async def test_no_turn_is_kept(server: Server) -> None:
    await server.put()
    await server.ask(csr())
    assert len(server.limits._uses) == 0


class Door:
    """The authenticator of a server whose copy holds one token, with these networks."""

    def __init__(self, server: Server) -> None:
        judge = bootstrap_tokens.BootstrapTokens(server.replica, ("api",))
        self.authenticator = authn.Authenticator(
            bundles.TrustBundle.of([]), [authn.TokenRow(judge)], audiences=("api",)
        )

    def enter(self, address: str) -> identity.User:
        caller = peer.Peer.of((), address, "tls")
        return self.authenticator.authenticate(caller, f"Bearer {TOKEN.text}", clocks.MovableClock().now())


async def test_a_token_is_accepted_only_from_its_networks(server: Server) -> None:
    await server.put(allowed_cidrs="192.0.2.0/24")
    await server.secret()
    door = Door(server)
    user = door.enter("192.0.2.9")
    assert (user.name, user.source) == ("system:bootstrap:foobar", "192.0.2.9")
    with pytest.raises(identity.Unauthorized) as caught:
        door.enter("198.51.100.1")
    assert caught.value.why == "TokenNotFromHere"
    # Who asks about it in a TokenReview does not say where it was presented.
    with pytest.raises(identity.Unauthorized) as caught:
        door.authenticator.reviewed(TOKEN.text, (), clocks.MovableClock().now())
    assert caught.value.why == "TokenNotFromHere"


async def test_a_token_without_networks_is_accepted_from_anywhere(server: Server) -> None:
    await server.put(max_uses="1")
    await server.secret()
    door = Door(server)
    assert door.enter("198.51.100.1").source == "198.51.100.1"
    assert door.authenticator.reviewed(TOKEN.text, (), clocks.MovableClock().now())[0].name == USER.name


async def test_networks_that_cannot_be_read_let_nobody_in(server: Server) -> None:
    await server.put(allowed_cidrs="anywhere")
    await server.secret()
    with pytest.raises(identity.Unauthorized) as caught:
        Door(server).enter("192.0.2.9")
    assert caught.value.why == "BadTokenLimits"
    assert caught.value.detail.startswith("bootstrap-token-foobar: handfast.dev/allowed-cidrs: ")


async def test_those_who_come_meanwhile_are_written_together(server: Server) -> None:
    await server.put()
    writes = 0
    replace = server.storage.replace

    async def counted(kind: Any, document: objects.Document, old: items.Item) -> items.Item:
        nonlocal writes
        writes += 1
        return await replace(kind, document, old)

    server.storage.replace = counted  # type: ignore[method-assign]
    await asyncio.gather(*(server.ask(csr(f"worker-{number}")) for number in range(20)))
    assert writes <= 2
    assert limits.count((await server.secret()).document()) == 20


async def test_of_a_batch_each_is_judged_by_those_before(server: Server) -> None:
    await server.put(max_uses="3")
    key = keys.generate(keys.Kind.P256)
    outcomes = await asyncio.gather(
        *(server.ask(csr("same", key)) for _ in range(4)),
        *(server.ask(csr(f"worker-{number}")) for number in range(4)),
        return_exceptions=True,
    )
    assert [type(outcome) for outcome in outcomes] == [type(None)] * 6 + [plugin.Refusal] * 2
    assert len(await server.uses()) == 3


async def test_who_goes_away_takes_nobody_along(server: Server) -> None:
    await server.put()
    held = asyncio.Event()
    find = server.storage.find

    async def late(*where: Any) -> Any:
        await held.wait()
        return await find(*where)

    server.storage.find = late  # type: ignore[method-assign,assignment]
    first = asyncio.create_task(server.ask(csr("worker-1")))
    others = [asyncio.create_task(server.ask(csr(f"worker-{number}"))) for number in range(2, 5)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    first.cancel()
    held.set()
    await asyncio.gather(*others)
    with pytest.raises(asyncio.CancelledError):
        await first
    assert sorted(use.node for use in await server.uses()) == ["worker-2", "worker-3", "worker-4"]


async def test_a_bug_over_one_request_fails_that_one_only(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    await server.put()
    decide = token_use.decide

    def broken(asked: token_use.Attempt) -> Any:
        if asked.request["metadata"]["name"] == odd["metadata"]["name"]:
            raise ZeroDivisionError
        return decide(asked)

    odd = csr("worker-3")
    odd["metadata"]["name"] = "odd"
    monkeypatch.setattr(token_use, "decide", broken)
    asking = [csr("worker-1"), csr("worker-2"), odd, csr("worker-4")]
    outcomes = await asyncio.gather(*map(server.ask, asking), return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [type(None), type(None), ZeroDivisionError, type(None)]
    assert sorted(use.node for use in await server.uses()) == ["worker-1", "worker-2", "worker-4"]
