# SPDX-License-Identifier: Apache-2.0
"""Objects with tens of thousands of values: they are worked on aside and come out the same; larger ones are refused."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from handfast.api.codec import bounds
from handfast.apiserver.verbs import write_steps
from tests.world.world import World

MAPS = "/api/v1/namespaces/default/configmaps"
CSRS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
APPLY = {"Content-Type": "application/apply-patch+yaml"}
MERGE = {"Content-Type": "application/merge-patch+json"}
JSON_PATCH = {"Content-Type": "application/json-patch+json"}
KEYS = 20_000


def heavy(name: str = "heavy", keys: int = KEYS) -> dict[str, Any]:
    data = {f"k{index}": "" for index in range(keys)}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Where documents are judged."""
    seen: set[str] = set()
    judge: Callable[..., None] = write_steps.require_valid

    def watched(*arguments: Any) -> None:
        seen.add(threading.current_thread().name.partition("_")[0])
        judge(*arguments)

    monkeypatch.setattr(write_steps, "require_valid", watched)
    return seen


async def test_a_heavy_object_lives_as_any_other(world: World, threads: set[str]) -> None:
    made = await world.request("POST", MAPS, heavy())
    assert made.status == 201, made.message
    assert len(made.json()["data"]) == KEYS
    # With the record of its owners it would be too large: it goes without.
    assert "managedFields" not in made.json()["metadata"]
    put = await world.request("PUT", f"{MAPS}/heavy", {**made.json(), "data": heavy(keys=KEYS - 1)["data"]})
    assert put.status == 200, put.message
    patch = await world.request("PATCH", f"{MAPS}/heavy", {"data": {"k1": "new"}}, headers=MERGE)
    assert (patch.status, patch.json()["data"]["k1"], len(patch.json()["data"])) == (200, "new", KEYS - 1)
    applied = await world.request(
        "PATCH", f"{MAPS}/applied?fieldManager=me", msgspec.json.encode(heavy("applied", 5000)), headers=APPLY
    )
    assert applied.status == 201, applied.message
    again = await world.request(
        "PATCH", f"{MAPS}/applied?fieldManager=me", msgspec.json.encode(heavy("applied", 4000)), headers=APPLY
    )
    assert (again.status, len(again.json()["data"])) == (200, 4000), again.message
    gone = await world.request("DELETE", f"{MAPS}/heavy")
    assert gone.status == 200
    assert threads == {"aside"}


async def test_a_light_object_is_worked_on_at_once(world: World, threads: set[str]) -> None:
    assert (await world.request("POST", MAPS, heavy("light", 100))).status == 201
    assert threads == {"MainThread"}


async def test_refusals_come_back_from_aside(world: World) -> None:
    wrong = heavy()
    wrong["data"] = {f"no key {index}": "" for index in range(KEYS)}
    answer = await world.request("POST", MAPS, wrong)
    assert answer.status == 422
    assert len(answer.json()["details"]["causes"]) == 100
    assert answer.message.endswith("and more: only the first 100 are shown]")
    unreadable = await world.request("POST", MAPS, b'{"data":[' + b"1," * KEYS)
    assert (unreadable.status, unreadable.reason) == (400, "BadRequest")


async def test_too_many_values_are_refused(world: World) -> None:
    answer = await world.request("POST", MAPS, b'{"metadata":{"name":"a"},"x":[' + b"{}," * 300_000 + b"{}]}")
    assert (answer.status, answer.reason) == (413, "RequestEntityTooLarge")
    assert f"the ConfigMap has more than {bounds.USUAL} values" in answer.message
    options = await world.request("DELETE", f"{MAPS}/a", b'{"x":[' + b"{}," * 2000 + b"{}]}")
    assert (options.status, "DeleteOptions" in options.message) == (413, True)
    patch = await world.request("PATCH", f"{MAPS}/a", b"[" + b"{}," * 60_000 + b"{}]", headers=JSON_PATCH)
    assert (patch.status, "JSON patch" in patch.message) == (413, True)


async def test_an_object_does_not_grow_patch_by_patch(world: World) -> None:
    assert (await world.request("POST", MAPS, heavy(keys=bounds.USUAL - 100))).status == 201
    more = {"data": {f"more{index}": "" for index in range(90)}}
    assert (await world.request("PATCH", f"{MAPS}/heavy", more, headers=MERGE)).status == 200
    more = {"data": {f"much{index}": "" for index in range(90)}}
    refused = await world.request("PATCH", f"{MAPS}/heavy", more, headers=MERGE)
    assert refused.status == 413
    assert "the ConfigMap to be stored has more than" in refused.message
    assert len((await world.get(f"{MAPS}/heavy")).json()["data"]) == bounds.USUAL - 10


async def test_a_request_with_a_thousand_usages_is_refused_by_name(world: World) -> None:
    spec = {"request": "eA==", "signerName": "a.b/c", "usages": ["client auth"] * 1000}
    answer = await world.request("POST", CSRS, {"metadata": {"name": "a"}, "spec": spec})
    assert answer.status == 422
    assert "spec.usages: Too many: 1000: must have at most 64 items" in answer.message


async def test_over_its_share_a_user_is_told_to_come_again(world: World) -> None:
    answers = await asyncio.gather(
        *(world.request("POST", MAPS, heavy(f"m{index}", 3000)) for index in range(40)), world.get("/livez")
    )
    made = [answer for answer in answers if answer.status == 201]
    refused = [answer for answer in answers if answer.status == 503]
    assert len(made) >= 16
    assert answers[-1].status == 200
    assert len(made) + len(refused) == 40
    assert refused
    assert {answer.headers["Retry-After"] for answer in refused} == {"1"}
