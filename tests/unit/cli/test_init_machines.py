# SPDX-License-Identifier: Apache-2.0
"""`handfast init --machines` on a directory: what is made, what is refused, and that a revoked credential stays revoked."""

from __future__ import annotations

import asyncio
import json
import pathlib
from typing import Any

import pytest
import structlog

from handfast.api import resources
from handfast.assembly import init
from handfast.cli import main, output, settings
from handfast.datadir import layout
from handfast.rules.machines import bootstrapper, installation
from handfast.runtime import clock as clocks

INVENTORY = "name,dns,ip\nworker-1,worker-1,192.0.2.1\n"
TRUST = f"ConfigMap {bootstrapper.CONFIG_NAMESPACE}/{bootstrapper.CONFIG_MAP}"


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch):
    monkeypatch.delenv("HANDFAST_DIR", raising=False)
    yield
    structlog.reset_defaults()


def run(directory: pathlib.Path, *words: object) -> int:
    return output.run(main.command, ["init", "--dir", str(directory), "--token", "", *map(str, words)])


def made(capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    """Each object and what became of it, as `-o json` tells."""
    facts = json.loads(capsys.readouterr().out)
    return {row["object"]: row["outcome"] for row in facts["objects"]}


def forget(directory: pathlib.Path, *objects: tuple[str, str]) -> None:
    """Delete ConfigMaps, as an operator or anybody with the right could."""
    place = layout.Layout.at(directory)
    chosen = settings.load(place, {}, None).configuration

    async def work() -> None:
        async with init.served(place, chosen, clocks.SystemClock()) as client:
            for namespace, name in objects:
                await client.delete(resources.CONFIG_MAPS, name, namespace=namespace)

    asyncio.run(work())


@pytest.mark.slow
def test_a_fleet_begins_with_its_machines_and_its_credential(tmp_path, capsys):
    (tmp_path / "machines.csv").write_text(INVENTORY)
    flags = ("--machines", "--inventory", tmp_path / "machines.csv", "--revoke-after", "4h", "-o", "json")
    assert run(tmp_path / "d", *flags) == 0
    done = made(capsys)
    assert done["Machine openshift-machine-api/worker-1"] == done[TRUST] == "created"
    assert (tmp_path / "d" / "machines" / "kubeconfig-kubelet").stat().st_mode & 0o777 == 0o600


@pytest.mark.slow
def test_a_revoked_credential_never_comes_back_by_a_start(tmp_path, capsys):
    assert run(tmp_path, "--machines", "-o", "json") == 0
    assert made(capsys)[TRUST] == "created"
    trust = (bootstrapper.CONFIG_NAMESPACE, bootstrapper.CONFIG_MAP)
    forget(tmp_path, trust)
    assert run(tmp_path, "--machines", "-o", "json") == 0
    assert TRUST not in made(capsys)
    # Nor where somebody has taken the marker away.
    forget(tmp_path, (installation.MARKER_NAMESPACE, installation.MARKER))
    assert run(tmp_path, "--machines", "-o", "json") == 0
    told = capsys.readouterr()
    assert TRUST not in {row["object"] for row in json.loads(told.out)["objects"]}
    assert "is not made to count again" in told.err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--inventory", "x"), "--inventory is given without --machines"),
        (("--revoke-after", "4h"), "--revoke-after is given without --machines"),
        (("--machines", "--revoke-after", "soon"), '"soon" is no duration'),
    ],
)
def test_flags_that_do_not_fit_are_refused_and_leave_nothing(tmp_path, capsys, words: Any, says: str):
    assert run(tmp_path / "d", *words) == 2
    assert says in capsys.readouterr().err
    assert not (tmp_path / "d").exists()


def test_an_inventory_with_a_problem_is_refused_with_its_line_and_leaves_nothing(tmp_path, capsys):
    (tmp_path / "machines.csv").write_text(INVENTORY + "worker-2,localhost,192.0.2.2\n")
    assert run(tmp_path / "d", "--machines", "--inventory", tmp_path / "machines.csv") == 1
    told = capsys.readouterr().err
    assert "line 3" in told
    assert "localhost" in told
    assert not (tmp_path / "d").exists()


def test_a_cluster_that_is_there_needs_a_place_for_the_credential(tmp_path, capsys):
    words = ["init", "--kubeconfig", str(tmp_path / "admin.conf"), "--machines"]
    assert output.run(main.command, words) == 2
    assert "--machines-out" in capsys.readouterr().err
