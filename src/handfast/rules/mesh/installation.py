# SPDX-License-Identifier: Apache-2.0
"""The objects that a mesh begins with, and what is read back from them. Documents only: who applies them is the caller's.

1. Namespace and accounts come before what is in them; what an account may do is in `rights`.
2. The trust anchors come before the issuer's key, and the settings after both: where they are, the mesh is in use. The webhook comes last.
3. Anchors that were made here say so. A run that was cut short before the key was stored has left anchors whose key is gone: such
   ones are made again, those of an operator never.
4. Who installs the mesh is added to those who read the trust anchors and the settings, and nobody is taken away.
5. The Secret of the injector's pair is made empty and never written again, and the bundle of its webhook stays: both are the injector's.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from handfast import errors
from handfast.api import handfast_kinds, jsonpath, objects
from handfast.bootstrap import first_objects
from handfast.rules.mesh import control_plane, issuer, rights, services, settings, webhook
from handfast.rules.rbac import policy_rules

# 3. on a ConfigMap whose anchors were made here
GENERATED: Final = "mesh.handfast.dev/generated"
# On the same one, while the root is replaced: who is to have signed (`certify.issuer_tag`), so that agents renew.
SIGNER: Final = "mesh.handfast.dev/signer"
INSTALLERS: Final = "linkerd-installers"

_RBAC: Final = policy_rules.GROUP
_COUNTS: Final = ("rules", "subjects", "roleRef", "data")
_DEFINITIONS: Final = "apiextensions.k8s.io"
# Handfast's own kinds that the services use.
KINDS: Final = (
    handfast_kinds.ISSUANCE_LOG,
    handfast_kinds.REVOCATION,
    handfast_kinds.MESH_POLICY,
    handfast_kinds.MESH_WORKLOAD,
)


def kinds() -> tuple[first_objects.FirstObject, ...]:
    """The definitions of `KINDS`, for an API server that does not have them."""
    return tuple(
        first_objects.FirstObject(
            _DEFINITIONS, "v1", "customresourcedefinitions", False, handfast_kinds.definition(row)
        )
        for row in KINDS
    )


def access(namespace: str, installers: Sequence[str]) -> tuple[first_objects.FirstObject, ...]:
    """Namespace, accounts and rights (1); `installers` are the users that read settings and anchors (4)."""
    accounts = (
        _object("", "serviceaccounts", "ServiceAccount", namespace, name, {}) for name in control_plane.ACCOUNTS
    )
    granted = (
        each
        for name in control_plane.ACCOUNTS
        for each in (
            *_granted(
                "",
                f"linkerd-{namespace}-{name.removeprefix('linkerd-')}",
                rights.EVERYWHERE[name],
                [_account(namespace, name)],
            ),
            *_granted(namespace, name, rights.OWN[name], [_account(namespace, name)]),
        )
    )
    readers = _granted(namespace, INSTALLERS, [rights.SHARED], [_user(name) for name in installers])
    return (
        _object("", "namespaces", "Namespace", "", namespace, {}),
        *accounts,
        *granted,
        *(readers if installers else ()),
    )


def trust(
    namespace: str, material: issuer.Material, *, generated: bool
) -> tuple[first_objects.FirstObject, first_objects.FirstObject]:
    """The ConfigMap with the anchors, then the Secret with issuer and key (2)."""
    data = {
        control_plane.CERTIFICATE_KEY: base64.b64encode(material.certificate).decode("ascii"),
        control_plane.PRIVATE_KEY_KEY: base64.b64encode(material.key).decode("ascii"),
    }
    anchors = _object(
        "",
        "configmaps",
        "ConfigMap",
        namespace,
        control_plane.TRUST_ANCHOR,
        {"data": {control_plane.ANCHORS_KEY: material.anchors.decode()}},
    )
    if generated:
        # 3. made here
        anchors.document["metadata"]["annotations"] = {GENERATED: "true"}
    return anchors, _object("", "secrets", "Secret", namespace, control_plane.SIGNING, {"type": "Opaque", "data": data})


def config(namespace: str, chosen: settings.Settings) -> first_objects.FirstObject:
    """The ConfigMap with the settings, the last object (2)."""
    return _object("", "configmaps", "ConfigMap", namespace, control_plane.CONFIG, {"data": settings.data(chosen)})


def read_signing(secret: objects.Document) -> tuple[bytes, bytes]:
    """Issuer and key of the Secret; nothing where there is none, which `issuer.load` refuses."""
    data = jsonpath.mapping(secret, "data")
    return _decoded(data, control_plane.CERTIFICATE_KEY), _decoded(data, control_plane.PRIVATE_KEY_KEY)


def read_anchors(config_map: objects.Document) -> bytes:
    """The anchors of the ConfigMap, likewise."""
    return jsonpath.text(config_map, "data", control_plane.ANCHORS_KEY).encode()


def read_material(secret: objects.Document, config_map: objects.Document) -> issuer.Material:
    """Issuer, key and anchors as they are stored, not judged yet."""
    return issuer.Material(*read_signing(secret), read_anchors(config_map))


def is_generated(config_map: objects.Document) -> bool:
    """Whether anchors were made here (3)."""
    return jsonpath.text(config_map, "metadata", "annotations", GENERATED) == "true"


def installers(binding: objects.Document | None, user: str) -> tuple[str, ...]:
    """Who reads settings and anchors: whom the binding has, and the one who installs now (4)."""
    there = [jsonpath.text(row, "name") for row in jsonpath.mappings(binding, "subjects") if row.get("kind") == "User"]
    return tuple(dict.fromkeys(name for name in (*there, user) if name))


def updated(there: objects.Document, wanted: first_objects.FirstObject) -> objects.Document:
    """The object with the wanted one's parts that count in place of its own. What others wrote beside them stays."""
    # 5. the injector's
    if wanted.plural == webhook.PLURAL:
        return webhook.kept(there, wanted)
    if wanted.name == webhook.PAIR:
        return there
    if wanted.plural in {services.PLURAL, services.SLICES}:
        return services.updated(there, wanted)
    if all(there.get(key) == wanted.document.get(key) for key in _COUNTS):
        return there
    changed: objects.Document = {**there, **{key: wanted.document[key] for key in _COUNTS if key in wanted.document}}
    annotations = dict(jsonpath.mapping(there, "metadata", "annotations"))
    annotations.pop(GENERATED, None)
    annotations |= jsonpath.mapping(wanted.document, "metadata", "annotations")
    changed["metadata"] = {**there["metadata"], "annotations": annotations}
    return changed


