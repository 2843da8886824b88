# SPDX-License-Identifier: Apache-2.0
"""Every check of a control plane, in order: one row each. What each of them asks for is in the module that has its judge. It judges nothing itself.

1. The order is that of the way in: one who mends the first failure first mends most.
2. The checks of the mesh are those of `handfast mesh check`, under names that begin with `mesh-`.
3. A check that is not well names the part of the page that says more.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from handfast.rules import check
from handfast.rules.diagnoses import (
    control_plane,
    facts,
    fleet,
    joining,
    members,
    node_serving,
    one_node,
    reaching,
    trust,
)

Judge = Callable[[facts.Facts], check.Check]
PAGE: Final = "docs/check.md"
MESH_PAGE: Final = "docs/mesh.md#check"
MESH: Final = "mesh"
# 1. the way in
WAY: Final[Mapping[str, Judge]] = {
    "credential": reaching.credential,
    "dns": reaching.dns,
    "tcp": reaching.tcp,
    "tls": reaching.tls,
    "clock": reaching.clock,
    "api": reaching.api,
}
INSIDE: Final[Mapping[str, Judge]] = {
    "store": control_plane.store,
    "controllers": control_plane.controllers,
    "roles": control_plane.roles,
    "rights": control_plane.rights,
    "webhooks": control_plane.webhooks,
    "cas": trust.server_cas,
    "client-cas": trust.client_cas,
    "cluster-info": joining.cluster_info,
    "signatures": joining.signatures,
    "tokens": joining.token_list,
    "requests": members.requests,
    "nodes": members.nodes,
    node_serving.NAME: node_serving.every,
    "node-rights": members.node_rights,
    "machines": members.machines,
    "machine-pools": fleet.machine_pools,
    "bootstrap-credentials": fleet.bootstrap_credentials,
}


def everything(known: facts.Facts) -> tuple[check.Check, ...]:
    """All checks of a control plane."""
    judges = (*WAY.values(), *INSIDE.values())
    return (*(_with_page(judge(known), PAGE) for judge in judges), *_mesh(known.mesh))


def of_node(node: str, known: facts.Facts) -> tuple[check.Check, ...]:
    """The way in, and how far one node has come."""
    steps = (*one_node.checks(node, known), node_serving.of_node(node, known))
    rows = (*(judge(known) for judge in WAY.values()), *steps)
    return tuple(_with_page(row, PAGE) for row in rows)


def _mesh(rows: Sequence[check.Check] | check.Unread | None) -> Sequence[check.Check]:
    if isinstance(rows, check.Unread):
        return (_with_page(check.unread(MESH, rows), PAGE),)
    # 2. one row, where there is none
    if rows is None:
        return (check.Check(MESH, check.Verdict.OK, "no mesh is installed"),)
    return [_with_page(dataclasses.replace(row, name=f"{MESH}-{row.name}"), MESH_PAGE) for row in rows]


def _with_page(row: check.Check, page: str) -> check.Check:
    # 3. where more is said
    if row.verdict is check.Verdict.OK:
        return row
    return dataclasses.replace(row, page=f"{page}#{row.name}" if page == PAGE else page)
