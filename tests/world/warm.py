# SPDX-License-Identifier: Apache-2.0
"""Commands of `handfast` that end by themselves, without a start of Python for each: a process that has imported Handfast forks for every one.

A story asks many short questions, and of the processor time of each most went into imports (docs/decisions/0079). The process of a command is
its own: arguments, variables, directory, umask and streams are the caller's, and it ends as any other. It does not start what runs until it
is stopped, or is looked for by its command line.

1. One process per worker of pytest, made when it is first needed, and gone when the worker is.
2. It has one thread, because others would be missing after a fork; and it imports nothing that loads gRPC.
3. Each command has a connection, and a process that waits for it and tells how it ended: commands may run side by side.
4. Where a variable differs that is read when Python starts, the command is started as ever.
"""

from __future__ import annotations

import atexit
import functools
import gc
import importlib
import json
import os
import pathlib
import pkgutil
import runpy
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

import handfast

_AT_START = ("PYTHON", "LC_", "LANG", "TZ", "SSL_CERT_", "LD_")
# How long a process that was killed may take to go.
_ENDING = 60
_LOADS_GRPC = (
    *("handfast.wire", "handfast.mesh", "handfast.proxy", "handfast.store.etcd"),
    *(
        f"handfast.assembly.{name}"
        for name in ("destination", "identity", "injector", "mesh_accounts", "node", "proxy")
    ),
)


def run(arguments: Sequence[str], variables: Mapping[str, str], seconds: float) -> subprocess.CompletedProcess[str]:
    """`python -m handfast` with these arguments: what it wrote, and how it ended."""
    words = [sys.executable, "-m", "handfast", *arguments]
    # 4. as ever
    if _read_at_start(variables) != _read_at_start(os.environ):
        return subprocess.run(words, capture_output=True, text=True, timeout=seconds, env=dict(variables), check=False)
    with (
        os.fdopen(os.memfd_create("stdout"), "r+") as out,
        os.fdopen(os.memfd_create("stderr"), "r+") as err,
        socket.socket(socket.AF_UNIX) as link,
    ):
        link.connect(_server())
        _send(link, _order(arguments, variables), [0, out.fileno(), err.fileno()])
        link.settimeout(seconds)
        with link.makefile() as answers:
            pid = int(answers.readline())
            try:
                code = int(answers.readline())
            except TimeoutError:
                os.kill(pid, signal.SIGKILL)
                # Until it is gone, as `subprocess.run` waits.
                link.settimeout(_ENDING)
                link.recv(64)
                raise subprocess.TimeoutExpired(words, seconds, _written(out), _written(err)) from None
        return subprocess.CompletedProcess(words, code, _written(out), _written(err))


def _read_at_start(variables: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in variables.items() if name.startswith(_AT_START)}


def _written(stream: Any) -> str:
    stream.seek(0)
    return str(stream.read())


def _order(arguments: Sequence[str], variables: Mapping[str, str]) -> dict[str, Any]:
    status = pathlib.Path("/proc/self/status").read_text()
    umask = next(line for line in status.splitlines() if line.startswith("Umask:"))
    return {
        "arguments": list(arguments),
        "variables": dict(variables),
        "directory": str(pathlib.Path.cwd()),
        "umask": int(umask.split()[1], 8),
    }


@functools.cache
def _server() -> str:
    """The address of this worker's process (1)."""
    directory = tempfile.mkdtemp(prefix="handfast-warm-")
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.world.warm", f"{directory}/socket"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=pathlib.Path(__file__).parents[2],
    )
    assert process.stdin is not None
    assert process.stdout is not None

    def end(stdin: Any = process.stdin) -> None:
        stdin.close()
        process.wait()
        shutil.rmtree(directory, ignore_errors=True)

    atexit.register(end)
    assert process.stdout.readline() == b"ready\n", "there is no process for commands: see standard error"
    process.stdout.close()
    return f"{directory}/socket"


def _send(link: socket.socket, order: Mapping[str, Any], descriptors: list[int]) -> None:
    data = json.dumps(order).encode() + b"\n"
    sent = socket.send_fds(link, [data], descriptors)
    link.sendall(data[sent:])


def _receive(link: socket.socket) -> tuple[dict[str, Any], list[int]]:
    data, descriptors, *_ = socket.recv_fds(link, 1 << 20, 3)
    while not data.endswith(b"\n"):
        data += link.recv(1 << 20)
    order: dict[str, Any] = json.loads(data)
    return order, descriptors


def _serve(path: str) -> None:
    for module in pkgutil.walk_packages(handfast.__path__, "handfast."):
        if not module.name.startswith((*_LOADS_GRPC, "handfast.__main__")):
            importlib.import_module(module.name)
    # 2. it can be forked
    assert "grpc" not in sys.modules, "a module that it imports has come to load gRPC: it belongs into the list above"
    assert len([*pathlib.Path("/proc/self/task").iterdir()]) == 1
    gc.collect()
    gc.freeze()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen(100)
        os.write(1, b"ready\n")
        # Those that wait for commands are waited for by nobody.
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        while listener.fileno() in select.select([listener.fileno(), 0], [], [])[0]:
            link, _ = listener.accept()
            if os.fork() == 0:
                listener.close()
                _attend(link)
                return
            link.close()


def _attend(link: socket.socket) -> None:
    """Begin what is asked for (3), and tell how it ended. In the process of the command it returns when the command has ended."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    order, descriptors = _receive(link)
    pid = os.fork()
    if pid == 0:
        link.close()
        _become(order, descriptors)
        return
    link.sendall(f"{pid}\n".encode())
    _, status = os.waitpid(pid, 0)
    link.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())
    os._exit(0)


def _become(order: Mapping[str, Any], descriptors: Sequence[int]) -> None:
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.chdir(order["directory"])
    os.umask(order["umask"])
    os.environ.clear()
    os.environ.update(order["variables"])
    sys.argv[1:] = order["arguments"]
    try:
        runpy.run_module("handfast", run_name="__main__", alter_sys=True)
    except SystemExit as end:
        # To take a thousand modules apart would take as long as the command.
        atexit._run_exitfuncs()
        os._exit(int(end.code or 0))


if __name__ == "__main__":
    _serve(sys.argv[1])
