# SPDX-License-Identifier: Apache-2.0
"""Envoy as a child process, as far as no Envoy is needed: its file is private, its silence has a name."""

import pathlib
import stat
import sys

import pytest

from handfast import errors
from handfast.proxy import envoy
from handfast.runtime import clock as clocks


@pytest.fixture
def child(tmp_path):
    return envoy.Envoy(envoy.Options(node="pod", directory=tmp_path), clocks.SystemClock())


def test_its_configuration_is_for_this_user_alone(child, tmp_path):
    assert stat.S_IMODE(child._write().stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "envoy.json").stat().st_mode) == 0o600


async def test_an_envoy_that_does_not_answer_is_unavailable(child):
    with pytest.raises(errors.Unavailable) as unavailable:
        await child.ask("/ready")
    assert unavailable.value.reason == "EnvoyNotAnswering"
    assert child.pid is None


async def test_an_envoy_that_cannot_be_started_is_unavailable(child, monkeypatch):
    monkeypatch.setattr(sys, "executable", str(pathlib.Path("/nonexistent/python")))
    with pytest.raises(errors.Unavailable, match="cannot start Envoy: no such file") as unavailable:
        await child.run()
    assert unavailable.value.reason == "EnvoyNotStarted"
