# SPDX-License-Identifier: Apache-2.0
"""The unit that `handfast join --systemd` writes, and that of the CLI reference, read by systemd's own parser; nothing is started.

It proves that every setting is known and every value taken, whatever words the command has. It does not prove that the
sandbox leaves the agent what it needs: tests/scenarios/test_systemd_machine.py does, on a machine that systemd booted.
"""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess

import pytest

from handfast.node import units

AGENT = ("node", "run", "--node-name", "worker-1", "--rotate-certificates")


def verified(unit: pathlib.Path) -> tuple[int, list[str]]:
    """The exit code, and what systemd has to say of this very unit: a setting that it ignores is only told."""
    found = shutil.which("systemd-analyze")
    if found is None:
        give_up = pytest.fail if os.environ.get("CI") == "true" else pytest.skip
        give_up("not run: there is no systemd-analyze")
    command = [found, "verify", "--man=no", "--recursive-errors=no", str(unit)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    return done.returncode, [line for line in done.stderr.splitlines() if unit.name in line]


@pytest.mark.parametrize(
    "words",
    [
        pytest.param((), id="as it is"),
        pytest.param(("--kubeconfig", "/etc/ku be/k.conf", "--cert-dir", "/srv/50% $HOME/pki"), id="blank, %, $"),
        pytest.param(("a;b", ";", "#", "q\"uo'te", "back\\slash", "", "ä", "-", "@", "{x}"), id="odd words"),
    ],
)
def test_every_setting_is_taken(tmp_path: pathlib.Path, words: tuple[str, ...]) -> None:
    places = [pathlib.Path("/var/lib/kubelet/pki"), pathlib.Path("/etc/ku be"), pathlib.Path("/srv/50% $HOME")]
    path, left = units.install([*units.program(), *AGENT, *words], tmp_path, writable=places)
    assert verified(path) == (0, [])
    assert left.endswith(path.name)


def documented() -> str:
    """The unit that runs `up`, of the CLI reference."""
    page = (pathlib.Path(__file__).parents[2] / "docs" / "reference" / "cli.md").read_text()
    return page.partition("```ini\n")[2].partition("```")[0]


def test_the_unit_of_the_reference_is_taken(tmp_path: pathlib.Path) -> None:
    program = "/usr/local/bin/handfast"
    text = documented()
    assert f"\nExecStart={program} up " in text
    path = tmp_path / "handfast.service"
    path.write_text(text.replace(program, units.program()[0]))
    assert verified(path) == (0, [])


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("Restart=always", "Restart=ever"),
        ("UMask=0077", "UMusk=0077"),
        ("ReadWritePaths=", "ReadWritePaths=relative "),
        ('ExecStart="/', 'ExecStart="no-such-program/'),
    ],
)
def test_it_would_tell(tmp_path: pathlib.Path, right: str, wrong: str) -> None:
    path, _ = units.install([*units.program(), *AGENT], tmp_path, writable=[pathlib.Path("/srv")])
    text = path.read_text()
    assert right in text
    path.write_text(text.replace(right, wrong))
    assert verified(path) != (0, [])
