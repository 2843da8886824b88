# SPDX-License-Identifier: Apache-2.0
"""What opens the console of `handfast up`: a key in a file that only its owner reads, and addresses that are made with it.

1. `up` writes the key when it starts and removes it when it ends. Each start has another: addresses of the last one open nothing.
2. Whoever may read the file may open the console, and could use the administrator's kubeconfig beside it anyway.
3. An address is good for a minute and for one browser, so that nothing but a terminal is shown one unasked: logs are read later, by more people.
"""

from __future__ import annotations

import contextlib
import importlib.util
import pathlib
from collections.abc import Iterator
from typing import Final

from handfast import errors
from handfast.cli import invocation, output
from handfast.console import opening
from handfast.datadir import endpoints, layout
from handfast.runtime import clock, files

INSTALL: Final = "pip install 'handfast[console]'"
_LIBRARIES: Final = {"jinja2": "Jinja2", "segno": "segno"}
_MAX_BYTES: Final = 1024


def require_extra() -> None:
    """Return if pages can be made here, else refuse."""
    missing = [package for module, package in _LIBRARIES.items() if importlib.util.find_spec(module) is None]
    if missing:
        raise errors.Refused(
            f"the console needs {' and '.join(missing)}, which Handfast alone does not bring",
            reason="ConsoleExtraMissing",
            hint=f"install it with `{INSTALL}`; in a checkout of the source, `pip install -e '.[console]'`",
        )


@contextlib.contextmanager
def kept(place: layout.Layout) -> Iterator[None]:
    """A new key, for as long as the block runs (1)."""
    files.write_atomically(place.console_key, opening.new_key(), mode=0o600)
    try:
        yield
    finally:
        place.console_key.unlink(missing_ok=True)


def read(path: str) -> bytes:
    """The key in a file."""
    return files.read_private(pathlib.Path(path), limit=_MAX_BYTES)


def again(place: layout.Layout) -> str:
    """How another address is had, as a command."""
    return f"{invocation.program()} console --url --dir {output.quoted(str(place.root))}"


def address(place: layout.Layout) -> str:
    """An address that opens the console of the `up` of this directory, once, within a minute."""
    base = (endpoints.read(place.root) or {}).get("console")
    if not isinstance(base, str) or not place.console_key.exists():
        raise errors.Refused(
            f"no console of `handfast up` runs from {place.root}",
            reason="NoConsole",
            hint="start one with `handfast up --console`, or by itself with `handfast console`",
        )
    return opening.address(base, opening.new_code(read(str(place.console_key)), clock.SystemClock().now()))
