# SPDX-License-Identifier: Apache-2.0
"""Live parts: made once for all who show them, numbered, sent again to who comes back, and never queued without end."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from handfast import errors
from handfast.console import known as known_module
from handfast.console import live, needs
from handfast.console import page as page_module
from handfast.rules.console import questions
from tests.world.clock import MovableClock


async def show(_known: known_module.Known, _question: questions.Question) -> Mapping[str, Any]:
    return {}


PAGE = page_module.Page(
    path="/nodes", name="Nodes", title="Nodes", template="nodes.html", needs=(needs.NODES,), show=show, rows=True
)
QUESTION = questions.read("/nodes", {})


class Stream:
    """A client's end: what was written to it."""

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.gone = asyncio.Event()
        self.broken = False

    def on_gone(self, tell: Any) -> None:
        self._tell = tell

    async def begin(self) -> None: ...

    async def send(self, part: bytes) -> None:
        if self.broken:
            raise ConnectionResetError
        self.sent.append(part.decode())

    def end(self) -> None: ...

    def leave(self) -> None:
        self.gone.set()
        self._tell()


class Show:
    """A hub with a page whose one part is what the test says."""

    def __init__(self) -> None:
        self.clock = MovableClock()
        self.text = "one"
        self.made = 0
        self.hub = live.Hub(self._make, self.clock)
        self.alive = True
        self._tasks: list[asyncio.Task[None]] = [asyncio.create_task(self.hub.run())]

    async def _make(self, _page: page_module.Page, _question: questions.Question) -> Mapping[str, str]:
        self.made += 1
        if self.text == "broken":
            raise errors.Unavailable("nothing is known")
        return {"summary": f"<p id='summary'>{self.text}</p>"}

    def follow(self, stream: Stream, last: str = "", fill: live.Fill = str) -> asyncio.Task[None]:
        work = self.hub.follow(PAGE, QUESTION, stream, last, fill, lambda: self.alive)  # type: ignore[arg-type]
        self._tasks.append(asyncio.create_task(work))
        return self._tasks[-1]

    async def pass_time(self, seconds: float = 1.0) -> None:
        for _ in range(20):
            await asyncio.sleep(0)
        await self.clock.advance(seconds)
        for _ in range(20):
            await asyncio.sleep(0)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@pytest.fixture
async def shown():
    made = Show()
    yield made
    await made.close()


async def test_a_part_is_made_once_for_twenty_who_show_it(shown: Show):
    streams = [Stream() for _ in range(20)]
    for stream in streams:
        shown.follow(stream)
    await shown.pass_time()
    assert shown.made == 1
    shown.text = "two"
    shown.hub.changed("nodes")
    await shown.pass_time()
    assert shown.made == 2
    assert {stream.sent[-1] for stream in streams} == {streams[0].sent[-1]}
    assert "two" in streams[0].sent[-1]


async def test_what_came_out_as_it_was_is_not_sent(shown: Show):
    stream = Stream()
    shown.follow(stream)
    await shown.pass_time()
    before = len(stream.sent)
    await shown.pass_time(live.STALE_SECONDS)
    await shown.pass_time()
    assert shown.made == 2
    assert [text for text in stream.sent[before:] if "fragment" in text] == []


async def test_a_thousand_changes_in_a_second_are_one(shown: Show):
    shown.follow(Stream())
    await shown.pass_time()
    for _ in range(1000):
        shown.hub.changed("nodes")
    shown.hub.changed("tokens")
    await shown.pass_time()
    await shown.pass_time()
    assert shown.made == 2


async def test_who_comes_back_gets_what_is_newer(shown: Show):
    first = Stream()
    shown.follow(first)
    await shown.pass_time()
    last = first.sent[-1].partition("id: ")[2].partition("\n")[0]
    shown.text = "two"
    shown.hub.changed("nodes")
    await shown.pass_time()
    back, other, all_of_it = Stream(), Stream(), Stream()
    shown.follow(back, last)
    shown.follow(other, f"{shown.hub.run_id}-{2}")
    shown.follow(all_of_it, "another-99")
    await shown.pass_time(0.1)
    assert "two" in back.sent[0]
    assert other.sent == []
    assert "two" in all_of_it.sent[0]


async def test_rows_are_told_of_and_not_sent(shown: Show):
    stream = Stream()
    shown.follow(stream)
    await shown.pass_time()
    shown.hub.changed("nodes")
    await shown.pass_time()
    assert "event: rows\n" in stream.sent[-1]
    assert "fragment" not in stream.sent[-1]


async def test_who_reads_slowly_gets_the_newest_of_each_part(shown: Show):
    slow = Stream()
    slow.sending = asyncio.Event()  # type: ignore[attr-defined]
    plain = slow.send

    async def wait(part: bytes) -> None:
        await slow.sending.wait()  # type: ignore[attr-defined]
        await plain(part)

    slow.send = wait  # type: ignore[method-assign]
    shown.follow(slow)
    for number in range(5):
        shown.text = f"text {number}"
        shown.hub.changed("nodes")
        await shown.pass_time()
    slow.sending.set()  # type: ignore[attr-defined]
    await shown.pass_time(0.1)
    assert len(slow.sent) == 2
    assert "text 4" in slow.sent[-1]


async def test_who_does_not_read_is_given_up_and_leaves_nothing(shown: Show):
    stream = Stream()
    stream.broken = True
    await shown.pass_time()
    task = shown.follow(stream)
    await shown.pass_time()
    assert task.done()
    assert (shown.hub.streams, shown.hub._channels) == (0, {})


async def test_who_leaves_is_noticed_at_once(shown: Show):
    stream = Stream()
    task = shown.follow(stream)
    await shown.pass_time()
    stream.leave()
    await shown.pass_time(0.1)
    assert task.done()


async def test_a_stream_ends_with_its_session(shown: Show):
    stream = Stream()
    task = shown.follow(stream)
    await shown.pass_time()
    shown.alive = False
    await shown.pass_time(live.TICK_SECONDS)
    assert task.done()
    assert "event: ended\n" in stream.sent[-1]


async def test_there_is_a_tick_so_that_silence_means_something(shown: Show):
    stream = Stream()
    shown.follow(stream)
    await shown.pass_time()
    await shown.pass_time(live.TICK_SECONDS)
    assert "event: tick\n" in stream.sent[-1]


async def test_streams_are_bounded(shown: Show):
    shown.hub.room(live.OF_ONE_SESSION - 1)
    with pytest.raises(errors.Unavailable):
        shown.hub.room(live.OF_ONE_SESSION)
    shown.hub.streams = live.MANY
    with pytest.raises(errors.Unavailable):
        shown.hub.room(0)


async def test_a_page_that_cannot_be_made_keeps_its_parts(shown: Show):
    stream = Stream()
    shown.follow(stream)
    await shown.pass_time()
    shown.text = "broken"
    shown.hub.changed("nodes")
    await shown.pass_time()
    shown.text = "whole"
    shown.hub.changed("nodes")
    await shown.pass_time()
    assert "whole" in stream.sent[-1]


async def test_the_token_of_a_form_is_filled_in_for_each(shown: Show):
    stream = Stream()
    shown.text = "PLACE"
    shown.follow(stream, fill=lambda html: html.replace("PLACE", "token"))
    await shown.pass_time()
    assert "token" in stream.sent[0]
    assert "PLACE" not in stream.sent[0]
