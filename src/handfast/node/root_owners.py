# SPDX-License-Identifier: Apache-2.0
"""Who files below a root belong to: users and groups by the root's own /etc/passwd and /etc/group. It asks no directory service.

1. Without a user or a group a file belongs to whoever runs this process: on a real machine that is root.
2. A number is taken as it is. A name has to be in the file of the root, since the names of another machine say nothing here.
"""

from __future__ import annotations

import os
from typing import Final

from handfast import errors
from handfast.node import root_files

PASSWD: Final = "/etc/passwd"  # noqa: S105 - the name of a file
GROUP: Final = "/etc/group"
_MAX_BYTES: Final = 4 << 20


def own() -> tuple[int, int]:
    """Who runs this process."""
    return os.geteuid(), os.getegid()


class Owners:
    """The users and groups of one root; the files are read when a name is looked for."""

    def __init__(self, root: root_files.Root) -> None:
        self._root = root
        self._tables: dict[str, dict[str, int]] = {}

    def of(self, path: str, user: str | int | None, group: str | int | None) -> tuple[int, int]:
        """The numbers for a file at `path`."""
        mine = own()
        return self._number(path, user, PASSWD, mine[0]), self._number(path, group, GROUP, mine[1])

    def _number(self, path: str, value: str | int | None, file: str, default: int) -> int:
        if value is None:
            return default
        if isinstance(value, int):
            return value
        number = self._table(file).get(value)
        if number is None:
            raise errors.Refused(
                f"{path} is to belong to {value!r}, and {file} of this machine has no such name",
                reason="UnknownOwner",
                hint="name a user or group that the machine has, or its number",
            )
        return number

    def _table(self, file: str) -> dict[str, int]:
        if file not in self._tables:
            text = (self._root.read(file, limit=_MAX_BYTES) or b"").decode("utf-8", "replace")
            rows = (line.split(":") for line in text.splitlines())
            self._tables[file] = {row[0]: int(row[2]) for row in rows if len(row) > 2 and row[2].isdecimal()}
        return self._tables[file]
