# SPDX-License-Identifier: Apache-2.0
"""Reads and writes PEM strictly: text with labelled base64 blocks in, DER out, and back.

It does not look inside a block: whether the DER is a certificate, a request or a key is for the module that asked.

What is accepted, in order of checking (`blocks`):

1. At most `MAX_BYTES` of input and `MAX_BLOCKS` blocks: a bundle is a few kilobytes, more is an attack or a mistake.
2. Boundary lines are exactly `-----BEGIN LABEL-----` and `-----END LABEL-----`, with the same label; CR LF line ends
   and blanks around a line are forgiven, since editors and YAML add them.
3. Between the boundaries only base64: no headers (a header means an encrypted legacy key), no empty lines.
4. The base64 is canonical: right padding, no stray bits. One value, one encoding.
5. Text outside blocks is refused, unless the caller allows comments. Only certificate bundles do: the bundles of the
   real world carry names and `openssl x509 -text` listings between the blocks. Elsewhere such text means that
   something was pasted badly, and guessing which part was meant is not this program's business.

Errors name the block by number and never quote it: it may be a key.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from handfast import errors

MAX_BYTES = 1 << 20
MAX_BLOCKS = 512

CERTIFICATE = "CERTIFICATE"
CERTIFICATE_REQUEST = "CERTIFICATE REQUEST"
PRIVATE_KEY = "PRIVATE KEY"
PUBLIC_KEY = "PUBLIC KEY"
EC_PRIVATE_KEY = "EC PRIVATE KEY"
RSA_PRIVATE_KEY = "RSA PRIVATE KEY"
EC_PARAMETERS = "EC PARAMETERS"
KEY_LABELS = (PRIVATE_KEY, EC_PRIVATE_KEY, RSA_PRIVATE_KEY)

_BEGIN = re.compile(rb"-----BEGIN ([A-Z0-9]+(?:[ -][A-Z0-9]+)*)-----")
_LINE = 64


@dataclass(frozen=True, slots=True)
class Block:
    """One PEM block; its content is left out of the repr because it may be a private key."""

    label: str
    der: bytes = field(repr=False)


def blocks(data: bytes, *, comments: bool = False) -> list[Block]:
    """Every block in order; an input without any is an empty list."""
    # 1. not too large
    if len(data) > MAX_BYTES:
        raise _refused(f"PEM input has {len(data)} bytes; at most {MAX_BYTES} are read")
    parsed: list[Block] = []
    lines = iter(data.rstrip().split(b"\n"))
    for raw in lines:
        line = raw.strip(b" \t\r")
        # 2. boundary lines, exactly as they should be
        begin = _BEGIN.fullmatch(line)
        if begin is not None:
            # 1. not too many
            if len(parsed) == MAX_BLOCKS:
                raise _refused(f"PEM input has more than {MAX_BLOCKS} blocks")
            parsed.append(_body(begin.group(1).decode("ascii"), lines, len(parsed) + 1))
        elif line.startswith(b"-----"):
            raise _refused(f"after PEM block {len(parsed)}: a boundary line that opens no block")
        elif line and not comments:
            # 5. no text outside the blocks
            raise _refused(f"after PEM block {len(parsed)}: text outside a block")
    return parsed


def _body(label: str, lines: Iterable[bytes], number: int) -> Block:
    where = f"PEM block {number} ({label})"
    end = f"-----END {label}-----".encode("ascii")
    text: list[bytes] = []
    for raw in lines:
        line = raw.strip(b" \t\r")
        if line == end:
            return Block(label, _decode(b"".join(text), where))
        # 2. no other boundary inside
        if line.startswith(b"-----"):
            raise _refused(f"{where}: another boundary line before its END line")
        # 3. nothing but base64 between the boundaries
        if b":" in line:
            raise _refused(f"{where}: headers are not accepted", hint="an encrypted key must be decrypted first")
        if not line:
            raise _refused(f"{where}: an empty line inside the block")
        text.append(line)
    raise _refused(f"{where}: no END line")


def _decode(text: bytes, where: str) -> bytes:
    # 4. in its one encoding
    try:
        der = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise _refused(f"{where}: not base64") from None
    if base64.b64encode(der) != text:
        raise _refused(f"{where}: base64 is not canonical")
    if not der:
        raise _refused(f"{where}: empty")
    return der


def one(data: bytes, label: str) -> bytes:
    """The DER of the only block there is, which must have this label; no text around it."""
    parsed = blocks(data)
    if len(parsed) != 1:
        raise _refused(f"expected exactly one PEM block of type {label}, found {len(parsed)}")
    if parsed[0].label != label:
        # The API's own words: people search for them.
        raise _refused(f"PEM block type must be {label}, found {parsed[0].label}")
    return parsed[0].der


def certificates_from_pem(data: bytes, *, ignoring: Sequence[str] = ()) -> list[bytes]:
    """The DER of every certificate, at least one, in the order given.

    `ignoring` names labels that may stand beside them: the kubelet keeps its key and its certificate in one file.
    """
    ders: list[bytes] = []
    for number, block in enumerate(blocks(data, comments=True), start=1):
        if block.label == CERTIFICATE:
            ders.append(block.der)
        elif block.label not in ignoring:
            raise _refused(f"PEM block {number}: expected CERTIFICATE, found {block.label}")
    if not ders:
        raise _refused("no CERTIFICATE block in the PEM input")
    return ders


def encode(label: str, der: bytes) -> bytes:
    """One block, 64 characters a line, with a final newline."""
    text = base64.b64encode(der).decode("ascii")
    lines = [text[start : start + _LINE] for start in range(0, len(text), _LINE)]
    return "\n".join([f"-----BEGIN {label}-----", *lines, f"-----END {label}-----", ""]).encode("ascii")


def certificates_to_pem(certificates: Iterable[bytes]) -> bytes:
    """The blocks one after the other, in the order given."""
    return b"".join(encode(CERTIFICATE, der) for der in certificates)


def _refused(message: str, hint: str | None = None) -> errors.Refused:
    return errors.Refused(message, reason="MalformedPEM", hint=hint)
