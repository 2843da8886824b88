# SPDX-License-Identifier: Apache-2.0
"""Seals stored values with AES-256-GCM, so that a copy of the store without the key file tells nothing.

It does not read key files: it takes the file's text, and bytes. Nor does it decide which values are sealed: those under the prefixes
of `assembly.apiserver.SEALED`, by `apiserver.state.envelope`.

1. The text has one key per line, `id:base64`, at least one; no comments, no empty lines but the end of the last one.
2. An id is 1 to 32 of `a-z 0-9 -`, starting and ending with a letter or digit, and occurs once.
3. A key is 32 octets in canonical base64, and no key occurs under two ids.
4. The first key is the active one: it seals. All of them unseal, so that old values outlive a change of key.
5. A sealed value is a random nonce of 96 bits, then ciphertext and tag. The key id and the caller's associated data
   (the registry key) are authenticated with it, so that a value only opens where it was put.

Random nonces of 96 bits are safe for 2³² values under one key; change the key before that.

| who              | holding                   | tries                          | check     | shown by (test_seal.py)  |
| ---------------- | ------------------------- | ------------------------------ | --------- | ------------------------ |
| a backup thief   | the store's file          | reads secrets                  | AES-256   | test_nothing_shows       |
| a disk writer    | write access to the store | flips bits of a secret         | 5 (tag)   | test_every_bit_counts    |
| a disk writer    | two sealed values         | puts one under the other's key | 5         | test_bound_to_its_place  |
| a disk writer    | a sealed value            | relabels its key id            | 5         | test_bound_to_its_key_id |
| a reader of logs | logs and tracebacks       | finds a key in a repr          | redaction | test_keys_never_print    |
"""

from __future__ import annotations

import base64
import binascii
import re
import secrets
from collections.abc import Mapping
from typing import NoReturn

from cryptography import exceptions
from cryptography.hazmat.primitives.ciphers import aead

from handfast import errors

KEY_BYTES = 32
NONCE_BYTES = 12
_TAG_BYTES = 16

_ID = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,30}[a-z0-9])?")
_DOMAIN = b"handfast seal v1\x00"


class Sealer:
    """Keys by id, one of them active. It never prints or pickles its keys."""

    __slots__ = ("_ciphers", "active")

    def __init__(self, keys: Mapping[str, bytes], active: str) -> None:
        for name, key in keys.items():
            # 2. well-formed ids
            _require_id(name, "key id")
            # 3. 32 octets, and no key under two ids
            if len(key) != KEY_BYTES:
                raise _bad(f"seal key {name}: {len(key)} bytes; a key has {KEY_BYTES}")
        if len(set(keys.values())) != len(keys):
            raise _bad("a seal key occurs under two ids")
        # 4. one of them is active
        if active not in keys:
            raise _bad(f"the active seal key {active!r} is not among the keys: {', '.join(sorted(keys)) or 'none'}")
        self.active = active
        self._ciphers = {name: aead.AESGCM(key) for name, key in keys.items()}

    def __repr__(self) -> str:
        return f"<Sealer active={self.active} keys={sorted(self._ciphers)}>"

    def __reduce__(self) -> NoReturn:
        raise errors.Misuse("a sealer is not pickled or copied: its keys stay where they are")

    @classmethod
    def from_text(cls, text: str) -> Sealer:
        """From the text of a key file; the first key is the active one (4)."""
        keys = parse_keys(text)
        return cls(keys, next(iter(keys)))

    def seal(self, plaintext: bytes, associated_data: bytes) -> tuple[str, bytes]:
        """The active key's id and the sealed value (5)."""
        nonce = secrets.token_bytes(NONCE_BYTES)
        sealed = self._ciphers[self.active].encrypt(nonce, plaintext, _context(self.active, associated_data))
        return self.active, nonce + sealed

    def unseal(self, key_id: str, sealed: bytes, associated_data: bytes) -> bytes:
        """The plaintext, if key, value and place belong together; else refused without a hint which one was wrong."""
        cipher = self._ciphers.get(key_id)
        if cipher is None:
            raise errors.Refused(
                f"the value is sealed with key {key_id!r}, which is not in the key file",
                reason="UnknownSealKey",
                hint="keep old keys in the key file until no stored value uses them",
            )
        if len(sealed) < NONCE_BYTES + _TAG_BYTES:
            raise _broken()
        try:
            return cipher.decrypt(sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], _context(key_id, associated_data))
        except exceptions.InvalidTag:
            raise _broken() from None


def generate_line(key_id: str) -> str:
    """A new key as a line for the key file, newline included."""
    _require_id(key_id, "key id")
    return f"{key_id}:{base64.b64encode(secrets.token_bytes(KEY_BYTES)).decode('ascii')}\n"


def parse_keys(text: str) -> dict[str, bytes]:
    """The keys of a key file by id, in the order of the file (1 to 3); errors name the line, never its content."""
    # 1. one key per line
    lines = text.removesuffix("\n").split("\n")
    keys: dict[str, bytes] = {}
    for number, line in enumerate(lines, start=1):
        where = f"seal key file, line {number}"
        name, colon, encoded = line.partition(":")
        if not colon:
            raise _bad(f"{where}: expected id:base64")
        # 2. an id that is well formed and occurs once
        _require_id(name, where)
        if name in keys:
            raise _bad(f"{where}: key id {name} occurs twice")
        # 3. 32 octets in canonical base64
        keys[name] = _key(encoded, where)
    return keys


def _key(encoded: str, where: str) -> bytes:
    try:
        key = base64.b64decode(encoded.encode("ascii"), validate=True)
    except (binascii.Error, ValueError):
        raise _bad(f"{where}: the key is not base64") from None
    if base64.b64encode(key).decode("ascii") != encoded:
        raise _bad(f"{where}: the key's base64 is not canonical")
    if len(key) != KEY_BYTES:
        raise _bad(f"{where}: the key has {len(key)} bytes; it must have {KEY_BYTES}")
    return key


def _require_id(name: str, where: str) -> None:
    # The text is not quoted: on a line without its id, it could be the key.
    if _ID.fullmatch(name) is None:
        raise _bad(f"{where}: a key id is 1 to 32 of a-z, 0-9 and -, starting and ending with a letter or digit")


def _context(key_id: str, associated_data: bytes) -> bytes:
    # An id has no NUL, so the two parts cannot be shifted against each other.
    return _DOMAIN + key_id.encode("ascii") + b"\x00" + associated_data


def _broken() -> errors.Refused:
    return errors.Refused(
        "the sealed value does not open: it was changed, or moved from its place", reason="SealBroken"
    )


def _bad(message: str) -> errors.Refused:
    return errors.Refused(message, reason="BadSealKey")
