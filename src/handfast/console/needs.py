# SPDX-License-Identifier: Apache-2.0
"""What pages follow: one row for each source, with a view of the few fields that somebody shows. It follows nothing itself: `known` does.

1. Where names, labels and dates suffice, the server is asked for metadata alone.
2. A view has no field for a secret: what is not decoded cannot be shown, logged or sent by mistake. Of a bootstrap token's Secret the half that must stay
   secret is not in the view.
3. Pages that need the same source name the same row, so that it is followed once.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

import msgspec

from handfast.api import (
    handfast_kinds,
    kinds,
    machine_config_kinds,
    machine_kinds,
    metadata,
    objects,
    resources,
    signing_requests,
)
from handfast.bootstrap import token_limits, tokens
from handfast.client import api, machine_inventory, partial, watch
from handfast.rules import server_leases
from handfast.rules.console import mesh
from handfast.rules.machines import group_versions, inventory
from handfast.rules.mesh import control_plane, injection
from handfast.rules.nodes import liveness
from handfast.rules.tokens import failed_joins, maker

V = TypeVar("V", bound=partial.Viewed)


class Meta(metadata.Meta, frozen=True, gc=False):
    """… and what pages say of any object."""

    creation_timestamp: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class Named(msgspec.Struct, frozen=True, gc=False):
    """An object of which its metadata is enough (1)."""

    metadata: Meta = Meta()

    def document(self) -> objects.Document:
        """As rules read documents."""
        document: objects.Document = msgspec.to_builtins(self)
        return document


class Labelled(msgspec.Struct, frozen=True, gc=False):
    """An object of which name and labels are enough."""

    metadata: partial.LabelledMeta = partial.LabelledMeta()


class Whole(Named, frozen=True, gc=False):
    """An object with its spec and its status, as documents. For kinds of which there are few."""

    spec: dict[str, Any] | None = None
    status: dict[str, Any] | None = None


class LeaseSpec(msgspec.Struct, rename="camel", frozen=True, gc=False):
    """When a node was last seen."""

    renew_time: str | None = None
    lease_duration_seconds: int | None = None
    holder_identity: str | None = None


class Lease(Named, frozen=True, gc=False):
    """The Lease of a node."""

    spec: LeaseSpec = LeaseSpec()


class TokenData(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A token's Secret, in base64 as it is stored, without the half that is secret (2)."""

    token_id: str | None = msgspec.field(name=tokens.KEY_ID, default=None)
    expiration: str | None = msgspec.field(name=tokens.KEY_EXPIRATION, default=None)
    description: str | None = msgspec.field(name=tokens.KEY_DESCRIPTION, default=None)
    groups: str | None = msgspec.field(name=tokens.KEY_GROUPS, default=None)
    old_groups: str | None = msgspec.field(name=tokens.KEY_GROUPS_OLD, default=None)
    signing: str | None = msgspec.field(name=f"{tokens.USAGE_PREFIX}{tokens.SIGNING}", default=None)
    authentication: str | None = msgspec.field(name=f"{tokens.USAGE_PREFIX}{tokens.AUTHENTICATION}", default=None)


