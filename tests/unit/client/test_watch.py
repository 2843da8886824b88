# SPDX-License-Identifier: Apache-2.0
"""A reflector against a server that does everything servers do to watches."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import msgspec
import pytest
from structlog.testing import capture_logs

from handfast.client import api, cache, partial, watch
from tests.unit.client import scripted
from tests.world.clock import MovableClock

THINGS = api.Resource("example.dev", "v1", "things", True)
SOURCE = watch.Source(resource=THINGS, view=partial.Partial)


class Following:
    """An informer being fed, with a log of what changed."""

    def __init__(self, informer: cache.Informer[partial.Partial], clock: MovableClock) -> None:
        self.informer = informer
        self.clock = clock
        self.changes: list[str] = []
        self.refusals: list[str] = []
        informer.subscribe(self._changed)

    def _changed(self, old: partial.Partial | None, new: partial.Partial | None) -> None:
        item = new or old
        assert item is not None
        sign = "+" if old is None else "-" if new is None else "~"
        self.changes.append(sign + item.metadata.name)

    def refused(self, refusal: str) -> None:
        self.refusals.append(refusal)
        self.informer.refused(refusal)

    def names(self) -> list[str]:
        return sorted(item.metadata.name for item in self.informer)


@contextlib.asynccontextmanager
async def following(
    server: scripted.Server, source: watch.Source[partial.Partial] = SOURCE
) -> AsyncIterator[Following]:
    clock = MovableClock()
    async with scripted.client_of(server, clock) as client:
        informer = cache.Informer(source)
        follower = Following(informer, clock)
        reflector = watch.Reflector(client, source, informer, clock=clock, random=lambda: 0.0, refused=follower.refused)
        task = asyncio.create_task(reflector.run())
        try:
            yield follower
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


async def advance_until(server: scripted.Server, clock: MovableClock, requests: int) -> float:
    """Jump from one sleep's end to the next until so many requests have come; returns how far the clock moved."""
    began = clock.monotonic()
    while len(server.requests) < requests:
        await asyncio.sleep(0.001)
        if clock._sleepers and len(server.requests) < requests:
            await clock.advance(clock._sleepers[0][0] - clock.monotonic())
    return clock.monotonic() - began


async def test_lists_then_watches_from_the_lists_version():
    async with (
        scripted.serving(
            scripted.listing("10", scripted.thing("a", 7)),
            scripted.stream(scripted.event("ADDED", "b", 11), scripted.event("DELETED", "a", 12), then="hold"),
        ) as server,
        following(server) as follower,
    ):
        await server.saw(2)
        while follower.names() != ["b"]:
            await asyncio.sleep(0.001)
        assert follower.changes == ["+a", "+b", "-a"]
        await asyncio.wait_for(follower.informer.wait_synced(), 1)
        first, second = server.requests
        assert first.params == {"limit": "500"}
        assert second.params["resourceVersion"] == "10"
        assert second.params["watch"] == "true"
        assert second.params["allowWatchBookmarks"] == "true"


@pytest.mark.parametrize("then", ["close", "reset"])
async def test_watches_again_from_the_last_event_or_bookmark(then: str):
    async with (
        scripted.serving(
            scripted.listing("10"),
            scripted.stream(scripted.event("ADDED", "a", 11), scripted.bookmark(40), then=then),
            scripted.stream(scripted.event("MODIFIED", "a", 41), then=then),
            scripted.stream(then="hold"),
        ) as server,
        following(server) as follower,
    ):
        with capture_logs():
            await advance_until(server, follower.clock, 4)
        assert [request.params.get("resourceVersion") for request in server.requests] == [None, "10", "40", "41"]
        assert follower.changes == ["+a", "~a"]


@pytest.mark.parametrize(
    "expired",
    [
        scripted.stream(
            {"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}}
        ),
        scripted.stream(
            scripted.event("MODIFIED", "b", 11),
            {"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired", "status": "Failure"}},
        ),
        scripted.status(410, "Expired"),
    ],
    ids=["event", "event-after-events", "http"],
)
async def test_410_lists_anew_at_once_and_tells_what_is_gone(expired: scripted.Step):
    async with (
        scripted.serving(
            scripted.listing("10", scripted.thing("a", 1), scripted.thing("b", 2)),
            expired,
            scripted.listing("50", scripted.thing("b", 2), scripted.thing("c", 45)),
            scripted.stream(then="hold"),
        ) as server,
        following(server) as follower,
    ):
        await server.saw(4)
        assert follower.names() == ["b", "c"]
        assert follower.changes[:2] == ["+a", "+b"]
        assert sorted(set(follower.changes[2:]) - {"~b"}) == ["+c", "-a"]
        assert server.requests[2].params == {"limit": "500"}
        assert server.requests[3].params["resourceVersion"] == "50"


