# SPDX-License-Identifier: Apache-2.0
"""Files that change: noticed by looking, offered again while they are refused."""

import asyncio
import os

import pytest
import structlog.testing

from handfast import errors
from handfast.runtime import following
from tests.world.clock import MovableClock


class Reader:
    """Who uses the files."""

    def __init__(self):
        self.calls = 0
        self.refuses = False

    def __call__(self):
        self.calls += 1
        if self.refuses:
            raise errors.Refused("half a pair", reason="Mismatch")


@pytest.fixture
def clock():
    return MovableClock()


@pytest.fixture
def reader():
    return Reader()


@pytest.fixture
def pair(tmp_path):
    paths = (tmp_path / "a", tmp_path / "b")
    for path in paths:
        path.write_text("1")
    return paths


def replace(path, text):
    new = path.with_suffix(".new")
    new.write_text(text)
    new.replace(path)


def test_nothing_changes(pair, reader, clock):
    following.Follower(pair, reader, clock).look()
    assert reader.calls == 0


def test_what_changed_before_it_began_is_told(pair, reader, clock):
    before = following.stamp(pair)
    replace(pair[1], "1")
    follower = following.Follower(pair, reader, clock, since=before)
    follower.look()
    follower.look()
    assert reader.calls == 1


@pytest.mark.parametrize(
    "change",
    [
        lambda path: replace(path, "1"),
        lambda path: path.write_text("12"),
        lambda path: os.utime(path, ns=(1, 1)),
        lambda path: path.unlink(),
    ],
    ids=["another file", "another size", "another time", "gone"],
)
def test_a_change_is_told_once(pair, reader, clock, change):
    follower = following.Follower(pair, reader, clock)
    change(pair[1])
    follower.look()
    follower.look()
    assert reader.calls == 1


def test_a_file_that_comes_is_a_change(tmp_path, reader, clock):
    follower = following.Follower([tmp_path / "later"], reader, clock)
    follower.look()
    assert reader.calls == 0
    (tmp_path / "later").touch()
    follower.look()
    assert reader.calls == 1


def test_what_is_refused_is_offered_again_and_told_once(pair, reader, clock):
    follower = following.Follower(pair, reader, clock)
    replace(pair[0], "2")
    reader.refuses = True
    with structlog.testing.capture_logs() as logs:
        follower.look()
        follower.look()
        assert [(line["reason"], line["error"]) for line in logs] == [("Mismatch", "half a pair")]
        replace(pair[1], "2")
        follower.look()
        assert len(logs) == 2, "another state of the files"
    reader.refuses = False
    follower.look()
    follower.look()
    assert reader.calls == 4


async def test_it_looks_every_few_seconds(pair, reader, clock):
    task = asyncio.create_task(following.Follower(pair, reader, clock).run())
    await clock.advance(following.SECONDS * 3)
    assert reader.calls == 0
    replace(pair[0], "2")
    await clock.advance(following.SECONDS * 0.9)
    assert reader.calls == 0
    await clock.advance(following.SECONDS * 0.2)
    assert reader.calls == 1
    task.cancel()
