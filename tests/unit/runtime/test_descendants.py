# SPDX-License-Identifier: Apache-2.0
"""Descendants by the kernel's tables: children and theirs, their sockets, and none that has ended."""

from __future__ import annotations

import socket
import subprocess

from handfast.runtime import descendants, listeners


def test_children_of_children_are_found_and_those_that_have_ended_are_not():
    with subprocess.Popen(["sh", "-c", "sleep 100 & echo $!; wait"], stdout=subprocess.PIPE, text=True) as shell:
        assert shell.stdout is not None
        grandchild = int(shell.stdout.readline())
        rows = descendants.alive()
        assert rows[grandchild] == "sleep 100"
        assert shell.pid in rows
        subprocess.run(["kill", str(grandchild)], check=True)
    assert not {shell.pid, grandchild} & descendants.alive().keys()


def test_the_sockets_of_a_process_are_known_by_the_kernels_numbers():
    program = "import socket, sys; s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1], flush=True); sys.stdin.read()"
    with subprocess.Popen(
        ["python3", "-I", "-S", "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        port = int(server.stdout.readline())
        held = descendants.sockets({server.pid: ""})
        rows = {address.port for inode, address in listeners.addresses_by_inode().items() if inode in held}
        assert rows == {port}
        with socket.create_server(("127.0.0.1", 0)) as own:
            assert own.getsockname()[1] not in rows
        server.communicate()


def test_processes_that_are_gone_hold_nothing():
    with subprocess.Popen(["true"]) as gone:
        gone.wait()
    assert descendants.sockets({gone.pid: ""}) == set()
