# SPDX-License-Identifier: Apache-2.0
"""Lines in real files: whole, rotated, pruned; and what happens when the disk, the directory or the reader fails."""

from __future__ import annotations

import contextlib
import datetime
import errno
import os
import pathlib
import resource
import shutil
import stat
import threading
from collections.abc import Iterator

import pytest
import structlog

from handfast import errors
from handfast.telemetry import rotating
from tests.world import small_disk
from tests.world.clock import MovableClock

NOON = datetime.datetime(2026, 1, 31, 12, tzinfo=datetime.UTC)
PATIENCE = 10.0


@pytest.fixture
def path(tmp_path: pathlib.Path) -> pathlib.Path:
    return tmp_path / "logs" / "audit.log"


@pytest.fixture
def clock() -> MovableClock:
    return MovableClock(NOON)


def opened(path: pathlib.Path, clock: MovableClock, **rotation: float) -> rotating.RotatingFile:
    file = rotating.RotatingFile(path, clock, rotating.Rotation(**rotation))  # type: ignore[arg-type]
    file.open()
    return file


def names(path: pathlib.Path) -> list[str]:
    return sorted(found.name for found in path.parent.iterdir())


class TestFile:
    def test_appends_privately(self, path: pathlib.Path, clock: MovableClock) -> None:
        file = opened(path, clock)
        file.append(b"one\ntwo\n")
        file.append(b"three\n")
        file.close()
        file = opened(path, clock)
        file.append(b"four\n")
        file.close()
        assert path.read_bytes() == b"one\ntwo\nthree\nfour\n"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700

    def test_half_a_line_is_ended_before_the_next(self, path: pathlib.Path, clock: MovableClock) -> None:
        path.parent.mkdir()
        path.write_bytes(b"one\nhal")
        file = opened(path, clock)
        file.append(b"two\n")
        file.close()
        assert path.read_bytes() == b"one\nhal\ntwo\n"

    async def test_rotates_by_size_and_keeps_a_number(self, path: pathlib.Path, clock: MovableClock) -> None:
        file = opened(path, clock, size_bytes=10, keep=2)
        for number in range(5):
            file.append(b"line %d\n" % number)
            await clock.advance(1)
        file.close()
        assert names(path) == ["audit-2026-01-31T12-00-03.000.log", "audit-2026-01-31T12-00-04.000.log", "audit.log"]
        assert path.read_bytes() == b"line 4\n"
        assert (path.parent / "audit-2026-01-31T12-00-04.000.log").read_bytes() == b"line 3\n"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600

    def test_rotations_of_one_moment_do_not_overwrite(self, path: pathlib.Path, clock: MovableClock) -> None:
        file = opened(path, clock, size_bytes=1)
        for number in range(4):
            file.append(b"%d\n" % number)
        file.close()
        assert [(path.parent / name).read_bytes() for name in names(path)] == [b"0\n", b"1\n", b"2\n", b"3\n"]

    def test_no_free_name(self, path: pathlib.Path, clock: MovableClock) -> None:
        file = opened(path, clock, size_bytes=1)
        file.append(b"1\n")
        for number in range(1000):
            moment = NOON + datetime.timedelta(milliseconds=number)
            stamp = f"{moment:%Y-%m-%dT%H-%M-%S}.{moment.microsecond // 1000:03}"
            (path.parent / f"audit-{stamp}.log").touch()
        with pytest.raises(OSError, match="no free name"):
            file.append(b"2\n")
        file.close()

    async def test_old_files_go_by_age_and_nothing_else_does(self, path: pathlib.Path, clock: MovableClock) -> None:
        path.parent.mkdir()
        others = ["audit-notes.log", "audit-2020-01-01T00-00-00.000.log.gz", "other-2020-01-01T00-00-00.000.log"]
        for name in [*others, "audit-2020-01-01T00-00-00.000.log", "audit-2026-01-30T00-00-00.000.log"]:
            (path.parent / name).touch()
        file = opened(path, clock, days=30)
        file.append(b"1\n")
        assert names(path) == sorted([*others, "audit-2026-01-30T00-00-00.000.log", "audit.log"])
        # Without a rotation, the next day looks again.
        await clock.advance(40 * 86400)
        file.append(b"2\n")
        assert names(path) == sorted([*others, "audit.log"])
        file.close()

    def test_what_cannot_be_deleted_stops_nothing(self, path: pathlib.Path, clock: MovableClock) -> None:
        file = opened(path, clock)
        (path.parent / "audit-2020-01-01T00-00-00.000.log").mkdir()
        with structlog.testing.capture_logs() as logs:
            file.append(b"1\n")
            file.append(b"2\n")
        assert path.read_bytes() == b"1\n2\n"
        assert [line["event"] for line in logs] == ["old files cannot be deleted"]
        file.close()

    def test_a_removed_directory_is_made_again(self, path: pathlib.Path, clock: MovableClock) -> None:
        file = opened(path, clock)
        file.append(b"1\n")
        shutil.rmtree(path.parent)
        file.append(b"2\n")
        assert path.read_bytes() == b"2\n"
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        file.close()

    def test_others_may_take_the_file_away_or_empty_it(self, path: pathlib.Path, clock: MovableClock) -> None:
        file = opened(path, clock)
        file.append(b"1\n")
        path.rename(path.with_name("taken"))
        file.append(b"2\n")
        assert (path.with_name("taken").read_bytes(), path.read_bytes()) == (b"1\n", b"2\n")
        os.truncate(path, 0)
        file.append(b"3\n")
        assert path.read_bytes() == b"3\n"
        file.close()

    def test_a_symbolic_link_is_refused(self, path: pathlib.Path, clock: MovableClock) -> None:
        path.parent.mkdir()
        path.symlink_to(path.with_name("elsewhere"))
        with pytest.raises(errors.Refused, match="symbolic link"):
            opened(path, clock)
        assert not path.with_name("elsewhere").exists()

    def test_a_pipe_is_refused(self, path: pathlib.Path, clock: MovableClock) -> None:
        path.parent.mkdir()
        os.mkfifo(path)
        with pytest.raises(errors.Refused, match="not a regular file"):
            opened(path, clock)

    def test_a_path_that_cannot_be_is_refused_when_it_is_opened(self, path: pathlib.Path, clock: MovableClock) -> None:
        path.parent.touch()
        with pytest.raises(errors.Refused, match="part of this path is a file"):
            rotating.open_sink(str(path), clock)
        path.parent.unlink()
        path.mkdir(parents=True)
        with pytest.raises(errors.HandfastError, match=r"cannot write .*audit\.log: is a directory"):
            rotating.open_sink(str(path), clock)


