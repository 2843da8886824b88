# SPDX-License-Identifier: Apache-2.0
"""What a stored value looks like: a small header, then the object's JSON, sealed where the kind asks for it.

    byte 0      the form of the value (1)
    text, NUL   the group-version the object is stored as
    text, NUL   the id of the key that sealed the rest; empty: not sealed
    rest        the JSON document, without metadata.resourceVersion, as the form has it

The header is the same in every form, and `FORMS` is the list of them. A version may know a form that it must not write yet, because another server on
the same store could not read it: `apiserver.announcement` decides, and tells `Envelopes.write_as`.

The resource version is not stored: it is the revision of the write itself, known only after the write. So that it can be
put in without parsing, every document starts with apiVersion and kind, and `"metadata":{` follows at once.

It stores nothing: `storage.Storage.prepare` calls `wrap` before every write. Which kinds are sealed is `SEALED` in
`assembly.apiserver`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final, NamedTuple, Protocol

import msgspec

from handfast import errors
from handfast.rules import stored_forms

_METADATA = b'"metadata":{'
_encode = msgspec.json.Encoder().encode


class Sealer(Protocol):
    """What sealing needs of `pki.seal`."""

    def seal(self, plaintext: bytes, associated_data: bytes) -> tuple[str, bytes]: ...

    def unseal(self, key_id: str, sealed: bytes, associated_data: bytes) -> bytes: ...


class Form(Protocol):
    """How a document is written after the header, before it is sealed; `unpack` gives back what `pack` was given."""

    def pack(self, payload: bytes) -> bytes: ...

    def unpack(self, packed: bytes) -> bytes: ...


class Plain:
    """The document as it is."""

    def pack(self, payload: bytes) -> bytes:
        return payload

    def unpack(self, packed: bytes) -> bytes:
        return packed


# Every form that this version can read and write, by its number: without a gap, and none is ever given to another form.
# 2 is written as 1 is. In a store of it, entries of the ledger may name who made a token, which a version that knows 1 alone cannot read.
FORMS: Final[Mapping[int, Form]] = {1: Plain(), 2: Plain()}
NAMES_MAKERS: Final = 2


def known(forms: Mapping[int, Form]) -> stored_forms.Forms:
    """What a server with these forms announces: see `rules.stored_forms`."""
    return stored_forms.Forms(min(forms), max(forms))


KNOWN: Final = known(FORMS)


class EnvelopeBroken(errors.Refused):
    """A stored value that this version cannot read."""

    reason = "EnvelopeBroken"


class Header(NamedTuple):
    """What stands before the payload, and where that begins; `key_id` is empty for a value that is not sealed."""

    form: int
    api_version: str
    key_id: str
    end: int


def read_header(key: str, value: bytes, forms: Collection[int] = FORMS) -> Header:
    """The header of the value of `key`, without opening it."""
    if not value or value[0] not in forms:
        found = value[0] if value else "nothing"
        raise EnvelopeBroken(
            f"{key}: stored in format {found}, this version reads {', '.join(map(str, sorted(forms)))}"
        )
    try:
        first = value.index(b"\0", 1)
        second = value.index(b"\0", first + 1)
        return Header(value[0], value[1:first].decode(), value[first + 1 : second].decode(), second + 1)
    except ValueError:
        raise EnvelopeBroken(f"{key}: the stored value has no complete header") from None


class Envelopes:
    """Wraps and opens values; `sealed` names the key prefixes whose values are sealed. It begins with the oldest form."""

    __slots__ = ("_forms", "form", "sealed", "sealer")

    def __init__(
        self, sealer: Sealer | None = None, sealed: Collection[str] = (), forms: Mapping[int, Form] = FORMS
    ) -> None:
        self.sealer = sealer
        self.sealed = sealed
        self._forms = forms
        self.form = min(forms)

    @property
    def known(self) -> stored_forms.Forms:
        """The forms that can be read and written."""
        return known(self._forms)

    def write_as(self, form: int) -> None:
        """Write values in this form from now on; all that are known are read."""
        if form not in self._forms:
            raise errors.Misuse(f"form: {form} is not known; known are {self.known}")
        self.form = form

    def wrap(self, key: str, api_version: str, payload: bytes) -> bytes:
        key_id, form = b"", self.form
        payload = self._forms[form].pack(payload)
        if self.sealer is not None and self._is_sealed(key):
            # The key is authenticated with the value: a sealed value moved to another key does not open.
            name, payload = self.sealer.seal(payload, key.encode())
            key_id = name.encode()
        return b"%c%s\0%s\0%s" % (form, api_version.encode(), key_id, payload)

    def open(self, key: str, value: bytes) -> bytes:
        """The JSON payload of a stored value."""
        header = read_header(key, value, self._forms)
        form = self._forms[header.form]
        payload = value[header.end :]
        key_id = header.key_id
        if not key_id:
            if self.sealer is not None and self._is_sealed(key):
                # Whoever can write the database could otherwise put a value of their own in a sealed one's place.
                raise EnvelopeBroken(f"{key}: the stored value is not sealed, as values of its kind must be")
            return form.unpack(payload)
        if self.sealer is None:
            raise EnvelopeBroken(f"{key}: sealed with key {key_id!r}, and no sealing keys are configured")
        return form.unpack(self.sealer.unseal(key_id, payload, key.encode()))

    def key_id(self, key: str, value: bytes) -> str:
        """The id of the key that sealed a value; empty if it is not sealed."""
        return read_header(key, value, self._forms).key_id

    def _is_sealed(self, key: str) -> bool:
        return any(key.startswith(prefix) for prefix in self.sealed)


def read_document(key: str, value: bytes) -> dict[str, Any]:
    """The document of a value that is not sealed."""
    header = read_header(key, value)
    if header.key_id:
        raise EnvelopeBroken(f"{key}: the stored value is sealed")
    try:
        payload = FORMS[header.form].unpack(value[header.end :])
        document: dict[str, Any] = msgspec.json.decode(payload, type=dict[str, Any])
    except msgspec.MsgspecError:
        raise EnvelopeBroken(f"{key}: the stored value is no document") from None
    return document


def encode_document(document: Mapping[str, Any]) -> bytes:
    """The JSON to store: apiVersion, kind and metadata first, and no resource version."""
    metadata = {key: value for key, value in document["metadata"].items() if key != "resourceVersion"}
    rest = {key: value for key, value in document.items() if key not in _LEADING}
    return _encode({"apiVersion": document["apiVersion"], "kind": document["kind"], "metadata": metadata, **rest})


_LEADING = frozenset({"apiVersion", "kind", "metadata"})


def metadata_at(payload: bytes) -> int:
    """Where `"metadata":{` begins: nothing before it can contain that text, as apiVersion and kind hold no quotes."""
    return payload.index(_METADATA)


def without_resource_version(served: bytes, at: int) -> bytes:
    """The inverse of `with_resource_version`."""
    cut = at + len(_METADATA)
    return served[:cut] + served[served.index(b",", cut) + 1 :]


def with_resource_version(payload: bytes, at: int, resource_version: int) -> bytes:
    """The document as served: the resource version put in as the first field of the metadata.

    A comma can follow because stored metadata always has a name.
    """
    cut = at + len(_METADATA)
    return b'%s"resourceVersion":"%d",%s' % (payload[:cut], resource_version, payload[cut:])
