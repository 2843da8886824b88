# SPDX-License-Identifier: Apache-2.0
"""The page of the checks: what `handfast check` says, whatever state the control plane is in."""

from __future__ import annotations

import asyncio
import re

from handfast import errors
from handfast.client import api, connection
from handfast.console import looking
from handfast.rules import check
from handfast.rules.diagnoses import facts, judged
from tests.unit.console import served
from tests.unit.rules.diagnoses import known as known_facts
from tests.world import world as worlds

EVIL = "<img src=x onerror=alert(1)>\u202e"


async def test_every_check_is_there_in_the_order_of_the_command(browser: served.Browser):
    reply = await browser.until("/check", lambda reply: 'id="check-store"' in reply.text)
    wanted = [each.name for each in judged.everything(known_facts.good())]
    assert re.findall(r'id="check-([^"]+)"', reply.text) == wanted
    assert "checks are well" in reply.text or "Of " in reply.text


async def test_a_half_broken_control_plane_gets_a_full_report(world: worlds.World):
    async def look(_client: api.Client, _used: connection.Connection) -> facts.Facts:
        reach = facts.Reach(
            server="https://192.0.2.1:6443", addresses=check.Unread(EVIL, "NameNotFound", f"look {EVIL}")
        )
        return known_facts.good(reach=reach, tokens=check.Unread("it was not answered within 10 s", check.TIMEOUT))

    async with served.console(world, look=look) as browser:
        reply = await browser.until("/check", lambda reply: 'id="check-store"' in reply.text)
        assert "NameNotFound" in reply.text
        assert "handfast explain NameNotFound" in reply.text
        assert "docs/check.md#dns" in reply.text
        assert "<img" not in reply.text
        assert "\u202e" not in reply.text
        unwell = await browser.get("/check?only=unwell")
        names = re.findall(r'id="check-([^"]+)"', unwell.text)
        assert {"dns", "tokens"} <= {*names}
        assert "webhooks" not in names
        assert "Show all of them" in unwell.text


async def test_how_far_a_look_is_and_that_it_failed_is_told(world: worlds.World):
    go_on = asyncio.Event()

    async def look(_client: api.Client, _used: connection.Connection, tell: looking.Tell) -> facts.Facts:
        tell(3, 14, ["rights", "webhooks", "tokens", "nodes", "mesh"])
        await go_on.wait()
        raise errors.Unavailable(f"nobody answers {EVIL}", reason="Unavailable")

    async with served.console(world, telling=look) as browser:
        reply = await browser.get("/check")
        assert "3 of 14 looked up; still at rights, webhooks, tokens, nodes and 1 more" in reply.text
        assert "The control plane is being looked at" in reply.text
        go_on.set()
        reply = await browser.until("/check", lambda reply: "could not be looked at" in reply.text)
        assert "nobody answers &lt;img" in reply.text
        assert "looked up" not in reply.text
