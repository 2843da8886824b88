# SPDX-License-Identifier: Apache-2.0
"""Scripts and styles, as they stand in `static`: read once, and named by their digest. It makes none.

A path is looked up in a table of the files that were there at the start: no text of an address ever becomes the name of a file.
"""

from __future__ import annotations

import hashlib
import pathlib
from typing import Final

from handfast.console import html
from handfast.serving import answers

PREFIX: Final = "/static/"
_DIRECTORY: Final = pathlib.Path(__file__).parent / "static"
_TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml; charset=utf-8",
}


class Assets:
    """What there is."""

    def __init__(self, directory: pathlib.Path = _DIRECTORY) -> None:
        self._files = {
            path.name: (path.read_bytes(), _TYPES[path.suffix])
            for path in sorted(directory.iterdir())
            if path.suffix in _TYPES
        }

    def link(self, name: str) -> str:
        """The address of a file, with its digest."""
        digest = hashlib.sha256(self._files[name][0]).hexdigest()[:16]
        return f"{PREFIX}{name}?v={digest}"

    def answer(self, path: str) -> answers.Answer | None:
        """The file of an address; None: there is none."""
        found = self._files.get(path.removeprefix(PREFIX))
        return None if found is None else html.asset(*found)
