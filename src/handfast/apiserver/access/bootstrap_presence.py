# SPDX-License-Identifier: Apache-2.0
"""Who is here with a bootstrap credential: the open connections on which one was shown, by its kind.

It is for the metrics, so that whoever revokes a credential can say what that cuts. It lets nobody in and ends nothing.

1. A connection counts from the first request with a bootstrap credential until it closes. Once its credential is revoked, it is
   still open, and every request on it is refused.
2. The masters' credential is a certificate, the one that all workers share a token in a Secret. A token that was requested is a
   machine's own, or was made by hand.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from handfast.apiserver import identity
from handfast.apiserver.access import service_account_tokens
from handfast.rules.machines import bootstrapper

MASTER: Final = "master"
WORKER: Final = "worker"
REQUESTED: Final = "requested"
KINDS: Final = (MASTER, WORKER, REQUESTED)
_METHODS: Final = {"x509": MASTER, service_account_tokens.LEGACY_METHOD: WORKER}


class Closing(Protocol):
    """A connection that tells of its end."""

    closed_hooks: set[Callable[[], None]]


def kind_of(user: identity.User) -> str | None:
    """Which bootstrap credential a user has shown; None: none (2)."""
    if user.name != bootstrapper.USER:
        return None
    return _METHODS.get(user.method, REQUESTED)


class BootstrapPresence:
    """The connections, by kind."""

    def __init__(self) -> None:
        self._here: dict[str, set[int]] = {kind: set() for kind in KINDS}

    def note(self, connection: Closing, user: identity.User) -> None:
        """A request of this user came in on this connection (1)."""
        kind = kind_of(user)
        if kind is None or id(connection) in self._here[kind]:
            return
        self._here[kind].add(id(connection))
        connection.closed_hooks.add(lambda: self._here[kind].discard(id(connection)))

    def connections(self, kind: str) -> int:
        return len(self._here[kind])
