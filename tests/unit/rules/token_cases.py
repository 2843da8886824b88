# SPDX-License-Identifier: Apache-2.0
"""A bound token, a legacy token and what they name, for the tests of whatever judges them. It tests nothing."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from handfast import errors
from handfast.rules.tokens import claims

NOW = datetime.datetime(2026, 6, 1, 12, 0, tzinfo=datetime.UTC)
AT = int(NOW.timestamp())
ISSUER = "https://kubernetes.default.svc"
ACCOUNT = claims.Reference("builder", "uid-sa")
POD = claims.Reference("pod-1", "uid-pod")
SECRET = claims.Reference("secret-1", "uid-secret")
NODE = claims.Reference("node-1", "uid-node")
BOUND = claims.Bound(
    namespace="ns",
    account=ACCOUNT,
    audiences=("api", "other"),
    issued_at=AT,
    not_before=AT,
    expires=AT + 3600,
    id="11111111-2222-4333-8444-555555555555",
)
LEGACY = claims.Legacy(namespace="ns", account=ACCOUNT, secret_name="builder-token")


def refused(call: Any, *args: Any) -> tuple[str, str]:
    with pytest.raises(errors.Refused) as caught:
        call(*args)
    return caught.value.reason, caught.value.message
