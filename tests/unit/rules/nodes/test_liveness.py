# SPDX-License-Identifier: Apache-2.0
"""How long a Lease counts. The names of the table in `rules/nodes/liveness.py` are here."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from handfast.api import objects
from handfast.rules.nodes import liveness

NOW = datetime.datetime(2026, 6, 1, 12, 0, tzinfo=datetime.UTC)


def lease(ago: float, seconds: Any = 40) -> dict[str, Any]:
    renewed = objects.micro_timestamp(NOW - datetime.timedelta(seconds=ago))
    return {"spec": {"renewTime": renewed, "leaseDurationSeconds": seconds}}


def later(seconds: float) -> datetime.datetime:
    return NOW + datetime.timedelta(seconds=seconds)


def pulse(document: Any, before: liveness.Pulse | None = None, at: float = 0.0, *, beat: bool = False) -> Any:
    return liveness.seen(document, before, at, beat=beat)


@pytest.mark.parametrize(
    ("ago", "seconds", "left"),
    [
        (0, 40, 40),
        (39, 40, 1),
        (40, 40, 0),
        (41, 40, -1),
        # What the node writes is bounded.
        (0, None, 40),
        (0, -1, 40),
        (0, 1, 40),
        (0, 61, 61),
        (0, 10**30, 300),
        (39, None, 1),
        (39, 0, 1),
        (40, 1, 0),
        (60, 61, 1),
        (299, 10**30, 1),
        (300, 10**30, 0),
        # A clock that is ahead counts from when it was seen, however far.
        (-1, 40, 40),
        (-86400, 40, 40),
    ],
)
def test_how_long_a_lease_counts(ago: float, seconds: Any, left: float):
    found = pulse(lease(ago, seconds))
    assert found.left(NOW, 0.0) == left
    assert liveness.is_fresh(lease(ago, seconds), NOW) == (left > 0)


def test_a_clock_that_is_ahead_keeps_no_dead_node_alive():
    found = pulse(lease(-86400))
    assert found.left(later(39), 39.0) == 1
    assert found.left(later(41), 41.0) == -1


@pytest.mark.parametrize("beat", [True, False])
def test_a_renewal_that_was_seen(beat: bool):
    """By what it was before, or because it came while somebody looked."""
    # The node's clock is an hour behind.
    before = pulse(lease(3610))
    assert before.left(NOW, 0.0) < 0
    found = pulse(lease(3600), None if beat else before, 100.0, beat=beat)
    assert found.left(NOW, 100.0) == 40
    assert found.left(NOW, 139.0) == 1
    # Somebody sets our clock, ahead or back.
    assert [found.left(later(jump), 139.0) for jump in (86400, -86400)] == [1, 1]


def test_the_same_renewal_seen_again_is_no_new_one():
    first = pulse(lease(10), at=5.0)
    assert pulse(lease(10), first, 30.0, beat=True) is first


@pytest.mark.parametrize(
    "document",
    [
        None,
        {},
        {"spec": {}},
        {"spec": {"renewTime": "soon"}},
        {"spec": {"renewTime": 7}},
        {"spec": {"leaseDurationSeconds": 40}},
    ],
)
def test_a_lease_that_says_nothing(document: Any):
    assert pulse(document, pulse(lease(0)), beat=True) is None
    assert not liveness.is_fresh(document, NOW)


def test_writes_are_proven_when_they_were_seen_for_a_while():
    writes = liveness.saw_write(None, 100.0)
    assert not writes.prove(100.0)
    # One write says nothing of the time after it.
    assert not writes.prove(114.0)
    for at in (110.0, 119.0):
        writes = liveness.saw_write(writes, at)
        assert not writes.prove(at)
    writes = liveness.saw_write(writes, 120.0)
    assert writes.prove(120.0)
    assert writes.prove(135.0)
    # They have stopped, and begin anew.
    assert not writes.prove(135.1)
    writes = liveness.saw_write(writes, 136.0)
    assert writes == liveness.Writes(since=136.0, last=136.0)


def test_a_lease_has_ended_when_it_was_found_so_for_a_while():
    ended = pulse(lease(100))
    silence = liveness.found_silent(ended, None, 1000.0)
    assert silence.left() == 20
    for at in (1008.0, 1016.0):
        silence = liveness.found_silent(ended, silence, at)
    assert silence.left() == 4
    assert liveness.found_silent(ended, silence, 1020.0).left() == 0
    # A gap, or another renewal, and it begins anew.
    assert liveness.found_silent(ended, silence, 1024.1).left() == 20
    assert liveness.found_silent(pulse(lease(99)), silence, 1017.0).left() == 20
