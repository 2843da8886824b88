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

    def authenticated(self, source: str = "") -> User:
        """The same, in the group of everybody who is known, from `source`."""
        return msgspec.structs.replace(self, groups=(*self.groups, AUTHENTICATED), source=source)


ANONYMOUS = User(access.ANONYMOUS, (UNAUTHENTICATED,), method="anonymous")


class TokenVerdict(msgspec.Struct, frozen=True):
    """What a good token says: the user (without `system:authenticated`), and for which of the audiences it is good."""

    user: User
    audiences: tuple[str, ...]
    # From where it is accepted; None: from anywhere. The judge does not know from where it came; `authn` does.
    sources: networks.Networks | None = None
    # Whether the bearer may be told that it is the address: who can check the token without the server may know.
    told_elsewhere: bool = False


class TokenAuthenticator(Protocol):
    """Judges one kind of bearer token."""

    def authenticate(self, token: str, audiences: tuple[str, ...], now: datetime.datetime) -> TokenVerdict | None:
        """The verdict; None: this is not my kind of token (ask the next); raises Unauthorized: mine, and refused."""

    def remembers(self, token: str) -> bool:
        """Whether it was found good before, so that judging it again costs little."""


class Unauthorized(status.StatusError):
    """401 with nothing in it; `why` and `detail` are for the log and the metric."""

    def __init__(self, why: str, detail: str) -> None:
        super().__init__("Unauthorized", "Unauthorized")
        self.why = why
        self.detail = detail
        # Whether whoever asks about somebody else's token (TokenReview) may be told the detail.
        self.explained = False
        # A word that the caller may know, because only who holds the secret gets this far; it goes into a header.
        self.told = ""
