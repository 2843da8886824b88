# SPDX-License-Identifier: Apache-2.0
"""An operator as people write them with kopf, run by `kopf run`: it notes each thing that it handles. It proves nothing itself."""

from __future__ import annotations

import os
import pathlib
from typing import Any

import kopf

GROUP, VERSION, PLURAL = "tests.example.com", "v1", "dates"


def _note(*words: object) -> None:
    """One line in the file that `OPERATOR_NOTES` names, in one write."""
    line = " ".join(map(str, (os.environ["OPERATOR_NAME"], *words)))
    with pathlib.Path(os.environ["OPERATOR_NOTES"]).open("ab", buffering=0) as opened:
        opened.write(f"{line}\n".encode())


@kopf.on.startup()
def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
    # It is to come back at once when the server does, and to be quick about its end.
    settings.networking.error_backoffs = [0.1] * 100
    settings.watching.reconnect_backoff = 0.1
    settings.queueing.error_delays = [0.1] * 100
    settings.posting.enabled = True


@kopf.on.create(GROUP, VERSION, PLURAL)
def created(name: str, spec: Any, **_: Any) -> dict[str, Any]:
    _note("create", name, spec["size"])
    return {"size": spec["size"]}


@kopf.on.update(GROUP, VERSION, PLURAL, field="spec.size")
def updated(name: str, old: Any, new: Any, **_: Any) -> None:
    _note("update", name, old, new)


@kopf.on.delete(GROUP, VERSION, PLURAL)
def deleted(name: str, **_: Any) -> None:
    _note("delete", name)


@kopf.timer(GROUP, VERSION, PLURAL, interval=0.5)
def ticked(name: str, **_: Any) -> None:
    _note("tick", name)