async def test_410_again_and_again_is_waited_for():
    async with (
        scripted.serving(
            scripted.listing("10"),
            scripted.status(410, "Expired"),
            scripted.listing("10"),
            scripted.status(410, "Expired"),
            scripted.listing("10"),
            scripted.stream(then="hold"),
        ) as server,
        following(server) as follower,
    ):
        await server.saw(4)
        assert await advance_until(server, follower.clock, 6) == pytest.approx(0.4)


async def test_500_and_silence_are_waited_for_longer_each_time():
    async with (
        scripted.serving(
            scripted.status(500, "InternalError"),
            # Twice, because aiohttp itself tries once more at once.
            scripted.drop(),
            scripted.drop(),
            scripted.answer(503, raw=b"no Status here"),
            scripted.listing("10"),
            scripted.stream(then="hold"),
        ) as server,
        following(server) as follower,
    ):
        await server.saw(1)
        with capture_logs() as lines:
            waits = [await advance_until(server, follower.clock, count) for count in (3, 4, 6)]
        assert waits == pytest.approx([0.2, 0.4, 0.8])
        told = [(line["log_level"], line.get("reason", line["event"])) for line in lines]
        assert told[-4:] == [
            ("warning", "the API server cannot be reached"),
            ("debug", "Unreachable"),
            ("info", "the API server answers again"),
            ("warning", "ServiceUnavailable"),
        ]


async def test_429_waits_as_long_as_it_says():
    async with (
        scripted.serving(
            scripted.listing("10"),
            scripted.answer(429, {"kind": "Status", "reason": "TooManyRequests", "code": 429}, Retry_After="7"),
            scripted.stream(then="hold"),
        ) as server,
        following(server) as follower,
    ):
        await server.saw(2)
        with capture_logs():
            assert await advance_until(server, follower.clock, 3) == pytest.approx(7)


async def test_a_server_that_closes_at_once_is_not_hammered():
    async with (
        scripted.serving(
            scripted.listing("10"), *[scripted.stream() for _ in range(8)], scripted.stream(then="hold")
        ) as server,
        following(server) as follower,
    ):
        await server.saw(2)
        # 0.2 + 0.4 + … + 25.6: doubling each time.
        assert await advance_until(server, follower.clock, 10) == pytest.approx(0.2 * (2**8 - 1))


async def test_a_list_comes_in_pages_and_an_expired_page_starts_it_over():
    async with (
        scripted.serving(
            scripted.listing("10", scripted.thing("a", 1), more="next"),
            scripted.status(410, "Expired"),
            scripted.listing("12", scripted.thing("a", 1), more="more"),
            scripted.listing("12", scripted.thing("b", 1)),
            scripted.stream(then="hold"),
        ) as server,
        following(server) as follower,
    ):
        await server.saw(5)
        assert [request.params.get("continue") for request in server.requests[:4]] == [None, "next", None, "more"]
        assert follower.names() == ["a", "b"]
        assert follower.changes == ["+a", "+b"]


async def test_a_line_split_over_reads_and_garbage():
    whole = b'{"type":"ADDED","object":{"metadata":{"name":"a","resourceVersion":"11"}}}\n'
    async with (
        scripted.serving(
            scripted.listing("10"),
            scripted.stream(whole[:20], whole[20:], b"not json\n"),
            scripted.stream({"type": "ODD", "object": {}}),
            scripted.stream(then="hold"),
        ) as server,
        following(server) as follower,
    ):
        with capture_logs() as lines:
            await advance_until(server, follower.clock, 4)
        assert follower.changes == ["+a"]
        assert {line["reason"] for line in lines} == {"BadAnswer"}
        assert server.requests[2].params["resourceVersion"] == "11"


