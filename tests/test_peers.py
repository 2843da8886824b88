# SPDX-License-Identifier: Apache-2.0
"""scripts/test-peers.sh: CI does not go on with a kubectl that nothing is recorded for. What it installs is not tried here."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess

import pytest

pytestmark = pytest.mark.slow

ROOT = pathlib.Path(__file__).parents[1]
# Stand for the other peers, and for what would install them: a test changes nothing on the machine.
PEERS = ("etcd", "etcdctl", "openssl", "strace", "iptables", "ip", "systemd-analyze", "npm", "apt-get")


@pytest.fixture
def copy(tmp_path: pathlib.Path) -> pathlib.Path:
    """A directory with the script, and with as much of the project as it reads."""
    (tmp_path / "scripts").mkdir()
    shutil.copy(ROOT / "scripts" / "test-peers.sh", tmp_path / "scripts")
    (tmp_path / "tests" / "interop" / "node").mkdir(parents=True)
    for place in (*ROOT.glob("tests/interop/kubectl_output-*.yaml"), *ROOT.glob("tests/interop/node/package*.json")):
        shutil.copy(place, tmp_path / place.relative_to(ROOT))
    return tmp_path


def kubectl(place: pathlib.Path, version: str) -> str:
    """A kubectl that says this version of itself."""
    told = f'{{"clientVersion": {{"major": "1", "gitVersion": "{version}", "goVersion": "go1.26"}}}}'
    return _program(place / version / "kubectl", f"echo '{told}'")


def _program(place: pathlib.Path, text: str) -> str:
    place.parent.mkdir(exist_ok=True)
    place.write_text(f"#!/bin/sh\n{text}\n", encoding="ascii")
    place.chmod(0o700)
    return str(place)


def run(copy: pathlib.Path, version: str, **more: str) -> subprocess.CompletedProcess[str]:
    """The script, where a kubectl of this version is on the path."""
    for peer in PEERS:
        _program(copy / "bin" / peer, "exit 0")
    path = f"{pathlib.Path(kubectl(copy, version)).parent}:{copy / 'bin'}:{os.environ['PATH']}"
    environment = {key: value for key, value in os.environ.items() if key not in {"CI", "KUBECTL"}}
    return subprocess.run(
        [copy / "scripts" / "test-peers.sh"],
        capture_output=True,
        text=True,
        env={**environment, "PATH": path, **more},
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize(("more", "code"), [({"CI": "true"}, 1), ({}, 0)])
def test_a_kubectl_that_nothing_is_recorded_for_ends_ci(more: dict[str, str], code: int, copy: pathlib.Path):
    done = run(copy, "v1.20.2", **more)
    assert done.returncode == code, done.stderr
    assert "error: what kubectl prints is not recorded for kubectl 1.20\n" in done.stderr


def test_a_recorded_one_is_taken_also_by_its_path(copy: pathlib.Path):
    old, recorded = kubectl(copy, "v1.20.2"), kubectl(copy, "v1.32.4-dispatcher")
    assert run(copy, "v1.32.4-dispatcher", CI="true").returncode == 0
    assert run(copy, "v1.32.4-dispatcher", CI="true", KUBECTL=old).returncode == 1
    assert run(copy, "v1.20.2", CI="true", KUBECTL=recorded).returncode == 0
