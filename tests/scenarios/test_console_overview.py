# SPDX-License-Identifier: Apache-2.0
"""The first page of the console in a real browser, on a real control plane."""

from __future__ import annotations

import pytest

from tests.scenarios import console_world

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_overview_can_be_read_by_everybody(looker: console_world.Looker, scheme: str):
    page = looker.page("/", color_scheme=scheme)
    page.get_by_role("heading", level=1).wait_for()
    page.locator("#live.on").wait_for()
    looker.picture(page, f"overview-{scheme}")
    console_world.require_accessible(page)
    console_world.require_no_sideways_scroll(page)
