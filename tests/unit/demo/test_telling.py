# SPDX-License-Identifier: Apache-2.0
"""Telling a story of a few real lines: what is missing ends it, what is not installed is left out, and the end is always the same."""

from __future__ import annotations

import asyncio
import os
import pathlib
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

from handfast import errors
from handfast.demo import lines, place, processes, story, telling
from handfast.runtime import clock as clocks
from handfast.wire import extra

pytestmark = pytest.mark.slow
PAGES = lines.Step("Pages", "They are read.", (lines.Line("echo 3 pages", seen=("^3",), keep={"pages": "[0-9]"}),))
AGAIN = lines.Step(
    "Again",
    "It comes in a moment.",
    (
        lines.Line("sh -c 'sleep 0.3; echo {pages} > late.txt' &"),
        lines.Line("cat late.txt", seen=("^3$",), again=True),
    ),
)
BAD = lines.Step("Bad", "It fails.", (lines.Line("echo why > bad.log; false"), lines.Line("echo never")))
MESH = lines.Step("Mesh", "It needs a part.", (lines.Line("echo mesh"),), part=lines.MESH)


class Listener:
    """Writes down what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, Any]] = []
        self.home = pathlib.Path("/none")
        self.when_staying: asyncio.Task[Any] | None = None

    def opened(self, opening):
        self.home = pathlib.Path(opening[0].removeprefix("cd "))

    def begun(self, number, total, step):
        self.told.append(("begun", (number, total, step.title)))

    def typed(self, text):
        self.told.append(("typed", text))

    def waiting(self):
        pass

    def answered(self, answer):
        self.told.append(("answered", answer))

    def done(self, result):
        self.told.append(("done", result))

    def stays(self, kubeconfig, answers):
        self.told.append(("stays", (kubeconfig, answers)))
        assert self.when_staying is not None
        self.when_staying.cancel()

    def logs(self, ends):
        self.told.append(("logs", ends))

    def cleaning(self):
        self.told.append(("cleaning", None))

    def ended(self, left, seconds):
        self.told.append(("ended", left))

    def all(self, kind: str) -> list[Any]:
        return [value for each, value in self.told if each == kind]


@pytest.fixture
def listener(tmp_path, monkeypatch) -> Iterator[Listener]:
    """Whatever happens, it ends with nothing left."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    mask = os.umask(0o022)
    os.umask(mask)
    found = Listener()
    yield found
    (left,) = found.all("ended")
    assert left.is_clean
    assert not found.home.exists()
    assert list(tmp_path.iterdir()) == []
    assert os.umask(mask) == mask


def tell(monkeypatch, listener, *steps, **options) -> None:
    monkeypatch.setattr(story, "STEPS", steps)

    async def work() -> None:
        listener.when_staying = asyncio.current_task()
        await telling.tell(telling.Options(**options), listener, clocks.SystemClock())

    asyncio.run(work())


def test_what_one_line_prints_is_there_for_the_next_and_what_comes_late_is_waited_for(monkeypatch, listener):
    tell(monkeypatch, listener, PAGES, AGAIN)
    assert [result.verdict for result in listener.all("done")] == ["passed", "passed"]
    assert "sh -c 'sleep 0.3; echo 3 > late.txt' &" in listener.all("typed")


def test_a_line_that_fails_ends_the_story_with_the_ends_of_the_logs(monkeypatch, listener):
    with pytest.raises(errors.Refused) as caught:
        tell(monkeypatch, listener, PAGES, BAD, PAGES)
    assert caught.value.reason == "DemoStepFailed"
    assert "step 2, 'Bad'" in caught.value.message
    assert [result.verdict for result in listener.all("done")] == ["passed", "failed"]
    assert listener.all("logs") == [[("bad.log", ["why"])]]
    assert "echo never" not in listener.all("typed")


def test_a_process_that_was_to_stay_and_fails_is_not_waited_for(monkeypatch, listener):
    dying = "sh -c 'echo out of luck; exit 3' > child.log &"
    step = lines.Step("Gone", "It ends.", (lines.Line(dying), lines.Line("cat none", again=True)))
    with pytest.raises(errors.Refused, match="was to stay, and has ended: sh -c") as caught:
        tell(monkeypatch, listener, PAGES, step, PAGES)
    assert caught.value.reason == "DemoStepFailed"
    # Its last words are told, and nothing is told after them.
    assert listener.all("logs") == [[("child.log", ["out of luck"])]]
    assert [result.verdict for result in listener.all("done")] == ["passed", "failed"]


