# SPDX-License-Identifier: Apache-2.0
"""The ConfigMap that says whose client certificates the API server believes: where it is, and what is in it.

It does not say who may change it (`apiserver.admission.client_ca`), and it follows nothing (`apiserver.access.client_cas`).

1. `client-ca-file` has the CAs that may sign for anyone. Other servers read it, too, and know of no limits.
2. `handfast-bootstrap-ca-file` has those of bootstrap credentials, which are good for that one identity. They lie apart, so that
   nobody who reads the first is told to believe them in full.
3. `handfast-client-ca-sources` is the record: which ConfigMaps gave which certificate of the first, by its SHA-256. What is not in
   it was put there by hand. Data are guarded; annotations are anyone's. It also has the condition of the sources.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from handfast import errors
from handfast.api import jsonpath
from handfast.pki import bundles, pem

NAMESPACE: Final = "kube-system"
NAME: Final = "extension-apiserver-authentication"
KEY: Final = "client-ca-file"
SCOPED_KEY: Final = "handfast-bootstrap-ca-file"
SOURCES_KEY: Final = "handfast-client-ca-sources"
# Every CA that was ever in the bundle, in a ConfigMap of our own beside it.
HISTORY: Final = "handfast-client-ca-history"
HISTORY_KEY: Final = "ca-bundle.crt"

_FINGERPRINT: Final = re.compile(r"[0-9a-f]{64}")
_SOURCE: Final = re.compile(r"[a-z0-9.-]+/[a-z0-9.-]+")
_UNREADABLE: Final = "UnreadableRecord"


class Condition(msgspec.Struct, frozen=True, rename="camel"):
    """How the sources are, as Kubernetes writes conditions."""

    type: str
    status: str
    reason: str
    message: str
    last_transition_time: str


class Record(msgspec.Struct, frozen=True, omit_defaults=True):
    """Which sources gave which certificate, and how the sources are (3)."""

    certificates: dict[str, tuple[str, ...]] = {}
    conditions: tuple[Condition, ...] = ()

    def without(self, *fingerprints: str) -> Record:
        """The same, saying nothing of these: they count as put in by hand."""
        left = {key: value for key, value in self.certificates.items() if key not in fingerprints}
        return msgspec.structs.replace(self, certificates=left)

    def text(self) -> str:
        """As it is stored: equal records have equal texts."""
        return msgspec.json.encode(self, order="sorted").decode()


_decoder = msgspec.json.Decoder(Record)


def read(document: Mapping[str, Any]) -> bundles.TrustBundle:
    """The bundle in the ConfigMap; Refused, with the position of what is wrong, if it is not good in every part."""
    return bundles.TrustBundle.of(certificates(document, KEY))


def certificates(document: Mapping[str, Any], key: str) -> list[bytes]:
    """The certificates of one key of a ConfigMap, as DER; Refused if the key, or the PEM in it, is missing or broken."""
    text = jsonpath.at(document, "data", key)
    if not isinstance(text, str):
        raise errors.Refused(f"there is no key {key}", reason="NoBundle")
    return pem.certificates_from_pem(text.encode("utf-8", "replace"))


def record(document: Mapping[str, Any]) -> Record:
    """The record in the ConfigMap, an empty one where there is none; Refused if it cannot be read."""
    text = jsonpath.at(document, "data", SOURCES_KEY)
    return Record() if text is None else parse_record(str(text))


def parse_record(text: str) -> Record:
    """A record as it is stored; Refused if it cannot be read."""
    try:
        parsed = _decoder.decode(text.encode("utf-8", "replace"))
    # The nesting of hostile JSON ends in a RecursionError.
    except (msgspec.DecodeError, RecursionError) as error:
        raise errors.Refused(f"the record of sources is not what it should be: {error}", reason=_UNREADABLE) from None
    for fingerprint, sources in parsed.certificates.items():
        if not _FINGERPRINT.fullmatch(fingerprint):
            raise errors.Refused("the record of sources has a key that is no SHA-256 in hex", reason=_UNREADABLE)
        if not sources or not all(_SOURCE.fullmatch(source) for source in sources):
            raise errors.Refused(
                f"the record of sources says of {fingerprint} what is no list of namespace/name", reason=_UNREADABLE
            )
    return parsed
