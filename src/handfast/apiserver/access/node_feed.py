# SPDX-License-Identifier: Apache-2.0
"""Keeps the node graph current with the server's copy of the store. What refers to what is read in `rules`.

The graph follows in the same step of the event loop in which a write is applied: a kubelet that has been told of its Pod
can read what the Pod needs. Most events of Pods are reports of the kubelet on their state, so these are told apart
first, without decoding the objects.
"""

from __future__ import annotations

import sys

import msgspec

from handfast.api import objects
from handfast.apiserver.state import items
from handfast.apiserver.state import replica as replica_module
from handfast.rules.nodes import graph, references

PODS = "core/pods/"
VOLUMES = "core/persistentvolumes/"
ATTACHMENTS = "storage.k8s.io/volumeattachments/"

_NULL = msgspec.Raw(b"null")
_decode = msgspec.json.Decoder().decode


class _Metadata(msgspec.Struct, frozen=True, gc=False):
    annotations: msgspec.Raw = _NULL


class _Status(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    resource_claim_statuses: msgspec.Raw = _NULL
    extended_resource_claim_status: msgspec.Raw = _NULL


class _Parts(msgspec.Struct, frozen=True, gc=False):
    """All of a Pod that its references are read from, as the bytes they are stored in; the rest is skipped over."""

    metadata: _Metadata
    spec: msgspec.Raw = _NULL
    status: _Status = _Status()

    def document(self) -> objects.Document:
        """A Pod that has these parts only."""
        return {
            "metadata": {"annotations": _decode(self.metadata.annotations)},
            "spec": _decode(self.spec),
            "status": {
                "resourceClaimStatuses": _decode(self.status.resource_claim_statuses),
                "extendedResourceClaimStatus": _decode(self.status.extended_resource_claim_status),
            },
        }


_parts = msgspec.json.Decoder(_Parts).decode


class NodeFeed:
    """The graph, and what feeds it."""

    def __init__(self, replica: replica_module.Replica) -> None:
        self._replica = replica
        self.graph = graph.NodeGraph()

    def load(self) -> None:
        """Take everything the loaded copy holds, and follow it from here on."""
        for prefix, put, follow in (
            (PODS, self._put_pod, self._pod),
            (VOLUMES, self._put_volume, self._volume),
            (ATTACHMENTS, self._put_attachment, self._attachment),
        ):
            collection = self._replica.collection(prefix)
            for item in collection.snapshot():
                put(item)
            collection.listen(self, follow)

    def _pod(self, change: items.Change) -> None:
        before, after = change.before, change.after
        if after is not None:
            if before is None or not _same_references(before, after):
                self._put_pod(after)
        elif before is not None:
            self.graph.remove_pod(before.namespace, before.name)

    def _volume(self, change: items.Change) -> None:
        if change.after is not None:
            self._put_volume(change.after)
        elif change.before is not None:
            self.graph.remove_pv(change.before.name)

    def _attachment(self, change: items.Change) -> None:
        if change.after is not None:
            self._put_attachment(change.after)
        elif change.before is not None:
            self.graph.remove_attachment(change.before.name)

    # Names of nodes, namespaces and shared Secrets come decoded anew with every object; the graph keeps one of each.

    def _put_pod(self, item: items.Item) -> None:
        facts = references.pod(sys.intern(item.namespace), item.name, _document(item))
        self.graph.set_pod(msgspec.structs.replace(facts, node=sys.intern(facts.node)))

    def _put_volume(self, item: items.Item) -> None:
        facts = references.volume(item.name, item.document())
        if facts.claim is not None:
            namespace, name = facts.claim
            secrets = tuple((sys.intern(place), sys.intern(secret)) for place, secret in facts.secrets)
            facts = msgspec.structs.replace(facts, claim=(sys.intern(namespace), name), secrets=secrets)
        self.graph.set_pv(facts)

    def _put_attachment(self, item: items.Item) -> None:
        self.graph.set_attachment(item.name, sys.intern(references.attachment(item.document())))


def _document(item: items.Item) -> objects.Document:
    """As much of a Pod as its references need."""
    try:
        return _parts(item.body).document()
    except msgspec.ValidationError:
        # A part that is no object, of a Pod stored before it was refused: the rules read any shape.
        return item.document()


def _same_references(before: items.Item, after: items.Item) -> bool:
    """Whether the parts that references are read from are the same bytes.

    It is not relied on that the spec of a Pod on a node never changes: it can get ephemeral containers and, restored
    from a backup, another node. Equal bytes say it for every field there is or will be; unequal ones cost a second
    look.
    """
    try:
        return _parts(before.body) == _parts(after.body)
    except msgspec.ValidationError:
        return False
