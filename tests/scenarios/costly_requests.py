# SPDX-License-Identifier: Apache-2.0
"""The requests that were seen to stop the server, by name and at the sizes they had; nothing here is under test."""

from __future__ import annotations

import base64
import functools
import json
from collections.abc import Callable
from typing import Any

from handfast.api import signer_names
from handfast.api.codec import bounds
from handfast.pki import keys, names, requests
from tests.world import stalls
from tests.world.stalls import ANONYMOUS, EDIT, NODE, TOKEN, USER, Attack

CSRS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"
LIMIT_RANGES = "/api/v1/namespaces/default/limitranges"
QUOTAS = "/api/v1/namespaces/default/resourcequotas"
SELF_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
JSON_PATCH = "application/json-patch+json"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"
YAML = "application/yaml"

Body = Callable[[str], bytes]


@functools.cache
def signing_request() -> str:
    """A good request of a node, in base64."""
    subject = names.Subject(common_name=f"system:node:{stalls.NODE_NAME}", organizations=("system:nodes",))
    return base64.b64encode(requests.build(subject, names.Sans(), keys.generate(keys.Kind.P256))).decode()


def csr(name: str, metadata: Any = None, more: Any = None, **spec: Any) -> bytes:
    return dump(
        {
            "apiVersion": "certificates.k8s.io/v1",
            "kind": "CertificateSigningRequest",
            "metadata": {"name": name, **(metadata or {})},
            "spec": {
                "request": signing_request(),
                "signerName": signer_names.KUBELET_CLIENT,
                "usages": ["digital signature", "client auth"],
                **spec,
            },
            **(more or {}),
        }
    )


def dump(document: Any) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()


def config_map(name: str) -> Any:
    return {
        "metadata": {"name": name, "annotations": {"a": "b"}, "finalizers": ["example.com/kept"]},
        "data": {"a": "b"},
    }


def pod(name: str) -> Any:
    return {"metadata": {"name": name}, "spec": {"containers": [{"name": "web", "image": "web:1"}]}}


def large_pod(name: str) -> Any:
    """As large as an object may be that 10,000 more items go into, and most of it one list."""
    made = pod(name)
    made["spec"]["containers"][0]["args"] = ["a"] * (bounds.USUAL - 11_000)
    return made


def clean(collection: str) -> tuple[tuple[str, str], ...]:
    return (("DELETE", f"{collection}/{{name}}?gracePeriodSeconds=0"),)


def token_csr(title: str, body: Body, caller: str = TOKEN) -> Attack:
    return Attack(name=title, caller=caller, method="POST", path=CSRS, body=body, after=clean(CSRS))


def patched(title: str, collection: str, base: Callable[[str], Any], media: str, body: Body, query: str = "") -> Attack:
    return Attack(
        name=title,
        caller=EDIT,
        method="PATCH",
        path=f"{collection}/{{name}}{query}",
        body=body,
        media=media,
        before=(("POST", collection, base),),
        after=clean(collection),
        may_be_refused=True,
    )


def operations(count: int, one: Callable[[int], Any]) -> Body:
    return lambda _: dump([one(number) for number in range(count)])


