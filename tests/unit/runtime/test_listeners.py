# SPDX-License-Identifier: Apache-2.0
"""Whose process listens, by the kernel's own table."""

import os
import socket
import subprocess
import sys

import pytest

from handfast.runtime import addresses, listeners

LISTEN = """
import os, socket, sys
os.setuid(65534)
sock = socket.socket(); sock.bind(("127.0.0.1", 0)); sock.listen()
print(sock.getsockname()[1], flush=True); sys.stdin.read()
"""


def test_who_listens_is_told_and_who_is_connected_is_not():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as client:
            assert listeners.owner(addresses.Address("127.0.0.1", port)) == os.geteuid()
            assert listeners.owner(addresses.Address("127.0.0.2", port)) is None
            assert listeners.owner(addresses.Address("127.0.0.1", client.getsockname()[1])) is None
    assert listeners.owner(addresses.Address("127.0.0.1", port)) is None


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "::ffff:127.0.0.1"])
def test_who_listens_on_every_address_gets_the_connections_too(host):
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        server = socket.create_server((host, 0), family=family, dualstack_ipv6=host == "::")
    except OSError:
        server = socket.socket(family)
        server.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        server.bind((host, 0))
        server.listen()
    with server:
        assert listeners.owner(addresses.Address("127.0.0.1", server.getsockname()[1])) == os.geteuid()


def test_the_nearest_listener_counts(monkeypatch, tmp_path):
    rows = [
        "head",
        "0: 0100007F:1F90 00000000:0000 0A 0:0 0:0 0 1000 0 1",
        "1: 00000000:1F90 0:0 0A 0:0 0:0 0 1001 0 2",
    ]
    (tmp_path / "tcp").write_text("\n".join(rows))
    monkeypatch.setattr(listeners, "_TABLES", (tmp_path / "tcp", tmp_path / "none"))
    if sys.byteorder == "little":
        assert listeners.owner(addresses.Address("127.0.0.1", 8080)) == 1000
        assert listeners.owner(addresses.Address("127.0.0.9", 8080)) == 1001


def test_another_user_is_told_from_this_one():
    if os.geteuid() != 0:
        pytest.skip("only root can be another user")
    command = [sys.executable, "-I", "-S", "-c", LISTEN]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        port = int(other.stdout.readline())
        assert listeners.owner(addresses.Address("127.0.0.1", port)) == 65534
        other.communicate()
