# SPDX-License-Identifier: Apache-2.0
"""Public-key pins of a CA, `sha256:<hex>` as kubeadm prints them: computed, parsed and matched.

It does not fetch the CA: the joining node does, and trusts it only after `require_pinned`.

1. A pin is `format:hex-value`; the format is `sha256` in any case.
2. The value is 32 octets in hex, in any case; it is kept in lower case.
3. One of the offered certificates has a pinned key: the SHA-256 of its SubjectPublicKeyInfo is compared with every pin
   in constant time. No certificate, or no pin, matches nothing.

The errors are kubeadm's own texts, since people search for them.

| who                 | holding                | tries                         | check | shown by (test_pins.py)      |
| ------------------- | ---------------------- | ----------------------------- | ----- | ---------------------------- |
| a man in the middle | a CA of his own        | answers the first fetch       | 3     | test_another_ca_is_refused   |
| a man in the middle | the CA's names         | the same names on another key | 3     | test_same_names_other_key    |
| a careless user     | a shortened or cut pin | joins with half a pin         | 2     | test_parse_refuses           |
| a typist            | an empty list of pins  | joins without any             | 3     | test_nothing_matches_nothing |
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Sequence

import msgspec

from handfast import errors
from handfast.pki import certificates

_FORMAT = "sha256"
_HEX = re.compile(r"[0-9a-fA-F]*")


class Pin(msgspec.Struct, frozen=True):
    """The SHA-256 of a public key, in lower-case hex."""

    sha256: str

    def __str__(self) -> str:
        return f"{_FORMAT}:{self.sha256}"


def of_public_key(spki: bytes) -> Pin:
    """The pin of a SubjectPublicKeyInfo."""
    return Pin(hashlib.sha256(spki).hexdigest())


def of_certificate(der: bytes) -> Pin:
    """The pin of a certificate's key."""
    return of_public_key(certificates.read(der).public_key.spki)


def parse(text: str) -> Pin:
    """A pin from its text (1, 2)."""
    # 1. `format:hex-value`, and the format is sha256
    form, colon, value = text.partition(":")
    if not colon:
        raise _invalid('invalid hash, expected "format:hex-value". Known format(s) are: sha256')
    if form.lower() != _FORMAT:
        raise _invalid(f'unknown hash format "{form}"')
    # 2. 32 octets in hex; kubeadm counts them first, and looks at the digits after
    if len(value) // 2 != hashlib.sha256().digest_size:
        raise _invalid(f"expected a 32 byte SHA-256 hash, found {len(value) // 2} bytes")
    if len(value) % 2 or _HEX.fullmatch(value) is None:
        raise _invalid(f"invalid hash {text!r}: its value is not hexadecimal")
    return Pin(value.lower())


def require_pinned(ders: Sequence[bytes], pins: Sequence[Pin]) -> None:
    """Return if any of the certificates has a pinned key (3), else refuse and list the pins of those offered."""
    offered = [of_certificate(der) for der in ders]
    # 3. every pair is compared, so that the time does not tell which one matched
    matches = [hmac.compare_digest(pin.sha256, wanted.sha256) for pin in offered for wanted in pins]
    if not any(matches):
        listed = ":".join(str(pin) for pin in offered)
        raise errors.Refused(
            f'cluster CA found in cluster-info ConfigMap is invalid: none of the public keys "{listed}" are pinned',
            reason="NotPinned",
        )


def _invalid(message: str) -> errors.Refused:
    return errors.Refused(
        f"invalid discovery token CA certificate hash: {message}",
        reason="BadPin",
        hint="a pin is sha256: and 64 hexadecimal digits, as `handfast token create --print-join-command` prints it",
    )
