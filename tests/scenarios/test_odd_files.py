# SPDX-License-Identifier: Apache-2.0
"""A named pipe where a file should be holds no command: each says what it found. What a shell hands over is read.

In processes of their own: a command that waits for a writer would wait for ever.
"""

from __future__ import annotations

import asyncio
import os
import pathlib
import subprocess
import sys

import pytest

from handfast.bootstrap import cluster_info
from handfast.runtime import files
from tests.unit.pki import making
from tests.world import warm
from tests.world import world as worlds
from tests.world.tls_cluster import TOKEN

pytestmark = pytest.mark.slow
HANDFAST = (sys.executable, "-m", "handfast")
# Longer than a command takes on a busy machine.
PATIENCE = 60


def run(*words: object) -> subprocess.CompletedProcess[str]:
    return warm.run([*map(str, words)], os.environ, PATIENCE)


@pytest.fixture
def pipe(tmp_path: pathlib.Path) -> pathlib.Path:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    return path


def test_a_named_pipe_holds_no_command(tmp_path: pathlib.Path, pipe: pathlib.Path) -> None:
    out = ("--discovery-only", "--timeout", "1s", "--bootstrap-kubeconfig", tmp_path / "out")
    token = ("--tls-bootstrap-token", TOKEN.text)
    keys = tmp_path / "certificates"
    keys.mkdir(mode=0o700)
    for name in ("kubelet-client-current.pem", "kubelet.crt", "kubelet.key"):
        os.mkfifo(keys / name)
    for words in (
        ("join", "--discovery-file", pipe, *token, *out),
        ("join", "--discovery-file", "https://127.0.0.1:1/", "--discovery-ca-file", pipe, *token, *out),
        ("join", "127.0.0.1:1", "--token-file", pipe, "--discovery-token-unsafe-skip-ca-verification", *out),
        ("token", "create", "--token-file", pipe),
        ("csr", "list", "--kubeconfig", pipe),
        ("up", "--config", pipe),
        ("node", "status", "--cert-dir", keys),
    ):
        done = run(*words)
        assert done.returncode != 0, words
        assert "Traceback" not in done.stderr
        assert "internal error" not in done.stderr
        if words[0] != "node":
            assert "not a regular file, but a named pipe" in done.stderr, (words, done.stderr)


async def test_a_served_pair_is_not_waited_for(tmp_path: pathlib.Path, pipe: pathlib.Path) -> None:
    async with worlds.world(tmp_path / "d"):
        pass
    pair = ("--tls-cert-file", pipe, "--tls-private-key-file", pipe)
    done = await asyncio.to_thread(run, "serve", "apiserver", "--dir", tmp_path / "d", "--listen", "127.0.0.1:0", *pair)
    assert done.returncode == 1
    assert f"cannot read {pipe}: not a regular file, but a named pipe" in done.stderr


def test_what_a_shell_hands_over_is_read(tmp_path: pathlib.Path) -> None:
    info = cluster_info.ClusterInfo(("https://127.0.0.1:1",), making.ca().pem, "uid")
    document = tmp_path / "info.yaml"
    files.write_atomically(document, cluster_info.build(info).encode())
    text = (
        f"{' '.join(HANDFAST)} join --discovery-file <(cat {document}) --tls-bootstrap-token-file <(echo {TOKEN.text}) "
        f"--discovery-only --timeout 1s --bootstrap-kubeconfig {tmp_path / 'out'}"
    )
    shell = ("bash", "-c", text)
    done = subprocess.run(shell, capture_output=True, text=True, timeout=PATIENCE, check=False)
    # It got as far as asking the cluster, which is not there.
    assert "https://127.0.0.1:1" in done.stderr
    assert done.returncode == 3, done.stderr
