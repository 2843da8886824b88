# SPDX-License-Identifier: Apache-2.0
"""Gives the contract's tests each engine in turn. It does not know any engine: see `engines`."""

from __future__ import annotations

import pathlib
from collections.abc import AsyncIterator

import pytest

from handfast.store import protocol
from tests.contract import engines


@pytest.fixture(params=sorted(engines.ENGINES))
def opener(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> engines.Opener:
    return engines.ENGINES[request.param](tmp_path)


@pytest.fixture
async def store(opener: engines.Opener) -> AsyncIterator[protocol.Store]:
    opened = await opener()
    yield opened
    await opened.close()
