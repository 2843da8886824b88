# SPDX-License-Identifier: Apache-2.0
"""How to call this program again from the shell that started it. It starts nothing.

1. The script is the one that was started, or for `python -m handfast` the one that is installed beside that Python.
2. Where a shell finds that same script on PATH, its name is enough.
3. Else it is named by its path, from the current directory where it lies below that.
4. Without any script, the module is named to its Python.
"""

from __future__ import annotations

import pathlib
import shlex
import shutil
import sys

NAME = "handfast"


def program() -> str:
    """`handfast`, or what to type instead of it here; quoted for a shell."""
    path = script()
    # 4. no script is installed
    if path is None:
        return f"{shlex.quote(sys.executable)} -m {NAME}"
    # 2. a shell finds it
    on_path = shutil.which(NAME)
    if on_path is not None and path.samefile(on_path):
        return NAME
    # 3. by its path
    here = pathlib.Path.cwd()
    return shlex.quote(str(path.relative_to(here) if path.is_relative_to(here) else path))


def here(command: str) -> str:
    """A command line that begins with `handfast`, as it works in this shell."""
    return program() + command.removeprefix(NAME)


def script() -> pathlib.Path | None:
    """The script of this program (1), by its absolute path."""
    beside = pathlib.Path(sys.executable).with_name(NAME)
    for path in (pathlib.Path(sys.argv[0]), beside):
        if path.name == NAME and path.is_file():
            return path.absolute()
    return None
