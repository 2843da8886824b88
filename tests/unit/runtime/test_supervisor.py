# SPDX-License-Identifier: Apache-2.0
"""The supervisor over stand-in children: order, restarts, giving up, stopping in time, leaving nobody behind."""

import asyncio
import dataclasses
import errno
import itertools
import os
import pathlib
import signal
import socket
import ssl
import sys

import pytest

from handfast import errors
from handfast.runtime import addresses, backoff, children, supervisor, watchdog
from tests.world.clock import MovableClock

pytestmark = pytest.mark.slow

# A stand-in tells its name, its life and its end in a file, as lines.
PRELUDE = """
import json, os, signal, socket, sys, time
name, path = sys.argv[1:3]
tie = int(sys.argv[sys.argv.index("--supervised") + 1])
def tell(what):
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(descriptor, f"{name} {what}\\n".encode())
    os.close(descriptor)
def stop(*_):
    tell("stopped")
    sys.exit(0)
signal.signal(signal.SIGTERM, stop)
tell("started")
"""
SERVES = "while True: time.sleep(60)"
DEAF = "signal.signal(signal.SIGTERM, signal.SIG_IGN)\ntell('deaf')\nwhile True: time.sleep(60)"
DIES = "sys.exit(7)"
REPORTS = (
    "socket.socket(fileno=tie).send(json.dumps({'error': 'no luck', 'hint': 'try', 'reason': 'NoLuck'}).encode())\n"
    "sys.exit(3)"
)
QUICK = supervisor.Timing(
    ready=5.0,
    poll=0.01,
    young=30.0,
    give_up=3,
    stop_each=0.3,
    stop=0.6,
    restart=backoff.Schedule(initial=0.01, cap=0.02),
)


class World:
    """Roles made of stand-ins, and what they told."""

    def __init__(self, tmp_path):
        self.path = tmp_path / "told"
        self.path.touch()
        self.events: list[str] = []
        self.pids: dict[str, int] = {}
        self.history: list[dict[str, int]] = []
        self.printed = b""
        self.again: float | None = None
        self.is_ready = asyncio.Event()

    def role(self, name, body, *, waits_for=None):
        async def ready():
            return waits_for in self.told()

        return children.Role(
            name=name,
            argv=(sys.executable, "-c", PRELUDE + body, name, str(self.path)),
            ready=ready if waits_for else None,
        )

    def told(self):
        return self.path.read_text().splitlines()

    async def until(self, line, times=1):
        async with asyncio.timeout(60):
            while self.told().count(line) < times:
                await asyncio.sleep(0.005)

    def event(self, level, text, **fields):
        self.events.append(f"{level}: {text} {fields}" if fields else f"{level}: {text}")

    def prepared(self, printed):
        self.printed += printed
        return self.again

    def changed(self, pids):
        self.history.append(dict(pids))
        # Of one that has ended the last id is of interest here.
        self.pids |= pids

    def ready(self):
        self.is_ready.set()


@pytest.fixture
def world(tmp_path):
    made = World(tmp_path)
    yield made
    # A test that failed half-way leaves nobody: stand-ins do not look whether their supervisor lives.
    for pid in {pid for each in made.history for pid in each.values()}:
        if is_stand_in(pid, made.path):
            os.kill(pid, signal.SIGKILL)


