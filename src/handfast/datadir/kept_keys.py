# SPDX-License-Identifier: Apache-2.0
"""The files of a data directory without which a restored store is of no use: the seal keys, and everything in `pki`.

A backup holds them only where that was asked for. They are put back into a directory that does not have them.

1. Only names that `taken` gives are put back: `encryption.key`, or a plain name in `pki`. A backup is a file that somebody made.
2. A file that is there stays. If it is another one, nothing at all is put back.
3. Every file is private: it holds a key, or is told apart from one by nobody.

| who                      | holding              | tries                            | check | shown by (test_kept_keys.py)             |
| ------------------------ | -------------------- | -------------------------------- | ----- | ---------------------------------------- |
| whoever made the backup  | a file of their own  | writes outside of the directory  | 1     | test_only_plain_names_are_put_back       |
| …                        | …                    | replaces the CA that is in use   | 2     | test_another_key_is_never_replaced       |
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from handfast import errors
from handfast.datadir import layout
from handfast.runtime import files

_BYTES: Final = 1 << 20
_NAME: Final = re.compile(r"encryption\.key|pki(?:/[A-Za-z0-9][A-Za-z0-9._-]{0,127}){1,2}", re.ASCII)


def taken(place: layout.Layout) -> dict[str, bytes]:
    """The files by their names below the directory."""
    found = [place.encryption_key, *sorted(path for path in place.pki.rglob("*") if path.is_file())]
    names = {str(path.relative_to(place.root)): path for path in found if path.exists()}
    return {name: files.read(path, limit=_BYTES) for name, path in names.items() if _NAME.fullmatch(name)}


def put_back(place: layout.Layout, contents: Mapping[str, bytes]) -> list[str]:
    """Write what is missing; the names of what was written."""
    missing: list[str] = []
    for name, data in contents.items():
        # 1. plain names only
        if _NAME.fullmatch(name) is None:
            raise errors.Refused(
                f"the backup holds a file {name!r}, which no data directory has", reason="BackupDamaged"
            )
        # 2. what is there stays
        path = place.root / name
        if not path.exists():
            missing.append(name)
        elif files.read(path, limit=_BYTES) != data:
            raise errors.Refused(
                f"{path}: another one is there than in the backup; nothing was written",
                reason="KeyExists",
                hint="restore into a new directory, with --dir, or move the file away",
            )
    for name in missing:
        path = place.root / name
        files.create_directory(path.parent)
        # 3. private
        files.write_atomically(path, contents[name])
    return missing
