# SPDX-License-Identifier: Apache-2.0
"""What a Pod or a PersistentVolume refers to, as far as the kubelet has to read it. Who may read is not decided here.

References are (plural, name) in the Pod's namespace. Nothing raises on a document of another shape: what cannot be read
refers to nothing, which grants nothing.

1. A Pod without a node refers to nothing: there is no kubelet yet.
2. A mirror Pod refers to nothing: nodes make those themselves, and could otherwise name what they want to read.
3. Its service account, image pull secrets, and what the environment of every container of any kind is taken from.
4. Its volumes: Secrets, ConfigMaps, and claims, those named and those made for it.
5. Its resource claims: those named, and those made for it, which its status names.
6. A PersistentVolume refers to Secrets only when it is claimed, and only to those the kubelet is given.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from handfast.api import jsonpath

SECRETS = "secrets"
CONFIG_MAPS = "configmaps"
CLAIMS = "persistentvolumeclaims"
SERVICE_ACCOUNTS = "serviceaccounts"
RESOURCE_CLAIMS = "resourceclaims"
PODS = "pods"
VOLUMES = "persistentvolumes"
ATTACHMENTS = "volumeattachments"

MIRROR = "kubernetes.io/config.mirror"

Reference = tuple[str, str]

_CONTAINERS = ("initContainers", "containers", "ephemeralContainers")

_VARIABLES = (("secretKeyRef", SECRETS), ("configMapKeyRef", CONFIG_MAPS))
_ENVIRONMENTS = (("secretRef", SECRETS), ("configMapRef", CONFIG_MAPS))

# The type of a Pod's volume -> where the name stands in it, and what it names.
_POD_VOLUMES: Mapping[str, tuple[tuple[str, ...], str]] = {
    "secret": (("secretName",), SECRETS),
    "configMap": (("name",), CONFIG_MAPS),
    "persistentVolumeClaim": (("claimName",), CLAIMS),
    "csi": (("nodePublishSecretRef", "name"), SECRETS),
    "azureFile": (("secretName",), SECRETS),
    "cephfs": (("secretRef", "name"), SECRETS),
    "cinder": (("secretRef", "name"), SECRETS),
    "flexVolume": (("secretRef", "name"), SECRETS),
    "iscsi": (("secretRef", "name"), SECRETS),
    "rbd": (("secretRef", "name"), SECRETS),
    "scaleIO": (("secretRef", "name"), SECRETS),
    "storageos": (("secretRef", "name"), SECRETS),
}
_PROJECTED = (("secret", SECRETS), ("configMap", CONFIG_MAPS))

# The type of a PersistentVolume, the reference in it, and whether the claim's namespace is meant when it names none.
# What only controllers are given (controllerPublish…, controllerExpand…) is left out on purpose.
_VOLUME_SECRETS = (
    ("csi", "nodePublishSecretRef", False),
    ("csi", "nodeStageSecretRef", False),
    ("csi", "nodeExpandSecretRef", False),
    ("cephfs", "secretRef", True),
    ("cinder", "secretRef", False),
    ("flexVolume", "secretRef", True),
    ("iscsi", "secretRef", True),
    ("rbd", "secretRef", True),
    ("scaleIO", "secretRef", True),
    ("storageos", "secretRef", False),
)


class Pod(msgspec.Struct, frozen=True, gc=False):
    """A Pod's place, and what it refers to; a Pod without a node refers to nothing."""

    namespace: str
    name: str
    node: str
    references: frozenset[Reference] = frozenset()


class Volume(msgspec.Struct, frozen=True, gc=False):
    """A PersistentVolume, the claim (namespace, name) it is bound to, and the Secrets (namespace, name) it mounts by."""

    name: str
    claim: tuple[str, str] | None = None
    secrets: tuple[tuple[str, str], ...] = ()


