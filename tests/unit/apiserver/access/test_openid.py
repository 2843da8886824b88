# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json

import pytest

from handfast import errors
from handfast.apiserver.access import openid
from handfast.pki import jwt, keys

KEY = keys.generate()
KEYS = jwt.KeySet([KEY.public, keys.generate(keys.Kind.P384).public])
ISSUER = "https://kubernetes.default.svc"


def test_the_configuration():
    page = openid.OpenId(ISSUER, KEYS).pages["/.well-known/openid-configuration"]
    assert page.headers == {"Content-Type": "application/json", "Cache-Control": "public, max-age=3600"}
    assert json.loads(page.body) == {
        "issuer": ISSUER,
        "jwks_uri": "https://kubernetes.default.svc/openid/v1/jwks",
        "response_types_supported": ["id_token"],
        "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": ["ES256", "ES384"],
    }


def test_the_key_set():
    page = openid.OpenId(ISSUER, KEYS).pages["/openid/v1/jwks"]
    assert page.headers == {"Content-Type": "application/jwk-set+json", "Cache-Control": "public, max-age=3600"}
    found = json.loads(page.body)
    assert found == KEYS.jwks()
    assert found["keys"][0]["kid"] == jwt.key_id(KEY.public)
    # RFC 7518, 6.2.2 and 6.3.2: `d` and the primes are what must never be there.
    for key in found["keys"]:
        assert set(key) == {"use", "kid", "alg", "kty", "crv", "x", "y"}


def test_other_keys_are_told_from_then_on():
    pages = openid.OpenId(ISSUER, KEYS)
    other = jwt.KeySet([keys.generate(keys.Kind.P521).public])
    pages.publish(other)
    assert json.loads(pages.pages["/openid/v1/jwks"].body) == other.jwks()
    configuration = json.loads(pages.pages["/.well-known/openid-configuration"].body)
    assert (configuration["issuer"], configuration["id_token_signing_alg_values_supported"]) == (ISSUER, ["ES512"])


@pytest.mark.parametrize("issuer", [ISSUER, ISSUER + "/", "https://host:6443/clusters/one"])
def test_the_key_set_is_below_the_issuer(issuer: str):
    page = openid.OpenId(issuer, KEYS).pages[openid.CONFIGURATION_PATH]
    configuration = json.loads(page.body)
    assert configuration["issuer"] == issuer
    assert configuration["jwks_uri"] == issuer.rstrip("/") + "/openid/v1/jwks"


@pytest.mark.parametrize(
    ("issuer", "text"),
    [
        ("http://host", "the issuer must be a URL that begins with https://"),
        ("kubernetes/serviceaccount", "the issuer must be a URL that begins with https://"),
        ("", "the issuer must be a URL"),
        ("https://", "names a host"),
        ("https://[::1", "the issuer is not a URL"),
        ("https://host?a=b", "no query and no fragment"),
        ("https://host?", "no query and no fragment"),
        ("https://host#x", "no query and no fragment"),
    ],
)
def test_urls_that_nobody_can_rely_on(issuer: str, text: str):
    with pytest.raises(errors.Refused) as caught:
        openid.OpenId(issuer, KEYS)
    assert caught.value.reason == "BadIssuer"
    assert text in caught.value.message
