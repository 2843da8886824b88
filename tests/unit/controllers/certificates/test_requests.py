# SPDX-License-Identifier: Apache-2.0
"""One watch for three controllers: what is kept, what counts at once, and what goes back with an update."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from handfast import errors
from handfast.api import signing_requests
from handfast.client import api, cache, partial
from handfast.controllers import loop
from handfast.controllers.certificates import requests as certificate_requests
from handfast.rules.certificates import kubelet
from tests.unit.controllers.csr_world import World
from tests.unit.controllers.fake_api import FakeClient
from tests.world.clock import MovableClock


def item(version: str, *conditions: str, certificate: str = "", name: str = "x") -> signing_requests.Request:
    rows = [{"type": kind, "status": "True"} for kind in conditions]
    document = {
        "metadata": {"name": name, "uid": "u", "resourceVersion": version},
        "status": {"conditions": rows, "certificate": certificate},
    }
    return msgspec.convert(document, signing_requests.Request)


@pytest.mark.parametrize(
    ("conditions", "certificate", "is_open"),
    [
        pytest.param((), "", True, id="new"),
        pytest.param(("Approved",), "", True, id="approved"),
        pytest.param(("Other",), "", True, id="another condition"),
        pytest.param(("Denied",), "", False, id="denied"),
        pytest.param(("Approved", "Failed"), "", False, id="failed"),
        pytest.param(("Approved",), "c", False, id="issued"),
        pytest.param((), "c", False, id="a certificate without approval"),
    ],
)
def test_only_open_requests_are_kept(conditions: tuple[str, ...], certificate: str, is_open: bool) -> None:
    requests = certificate_requests.Requests()
    requests.put(item("1"))
    requests.put(item("2", *conditions, certificate=certificate))
    assert (requests.get("x") is not None, len(requests)) == (is_open, int(is_open))


class Told:
    def __init__(self) -> None:
        self.requests = certificate_requests.Requests()
        self.said: list[str] = []
        self.requests.subscribe(lambda it: self.said.append(it.metadata.resource_version), self.said.append)


def test_what_was_written_counts_at_once_and_once() -> None:
    told = Told()
    told.requests.put(item("1"))
    told.requests.wrote(item("2", "Approved"))
    told.requests.wrote(item("3", "Approved", certificate="c"))
    assert told.requests.get("x") is None
    # The watch comes after: the time in between does not open it again.
    for version, certificate in (("2", ""), ("3", "c")):
        told.requests.put(item(version, "Approved", certificate=certificate))
    assert (told.said, told.requests.get("x")) == (["1", "2", "3"], None)
    told.requests.put(item("4", "Approved", certificate="c"))
    assert told.said == ["1", "2", "3", "4"]


def test_a_watch_that_was_faster_is_right() -> None:
    told = Told()
    told.requests.put(item("3", "Approved", certificate="c"))
    told.requests.wrote(item("2", "Approved"))
    assert (told.said, told.requests.get("x")) == (["3"], None)


def test_versions_that_are_no_numbers_are_not_compared() -> None:
    told = Told()
    told.requests.put(item("b"))
    told.requests.wrote(item("a", "Approved"))
    told.requests.put(item("a", "Approved"))
    assert told.said == ["b", "a"]


def test_what_a_new_list_does_not_have_is_gone() -> None:
    told = Told()
    told.requests.begin()
    told.requests.put(item("1"))
    told.requests.put(item("2", name="y"))
    told.requests.end()
    told.requests.begin()
    told.requests.put(item("2", name="y"))
    told.requests.end()
    assert (told.requests.get("x"), told.said[-1]) == (None, "x")
    told.requests.remove(partial.Partial(partial.Meta(name="y")))
    assert (len(told.requests), told.said[-1]) == (0, "y")


async def test_synced_when_the_first_list_is_complete() -> None:
    requests = certificate_requests.Requests()
    waiting = asyncio.ensure_future(requests.wait_synced())
    requests.begin()
    await asyncio.sleep(0)
    assert not waiting.done()
    requests.end()
    await waiting


def test_facts_are_read_once_for_a_spec(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    first = world.add()
    found = world.requests.facts(first)
    assert (found.name, found.username, found.groups) == ("x", "joiner", ("joiners",))
    calls: list[object] = []
    read = kubelet.read

    def counted(document: object) -> object:
        calls.append(document)
        return read(document)  # type: ignore[arg-type]

    monkeypatch.setattr(kubelet, "read", counted)
    assert world.requests.facts(world.add("x", "Approved")) is found
    assert calls == []
    # Deleted and made anew under the same name by somebody else.
    other = world.add("x", username="another")
    assert world.requests.facts(other).username == "another"
    assert len(calls) == 1
    world.requests.forget("x")
    world.requests.facts(other)
    assert len(calls) == 2
    with pytest.raises(errors.Refused):
        world.requests.facts(world.add("y", request="junk"))


async def test_one_watch_for_one_context() -> None:
    client, clock = FakeClient(), MovableClock()
    feed = certificate_requests.Feed()

    def context(followed: list[object]) -> loop.Context:
        informers = cache.Informers(client, clock)

        def follow(_: object, sink: object) -> None:
            followed.append(sink)

        informers.follow = follow  # type: ignore[method-assign, assignment]
        return loop.Context(client=client, informers=informers, clock=clock)

    first: list[object] = []
    one = context(first)
    made = feed.of(one)
    assert feed.of(one) is made
    assert first == [made]
    assert feed.of(context([])) is not made
    assert certificate_requests.SOURCE.scope == api.EVERYTHING
