# SPDX-License-Identifier: Apache-2.0
"""Opens the file of a backup, so that it can be read from its beginning as often as needed. `store.backup_file` reads it."""

from __future__ import annotations

import contextlib
import os
import pathlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from handfast import errors
from handfast.runtime import files

if TYPE_CHECKING:
    from handfast.store import backup_file


@contextlib.contextmanager
def opened(path: pathlib.Path) -> Iterator[Callable[[], backup_file.Reader]]:
    """Gives a function that begins to read the file anew. The file stays the same one, whatever its name comes to mean."""
    from handfast.store import backup_file

    try:
        # Without O_NONBLOCK the open of a named pipe would wait for a writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise files.explain(error, "read", path) from error
    with os.fdopen(descriptor, "rb") as file:
        if not file.seekable():
            raise errors.Refused(
                f"{path}: a backup is read twice, and this cannot be",
                reason="NotAFile",
                hint="write it to a file first",
            )

        def begin() -> backup_file.Reader:
            file.seek(0)
            return backup_file.Reader(file, f"{path}: ")

        try:
            yield begin
        except OSError as error:
            raise files.explain(error, "read", path) from error
