# SPDX-License-Identifier: Apache-2.0
"""Which ServiceAccount tokens a node may ask for: those that the Pods bound to it are meant to hold, and no others.

The authorizer decides whether the ServiceAccount is one that the node's Pods use. Tokens are made elsewhere.

1. The token is bound to a Pod, by name and UID.
2. That Pod exists, under that UID, and is bound to the node.
3. At most one audience is asked for, and it is one that the Pod's volumes ask for: a projected token with exactly this
   audience, or a CSI driver that wants one. A volume whose driver cannot be found out is an error, not a yes.
4. Or else the authorizer allows the node `request-serviceaccounts-token-audience` for this audience and account.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from handfast import errors
from handfast.api import jsonpath, objects, status
from handfast.rules import access, decision
from handfast.rules.nodes import restricted_write

VERB = "request-serviceaccounts-token-audience"

# Kinds of volumes from before CSI -> the driver that serves them now.
_MIGRATED = {
    "awsElasticBlockStore": "ebs.csi.aws.com",
    "azureDisk": "disk.csi.azure.com",
    "azureFile": "file.csi.azure.com",
    "cinder": "cinder.csi.openstack.org",
    "gcePersistentDisk": "pd.csi.storage.gke.io",
    "portworxVolume": "pxd.portworx.com",
    "vsphereVolume": "csi.vsphere.vmware.com",
}


def judge(node: str, write: restricted_write.Write, known: restricted_write.Known) -> decision.Deny | None:
    """Why a node may not have this token, if it may not (1 to 4). Other writes of ServiceAccounts are not judged here."""
    if write.operation != restricted_write.CREATE or write.subresource != "token":
        return None
    # 1. bound to a Pod, by name and UID
    bound = jsonpath.mapping(write.document, "spec", "boundObjectRef")
    name, uid = jsonpath.text(bound, "name"), jsonpath.text(bound, "uid")
    if (bound.get("apiVersion"), bound.get("kind")) != ("v1", "Pod") or not name:
        return restricted_write.refuse("NotBound", "node requested token not bound to a pod")
    if not uid:
        return restricted_write.refuse("NoUid", "node requested token with a pod binding without a uid")
    # 2. which exists, and is bound to the node
    pod = known.find("core/pods/", write.namespace, name)
    if pod is None:
        return restricted_write.missing("pod", name)
    if jsonpath.text(pod, "metadata", "uid") != uid:
        return restricted_write.refuse(
            "OtherUid",
            f"the UID in the bound object reference ({uid}) does not match the UID in record. "
            "The object might have been deleted and then recreated",
        )
    if jsonpath.text(pod, "spec", "nodeName") != node:
        return restricted_write.refuse("OtherNode", "node requested token bound to a pod scheduled on a different node")
    return _audience(pod, write, known)


def _audience(
    pod: objects.Document, write: restricted_write.Write, known: restricted_write.Known
) -> decision.Deny | None:
    # 3. for an audience that the Pod asks for
    audiences = jsonpath.sequence(write.document, "spec", "audiences")
    if len(audiences) > 1:
        return restricted_write.refuse("Audiences", "node may only request 0 or 1 audiences")
    audience = str(audiences[0]) if audiences else ""
    wrong: list[str] = []
    for volume in jsonpath.mappings(pod, "spec", "volumes"):
        try:
            if audience in _audiences(pod, volume, known.find):
                return None
        except errors.Refused as refused:
            wrong.append(refused.message)
    if wrong:
        texts = list(dict.fromkeys(wrong))
        text = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
        return restricted_write.refuse(
            "Audience", f"error validating audience {restricted_write.quoted(audience)}: {text}"
        )
    # 4. or one that the authorizer allows
    verdict = known.decide(
        access.Attributes(
            user=write.user,
            groups=write.groups,
            verb=VERB,
            is_resource=True,
            version="v1",
            plural=audience,
            namespace=write.namespace,
            name=write.name,
        )
    )
    if isinstance(verdict, decision.Approve):
        return None
    return restricted_write.refuse(
        "Audience", f"{write.user} is not authorized to request tokens for audience {restricted_write.quoted(audience)}"
    )


def _audiences(pod: objects.Document, volume: Mapping[str, Any], find: restricted_write.Find) -> Iterator[str]:
    for source in jsonpath.mappings(volume, "projected", "sources"):
        if source.get("serviceAccountToken") is not None:
            yield jsonpath.text(source, "serviceAccountToken", "audience")
    driver = _driver(pod, volume, find)
    if driver:
        csi_driver = _found(find, ("storage.k8s.io", "csidriver"), "", driver)
        for request in jsonpath.mappings(csi_driver, "spec", "tokenRequests"):
            yield jsonpath.text(request, "audience")


def _driver(pod: objects.Document, volume: Mapping[str, Any], find: restricted_write.Find) -> str:
    """The CSI driver behind a volume; empty where there is none."""
    namespace = jsonpath.text(pod, "metadata", "namespace")
    if jsonpath.at(volume, "ephemeral", "volumeClaimTemplate") is not None:
        claim = f"{jsonpath.text(pod, 'metadata', 'name')}-{jsonpath.text(volume, 'name')}"
        return _driver_of_claim(namespace, claim, find)
    if volume.get("persistentVolumeClaim") is not None:
        return _driver_of_claim(namespace, jsonpath.text(volume, "persistentVolumeClaim", "claimName"), find)
    return _direct(volume)


def _driver_of_claim(namespace: str, name: str, find: restricted_write.Find) -> str:
    claim = _found(find, ("", "persistentvolumeclaim"), namespace, name)
    persistent = _found(find, ("", "persistentvolume"), "", jsonpath.text(claim, "spec", "volumeName"))
    return _direct(jsonpath.mapping(persistent, "spec"))


def _direct(volume: Mapping[str, Any]) -> str:
    migrated = (driver for kind, driver in _MIGRATED.items() if volume.get(kind) is not None)
    return jsonpath.text(volume, "csi", "driver") or next(migrated, "")


def _found(find: restricted_write.Find, resource: tuple[str, str], namespace: str, name: str) -> objects.Document:
    group, singular = resource
    document = find(f"{group or 'core'}/{singular}s/", namespace, name)
    if document is None:
        raise status.not_found(singular, group, name)
    return document
