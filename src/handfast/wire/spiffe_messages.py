# SPDX-License-Identifier: Apache-2.0
"""The messages of the SPIFFE Workload API, X.509 part, by their field numbers. It gives no meaning to them.

The service has no package. Of its JWT part nothing is here: gRPC itself answers that these methods are not implemented.
"""

from __future__ import annotations

from typing import Any, Final

from handfast.wire import descriptors
from handfast.wire.descriptors import many, octets, one

SERVICE: Final = "SpiffeWorkloadAPI"

_MESSAGES: Final[descriptors.Messages] = {
    "X509SVIDRequest": (),
    "X509SVIDResponse": (many("svids", 1, "X509SVID"), many("crl", 2, "bytes"), octets("federated_bundles", 3)),
    # Certificates are DER, one behind the other, the leaf first. The key is PKCS#8 in DER.
    "X509SVID": (
        one("spiffe_id", 1, "string"),
        one("x509_svid", 2, "bytes"),
        one("x509_svid_key", 3, "bytes"),
        one("bundle", 4, "bytes"),
        one("hint", 5, "string"),
    ),
    "X509BundlesRequest": (),
    # By the SPIFFE ID of a trust domain.
    "X509BundlesResponse": (many("crl", 1, "bytes"), octets("bundles", 2)),
}


def _pool() -> descriptors.Pool:
    pool = descriptors.Pool()
    pool.add("", _MESSAGES)
    return pool


_POOL: Final = _pool()

SvidRequest: Final[Any] = _POOL.message("X509SVIDRequest")
SvidResponse: Final[Any] = _POOL.message("X509SVIDResponse")
BundlesRequest: Final[Any] = _POOL.message("X509BundlesRequest")
BundlesResponse: Final[Any] = _POOL.message("X509BundlesResponse")