def many_containers(name: str, count: int = 40_000) -> bytes:
    containers = [{"name": f"c{number}", "image": "web:1"} for number in range(count)]
    return dump({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": containers}})


def limited_pod(name: str) -> bytes:
    """As many containers as a Pod may have, each of which says what it wants: it held the server for 30 ms, and now for 4."""
    amounts = {"cpu": "100m", "memory": "123Mi"}
    containers = [
        {"name": f"c{number}", "image": "web:1", "resources": {"requests": amounts, "limits": amounts}}
        for number in range(1000)
    ]
    return dump({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": containers}})


def limit_range(name: str) -> Any:
    bounds_of_all = {"min": {"cpu": "1m", "memory": "1"}, "max": {"cpu": "9", "memory": "9Gi"}}
    rows = [{"type": "Container", "default": {"cpu": "1"}, **bounds_of_all}, {"type": "Pod", "max": {"cpu": "9k"}}]
    return {"metadata": {"name": name}, "spec": {"limits": rows}}


def quota(name: str) -> Any:
    hard = {"requests.cpu": "9k", "requests.memory": "9Ti", "limits.cpu": "9k", "limits.memory": "9Ti", "pods": "9"}
    status_of_it = {"hard": hard, "used": dict.fromkeys(hard, "0")}
    return {"metadata": {"name": name}, "spec": {"hard": hard}, "status": status_of_it}


def yaml_keys(name: str, count: int = 90_000) -> bytes:
    head = f"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\ndata:\n"
    return (head + "".join(f"  k{number}: v\n" for number in range(count))).encode()


def review(spec: Any) -> Body:
    document = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": spec}
    return lambda _: dump(document)


def field_selector(length: int = 28_000) -> str:
    term = "metadata.name%21=a,"
    return term * (length // len(term)) + "metadata.name=b"


NAMED: tuple[Attack, ...] = (
    token_csr("csr-10000-distinct-usages", lambda name: csr(name, usages=[f"u{number}" for number in range(10_000)])),
    token_csr("csr-100000-equal-usages", lambda name: csr(name, usages=["any"] * 100_000)),
    token_csr("csr-700000-equal-usages", lambda name: csr(name, usages=[""] * 700_000)),
    token_csr("csr-50000-empty-owners", lambda name: csr(name, metadata={"ownerReferences": [{}] * 50_000})),
    token_csr(
        "csr-50000-empty-owners-by-node", lambda name: csr(name, metadata={"ownerReferences": [{}] * 50_000}), NODE
    ),
    token_csr("csr-unknown-field-of-empty-lists", lambda name: csr(name, more={"unknown": [[]] * 900_000})),
    patched(
        "json-patch-10000-front-inserts",
        CONFIG_MAPS,
        config_map,
        JSON_PATCH,
        operations(
            10_000, lambda number: {"op": "add", "path": "/metadata/finalizers/0", "value": f"example.com/{number}"}
        ),
    ),
    patched(
        "json-patch-10000-copies",
        CONFIG_MAPS,
        config_map,
        JSON_PATCH,
        operations(
            10_000,
            lambda number: {
                "op": "copy",
                "from": "/metadata/annotations/a",
                "path": f"/metadata/annotations/k{number}",
            },
        ),
    ),
    patched(
        "json-patch-10000-copies-of-lists",
        CONFIG_MAPS,
        config_map,
        JSON_PATCH,
        operations(
            10_000, lambda _: {"op": "copy", "from": "/metadata/finalizers/0", "path": "/metadata/finalizers/0"}
        ),
    ),
    patched(
        "json-patch-10000-front-inserts-large",
        PODS,
        large_pod,
        JSON_PATCH,
        operations(10_000, lambda _: {"op": "add", "path": "/spec/containers/0/args/0", "value": "b"}),
    ),
    patched(
        "json-patch-10000-copies-large",
        PODS,
        large_pod,
        JSON_PATCH,
        operations(
            10_000,
            lambda _: {"op": "copy", "from": "/spec/containers/0/args/9", "path": "/spec/containers/0/args/0"},
        ),
    ),
    Attack(
        name="apply-40000-containers",
        caller=EDIT,
        method="PATCH",
        path=f"{PODS}/{{name}}?fieldManager=one",
        body=many_containers,
        media=APPLY,
        after=clean(PODS),
    ),
    Attack(
        name="pod-1000-containers-under-a-limit-range-and-a-quota",
        caller=EDIT,
        method="POST",
        path=PODS,
        body=limited_pod,
        before=(
            ("POST", LIMIT_RANGES, limit_range),
            ("POST", QUOTAS, quota),
            ("PUT", f"{QUOTAS}/{{name}}/status", quota),
        ),
        after=(*clean(PODS), *clean(LIMIT_RANGES), *clean(QUOTAS)),
    ),
    Attack(
        name="review-900000-empty-objects",
        caller=USER,
        method="POST",
        path=SELF_REVIEWS,
        body=review({"resourceAttributes": {"labelSelector": {"requirements": [{}] * 900_000}}}),
    ),
    Attack(
        name="review-900000-unknown-empty-objects",
        caller=USER,
        method="POST",
        path=SELF_REVIEWS,
        body=review({"unknown": [{}] * 900_000}),
    ),
    Attack(
        name="yaml-90000-keys",
        caller=EDIT,
        method="POST",
        path=CONFIG_MAPS,
        body=yaml_keys,
        media=YAML,
        after=clean(CONFIG_MAPS),
    ),
    Attack(
        name="yaml-90000-keys-in-a-review",
        caller=USER,
        method="POST",
        path=SELF_REVIEWS,
        body=lambda _: b"spec:\n" + b"".join(b"  k%d: v\n" % number for number in range(90_000)),
        media=YAML,
    ),
    Attack(
        name="anonymous-field-selector-28k",
        caller=ANONYMOUS,
        method="GET",
        path=f"{PODS}?fieldSelector={field_selector()}",
    ),
    Attack(
        name="anonymous-label-selector-28k",
        caller=ANONYMOUS,
        method="GET",
        path=f"{PODS}?labelSelector={'a,' * 14_000}b",
    ),
)
