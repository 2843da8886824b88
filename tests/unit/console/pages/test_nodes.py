# SPDX-License-Identifier: Apache-2.0
"""The pages of nodes, in process: every state, a stranger's name, ranges, and what is behind a certificate."""

from __future__ import annotations

from tests.unit.console import served
from tests.world import world as worlds


async def test_without_nodes_the_page_says_how_one_joins(browser: served.Browser):
    reply = await browser.until("/nodes", lambda reply: "There are no nodes" in reply.text)
    assert "handfast token create" in reply.text


async def test_a_name_with_markup_is_escaped(world: worlds.World, browser: served.Browser):
    reply = await browser.get("/nodes/%3Cscript%3E%E2%80%AE")
    assert reply.status == 404
    assert "<script>" not in reply.text.replace('<script type="module"', "")
    assert "U+202E" in reply.text