def require_same_role(there: objects.Document, wanted: first_objects.FirstObject) -> None:
    """Return unless a binding is there for another role: which one it is for can never be changed."""
    if there.get("roleRef") != wanted.document.get("roleRef"):
        raise errors.Refused(
            f"{wanted.title} is there, and binds another role: {jsonpath.text(there, 'roleRef', 'name')}",
            reason="BindingOfAnotherRole",
            hint="delete it, and run this again",
        )


def _decoded(data: Mapping[str, Any], key: str) -> bytes:
    try:
        return base64.b64decode(str(data.get(key) or ""), validate=True)
    except binascii.Error:
        return b""


def _granted(
    namespace: str, name: str, rules: Iterable[policy_rules.PolicyRule], subjects: Sequence[dict[str, str]]
) -> tuple[first_objects.FirstObject, first_objects.FirstObject]:
    """A role in a namespace, or in the cluster, and its binding."""
    role, plural = ("Role", "role") if namespace else ("ClusterRole", "clusterrole")
    reference = {"apiGroup": _RBAC, "kind": role, "name": name}
    binding = {"roleRef": reference, "subjects": list(subjects)}
    return (
        _object(_RBAC, f"{plural}s", role, namespace, name, {"rules": [rule.document() for rule in rules]}),
        _object(_RBAC, f"{plural}bindings", f"{role}Binding", namespace, name, binding),
    )


def _account(namespace: str, name: str) -> dict[str, str]:
    return {"kind": "ServiceAccount", "name": name, "namespace": namespace}


def _user(name: str) -> dict[str, str]:
    return {"apiGroup": _RBAC, "kind": "User", "name": name}


def _object(
    group: str, plural: str, kind: str, namespace: str, name: str, body: dict[str, Any]
) -> first_objects.FirstObject:
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    document = {"apiVersion": f"{group}/v1" if group else "v1", "kind": kind, "metadata": metadata, **body}
    return first_objects.FirstObject(group, "v1", plural, bool(namespace), document)
