# SPDX-License-Identifier: Apache-2.0
"""How many files this process may have open. It opens none."""

from __future__ import annotations

import resource


def allow_many() -> None:
    """As many as the hard limit allows. Connections are files, and the usual soft limit is 1024 of them."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def allowed() -> int:
    """How many files this process may have open."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]
