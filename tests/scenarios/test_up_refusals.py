# SPDX-License-Identifier: Apache-2.0
"""What can be wrong before anything starts: each ends at once, with its own words, reason and exit code.

Proves that nobody has to read a traceback or guess, and that a refused start leaves what was there as it was.
"""

import os
import shutil
import socket
import subprocess

import pytest

from tests.scenarios import up_world

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]


def refused(done, code, reason, *texts):
    lines = done.stderr.strip().splitlines()
    assert done.returncode == code, done.stderr
    assert lines[-1] == f"reason: {reason}"
    assert any(line.startswith("error: ") for line in lines)
    assert "Traceback" not in done.stderr
    for text in texts:
        assert text in done.stderr
    assert done.stdout == ""


def test_a_taken_port(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        done = up_world.run("up", "--dir", tmp_path / "d", *up_world.FREE, "--listen", address)
        refused(done, 1, "AddressInUse", address, "--listen")
        done = up_world.run("up", "--dir", tmp_path / "d", *up_world.FREE, "--admin-listen", address)
        refused(done, 1, "AddressInUse", address, "--admin-listen")
    assert not (tmp_path / "d" / "pki").exists()


@pytest.mark.parametrize("value", ["6443", "localhost", ":6443", "::1:6443", "127.0.0.1:99999"])
def test_a_bad_address_leaves_no_directory(tmp_path, value):
    done = up_world.run("up", "--dir", tmp_path / "d", *up_world.FREE, "--listen", value)
    refused(done, 2, "InvalidConfiguration", "--listen", value, "HOST:PORT")
    assert not (tmp_path / "d").exists()


def test_balancers_that_are_this_machine(tmp_path):
    done = up_world.run("up", "--dir", tmp_path / "d", *up_world.FREE, "--proxy-protocol-from", "127.0.0.0/8")
    refused(done, 1, "InvalidConfiguration", "--proxy-protocol-from", "127.0.0.1", "without a PROXY header")
    assert not (tmp_path / "d").exists()


@pytest.mark.parametrize("below", ["", "deeper/still"])
def test_a_file_where_the_directory_should_be(tmp_path, below):
    (tmp_path / "file").write_text("mine")
    done = up_world.run("up", "--dir", tmp_path / "file" / below, *up_world.FREE)
    refused(done, 1, "NotADirectory", str(tmp_path / "file"), "--dir")
    assert (tmp_path / "file").read_text() == "mine"


def test_a_directory_that_cannot_be_made():
    # Not even root may create one there.
    done = up_world.run("up", "--dir", "/sys/handfast-data", *up_world.FREE)
    refused(done, 1, "PermissionDenied", "/sys/handfast-data", "--dir")


def test_a_directory_that_cannot_be_written(tmp_path):
    if os.geteuid() == 0:
        # Root may write anywhere, except on a file system that is mounted read-only.
        done = mounted(tmp_path, "ro,size=1m,mode=700")
    else:
        (tmp_path / "d").mkdir(mode=0o500)
        done = up_world.run("up", "--dir", tmp_path / "d", *up_world.FREE)
    refused(done, 1, "PermissionDenied", str(tmp_path / "d"))


def test_no_space(tmp_path):
    if os.geteuid() != 0:
        pytest.skip("only root can make a file system that is full")
    done = mounted(tmp_path, "size=4k,mode=700")
    refused(done, 3, "NoSpace", str(tmp_path / "d"), "free some space")


def mounted(tmp_path, options):
    """`up` on a small file system of its own, seen by nobody else."""
    if shutil.which("unshare") is None:
        pytest.skip("needs unshare")
    (tmp_path / "d").mkdir(mode=0o700)
    script = 'mount -t tmpfs -o "$1" tmpfs "$2" || exit 77; shift 2; exec "$@"'
    words = [*up_world.COMMAND, "up", "--dir", str(tmp_path / "d"), *up_world.FREE]
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", script, "sh", options, str(tmp_path / "d"), *words],
        capture_output=True,
        text=True,
        timeout=60,
        env=up_world.environment(),
        check=False,
    )
    if done.returncode == 77 or "unshare failed" in done.stderr:
        # In CI a full or read-only disk is a real one, or the run has failed.
        give_up = pytest.fail if os.environ.get("CI") == "true" else pytest.skip
        give_up("not run: mounting is not allowed here")
    return done


def test_a_second_process_on_the_same_directory(tmp_path):
    with up_world.Up(tmp_path / "d") as up:
        up.ready()
        done = up_world.run("up", "--dir", tmp_path / "d", *up_world.FREE)
        refused(done, 1, "DirectoryInUse", f"process {up.process.pid}", str(tmp_path / "d"))
        done = up_world.run("serve", "apiserver", "--dir", tmp_path / "d", "--listen", "127.0.0.1:0")
        refused(done, 1, "DirectoryInUse", f"process {up.process.pid}")
        assert up.call("GET", "/api/v1/namespaces/default")[0] == 200


def test_a_ca_key_of_another_directory(tmp_path):
    for name in ("a", "b"):
        assert up_world.run("serve", "prepare", "--dir", tmp_path / name, "--listen", "127.0.0.1:1").returncode == 0
    shutil.copy(tmp_path / "b" / "pki" / "ca.key", tmp_path / "a" / "pki" / "ca.key")
    done = up_world.run("up", "--dir", tmp_path / "a", *up_world.FREE)
    refused(done, 1, "DataDirectoryInconsistent", str(tmp_path / "a" / "pki" / "ca.key"))


def test_a_configuration_file_with_a_mistake(tmp_path):
    (tmp_path / "d").mkdir(mode=0o700)
    config = tmp_path / "d" / "config.yaml"
    config.write_text("apiVersion: handfast.dev/v1alpha1\nkind: Configuration\nlisten: everywhere\n")
    env_free = up_world.run("up", "--dir", tmp_path / "d", "--admin-listen", "127.0.0.1:0")
    refused(env_free, 1, "InvalidConfiguration", f"{config}: listen", "everywhere")


def test_a_store_that_cannot_be_opened_gives_up_with_its_reason(tmp_path):
    assert up_world.run("serve", "prepare", "--dir", tmp_path / "d", "--listen", "127.0.0.1:1").returncode == 0
    (tmp_path / "not-a-store").mkdir()
    done = up_world.run("up", "--dir", tmp_path / "d", *up_world.FREE, "--store", tmp_path / "not-a-store")
    assert done.returncode == 1, done.stderr
    refused(done, 1, "StoreCorrupt", "the apiserver cannot run, so that everything was stopped", "not a regular file")
    assert "is started again" not in done.stderr


def test_a_damaged_store_ends_it_at_once_with_its_reason(tmp_path):
    with up_world.Up(tmp_path / "d") as up:
        up.ready()
        assert up.stop()[0] == 0
    store = tmp_path / "d" / "store.db"
    damaged = b"SQLite format 3\0" + bytes(store.stat().st_size - 16)
    store.write_bytes(damaged)
    done = up_world.run("up", "--dir", tmp_path / "d", *up_world.FREE)
    refused(done, 1, "StoreCorrupt", str(store), "hint: ")
    assert "is started again" not in done.stderr
    assert store.read_bytes() == damaged
