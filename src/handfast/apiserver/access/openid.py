# SPDX-License-Identifier: Apache-2.0
"""OpenID discovery: how others learn to verify the tokens of our service accounts. It verifies nothing itself.

1. The issuer is an https URL without query or fragment: a relying party appends the path of the configuration to it and
   compares it letter by letter with `iss` (OpenID Connect Discovery 1.0, sections 3 and 4).
2. The key set is below the issuer, so at an https URL: whoever could change it on the way could sign tokens.
3. Only public keys are told.

Bodies are made once for each set of keys. Who may read them was decided before, by authorisation.
"""

from __future__ import annotations

import urllib.parse
from collections.abc import Mapping

import msgspec

from handfast import errors
from handfast.pki import jwt

CONFIGURATION_PATH = "/.well-known/openid-configuration"
_CACHE_CONTROL = "public, max-age=3600"

_encode = msgspec.json.Encoder().encode


class Page(msgspec.Struct, frozen=True):
    """One answer to GET."""

    body: bytes
    headers: Mapping[str, str]


class OpenId:
    """The two pages, by path."""

    def __init__(self, issuer: str, keys: jwt.KeySet) -> None:
        # 1. an https URL without query or fragment
        parts = _https(issuer)
        if parts.query or parts.fragment or "?" in issuer or "#" in issuer:
            raise _bad_url(f"the issuer must have no query and no fragment: {issuer!r}")
        configuration = {
            "issuer": issuer,
            # 2. below the issuer, so at an https URL
            "jwks_uri": issuer.rstrip("/") + jwt.JWKS_PATH,
            "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"],
        }
        self._configuration = configuration
        self.pages: Mapping[str, Page] = {}
        self.publish(keys)

    def publish(self, keys: jwt.KeySet) -> None:
        """Tell these keys from now on."""
        configuration = {**self._configuration, "id_token_signing_alg_values_supported": keys.algorithms}
        self.pages = {
            CONFIGURATION_PATH: _page(configuration, "application/json"),
            # 3. only the public keys
            jwt.JWKS_PATH: _page(keys.jwks(), "application/jwk-set+json"),
        }


def _page(document: Mapping[str, object], content_type: str) -> Page:
    return Page(_encode(document), {"Content-Type": content_type, "Cache-Control": _CACHE_CONTROL})


def _https(url: str) -> urllib.parse.SplitResult:
    try:
        parts = urllib.parse.urlsplit(url)
    except ValueError:
        raise _bad_url(f"the issuer is not a URL: {url!r}") from None
    if parts.scheme != "https" or not parts.hostname:
        raise _bad_url(f"the issuer must be a URL that begins with https:// and names a host, not {url!r}")
    return parts


def _bad_url(message: str) -> errors.Refused:
    return errors.Refused(message, reason="BadIssuer", hint="use a URL such as https://kubernetes.default.svc")
