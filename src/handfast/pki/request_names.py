# SPDX-License-Identifier: Apache-2.0
"""The name of a node's certificate request: a hash of key, subject and usages, so that asking again finds the same one.

It does not look at requests: whether one that already has this name is the same request is for the caller to compare.

The form is the kubelet's, `node-csr-` and SHA-512/256 in base64url without padding. Hashed are the SubjectPublicKeyInfo,
the common name, each organization and each usage in the order given; each in base64url followed by `|`, a character
outside that alphabet, so that no two lists of parts give one stream.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence

from cryptography.hazmat.primitives import hashes

from handfast.pki import keys, names

PREFIX = "node-csr-"


def csr_name(public_key: keys.PublicKey, subject: names.Subject, usages: Sequence[str]) -> str:
    """The name; `usages` in the kubelet's order: digital signature, client auth, then key encipherment if at all."""
    digest = hashes.Hash(hashes.SHA512_256())
    texts = (subject.common_name, *subject.organizations, *usages)
    for part in (public_key.spki, *(text.encode() for text in texts)):
        digest.update(_base64url(part) + b"|")
    return PREFIX + _base64url(digest.finalize()).decode("ascii")


def _base64url(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")