async def test_scope_and_metadata_go_onto_the_wire():
    scope = api.Scope(namespace="n s", label_selector="a=b", field_selector="metadata.name=x")
    source = watch.Source(resource=THINGS, view=partial.Partial, scope=scope, metadata=True)
    async with (
        scripted.serving(scripted.listing("10"), scripted.stream(then="hold")) as server,
        following(server, source),
    ):
        await server.saw(2)
        for request in server.requests:
            assert request.path == "/apis/example.dev/v1/namespaces/n%20s/things"
            assert request.params["labelSelector"] == "a=b"
            assert request.params["fieldSelector"] == "metadata.name=x"
        assert "as=PartialObjectMetadataList" in server.requests[0].headers["accept"]
        assert "as=PartialObjectMetadata;" in server.requests[1].headers["accept"]


async def test_an_odd_object_is_skipped_and_its_deletion_is_not():
    odd = {"resourceVersion": 5}
    async with (
        scripted.serving(
            scripted.listing("10", scripted.thing("a", 1), scripted.thing("z", 1, **odd)),
            scripted.stream(
                scripted.event("ADDED", "y", 11, **odd),
                scripted.event("ADDED", "b", 12),
                scripted.event("MODIFIED", "y", 13, **odd),
                scripted.event("DELETED", "a", 14, **odd),
                then="hold",
            ),
        ) as server,
        following(server) as follower,
    ):
        with capture_logs() as logs:
            await server.saw(2)
            while follower.names() != ["b"]:
                await asyncio.sleep(0.001)
        assert follower.changes == ["+a", "+b", "-a"]
        assert [(log["log_level"], log["name"]) for log in logs] == [("warning", name) for name in ("z", "y", "a")]
        assert server.requests[1].params["resourceVersion"] == "10"


class _Strict(partial.Partial, frozen=True, gc=False, kw_only=True):
    """A view that a bookmark of kube-apiserver does not fit: there `request` is null."""

    request: str


async def test_of_a_bookmark_only_the_version_counts():
    fits = {"type": "ADDED", "object": {**scripted.thing("a", 11), "request": "r"}}
    mark = {"type": "BOOKMARK", "object": {"request": None, "metadata": {"resourceVersion": "40", "name": ""}}}
    together = b"".join(msgspec.json.encode(line) + b"\n" for line in (fits, mark))
    source: watch.Source[partial.Partial] = watch.Source(resource=THINGS, view=_Strict)
    async with (
        scripted.serving(
            scripted.listing("10"), scripted.stream(together), scripted.stream(mark), scripted.stream(then="hold")
        ) as server,
        following(server, source) as follower,
    ):
        with capture_logs() as logs:
            await advance_until(server, follower.clock, 4)
        assert follower.changes == ["+a"]
        assert [request.params["resourceVersion"] for request in server.requests[1:]] == ["10", "40", "40"]
        assert logs == []


async def test_an_odd_object_without_a_version_takes_none_back():
    odd = {"type": "MODIFIED", "object": scripted.thing("y", 12, resourceVersion=5)}
    lines = b"".join(msgspec.json.encode(line) + b"\n" for line in (scripted.event("ADDED", "b", 11), odd))
    async with (
        scripted.serving(scripted.listing("10"), scripted.stream(lines), scripted.stream(then="hold")) as server,
        following(server) as follower,
    ):
        await advance_until(server, follower.clock, 3)
        assert server.requests[2].params["resourceVersion"] == "11"


@pytest.mark.parametrize(
    ("code", "reason", "why"), [(403, "Forbidden", "is forbidden"), (404, "NotFound", "is not served there")]
)
async def test_what_is_optional_is_done_without(code, reason, why):
    """Where it is forbidden, or there is no such kind; and the sink knows that nothing is known."""
    source = watch.Source(resource=THINGS, view=partial.Partial, optional=True)
    async with (
        scripted.serving(
            *(scripted.status(code, reason) for _ in range(3)), scripted.listing("10"), scripted.stream(then="hold")
        ) as server,
        following(server, source) as follower,
    ):
        with capture_logs() as logs:
            await advance_until(server, follower.clock, 1)
            await asyncio.wait_for(follower.informer.wait_synced(), 5)
            assert await advance_until(server, follower.clock, 5) == pytest.approx(3 * 600)
        assert [(log["log_level"], log["event"]) for log in logs] == [("info", f"not followed, since it {why}")]


