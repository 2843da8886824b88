# SPDX-License-Identifier: Apache-2.0
"""Whose a certificate request is: each has one judge. Whether it is approved is that judge's to say.

1. The machine-approver judges requests for a node's client certificate whose author has the name of a bootstrap identity, whatever
   the groups: one that lacks a group is told so, and is not sent elsewhere.
2. It judges requests for serving certificates by authors in the group `system:nodes`.
3. Everything else is csrapproving's: renewals, recovering nodes, bootstrap tokens.
4. Where no machine-approver runs, everything is csrapproving's. It has no advice for bootstrap identities but to run one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from handfast.api import signer_names, signing_requests
from handfast.rules import user_names
from handfast.rules.machines import bootstrapper

MACHINE_APPROVER: Final = "machine-approver"
CSRAPPROVING: Final = "csrapproving"


def is_machine_approvers(spec: signing_requests.Spec, identities: Sequence[bootstrapper.Identity]) -> bool:
    """Whether a request is the machine-approver's."""
    # 1. by the author's name
    if spec.signer_name == signer_names.KUBELET_CLIENT:
        return bootstrapper.named(spec.username, identities)
    # 2. serving certificates of nodes
    return spec.signer_name == signer_names.KUBELET_SERVING and user_names.NODES in (spec.groups or ())


def waits(item: signing_requests.Request, identities: Sequence[bootstrapper.Identity]) -> bool:
    """Whether a request is the machine-approver's, and neither approved, denied nor failed."""
    return (
        item.is_open
        and item.condition(signing_requests.APPROVED) is None
        and is_machine_approvers(item.spec, identities)
    )