@contextlib.contextmanager
def file_size_limit() -> Iterator[None]:
    """No file grows past 1000 bytes: what fits is written, the rest fails. No fixture, which pytest would report under."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_batch_is_written_whole_or_not_at_all(path: pathlib.Path, clock: MovableClock) -> None:
    file = opened(path, clock)
    first = b"x" * 599 + b"\n"
    with file_size_limit():
        file.append(first)
        with pytest.raises(OSError) as refused:
            file.append(first)
        kept = path.read_bytes()
        file.append(b"fits\n")
    assert refused.value.errno == errno.EFBIG
    assert kept == first
    assert path.read_bytes() == first + b"fits\n"
    file.close()


class TestStandardOutput:
    def test_what_is_out_is_not_repeated(self) -> None:
        reader, writer = os.pipe()
        os.set_blocking(writer, False)
        sink = rotating.StandardOutput(writer)
        batch = b"x" * 100_000 + b"\n"
        with pytest.raises(BlockingIOError):
            sink.append(batch)
        got = os.read(reader, 100_000)
        sink.append(batch)
        sink.append(b"next\n")
        sink.close()
        while len(got) < len(batch) + 5:
            got += os.read(reader, 100_000)
        assert got == batch + b"next\n"
        os.close(reader)
        os.close(writer)

    def test_by_name(self, clock: MovableClock) -> None:
        assert isinstance(rotating.open_sink("-", clock), rotating.StandardOutput)


class Played:
    """A sink that does as it is told, and says when it is used."""

    name = "played"

    def __init__(self) -> None:
        self.batches: list[bytes] = []
        self.failing: Exception | None = None
        self.tries = threading.Semaphore(0)
        self.written = threading.Semaphore(0)
        self.gate = threading.Event()
        self.gate.set()
        self.closed = False

    def append(self, batch: bytes) -> None:
        self.tries.release()
        self.gate.wait(PATIENCE)
        if self.failing is not None:
            raise self.failing
        self.batches.append(batch)
        self.written.release()

    def close(self) -> None:
        self.closed = True


class TestWriter:
    def test_lines_arrive_in_order_and_in_batches(self) -> None:
        sink = Played()
        writer = rotating.LineWriter(sink)
        lines = [b"%d\n" % number for number in range(5000)]
        for line in lines:
            writer.add(line)
        writer.close(PATIENCE)
        assert b"".join(sink.batches) == b"".join(lines)
        assert len(sink.batches) < 100
        assert sink.closed
        assert (writer.lines, writer.lost) == (5000, 0)

    def test_a_few_lines_do_not_wait_for_more(self) -> None:
        sink = Played()
        writer = rotating.LineWriter(sink, pause_seconds=0.001)
        for number in range(3):
            writer.add(b"%d\n" % number)
            assert sink.written.acquire(timeout=PATIENCE)
        writer.close(PATIENCE)
        assert sink.batches == [b"0\n", b"1\n", b"2\n"]

    def test_many_lines_do_not_wait_for_time(self) -> None:
        sink = Played()
        writer = rotating.LineWriter(sink, pause_seconds=3600.0, hurry_lines=3)
        for number in range(3):
            writer.add(b"%d\n" % number)
        assert sink.written.acquire(timeout=PATIENCE)
        writer.close(PATIENCE)
        assert sink.batches == [b"0\n1\n2\n"]

    def test_what_waits_is_bounded(self) -> None:
        sink = Played()
        sink.gate.clear()
        writer = rotating.LineWriter(sink, waiting_bytes=100, pause_seconds=0.0)
        writer.add(b"123456789\n")
        assert sink.tries.acquire(timeout=PATIENCE)
        # The batch being written counts, too.
        for _ in range(1000):
            writer.add(b"123456789\n")
        assert (writer.lines, writer.lost) == (1001, 991)
        sink.gate.set()
        writer.close(PATIENCE)
        assert b"".join(sink.batches) == b"123456789\n" * 10

    def test_there_is_room_again_after_writing(self) -> None:
        sink = Played()
        writer = rotating.LineWriter(sink, waiting_bytes=10, pause_seconds=0.0)
        for _ in range(20):
            writer.add(b"123456789\n")
            assert sink.written.acquire(timeout=PATIENCE)
            while writer._waiting:
                pass
        writer.close(PATIENCE)
        assert writer.lost == 0

    @pytest.mark.parametrize("problem", [OSError(errno.ENOSPC, "No space left"), errors.Refused("a link")])
    def test_an_outage_is_told_once_and_its_end_too(self, problem: Exception) -> None:
        sink = Played()
        sink.failing = problem
        with structlog.testing.capture_logs() as logs:
            writer = rotating.LineWriter(sink, pause_seconds=0.0, retry_seconds=0.001)
            writer.add(b"1\n")
            for _ in range(5):
                assert sink.tries.acquire(timeout=PATIENCE)
            writer.add(b"2\n")
            assert (writer.trouble, writer.waiting) == (str(problem), 4)
            sink.failing = None
            assert sink.written.acquire(timeout=PATIENCE)
            writer.close(PATIENCE)
        assert b"".join(sink.batches) == b"1\n2\n"
        assert (writer.trouble, writer.waiting) == (None, 0)
        told = ["lines cannot be written: they wait in memory", "lines are written again"]
        assert [line["event"] for line in logs] == told
        assert writer.lost == 0

    def test_the_first_lost_line_of_an_outage_is_told(self) -> None:
        sink = Played()
        sink.failing = OSError(errno.ENOSPC, "No space left")
        with structlog.testing.capture_logs() as logs:
            writer = rotating.LineWriter(sink, waiting_bytes=10, pause_seconds=0.0, retry_seconds=0.001)
            writer.add(b"123456789\n")
            assert sink.tries.acquire(timeout=PATIENCE)
            for _ in range(3):
                writer.add(b"lost\n")
            for _ in range(5):
                assert sink.tries.acquire(timeout=PATIENCE)
            sink.failing = None
            assert sink.written.acquire(timeout=PATIENCE)
            writer.close(PATIENCE)
        told = [(line["event"], line.get("waiting_bytes"), line.get("lost")) for line in logs]
        assert told == [
            ("lines cannot be written: they wait in memory", None, None),
            ("lines are lost: too many wait", 10, None),
            ("lines are written again", None, 3),
        ]

    def test_closing_in_an_outage_counts_what_is_lost(self) -> None:
        sink = Played()
        sink.failing = OSError(errno.ENOSPC, "No space left")
        # Around all of it: the writer's thread logs, and must not meet the log while that is being exchanged.
        with structlog.testing.capture_logs():
            writer = rotating.LineWriter(sink, pause_seconds=0.0, retry_seconds=3600.0)
            writer.add(b"1\n")
            assert sink.tries.acquire(timeout=PATIENCE)
            writer.add(b"2\n")
            writer.add(b"3\n")
            writer.close(PATIENCE)
        assert (sink.closed, writer.lost) == (True, 3)
        writer.add(b"4\n")
        assert (writer.lines, writer.lost) == (4, 4)

    def test_closing_does_not_wait_for_ever(self) -> None:
        sink = Played()
        sink.gate.clear()
        writer = rotating.LineWriter(sink, pause_seconds=0.0)
        writer.add(b"1\n")
        assert sink.tries.acquire(timeout=PATIENCE)
        writer.add(b"2\n")
        with structlog.testing.capture_logs() as logs:
            writer.close(0.01)
        assert writer.lost == 1
        assert [line["event"] for line in logs] == ["lines are lost: writing them takes too long"]
        sink.gate.set()
        writer._thread.join(PATIENCE)

    def test_closing_with_nothing_to_write(self) -> None:
        sink = Played()
        rotating.LineWriter(sink).close(PATIENCE)
        assert (sink.batches, sink.closed) == ([], True)

    def test_from_many_threads(self, path: pathlib.Path, clock: MovableClock) -> None:
        writer = rotating.LineWriter(rotating.open_sink(str(path), clock, rotating.Rotation(2000)), hurry_lines=10)

        def add(number: int) -> None:
            for count in range(200):
                writer.add(b"%d-%d\n" % (number, count))

        threads = [threading.Thread(target=add, args=(number,)) for number in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
        writer.close(PATIENCE)
        found = b"".join((path.parent / name).read_bytes() for name in names(path)).split()
        assert sorted(found) == sorted(b"%d-%d" % (one, two) for one in range(5) for two in range(200))


@pytest.fixture
def full_soon() -> Iterator[pathlib.Path]:
    """One MiB of disk."""
    with small_disk.of_mebibytes(1) as directory:
        yield directory


@pytest.mark.slow
def test_a_full_disk_loses_no_line_that_can_wait(full_soon: pathlib.Path, clock: MovableClock) -> None:
    path = full_soon / "audit.log"
    complained = threading.Event()

    def tell(_logger: object, _method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
        complained.set()
        raise structlog.DropEvent

    ballast = full_soon / "ballast"
    structlog.configure(processors=[tell])
    try:
        writer = rotating.LineWriter(
            rotating.open_sink(str(path), clock), pause_seconds=0.001, retry_seconds=0.01, waiting_bytes=100_000
        )
        free = os.statvfs(full_soon)
        ballast.write_bytes(bytes((free.f_bavail - 2) * free.f_bsize))
        line = b"x" * 999 + b"\n"
        for _ in range(90):
            writer.add(line)
        assert complained.wait(PATIENCE)
        for _ in range(50):
            writer.add(line)
        assert writer.lost > 0
        ballast.unlink()
        writer.close(PATIENCE)
    finally:
        structlog.reset_defaults()
    assert path.read_bytes() == line * (140 - writer.lost)
