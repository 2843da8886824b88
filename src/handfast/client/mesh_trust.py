# SPDX-License-Identifier: Apache-2.0
"""Looks up whom a mesh trusts, who signs, and who believes which root. It reads only, and judges nothing: `rules.mesh.anchor_rotation` and `believers` do."""

from __future__ import annotations

import base64
import datetime
from collections.abc import Sequence

import msgspec

from handfast.api import handfast_kinds, jsonpath, objects, resources, signer_names
from handfast.client import api, issued_certificates, mesh_settings
from handfast.rules.mesh import anchor_rotation, believers, control_plane, installation, issuer, names


class Stored(msgspec.Struct, frozen=True):
    """The objects of an installation, as they were read; `rotation` is None while none is under way."""

    mesh: names.Mesh
    anchors: objects.Document
    signing: objects.Document
    rotation: objects.Document | None

    @property
    def material(self) -> issuer.Material:
        """Issuer, key and anchors, not judged."""
        return installation.read_material(self.signing, self.anchors)

    @property
    def record(self) -> anchor_rotation.Record | None:
        """How far a rotation is; refused where that cannot be read."""
        return None if self.rotation is None else anchor_rotation.decode(_decoded(self.rotation))

    def facts(self) -> anchor_rotation.Stored:
        """What the rules ask for; refused where the anchors cannot be used."""
        material = self.material
        return anchor_rotation.Stored(issuer.read_anchors(material.anchors), anchor_rotation.signer_of(material))


async def read(client: api.Client, namespace: str) -> Stored:
    """What is stored; refused where there is no mesh."""
    return Stored(
        (await mesh_settings.read(client, namespace)).mesh(namespace),
        await mesh_settings.need(client, resources.CONFIG_MAPS, control_plane.TRUST_ANCHOR, namespace),
        await mesh_settings.need(client, resources.SECRETS, control_plane.SIGNING, namespace),
        await client.find(resources.SECRETS, control_plane.ROTATION, namespace=namespace),
    )


async def known(client: api.Client, namespace: str, now: datetime.datetime) -> believers.Known:
    """Who believes whom, of everybody."""
    facts = believers.Facts(
        pods=await client.list(resources.PODS),
        workloads=await _listed(client, handfast_kinds.MESH_WORKLOAD),
        ledger=await issued_certificates.entries(client, signer_names.MESH_IDENTITY) or (),
        namespace=namespace,
    )
    return believers.read(facts, now)


async def _listed(client: api.Client, resource: api.Addressable) -> Sequence[objects.Document]:
    with api.MISSING_OK:
        return await client.list(resource)
    return ()


def _decoded(secret: objects.Document) -> dict[str, bytes]:
    try:
        return {
            key: base64.b64decode(str(value), validate=True) for key, value in jsonpath.mapping(secret, "data").items()
        }
    except ValueError:
        return {}
