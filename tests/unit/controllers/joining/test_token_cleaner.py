# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import datetime
from typing import Any

import msgspec
import pytest

from handfast import errors
from handfast.bootstrap import tokens
from handfast.controllers.joining import token_cleaner
from tests.unit.controllers.fake_api import FakeClient, failing
from tests.world.clock import MovableClock

START = datetime.datetime(2030, 1, 1, tzinfo=datetime.UTC)
TOKEN = tokens.Token("abcdef", "0123456789abcdef")
NAME = "bootstrap-token-abcdef"
AT = ("secrets", "kube-system", NAME)


def document(seconds: float | None) -> dict[str, Any]:
    until = None if seconds is None else START + datetime.timedelta(seconds=seconds)
    return tokens.secret_document(TOKEN, expiration=until)


def put(client: FakeClient, seconds: float | None, **more: Any) -> None:
    made = {**document(seconds), **more}
    client.put("secrets", NAME, "kube-system", type=made["type"], data=made["data"])


class World:
    def __init__(self, seconds: float | None, **more: Any) -> None:
        self.client, self.clock = FakeClient(), MovableClock(START)
        put(self.client, seconds, **more)
        self.handler = token_cleaner.TokenCleaner(self.client, self.clock)

    async def clean(self) -> float | None:
        return self.clock.left(await self.handler.reconcile(NAME))


@pytest.mark.parametrize(
    ("seconds", "left", "deleted"),
    [
        pytest.param(None, None, False, id="no expiration"),
        pytest.param(-3600, None, True, id="an hour ago"),
        pytest.param(0, None, True, id="now"),
        pytest.param(3600, 3600.0, False, id="in an hour"),
    ],
)
async def test_deleted_when_expired(seconds: float | None, left: float | None, deleted: bool):
    world = World(seconds)
    assert await world.clean() == left
    assert world.client.calls == ([("delete", "secrets", NAME)] if deleted else [])


async def test_nothing_and_then_a_deletion():
    world = World(2)
    assert await world.clean() == 2.0
    await world.clock.advance(2)
    assert await world.clean() is None
    assert AT not in world.client.objects
    assert await world.clean() is None


@pytest.mark.parametrize(
    ("more", "deleted"),
    [
        pytest.param({"data": {**document(None)["data"], "expiration": "Z2FyYmFnZQ=="}}, True, id="garbage"),
        pytest.param({"type": "Opaque"}, False, id="another type"),
        pytest.param({"data": {**document(-1)["data"], "token-id": "b3RoZXIx"}}, False, id="another id"),
        pytest.param({"data": {"expiration": document(-1)["data"]["expiration"]}}, False, id="no id"),
        pytest.param({"data": {**document(-1)["data"], "token-secret": "?"}}, False, id="not base64"),
    ],
)
async def test_only_tokens_are_deleted(more: dict[str, Any], deleted: bool):
    world = World(-1, **more)
    assert await world.clean() is None
    assert (AT not in world.client.objects) is deleted


async def test_a_secret_with_another_name_is_nobodys_token():
    client, clock = FakeClient(), MovableClock(START)
    made = document(-1)
    client.put("secrets", "mine", "kube-system", type=made["type"], data=made["data"])
    assert await token_cleaner.TokenCleaner(client, clock).reconcile("mine") is None
    assert client.calls == []


@pytest.mark.parametrize("metadata", [{}, {"uid": "another"}])
async def test_deleted_only_as_it_was_seen(metadata: dict[str, str]):
    world = World(-1)

    def put_off(verb: str, *_: str) -> None:
        if verb == "delete":
            made = document(60)
            world.client.put("secrets", NAME, "kube-system", type=made["type"], data=made["data"], metadata=metadata)

    world.client.before = put_off
    with pytest.raises(errors.Refused) as caught:
        await world.clean()
    # The loop tries again and finds it put off.
    assert caught.value.reason == "Conflict"
    assert await world.clean() == 60.0
    assert AT in world.client.objects


async def test_both_preconditions_are_sent(monkeypatch: pytest.MonkeyPatch):
    world = World(-1)
    sent: list[dict[str, Any]] = []

    async def delete(*_: Any, **options: Any) -> dict[str, Any]:
        sent.append(options)
        return {}

    monkeypatch.setattr(world.client, "delete", delete)
    await world.clean()
    assert sent == [{"namespace": "kube-system", "uid": f"uid-{NAME}", "resource_version": "1"}]


async def test_gone_just_then():
    world = World(-1)

    def go(verb: str, *_: str) -> None:
        if verb == "delete":
            world.client.objects.clear()

    world.client.before = go
    assert await world.clean() is None


async def test_a_failure_is_for_the_loop_to_retry():
    world = World(-1)
    world.client.before = failing(errors.Unavailable("not now"), verb="delete")
    with pytest.raises(errors.Unavailable, match="not now"):
        await world.clean()


@pytest.mark.parametrize(
    ("data", "left"),
    [
        pytest.param(document(90)["data"], 90.0, id="later"),
        pytest.param(document(-90)["data"], 0.0, id="past"),
        pytest.param(document(None)["data"], None, id="never"),
        pytest.param({"expiration": ""}, None, id="empty"),
        pytest.param(None, None, id="nothing"),
        pytest.param({"expiration": "Z2FyYmFnZQ=="}, 0.0, id="garbage"),
        pytest.param({"expiration": "\n"}, None, id="blank"),
        pytest.param({"expiration": "?"}, 0.0, id="not base64"),
    ],
)
def test_when_the_watch_says_it_is_due(data: dict[str, str] | None, left: float | None):
    view = msgspec.convert({"metadata": {"name": "x"}, "data": data}, token_cleaner.View)
    assert MovableClock(START).left(view.due()) == left