def pod(namespace: str, name: str, document: Any) -> Pod:
    """The facts of a Pod's document. Its place is an argument, since the document may have any shape."""
    spec = jsonpath.mapping(document, "spec")
    node = jsonpath.text(spec, "nodeName")
    # 1. no node, or 2. a mirror Pod: it refers to nothing
    if not node or MIRROR in jsonpath.mapping(document, "metadata", "annotations"):
        return Pod(namespace, name, node)
    references: set[Reference] = set()
    # 3. account, pull secrets, environments
    references.add((SERVICE_ACCOUNTS, jsonpath.text(spec, "serviceAccountName")))
    references.update(
        (SECRETS, jsonpath.text(secret, "name")) for secret in jsonpath.mappings(spec, "imagePullSecrets")
    )
    for kind in _CONTAINERS:
        for container in jsonpath.mappings(spec, kind):
            references.update(_environment(container))
    # 4. volumes
    for volume in jsonpath.mappings(spec, "volumes"):
        references.update(_volume(name, volume))
    # 5. resource claims
    references.update(
        (RESOURCE_CLAIMS, claim) for claim in _resource_claims(spec, jsonpath.mapping(document, "status"))
    )
    return Pod(namespace, name, node, frozenset(reference for reference in references if reference[1]))


def _environment(container: dict[str, Any]) -> Iterator[Reference]:
    for variable in jsonpath.mappings(container, "env"):
        # Most have a plain value; at the start of a server, all Pods of the cluster are read.
        if "valueFrom" in variable:
            for field, kind in _VARIABLES:
                yield kind, jsonpath.text(variable, "valueFrom", field, "name")
    for source in jsonpath.mappings(container, "envFrom"):
        for field, kind in _ENVIRONMENTS:
            yield kind, jsonpath.text(source, field, "name")


def _volume(pod_name: str, volume: dict[str, Any]) -> Iterator[Reference]:
    for source, value in volume.items():
        if source in _POD_VOLUMES:
            path, kind = _POD_VOLUMES[source]
            yield kind, jsonpath.text(value, *path)
    if isinstance(volume.get("ephemeral"), dict) and jsonpath.text(volume, "name"):
        yield CLAIMS, f"{pod_name}-{volume['name']}"
    for projection in jsonpath.mappings(volume, "projected", "sources"):
        for source, kind in _PROJECTED:
            if source in projection:
                yield kind, jsonpath.text(projection, source, "name")


def _resource_claims(spec: dict[str, Any], status: dict[str, Any]) -> Iterator[str]:
    generated = {
        jsonpath.text(claim, "name"): jsonpath.text(claim, "resourceClaimName")
        for claim in jsonpath.mappings(status, "resourceClaimStatuses")
    }
    for claim in jsonpath.mappings(spec, "resourceClaims"):
        # The status counts only where the spec asks for a claim to be made: it cannot add what was not asked for.
        if jsonpath.text(claim, "resourceClaimTemplateName"):
            yield generated.get(jsonpath.text(claim, "name"), "")
        else:
            yield jsonpath.text(claim, "resourceClaimName")
    yield jsonpath.text(status, "extendedResourceClaimStatus", "resourceClaimName")


def volume(name: str, document: Any) -> Volume:
    """The facts of a PersistentVolume's document."""
    spec = jsonpath.mapping(document, "spec")
    claim = jsonpath.text(spec, "claimRef", "namespace"), jsonpath.text(spec, "claimRef", "name")
    # 6. only when it is claimed
    if not all(claim):
        return Volume(name)
    secrets = set()
    for source, field, of_claim in _VOLUME_SECRETS:
        if source in spec:
            namespace = jsonpath.text(spec[source], field, "namespace") or (claim[0] if of_claim else "")
            secrets.add((namespace, jsonpath.text(spec[source], field, "name")))
    azure = jsonpath.mapping(spec, "azureFile")
    secrets.add((jsonpath.text(azure, "secretNamespace") or claim[0], jsonpath.text(azure, "secretName")))
    return Volume(name, claim, tuple(sorted(secret for secret in secrets if all(secret))))


def attachment(document: Any) -> str:
    """The node a VolumeAttachment is for."""
    return jsonpath.text(document, "spec", "nodeName")
