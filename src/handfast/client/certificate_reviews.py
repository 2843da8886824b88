# SPDX-License-Identifier: Apache-2.0
"""Asks the API what the approval of a node's request depends on: the requester's permission, and addresses of Nodes.

For an explanation, which follows nothing, it also asks for the node's Lease and the Revocations. It approves nothing: the
approver and `handfast csr explain` ask by it, so that both ask the same.
"""

from __future__ import annotations

import datetime
import urllib.parse
from collections.abc import Sequence

import msgspec

from handfast import errors
from handfast.api import handfast_kinds, jsonpath, objects, resources, signer_names, signing_requests
from handfast.bootstrap import cluster_info
from handfast.client import api
from handfast.rules import decision, revocation
from handfast.rules.certificates import kubelet
from handfast.rules.nodes import claim as node_claim
from handfast.rules.nodes import liveness
from handfast.runtime import batches

NOT_PERMITTED = "NotPermitted"
_RULE = "SubjectAccessReview"


class _Address(msgspec.Struct):
    address: str = ""


class _Status(msgspec.Struct):
    addresses: list[_Address] | None = None


class _Named(msgspec.Struct):
    name: str = ""


class _Node(msgspec.Struct):
    """As much of a Node as says where it is: there may be thousands."""

    metadata: _Named
    status: _Status | None = None


_NODE_LISTS = msgspec.json.Decoder(api.Listing[_Node])


async def ask_permission(client: api.Client, facts: kubelet.Facts, permission: str) -> decision.Decision:
    """Whether the requester may create `certificatesigningrequests/<permission>`, by SubjectAccessReview."""
    answer = await client.create(resources.SUBJECT_ACCESS_REVIEWS, review(facts, permission))
    said = jsonpath.text(answer, "status", "reason") or jsonpath.text(answer, "status", "evaluationError")
    if jsonpath.at(answer, "status", "allowed") is True:
        return decision.Approve("Allowed", said or "allowed", _RULE)
    return decision.NotMine(NOT_PERMITTED, said or "not allowed", _RULE)


# The requester's name, UID, groups and extra, and the permission.
_Question = tuple[str, str, tuple[str, ...], tuple[tuple[str, tuple[str, ...]], ...], str]


class Permissions:
    """Asks for many requests at once: those that wait for the same question share the next answer to it.

    Machines that join with one token are one requester. An answer is only ever given to whoever asked before it was sent
    for, so that nobody is approved by what was true before.
    """

    def __init__(self, client: api.Client) -> None:
        self._client = client
        self._questions: batches.Batches[_Question, kubelet.Facts, decision.Decision] = batches.Batches(self._send)

    async def ask(self, facts: kubelet.Facts, permission: str) -> decision.Decision:
        """As `ask_permission`."""
        extra = tuple((key, tuple(values)) for key, values in sorted(facts.extra.items()))
        question = (facts.username, facts.uid, tuple(facts.groups), extra, permission)
        return await self._questions.join(question, facts)

    async def _send(
        self, question: _Question, batch: Sequence[batches.Waiting[kubelet.Facts, decision.Decision]]
    ) -> None:
        """Send the question: one answer for all of them, or one error."""
        try:
            answer = await ask_permission(self._client, batch[0].item, question[-1])
        except errors.HandfastError as error:
            for waiting in batch:
                waiting.fail(error)
        else:
            for waiting in batch:
                waiting.settle(answer)


def review(facts: kubelet.Facts, permission: str) -> objects.Document:
    """The question, with the requester as the server wrote it down; no name and no namespace, as Kubernetes asks it."""
    attributes = {
        "group": signing_requests.GROUP,
        "version": "*",
        "resource": "certificatesigningrequests",
        "subresource": permission,
        "verb": "create",
    }
    extra = {key: list(values) for key, values in facts.extra.items()}
    return {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": facts.username,
            "uid": facts.uid,
            "groups": list(facts.groups),
            **({"extra": extra} if extra else {}),
            "resourceAttributes": attributes,
        },
    }


async def node_addresses(client: api.Client, facts: kubelet.Facts) -> tuple[str, ...] | None:
    """The addresses that the Node of a serving request reports; None where there is no such Node, or it is no matter."""
    node = facts.node_name
    if facts.signer_name != signer_names.KUBELET_SERVING or objects.dns_subdomain(node) is not None:
        return None
    document = await client.find(resources.NODES, node)
    if document is None:
        return None
    return tuple(jsonpath.text(row, "address") for row in jsonpath.mappings(document, "status", "addresses"))


async def reserved(client: api.Client, facts: kubelet.Facts) -> frozenset[str]:
    """What a serving request may not name although its Node reports it: where the API server is, and the other Nodes.

    The API server is at the hosts of cluster-info and at the addresses of its Service. A cluster-info that cannot be read
    is an error: it would take a reserved host for a free one.
    """
    if facts.signer_name != signer_names.KUBELET_SERVING:
        return kubelet.NO_NAMES
    hosts: set[str] = set()
    info = await client.find(resources.CONFIG_MAPS, cluster_info.NAME, namespace=cluster_info.NAMESPACE)
    text = jsonpath.text(info, "data", cluster_info.KUBECONFIG_KEY)
    if text:
        hosts.update(urllib.parse.urlsplit(server).hostname or "" for server in cluster_info.read(text).servers)
    service = await client.find(resources.SERVICES, "kubernetes", namespace="default")
    hosts.update(jsonpath.texts(service, "spec", "clusterIPs"), {jsonpath.text(service, "spec", "clusterIP")})
    async for page in client.pages(resources.NODES, api.EVERYTHING, _NODE_LISTS):
        for node in page.items:
            if node.metadata.name != facts.node_name and node.status is not None:
                hosts.update(row.address for row in node.status.addresses or ())
    return frozenset(hosts)


async def claim(client: api.Client, facts: kubelet.Facts, now: datetime.datetime) -> kubelet.Check | None:
    """Whether a living node has the name that is asked for; None where that is no matter."""
    if not node_claim.concerns(facts) or objects.dns_subdomain(facts.node_name) is not None:
        return None
    lease = await client.find(resources.LEASES, facts.node_name, namespace=liveness.NAMESPACE)
    return node_claim.check(facts, liveness.seen(lease, None, 0.0, beat=False), now, 0.0)


async def revoked(client: api.Client, facts: kubelet.Facts, now: datetime.datetime) -> kubelet.Check | None:
    """Whether a Revocation refuses the name or the key that is asked for; None where there is no such kind."""
    index = revocation.Index()
    with api.MISSING_OK:
        for document in await client.list(handfast_kinds.REVOCATION):
            index.add(revocation.read(document))
        verdict = index.judge_request(facts, now)
        return kubelet.Check(revocation.CHECK, not isinstance(verdict, decision.Deny), verdict.sentence)
    return None
