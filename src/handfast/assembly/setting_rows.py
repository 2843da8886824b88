# SPDX-License-Identifier: Apache-2.0
"""What a setting is: one key, how it is read, and the names of its flag and its variable. `config` has the list of all.

It resolves nothing: where a value comes from is decided in `config`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

HOST_PORT: Final = "HOST:PORT, as in 127.0.0.1:6443, [::1]:6443 or localhost:0"


@dataclass(frozen=True, slots=True)
class Setting:
    """One key: how it is read, what it is when nobody says, and how to write it."""

    key: str
    read: Callable[[Any], Any]
    default: Any
    allowed: str
    about: str

    @property
    def field(self) -> str:
        return re.sub(r"[A-Z]", lambda match: "_" + match[0].lower(), self.key)

    @property
    def variable(self) -> str:
        return "HANDFAST_" + self.field.upper()

    @property
    def flag(self) -> str:
        return "--" + self.field.replace("_", "-")
