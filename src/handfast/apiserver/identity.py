# SPDX-License-Identifier: Apache-2.0
"""Who a request comes from, and the refusal that says nothing: what every authenticator gives. It authenticates nobody."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Protocol

import msgspec

from handfast.api import status
from handfast.rules import access, networks, user_names

AUTHENTICATED = user_names.AUTHENTICATED
UNAUTHENTICATED = user_names.UNAUTHENTICATED
# The keys of `User.extra` begin with it.
EXTRA = "authentication.kubernetes.io/"


class User(msgspec.Struct, frozen=True):
    """Who a request comes from, and how that was found out."""

    name: str
    groups: tuple[str, ...]
    uid: str = ""
    extra: Mapping[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    # How they were known; empty for the server's own parts, which nobody had to authenticate.
    method: str = ""
    # When the credential ends: nothing that it opened may outlive it.
    until: datetime.datetime | None = None
    # Of a client certificate: its serial number (lower-case hex) and the SHA-256 of its public key (SPKI, hex).
    serial: str = ""
    key_fingerprint: str = ""
    # Of a bearer token: the address that presented it.
    source: str = ""
    # Of a bootstrap token: who made it.
    token_maker: str = ""
    # What the credential rests on that neither uid nor extra tells: see `access.bonds`.
    bonds: tuple[str, ...] = ()

    def authenticated(self, source: str = "") -> User:
        """The same, in the group of everybody who is known, from `source`."""
        return msgspec.structs.replace(self, groups=(*self.groups, AUTHENTICATED), source=source)


ANONYMOUS = User(access.ANONYMOUS, (UNAUTHENTICATED,), method="anonymous")


class Bearer(msgspec.Struct, frozen=True):
    """Who showed a bootstrap credential that is refused, whether there is such a one, and whether the secret was the right one.

    `token` is the id of a bootstrap token, or the word for another credential (`rules.tokens.failed_joins`).
    """

    token: str
    known: bool = True
    holds_secret: bool = True


class TokenVerdict(msgspec.Struct, frozen=True):
    """What a good token says: its user (without `system:authenticated`), and the audiences it is good for."""

    user: User
    audiences: tuple[str, ...]
    # From where it is accepted; None: from anywhere. `authn` compares: only that knows the source of the request.
    sources: networks.Networks | None = None
    # Whether a bearer at another address is told so. That is safe where anyone can check the token without the server.
    tells_bearer: bool = False


class TokenAuthenticator(Protocol):
    """Judges one kind of bearer token."""

    def authenticate(self, token: str, audiences: tuple[str, ...], now: datetime.datetime) -> TokenVerdict | None:
        """The verdict. None: not a token of this kind, so the next is asked. Unauthorized: of this kind, and refused."""

    def remembers(self, token: str) -> bool:
        """Whether it was found good before, so that judging it again costs little."""


class Unauthorized(status.StatusError):
    """401 with nothing in it; `why` and `detail` are for the log and the metric."""

    def __init__(self, why: str, detail: str) -> None:
        super().__init__("Unauthorized", "Unauthorized")
        self.why = why
        self.detail = detail
        # Whether a TokenReview of this token says the detail.
        self.explained = False
        # A reason for the caller, in the header of the answer. Set only where the caller is known to hold the secret.
        self.public_reason = ""
        # Of a bootstrap credential: a join that failed. For the operator, and never for the caller.
        self.bearer: Bearer | None = None
