# SPDX-License-Identifier: Apache-2.0
"""The objects of the benchmark, and a store filled with them before the server starts.

Values are written by the server's own store engine in its own envelope, only in larger transactions, so that what the
server finds is what it would have written. It does not measure anything.
"""

from __future__ import annotations

import itertools
import pathlib
import uuid
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from handfast.api import handfast_kinds, kinds, objects
from handfast.apiserver.state import envelope
from handfast.assembly import apiserver
from handfast.datadir import layout, preparation
from handfast.pki import seal
from handfast.runtime import addresses, clock
from handfast.store.sqlite import file as sqlite_file
from handfast.store.sqlite import writer

# Group, version and plural, and the document.
Stored = tuple[tuple[str, str, str], objects.Document]

NAMESPACE = "default"
COLLECTION = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
_BATCH = 5000
_RBAC = "rbac.authorization.k8s.io"
# With its metadata, an object of 2.8 kB as served.
_DATA = {f"setting-{number}": f"{number:x}" * 244 for number in range(10)}


def document(name: str, revision: int = 0) -> objects.Document:
    """A ConfigMap as a client sends it; all have the same size."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name},
        "data": {**_DATA, "revision": f"{revision:08d}"},
    }


def body(name: str, revision: int = 0) -> bytes:
    return msgspec.json.encode(document(name, revision))


def name(number: int, objects_: int) -> str:
    """The name of one of the preloaded objects."""
    return f"object-{number * 1_000_000 // objects_:06d}"


def between(number: int, total: int) -> str:
    """A name that sorts somewhere among the preloaded ones, evenly spread."""
    return f"object-{number * 1_000_000 // total:06d}-new"


def pod_namespace(number: int) -> str:
    return f"team-{number % 50}"


def pod(number: int, node: int, phase: str = "Pending") -> objects.Document:
    """A Pod as stored, on a node, with references of every common kind."""
    name, space = f"pod-{number}", pod_namespace(number)
    environment: list[dict[str, Any]] = [{"name": f"SETTING_{index}", "value": f"value-{index}"} for index in range(8)]
    environment.append({"name": "KEY", "valueFrom": {"secretKeyRef": {"name": f"secret-{number}", "key": "key"}}})
    container = {
        "name": "main",
        "image": "registry.example/team/application:1.2.3",
        "env": environment,
        "envFrom": [{"configMapRef": {"name": f"config-{number}"}}],
        "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"memory": "128Mi"}},
        "volumeMounts": [{"name": "api", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}],
    }
    sources = [
        {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
    ]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": space, "uid": f"uid-{number}", "labels": {"app": f"app-{number % 97}"}},
        "spec": {
            "nodeName": f"node-{node}",
            "serviceAccountName": "default",
            "imagePullSecrets": [{"name": "registry"}],
            "containers": [container],
            "volumes": [
                {"name": "api", "projected": {"sources": sources}},
                {"name": "data", "persistentVolumeClaim": {"claimName": f"claim-{number}"}},
                {"name": "tls", "secret": {"secretName": f"tls-{number}"}},
            ],
        },
        "status": {"phase": phase, "conditions": [{"type": "Ready", "status": "False"}], "hostIP": "192.0.2.1"},
    }


def _binding(number: int) -> objects.Document:
    subject = {"apiGroup": _RBAC, "kind": "User", "name": f"user-{number}"}
    return {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "RoleBinding",
        "metadata": {"name": f"binding-{number}", "namespace": pod_namespace(number)},
        "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": "view"},
        "subjects": [subject],
    }


def _config_map(number: int, count: int) -> objects.Document:
    made = document(name(number, count))
    made["metadata"]["namespace"] = NAMESPACE
    return made


def fill(directory: pathlib.Path, count: int, *, mixed: bool = False) -> None:
    """Make a data directory whose store holds `count` objects.

    They are ConfigMaps; `mixed`: half of them Pods, thirty to a node, and a fifth RoleBindings.
    """
    write(directory, (_one_of_many(number, count, number % 10 if mixed else 9) for number in range(count)))


def _one_of_many(number: int, count: int, row: int) -> Stored:
    if row < 5:
        return ("", "v1", "pods"), pod(number, number // 60, "Running")
    if row < 7:
        return (_RBAC, "v1", "rolebindings"), _binding(number)
    return ("", "v1", "configmaps"), _config_map(number, count)


def fill_nodes(directory: pathlib.Path, count: int) -> None:
    """Make a data directory whose store holds `count` nodes, each with its Lease."""
    write(directory, (made for number in range(count) for made in node(f"node-{number:05d}")))


def node(name: str, labels: Mapping[str, str] | None = None) -> Iterator[Stored]:
    """A Node and its Lease."""
    address = {"type": "Hostname", "address": name}
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "ready"}
    all_labels = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", **(labels or {})}
    document = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": all_labels},
        "status": {"addresses": [address], "conditions": [ready]},
    }
    lease = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name, "namespace": "kube-node-lease"},
        "spec": {"holderIdentity": name, "leaseDurationSeconds": 40},
    }
    yield ("", "v1", "nodes"), document
    yield ("coordination.k8s.io", "v1", "leases"), lease


def write(directory: pathlib.Path, documents: Iterable[Stored]) -> None:
    """Make a data directory whose store holds these."""
    place = layout.Layout.at(directory)
    now = clock.SystemClock().now()
    preparation.prepare(place, server=addresses.Address("127.0.0.1", 6443), now=now)
    table = kinds.Table((*kinds.builtin(), *handfast_kinds.rows()))
    envelopes = envelope.Envelopes(seal.Sealer.from_text(place.encryption_key.read_text()), apiserver.SEALED)
    file = sqlite_file.OpenFile(str(place.store("store.db")))
    left, state = iter(documents), file.state
    try:
        while batch := tuple(itertools.islice(left, _BATCH)):
            file.writing.execute("BEGIN IMMEDIATE")
            transaction = writer.Transaction(file.writing, state)
            for resource, made in batch:
                kind = table.find(*resource)
                if kind is None:
                    raise LookupError(f"no kind {resource}")
                made["metadata"] |= {"uid": str(uuid.uuid4()), "creationTimestamp": objects.timestamp(now)}
                key = kind.key(made["metadata"].get("namespace", ""), made["metadata"]["name"])
                payload = envelope.encode_document(made)
                transaction.create(key, envelopes.wrap(key, kind.storage_api_version, payload))
            file.writing.execute("COMMIT")
            state = transaction.state()
    finally:
        file.close()
