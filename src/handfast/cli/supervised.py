# SPDX-License-Identifier: Apache-2.0
"""The child's half of the tie to its supervisor: end when the supervisor ends, and tell it why when failing.

The tie is one end of a socket pair. Its end of file means that the supervisor is gone, for whatever reason. A thread
waits for that, since it must also work while the event loop is stuck or not yet there. Then what the supervisor wrote about
its children is removed (`orphaned`). This process still shares the directory's lock, so no other supervisor can have
written it. It does not log.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Final

import click

from handfast.cli import output

# Somewhat less than what a supervisor gives its children, so that nothing is left when a new one takes over.
GRACE: Final = 8.0

option = click.option("--supervised", "tie", type=int, hidden=True, help="Descriptor of the tie to a supervisor.")
sockets_option = click.option(
    "--socket",
    "sockets",
    multiple=True,
    hidden=True,
    help="NAME=DESCRIPTOR: a socket that listens already at the address of this setting.",
)


@contextlib.contextmanager
def tied(descriptor: int | None, orphaned: Callable[[], None] | None = None) -> Iterator[None]:
    """Within the block this process lives no longer than its supervisor; without a descriptor, nothing is done."""
    if descriptor is None:
        yield
        return
    tie = socket.socket(fileno=descriptor)
    tie.set_inheritable(False)
    threading.Thread(target=_follow, args=(tie, orphaned), name="supervisor-tie", daemon=True).start()
    try:
        yield
    except Exception as error:
        report(tie, error)
        raise


def _follow(tie: socket.socket, orphaned: Callable[[], None] | None = None) -> None:
    with contextlib.suppress(OSError):
        while tie.recv(64):
            pass
    with contextlib.suppress(OSError):
        if orphaned is not None:
            orphaned()
    os.kill(os.getpid(), signal.SIGTERM)
    # A process that is still there after this did not stop for SIGTERM.
    threading.Event().wait(GRACE)
    os._exit(output.Code.FAILED)


# Errors that may pass: whoever holds a port may let go of it.
_PASSING: Final = frozenset({"AddressInUse", "AddressNotAvailable", "InternalError", "Interrupted"})


def _permanent(error: BaseException, code: output.Code) -> bool:
    """Whether starting again cannot help. What an API server refuses may be granted a moment later, when it has caught up."""
    from handfast.api import status

    if isinstance(error, status.StatusError):
        return False
    return code is not output.Code.UNAVAILABLE and getattr(error, "reason", "InternalError") not in _PASSING


def report(tie: socket.socket, error: BaseException) -> None:
    """Leave the error, as it is shown, with the supervisor; it may be gone."""
    described, code = output.describe(error)
    lines = {**described, "permanent": _permanent(error, code)}
    with contextlib.suppress(OSError):
        tie.send(json.dumps(lines).encode())
