# SPDX-License-Identifier: Apache-2.0
"""The contents of a file as Ignition has them: a URL, perhaps gzip, perhaps with a hash. It fetches nothing.

`data:` is read here, with or without `;base64`. Other schemes are legal in Ignition, and their contents are not in the configuration.

1. A data URL has a comma. What stands before it is a media type, parameters, and perhaps `base64` at its end.
2. The data is ASCII. A `%` has two hexadecimal digits after it; base64 has its padding, and no other characters.
3. Decoded, it is no larger than the limit of one file. Before gzip is unpacked, the larger size is not known: unpacking stops at the
   limit, and at the `Budget` of everything that is unpacked for one rendering.
4. gzip is whole, with its checksum, and has at most `MAX_MEMBERS` members.
5. The hash is of what is written to disk, so that it is compared after gzip is unpacked.
"""

from __future__ import annotations

import binascii
import hashlib
import urllib.parse
import zlib
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from handfast import errors

PREFIX: Final = "data:"
# The kinds of hashes, and how many hexadecimal digits they have.
HASHES: Final[Mapping[str, tuple[Callable[[bytes], Any], int]]] = {
    "sha256": (hashlib.sha256, 64),
    "sha512": (hashlib.sha512, 128),
}
GZIP: Final = "gzip"
# Real files have one. Each costs memory and time, however small it is.
MAX_MEMBERS: Final = 16
# Everything that one rendering unpacks: 0.05 s of a core, when it is all zeros.
UNPACKED_LIMIT: Final = 64 << 20
INVALID: Final = "IgnitionInvalid"

_BASE64: Final = ";base64"
# RFC 2396, section 2.3: the characters that stand for themselves.
_UNRESERVED: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.!~*'()"
# Each character by its class: hexadecimal digit, % or another one.
_CLASSES: Final = bytes(ord("h") if chr(byte) in "0123456789ABCDEFabcdef" else byte for byte in range(256))
_ESCAPE: Final = b"%hh"
_GZIP_WINDOW: Final = 31