class TokenNotes(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """The annotations of a token that are ours. Others are not decoded: `kubectl apply` writes the whole Secret into one of them (2)."""

    max_uses: str | None = msgspec.field(name=token_limits.MAX_USES_KEY, default=None)
    nodes: str | None = msgspec.field(name=token_limits.NODES_KEY, default=None)
    cidrs: str | None = msgspec.field(name=token_limits.CIDRS_KEY, default=None)
    uses: str | None = msgspec.field(name=token_limits.USES_KEY, default=None)
    count: str | None = msgspec.field(name=token_limits.COUNT_KEY, default=None)
    maker: str | None = msgspec.field(name=maker.KEY, default=None)


class TokenMeta(metadata.Meta, frozen=True, gc=False, omit_defaults=True):
    """… of a token."""

    creation_timestamp: str | None = None
    annotations: TokenNotes | None = None


class Token(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A bootstrap token."""

    metadata: TokenMeta = TokenMeta()
    type: str = ""
    data: TokenData | None = None

    def document(self) -> objects.Document:
        """As rules read documents."""
        document: objects.Document = msgspec.to_builtins(self)
        return document


class SegmentSpec(msgspec.Struct, frozen=True, gc=False):
    """Entries as they are stored, one line each."""

    sequence: int = 0
    previous: str = ""
    entries: tuple[str, ...] = ()
    sealed: bool = False
    hash: str = ""
    chain: str = ""


class Segment(Named, frozen=True, gc=False):
    """A part of the issuance ledger."""

    spec: SegmentSpec = SegmentSpec()


class Involved(msgspec.Struct, rename="camel", frozen=True, gc=False):
    """Whom an Event is about."""

    kind: str = ""
    name: str = ""
    namespace: str = ""


class Event(Named, frozen=True, gc=False, rename="camel"):
    """An Event, as far as it is shown."""

    involved_object: Involved = Involved()
    reason: str = ""
    message: str = ""
    type: str = ""
    count: int | None = None
    first_timestamp: str | None = None
    last_timestamp: str | None = None


class Config(Named, frozen=True, gc=False):
    """A ConfigMap of the mesh's control plane."""

    data: dict[str, str] | None = None


class MeshSecretData(msgspec.Struct, frozen=True, gc=False):
    """Certificates and the state of a rotation, in base64 as they are stored; no key (2)."""

    certificate: str = msgspec.field(name=control_plane.CERTIFICATE_KEY, default="")
    state: str = msgspec.field(name="state.json", default="")
    old_certificate: str = msgspec.field(name=f"old-{control_plane.CERTIFICATE_KEY}", default="")
    old_anchors: str = msgspec.field(name=f"old-{control_plane.ANCHORS_KEY}", default="")
    new_certificate: str = msgspec.field(name=f"new-{control_plane.CERTIFICATE_KEY}", default="")
    new_anchors: str = msgspec.field(name=f"new-{control_plane.ANCHORS_KEY}", default="")

    def record(self) -> dict[str, str]:
        """The parts of a rotation's record, by their names."""
        return {name: text for name, text in msgspec.to_builtins(self).items() if name != control_plane.CERTIFICATE_KEY}


class MeshSecret(msgspec.Struct, frozen=True, gc=False):
    """A Secret of the mesh's control plane, without its keys; and without annotations: `kubectl apply` writes the whole Secret into one of them (2)."""

    metadata: metadata.Meta = metadata.Meta()
    data: MeshSecretData | None = None


class PodNotes(msgspec.Struct, frozen=True, gc=False):
    """Of the annotations of a Pod, what the injector writes."""

    anchors: str = msgspec.field(name=injection.ANCHORS, default="")


class PodLabels(msgspec.Struct, frozen=True, gc=False):
    """Of its labels, likewise."""

    control_plane: str = msgspec.field(name=injection.CONTROL_PLANE, default="")


class PodMeta(metadata.Meta, frozen=True, gc=False):
    """… and no other labels and annotations: there are many Pods."""

    labels: PodLabels | None = None
    annotations: PodNotes | None = None


class PodSpec(msgspec.Struct, rename="camel", frozen=True, gc=False):
    """As whom it runs. Variables may hold secrets of applications: they are not read (2)."""

    service_account_name: str | None = None


class PodStatus(msgspec.Struct, frozen=True, gc=False):
    """Whether it has ended."""

    phase: str | None = None


class MeshPod(msgspec.Struct, frozen=True, gc=False):
    """A Pod, as far as the mesh is concerned."""

    metadata: PodMeta = PodMeta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    def fact(self) -> mesh.Pod:
        meta = self.metadata
        return mesh.Pod(
            namespace=meta.namespace,
            name=meta.name,
            uid=meta.uid,
            account=self.spec.service_account_name or "",
            phase=self.status.phase or "",
            control_plane="" if meta.labels is None else meta.labels.control_plane,
            anchors="" if meta.annotations is None else meta.annotations.anchors,
        )


class MeshWorkload(msgspec.Struct, frozen=True, gc=False):
    """What an agent reported, and of which Pod."""

    metadata: partial.OwnedMeta = partial.OwnedMeta()
    status: dict[str, Any] | None = None

    def document(self) -> objects.Document:
        """As rules read documents."""
        meta = self.metadata
        owners = [{"uid": each.uid} for each in meta.owner_references or ()]
        named = {"namespace": meta.namespace, "name": meta.name, "ownerReferences": owners}
        return {"metadata": named, "status": self.status or {}}


@dataclass(frozen=True, slots=True)
class Need(Generic[V]):
    """One source: its name, what people call it, and what is followed. One `of_mesh` is followed where the mesh's control plane is."""

    name: str
    title: str
    kind: kinds.Kind
    source: watch.Source[V]
    of_mesh: bool = False

    def within(self, namespace: str) -> Need[V]:
        """The same, in another namespace."""
        scope = msgspec.structs.replace(self.source.scope, namespace=namespace)
        return dataclasses.replace(self, source=dataclasses.replace(self.source, scope=scope))

    @property
    def namespace(self) -> str:
        """Where, if in one namespace alone."""
        return self.source.scope.namespace


def _need(
    name: str,
    title: str,
    kind: kinds.Kind,
    view: type[V],
    *,
    scope: api.Scope = api.EVERYTHING,
    metadata_only: bool = False,
    if_served: bool = False,
    **more: Any,
) -> Need[V]:
    source = watch.Source(resource=kind, view=view, scope=scope, metadata=metadata_only, if_served=if_served, **more)
    return Need(name, title, kind, source)


NODES: Final = _need("nodes", "Nodes", resources.NODES, Labelled, metadata_only=True)
LEASES: Final = _need(
    "leases", "Leases of nodes", resources.LEASES, Lease, scope=api.Scope(namespace=liveness.NAMESPACE)
)
REQUESTS: Final = _need("requests", "certificate requests", resources.SIGNING_REQUESTS, signing_requests.Request)
TOKENS: Final = _need(
    "tokens",
    "bootstrap tokens",
    resources.SECRETS,
    Token,
    scope=api.Scope(namespace=tokens.NAMESPACE, field_selector=f"type={tokens.SECRET_TYPE}"),
)
# A segment has 64 entries, to verify and to pack: few of them at once, so that nobody waits meanwhile.
LEDGER: Final = _need(
    "ledger", "the issuance ledger", handfast_kinds.ISSUANCE_LOG, Segment, if_served=True, page_size=4
)
REVOCATIONS: Final = _need("revocations", "Revocations", handfast_kinds.REVOCATION, Whole, if_served=True)
FAILED_JOINS: Final = _need(
    "failed-joins",
    "Events of failed joins",
    resources.EVENTS,
    Event,
    scope=api.Scope(namespace=tokens.NAMESPACE, field_selector=f"reason={failed_joins.REASON}"),
)
# Machines may be defined while the console runs.
_SOON: Final = 30.0
MACHINES: Final = _need(
    "machines", "Machines", machine_kinds.MACHINE, machine_inventory.View, if_served=True, without_seconds=_SOON
)
CLUSTER_API_MACHINES: Final = _need(
    "cluster-api-machines",
    "Machines of Cluster API",
    dataclasses.replace(machine_kinds.MACHINE, group=inventory.CLUSTER_API, version="v1beta2"),
    machine_inventory.View,
    if_served=True,
    without_seconds=_SOON,
    versions=group_versions.VERSIONS[inventory.CLUSTER_API],
)
POOLS: Final = _need(
    "pools",
    "MachineConfigPools",
    machine_config_kinds.MACHINE_CONFIG_POOL,
    Named,
    metadata_only=True,
    if_served=True,
    without_seconds=_SOON,
)
MESH_CONFIG: Final = dataclasses.replace(
    _need("mesh-config", "the mesh's ConfigMaps", resources.CONFIG_MAPS, Config), of_mesh=True
)
MESH_SECRETS: Final = dataclasses.replace(
    _need("mesh-secrets", "the mesh's issuer, without its key", resources.SECRETS, MeshSecret), of_mesh=True
)
MESH_PODS: Final = _need("mesh-pods", "Pods", resources.PODS, MeshPod)
MESH_WORKLOADS: Final = _need(
    "mesh-workloads", "MeshWorkloads", handfast_kinds.MESH_WORKLOAD, MeshWorkload, if_served=True
)
MESH_POLICIES: Final = _need("mesh-policies", "MeshPolicies", handfast_kinds.MESH_POLICY, Whole, if_served=True)
SERVER_LEASES: Final = _need(
    "server-leases",
    "Leases of API servers",
    resources.LEASES,
    Lease,
    scope=api.Scope(namespace=server_leases.NAMESPACE, label_selector=server_leases.LABEL),
)
