# SPDX-License-Identifier: Apache-2.0
"""The start-up beside a workload, as real processes: the key is made, the command runs, and the identity service takes the request."""

from __future__ import annotations

import base64
import os
import pathlib
import shlex
import stat
import subprocess
import tempfile
from collections.abc import Iterator

import pytest

from handfast.pki import bundles, chains, keys, pem
from handfast.runtime import clock as clocks
from tests.scenarios import mesh_world, up_world
from tests.scenarios.mesh_world import identity_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

NAME = identity_of("shop", "web")
P = "LINKERD2_PROXY_"
# What a proxy would do first: say where its files are, and what it may not do.
PROXY = f'echo "$$ ${P}IDENTITY_KEY_FILE ${P}IDENTITY_CSR_FILE ${P}IDENTITY_TRUST_ANCHORS_FILE $(ulimit -c) $(ulimit -H -c)"'


@pytest.fixture(scope="module")
def plane(tmp_path_factory) -> Iterator[mesh_world.Plane]:
    with mesh_world.mesh(tmp_path_factory.mktemp("mesh")) as plane:
        yield plane


@pytest.fixture
def store() -> Iterator[pathlib.Path]:
    """In memory, where this machine has such a directory."""
    memory = pathlib.Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as path:
        yield pathlib.Path(path)


def started(variables: dict[str, str], *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*up_world.COMMAND, "mesh", "proxy", "init", *words],
        env={**up_world.environment(), **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_workload_starts_and_its_request_is_certified(plane, store, tmp_path):
    token = plane.workload("shop", "web", "web-1")
    # As the seed has it: the directory of the token, not its file.
    (tmp_path / "token").write_bytes(token)
    variables = {
        f"{P}LOCAL_IDENTITY_NAME": NAME,
        f"{P}IDENTITY_TRUST_ANCHORS_BLOB": base64.b64encode(plane.anchors()).decode(),
        f"{P}IDENTITY_TRUST_ANCHORS": plane.anchors().decode(),
        f"{P}IDENTITY_TOKEN_FILE": str(tmp_path),
        f"{P}IDENTITY_STORE_DIR": str(store),
        f"{P}IDENTITY_DIR": str(store),
    }
    process = started(variables, "--", "sh", "-c", PROXY)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    pid, key_file, csr_file, anchors_file, *limits = out.split()
    # It is the same process, without core files.
    assert int(pid) == process.pid
    assert limits == ["0", "0"]
    assert token.decode() not in out + err
    paths = [pathlib.Path(text) for text in (key_file, csr_file, anchors_file)]
    assert [path.name for path in paths] == ["key.der", "csr.p8", "trust-anchors.pem"]
    assert {stat.S_IMODE(path.stat().st_mode) for path in store.iterdir()} == {0o400}
    assert len(list(store.iterdir())) == 5
    with mesh_world.Service(plane) as service:
        answer = service.ready().certify(NAME, token, paths[1].read_bytes())
    anchors = bundles.TrustBundle.of(pem.certificates_from_pem(paths[2].read_bytes()))
    now = clocks.SystemClock().now()
    leaf = chains.verify([answer.leaf, *answer.intermediates], anchors, chains.Server(NAME), now)
    assert leaf.sans.texts() == [f"DNS:{NAME}"]
    key = keys.private_from_der(paths[0].read_bytes())
    certified = pem.encode(pem.CERTIFICATE, answer.leaf)
    shown = subprocess.run(
        ["openssl", "x509", "-noout", "-pubkey"], input=certified, capture_output=True, check=True, timeout=30
    )
    assert pem.one(shown.stdout, pem.PUBLIC_KEY) == key.public.spki


def test_a_full_directory_leaves_no_key(tmp_path):
    """A file system of two pages, mounted for a process of its own."""
    (tmp_path / "token").write_text("t")
    (tmp_path / "store").mkdir()
    words = shlex.join([*map(str, up_world.COMMAND), "mesh", "proxy", "init"])
    script = f"mount -t tmpfs -o size=8k none '{tmp_path}/store' && {words}; echo $?; ls -A '{tmp_path}/store'"
    root = some_root(tmp_path)
    variables = {
        f"{P}LOCAL_IDENTITY_NAME": NAME,
        f"{P}IDENTITY_TRUST_ANCHORS": root,
        f"{P}IDENTITY_TOKEN_FILE": str(tmp_path / "token"),
        f"{P}IDENTITY_STORE_DIR": str(tmp_path / "store"),
    }
    done = subprocess.run(
        ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script],
        env={**up_world.environment(), **variables},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    if "mount:" in done.stderr or "unshare:" in done.stderr:
        pytest.skip("this machine has no user namespaces")
    assert done.stdout.split() == ["3"], done.stderr
    assert f"{P}IDENTITY_STORE_DIR: cannot write to" in done.stderr
    assert "reason: NoSpace" in done.stderr


def some_root(directory: pathlib.Path) -> str:
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"),
            *("-subj", "/CN=root", "-keyout", "root.key", "-out", "root.crt"),
        ],
        cwd=directory,
        capture_output=True,
        check=True,
        timeout=30,
    )
    return (directory / "root.crt").read_text()
