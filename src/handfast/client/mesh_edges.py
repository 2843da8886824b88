# SPDX-License-Identifier: Apache-2.0
"""Looks up what `rules.mesh.edges` puts together: the MeshWorkloads that agents have reported. It reads only, and works on any API server.

Where those of all namespaces may not be listed, those of the namespaces that were named are: an end elsewhere is unknown then.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from handfast.api import handfast_kinds, status
from handfast.client import api, mesh_settings
from handfast.rules.mesh import edges, names


class Look(msgspec.Struct, frozen=True):
    """The mesh, who reports, and whether some may not be read."""

    mesh: names.Mesh
    workloads: list[edges.Workload]
    partial: bool = False


async def look(client: api.Client, namespace: str, homes: Sequence[str]) -> Look:
    """What is reported; `homes` are the namespaces that count where not all may be read."""
    mesh = (await mesh_settings.read(client, namespace)).mesh(namespace)
    try:
        return Look(mesh, await reported(client, api.EVERYTHING))
    except status.StatusError as error:
        if error.reason != "Forbidden" or not homes:
            raise
        rows = [each for home in homes for each in await reported(client, api.Scope(namespace=home))]
        return Look(mesh, rows, partial=True)


async def reported(client: api.Client, scope: api.Scope) -> list[edges.Workload]:
    """The workloads there that report; none where the cluster has no such kind."""
    with api.MISSING_OK:
        rows = await client.list(handfast_kinds.MESH_WORKLOAD, scope)
        return [workload for workload in map(edges.read, rows) if workload is not None]
    return []
