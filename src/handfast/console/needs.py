# SPDX-License-Identifier: Apache-2.0
"""What pages follow: one row for each source, with a view of the few fields that somebody shows. It follows nothing itself: `known` does.

1. Where names, labels and dates suffice, the server is asked for metadata alone.
2. A view has no field for a secret: what is not decoded cannot be shown, logged or sent by mistake. Of a bootstrap token's Secret the half that must stay
   secret is not in the view.
3. Pages that need the same source name the same row, so that it is followed once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

import msgspec

from handfast.api import handfast_kinds, kinds, metadata, objects, resources, signing_requests
from handfast.bootstrap import tokens
from handfast.client import api, partial, watch
from handfast.rules.nodes import liveness
from handfast.rules.tokens import failed_joins

V = TypeVar("V", bound=partial.Viewed)


class Meta(metadata.Meta, frozen=True, gc=False):
    """… and what pages say of any object."""

    creation_timestamp: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class Named(msgspec.Struct, frozen=True, gc=False):
    """An object of which its metadata is enough (1)."""

    metadata: Meta = Meta()

    def document(self) -> objects.Document:
        """As rules read documents."""
        document: objects.Document = msgspec.to_builtins(self)
        return document


class Whole(Named, frozen=True, gc=False):
    """An object with its spec and its status, as documents. For kinds of which there are few."""

    spec: dict[str, Any] | None = None
    status: dict[str, Any] | None = None


class LeaseSpec(msgspec.Struct, rename="camel", frozen=True, gc=False):
    """When a node was last seen."""

    renew_time: str | None = None
    lease_duration_seconds: int | None = None
    holder_identity: str | None = None


class Lease(Named, frozen=True, gc=False):
    """The Lease of a node."""

    spec: LeaseSpec = LeaseSpec()


class TokenData(msgspec.Struct, frozen=True, gc=False):
    """A token's Secret, in base64 as it is stored, without the half that is secret (2)."""

    token_id: str = msgspec.field(name=tokens.KEY_ID, default="")
    expiration: str = msgspec.field(name=tokens.KEY_EXPIRATION, default="")
    description: str = msgspec.field(name=tokens.KEY_DESCRIPTION, default="")
    groups: str = msgspec.field(name=tokens.KEY_GROUPS, default="")
    signing: str = msgspec.field(name=f"{tokens.USAGE_PREFIX}{tokens.SIGNING}", default="")
    authentication: str = msgspec.field(name=f"{tokens.USAGE_PREFIX}{tokens.AUTHENTICATION}", default="")


class Token(Named, frozen=True, gc=False):
    """A bootstrap token."""

    data: TokenData | None = None


class SegmentSpec(msgspec.Struct, frozen=True, gc=False):
    """Entries as they are stored, one line each."""

    sequence: int = 0
    previous: str = ""
    entries: tuple[str, ...] = ()
    sealed: bool = False
    hash: str = ""


class Segment(Named, frozen=True, gc=False):
    """A part of the issuance ledger."""

    spec: SegmentSpec = SegmentSpec()


class Involved(msgspec.Struct, rename="camel", frozen=True, gc=False):
    """Whom an Event is about."""

    kind: str = ""
    name: str = ""
    namespace: str = ""


class Event(Named, frozen=True, gc=False, rename="camel"):
    """An Event, as far as it is shown."""

    involved_object: Involved = Involved()
    reason: str = ""
    message: str = ""
    type: str = ""
    count: int | None = None
    first_timestamp: str | None = None
    last_timestamp: str | None = None


@dataclass(frozen=True, slots=True)
class Need(Generic[V]):
    """One source: its name, what people call it, and what is followed."""

    name: str
    title: str
    kind: kinds.Kind
    source: watch.Source[V]

    @property
    def namespace(self) -> str:
        """Where, if in one namespace alone."""
        return self.source.scope.namespace


def _need(
    name: str,
    title: str,
    kind: kinds.Kind,
    view: type[V],
    *,
    scope: api.Scope = api.EVERYTHING,
    metadata_only: bool = False,
    if_served: bool = False,
) -> Need[V]:
    source = watch.Source(resource=kind, view=view, scope=scope, metadata=metadata_only, if_served=if_served)
    return Need(name, title, kind, source)


NODES: Final = _need("nodes", "Nodes", resources.NODES, Named, metadata_only=True)
LEASES: Final = _need(
    "leases", "Leases of nodes", resources.LEASES, Lease, scope=api.Scope(namespace=liveness.NAMESPACE)
)
REQUESTS: Final = _need("requests", "certificate requests", resources.SIGNING_REQUESTS, signing_requests.Request)
TOKENS: Final = _need(
    "tokens",
    "bootstrap tokens",
    resources.SECRETS,
    Token,
    scope=api.Scope(namespace=tokens.NAMESPACE, field_selector=f"type={tokens.SECRET_TYPE}"),
)
LEDGER: Final = _need("ledger", "the issuance ledger", handfast_kinds.ISSUANCE_LOG, Segment, if_served=True)
REVOCATIONS: Final = _need("revocations", "Revocations", handfast_kinds.REVOCATION, Whole, if_served=True)
FAILED_JOINS: Final = _need(
    "failed-joins",
    "Events of failed joins",
    resources.EVENTS,
    Event,
    scope=api.Scope(namespace=tokens.NAMESPACE, field_selector=f"reason={failed_joins.REASON}"),
)
