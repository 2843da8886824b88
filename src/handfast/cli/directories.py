# SPDX-License-Identifier: Apache-2.0
"""The flag --dir, alone: commands that only talk to an API need no other setting, and start without reading them.

What lies in the directory is in `datadir.layout`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

_F = TypeVar("_F", bound=Callable[..., Any])

DEFAULT: Final = "./handfast-data"


def option(default: str) -> Callable[[_F], _F]:
    """Adds --dir; the command gets a string as `directory`."""
    return click.option(
        "--dir",
        "directory",
        envvar="HANDFAST_DIR",
        default=default,
        show_default=True,
        show_envvar=True,
        type=click.Path(),
        help="The data directory.",
    )
