# SPDX-License-Identifier: Apache-2.0
"""May somebody who is not this node have a certificate in its name? Not while the node is alive.

Whether the requester may bring nodes in at all is asked before (`certificates.kubelet`, RBAC). `nodes.liveness` says what is
alive. It never refuses for good: a machine that lost its certificate comes back under its name when its Lease has ended.

1. It is about requests for a node's client certificate by others than the node: not about its renewals, which show its own
   certificate, nor about its recovery, which is let in only while no Lease is renewed (`nodes.recovery`).
2. As long as somebody renews the Lease of that name, the request waits, with the reason `NODE_IS_ALIVE` and the instant at
   which it is judged again. The Lease alone counts: who deletes a Node while its agent runs still has that agent.
3. A person's approval is not judged here: administrators may replace a node that runs.

The key of a request makes no difference. A join that was cut off goes on with the request that was approved before. A machine
that renews a Lease has its certificate, and needs no such request.

| who | holding | tries | stopped by | shown in tests/unit/rules/nodes/test_claim.py |
|---|---|---|---|---|
| who has a bootstrap token | the name of a node that runs | be that node, too | 2 | test_a_living_node_keeps_its_name |
| … | a user name that looks like a recovering node's | pass as one | 1 asks for the group | test_whom_it_concerns |
| another node | its certificate, and `nodeclient` by mistake | be a node that runs | 1: other than the node | test_whom_it_concerns |
| a machine that lost its certificate | a token | come back | (nothing: waits for its own Lease) | test_a_dead_node_gives_its_name_up |

Not stopped: of two machines that join under one new name before either renews a Lease, both get a certificate.
"""

from __future__ import annotations

import datetime
from typing import Any, Final

from handfast.api import jsonpath, objects, signer_names
from handfast.rules.certificates import kubelet
from handfast.rules.nodes import liveness, recovery

# The reason, and the type of the condition on a request that waits. Kubernetes has no such type, so its readers pass it
# over.
NODE_IS_ALIVE: Final = "NodeIsAlive"
WAITING: Final = "Waiting"
# The check, as explanations name it.
CHECK: Final = "living node"
_READY: Final = "Ready"


def concerns(facts: kubelet.Facts) -> bool:
    """Whether somebody else than the node asks for its client certificate (1)."""
    node = facts.node_name
    return (
        facts.signer_name == signer_names.KUBELET_CLIENT
        and bool(node)
        and facts.username != facts.request.subject.common_name
        and recovery.node_of(facts.username, facts.groups) != node
    )


def check(
    facts: kubelet.Facts, pulse: liveness.Pulse | None, now: datetime.datetime, monotonic: float
) -> kubelet.Check:
    """Whether the Lease of that name has ended (2), for a request that this `concerns`."""
    left = 0.0 if pulse is None else pulse.left(now, monotonic)
    node = facts.node_name
    if pulse is None or left <= 0:
        return kubelet.Check(CHECK, True, f'nobody renews the Lease of the Node "{node}"')
    # To the next second, so that whoever comes back then does not come too early.
    again = objects.timestamp(now + datetime.timedelta(seconds=left + 1))
    compared = (
        f'the Node "{node}" is alive: its Lease was renewed at {objects.timestamp(pulse.renewed)}; judged again when that '
        f"has ended, at {again} or later"
    )
    return kubelet.Check(CHECK, False, compared)


def seems_alive(node: Any) -> str | None:
    """Since when a Node says that it is Ready, for those who may not read its Lease. None: it is not, or does not say."""
    for condition in jsonpath.mappings(node, "status", "conditions"):
        if condition.get("type") == _READY and condition.get("status") == "True":
            return jsonpath.text(condition, "lastTransitionTime")
    return None
