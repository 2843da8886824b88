# SPDX-License-Identifier: Apache-2.0
"""Failed joins over the API: what may not be read is told, and only where nothing may be read it is an error."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from handfast.api import status
from handfast.client import join_failures
from tests.unit.controllers.fake_api import FakeClient


def refusing(*plurals: str, reason: str = "Forbidden") -> Callable[[str, str, str], None]:
    def before(_verb: str, plural: str, _name: str) -> None:
        if plural in plurals:
            raise status.StatusError(reason, f"{plural}: {reason}")

    return before


@pytest.mark.parametrize("plural", ["events", "certificatesigningrequests"])
async def test_what_may_not_be_read_is_told_and_the_rest_is_read(plural):
    client = FakeClient()
    client.before = refusing(plural)
    read = await join_failures.read(client)
    assert (read.failures, read.unread) == ((), (f"not everything could be read: {plural}: Forbidden",))


async def test_where_nothing_may_be_read_that_is_the_error():
    client = FakeClient()
    client.before = refusing("events", "certificatesigningrequests")
    with pytest.raises(status.StatusError, match="events: Forbidden"):
        await join_failures.read(client)


async def test_a_server_that_cannot_answer_is_no_lack_of_rights():
    client = FakeClient()
    client.before = refusing("events", reason="ServiceUnavailable")
    with pytest.raises(status.StatusError, match="events: ServiceUnavailable"):
        await join_failures.read(client)
