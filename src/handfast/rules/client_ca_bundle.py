# SPDX-License-Identifier: Apache-2.0
"""The ConfigMap that says whose client certificates the API server believes: where it is, and what is in it.

It does not say who may change it (`apiserver.admission.client_ca`), and it follows nothing (`apiserver.access.client_cas`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from handfast import errors
from handfast.api import jsonpath
from handfast.pki import bundles, pem

NAMESPACE: Final = "kube-system"
NAME: Final = "extension-apiserver-authentication"
KEY: Final = "client-ca-file"
# Every CA that was ever in the bundle, in a ConfigMap of our own beside it.
HISTORY: Final = "handfast-client-ca-history"
HISTORY_KEY: Final = "ca-bundle.crt"


def read(document: Mapping[str, Any]) -> bundles.TrustBundle:
    """The bundle in the ConfigMap; Refused, with the position of what is wrong, if it is not good in every part."""
    return bundles.TrustBundle.of(certificates(document, KEY))


def certificates(document: Mapping[str, Any], key: str) -> list[bytes]:
    """The certificates of one key of a ConfigMap, as DER; Refused if the key, or the PEM in it, is missing or broken."""
    text = jsonpath.at(document, "data", key)
    if not isinstance(text, str):
        raise errors.Refused(f"there is no key {key}", reason="NoBundle")
    return pem.certificates_from_pem(text.encode("utf-8", "replace"))
