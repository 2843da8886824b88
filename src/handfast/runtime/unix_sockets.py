# SPDX-License-Identifier: Apache-2.0
"""Where a unix socket is to be that users name: whether it can be there. It makes no socket, and says nothing of who may open one.

1. The path is short enough for the kernel, and has no NUL [SocketPathTooLong].
2. Its directory is there, and may be written to [SocketDirectory].
3. Nothing is there but a socket that nobody serves, which is removed: a process that was killed left it. What somebody serves, and what is no
   socket, stays [SocketTaken].

Not checked: who else may write to the directory. Whoever may can put a socket of his own there.
"""

from __future__ import annotations

import os
import pathlib
import socket
import stat
from typing import Final

from handfast import errors

# The kernel's 108 octets, with the last one for the end.
_LONGEST: Final = 107


def require_free(path: pathlib.Path, flag: str) -> None:
    """Return if a socket can be made at `path`; `flag` is the option that errors name."""
    octets = os.fsencode(path)
    # 1. short enough
    if len(octets) > _LONGEST or b"\0" in octets:
        raise errors.Refused(
            f"{flag}: the path has {len(octets)} octets, and a socket's has {_LONGEST} at most",
            reason="SocketPathTooLong",
            hint="choose a shorter directory, as in /run/spiffe",
        )
    # 2. a directory to write to
    if not os.access(path.parent, os.W_OK | os.X_OK) or not path.parent.is_dir():
        raise errors.Refused(
            f"{flag}: {path.parent} is no directory that this user may write to",
            reason="SocketDirectory",
            hint="make it, or name another",
        )
    # 3. free
    try:
        _remove_left_over(path)
    except FileNotFoundError:
        return
    except OSError as error:
        raise _taken(path, flag, f"cannot be removed: {(error.strerror or 'it failed').lower()}") from error
    if os.path.lexists(path):
        raise _taken(path, flag, "is served, or is no socket")


def _remove_left_over(path: pathlib.Path) -> None:
    if not stat.S_ISSOCK(path.lstat().st_mode):
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(os.fspath(path))
        except ConnectionRefusedError:
            # Nobody listens.
            path.unlink()
        except OSError:
            # Somebody who is busy, or another's: not ours to remove.
            return


def _taken(path: pathlib.Path, flag: str, why: str) -> errors.Refused:
    return errors.Refused(
        f"{flag}: {path} is there already, and {why}", reason="SocketTaken", hint="name another path, or remove it"
    )
