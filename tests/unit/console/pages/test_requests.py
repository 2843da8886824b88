# SPDX-License-Identifier: Apache-2.0
"""The list of requests: what waits first, by state, by filter, in ranges."""

from __future__ import annotations

from tests.unit.console import people_cases, served
from tests.world import world as worlds


async def test_what_waits_is_listed_with_its_node_and_token(world: worlds.World, browser: served.Browser) -> None:
    assert (
        "There are no certificate requests"
        in (await browser.until("/requests", lambda page: "is being read" not in page.text)).text
    )
    await people_cases.file_request(world, "edge-1", by="system:bootstrap:abcdef")
    page = await browser.until("/requests", lambda page: "edge-1" in page.text)
    assert "1 request waits for somebody" in page.text
    assert '<a href="/requests/edge-1">' in page.text
    assert '<a href="/tokens/abcdef">token abcdef</a>' in page.text
    # Beside its name in the navigation, on every page.
    await browser.until("/", lambda page: "needing somebody: </span>1<" in page.text)


async def test_rows_come_by_state_by_filter_and_in_ranges(world: worlds.World, browser: served.Browser) -> None:
    for number in range(3):
        await people_cases.file_request(world, f"edge-{number}")
    await browser.until("/requests", lambda page: "3 requests wait" in page.text)
    rows = await browser.get("/requests/rows?from=1&count=1&sort=name")
    assert rows.headers["Handfast-Total"] == "3"
    assert "edge-1" in rows.text
    assert "edge-0" not in rows.text
    assert "<html" not in rows.text
    filtered = await browser.get("/requests?filter=EDGE-2")
    assert ("edge-2" in filtered.text, "edge-1" in filtered.text) == (True, False)
    assert "No request is denied." in (await browser.get("/requests?state=denied")).text
    # What is no state is no choice.
    assert "edge-1" in (await browser.get("/requests?state=%3Cb%3E")).text


async def test_a_request_that_is_called_rows_has_a_page_too(world: worlds.World, browser: served.Browser) -> None:
    await people_cases.file_request(world, "rows")
    assert "asks for a certificate" in (await browser.get("/requests/rows")).text


async def test_a_request_that_is_deleted_leaves_the_list(world: worlds.World, browser: served.Browser) -> None:
    await people_cases.file_request(world, "edge-1")
    await browser.until("/requests", lambda page: "edge-1" in page.text)
    await world.request("DELETE", f"{people_cases.CSRS}/edge-1")
    await browser.until("/requests", lambda page: "No request waits" in page.text)
