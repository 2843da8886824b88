# SPDX-License-Identifier: Apache-2.0
"""Where the demo happens: a directory of its own, one in memory for keys of workloads, a port, and the variables of its processes. It starts nothing.

1. Nothing is made anywhere else. Tools that would keep something at home are told to keep it here.
2. The directory is new, and its owner's alone.
3. The one in memory has a path that is short enough for sockets.
4. Variables that are settings of Handfast are left out: the demo is the same for everybody.
5. `handfast` is this program, whatever else PATH has.
"""

from __future__ import annotations

import os
import pathlib
import shlex
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from handfast import errors
from handfast.demo import material
from handfast.runtime import addresses, files, mounts

_PREFIX: Final = "hf-demo-"
_SHARED: Final = pathlib.Path("/dev/shm")  # noqa: S108 - a new directory is made there
_SETTINGS: Final = "HANDFAST_"
# Of the 107 octets of a socket's path, what Handfast puts after the directory takes 76 at most.
_LONGEST: Final = 31
_ANY: Final = addresses.Address("127.0.0.1", 0)


@dataclass(frozen=True, slots=True)
class Place:
    """What there is when the story begins."""

    home: pathlib.Path
    # Where workloads have their keys; None: nothing here is in memory.
    memory: pathlib.Path | None
    api: addresses.Address
    # The script of this program, as it is found on PATH; None: PATH has to be changed for it.
    programs: pathlib.Path | None

    def variables(self, own: Mapping[str, str]) -> dict[str, str]:
        """The environment of everything that is started."""
        # 4. the same for everybody
        kept = {name: value for name, value in own.items() if not name.startswith(_SETTINGS)}
        return kept | self._changed(own)

    def _changed(self, own: Mapping[str, str]) -> dict[str, str]:
        rows = {"KUBECONFIG": str(self.home / "data" / "admin.conf")}
        if self.memory is not None:
            rows["XDG_RUNTIME_DIR"] = str(self.memory)
        # 1. sockets of the control plane, too; 3. and they have a short path
        rows["TMPDIR"] = str(self.memory or self.home)
        if self.programs is not None:
            rows["PATH"] = f"{self.programs}:{own.get('PATH', os.defpath)}"
        return rows

    def opening(self, own: Mapping[str, str]) -> Iterator[str]:
        """What to type in another terminal, so that every line of the story works there."""
        yield f"cd {shlex.quote(str(self.home))}"
        for name, value in self._changed(own).items():
            text = f"{shlex.quote(str(self.programs))}:$PATH" if name == "PATH" else shlex.quote(value)
            yield f"export {name}={text}"
        if settings := sorted(name for name in own if name.startswith(_SETTINGS)):
            yield f"unset {' '.join(settings)}"
        yield "umask 077"

    def remove(self) -> list[str]:
        """Remove it all; what is still there after that."""
        for path in self.directories():
            shutil.rmtree(path, ignore_errors=True)
        return [str(path) for path in self.directories() if path.exists()]

    def directories(self) -> list[pathlib.Path]:
        return [path for path in (self.home, self.memory) if path is not None]


def make(own: Mapping[str, str], listen: addresses.Address | None, script: pathlib.Path | None) -> Place:
    """A new place; every reason why there cannot be one is told before anything was made, or after it was removed."""
    api = _free(listen)
    home = _directory(own)
    try:
        for name, text in material.FILES.items():
            files.write_atomically(home / name, text.encode())
        return Place(home, _memory(home), api, _programs(own, script, home))
    except BaseException:
        shutil.rmtree(home, ignore_errors=True)
        raise


def free_port() -> int:
    """A port of loopback that nobody has."""
    return _free(None).port


def _free(address: addresses.Address | None) -> addresses.Address:
    """The address, if nobody has it; without one, the kernel chooses the port."""
    wanted = address or _ANY
    with addresses.listen(wanted, "--listen") as sock:
        return addresses.bound(sock, wanted)


def _directory(own: Mapping[str, str]) -> pathlib.Path:
    # Python would take another one where the one that was named cannot be used.
    parent = own.get("TMPDIR") or tempfile.gettempdir()
    with files.otherwise("set TMPDIR to a directory that you may write to"):
        return _new_directory(pathlib.Path(parent)).absolute()


def _new_directory(parent: pathlib.Path) -> pathlib.Path:
    """A new one, its owner's alone (2)."""
    try:
        return pathlib.Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
    except OSError as error:
        raise files.explain(error, "make a directory in", parent) from error


def _memory(home: pathlib.Path, shared: pathlib.Path = _SHARED) -> pathlib.Path | None:
    """A directory in memory: in the machine's own, else below the demo's."""
    if mounts.in_memory(shared) and os.access(shared, os.W_OK | os.X_OK):
        return _new_directory(shared)
    if not mounts.in_memory(home):
        return None
    # 3. short enough for sockets
    if len(os.fsencode(home)) > _LONGEST - len("/run"):
        raise errors.Refused(
            f"{home} is too long a path: sockets below it need one of {_LONGEST - len('/run')} octets at most",
            reason="SocketPathTooLong",
            hint="set TMPDIR to a shorter one, as in TMPDIR=/tmp",
        )
    path = home / "run"
    path.mkdir(mode=0o700)
    return path


def _programs(own: Mapping[str, str], script: pathlib.Path | None, home: pathlib.Path) -> pathlib.Path | None:
    """The directory that PATH has to begin with (5); None: PATH is good as it is."""
    if script is None:
        return _wrapped(home)
    on_path = shutil.which("handfast", path=own.get("PATH", os.defpath))
    return None if on_path is not None and script.samefile(on_path) else script.parent


def _wrapped(home: pathlib.Path) -> pathlib.Path:
    """A script of our own, where none is installed."""
    import sys

    path = home / "bin" / "handfast"
    path.parent.mkdir(mode=0o700)
    files.write_atomically(path, f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -P -m handfast "$@"\n'.encode())
    path.chmod(0o700)
    return path.parent
