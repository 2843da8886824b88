# SPDX-License-Identifier: Apache-2.0
"""Ignition's first boot without Ignition: what is replaced, and what is refused."""

from __future__ import annotations

import json

import pytest

from handfast import errors
from handfast.client import machine_configs
from handfast.node import configuration_state, first_boot, root_files
from handfast.rules.machine_config import pointed, pointer
from tests.unit.rules.machine_config import serving
from tests.world.clock import MovableClock

POINTER = pointed.read(json.dumps(pointer.document("https://192.0.2.1/config/worker", b"ca", "s")).encode())


@pytest.fixture
def machine(tmp_path):
    root = root_files.Root(tmp_path)
    yield configuration_state.Machine(root)
    root.close()


def test_everything_is_written_and_a_second_time_is_refused(machine, tmp_path):
    document = serving.rendered(files=[serving.file("/etc/motd", "hello")])
    first_boot.require_new(machine)
    name, paths = first_boot.apply(machine, serving.answer(document, hostname="worker-1"))
    assert (name, "/etc/motd" in paths) == (document["metadata"]["name"], True)
    assert (tmp_path / "etc/hostname").read_text() == "worker-1\n"
    with pytest.raises(errors.Refused, match="has a configuration already") as caught:
        first_boot.require_new(machine)
    assert caught.value.reason == "AlreadyConfigured"


def test_a_file_that_may_not_be_replaced_is_refused_unless_it_is_the_same(machine, tmp_path):
    document = serving.rendered(files=[serving.file("/etc/motd", "hello")])
    document["spec"]["config"]["storage"]["files"][0]["overwrite"] = False
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/motd").write_text("theirs")
    with pytest.raises(errors.Refused, match="/etc/motd is there already") as caught:
        first_boot.apply(machine, serving.answer(document))
    assert caught.value.reason == "WouldOverwrite"
    assert [path.name for path in (tmp_path / "etc").iterdir()] == ["motd"]
    (tmp_path / "etc/motd").write_text("hello")
    first_boot.apply(machine, serving.answer(document))


def test_what_cannot_be_applied_is_not_begun(machine, tmp_path):
    with pytest.raises(errors.Refused, match="cannot apply osImageURL"):
        first_boot.apply(machine, serving.answer(serving.rendered(osImageURL="x")))
    assert list(tmp_path.iterdir()) == []


async def test_a_server_that_is_not_ready_is_asked_again_until_the_time_is_up(monkeypatch):
    clock = MovableClock()
    answers = []

    async def fetch(target):
        answers.append(target)
        if len(answers) < 3:
            raise machine_configs.NotReady("not ready")
        return b"{}"

    async def sleep(_seconds):
        return

    monkeypatch.setattr(machine_configs, "fetch", fetch)
    monkeypatch.setattr(clock, "sleep", sleep)
    assert await first_boot.fetched(POINTER, clock, 600) == b"{}"
    assert len(answers) == 3
    assert answers[0].trusted_by == "the pointer configuration"
    answers.clear()
    with pytest.raises(errors.Unavailable, match="not ready"):
        await first_boot.fetched(POINTER, clock, 0.5)
    assert len(answers) == 1
