# SPDX-License-Identifier: Apache-2.0
"""What follows if nobody acts: a sentence for each reason of a check that is not well. What a reason means is told by `handfast explain`. It judges nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

FOLLOWS: Final[Mapping[str, str]] = {
    "AnonymousRefused": "New machines cannot find out whom to trust, and do not join.",
    "BadAnchor": "Certificates of that CA are believed by nobody.",
    "CAEndsSoon": "When it ends, every certificate that it signed is turned away at once.",
    "CAExpired": "What it signed is turned away.",
    "CertificateEndsSoon": "When it ends, its holder is turned away.",
    "CertificateExpired": "Its holder is turned away until it has another certificate.",
    "CertificateNotYetValid": "Its holder is turned away until then.",
    "ClockSkew": "Certificates seem over, or not yet valid, to one side and not to the other.",
    "ControllerRightsMissing": "What those controllers do is not done: requests may stay unapproved or unsigned.",
    "ControllersNotReady": "Nothing is approved, signed or cleaned up until they are.",
    "MachineNeedsSomebody": "That machine does not become a node.",
    "NoClusterInfo": "Machines with a token cannot find out whom to trust, and do not join.",
    "NoLeader": "Nothing is approved, signed or cleaned up until a controller leads.",
    "NodeSilent": "Its Pods count as lost after a while, and its certificate is not renewed while it is off.",
    "NodeWaits": "It is no node, or none any more, until somebody has decided.",
    "NodesMayMore": "Whoever takes over one node has this right, too.",
    "NotReady": "Requests are turned away until it is.",
    "PolicyWouldRefuse": "Nobody is refused now. Once those policies are enforced, these calls fail.",
    "PoolDegraded": "Its machines do not get their configuration, or some of them have not taken it.",
    "RenewalLate": "When its certificate ends, the node is turned away, and its Pods with it.",
    "RequestsNotActedOn": "Nodes run on their old certificates until these end.",
    "RequestsWait": "Whoever asks waits. A request that nobody decides is deleted after a day.",
    "RoleNotReady": "What that process serves is not served until it answers.",
    "RolloutSlow": "The machines that are behind run with their former configuration.",
    "ServiceUnavailable": "Requests are turned away until it can answer again.",
    "ServingExpired": "Whoever asks the node at its endpoint, for logs or measurements, gets no answer that can be believed.",
    "ServingLeftOver": "If it still serves with it, whoever asks the node at its endpoint gets no answer that can be believed.",
    "ServingRenewalLate": "When it ends, whoever asks the node at its endpoint, for logs or measurements, gets no answer that can be believed.",
    "SignatureLeftOver": "A token that is gone still stands in cluster-info; it opens nothing.",
    "SignatureMismatch": "Machines with that token do not believe cluster-info, and do not join.",
    "SignatureMissing": "Machines with that token do not believe cluster-info, and do not join.",
    "SignerNotTrusted": "What that signer signs is turned away by the API server.",
    "StoreFull": "Nothing can be written: no Lease, no request, no certificate. Only deleting goes on.",
    "StoreNotReady": "Nothing can be read or written until it is.",
    "TokenExpired": "Machines that were told to join with it are turned away.",
    "TokenUnreadable": "Nobody can join with it.",
    "UnknownAuthority": "Nothing can be asked as long as the server is not believed.",
    "WebhookNotAnswering": "Writes that it looks at are refused, or go on unlooked at.",
}


def of(reason: str) -> str:
    """What follows; empty: nothing is known to."""
    return FOLLOWS.get(reason, "")