RESOURCES = {"kind": "APIResourceList", "resources": [{"name": THINGS.plural}, {"name": "others"}]}


@pytest.mark.parametrize(
    "discovered",
    [
        pytest.param(scripted.answer(200, {**RESOURCES, "resources": [{"name": "others"}]}), id="not in the group"),
        pytest.param(scripted.answer(200, {"kind": "APIResourceList"}), id="an empty group"),
        pytest.param(scripted.status(404, "NotFound"), id="no such group"),
    ],
)
async def test_a_kind_that_the_server_has_not_is_done_without_also_where_rights_are_asked_for_first(discovered):
    source = watch.Source(resource=THINGS, view=partial.Partial, if_served=True)
    async with (
        scripted.serving(
            scripted.status(403, "Forbidden"),
            discovered,
            scripted.status(404, "NotFound"),
            discovered,
            scripted.listing("10"),
        ) as server,
        following(server, source) as follower,
    ):
        await advance_until(server, follower.clock, 2)
        await asyncio.wait_for(follower.informer.wait_synced(), 5)
        assert follower.refusals == []
        # Asked for again every ten minutes, and in the server's own words when it has them.
        assert await advance_until(server, follower.clock, 5) == pytest.approx(2 * 600)
        assert server.requests[1].path == "/apis/example.dev/v1"


async def test_a_404_of_what_is_served_makes_nobody_forget():
    """It may be a proxy's, or that of a server in the middle of a change."""
    source = watch.Source(resource=THINGS, view=partial.Partial, if_served=True)
    async with (
        scripted.serving(
            scripted.listing("10", scripted.thing("a", 9)),
            scripted.status(404, "NotFound"),
            scripted.answer(200, RESOURCES),
            scripted.stream(then="hold"),
        ) as server,
        following(server, source) as follower,
    ):
        assert await advance_until(server, follower.clock, 4) < 10
        assert follower.changes == ["+a"]


@pytest.mark.parametrize(
    "discovered",
    [
        pytest.param(scripted.answer(200, RESOURCES), id="it is there"),
        pytest.param(scripted.status(403, "Forbidden"), id="that is forbidden, too"),
        pytest.param(scripted.status(500, "InternalError"), id="that fails"),
        pytest.param(scripted.answer(200, {"resources": 5}), id="nothing that can be read"),
    ],
)
async def test_a_kind_that_is_there_and_forbidden_is_not_done_without(discovered):
    source = watch.Source(resource=THINGS, view=partial.Partial, if_served=True)
    async with (
        scripted.serving(
            scripted.listing("10", scripted.thing("a", 9)),
            scripted.status(403, "Forbidden"),
            discovered,
            scripted.stream(then="hold"),
        ) as server,
        following(server, source) as follower,
    ):
        assert await advance_until(server, follower.clock, 4) < 10
        assert follower.refusals == ["because Forbidden", ""]
        assert follower.changes == ["+a"]


VERSIONED = watch.Source(
    resource=THINGS, view=partial.Partial, if_served=True, versions=("v2", "v1"), without_seconds=30
)


def group(preferred: str, *versions: str) -> scripted.Step:
    document = {"versions": [{"version": one} for one in versions], "preferredVersion": {"version": preferred}}
    return scripted.answer(200, document)


@pytest.mark.parametrize(
    ("discovered", "version"),
    [
        pytest.param([group("v2", "v2", "v1"), scripted.answer(200, RESOURCES)], "v2", id="the preferred one"),
        pytest.param([group("v1", "v2", "v1"), scripted.answer(200, RESOURCES)], "v1", id="preferred, though older"),
        pytest.param([group("v3", "v3", "v1"), scripted.answer(200, RESOURCES)], "v1", id="of those that can be read"),
        pytest.param(
            [group("v2", "v2", "v1"), scripted.answer(200, {"resources": []}), scripted.answer(200, RESOURCES)],
            "v1",
            id="in which the kind is",
        ),
        pytest.param([scripted.status(403, "Forbidden"), scripted.answer(200, RESOURCES)], "v2", id="the first"),
        pytest.param([scripted.answer(200, {"versions": 5}), scripted.answer(200, RESOURCES)], "v2", id="unreadable"),
    ],
)
async def test_of_several_versions_the_one_that_the_server_prefers_is_followed(discovered, version):
    async with (
        scripted.serving(*discovered, scripted.listing("10"), scripted.stream(then="hold")) as server,
        following(server, VERSIONED),
    ):
        await server.saw(len(discovered) + 2)
        assert server.requests[0].path == "/apis/example.dev"
        assert {request.path for request in server.requests[-2:]} == {f"/apis/example.dev/{version}/things"}


