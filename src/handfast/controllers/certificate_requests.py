# SPDX-License-Identifier: Apache-2.0
"""Certificate requests as the approver, the signer and the cleaner see them, from one watch for all three.

It decides nothing, and writes nothing on its own. Only requests that still need something are kept in memory, whole,
so that whoever is done with one can send it back with its version, without reading it again.

1. A request is open until it has a certificate, was denied or has failed.
2. What one of the three wrote counts at once, unless the watch was faster; what the watch then tells of the time before
   is passed over. Versions are compared for that; where they are no numbers, only the watch counts.
3. The request inside is parsed, and its signature verified, once for all three, for as long as its spec is the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec

from handfast.api import objects, resources
from handfast.client import api, partial, watch
from handfast.controllers import events, loop
from handfast.rules import kubelet_csr

API_VERSION = "certificates.k8s.io/v1"
KIND = "CertificateSigningRequest"

APPROVED, DENIED, FAILED = "Approved", "Denied", "Failed"
_ENDS = frozenset({DENIED, FAILED})


class Meta(partial.Meta, frozen=True, omit_defaults=True, gc=False):
    """… and what an update would take away if it left it out."""

    creation_timestamp: str | None = None
    generate_name: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    finalizers: list[str] | None = None
    owner_references: list[dict[str, Any]] | None = None


class Spec(msgspec.Struct, rename="camel", frozen=True, omit_defaults=True, gc=False):
    """All of a spec: it never changes, and goes back as it came. Lists, because rules read JSON, which has no tuples."""

    request: str = ""
    signer_name: str = ""
    expiration_seconds: int | None = None
    usages: list[str] | None = None
    username: str = ""
    uid: str = ""
    groups: list[str] | None = None
    extra: dict[str, list[str] | None] | None = None


class Condition(msgspec.Struct, rename="camel", frozen=True, omit_defaults=True, gc=False):
    """One condition, whole."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_update_time: str | None = None
    last_transition_time: str | None = None


class Status(msgspec.Struct, rename="camel", frozen=True, omit_defaults=True, gc=False):
    """What became of it."""

    conditions: list[Condition] | None = None
    certificate: str | None = None


class Request(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A CertificateSigningRequest."""

    metadata: Meta = Meta()
    spec: Spec = Spec()
    status: Status = Status()

    def has(self, kind: str) -> bool:
        """Whether there is a condition of this type; one without a status counts, as in Kubernetes."""
        return kind in self._holding()

    @property
    def is_open(self) -> bool:
        """1."""
        return not self.status.certificate and _ENDS.isdisjoint(self._holding())

    def _holding(self) -> set[str]:
        return {row.type for row in self.status.conditions or () if row.status in {"True", ""}}

    def document(self) -> objects.Document:
        """As the rules read it."""
        found: objects.Document = msgspec.to_builtins(self)
        return found

    def updated(self, *, added: Condition | None = None, certificate: str = "", without: str = "") -> Update:
        """As it is sent back: with one more condition, or with its certificate, and without conditions of one type."""
        kept = (row for row in self.status.conditions or () if row.type != without or not without)
        conditions = [*kept, *([added] if added is not None else ())]
        return Update(self.metadata, self.spec, Status(conditions, certificate or None))

    def regarding(self) -> events.Regarding:
        """It, as Events name it."""
        meta = self.metadata
        return events.Regarding(api_version=API_VERSION, kind=KIND, name=meta.name, uid=meta.uid)


class Update(msgspec.Struct, rename="camel", frozen=True, gc=False):
    """A request on its way back."""

    metadata: Meta
    spec: Spec
    status: Status
    api_version: str = API_VERSION
    kind: str = KIND


SOURCE = watch.Source(resource=resources.SIGNING_REQUESTS, view=Request)
_REQUESTS = msgspec.json.Decoder(Request)


async def write(client: api.Client, update: Update, subresource: str) -> Request:
    """Send it back; what came of it."""
    return await client.replace(
        resources.SIGNING_REQUESTS, update.metadata.name, update, _REQUESTS, subresource=subresource
    )


def condition(kind: str, reason: str, message: str, now_text: str) -> Condition:
    """A condition that holds from now on. Its times are set here, too: not every server would."""
    return Condition(kind, "True", reason, message, now_text, now_text)


class Requests:
    """The open requests, by name; `subscribe` to hear of every request that changes, open or not."""

    def __init__(self) -> None:
        self._open: dict[str, Request] = {}
        self._facts: dict[str, tuple[Spec, kubelet_csr.Facts]] = {}
        self._written: dict[str, int] = {}
        self._newest = 0
        self._told: list[Callable[[Request], None]] = []
        self._gone: list[Callable[[str], None]] = []
        self._unseen: set[str] | None = None
        self._synced = asyncio.Event()

    def __len__(self) -> int:
        return len(self._open)

    def get(self, name: str) -> Request | None:
        """The request, if it is open."""
        return self._open.get(name)

    def facts(self, item: Request) -> kubelet_csr.Facts:
        """What is decided by (3); errors.Refused when the request inside cannot be read."""
        known = self._facts.get(item.metadata.name)
        if known is not None and known[0] == item.spec:
            return known[1]
        facts = kubelet_csr.read(item.document())
        self._facts[item.metadata.name] = (item.spec, facts)
        return facts

    def subscribe(self, told: Callable[[Request], None], gone: Callable[[str], None] = lambda _: None) -> None:
        """Call `told` with every request that is new or changed, `gone` with the name of each that is deleted."""
        self._told.append(told)
        self._gone.append(gone)

    def wrote(self, item: Request) -> None:
        """One of us wrote a request, and this came back (2)."""
        version = _number(item.metadata.resource_version)
        if version > self._newest:
            self._written[item.metadata.name] = version
            self._take(item)

    def forget(self, name: str) -> None:
        """Somebody found that it is gone."""
        self._open.pop(name, None)
        self._facts.pop(name, None)
        self._written.pop(name, None)

    async def wait_synced(self) -> None:
        await self._synced.wait()

    # What the reflector calls.

    def begin(self) -> None:
        self._unseen = set(self._open)

    def put(self, item: Request) -> None:
        name, version = item.metadata.name, _number(item.metadata.resource_version)
        if self._unseen is not None:
            self._unseen.discard(name)
        self._newest = max(self._newest, version)
        # 2.
        written = self._written.get(name, 0)
        if version >= written:
            self._written.pop(name, None)
        if version > written or not version:
            self._take(item)

    def remove(self, item: partial.Viewed) -> None:
        self._deleted(item.metadata.name)

    def end(self) -> None:
        gone, self._unseen = self._unseen or (), None
        for name in gone:
            self._deleted(name)
        self._synced.set()

    def _take(self, item: Request) -> None:
        name = item.metadata.name
        if item.is_open:
            self._open[name] = item
        else:
            # 1.
            self._open.pop(name, None)
            self._facts.pop(name, None)
        for told in self._told:
            told(item)

    def _deleted(self, name: str) -> None:
        self.forget(name)
        for gone in self._gone:
            gone(name)


def _number(version: str) -> int:
    """A version as a number, nothing where it is none."""
    return int(version) if version.isdecimal() else 0


class Feed:
    """One `Requests` for all the controllers that are built for the same context."""

    def __init__(self) -> None:
        self._context: loop.Context | None = None
        self._requests = Requests()

    def of(self, context: loop.Context) -> Requests:
        if self._context is not context:
            self._context, self._requests = context, Requests()
            context.informers.follow(SOURCE, self._requests)
        return self._requests
