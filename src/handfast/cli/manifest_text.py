# SPDX-License-Identifier: Apache-2.0
"""One manifest as YAML, for people to read and for every reader to read alike. It reads nothing.

1. Texts of several lines, such as certificates, stand in lines of their own.
2. A text that some reader would take for something else has quotes. PyYAML's dumper leaves `y` and `1e3` bare: Go's reader makes a boolean and
   a number of them.
3. What was written is read again, and has to be the same.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from handfast import errors
from handfast.api.codec import yaml_document

if TYPE_CHECKING:
    import yaml


def dump(document: Any) -> str:
    """One document, with a line break at its end."""
    import yaml

    text = yaml.dump(document, Dumper=_dumper(), sort_keys=False, default_flow_style=False, width=1 << 20)
    # 3. read again
    if yaml_document.load(text.encode())[0] != document:
        raise errors.Misuse("a manifest would not be read as it was written")
    return str(text)


@functools.cache
def _dumper() -> type[yaml.SafeDumper]:
    import yaml

    class Dumper(yaml.SafeDumper):
        """The safe dumper, with another way to write texts. It never shortens a value to an alias."""

        def ignore_aliases(self, _data: Any) -> bool:
            return True

    def written(dumper: Dumper, text: str) -> yaml.ScalarNode:
        # 1. lines of their own, and 2. quotes
        style = "|" if "\n" in text else None if yaml_document.is_text(text) else "'"
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)

    Dumper.add_representer(str, written)
    return Dumper
