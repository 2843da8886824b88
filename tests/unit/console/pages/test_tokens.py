# SPDX-License-Identifier: Apache-2.0
"""The list of tokens: what each is good for, and whom it kept out."""

from __future__ import annotations

from handfast.api import objects
from handfast.rules.tokens import failed_joins
from tests.unit.console import people_cases, served
from tests.world import world as worlds


async def test_tokens_are_listed_with_their_limits_and_who_made_them(
    world: worlds.World, browser: served.Browser
) -> None:
    await browser.until("/tokens", lambda page: "There are no bootstrap tokens" in page.text)
    await people_cases.make_token(
        world, "abcdef", **{"handfast.dev/max-uses": "5", "handfast.dev/allowed-nodes": "rack-*"}
    )
    page = await browser.until("/tokens", lambda page: "abcdef" in page.text)
    assert "1 token lets machines in" in page.text
    assert "0 of 5" in page.text
    assert "rack-*" in page.text
    assert "kubernetes-admin" in page.text
    assert "never ends" in page.text


async def test_a_refused_join_stands_at_its_token_with_the_smallest_change(
    world: worlds.World, browser: served.Browser
) -> None:
    await people_cases.make_token(world, "abcdef")
    failures = failed_joins.Failures()
    now = world.clock.now()
    failure = failed_joins.Failure(
        shown=failed_joins.Shown.SECRET, token="abcdef", source="203.0.113.9", reason="TokenUsedUp", node="edge-1"
    )
    event = failed_joins.event(failures.note(failure, now), "words of the server")
    answer = await world.request("POST", "/api/v1/namespaces/kube-system/events", event)
    assert answer.status == 201, answer.body
    page = await browser.until("/tokens", lambda page: "TokenUsedUp" in page.text)
    assert "203.0.113.9" in page.text
    assert "handfast token create --print-join-command --max-uses 1" in page.text
    assert '<span class="tag warn">1</span>' in page.text
    assert "TokenUsedUp" in (await browser.get("/tokens/abcdef")).text
    assert objects.timestamp(now) in page.text


async def test_a_request_with_a_token_that_waits_is_told_too(world: worlds.World, browser: served.Browser) -> None:
    await people_cases.file_request(world, "edge-1", by="system:bootstrap:abcdef")
    page = await browser.until("/tokens", lambda page: "Waiting" in page.text)
    assert '<a href="/requests/edge-1">look at the request</a>' in page.text


async def test_a_secret_that_is_no_token_is_told_and_one_of_another_name_is_left_out(
    world: worlds.World, browser: served.Browser
) -> None:
    await people_cases.make_token(world, "abcdef", **{"handfast.dev/max-uses": "many"})
    page = await browser.until("/tokens", lambda page: "abcdef" in page.text)
    assert "nobody is let in" in page.text
    assert "unreadable" in page.text


async def test_what_strangers_write_is_escaped_and_marked(world: worlds.World, browser: served.Browser) -> None:
    await people_cases.make_token(world, "abcdef", people_cases.EVIL)
    await browser.until("/tokens", lambda page: "abcdef" in page.text)
    for path in ("/tokens", "/tokens/rows?from=0", "/tokens/abcdef"):
        page = await browser.get(path)
        assert "<script>alert" not in page.text
        assert "<img" not in page.text
        assert "\u202e" not in page.text
        assert '<span class="mark"' in page.text
