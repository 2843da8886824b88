# SPDX-License-Identifier: Apache-2.0
"""Live, ready, and why not: named checks, and the text Kubernetes' health endpoints answer with.

A check returns None when all is well, else what is wrong in a few words. A note is something wrong in spite of which a
check passes; it is shown where all checks are. It serves no HTTP itself.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

import msgspec

Check = Callable[[], str | None]
WITHHELD = "reason withheld"


class Health(msgspec.Struct):
    """The checks of one process. `ready` ones are asked by /readyz only; `live` ones by all endpoints."""

    live: dict[str, Check] = msgspec.field(default_factory=dict)
    ready: dict[str, Check] = msgspec.field(default_factory=dict)
    # By the name of a check.
    notes: dict[str, Check] = msgspec.field(default_factory=dict)

    def names(self, endpoint: str) -> dict[str, Check]:
        return {**self.live, **self.ready} if endpoint == "readyz" else self.live

    def report(
        self, endpoint: str, *, exclude: Collection[str] = (), verbose: bool = False, withhold: bool = False
    ) -> tuple[bool, str]:
        """Whether all is well, and the text to answer with; `withhold` keeps reasons from who did not log in."""
        lines = ["[+]ping ok"]
        well = True
        for name, check in self.names(endpoint).items():
            if name in exclude:
                lines.append(f"[+]{name} excluded: ok")
                continue
            problem = check()
            if problem is None:
                note = None if withhold or name not in self.notes else self.notes[name]()
                lines.append(f"[+]{name} ok" if note is None else f"[+]{name} ok, but {note}")
            else:
                well = False
                lines.append(f"[-]{name} failed: {WITHHELD if withhold else problem}")
        if well and not verbose:
            return True, "ok"
        lines.append(f"{endpoint} check {'passed' if well else 'failed'}")
        return well, "\n".join(lines) + "\n"

    def one(self, endpoint: str, name: str, *, withhold: bool = False) -> tuple[bool, str] | None:
        """A single check; None if there is none of that name."""
        if name == "ping":
            return True, "ok"
        check = self.names(endpoint).get(name)
        if check is None:
            return None
        problem = check()
        return (True, "ok") if problem is None else (False, f"{name} failed: {WITHHELD if withhold else problem}\n")
