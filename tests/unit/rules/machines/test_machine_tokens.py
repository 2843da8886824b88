# SPDX-License-Identifier: Apache-2.0
"""A token for one machine: the Secret it is bound to, and what is read back of that."""

from __future__ import annotations

import json

import pytest

from handfast import errors
from handfast.api import objects
from handfast.pki import jwt, keys
from handfast.rules.machines import bootstrapper, inventory, machine_tokens

MACHINE = inventory.Machine(group=inventory.OPENSHIFT, namespace="fleet", name="w1", uid="u-1")


def token(**claims: object) -> str:
    return jwt.Signer(keys.generate()).sign(json.dumps(claims).encode())


def test_the_secret_says_which_machine_it_is_for_and_holds_no_token():
    document = machine_tokens.secret(MACHINE)
    assert objects.metadata(document)["name"] == "node-bootstrapper-w1"
    assert objects.metadata(document)["namespace"] == bootstrapper.NAMESPACE
    assert "data" not in document
    assert "stringData" not in document
    assert machine_tokens.read(document) == machine_tokens.Credential("node-bootstrapper-w1", "fleet/w1", "u-1", "")


def test_a_name_that_no_secret_can_have_is_refused():
    with pytest.raises(errors.Refused, match="no Secret can be called") as refused:
        machine_tokens.secret(inventory.Machine(group=inventory.OPENSHIFT, namespace="fleet", name="w" * 250))
    assert refused.value.reason == "BadMachineName"


@pytest.mark.parametrize("document", [None, {}, {"metadata": {"name": bootstrapper.TOKEN_SECRET}}])
def test_a_secret_that_names_no_machine_is_none_of_ours(document: dict[str, object] | None):
    assert machine_tokens.read(document) is None


def test_the_token_is_bound_to_that_very_secret():
    spec = machine_tokens.token_request("node-bootstrapper-w1", "u-2", 3600)["spec"]
    assert spec["boundObjectRef"] == {
        "apiVersion": "v1",
        "kind": "Secret",
        "name": "node-bootstrapper-w1",
        "uid": "u-2",
    }
    assert spec["expirationSeconds"] == 3600


def test_the_id_of_a_token_is_as_a_request_has_it():
    assert machine_tokens.id_of(token(jti="abc")) == "JTI=abc"


@pytest.mark.parametrize("text", [token(), token(jti=7), token(jti=""), "no token"])
def test_a_token_without_an_id_is_refused(text: str):
    with pytest.raises(errors.Refused, match="without an id") as refused:
        machine_tokens.id_of(text)
    assert refused.value.reason == "TokenWithoutId"
