# SPDX-License-Identifier: Apache-2.0
"""Programs that a command line names: where they are. It starts none."""

from __future__ import annotations

import shutil

from handfast import errors


def find(word: str) -> str:
    """The path of the program that a shell would execute for this word."""
    path = shutil.which(word)
    if path is None:
        raise errors.Refused(
            f"there is no command {word!r} that can be executed",
            reason="CommandNotFound",
            hint="name a program that is in PATH, or write its whole path",
        )
    return path
