# SPDX-License-Identifier: Apache-2.0
"""A machine that systemd has booted joins with `join --systemd`, is a node, and forgets it with `node reset`; systemd is real."""

from __future__ import annotations

import json
import pathlib

import pytest

from tests.scenarios import page_reader, up_world
from tests.world import booted_machine, lone_machine

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

NODE, ADDRESS = "worker-1", "192.0.2.1"
UNIT = "/etc/systemd/system/handfast-node.service"


def done(shell: page_reader.Shell, command: str) -> str:
    code, printed, errors = shell.type(command)
    assert code == 0, (command, printed, errors)
    return printed


def ready(shell: page_reader.Shell) -> bool:
    """Whether the agent, in the sandbox of its unit, has registered its Node and keeps it."""
    code, printed, _ = shell.type("handfast node list -o json")
    rows = json.loads(printed)["nodes"] if code == 0 else []
    return [(row["node"], row["state"]) for row in rows] == [(NODE, "good")]


def test_the_agent_runs_under_systemd_and_is_stopped_and_forgotten_by_a_reset(tmp_path: pathlib.Path) -> None:
    page_reader.install(tmp_path / "bin")
    home = tmp_path / "home"
    home.mkdir()
    variables = page_reader.environment(tmp_path)
    variables["PATH"] = f"{tmp_path / 'bin'}:{variables['PATH']}"
    with (
        lone_machine.switched_on(tmp_path, NODE, ADDRESS) as enter,
        page_reader.Reader(home, variables, enter) as plane,
        booted_machine.booted(tmp_path, enter) as inside,
    ):
        plane.start(f"handfast up --listen {ADDRESS}:6443", page_reader.READY)
        with page_reader.Shell(home, variables, inside) as shell:
            done(shell, "export KUBECONFIG=$PWD/handfast-data/admin.conf")
            # It joins, and systemd starts the agent.
            assert "this machine has joined" in done(shell, "$(handfast token create --print-join-command) --systemd")
            assert done(shell, "systemctl is-enabled handfast-node").strip() == "enabled"
            up_world.until(lambda: ready(shell), 60, what="the node")
            assert done(shell, "systemctl is-active handfast-node").strip() == "active"
            # It is killed, and is there again: RestartSec is ten seconds.
            before = done(shell, "systemctl show --property=MainPID --value handfast-node")
            done(shell, "systemctl kill --signal=KILL handfast-node")
            up_world.until(lambda: running_anew(shell, before), 60, what="another agent")
            # The machine forgets it: stopped, disabled, gone, and systemd knows nothing of it.
            assert "worker-1 no more" in done(shell, "handfast node reset --remove --revoke --yes")
            assert not pathlib.Path(f"{tmp_path}{UNIT}").exists()
            code, printed, _ = shell.type("systemctl show --property=LoadState --value handfast-node")
            assert (code, printed.strip()) == (0, "not-found")
            assert shell.type("pgrep -f 'node run'")[0] == 1
            assert "nothing to reset" in done(shell, "handfast node reset --yes")


def running_anew(shell: page_reader.Shell, before: str) -> bool:
    code, printed, _ = shell.type("systemctl show --property=MainPID --value handfast-node")
    return code == 0 and printed.strip() not in {"", "0", before.strip()}
