# SPDX-License-Identifier: Apache-2.0
"""Limited bootstrap tokens, over the wire: many machines at once, retries, other names, other networks, other servers."""

from __future__ import annotations

import asyncio
import base64
import pathlib
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import msgspec
import pytest

from handfast.assembly import apiserver
from handfast.bootstrap import token_limits
from handfast.pki import keys, names, pins, requests
from handfast.store.sqlite import engine as sqlite
from tests.scenarios import callers
from tests.world import world as worlds

TOKEN = "foobar.circumnavigation"
SECRET = f"{callers.SECRETS}/bootstrap-token-foobar"
CSRS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
SIGNER = "kubernetes.io/kube-apiserver-client-kubelet"
MACHINES = 40


def csr(name: str, key: keys.PrivateKey, node: str = "worker-1") -> dict[str, Any]:
    subject = names.Subject(common_name=f"system:node:{node}", organizations=("system:nodes",))
    request = requests.build(subject, names.Sans(), key)
    return {
        "metadata": {"name": name},
        "spec": {
            "signerName": SIGNER,
            "request": base64.b64encode(request).decode(),
            "usages": ["digital signature", "client auth"],
        },
    }


def new_key() -> keys.PrivateKey:
    return keys.generate(keys.Kind.P256)


async def limited(world: worlds.World, **noted: str) -> None:
    """A token with these limits, whose bearers may ask for certificates."""
    metadata = {"annotations": {f"handfast.dev/{key.replace('_', '-')}": value for key, value in noted.items()}}
    await callers.make(world, callers.SECRETS, callers.token_secret(callers.TOKEN_DATA, metadata=metadata))
    await callers.bind(world, "system:node-bootstrapper", "Group", "system:bootstrappers")


async def join(
    world: worlds.World, document: dict[str, Any], query: str = "", address: str = "127.0.0.1"
) -> worlds.Answer:
    """Ask for a certificate with the token, from a machine of its own."""
    connector = aiohttp.TCPConnector(ssl=world.anonymous_context(), local_addr=(address, 0))
    headers = {**callers.bearer(TOKEN), "Content-Type": "application/json"}
    async with (
        aiohttp.ClientSession(world.base, connector=connector, headers=headers) as session,
        session.post(CSRS + query, data=msgspec.json.encode(document)) as answer,
    ):
        return worlds.Answer(answer.status, answer.headers, await answer.read())


async def secret(world: worlds.World) -> Any:
    return (await world.get(SECRET)).json()


async def stored(world: worlds.World) -> set[str]:
    return {item["metadata"]["name"] for item in (await world.get(CSRS)).json()["items"]}


async def test_of_many_machines_exactly_as_many_as_allowed_get_in(world: worlds.World) -> None:
    await limited(world, max_uses="1")
    asked = [csr(f"csr-{number}", new_key(), f"worker-{number}") for number in range(MACHINES)]
    answers = await asyncio.gather(*(join(world, document) for document in asked))
    assert Counter(answer.status for answer in answers) == {201: 1, 403: MACHINES - 1}
    (winner,) = await stored(world)
    (use,) = token_limits.uses(await secret(world))
    assert use.node == winner.replace("csr", "worker")
    assert use.source == "127.0.0.1"
    assert token_limits.count(await secret(world)) == 1
    refused = next(answer for answer in answers if answer.status == 403)
    assert [cause["reason"] for cause in refused.json()["details"]["causes"]] == ["TokenUsedUp"]
    assert await callers.refusals(world, "TokenUsedUp", "admission") == MACHINES - 1


async def test_the_same_key_gets_in_again(world: worlds.World) -> None:
    """A reply that was lost strands nobody, and a second machine never gets in."""
    await limited(world, max_uses="1")
    key = new_key()
    assert (await join(world, csr("first", key))).status == 201
    assert (await join(world, csr("second", key))).status == 201
    # The very same once more is told that it is there, and not that the token is used up.
    assert (await join(world, csr("first", key))).reason == "AlreadyExists"
    assert (await join(world, csr("third", new_key()))).status == 403
    (use,) = token_limits.uses(await secret(world))
    assert use.key == str(pins.of_public_key(key.public.spki))


async def test_one_key_many_times_at_once_is_one_use(world: worlds.World) -> None:
    await limited(world, max_uses="1")
    key = new_key()
    answers = await asyncio.gather(*(join(world, csr(f"csr-{number}", key)) for number in range(10)))
    assert {answer.status for answer in answers} == {201}
    assert token_limits.count(await secret(world)) == 1


async def test_the_count_is_exact_while_others_change_the_secret(world: worlds.World) -> None:
    await limited(world, max_uses="5")

    async def touch(number: int) -> None:
        patch = {"metadata": {"labels": {"touched": str(number)}}}
        await world.request("PATCH", SECRET, patch, headers=dict(callers.MERGE))

    asked = [csr(f"csr-{number}", new_key(), f"worker-{number}") for number in range(MACHINES)]
    answers = (await asyncio.gather(*map(touch, range(MACHINES)), *(join(world, each) for each in asked)))[MACHINES:]
    assert Counter(answer.status for answer in answers if answer is not None) == {201: 5, 403: MACHINES - 5}
    found = await secret(world)
    assert token_limits.count(found) == len(token_limits.uses(found)) == 5
    assert {use.node.replace("worker", "csr") for use in token_limits.uses(found)} == await stored(world)


