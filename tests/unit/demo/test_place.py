# SPDX-License-Identifier: Apache-2.0
"""The place of the demo: all that it makes is in directories of its own, and what is in the way is told before anything is made."""

from __future__ import annotations

import os
import pathlib
import shutil
import socket
import tempfile

import pytest

from handfast import errors
from handfast.demo import material, place
from handfast.runtime import addresses, mounts


@pytest.fixture
def own(tmp_path):
    return {"PATH": os.environ["PATH"], "TMPDIR": str(tmp_path), "HANDFAST_DIR": "/elsewhere", "LANG": "C"}


def test_everything_is_in_directories_that_only_the_owner_can_read_and_goes_at_the_end(own, tmp_path):
    where = place.make(own, None, None)
    assert where.home.parent == tmp_path
    assert {path.stat().st_mode & 0o777 for path in where.directories()} == {0o700}
    assert {path.name for path in where.home.iterdir() if path.is_file()} == set(material.FILES)
    assert where.remove() == []
    assert not any(path.exists() for path in where.directories())


def test_settings_of_handfast_are_left_out_and_what_is_typed_says_so(own):
    where = place.make(own, None, None)
    try:
        variables = where.variables(own)
        assert "HANDFAST_DIR" not in variables
        assert variables["LANG"] == "C"
        assert variables["KUBECONFIG"] == str(where.home / "data" / "admin.conf")
        assert variables["TMPDIR"] in map(str, where.directories())
        opening = list(where.opening(own))
        assert opening[0] == f"cd {where.home}"
        assert "unset HANDFAST_DIR" in opening
        assert opening[-1] == "umask 077"
        for name in ("KUBECONFIG", "TMPDIR"):
            assert f"export {name}={variables[name]}" in opening
    finally:
        where.remove()


def test_without_a_script_there_is_one_of_its_own_and_path_begins_with_it(own):
    where = place.make(own, None, None)
    try:
        script = where.home / "bin" / "handfast"
        assert where.variables(own)["PATH"].startswith(f"{script.parent}:")
        assert os.access(script, os.X_OK)
        assert "-P -m handfast" in script.read_text()
    finally:
        where.remove()


def test_a_script_that_a_shell_finds_by_itself_changes_no_path(own, tmp_path):
    script = tmp_path / "bin" / "handfast"
    script.parent.mkdir()
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    for path, expected in ((str(script.parent), None), ("/usr/bin", script.parent)):
        where = place.make(own | {"PATH": path}, None, script)
        assert where.programs == expected
        where.remove()


def test_a_temporary_directory_that_is_not_there_is_told_and_nothing_is_made(tmp_path):
    with pytest.raises(errors.Refused) as caught:
        place.make({"TMPDIR": str(tmp_path / "none")}, None, None)
    assert caught.value.reason == "FileNotFound"
    assert "TMPDIR" in (caught.value.hint or "")
    (tmp_path / "file").write_text("")
    with pytest.raises(errors.Refused) as caught:
        place.make({"TMPDIR": str(tmp_path / "file")}, None, None)
    assert caught.value.reason == "NotADirectory"


def test_a_port_that_is_taken_is_told_before_anything_is_made(own, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as server, pytest.raises(errors.Refused) as caught:
        place.make(own, addresses.Address("127.0.0.1", server.getsockname()[1]), None)
    assert caught.value.reason == "AddressInUse"
    assert list(tmp_path.iterdir()) == []


def test_a_port_that_was_named_is_taken(own):
    port = place.free_port()
    where = place.make(own, addresses.Address("127.0.0.1", port), None)
    where.remove()
    assert where.api.port == port


def test_where_the_machine_has_no_memory_for_all_the_demo_has_its_own_if_sockets_fit(tmp_path, monkeypatch):
    monkeypatch.setattr(mounts, "in_memory", lambda path: path != tmp_path)
    short = pathlib.Path(tempfile.mkdtemp(prefix="hf-", dir="/tmp"))
    try:
        assert place._memory(short, shared=tmp_path) == short / "run"
    finally:
        shutil.rmtree(short)
    with pytest.raises(errors.Refused) as caught:
        place._memory(tmp_path / ("x" * 40), shared=tmp_path)
    assert caught.value.reason == "SocketPathTooLong"
    monkeypatch.setattr(mounts, "in_memory", lambda _path: False)
    assert place._memory(tmp_path, shared=tmp_path) is None
