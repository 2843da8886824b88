# SPDX-License-Identifier: Apache-2.0
"""The settings of a mesh, read from its cluster for the command line. What they mean is in `rules.mesh.settings`."""

from __future__ import annotations

from handfast import errors
from handfast.api import jsonpath, objects, resources
from handfast.client import api
from handfast.rules.mesh import control_plane, settings


async def read(client: api.Client, namespace: str) -> settings.Settings:
    """Those of the mesh in a namespace, where there is one."""
    document = await need(client, resources.CONFIG_MAPS, control_plane.CONFIG, namespace)
    return settings.parse(jsonpath.mapping(document, "data"))


async def need(client: api.Client, resource: api.Addressable, name: str, namespace: str) -> objects.Document:
    """An object that every mesh has; refused where there is none."""
    document = await client.find(resource, name, namespace=namespace)
    if document is None:
        raise errors.Refused(
            f"there is no {name} in namespace {namespace}",
            reason="NotInstalled",
            hint="handfast mesh install makes it; or name the control plane with --control-plane-namespace",
        )
    return document
