# SPDX-License-Identifier: Apache-2.0
"""Where a store is in an etcd: the URL that names it, and the keys that it has there. It calls nothing.

    etcd://HOST:PORT[,HOST:PORT…]/PREFIX

    /PREFIX/objects/KEY     the entries
    /PREFIX/store/…         what the store says of itself: format, identity, epoch, floor, fence, notes

Bytes of UTF-8 sort as code points do, so that etcd's order is the contract's.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from handfast.runtime import addresses

EXAMPLE: Final = "etcd://10.0.0.1:2379,10.0.0.2:2379,10.0.0.3:2379/handfast"
SCHEME: Final = "etcd:"
_PORT: Final = 2379
_PREFIX: Final = re.compile(r"[A-Za-z0-9._-]+(?:/[A-Za-z0-9._-]+)*")
_LONGEST_PREFIX: Final = 256


@dataclass(frozen=True, slots=True)
class Place:
    """The endpoints of an etcd, and the prefix of all keys of one store in it."""

    endpoints: tuple[addresses.Address, ...]
    prefix: str

    @property
    def root(self) -> bytes:
        return f"/{self.prefix}/".encode()

    @property
    def root_end(self) -> bytes:
        return after_all(self.root)

    @property
    def objects(self) -> bytes:
        return self.root + b"objects/"

    def key(self, key: str) -> bytes:
        return self.objects + key.encode()

    def own(self, name: str) -> bytes:
        return self.root + b"store/" + name.encode()

    def text(self, key: bytes) -> str | None:
        """The key of an entry; None for a key of the store itself. UnicodeDecodeError for one that somebody else has put there."""
        return key[len(self.objects) :].decode() if key.startswith(self.objects) else None

    def __str__(self) -> str:
        return f"etcd://{','.join(map(str, self.endpoints))}/{self.prefix}"


def parse(text: str) -> Place:
    """The place that a URL names; ValueError with words that follow the value in a sentence."""
    rest = text.removeprefix("etcd://")
    if rest == text:
        raise ValueError(f"is no URL of an etcd, as in {EXAMPLE}")
    # Before anything is taken apart: a password may have any sign in it, and must not be taken for a prefix and quoted.
    if "@" in rest:
        raise ValueError(
            f"has a login in it; give --etcd-username and --etcd-password-file, and the URL as in {EXAMPLE}"
        )
    if "?" in rest or "#" in rest:
        raise ValueError(f"has a query or a fragment; a URL of an etcd is as in {EXAMPLE}")
    hosts, slash, prefix = rest.partition("/")
    prefix = prefix.strip("/")
    if not slash or not prefix:
        raise ValueError(f"has no prefix for the keys, as in {EXAMPLE}")
    if not _PREFIX.fullmatch(prefix) or len(prefix) > _LONGEST_PREFIX:
        raise ValueError(
            f"has the prefix {prefix[:80]!r}; allowed are letters, digits, '.', '_', '-' and '/', as in {EXAMPLE}"
        )
    return Place(tuple(_endpoint(host) for host in hosts.split(",")), prefix)


def _endpoint(text: str) -> addresses.Address:
    if not text.partition(":")[0]:
        raise ValueError(f"has an endpoint without a host; endpoints are as in {EXAMPLE}")
    has_port = re.search(r":[0-9]+$", text) is not None
    try:
        return addresses.parse(text if has_port else f"{text}:{_PORT}")
    except ValueError as error:
        raise ValueError(f"has the endpoint {text!r}, which {error}; endpoints are as in {EXAMPLE}") from None


def after_all(prefix: bytes) -> bytes:
    """The end of the range of all keys with a prefix, as etcd wants it: the least key that is greater than all of them."""
    stem = prefix.rstrip(b"\xff")
    return stem[:-1] + bytes([stem[-1] + 1]) if stem else b"\0"
