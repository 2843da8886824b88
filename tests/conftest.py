# SPDX-License-Identifier: Apache-2.0
"""What every test has: uvloop, as in production, and Hypothesis without deadlines, because machines are busy."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import hypothesis
import uvloop

hypothesis.settings.register_profile("default", deadline=None, max_examples=100)
hypothesis.settings.load_profile("default")


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"uvloop": uvloop.new_event_loop}