def test_what_does_not_come_is_not_waited_for_for_ever(monkeypatch, listener):
    monkeypatch.setattr(telling, "_PATIENCE", 0.5)
    step = lines.Step("Never", "It does not come.", (lines.Line("cat none", again=True),))
    with pytest.raises(errors.Refused, match="exit code 1"):
        tell(monkeypatch, listener, step)


def test_steps_whose_part_is_not_installed_are_left_out_with_the_next_step(monkeypatch, listener):
    def missing() -> None:
        raise errors.Refused("no gRPC", reason="MeshExtraMissing", hint="install it")

    monkeypatch.setattr(extra, "require", missing)
    tell(monkeypatch, listener, PAGES, MESH, PAGES)
    verdicts = [(result.verdict, result.missing and result.missing.hint) for result in listener.all("done")]
    assert verdicts == [("passed", None), ("left out", "install it"), ("passed", None)]
    assert "echo mesh" not in listener.all("typed")


def test_one_that_stays_ends_by_a_signal_and_leaves_nothing(monkeypatch, listener):
    with pytest.raises(asyncio.CancelledError):
        tell(monkeypatch, listener, PAGES, stay=True)
    assert [path for path, _ in listener.all("stays")] == [str(listener.home / "data" / "admin.conf")]


def test_where_there_is_a_console_one_that_stays_prints_the_address_that_opens_it(monkeypatch, listener):
    monkeypatch.setattr(story, "STAYING", (lines.Line("echo http://127.0.0.1/once", seen=("http",)),))
    step = lines.Step("Up", "It starts.", (lines.Line("echo up{mesh}{console}", seen=("--console",)),))
    with pytest.raises(asyncio.CancelledError):
        tell(monkeypatch, listener, step, stay=True, console=True)
    ((_, (answer,)),) = listener.all("stays")
    assert answer.output == "http://127.0.0.1/once\n"


def test_one_that_stays_and_prints_no_address_of_its_console_fails(monkeypatch, listener):
    monkeypatch.setattr(story, "STAYING", (lines.Line("echo no console > up.log; false", seen=("http",)),))
    with pytest.raises(errors.Refused, match="the end of the story: it ended with exit code 1") as caught:
        tell(monkeypatch, listener, PAGES, stay=True, console=True)
    assert caught.value.reason == "DemoStepFailed"
    assert (listener.all("stays"), listener.all("logs")) == ([], [[("up.log", ["no console"])]])


@pytest.mark.parametrize(("is_there", "typed"), [(True, "kubectl get it"), (False, "echo another way")])
def test_where_there_is_no_kubectl_the_other_line_is_typed(monkeypatch, listener, tmp_path_factory, is_there, typed):
    programs = tmp_path_factory.mktemp("programs")
    for name in ("sh", "echo"):
        (programs / name).symlink_to(shutil.which(name))
    if is_there:
        (programs / "kubectl").write_text("#!/bin/sh\necho it\n")
        (programs / "kubectl").chmod(0o700)
    monkeypatch.setenv("PATH", str(programs))
    step = lines.Step("It", "It is shown.", (lines.Line("kubectl get it", instead="echo another way"),))
    tell(monkeypatch, listener, step)
    assert listener.all("typed") == [typed]


def test_where_nothing_is_in_memory_there_are_no_workloads_and_that_is_told(monkeypatch, listener):
    monkeypatch.setattr(place, "_memory", lambda _home: None)
    tell(monkeypatch, listener, MESH)
    (result,) = listener.all("done")
    assert (result.verdict, result.missing.reason) == ("left out", "NoMemoryDirectory")


def test_something_is_waited_for_before_each_step(monkeypatch, listener):
    count = []

    async def before() -> None:
        count.append(1)

    tell(monkeypatch, listener, PAGES, PAGES, before=before)
    assert len(count) == 2


def test_what_is_left_is_an_error_that_names_it(monkeypatch, listener):
    async def end(self):
        await real(self)
        return ["123 sleep 100"], ["127.0.0.1:1"]

    real = processes.Processes.end
    monkeypatch.setattr(processes.Processes, "end", end)
    with pytest.raises(errors.Refused) as caught:
        tell(monkeypatch, listener, BAD)
    assert caught.value.reason == "DemoLeftSomething"
    assert "123 sleep 100" in caught.value.message
    # The fixture asks for a clean end, which this one is not.
    listener.told = [("ended", telling.Left())]
