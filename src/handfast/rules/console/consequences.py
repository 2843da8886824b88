# SPDX-License-Identifier: Apache-2.0
"""What follows if nobody acts: a sentence for each reason of a check that is not well. What a reason means is told by `handfast explain`. It judges nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

FOLLOWS: Final[Mapping[str, str]] = {
    "AccountWithoutName": "Pods of that account get no certificate, and nobody can name them in a policy.",
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
    "InternalError": "What was asked for is not done.",
    "IssuerEndsSoon": "When it ends, no workload gets or renews a certificate, and within a day all of theirs are over.",
    "IssuerExpired": "No workload gets or renews a certificate, and calls fail as theirs end.",
    "KindsMissing": "Policies and reports of that kind cannot be written or read.",
    "MachineNeedsSomebody": "That machine does not become a node.",
    "NoClusterInfo": "Machines with a token cannot find out whom to trust, and do not join.",
    "NoEndpoints": "What that service does for workloads is not done: they go on with what they have, and no certificate is renewed without the identity service.",
    "NoLeader": "Nothing is approved, signed or cleaned up until a controller leads.",
    "NoMesh": "Nothing gets an identity, and calls are as applications make them.",
    "NoWebhook": "Pods that are created get no proxy by themselves, and their calls are not secured.",
    "NodeClockSkew": "Certificates seem over, or not yet valid, to workloads on these nodes.",
    "NodeSilent": "Its Pods count as lost after a while, and its certificate is not renewed while it is off.",
    "NodeWaits": "It is no node, or none any more, until somebody has decided.",
    "NodesMayMore": "Whoever takes over one node has this right, too.",
    "NotAnswering": "What that service does for workloads is not done until it answers.",
    "NotReady": "Requests are turned away until it is.",
    "OldTrustAnchors": "When the old root is retired, these Pods and the others do not believe each other.",
    "PodsWithoutProxy": "Their calls are not secured, and policies do not hold for them.",
    "PolicyWouldRefuse": "Nobody is refused now. Once those policies are enforced, these calls fail.",
    "PoolDegraded": "Its machines do not get their configuration, or some of them have not taken it.",
    "RenewalLate": "When its certificate ends, the node is turned away, and its Pods with it.",
    "RequestsNotActedOn": "Nodes run on their old certificates until these end.",
    "RequestsWait": "Whoever asks waits. A request that nobody decides is deleted after a day.",
    "RightsDiffer": "What a service of the mesh may not do is not done.",
    "RightsTooWide": "Whoever takes over a service of the mesh has this right, too.",
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
    "TooManyRequests": "What it turns down is not done until it is asked again.",
    "TrustAnchorEndsSoon": "When it ends, every certificate of the mesh that leads to it is turned away at once.",
    "TrustAnchorExpired": "Certificates of the mesh that lead to it are turned away.",
    "TrustAnchorNotYetValid": "Certificates of the mesh that lead to it are turned away until then.",
    "Unauthorized": "Nothing can be read or done with this credential.",
    "UnknownAuthority": "Nothing can be asked as long as the server is not believed.",
    "WebhookCertificate": "The API server does not call the injector: Pods are refused, or are created without a proxy.",
    "WebhookDiffers": "Pods may get a proxy where they should have none, or none where they should have one.",
    "WebhookNotAnswering": "Writes that it looks at are refused, or go on unlooked at.",
    "WebhookNotBelieved": "The API server does not call the injector: Pods are refused, or are created without a proxy.",
    "WorkloadCertificateExpired": "Whoever calls that workload, or is called by it, turns it away.",
    "WorkloadCertificateLate": "When it ends, the workload is turned away by all others.",
}


def of(reason: str) -> str:
    """What follows; empty: nothing is known to."""
    return FOLLOWS.get(reason, "")