async def test_what_fails_after_the_reservation_costs_nothing(world: worlds.World) -> None:
    await limited(world, max_uses="1")
    await callers.make(world, CSRS, csr("taken", new_key()))
    key = new_key()
    assert (await join(world, csr("taken", key))).reason == "AlreadyExists"
    assert token_limits.count(await secret(world)) == 1
    assert (await join(world, csr("free", key))).status == 201


async def test_what_is_invalid_reserves_nothing(world: worlds.World) -> None:
    await limited(world, max_uses="1")
    document = csr("a", new_key())
    document["spec"]["usages"] = []
    assert (await join(world, document)).reason == "Invalid"
    assert token_limits.count(await secret(world)) == 0


async def test_a_dry_run_reserves_nothing(world: worlds.World) -> None:
    await limited(world, max_uses="1")
    assert (await join(world, csr("a", new_key()), "?dryRun=All")).status == 201
    assert token_limits.count(await secret(world)) == 0
    assert (await join(world, csr("a", new_key()))).status == 201


async def test_another_nodes_name(world: worlds.World) -> None:
    await limited(world, allowed_nodes="worker-*")
    refused = await join(world, csr("a", new_key(), "db-1"))
    assert refused.status == 403
    assert "is for 'worker-*', and the request asks for 'system:node:db-1'" in refused.message
    assert "--node" in refused.message
    assert await callers.refusals(world, "TokenNotForThisNode", "admission") == 1
    assert (await join(world, csr("b", new_key(), "worker-7"))).status == 201


async def test_a_token_without_limits_has_its_uses_written_down(world: worlds.World) -> None:
    await limited(world)
    for number in range(token_limits.KEPT + 2):
        assert (await join(world, csr(f"csr-{number}", new_key(), f"worker-{number}"))).status == 201
    found = await secret(world)
    assert token_limits.count(found) == token_limits.KEPT + 2
    assert [use.node for use in token_limits.uses(found)] == [
        f"worker-{number}" for number in (*range(16), *range(18, 34))
    ]


async def test_a_stolen_token_in_another_network(tmp_path: pathlib.Path) -> None:
    log = tmp_path / "audit.log"
    async with worlds.world(tmp_path / "d", audit=apiserver.AuditOptions(path=str(log))) as world:
        await limited(world, allowed_cidrs="127.0.0.2/32")
        refused = await join(world, csr("a", new_key()))
        # Nothing tells the thief that the token is a good one.
        assert (refused.status, refused.json()) == (401, callers.BARE)
        assert await callers.refusals(world, "TokenNotFromHere") == 1
        assert (await callers.review(world, TOKEN)).get("authenticated") is not True
        assert await stored(world) == set()
        assert (await join(world, csr("b", new_key()), address="127.0.0.2")).status == 201
        assert [use.source for use in token_limits.uses(await secret(world))] == ["127.0.0.2"]
    why = [line["annotations"].get("handfast.dev/refused-because", "") for line in callers.audited(log)]
    assert [text for text in why if text.startswith("TokenNotFromHere: system:bootstrap:foobar: ")]


@pytest.mark.parametrize("signs", [True, False])
async def test_who_can_check_the_token_without_the_server_is_told_that_it_is_the_network(
    world: worlds.World, signs: bool
) -> None:
    data = {**callers.TOKEN_DATA, **({"usage-bootstrap-signing": "true"} if signs else {})}
    metadata = {"annotations": {"handfast.dev/allowed-cidrs": "127.0.0.2/32"}}
    await callers.make(world, callers.SECRETS, callers.token_secret(data, metadata=metadata))
    refused = await join(world, csr("a", new_key()))
    assert (refused.status, refused.json()) == (401, callers.BARE)
    assert ("TokenNotFromHere" in refused.headers.get("WWW-Authenticate", "")) is signs


async def test_a_refusal_is_in_the_audit_log_with_its_word(tmp_path: pathlib.Path) -> None:
    log = tmp_path / "audit.log"
    async with worlds.world(tmp_path / "d", audit=apiserver.AuditOptions(path=str(log))) as world:
        await limited(world, allowed_nodes="db-1")
        assert (await join(world, csr("a", new_key()))).status == 403
    why = [line["annotations"].get("handfast.dev/refused-because", "") for line in callers.audited(log)]
    assert "TokenNotForThisNode" in why


@pytest.fixture
async def pair(tmp_path: pathlib.Path) -> AsyncIterator[tuple[worlds.World, worlds.World]]:
    """Two servers on one store."""
    if worlds.ON_ETCD:
        async with worlds.world(tmp_path / "d") as one, worlds.world(tmp_path / "d") as other:
            yield one, other
        return
    engine = await sqlite.open_store(str(tmp_path / "store.db"))

    class Shared:
        def __getattr__(self, name: str) -> Any:
            return getattr(engine, name)

        async def close(self) -> None:
            return None

    store: Any = Shared()
    async with worlds.world(tmp_path / "d", store=store) as one, worlds.world(tmp_path / "d", store=store) as other:
        yield one, other
    await engine.close()


async def test_two_servers_count_together(pair: tuple[worlds.World, worlds.World]) -> None:
    one, other = pair
    await limited(one, max_uses="3")
    asks = [join(pair[number % 2], csr(f"csr-{number}", new_key(), f"worker-{number}")) for number in range(MACHINES)]
    answers = await asyncio.gather(*asks)
    assert Counter(answer.status for answer in answers) == {201: 3, 403: MACHINES - 3}
    assert token_limits.count(await secret(other)) == 3
    assert len(await stored(one)) == 3
