# SPDX-License-Identifier: Apache-2.0
"""One request, one bounded cost: whatever a caller sends, others are answered meanwhile, and so is the caller.

A real server, a prober and an attack (`tests/world/stalls.py`). The bound is 50 ms of computing on a quiet machine. It
grows with how much slower the machine computes now than then, and only the best of a few tries counts, so that a busy
machine does not fail it; a request that holds the server does so every time.

In CI a few hundred cases go by: together they have every list and map of every message, every shape in every way, and
every kind. `HANDFAST_STALLS` makes it larger: a number of cases, `fields` (every shape of every field of every message
once, about 6,000) or `all` (every path, about 300,000).
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator

import pytest

from handfast.api import status
from tests.scenarios import costly_requests, request_forms, request_shapes
from tests.world import stalls

# Seconds of computing, on a quiet machine.
BOUND = 0.050
# Seconds by the clock: for a server that waits where it should not, which no computing shows.
WALL = 2.0
# A refusal is no larger than that, whatever it is about.
ANSWER = 128 << 10
TRIES = 4
CHOSEN = os.environ.get("HANDFAST_STALLS", "")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(0 if CHOSEN else 600)]


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Iterator[stalls.Worlds]:
    with stalls.worlds(tmp_path_factory.mktemp("stalls")) as made:
        yield made


def wrong(there: stalls.Worlds, attack: stalls.Attack) -> str:
    """What an attack did that no request may do; nothing, as it should be."""
    stall = there.measure(attack, BOUND, WALL, TRIES)
    slower = stalls.calibrate() if stall.held > BOUND else 1.0
    if stall.held > BOUND * slower or stall.wall > WALL:
        return f"{stall}  (bound {BOUND * slower * 1000:.0f} ms)"
    if not 200 <= stall.code < 500:
        return f"{stall}  (neither done nor refused: {stall.message[:200]})"
    if stall.code >= 400 and (stall.reason not in status.CODES or not stall.message):
        return f"{stall}  (refused without a reason: {stall.message[:200]})"
    if stall.code >= 400 and stall.answered > ANSWER:
        return f"{stall}  (the refusal has {stall.answered} bytes)"
    return ""


def require_bounded(there: stalls.Worlds, attacks: Iterable[stalls.Attack]) -> None:
    """All of them, with every failure told: the worst is seldom the first."""
    found = [text for attack in attacks if (text := wrong(there, attack))]
    assert not found, "\n".join([f"{len(found)} requests", stalls.TITLE, *sorted(found, reverse=True)])


@pytest.mark.parametrize("attack", costly_requests.NAMED, ids=lambda attack: attack.name)
def test_a_request_that_stopped_the_server_does_not(there: stalls.Worlds, attack: stalls.Attack) -> None:
    require_bounded(there, [attack])


def test_no_list_map_or_text_of_any_kind_holds_the_server(there: stalls.Worlds) -> None:
    found = list(request_shapes.cases(request_shapes.Rights(there.server)))
    if CHOSEN == "fields":
        found = request_shapes.every_field_once(found)
    elif CHOSEN != "all":
        found = request_shapes.sample(found, int(CHOSEN)) if CHOSEN else request_shapes.union(found)
    assert {case.caller for case in found} == set(request_shapes.Rights.CALLERS)
    require_bounded(there, (case.attack() for case in found))


@pytest.mark.parametrize("make", request_forms.FORMS.values(), ids=request_forms.FORMS)
def test_no_patch_encoding_delete_or_query_holds_the_server(
    there: stalls.Worlds, make: Callable[[], Iterator[stalls.Attack]]
) -> None:
    require_bounded(there, make())


def test_no_list_or_watch_of_many_or_large_objects_holds_the_server(there: stalls.Worlds) -> None:
    request_forms.populate(there.server)
    require_bounded(there, request_forms.lists())


# Answers one request after another, and takes its time for one of them: it computes, or it sleeps.
STAND_IN = """
import asyncio, sys, time

async def answer(reader, writer):
    while head := await reader.readuntil(b"\\r\\n\\r\\n"):
        until = time.process_time() + 0.2
        while b"/compute" in head and time.process_time() < until:
            pass
        time.sleep(0.2 if b"/sleep" in head else 0)
        writer.write(b"HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\nok")

async def main():
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


def test_the_instrument_tells_computing_from_waiting() -> None:
    with subprocess.Popen([sys.executable, "-c", STAND_IN], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        wire, prober = stalls.Wire(port, None, {}), stalls.Prober(stalls.Wire(port, None, {}), process.pid)
        try:
            computed, by_the_clock, took, _ = prober.during(lambda: wire.ask("GET", "/compute"))
            assert 0.15 < computed <= by_the_clock
            assert took >= 0.2
            computed, by_the_clock, *_ = prober.during(lambda: wire.ask("GET", "/sleep"))
            assert computed < 0.1 < by_the_clock
        finally:
            process.kill()
            process.wait(30)
            prober.stop()
            wire.close()