def is_stand_in(pid, path):
    """Whether a process is one of this test's: an id may be somebody else's by now."""
    try:
        return str(path).encode() in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def gone(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


async def test_starts_in_order_and_stops_in_reverse(world):
    roles = [world.role("a", SERVES, waits_for="a started"), world.role("b", SERVES, waits_for="b started")]
    run = asyncio.create_task(supervisor.Supervisor(roles, world, QUICK).run())
    await asyncio.wait_for(world.is_ready.wait(), 10)
    os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.wait_for(run, 10)
    assert world.told() == ["a started", "b started", "b stopped", "a stopped"]
    assert all(gone(pid) for pid in world.pids.values())
    assert world.events == ["info: SIGTERM received, stopping"]


@pytest.mark.parametrize("chosen", [None, "glibc.malloc.tcache_count=7"])
async def test_children_keep_freed_memory_unless_told_otherwise(world, monkeypatch, chosen):
    monkeypatch.delenv("GLIBC_TUNABLES", raising=False)
    if chosen is not None:
        monkeypatch.setenv("GLIBC_TUNABLES", chosen)
    child = await children.spawn(world.role("a", "tell(os.environ['GLIBC_TUNABLES'] + ' ' + os.environ['PATH'])"))
    await asyncio.wait_for(child.process.wait(), 10)
    child.tie.close()
    assert f"a {chosen or 'glibc.malloc.tcache_count=127'} {os.environ['PATH']}" in world.told()


async def test_what_is_killed_starts_again(world):
    roles = [world.role("a", SERVES), world.role("b", SERVES)]
    run = asyncio.create_task(supervisor.Supervisor(roles, world, QUICK).run())
    await world.until("b started")
    await world.until("a started")
    first = dict(world.pids)
    os.kill(first["a"], signal.SIGKILL)
    await world.until("a started", times=2)
    # Whoever is told the process ids is told of the death as well.
    assert {"b": first["b"]} in world.history
    assert world.pids["b"] == first["b"]
    assert world.pids["a"] != first["a"]
    os.kill(os.getpid(), signal.SIGINT)
    await asyncio.wait_for(run, 10)
    assert any("the a ended and is started again" in event and "SIGKILL" in event for event in world.events)


@pytest.mark.parametrize(
    "body, message, reason, hint",
    [(DIES, "exit code 7", "ChildFailed", "above"), (REPORTS, "no luck", "NoLuck", "try")],
)
async def test_gives_up_on_one_that_keeps_dying_and_stops_the_rest(world, body, message, reason, hint):
    roles = [world.role("a", SERVES), world.role("b", body)]
    with pytest.raises(errors.Refused) as caught:
        await asyncio.wait_for(supervisor.Supervisor(roles, world, QUICK).run(), 10)
    said = "the b died 3 times in a row, each time within 30 s of its start, so that everything was stopped; the last time: "
    assert caught.value.message.startswith(said)
    assert message in caught.value.message
    assert (caught.value.hint or "").endswith("the messages of the b are above; once the cause is gone, start again")
    assert (caught.value.reason, hint in (caught.value.hint or "")) == (reason, True)
    assert world.told().count("b started") == 3
    assert gone(world.pids["a"])


async def test_one_that_cannot_run_ends_everything_at_once(world):
    report = {"error": "damaged", "hint": "restore it", "reason": "StoreCorrupt", "permanent": True}
    says = f"socket.socket(fileno=tie).send(json.dumps({report!r}).encode())\nsys.exit(1)"
    roles = [world.role("a", SERVES), world.role("b", says)]
    with pytest.raises(children.Permanent) as caught:
        await asyncio.wait_for(supervisor.Supervisor(roles, world, QUICK).run(), 10)
    assert caught.value.message == "the b cannot run, so that everything was stopped: damaged"
    assert (caught.value.reason, caught.value.hint) == ("StoreCorrupt", "restore it")
    assert world.told().count("b started") == 1
    assert gone(world.pids["a"])


PERMANENT = (
    "socket.socket(fileno=tie).send(json.dumps({'error': 'damaged', 'reason': 'StoreCorrupt', 'permanent': True}).encode())\n"
    "sys.exit(1)"
)


@pytest.mark.parametrize(("body", "starts", "reason"), [(DIES, 5, "ChildFailed"), (PERMANENT, 3, "StoreCorrupt")])
async def test_one_that_is_not_needed_ends_nothing_and_is_tried_again(world, body, starts, reason):
    patient = dataclasses.replace(QUICK, again=0.05)
    spare = dataclasses.replace(world.role("b", body, waits_for="never"), needed=False)
    roles = [world.role("a", SERVES), spare, world.role("c", SERVES)]
    run = asyncio.create_task(supervisor.Supervisor(roles, world, patient).run())
    await asyncio.wait_for(world.is_ready.wait(), 10)
    # More often than a role that is needed would be.
    await world.until("b started", times=starts)
    assert not gone(world.pids["a"])
    told = "warning: the b cannot be kept running; everything else goes on, and it is tried again"
    assert any(event.startswith(told) and f"'reason': '{reason}'" in event for event in world.events)
    os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.wait_for(run, 10)
    assert [line for line in world.told() if not line.startswith("b")] == [
        "a started",
        "c started",
        "c stopped",
        "a stopped",
    ]


async def test_one_that_is_not_needed_and_never_ready_is_told_of(world):
    hasty = dataclasses.replace(QUICK, ready=0.2)
    spare = dataclasses.replace(world.role("b", SERVES, waits_for="never"), needed=False)
    run = asyncio.create_task(supervisor.Supervisor([world.role("a", SERVES), spare], world, hasty).run())
    await asyncio.wait_for(world.is_ready.wait(), 10)
    assert "warning: the b was not ready within 0.2 s; everything else goes on {'reason': 'NotReady'}" in world.events
    os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.wait_for(run, 10)


async def test_one_that_lived_long_enough_is_not_given_up(world):
    old = supervisor.Timing(young=0.0, give_up=2, restart=QUICK.restart, stop=1.0, stop_each=0.5)
    run = asyncio.create_task(supervisor.Supervisor([world.role("a", DIES)], world, old).run())
    await world.until("a started", times=4)
    os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.wait_for(run, 10)


async def test_one_that_does_not_stop_is_killed_at_the_deadline(world):
    roles = [world.role("a", DEAF), world.role("b", DEAF)]
    hasty = dataclasses.replace(QUICK, stop_each=0.05, stop=0.1)
    run = asyncio.create_task(supervisor.Supervisor(roles, world, hasty).run())
    await world.until("a deaf")
    await world.until("b deaf")
    begun = asyncio.get_running_loop().time()
    os.kill(os.getpid(), signal.SIGHUP)
    await asyncio.wait_for(run, 10)
    assert 0.1 <= asyncio.get_running_loop().time() - begun < 5
    assert all(gone(pid) for pid in world.pids.values())
    assert "warning: the a did not stop in time and was killed" in world.events


async def test_a_second_interrupt_kills_at_once(world):
    patient = supervisor.Timing(stop_each=60.0, stop=60.0)
    run = asyncio.create_task(supervisor.Supervisor([world.role("a", DEAF)], world, patient).run())
    await world.until("a deaf")
    os.kill(os.getpid(), signal.SIGINT)
    await asyncio.sleep(0.05)
    assert not run.done()
    os.kill(os.getpid(), signal.SIGINT)
    with pytest.raises(errors.Refused) as caught:
        await asyncio.wait_for(run, 10)
    assert caught.value.reason == "Interrupted"
    assert gone(world.pids["a"])


async def test_one_that_is_never_ready_ends_the_attempt(world):
    hasty = supervisor.Timing(ready=0.2, poll=0.01, stop=1.0, stop_each=0.5)
    roles = [world.role("a", SERVES, waits_for="never"), world.role("b", SERVES)]
    with pytest.raises(errors.Unavailable) as caught:
        await asyncio.wait_for(supervisor.Supervisor(roles, world, hasty).run(), 10)
    assert caught.value.reason == "NotReady"
    assert "b started" not in world.told()
    assert not world.is_ready.is_set()


async def test_a_stop_does_not_wait_for_a_question_that_is_not_answered(world):
    async def hangs():
        await asyncio.sleep(3600)
        return True

    role = world.role("a", SERVES)
    role = children.Role(name="a", argv=role.argv, ready=hangs)
    run = asyncio.create_task(supervisor.Supervisor([role], world, QUICK).run())
    await world.until("a started")
    os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.wait_for(run, 10)
    assert world.told() == ["a started", "a stopped"]


async def test_a_question_that_cannot_be_asked_ends_the_attempt(world):
    async def broken():
        raise errors.Refused("no CA", reason="FileNotFound")

    role = children.Role(name="a", argv=world.role("a", SERVES).argv, ready=broken)
    with pytest.raises(errors.Refused, match="no CA"):
        await asyncio.wait_for(supervisor.Supervisor([role], world, QUICK).run(), 10)
    assert all(gone(pid) for pid in world.pids.values())


async def test_a_program_that_does_not_exist(world):
    role = children.Role(name="a", argv=("/nonexistent/program",))
    with pytest.raises(errors.Refused, match=r"the a died 3 times .* cannot start the a: no such file"):
        await asyncio.wait_for(supervisor.Supervisor([role], world, QUICK).run(), 10)


@pytest.mark.parametrize("what", ["subprocess", "socketpair"])
async def test_a_start_that_fails_is_a_death_of_that_role_alone(world, monkeypatch, what):
    start, pair = asyncio.create_subprocess_exec, socket.socketpair
    # The first start is that of a, the second that of b.
    starts = itertools.count(1)

    async def exec_or_not(*argv, **more):
        if what == "subprocess" and next(starts) == 2:
            raise OSError(errno.EAGAIN, "Resource temporarily unavailable")
        return await start(*argv, **more)

    def pair_or_not(*args):
        if what == "socketpair" and next(starts) == 2:
            raise OSError(errno.EMFILE, "Too many open files")
        return pair(*args)

    monkeypatch.setattr(asyncio, "create_subprocess_exec", exec_or_not)
    monkeypatch.setattr(socket, "socketpair", pair_or_not)
    roles = [world.role("a", SERVES, waits_for="a started"), world.role("b", SERVES)]
    run = asyncio.create_task(supervisor.Supervisor(roles, world, QUICK).run())
    await world.until("b started")
    assert world.told() == ["a started", "b started"]
    os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.wait_for(run, 10)
    assert any("the b ended and is started again" in event and "cannot start the b" in event for event in world.events)


class TestSilence:
    """A child that no longer answers is killed with the reason, and started again; others are left alone."""

    ANSWERS = """
sock = socket.socket(fileno=%d)
while True:
    peer = sock.accept()[0]
    with peer:
        while b"\\r\\n\\r\\n" in peer.recv(4096):
            peer.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\nok")
            tell("answered")
"""
    # Whoever has no processor for a moment, this process included, must not look silent.
    PATIENCE = watchdog.Patience(answer=1.0, pause=0.05, failures=3, slack=30.0)

    def serving(self, world, name, sock):
        address = addresses.Address("127.0.0.1", sock.getsockname()[1])
        role = world.role(name, self.ANSWERS % sock.fileno())
        return dataclasses.replace(
            role, descriptors=(sock.fileno(),), livez=lambda seconds: watchdog.Livez(address, None, seconds)
        )

    async def test_one_that_is_stopped_is_killed_and_comes_back(self, world):
        timing = dataclasses.replace(QUICK, silence=self.PATIENCE, give_up=1000)
        with socket.create_server(("127.0.0.1", 0)) as sock:
            roles = [self.serving(world, "a", sock), world.role("b", SERVES)]
            run = asyncio.create_task(supervisor.Supervisor(roles, world, timing).run())
            await world.until("b started")
            await world.until("a answered")
            first = dict(world.pids)
            os.kill(first["a"], signal.SIGSTOP)
            await world.until("a started", times=2)
            answers = world.told().count("a answered")
            await world.until("a answered", times=answers + 2)
            assert world.pids["a"] != first["a"]
            assert world.pids["b"] == first["b"]
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.wait_for(run, 10)
        place = next(place for place, event in enumerate(world.events) if f"'pid': {first['a']}" in event)
        killed, again = world.events[place : place + 2]
        assert killed.startswith("error: the a does not answer and is killed ")
        assert "not answered 3 times in a row" in killed
        assert "it is stopped (SIGSTOP)" in killed
        assert "'reason': 'NotAnswering'" in killed
        assert again.startswith("warning: the a ended and is started again {'why': 'killed: /livez was not answered")

    async def test_where_nobody_watches_it_stays_as_it_is(self, world, monkeypatch):
        watched = []

        async def watch(*_):
            watched.append("a")
            return "no answer"

        monkeypatch.setattr(watchdog, "watch", watch)
        timing = dataclasses.replace(QUICK, silence=None)
        with socket.create_server(("127.0.0.1", 0)) as sock:
            run = asyncio.create_task(
                supervisor.Supervisor([self.serving(world, "a", sock)], world, timing, clock=MovableClock()).run()
            )
            await world.until("a started")
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.wait_for(run, 10)
        assert (watched, world.told().count("a started")) == ([], 1)
        assert "a answered" not in world.told()

    async def test_a_server_that_stops_is_not_called_silent(self, world, monkeypatch):
        """It answers nobody while it drains, and has its own deadline."""
        asked = asyncio.Event()

        async def watch(*_):
            asked.set()
            await stopping.wait()
            return "no answer"

        monkeypatch.setattr(watchdog, "watch", watch)
        with socket.create_server(("127.0.0.1", 0)) as sock:
            made = supervisor.Supervisor([self.serving(world, "a", sock)], world, QUICK)
            stopping = made._stopping
            run = asyncio.create_task(made.run())
            await world.until("a started")
            await asyncio.wait_for(asked.wait(), 10)
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.wait_for(run, 10)
        assert world.told()[-1] == "a stopped"
        assert world.events == ["info: SIGTERM received, stopping"]


async def test_what_is_done_beside_the_roles_begins_when_they_are_ready_and_ends_with_the_stop(world):
    seen = []

    async def beside():
        seen.append(world.is_ready.is_set())
        try:
            await asyncio.Event().wait()
        finally:
            seen.append("cancelled")

    role = world.role("a", SERVES, waits_for="a started")
    run = asyncio.create_task(supervisor.Supervisor([role], world, QUICK, beside=[beside]).run())
    await asyncio.wait_for(world.is_ready.wait(), 10)
    async with asyncio.timeout(10):
        while not seen:
            await asyncio.sleep(0.005)
    os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.wait_for(run, 10)
    assert seen == [True, "cancelled"]


class TestPreparation:
    async def test_runs_to_its_end_before_the_roles(self, world):
        first = world.role("first", "print('did it'); time.sleep(0.1); tell('ended')")
        run = asyncio.create_task(supervisor.Supervisor([world.role("a", SERVES)], world, QUICK, first).run())
        await asyncio.wait_for(world.is_ready.wait(), 10)
        await world.until("a started")
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.wait_for(run, 10)
        assert world.printed == b"did it\n"
        assert world.told()[:3] == ["first started", "first ended", "a started"]

    async def test_runs_again_when_it_asks_to(self, world):
        world.again = 0.01
        first = dataclasses.replace(world.role("first", "print(sys.argv[3:-2])"), again=("--again",))
        run = asyncio.create_task(supervisor.Supervisor([world.role("a", SERVES)], world, QUICK, first).run())
        await world.until("first started", times=3)
        world.again = None
        async with asyncio.timeout(10):
            while world.printed.count(b"--again") < 2:
                await asyncio.sleep(0.005)
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.wait_for(run, 10)
        assert world.printed.startswith(b"[]\n['--again']\n")
        assert world.told().count("a started") == 1

    async def test_a_later_failure_is_told_tried_again_and_stops_nobody(self, world):
        world.again = 0.01
        hasty = dataclasses.replace(QUICK, again=0.01)
        first = dataclasses.replace(world.role("first", f"if '--again' in sys.argv:\n {REPORTS}"), again=("--again",))
        first = dataclasses.replace(
            first, argv=tuple(word.replace("\nsys.exit(3)", "\n sys.exit(3)") for word in first.argv)
        )
        run = asyncio.create_task(supervisor.Supervisor([world.role("a", SERVES)], world, hasty, first).run())
        await world.until("first started", times=4)
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.wait_for(run, 10)
        assert "warning: the first failed: no luck {'reason': 'NoLuck'}" in world.events
        assert world.told().count("a started") == 1

    async def test_a_stop_ends_the_waiting(self, world):
        world.again = 3600.0
        first = world.role("first", "pass")
        run = asyncio.create_task(supervisor.Supervisor([world.role("a", SERVES)], world, QUICK, first).run())
        await world.until("a started")
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.wait_for(run, 10)
        assert world.told().count("first started") == 1

    async def test_a_stop_does_not_wait_for_a_later_run(self, world):
        world.again = 0.01
        first = dataclasses.replace(
            world.role("first", "if '--again' in sys.argv: tell('again'); time.sleep(60)"), again=("--again",)
        )
        run = asyncio.create_task(supervisor.Supervisor([world.role("a", SERVES)], world, QUICK, first).run())
        await world.until("first again")
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.wait_for(run, 10)

    async def test_its_report_is_the_error_and_no_role_starts(self, world):
        run = supervisor.Supervisor([world.role("a", SERVES)], world, QUICK, world.role("first", REPORTS)).run()
        with pytest.raises(errors.Unavailable) as caught:
            await asyncio.wait_for(run, 10)
        assert (caught.value.message, caught.value.reason) == ("no luck", "NoLuck")
        assert "a started" not in world.told()

    async def test_without_a_report_what_it_wrote_is_told(self, world):
        first = world.role("first", "print('last words', file=sys.stderr)\nsys.exit(9)")
        with pytest.raises(errors.Refused, match="the first failed with exit code 9: last words"):
            await asyncio.wait_for(supervisor.Supervisor([], world, QUICK, first).run(), 10)

    async def test_a_stop_does_not_wait_for_it(self, world):
        run = asyncio.create_task(supervisor.Supervisor([], world, QUICK, world.role("first", DEAF)).run())
        await world.until("first deaf")
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.wait_for(run, 10)
        assert not world.is_ready.is_set()


class TestTie:
    async def test_children_hold_nothing_but_what_they_are_given(self, world):
        """The tie only works if no sibling holds the supervisor's end of it."""
        body = "tell(' '.join(sorted(os.listdir('/proc/self/fd'), key=int)))\n" + SERVES
        roles = [world.role("a", body), world.role("b", body)]
        run = asyncio.create_task(supervisor.Supervisor(roles, world, QUICK).run())
        async with asyncio.timeout(10):
            while len(world.told()) < 4:
                await asyncio.sleep(0.005)
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.wait_for(run, 10)
        held = [line.split()[1:] for line in world.told() if line.split()[1].isdigit()]
        # stdin, stdout, stderr, the tie, and the directory being listed
        assert [len(one) for one in held] == [5, 5]

    async def test_the_child_sees_the_end_of_its_supervisor(self, world):
        body = "socket.socket(fileno=tie).recv(1)\ntell('alone')"
        child = await children.spawn(world.role("a", body))
        await world.until("a started")
        child.tie.close()
        await asyncio.wait_for(child.process.wait(), 10)
        assert world.told() == ["a started", "a alone"]


class TestAnswers:
    @pytest.mark.parametrize(
        "answer, good",
        [
            (b"HTTP/1.1 200 OK\r\n\r\nok", True),
            (b"HTTP/1.1 500 No\r\n\r\n", False),
            (b"HTTP/1.1\r\n", False),
            (b"", False),
        ],
    )
    async def test_only_200_counts(self, answer, good):
        asked = []

        async def serve(reader, writer):
            asked.append(await reader.readuntil(b"\r\n\r\n"))
            writer.write(answer)
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with server:
            assert await supervisor.answers(addresses.Address("0.0.0.0", port), "/readyz", None) is good
        assert asked[0].startswith(b"GET /readyz HTTP/1.1\r\nHost: 127.0.0.1:")

    async def test_nobody_there(self):
        with socket.socket() as sock:
            sock.bind(("127.0.0.1", 0))
            address = addresses.Address("127.0.0.1", sock.getsockname()[1])
            assert await supervisor.answers(address, "/readyz", None) is False
            assert await supervisor.answers(address, "/readyz", ssl.create_default_context()) is False
