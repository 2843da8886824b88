# SPDX-License-Identifier: Apache-2.0
"""Whether the API server is there: silence, and a server that does not know who asks, are told apart from an answer."""

import asyncio
import contextlib
import types
from typing import Any

import pytest

from handfast import errors
from handfast.api import status
from handfast.client import hearing
from tests.world.clock import MovableClock


@pytest.mark.parametrize(
    ("answers", "told"),
    [
        ([b"ok"], None),
        ([status.StatusError("Unauthorized", "who")], "the API server does not know the credentials"),
        ([status.StatusError("Unauthorized", "who"), b"ok"], None),
        ([status.StatusError("ServiceUnavailable", "later")], None),
        ([errors.Unavailable("gone")], "the API server does not answer: gone"),
    ],
)
async def test_an_answer_counts_unless_the_server_does_not_know_who_asks(answers, told):
    clock, left = MovableClock(), list(answers)

    async def request(*_, **__):
        answer = left.pop(0)
        if isinstance(answer, errors.Unavailable):
            link.unheard = "gone"
        if isinstance(answer, Exception):
            raise answer
        return answer

    link: Any = types.SimpleNamespace(request=request, unheard=None, is_stranger=False)
    task = asyncio.create_task(hearing.keep_asking(link, clock))
    await asyncio.sleep(0)
    for _ in answers:
        await clock.advance(10)
    assert hearing.unheard(link) == told
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
