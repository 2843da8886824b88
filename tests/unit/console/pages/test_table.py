# SPDX-License-Identifier: Apache-2.0
"""What all pages with rows have in common, in process."""

from __future__ import annotations

import re

from handfast.console.pages import table
from tests.unit.console import served

LISTINGS = [each.path for each in table.PAGES if each.rows]


async def test_a_page_without_rows_has_its_table_and_says_so_beside_it(browser: served.Browser):
    """The table is there to be filled by what comes later; what is said of no rows comes with the rows, and goes with them."""
    assert len(LISTINGS) == 7
    for path in LISTINGS:
        whole = (await browser.get(path)).text
        assert re.search(r'<div class="listing">.*<table class="rows[^>]* data-total="[0-9]+"', whole, re.DOTALL), path
        beside = whole.index('<div id="beside" role="status">')
        assert beside < whole.index('<div class="listing">')
        rows = await browser.get(f"{path}/rows?from=0&filter=nobody-is-called-this")
        assert (rows.status, rows.headers["Handfast-Total"]) == (200, "0")
        assert '<div id="beside" role="status">' in rows.text
        assert "<tr" not in rows.text
