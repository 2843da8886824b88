# SPDX-License-Identifier: Apache-2.0
"""Which bindings go round the inventory: they let csrapproving approve a bootstrap identity's request without any Machine.

It changes no binding. Handfast's csrapproving leaves such requests alone where the machine-approver runs; that of another controller
manager, and Handfast's without a machine-approver, approves by this permission.

1. A ClusterRoleBinding goes round it if it lets a bootstrap identity `create certificatesigningrequests/nodeclient`: as the user, as a
   service account, or as one of the identity's groups or `system:authenticated`.
2. A RoleBinding never does: the question has no namespace.
3. A role that is not there, or that names single objects, gives nothing.

| who | holding | tries | stopped by | shown in tests/unit/rules/machines/test_bypass.py |
|---|---|---|---|---|
| an operator | kubeadm's advice, or ours of before | grant `nodeclient` to the bootstrapper | (nothing: it is told, by name) | test_a_binding_that_goes_round_the_inventory_is_named |
| … | a broad role for all service accounts | the same, without knowing | (nothing: it is told, by name) | test_a_binding_that_goes_round_the_inventory_is_named |
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from handfast.api import jsonpath, signing_requests
from handfast.rules import access, decision, user_names
from handfast.rules.certificates import kubelet
from handfast.rules.machines import bootstrapper
from handfast.rules.rbac import policy

REASON = "InventoryBypassed"


def judge(
    binding: Any, role: Any, identities: Sequence[bootstrapper.Identity] = (bootstrapper.NODE_BOOTSTRAPPER,)
) -> str | None:
    """What a ClusterRoleBinding to this ClusterRole (None: it is not there) lets whom do; None: nothing of that sort."""
    rules = policy.Policy()
    name = jsonpath.text(binding, "metadata", "name")
    rules.set_binding("", name, binding)
    # 3. a role that is not there
    if role is not None:
        rules.set_role("", jsonpath.text(binding, "roleRef", "name"), role)
    for identity in identities:
        # 1. as the user, or by a group
        groups = (*sorted(identity.groups), user_names.AUTHENTICATED)
        question = access.Attributes(
            user=identity.user,
            groups=groups,
            verb="create",
            is_resource=True,
            group=signing_requests.GROUP,
            plural="certificatesigningrequests",
            subresource=kubelet.NODE_CLIENT,
        )
        answer = rules.decide(question)
        if isinstance(answer, decision.Approve):
            return (
                f"{identity.user} may have node certificates approved without a Machine ({answer.sentence}); take that subject "
                f"out of the ClusterRoleBinding {name}: the machine-approver needs no such right"
            )
    return None
