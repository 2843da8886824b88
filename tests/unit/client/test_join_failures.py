# SPDX-License-Identifier: Apache-2.0
"""Reading what the API has about failed joins, as far as one may."""

from __future__ import annotations

import pytest

from handfast.api import status
from handfast.client import join_failures
from tests.unit.client import scripted

FORBIDDEN = scripted.status(403, "Forbidden")
NONE = scripted.listing("1")


@pytest.mark.parametrize("steps", [(FORBIDDEN, NONE), (NONE, FORBIDDEN)])
async def test_what_may_not_be_read_is_told_and_the_rest_is_read(steps: tuple[scripted.Step, ...]):
    async with scripted.serving(*steps) as server, scripted.client_of(server) as client:
        read = await join_failures.read(client)
    assert read == join_failures.Read((), ("not everything could be read: because Forbidden",))


async def test_where_nothing_may_be_read_that_is_an_error():
    async with scripted.serving(FORBIDDEN, FORBIDDEN) as server, scripted.client_of(server) as client:
        with pytest.raises(status.StatusError, match="because Forbidden"):
            await join_failures.read(client)


async def test_another_refusal_is_an_error_at_once():
    async with scripted.serving(scripted.status(410, "Expired")) as server, scripted.client_of(server) as client:
        with pytest.raises(status.StatusError, match="because Expired"):
            await join_failures.read(client)
