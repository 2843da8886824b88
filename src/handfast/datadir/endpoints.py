# SPDX-License-Identifier: Apache-2.0
"""`endpoints.json`: where a running control plane listens, and its processes, for other programs on this machine.

It opens no socket: see `runtime.addresses`.

The file names processes that run. It is written when a child has started or ended. `up` removes it when it ends, its
children remove it when `up` was killed, and the next `up` removes it when all of them were killed. After a power cut, for
instance, the file is still there, but nobody holds the lock of the directory: by that a reader can tell.
"""

from __future__ import annotations

import json
import pathlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from handfast import errors
from handfast.runtime import files

FILE_NAME = "endpoints.json"
_MAX_BYTES = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoints:
    """What a running control plane tells other programs on this machine."""

    apiserver: str
    controllers_admin: str
    # Where the others answer, by name: the machine-config server and the services of the mesh, each with its health. What speaks gRPC is
    # HOST:PORT, everything else a URL.
    services: Mapping[str, str] = field(default_factory=dict)
    supervisor: int
    pids: Mapping[str, int] = field(default_factory=dict)

    def document(self) -> dict[str, object]:
        return {
            "apiserver": self.apiserver,
            "controllersAdmin": self.controllers_admin,
            **self.services,
            "pids": {"supervisor": self.supervisor, **self.pids},
        }


def write(directory: pathlib.Path, endpoints: Endpoints) -> None:
    files.write_atomically(
        directory / FILE_NAME, (json.dumps(endpoints.document(), indent=2) + "\n").encode(), mode=0o600
    )


def read(directory: pathlib.Path) -> dict[str, Any] | None:
    """What the file says; None where there is none, or it cannot be read."""
    try:
        document = json.loads(files.read(directory / FILE_NAME, limit=_MAX_BYTES))
    except (errors.HandfastError, ValueError):
        return None
    return document if isinstance(document, dict) else None


def remove(directory: pathlib.Path) -> None:
    """Say that nothing listens any more."""
    (directory / FILE_NAME).unlink(missing_ok=True)
