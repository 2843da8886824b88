# SPDX-License-Identifier: Apache-2.0
"""Looks at what a store or a backup holds, value by value: whether this server could serve it.

1. The key has the form of one: group, resource, and a name, perhaps with a namespace.
2. The envelope can be read, and is of a form that this version knows.
3. A sealed value opens with a key that is there, and at this place; a kind that must be sealed is.
4. The payload is a document that begins as `storage` writes it.
5. The document's name and namespace are those of the key, and its group is the key's.
6. Where the ledger is looked at, too: its chain is whole (`rules.ledger.verification`).

Where there are no keys at all, sealed values are counted and not opened. It does not validate documents by their schema, and
changes nothing.
"""

from __future__ import annotations

import collections
from collections.abc import Collection, Iterable
from typing import Final

import msgspec

from handfast import errors
from handfast.api import objects
from handfast.apiserver.state import envelope
from handfast.rules.ledger import segments
from handfast.rules.ledger import verification as chains
from handfast.store import protocol

# Findings beyond so many are counted only.
MOST_FINDINGS: Final = 1000
_LEDGER: Final = "handfast.dev/issuancelogs/"


class Finding(msgspec.Struct, frozen=True):
    """One thing that is wrong: with which key, its reason, and a sentence."""

    key: str
    reason: str
    sentence: str


class _Metadata(msgspec.Struct):
    name: str
    namespace: str = ""


class _Document(msgspec.Struct, rename="camel"):
    api_version: str
    kind: str
    metadata: _Metadata


_decode = msgspec.json.Decoder(_Document).decode


class Verification:
    """Takes entries, a page at a time, and counts; `findings` has what is wrong."""

    def __init__(self, sealer: envelope.Sealer | None, sealed: Collection[str], *, with_ledger: bool = False) -> None:
        self._envelopes = envelope.Envelopes(sealer, sealed)
        self._ledger: list[segments.Segment] | None = [] if with_ledger else None
        self.objects = 0
        self.wrong = 0
        self.resources: collections.Counter[str] = collections.Counter()
        # Key id -> how many values it sealed; and how many of all could not be tried, for want of any key.
        self.seal_keys: collections.Counter[str] = collections.Counter()
        self.unopened = 0
        # The keys of what is wrong, and of what could not be opened.
        self.unreadable: set[str] = set()
        self.findings: list[Finding] = []

    def look(self, entries: Iterable[protocol.Entry]) -> None:
        for entry in entries:
            self.objects += 1
            try:
                self._look(entry)
            except errors.Refused as refused:
                self._wrong(entry.key, refused.reason, refused.message)

    def finish(self) -> None:
        """After the last entry: the ledger's chain (6)."""
        if self._ledger is None:
            return
        for found in chains.verify_all(sorted(self._ledger, key=lambda segment: segment.sequence)):
            if found.reason != chains.SHORTENED:
                self._wrong(f"{_LEDGER}{found.segment}", found.reason, found.sentence)

    def _look(self, entry: protocol.Entry) -> None:
        # 1. the form of the key
        parts = entry.key.split("/", 2)
        if len(parts) < 3 or not all(parts):
            raise errors.Refused(f"{entry.key}: not the key of an object", reason="UnknownKey")
        group, plural, rest = parts
        self.resources[f"{group}/{plural}"] += 1
        # 2. an envelope that can be read
        header = envelope.read_header(entry.key, entry.value)
        if header.key_id:
            self.seal_keys[header.key_id] += 1
            if self._envelopes.sealer is None:
                self.unopened += 1
                self.unreadable.add(entry.key)
                return
        # 3. it opens here
        payload = self._envelopes.open(entry.key, entry.value)
        self._look_inside(entry.key, payload, header.api_version, objects.space_and_name(rest))

    def _look_inside(self, key: str, payload: bytes, api_version: str, place: tuple[str, str]) -> None:
        # 4. a document that begins as it must
        try:
            envelope.metadata_at(payload)
            document = _decode(payload)
        except (msgspec.MsgspecError, ValueError):
            raise errors.Refused(f"{key}: the value is no stored document", reason="DocumentBroken") from None
        # 5. the document of this key
        if (document.metadata.namespace, document.metadata.name) != place:
            named = "/".join(filter(None, (document.metadata.namespace, document.metadata.name)))
            raise errors.Refused(f"{key}: the document there is called {named}", reason="WrongPlace")
        group = key.partition("/")[0]
        if api_version.rpartition("/")[0] != ("" if group == "core" else group):
            raise errors.Refused(f"{key}: the document there is stored as {api_version}", reason="WrongPlace")
        if self._ledger is not None and key.startswith(_LEDGER):
            self._ledger.append(segments.read(msgspec.json.decode(payload)))

    def _wrong(self, key: str, reason: str, sentence: str) -> None:
        self.wrong += 1
        self.unreadable.add(key)
        if len(self.findings) < MOST_FINDINGS:
            self.findings.append(Finding(key, reason, sentence if sentence.startswith(key) else f"{key}: {sentence}"))