class Verification(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """`sha256-<hex>` or `sha512-<hex>`."""

    hash: str | None = None


class Header(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What the client sends along when it fetches."""

    name: str
    value: str | None = None

    def __repr__(self) -> str:
        return f"Header({self.name!r})"


class Source(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Where contents come from. Contents and headers may be secrets, so that they are not printed."""

    compression: str | None = None
    http_headers: list[Header] | None = msgspec.field(name="httpHeaders", default=None)
    url: str | None = msgspec.field(name="source", default=None)
    verification: Verification | None = None

    def __repr__(self) -> str:
        scheme, colon, _ = (self.url or "").partition(":")
        return f"Source({scheme[:8]}{colon}…)"

    @property
    def hash(self) -> str | None:
        return self.verification.hash if self.verification else None

    @property
    def is_data(self) -> bool:
        return self.url is None or self.url.startswith(PREFIX)


class Budget:
    """How much may still be unpacked for one rendering."""

    def __init__(self, limit: int = UNPACKED_LIMIT) -> None:
        self.limit = limit
        self.left = limit


def encode(data: bytes) -> str:
    """`data:,` and the data, percent-encoded as OpenShift's server does it.

    A pass for each kind of byte that needs an escape: it takes a third of the time of `urllib.parse.quote`.
    """
    data_left = data.replace(b"%", b"%25")
    for byte in set(data.translate(None, _UNRESERVED + b"%")):
        data_left = data_left.replace(bytes((byte,)), b"%%%02X" % byte)
    return f"{PREFIX},{data_left.decode('ascii')}"


def decode(source: Source, limit: int, where: str, budget: Budget | None = None) -> bytes:
    """What the file is to hold. `where` names the file in errors."""
    data = b"" if source.url is None else _data(source.url, limit, where)
    # 4. gzip; an empty word is none
    if source.compression:
        data = _unpacked(data, limit, where, budget or Budget())
    # 5. the hash
    if source.hash is not None:
        verify(data, source.hash, where)
    return data


def check(source: Source, limit: int, where: str, budget: Budget) -> None:
    """The same without the contents, where nothing needs them: a twentieth of the time, for 4 kB of text with escapes."""
    url = source.url
    if url is None or source.compression or source.hash is not None or _BASE64 in url[:256]:
        decode(source, limit, where, budget)
        return
    head, comma, data = url.partition(",")
    _readable(head, comma, data, where)
    _within(len(data) - 2 * _escapes(data, where), limit, where)


def _data(url: str, limit: int, where: str) -> bytes:
    # 1. a data URL
    head, comma, text = url.partition(",")
    _readable(head, comma, text, where)
    # 2. in its encoding
    if head.endswith(_BASE64):
        try:
            # The strict mode, and not b64decode: that one matches a pattern first, and takes nearly twice as long.
            data = binascii.a2b_base64(_one_line(text), strict_mode=True)
        except binascii.Error as error:
            raise _refused(where, f"is no base64: {error}") from None
    else:
        _escapes(text, where)
        data = urllib.parse.unquote_to_bytes(text)
    # 3. within the limit
    _within(len(data), limit, where)
    return data


def _one_line(text: str) -> str:
    return "".join(text.split()) if "\n" in text else text


def _readable(head: str, comma: str, text: str, where: str) -> None:
    if not head.startswith(PREFIX):
        scheme = head.partition(":")[0]
        raise _refused(where, f'comes from "{scheme[:20]}:", and only {PREFIX} has its contents in the configuration')
    if not comma:
        raise _refused(where, "is a data URL without a comma: write data:, and the contents")
    if not text.isascii():
        raise _refused(where, "has characters that are not ASCII: escape them with %, or use base64")


def _escapes(text: str, where: str) -> int:
    """How many there are. Counted in classes of characters: twice as fast as a pattern with a look-ahead."""
    count = text.count("%")
    if count and text.encode("ascii").translate(_CLASSES).count(_ESCAPE) != count:
        raise _refused(where, "has a % without two hexadecimal digits after it")
    return count


def _within(size: int, limit: int, where: str) -> None:
    if size > limit:
        raise _refused(where, f"has {size:,} bytes: a file may have {limit:,}")


def _unpacked(data: bytes, limit: int, where: str, budget: Budget) -> bytes:
    parts: list[bytes] = []
    size = 0
    for _ in range(MAX_MEMBERS):
        allowed = min(limit, budget.left + size) - size
        inflater = zlib.decompressobj(_GZIP_WINDOW)
        try:
            part = inflater.decompress(data, allowed + 1)
        except zlib.error as error:
            raise _refused(where, f"is no gzip: {error}") from None
        size += len(part)
        budget.left -= len(part)
        if len(part) > allowed:
            raise _too_large(limit, where, budget, size)
        if not inflater.eof:
            raise _refused(where, "is gzip that ends too early")
        parts.append(part)
        data = inflater.unused_data
        if not data:
            return b"".join(parts)
    raise _refused(where, f"is gzip of more than {MAX_MEMBERS} members")


def _too_large(limit: int, where: str, budget: Budget, size: int) -> errors.Refused:
    if size > limit:
        return _refused(where, f"is unpacked larger than a file may be, which is {limit:,} bytes")
    return _refused(where, f"and those before it are unpacked larger than {budget.limit:,} bytes together")


def verify(data: bytes, text: str, where: str) -> None:
    """Refuse data that does not have the hash `text`."""
    kind, _, digits = text.partition("-")
    function, length = HASHES.get(kind, (None, 0))
    if function is None or len(digits) != length:
        allowed = " or ".join(f"{name}-<{count} hexadecimal digits>" for name, (_, count) in HASHES.items())
        raise _refused(where, f'has the verification.hash "{text[:80]}": it is {allowed}')
    if function(data).hexdigest() != digits.lower():
        raise _refused(where, "does not have the contents that its verification.hash is of")


def _refused(where: str, sentence: str) -> errors.Refused:
    return errors.Refused(f"{where} {sentence}", reason=INVALID)
