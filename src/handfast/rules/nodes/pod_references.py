# SPDX-License-Identifier: Apache-2.0
"""Which objects of the API a mirror Pod refers to. It may refer to none: a static Pod runs without the API.

References of references (a claim's volume and its Secret) are not followed, and it does not decide who may name what.
What a kubelet has to read of an ordinary Pod is in `references`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from handfast import errors
from handfast.api import jsonpath
from handfast.rules.nodes import references

Spec = Mapping[str, Any]

# Kinds of volumes that name no other object, once those with a Secret in them have been seen to.
_ALONE = frozenset(
    {
        "awsElasticBlockStore",
        "azureDisk",
        "cephfs",
        "cinder",
        "downwardAPI",
        "emptyDir",
        "fc",
        "flexVolume",
        "flocker",
        "gcePersistentDisk",
        "gitRepo",
        "hostPath",
        "image",
        "iscsi",
        "nfs",
        "photonPersistentDisk",
        "portworxVolume",
        "quobyte",
        "rbd",
        "scaleIO",
        "storageos",
        "vsphereVolume",
    }
)
_NAMED = {
    "azureFile": "secrets (via azureFile volumes)",
    "configMap": "configmaps (via configmap volumes)",
    "csi": "csidrivers (via CSI volumes)",
    "ephemeral": "persistentvolumeclaims (via ephemeral volumes)",
    "glusterfs": "endpoints (via glusterFS volumes)",
    "persistentVolumeClaim": "persistentvolumeclaims",
    "secret": "secrets (via secret volumes)",
}
_PLAIN = (
    references.SERVICE_ACCOUNTS,
    references.SECRETS,
    references.CONFIG_MAPS,
    references.RESOURCE_CLAIMS,
)
_PROJECTED = {
    "clusterTrustBundle": "clustertrustbundles",
    "configMap": "configmaps (via projected volumes)",
    "podCertificate": "podcertificates",
    "secret": "secrets (via projected volumes)",
    "serviceAccountToken": "serviceaccounts (via projected volumes)",
}


def is_mirror(pod: Mapping[str, Any]) -> bool:
    """Whether this is a mirror Pod, which only shows a Pod that a kubelet runs from a file."""
    return references.MIRROR in jsonpath.mapping(pod, "metadata", "annotations")


def secrets(spec: Spec) -> list[str]:
    """The names of the Secrets: for pulling images, in environments, in volumes."""
    return sorted(name for kind, name in _references(spec) if kind == references.SECRETS)


def api_object(spec: Spec) -> str | None:
    """What kind of object the spec names first, None if none; a volume of a kind not known here is an error."""
    plain = {kind for kind, _ in _references(spec)}
    if jsonpath.sequence(spec, "resourceClaims"):
        plain.add(references.RESOURCE_CLAIMS)
    for kind in _PLAIN:
        if kind in plain:
            return kind
    named = (_volume(volume) for volume in jsonpath.mappings(spec, "volumes"))
    return next((kind for kind in named if kind is not None), None)


def _references(spec: Spec) -> frozenset[references.Reference]:
    # As of a Pod that a node runs. A mirror Pod gives its node nothing to read, but it may not name anything either.
    return references.pod("", "pod", {"spec": {**spec, "nodeName": "any"}}).references


def _volume(volume: Mapping[str, Any]) -> str | None:
    kinds = _present(volume) - {"name"}
    if not kinds or kinds - _ALONE - _NAMED.keys() - {"projected"}:
        raise errors.Refused(f"unknown volume type for volume  {_name_of(volume)}", reason="UnknownVolume")
    for source in jsonpath.mappings(volume, "projected", "sources"):
        sources = _present(source)
        if not sources or sources - _PROJECTED.keys() - {"downwardAPI"}:
            raise errors.Refused(f"unknown source for projected volume {_name_of(volume)}", reason="UnknownVolume")
        for kind in sorted(sources & _PROJECTED.keys()):
            return _PROJECTED[kind]
    return next((_NAMED[kind] for kind in sorted(kinds & _NAMED.keys())), None)


def _present(value: Mapping[str, Any]) -> set[str]:
    return {key for key, content in value.items() if content is not None}


def _name_of(volume: Mapping[str, Any]) -> str:
    return json.dumps(volume.get("name") or "", ensure_ascii=False)
