# SPDX-License-Identifier: Apache-2.0
"""A signal ends what runs in the foreground; only a second Ctrl-C ends its ending."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator

import pytest

from handfast import errors
from handfast.cli import foreground


class Work:
    """Runs until it is told to stop, and then takes its time."""

    def __init__(self, *signals: signal.Signals) -> None:
        self.signals = signals
        self.seen: list[str] = []

    async def __call__(self) -> None:
        try:
            await self._signalled(self.signals[0])
        except asyncio.CancelledError:
            self.seen.append("stopping")
            for number in self.signals[1:]:
                await self._signalled(number)
            self.seen.append("stopped")
            raise

    async def _signalled(self, number: signal.Signals) -> None:
        """Send one to this process, and let the loop see it."""
        received = asyncio.Event()
        before = signal.getsignal(signal.SIGUSR1)
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGUSR1, received.set)
        try:
            os.kill(os.getpid(), number)
            # Signals of one process are handled in the order they came in.
            os.kill(os.getpid(), signal.SIGUSR1)
            await received.wait()
        finally:
            loop.remove_signal_handler(signal.SIGUSR1)
            signal.signal(signal.SIGUSR1, before)
        await asyncio.sleep(0)


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    kept = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in kept.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_is_a_good_end(number: signal.Signals) -> None:
    work = Work(number)
    foreground.run(work(), "error")
    assert work.seen == ["stopping", "stopped"]


def test_being_told_again_does_not_cut_the_ending_short() -> None:
    work = Work(signal.SIGINT, signal.SIGTERM)
    foreground.run(work(), "error")
    assert work.seen == ["stopping", "stopped"]


def test_a_second_interrupt_does() -> None:
    work = Work(signal.SIGTERM, signal.SIGINT)
    foreground.run(work(), "error")
    assert work.seen == ["stopping"]


def test_an_error_is_passed_on() -> None:
    async def fail() -> None:
        raise errors.Unavailable("no")

    with pytest.raises(errors.Unavailable, match="no"):
        foreground.run(fail(), "error")
