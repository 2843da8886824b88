# SPDX-License-Identifier: Apache-2.0
"""Paths for unix sockets, with real sockets at them."""

from __future__ import annotations

import pathlib
import socket

import pytest

from handfast import errors
from handfast.runtime import unix_sockets


def refusal(path: pathlib.Path) -> errors.Refused:
    with pytest.raises(errors.Refused) as refused:
        unix_sockets.require_free(path, "--socket")
    assert refused.value.message.startswith("--socket: ")
    return refused.value


def bound(path: pathlib.Path, *, listening: bool) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.bind(str(path))
    if listening:
        sock.listen(0)
    return sock


def test_a_free_path_is_left_alone(tmp_path):
    unix_sockets.require_free(tmp_path / "s", "--socket")
    assert list(tmp_path.iterdir()) == []


def test_a_path_that_is_too_long_is_refused():
    assert refusal(pathlib.Path("/tmp") / ("x" * 103)).reason == "SocketPathTooLong"
    assert refusal(pathlib.Path("/tmp/a\0b")).reason == "SocketPathTooLong"


def test_a_directory_that_is_missing_or_none_is_refused(tmp_path):
    assert refusal(tmp_path / "none" / "s").reason == "SocketDirectory"
    (tmp_path / "file").write_text("")
    (tmp_path / "file").chmod(0o777)
    assert refusal(tmp_path / "file" / "s").reason == "SocketDirectory"


def test_what_a_killed_process_left_is_removed(tmp_path):
    bound(tmp_path / "s", listening=True).close()
    unix_sockets.require_free(tmp_path / "s", "--socket")
    assert not (tmp_path / "s").exists()


def test_a_socket_that_is_served_stays_busy_or_not(tmp_path):
    with bound(tmp_path / "s", listening=True):
        assert refusal(tmp_path / "s").reason == "SocketTaken"
        # Nobody accepts, and the queue is full.
        assert refusal(tmp_path / "s").reason == "SocketTaken"
    assert (tmp_path / "s").is_socket()


def test_what_is_no_socket_stays(tmp_path):
    (tmp_path / "s").write_text("mine")
    assert refusal(tmp_path / "s").reason == "SocketTaken"
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    assert refusal(tmp_path / "link").reason == "SocketTaken"
    assert (tmp_path / "s").read_text() == "mine"


def test_what_cannot_be_removed_is_told(tmp_path, monkeypatch):
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    bound(tmp_path / "s", listening=False).close()
    monkeypatch.setattr(pathlib.Path, "unlink", refuse)
    told = refusal(tmp_path / "s")
    assert told.reason == "SocketTaken"
    assert "operation not permitted" in told.message
