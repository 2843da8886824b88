# SPDX-License-Identifier: Apache-2.0
"""What pages follow has no place for a secret: not as data, and not in what `kubectl apply` writes beside it."""

from __future__ import annotations

import base64
import json
from typing import Any

import msgspec
import pytest

from handfast.console import needs

SECRET = "this-is-the-key"


@pytest.mark.parametrize("need", [needs.TOKENS, needs.MESH_SECRETS], ids=lambda need: need.name)
def test_of_a_secret_nothing_is_kept_that_is_one(need: needs.Need[Any]):
    data = {
        name: base64.b64encode(SECRET.encode()).decode()
        for name in ("token-secret", "key.pem", "tls.key", "old-key.pem")
    }
    applied = {"kubectl.kubernetes.io/last-applied-configuration": json.dumps({"stringData": {"key.pem": SECRET}})}
    stored = {"metadata": {"name": "x", "annotations": applied, "labels": {"l": SECRET}}, "data": data}
    kept = msgspec.json.encode(msgspec.json.decode(msgspec.json.encode(stored), type=need.source.view)).decode()
    assert '"x"' in kept
    assert SECRET not in kept
    assert data["key.pem"] not in kept
