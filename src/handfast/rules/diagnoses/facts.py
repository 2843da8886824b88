# SPDX-License-Identifier: Apache-2.0
"""What is known of a control plane when it is judged. It looks nothing up: the room `check` does.

What could not be read is an `Unread`, which no judge takes for good. What stands behind a door that is shut was not asked.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from handfast.api import objects
from handfast.pki import certificates
from handfast.rules import check, request_explanation
from handfast.rules.nodes import overview

NOT_ASKED: Final = check.Unread(
    "it was not asked, since the API server is not reached", check.UNKNOWN, "mend what is above it first"
)


Ahead = datetime.timedelta | check.Unread


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """How far one gets on the way to the API server. What comes after a step that failed was not asked."""

    server: str
    # The addresses of its name, the one that took a connection, the certificate that it showed, and the version that it says it has.
    addresses: Sequence[str] | check.Unread = NOT_ASKED
    connected: str | check.Unread = NOT_ASKED
    certificate: certificates.Certificate | check.Unread = NOT_ASKED
    version: str | check.Unread = NOT_ASKED
    # By how much the server's clock is ahead.
    ahead: Ahead = NOT_ASKED

    @property
    def arrived(self) -> bool:
        """Whether the API answers."""
        return not isinstance(self.version, check.Unread)


class Probe(msgspec.Struct, frozen=True):
    """What a role says of its health: where it was asked, whether it is ready, and its words."""

    where: str
    ready: bool
    said: str = ""


class Hook(msgspec.Struct, frozen=True):
    """A webhook: where it is, whether writes go on without it, and why it does not answer; None: it was not asked from here."""

    name: str
    where: str
    fails_open: bool
    trouble: str | None = ""


class Requests(msgspec.Struct, frozen=True):
    """Certificate requests, and why those that are not settled stand where they stand, by their names."""

    documents: Sequence[objects.Document] = ()
    explanations: Mapping[str, request_explanation.Explanation] = msgspec.field(default_factory=dict)
    # What the explanations lack, in sentences.
    unread: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Machine:
    """A Machine, and its state in a word or two."""

    title: str
    state: str


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """All of it."""

    now: datetime.datetime
    reach: Reach
    # Of the kubeconfig: the certificate that logs in, where it is one, and the CA by which the server is believed.
    credential: certificates.Certificate | None = None
    own_ca: bytes | None = None
    # The CA that signs here, where this machine has the server's data directory.
    signer_ca: certificates.Certificate | None = None
    # What /readyz?verbose says.
    ready: str | check.Unread = NOT_ASKED
    lease: check.Stored = NOT_ASKED
    # None: nobody here knows where the controllers have their health.
    controllers: Probe | None = None
    # What the other roles of this machine say, by name; None: nobody here knows where they are.
    roles: Mapping[str, Probe] | None = None
    # The certificates that roles of this machine serve with, by name.
    serving: Mapping[str, certificates.Certificate] = msgspec.field(default_factory=dict)
    # What controllers may not do and need, in words; and as whom they were asked for.
    missing_rights: Sequence[str] | check.Unread = NOT_ASKED
    controllers_user: str = ""
    cluster_info: check.Stored = NOT_ASKED
    # The code of the answer to somebody without a credential.
    stranger: int | check.Unread = NOT_ASKED
    tokens: Sequence[objects.Document] | check.Unread = NOT_ASKED
    client_cas: check.Stored = NOT_ASKED
    webhooks: Sequence[Hook] | check.Unread = NOT_ASKED
    requests: Requests | check.Unread = NOT_ASKED
    # A console follows nodes, and has judged them: `Standing`.
    nodes: overview.Objects | overview.Standing | check.Unread = NOT_ASKED
    # What of that the caller may not read, or this server does not have, in sentences.
    hidden: Sequence[str] = ()
    # Bindings that give something to all nodes.
    bindings: Sequence[objects.Document] | check.Unread = NOT_ASKED
    # None: this cluster has no such kind; no mesh is installed.
    machines: Sequence[Machine] | check.Unread | None = NOT_ASKED
    pools: Sequence[objects.Document] | check.Unread | None = NOT_ASKED
    mesh: Sequence[check.Check] | check.Unread | None = NOT_ASKED
    # The ConfigMaps that hold the CAs of bootstrap credentials.
    bootstrap: Sequence[objects.Document] | check.Unread = NOT_ASKED
