# SPDX-License-Identifier: Apache-2.0
"""Admission: a node that recovers may file one request, for its own certificate. `rules.nodes.recovery` decides.

Whether the caller is such a node was decided before (`access.node_recovery`); this looks up what else is waiting.
"""

from __future__ import annotations

from typing import Final

from handfast.api import jsonpath
from handfast.apiserver.access import node_recovery
from handfast.apiserver.admission import plugin
from handfast.apiserver.state import replica as replica_module
from handfast.rules import user_names
from handfast.rules.nodes import recovery

NAME: Final = "NodeRecovery"


def admit(write: plugin.Write, context: plugin.Context) -> None:
    """Return if a new request is one that a recovering node may make, else refuse."""
    user = write.user
    # Cheap test first: nearly everybody is somebody else.
    if user_names.NODE_RECOVERY not in user.groups or write.subresource:
        return
    waiting = _waiting(context.replica, user.name, write.name)
    node = recovery.node_of(user.name, user.groups)
    plugin.require(write, recovery.judge_request(node, write.document, waiting))


def _waiting(replica: replica_module.Replica, user: str, name: str) -> str | None:
    """Another request of this user that is not done. The same one again is the store's to refuse: it exists."""
    for item in replica.collection(node_recovery.REQUEST_PREFIX).iterate():
        if item.name == name or user.encode() not in item.body:
            continue
        document = item.document()
        if jsonpath.text(document, "spec", "username") == user and recovery.is_waiting(document):
            return item.name
    return None


ROW = plugin.Row(NAME, frozenset({plugin.CREATE}), admit, frozenset({node_recovery.REQUESTS}))
