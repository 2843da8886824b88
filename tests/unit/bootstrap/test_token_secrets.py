# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import base64
from typing import Any

import pytest

from handfast.bootstrap import token_secrets, tokens

TOKEN = tokens.Token("abcdef", "0123456789abcdef")


def document(data: dict[str, str | None] | None = None, **metadata: str) -> dict[str, Any]:
    made = tokens.secret_document(TOKEN, usages=tokens.USAGES)
    made["metadata"] |= metadata
    for key, value in (data or {}).items():
        made["data"].pop(key, None)
        if value is not None:
            made["data"][key] = base64.b64encode(value.encode()).decode()
    return made


def test_nothing_is_wrong_with_a_good_one():
    assert token_secrets.fault(document()) is None
    assert token_secrets.fault(document({"expiration": "2030-01-31T12:00:00Z"})) is None
    # Only whoever logs in has groups.
    assert token_secrets.fault(document({"auth-extra-groups": "x", "usage-bootstrap-authentication": None})) is None


@pytest.mark.parametrize(
    ("given", "reason", "says"),
    [
        (document(namespace="default"), "WrongNamespace", "the namespace kube-system"),
        ({"metadata": {}}, "WrongNamespace", "the namespace kube-system"),
        ({**document(), "type": "Opaque"}, "WrongSecretType", "type: must be bootstrap.kubernetes.io/token"),
        ({**document(), "data": None}, "NoSecretData", "data: must be a mapping"),
        ({**document(), "data": {"token-id": "?"}}, "BadSecretData", 'data["token-id"]: must be base64'),
        (document({"token-id": None}), "BadTokenID", "token-id: must be six lower-case letters or digits"),
        (document({"token-id": "ABCDEF"}), "BadTokenID", "token-id"),
        (document(name="bootstrap-token-other1"), "WrongSecretName", "the name must be bootstrap-token-, followed by"),
        (document(name="my-token"), "WrongSecretName", "followed by the token-id in the data"),
        (document({"token-secret": None}), "BadTokenSecret", "token-secret: must be sixteen"),
        (document({"token-secret": "short"}), "BadTokenSecret", "token-secret: must be sixteen"),
        (document({"expiration": "garbage"}), "BadTokenExpiration", "expiration: must be an RFC 3339 time"),
        (
            document({"auth-groups": "a", "auth-extra-groups": "b", "usage-bootstrap-authentication": None}),
            "BadBootstrapGroup",
            "must say the same",
        ),
        (document({"auth-extra-groups": "system:masters"}), "BadBootstrapGroup", "auth-extra-groups: must be groups"),
        (
            document({"auth-groups": "system:bootstrappers:a", "auth-extra-groups": "system:bootstrappers:b"}),
            "BadBootstrapGroup",
            "auth-groups, its old name, must say the same",
        ),
    ],
)
def test_the_first_fault_is_told(given: dict[str, Any], reason: str, says: str):
    found = token_secrets.fault(given)
    assert found is not None
    assert found.reason == reason
    assert says in found.sentence


@pytest.mark.parametrize(
    "key", ["token-id", "expiration", "auth-extra-groups", "usage-bootstrap-signing", "description"]
)
def test_no_sentence_shows_a_secret_under_the_wrong_key(key: str):
    for value in (TOKEN.text, TOKEN.secret):
        found = token_secrets.fault(document({key: value, "token-secret": None}))
        assert found is not None
        assert TOKEN.secret not in f"{found}"
        found = token_secrets.fault(document({key: value}))
        assert TOKEN.secret not in f"{found}"


@pytest.mark.parametrize(
    ("name", "meant"),
    [("bootstrap-token-abcdef", True), ("bootstrap-token-abc", False), ("abcdef", False), ("bootstrap-token-", False)],
)
def test_what_a_name_says(name: str, meant: bool):
    assert token_secrets.is_meant(name) is meant
