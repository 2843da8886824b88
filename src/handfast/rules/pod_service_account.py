# SPDX-License-Identifier: Apache-2.0
"""What a new Pod gets from its ServiceAccount: the name, the pull secrets and the token that its containers mount.

It looks up nothing: the account is given, and so is what is random. Whether the caller may use the account is nobody's
question in Kubernetes: whoever may create Pods in a namespace may use its accounts.

1. A mirror Pod is left as it is, and may name no account and no Secret and project no token.
2. Without a name, the account is `default`; `serviceAccount`, the old name of the field, always says the same.
3. The token is mounted if the Pod says so, else as the account says, else always: one projected volume
   `kube-api-access-<suffix>` with a token of 3607 seconds (so that it may be told from one that a Pod asked for), the
   cluster's CA and the namespace; in every container that mounts nothing there itself.
4. Without pull secrets, those of the account.
5. An account that says `kubernetes.io/enforce-mountable-secrets` lets its Pods name only the Secrets it lists.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from handfast.api import jsonpath, objects
from handfast.rules import decision
from handfast.rules.nodes import pod_references

RULE = "ServiceAccount"
DEFAULT = "default"
VOLUME_PREFIX = "kube-api-access-"
MOUNT_PATH = "/var/run/secrets/kubernetes.io/serviceaccount"
ROOT_CA = "kube-root-ca.crt"
TOKEN_SECONDS = 3607

_ENFORCE = "kubernetes.io/enforce-mountable-secrets"
# What Go's ParseBool takes for true.
_TRUE = frozenset({"1", "t", "T", "true", "TRUE", "True"})
_CONTAINERS = (("initContainers", "init container"), ("containers", "container"))


def mirror(pod: objects.Document) -> decision.Deny | None:
    """Why a mirror Pod is refused, if it is."""
    # 1. no account, no Secret, no token
    spec = jsonpath.mapping(pod, "spec")
    if jsonpath.text(spec, "serviceAccountName"):
        return _refuse("a mirror pod may not reference service accounts")
    if pod_references.secrets(spec):
        return _refuse("a mirror pod may not reference secrets")
    for volume in jsonpath.mappings(spec, "volumes"):
        for source in jsonpath.mappings(volume, "projected", "sources"):
            if source.get("serviceAccountToken") is not None:
                return _refuse("a mirror pod may not use ServiceAccountToken volume projections")
    return None


def choose(pod: objects.Document) -> str:
    """The name of the account, written into the Pod where it was not."""
    # 2. `default`, and the same under both names
    spec = pod["spec"]
    name = jsonpath.text(spec, "serviceAccountName") or DEFAULT
    spec["serviceAccountName"] = spec["serviceAccount"] = name
    return name


def absent(namespace: str, name: str) -> decision.Deny:
    """The refusal when there is no such account."""
    sentence = f'error looking up service account {namespace}/{name}: serviceaccount "{name}" not found'
    return decision.Deny("NoSuchAccount", sentence, RULE)


def apply(pod: objects.Document, account: objects.Document, suffix: str) -> decision.Deny | None:
    """Write into the Pod what the account gives it, then check whether it may."""
    spec = pod["spec"]
    # 3. the token is mounted
    if _mounts(spec, account):
        _mount(spec, suffix)
    # 4. the account's pull secrets
    pull = jsonpath.mappings(account, "imagePullSecrets")
    if pull and not jsonpath.sequence(spec, "imagePullSecrets"):
        spec["imagePullSecrets"] = [{"name": jsonpath.text(secret, "name")} for secret in pull]
    # 5. only the Secrets that the account lists
    if jsonpath.text(account, "metadata", "annotations", _ENFORCE) in _TRUE:
        return next((_refuse(sentence) for sentence in _not_mountable(spec, account)), None)
    return None


def token_volume(name: str) -> dict[str, Any]:
    """The volume of 3, with every default written out."""
    return {
        "name": name,
        "projected": {
            "defaultMode": 420,
            "sources": [
                {"serviceAccountToken": {"expirationSeconds": TOKEN_SECONDS, "path": "token"}},
                {"configMap": {"name": ROOT_CA, "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
                {
                    "downwardAPI": {
                        "items": [
                            {
                                "path": "namespace",
                                "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"},
                            }
                        ]
                    }
                },
            ],
        },
    }


def _mounts(spec: Mapping[str, Any], account: objects.Document) -> bool:
    for wish in (spec.get("automountServiceAccountToken"), account.get("automountServiceAccountToken")):
        if wish is not None:
            return bool(wish)
    return True


def _mount(spec: dict[str, Any], suffix: str) -> None:
    names = (jsonpath.text(volume, "name") for volume in jsonpath.mappings(spec, "volumes"))
    # A Pod copied from a running one brings the volume of its first life along.
    present = next((name for name in names if name.startswith(VOLUME_PREFIX)), "")
    name = present or VOLUME_PREFIX + suffix
    needed = False
    for kind, _ in _CONTAINERS:
        for container in jsonpath.mappings(spec, kind):
            mounts = jsonpath.mappings(container, "volumeMounts")
            if all(mount.get("mountPath") != MOUNT_PATH for mount in mounts):
                mount = {"name": name, "readOnly": True, "mountPath": MOUNT_PATH}
                container["volumeMounts"] = [*mounts, mount]
                needed = True
    if needed and not present:
        spec["volumes"] = [*jsonpath.mappings(spec, "volumes"), token_volume(name)]


def _not_mountable(spec: Mapping[str, Any], account: objects.Document) -> Iterator[str]:
    owner = jsonpath.text(account, "metadata", "name")
    secrets = {jsonpath.text(secret, "name") for secret in jsonpath.mappings(account, "secrets")}
    why = f"is not allowed because service account {owner} does not reference that"
    for volume in jsonpath.mappings(spec, "volumes"):
        secret = jsonpath.text(volume, "secret", "secretName")
        if volume.get("secret") is not None and secret not in secrets:
            yield f'volume with secret.secretName="{secret}" {why} secret'
    for where, secret in _in_environments(spec):
        if secret not in secrets:
            yield f'{where} referencing secret.secretName="{secret}" {why} secret'
    pull = {jsonpath.text(secret, "name") for secret in jsonpath.mappings(account, "imagePullSecrets")}
    for position, reference in enumerate(jsonpath.mappings(spec, "imagePullSecrets")):
        if (secret := jsonpath.text(reference, "name")) not in pull:
            yield f'imagePullSecrets[{position}].name="{secret}" {why} imagePullSecret'


def _in_environments(spec: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for kind, called in _CONTAINERS:
        for container in jsonpath.mappings(spec, kind):
            name = jsonpath.text(container, "name")
            for variable in jsonpath.mappings(container, "env"):
                if jsonpath.at(variable, "valueFrom", "secretKeyRef") is not None:
                    secret = jsonpath.text(variable, "valueFrom", "secretKeyRef", "name")
                    yield f"{called} {name} with envVar {jsonpath.text(variable, 'name')}", secret
            for source in jsonpath.mappings(container, "envFrom"):
                if source.get("secretRef") is not None:
                    yield f"{called} {name} with envFrom", jsonpath.text(source, "secretRef", "name")


def _refuse(sentence: str) -> decision.Deny:
    return decision.Deny("NotAllowed", sentence, RULE)