async def test_a_version_that_is_served_no_longer_is_left_for_another():
    async with (
        scripted.serving(
            group("v1", "v1"),
            scripted.answer(200, RESOURCES),
            scripted.listing("10", scripted.thing("a", 9)),
            scripted.status(404, "NotFound"),
            scripted.status(404, "NotFound"),
            group("v2", "v2"),
            scripted.answer(200, RESOURCES),
            group("v2", "v2"),
            scripted.answer(200, RESOURCES),
            scripted.listing("20", scripted.thing("a", 9)),
            scripted.stream(then="hold"),
        ) as server,
        following(server, VERSIONED) as follower,
    ):
        assert await advance_until(server, follower.clock, 11) < 1
        assert server.requests[-1].path == "/apis/example.dev/v2/things"
        assert follower.changes == ["+a"]


async def test_a_group_that_is_not_there_is_asked_for_as_often_as_the_source_says():
    absent = scripted.status(404, "NotFound")
    async with (
        scripted.serving(
            *(absent, absent, absent, absent),
            group("v1", "v1"),
            scripted.answer(200, RESOURCES),
            scripted.listing("10", scripted.thing("a", 9)),
        ) as server,
        following(server, VERSIONED) as follower,
    ):
        assert await advance_until(server, follower.clock, 7) == pytest.approx(30)
        assert follower.refusals == []


async def test_what_becomes_forbidden_stays_known_and_is_told_of():
    """First the watch is forbidden, then the list, then nothing any more."""
    async with (
        scripted.serving(
            scripted.listing("10", scripted.thing("a", 9)),
            scripted.status(403, "Forbidden"),
            scripted.status(410, "Expired"),
            scripted.status(403, "Forbidden"),
            scripted.listing("20", scripted.thing("a", 9)),
            scripted.stream(then="hold"),
        ) as server,
        following(server) as follower,
    ):
        await advance_until(server, follower.clock, 6)
        assert follower.refusals == ["because Forbidden", ""]
        assert follower.informer.refusal == ""
        assert follower.changes == ["+a"]


async def test_what_is_forbidden_from_the_start_is_an_answer():
    async with (
        scripted.serving(*(scripted.status(403, "Forbidden") for _ in range(3))) as server,
        following(server) as follower,
    ):
        await advance_until(server, follower.clock, 2)
        await asyncio.wait_for(follower.informer.wait_answered(), 5)
        assert follower.informer.refusal
        assert not follower.informer.synced


async def test_what_is_forbidden_and_not_optional_is_asked_for_again_and_again():
    async with (
        scripted.serving(*(scripted.status(403, "Forbidden") for _ in range(3))) as server,
        following(server) as follower,
    ):
        with capture_logs() as logs:
            assert await advance_until(server, follower.clock, 3) < 10
        assert {(log["log_level"], log["reason"]) for log in logs} == {("warning", "Forbidden")}


@pytest.mark.parametrize(
    "line",
    [
        {"type": "BOOKMARK", "object": {"metadata": 5}},
        {"type": "NEWS", "object": {"metadata": 5}},
        {"object": 1},
        b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"\xff"}}}\n',
        b'{"type":"\xff","object":{}}\n',
        b'{"type":"NEWS","object":' + b"[" * 100_000 + b"\n",
    ],
)
async def test_an_odd_event_that_is_of_no_object_is_a_failure(line: object | bytes):
    async with (
        scripted.serving(scripted.listing("10"), scripted.stream(line), scripted.stream(then="hold")) as server,
        following(server) as follower,
    ):
        with capture_logs() as logs:
            assert await advance_until(server, follower.clock, 3) > 0
        assert [log["reason"] for log in logs] == ["BadAnswer"]
