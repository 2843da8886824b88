# SPDX-License-Identifier: Apache-2.0
"""What the plain judge says of an error; keys, stores and TLS are in tests/unit/node/test_renewal.py and test_keeping."""

from __future__ import annotations

import pytest

from handfast import errors
from handfast.client import issuance


def test_a_denial_is_final_and_its_key_is_spent():
    error = issuance.Denied("not this workload")
    assert error.reason == "Denied"
    assert issuance.judge_plainly(error) == issuance.Outlook(
        server_healthy=True, request_is_over=True, key_is_spent=True, refusal=error, final=True
    )


@pytest.mark.parametrize(
    "error", [errors.Unavailable("down"), errors.Refused("the disk is read-only", reason="PermissionDenied")]
)
def test_everything_else_may_pass(error: errors.HandfastError):
    assert issuance.judge_plainly(error) == issuance.Outlook()
