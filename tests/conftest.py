# SPDX-License-Identifier: Apache-2.0
"""What every test has: uvloop, as in production, and Hypothesis without deadlines, because machines are busy."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping

import hypothesis
import pytest
import structlog
import uvloop

hypothesis.settings.register_profile("default", deadline=None, max_examples=100)
hypothesis.settings.load_profile("default")


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"uvloop": uvloop.new_event_loop}


@pytest.fixture(autouse=True)
def fresh_logging() -> Iterator[None]:
    """What one test configures must not decide which lines the next one sees."""
    yield
    structlog.reset_defaults()
