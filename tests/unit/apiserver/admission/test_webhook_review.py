# SPDX-License-Identifier: Apache-2.0
"""The AdmissionReview as it is made; what real webhooks get and change is in test_webhooks.py."""

from __future__ import annotations

from handfast.api import kinds
from handfast.apiserver import identity
from handfast.apiserver.admission import plugin, webhook_review
from handfast.rules import access

NODES = kinds.row("nodes")


def test_the_review_of_a_delete_outside_namespaces_leaves_out_what_is_empty() -> None:
    write = plugin.Write("DELETE", NODES, "", "", "n", None, {"kind": "Node"}, identity.ANONYMOUS, dry_run=True)
    request = webhook_review.review(write, {}, write.kind, "u")["request"]
    assert "namespace" not in request
    assert "subResource" not in request
    assert request["object"] is None
    assert request["options"] is None
    assert request["dryRun"] is True
    assert request["userInfo"] == {"username": access.ANONYMOUS, "groups": [identity.UNAUTHENTICATED]}
