# SPDX-License-Identifier: Apache-2.0
"""Certificate requests, certificates, PEM and tokens, as bytes of a stranger's. The first byte picks which reader."""

from __future__ import annotations

from handfast.pki import certificates, jwt, pem, pins, requests
from tests.fuzz import promises


def _read(data: bytes) -> None:
    kind, content = data[:1], data[1:]
    match kind:
        case b"r":
            _request(requests.parse_der(content), content)
        case b"p":
            requests.parse(content)
        case b"c":
            certificates.read(content)
            pins.of_certificate(content)
        case b"b":
            ders = pem.certificates_from_pem(content)
            promises.require(
                pem.certificates_from_pem(pem.certificates_to_pem(ders)) == ders, "PEM is not read again as it was"
            )
        case b"j":
            jwt.read(content.decode("utf-8", "replace"))
        case _:
            pins.parse(content.decode("utf-8", "replace"))


def _request(request: requests.Request, der: bytes) -> None:
    promises.require(request.der == der, "another request was read")
    repr(request)
    promises.require(bool(request.public_key_spki), "a request without a key")


run = promises.refusing(_read)
