# SPDX-License-Identifier: Apache-2.0
"""Patches, other encodings, deletes, selectors, queries, tables and lists at their limits; nothing here is under test."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator
from typing import Any
from urllib import parse as urls

from handfast.api.schema import schema
from tests.properties import protobuf_wire as wire
from tests.properties import sample_documents
from tests.scenarios import costly_requests as costly
from tests.scenarios import request_shapes as shapes
from tests.world import stalls
from tests.world.stalls import ANONYMOUS, EDIT, NODE, TOKEN, USER, Attack

BODY = shapes.BODY
CONFIG_MAPS, PODS, CSRS = costly.CONFIG_MAPS, costly.PODS, costly.CSRS
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
PROTOBUF = "application/vnd.kubernetes.protobuf"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
PARTIAL = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
OPERATIONS = 10_000
ELEMENTS = 40_000
# As many as fit into an object that has two managers.
SECOND = 1500
Body = costly.Body


def deployment(name: str) -> Any:
    return shapes.base(sample_documents.kind("apps", "deployments"), "", name)


def large_config_map(name: str) -> Any:
    return {"metadata": {"name": name}, "data": {f"k{number}": "v" * 20 for number in range(30_000)}}


def listed_deployment(count: int, name: str) -> Any:
    """With so many arguments, for patches to work on."""
    made = deployment(name)
    made["metadata"]["annotations"] = {"a": "b"}
    made["spec"]["template"]["spec"]["containers"][0]["args"] = ["a"] * count
    return made


# --- JSON patches -----------------------------------------------------------------------------------------------------

_ARGS = "/spec/template/spec/containers/0/args"
_OPERATIONS: dict[str, Callable[[int], dict[str, Any]]] = {
    "add-front": lambda _: {"op": "add", "path": f"{_ARGS}/0", "value": "b"},
    "add-end": lambda _: {"op": "add", "path": f"{_ARGS}/-", "value": "b"},
    "add-objects": lambda _: {"op": "add", "path": f"{_ARGS}/0", "value": {"a": [{}] * 20}},
    "remove-front": lambda _: {"op": "remove", "path": f"{_ARGS}/0"},
    "copy-front": lambda _: {"op": "copy", "from": f"{_ARGS}/5", "path": f"{_ARGS}/0"},
    "copy-all": lambda number: {"op": "copy", "from": "/spec", "path": f"/metadata/x{number}"},
    "move-front": lambda _: {"op": "move", "from": f"{_ARGS}/1000", "path": f"{_ARGS}/0"},
    "move-root": lambda number: {
        "op": "move",
        "from": "/spec" if number % 2 == 0 else "/x",
        "path": "/x" if number % 2 == 0 else "/spec",
    },
    "test-all": lambda _: {"op": "test", "path": f"{_ARGS}", "value": []},
    "test-itself": lambda _: {"op": "test", "path": f"{_ARGS}/0", "value": "a"},
    "replace": lambda _: {"op": "replace", "path": f"{_ARGS}/0", "value": "b"},
    "replace-all": lambda _: {"op": "replace", "path": _ARGS, "value": ["a"] * 20},
    "deep": lambda _: {"op": "add", "path": "/spec" + "/a" * 100, "value": 0},
    "keys": lambda number: {"op": "add", "path": f"/metadata/annotations/k{number}", "value": "b"},
}


def json_patches() -> Iterator[Attack]:
    # A few, and as many as an object has room for.
    for size, count in (("small", 100), ("large", 300_000)):
        made = functools.partial(listed_deployment, count)
        for name, one in _OPERATIONS.items():
            operations = costly.operations(OPERATIONS, one)
            yield costly.patched(f"json-patch {size} {name}", DEPLOYMENTS, made, costly.JSON_PATCH, operations)
    many = costly.operations(200_000, lambda _: {"op": "test"})
    yield costly.patched("json-patch too-many", DEPLOYMENTS, deployment, costly.JSON_PATCH, many)
    for name, fill in (
        ("numbers", shapes.repeated(b"0")),
        ("empty", shapes.repeated(b"{}")),
        ("unknown-keys", lambda size: b"[" + shapes.counted(b'"k%d":0', b"{", b"}")(size) + b"]"),
        ("nested", shapes.nested),
        ("giant-path", lambda size: b'[{"op":"add","value":0,"path":"' + b"/a" * (size // 2) + b'"}]'),
        ("giant-tildes", lambda size: b'[{"op":"add","value":0,"path":"/' + b"~1" * (size // 2) + b'"}]'),
        ("giant-index", lambda size: b'[{"op":"add","value":0,"path":"/metadata/finalizers/' + b"1" * size + b'"}]'),
        ("giant-value", lambda size: b'[{"op":"add","path":"/spec/x","value":' + shapes.repeated(b"{}")(size) + b"}]"),
        ("giant-test", lambda size: b'[{"op":"test","path":"/spec","value":' + shapes.nested(size) + b"}]"),
    ):
        body = functools.partial(_filled, fill)
        yield costly.patched(f"json-patch {name}", DEPLOYMENTS, deployment, costly.JSON_PATCH, body)


def _filled(fill: shapes.Fill, _: str) -> bytes:
    return fill(BODY)


# --- merges -----------------------------------------------------------------------------------------------------------


def merges() -> Iterator[Attack]:
    def template(name: str, spec: Any) -> bytes:
        return costly.dump({"spec": {"template": {"spec": spec}}})

    containers = [{"name": f"c{number}", "image": "web:1"} for number in range(ELEMENTS)]
    ports = [
        {"name": f"p{number}", "containerPort": number % 65_535 + 1, "protocol": "TCP"} for number in range(ELEMENTS)
    ]
    environment = [{"name": f"e{number}", "value": "v"} for number in range(ELEMENTS)]
    specs: dict[str, Any] = {
        "containers": {"containers": containers},
        "ports": {"containers": [{"name": "web", "ports": ports}]},
        "env": {"containers": [{"name": "web", "env": environment}]},
        "equal-env": {"containers": [{"name": "web", "env": [{"name": "e", "value": "v"}] * ELEMENTS}]},
        "no-keys": {"containers": [{"image": "web:1"}] * ELEMENTS},
        "delete": {"containers": [{"$patch": "delete", "name": f"c{number}"} for number in range(ELEMENTS)]},
        "replace": {"containers": [*containers, {"$patch": "replace"}]},
        "order": {
            "$setElementOrder/containers": [{"name": f"c{number}"} for number in range(ELEMENTS)],
            "containers": containers[: ELEMENTS // 2],
        },
        "order-alone": {"$setElementOrder/containers": [{"name": f"c{number}"} for number in range(ELEMENTS)]},
        "retain": {"$retainKeys": [f"k{number}" for number in range(100_000)], "containers": []},
        "tolerations": {"tolerations": [{"key": f"k{number}", "operator": "Exists"} for number in range(ELEMENTS)]},
        "volumes": {"volumes": [{"name": f"v{number}", "emptyDir": {}} for number in range(ELEMENTS)]},
    }
    for name, spec in specs.items():
        body = functools.partial(template, spec=spec)
        yield costly.patched(f"strategic {name}", DEPLOYMENTS, deployment, costly.STRATEGIC, body)
        yield costly.patched(f"merge {name}", DEPLOYMENTS, deployment, costly.MERGE, body)
    primitives = {
        "$deleteFromPrimitiveList/finalizers": [f"example.com/{number}" for number in range(100_000)],
        "finalizers": [f"example.com/{number}" for number in range(20_000)],
        "$setElementOrder/finalizers": [f"example.com/{number}" for number in range(20_000)],
    }
    body = functools.partial(_dumped, {"metadata": primitives})
    yield costly.patched("strategic primitive-lists", CONFIG_MAPS, costly.config_map, costly.STRATEGIC, body)
    keys = {"data": {f"k{number}": None for number in range(150_000)}}
    for kind in ("strategic", "merge"):
        media = costly.STRATEGIC if kind == "strategic" else costly.MERGE
        yield costly.patched(
            f"{kind} null-keys", CONFIG_MAPS, large_config_map, media, functools.partial(_dumped, keys)
        )


def _dumped(document: Any, _: str) -> bytes:
    return costly.dump(document)


# --- server-side apply ------------------------------------------------------------------------------------------------


def applied(name: str, path: str, elements: list[Any]) -> bytes:
    container: dict[str, Any] = {"name": "web", "image": "web:1"}
    if path != "containers":
        container[path] = elements
    spec = {"containers": elements if path == "containers" else [container]}
    return costly.dump({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})


def applies() -> Iterator[Attack]:
    lists: dict[str, list[Any]] = {
        "containers": [{"name": f"c{number}", "image": "i"} for number in range(ELEMENTS)],
        "ports": [{"containerPort": number % 65_535 + 1, "protocol": "TCP"} for number in range(ELEMENTS)],
        "env": [{"name": f"e{number}", "value": "v"} for number in range(ELEMENTS)],
        "equal-ports": [{"containerPort": 1, "protocol": "TCP"}] * ELEMENTS,
    }
    for name, elements in lists.items():
        body = functools.partial(_applied, name.removeprefix("equal-"), elements)
        yield _apply(f"apply {name}", PODS, body)
        few = functools.partial(_applied, name.removeprefix("equal-"), elements[:SECOND])
        # Half of it is there, of another manager: conflicts, or not.
        for manner, query in (("conflict", ""), ("force", "&force=true")):
            yield Attack(
                name=f"apply second-manager {manner} {name}",
                caller=EDIT,
                method="PATCH",
                path=f"{PODS}/{{name}}?fieldManager=two{query}",
                body=few,
                media=costly.APPLY,
                before=(("POST", PODS, functools.partial(_loaded, name.removeprefix("equal-"), elements[:SECOND])),),
                after=costly.clean(PODS),
                may_be_refused=True,
            )
    keys = functools.partial(_config_map, {f"k{number}": "v" for number in range(100_000)})
    yield _apply("apply keys", CONFIG_MAPS, keys)
    yield _apply("apply yaml-keys", CONFIG_MAPS, costly.yaml_keys)


def _applied(path: str, elements: list[Any], name: str) -> bytes:
    return applied(name, path, elements)


def _loaded(path: str, elements: list[Any], name: str) -> Any:
    changed = [{**element, "image": "other"} if path == "containers" else element for element in elements]
    return json.loads(applied(name, path, changed))


def _config_map(data: Any, name: str) -> bytes:
    return costly.dump({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data})


def _apply(title: str, where: str, body: Body) -> Attack:
    path = f"{where}/{{name}}?fieldManager=one"
    return Attack(
        name=title, caller=EDIT, method="PATCH", path=path, body=body, media=costly.APPLY, after=costly.clean(where)
    )


# --- YAML and protobuf ------------------------------------------------------------------------------------------------

_YAML: dict[str, Callable[[int], bytes]] = {
    "flow-sequence": lambda size: b"a: [" + b"a," * (size // 2) + b"]",
    "flow-objects": lambda size: b"a: [" + b"{}," * (size // 3) + b"]",
    "flow-nested": lambda _: b"a: " + b"[" * 5000 + b"]" * 5000,
    "block-sequence": lambda size: b"a:\n" + b"- a\n" * (size // 4),
    "block-nested": lambda _: b"".join(b" " * level + b"a:\n" for level in range(2000)),
    "dashes": lambda _: b"- " * 10_000 + b"a",
    "question-marks": lambda _: b"? " * 10_000 + b"a",
    "literal": lambda size: b"a: |\n" + b" a\n" * (size // 3),
    "folded": lambda size: b"a: >\n" + b" a\n" * (size // 3),
    "plain": lambda size: b"a: " + b"a " * (size // 2),
    "quoted": lambda size: b'a: "' + rb"\x41" * (size // 4) + b'"',
    "single-quoted": lambda size: b"a: '" + b"''" * (size // 2) + b"'",
    "comments": lambda size: b"#\n" * (size // 2) + b"a: b",
    "blank": lambda size: b"\n" * size + b"a: b",
    "spaces": lambda size: b"a:" + b" " * size + b"b",
    "anchors": lambda size: b"a: [" + b"".join(b"&a%d a," % number for number in range(size // 12)) + b"]",
    "aliases": lambda size: b"a: &a [a]\nb: [" + b"*a," * (size // 3) + b"]",
    "merge-keys": lambda size: b"a: &a {b: c}\n" + b"<<: *a\n" * (size // 7),
    "documents": lambda size: b"---\na: b\n" * (size // 9),
    "tags": lambda size: b"a: [" + b"!!str a," * (size // 8) + b"]",
    "equal-keys": lambda size: b"a: b\n" * (size // 5),
    "long-keys": lambda size: b"? " + b"a" * size + b"\n: b",
    "number": lambda size: b"a: " + b"1" * size,
    "sexagesimal": lambda size: b"a: 1" + b":1" * (size // 2),
    "dates": lambda size: b"a: [" + b"2026-01-02," * (size // 11) + b"]",
    "utf-16": lambda size: ("a: " + "a" * (size // 2)).encode("utf-16"),
    "bad-utf-8": lambda size: b"a: " + b"\xff" * size,
}


def yamls() -> Iterator[Attack]:
    for name, fill in _YAML.items():
        body = functools.partial(_filled, fill)
        yield Attack(
            name=f"yaml {name}", caller=USER, method="POST", path=costly.SELF_REVIEWS, body=body, media=costly.YAML
        )


def _csr_wire(raw: bytes, _: str) -> bytes:
    return wire.enveloped("certificates.k8s.io/v1", "CertificateSigningRequest", raw)


def protobufs() -> Iterator[Attack]:
    spec_number = _number("certificates.v1.CertificateSigningRequest", "spec")
    usages = _number("certificates.v1.CertificateSigningRequestSpec", "usages")
    extra = _number("certificates.v1.CertificateSigningRequestSpec", "extra")
    metadata = _number("certificates.v1.CertificateSigningRequest", "metadata")
    owners = _number("meta.v1.ObjectMeta", "ownerReferences")
    labels = _number("meta.v1.ObjectMeta", "labels")
    entry = [wire.delimited(1, b"k%d" % number) + wire.delimited(2, b"v") for number in range(49_000)]
    raws = {
        "usages": wire.delimited(spec_number, wire.delimited(usages, b"any") * 49_000),
        "empty-usages": wire.delimited(spec_number, wire.delimited(usages, b"") * 49_000),
        "too-many": wire.delimited(spec_number, wire.delimited(usages, b"") * 1_000_000),
        "empty-owners": wire.delimited(metadata, wire.delimited(owners, b"") * 49_000),
        "empty-messages": wire.delimited(spec_number, b"") * 49_000,
        "empty-metadata": wire.delimited(metadata, b"") * 1_000_000,
        "labels": wire.delimited(metadata, b"".join(wire.delimited(labels, one) for one in entry[:16_000])),
        "extra": wire.delimited(
            spec_number, b"".join(wire.delimited(extra, wire.delimited(1, b"k%d" % n)) for n in range(24_000))
        ),
        "unknown-fields": wire.integer(1000, 0) * (BODY // 3),
        "unknown-bytes": wire.delimited(1000, b"") * (BODY // 3),
        "long-varints": (wire.varint(1000 << 3) + b"\x80" * 9 + b"\x01") * (BODY // 12),
        "giant-text": wire.delimited(metadata, wire.delimited(1, b"a" * BODY)),
        "giant-bytes": wire.delimited(spec_number, wire.delimited(1, b"-" * BODY)),
        "nested": functools.reduce(lambda inner, _: wire.delimited(spec_number, inner), range(5000), b""),
    }
    for name, raw in raws.items():
        yield Attack(
            name=f"protobuf {name}",
            caller=TOKEN,
            method="POST",
            path=CSRS,
            body=functools.partial(_csr_wire, raw),
            media=PROTOBUF,
        )


def _number(message: str, name: str) -> int:
    return schema.message(message).fields[name].number


# --- deletes ----------------------------------------------------------------------------------------------------------


def deletes() -> Iterator[Attack]:
    fills: dict[str, shapes.Fill] = {
        "dry-run": shapes.repeated(b'"All"', b'{"dryRun":[', b"]}"),
        "unknown": shapes.repeated(b"{}", b'{"x":[', b"]}"),
        "keys": shapes.counted(b'"k%d":0', b"{", b"}"),
        "equal-keys": shapes.repeated(b'"k":0', b"{", b"}"),
        "grace": lambda size: b'{"gracePeriodSeconds":' + b"1" * size + b"}",
        "grace-text": lambda size: b'{"gracePeriodSeconds":"' + b"1" * size + b'"}',
        "uid": lambda size: b'{"preconditions":{"uid":"' + b"a" * size + b'"}}',
        "policy": lambda size: b'{"propagationPolicy":"' + b"a" * size + b'"}',
        "nested": lambda size: b'{"x":' + shapes.nested(size) + b"}",
    }
    for name, fill in fills.items():
        for what, path in (("one", f"{CONFIG_MAPS}/{{name}}"), ("collection", f"{CONFIG_MAPS}?labelSelector=a%3Dnone")):
            yield Attack(
                name=f"delete {what} {name}",
                caller=EDIT,
                method="DELETE",
                path=path,
                body=functools.partial(_filled, fill),
                before=(("POST", CONFIG_MAPS, lambda name: {"metadata": {"name": name}}),),
                after=costly.clean(CONFIG_MAPS),
            )


# --- queries ----------------------------------------------------------------------------------------------------------

LENGTH = 28_000


def _times(text: str, last: str = "", length: int = LENGTH) -> str:
    return urls.quote(text) * (length // len(urls.quote(text))) + urls.quote(last)


SELECTORS: dict[str, str] = {
    "fields-equal": "fieldSelector=" + _times("metadata.name=a,", "metadata.name=b"),
    "fields-short": "fieldSelector=" + _times("a=,", "a="),
    "fields-commas": "fieldSelector=" + "," * LENGTH,
    "fields-escapes": "fieldSelector=metadata.name=" + _times("\\,"),
    "fields-giant": "fieldSelector=metadata.name=" + "a" * LENGTH,
    "labels-exist": "labelSelector=" + _times("a,", "a"),
    "labels-absent": "labelSelector=" + _times("!a,", "a"),
    "labels-set": "labelSelector=a%20in%20(" + _times("a,", "a)"),
    "labels-sets": "labelSelector=" + _times("a in (b),", "a"),
    "labels-brackets": "labelSelector=" + "(" * LENGTH,
    "labels-spaces": "labelSelector=a" + "+" * LENGTH,
    "labels-giant": "labelSelector=" + "a" * LENGTH,
    "labels-commas": "labelSelector=" + "," * LENGTH,
    "parameters": "&".join(f"p{number}={'a' * 250}" for number in range(100)),
    "parameters-too-many": "a=&" * (LENGTH // 3),
    "parameters-percent": "a=" + "%41" * (LENGTH // 3),
    "parameters-plus": "a=" + "+" * LENGTH,
    "parameters-bad": "a=" + "%ff" * (LENGTH // 3),
    "ampersands": "&" * LENGTH,
    "dry-runs": "dryRun=All&" * (LENGTH // 11),
    "version": "resourceVersion=" + "1" * LENGTH,
    "continue": "continue=" + "QUJD" * (LENGTH // 4),
    "limit": "limit=" + "1" * LENGTH,
    "timeout": "timeoutSeconds=" + "1" * LENGTH,
}
PATHS: dict[str, str] = {
    "slashes": "/" * 30_000,
    "segments": "/a" * 14_000,
    "dots": "/.." * 9_000,
    "percent": "/" + "%41" * 9_000,
    "long-name": f"{PODS}/{'a' * 4000}",
    "long-group": f"/apis/{'a.' * 1990}b/v1/things",
    "openapi": "/openapi/v3/" + "a/" * 10_000,
}
HEADERS: dict[str, dict[str, str]] = {
    "accept": {"Accept": "a/b," * 7000},
    "accept-parameters": {"Accept": "application/json" + ";q=1" * 7000},
    "accept-tables": {"Accept": (TABLE + ",") * 500},
    "authorization": {"Authorization": "Bearer " + "a." * 14_000},
    "authorization-dots": {"Authorization": "Bearer " + "." * 28_000},
    "authorization-spaces": {"Authorization": "Bearer" + " " * 28_000 + "a"},
    "token-like": {"Authorization": "Bearer abcdef." + "a" * 28_000},
    "jwt": {"Authorization": "Bearer eyJhbGciOiJFUzI1NiJ9." + "e30" * 9000 + "." + "a" * 86},
    "cookies": {"Cookie": "a=b; " * 5600},
    "content-type": {"Content-Type": "application/json" + ";a=b" * 6000},
    "user-agent": {"User-Agent": "a/" * 14_000},
    "many": {f"X-{number}": "a" for number in range(1000)},
    "impersonate": {"Impersonate-User": "system:serviceaccount:default:" + "a" * 14_000},
    "impersonate-extra": {
        "Impersonate-User": "system:serviceaccount:default:default",
        **{f"Impersonate-Extra-{number}": "a" for number in range(500)},
    },
}


def queries() -> Iterator[Attack]:
    for name, query in SELECTORS.items():
        for caller, path in ((ANONYMOUS, PODS), (TOKEN, CSRS), (EDIT, CONFIG_MAPS)):
            yield Attack(name=f"query {caller} {name}", caller=caller, method="GET", path=f"{path}?{query}")
        yield Attack(
            name=f"query deletecollection {name}",
            caller=EDIT,
            method="DELETE",
            path=f"{CONFIG_MAPS}?dryRun=All&{query}",
        )
    for name, path in PATHS.items():
        yield Attack(name=f"path {name}", caller=ANONYMOUS, method="GET", path=path)
    for name, headers in HEADERS.items():
        yield Attack(name=f"header {name}", caller=ANONYMOUS, method="GET", path=PODS, headers=headers)
        yield Attack(name=f"header edit {name}", caller=EDIT, method="GET", path=CONFIG_MAPS, headers=headers)


# --- variants of one write --------------------------------------------------------------------------------------------


def variants() -> Iterator[Attack]:
    """One large object, validated and shown in every way."""
    full = {f"k{number}": "v" * 20 for number in range(30_000)}
    for name, data in (("stored", dict(list(full.items())[:20_000])), ("too-large", full)):
        for mode in ("Strict", "Warn", "Ignore"):
            for more in ("", "&dryRun=All"):
                yield Attack(
                    name=f"variant {name} {mode}{more}",
                    caller=EDIT,
                    method="POST",
                    path=f"{CONFIG_MAPS}?fieldValidation={mode}{more}",
                    body=functools.partial(_config_map, data),
                    after=costly.clean(CONFIG_MAPS),
                )
    for mode in ("Strict", "Warn", "Ignore"):
        unknown = {f"u{number}": 0 for number in range(200_000)}
        yield Attack(
            name=f"variant unknown {mode}",
            caller=EDIT,
            method="POST",
            path=f"{CONFIG_MAPS}?fieldValidation={mode}",
            body=functools.partial(_with, unknown),
            after=costly.clean(CONFIG_MAPS),
        )
    for name, accept in (("table", TABLE), ("partial", PARTIAL)):
        for method, path in (("GET", f"{PODS}/{{name}}"), ("GET", f"{PODS}?fieldSelector=metadata.name={{name}}")):
            yield Attack(
                name=f"variant {name} {'list' if '?' in path else 'get'} of a large Pod",
                caller=EDIT,
                method=method,
                path=path,
                headers={"Accept": accept},
                before=(("POST", PODS, _wide_pod),),
                after=costly.clean(PODS),
                may_be_refused=True,
            )


def _with(more: Any, name: str) -> bytes:
    return costly.dump({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, **more})


def _wide_pod(name: str) -> Any:
    containers = [{"name": f"c{number}", "image": "i"} for number in range(2000)]
    return {"metadata": {"name": name}, "spec": {"containers": containers}}


# --- many objects -----------------------------------------------------------------------------------------------------

MANY = "/api/v1/namespaces/many/configmaps"
LARGE = "/api/v1/namespaces/large/configmaps"
# Seconds without an event after which a watch has told all it had.
QUIET = 0.15


def populate(server: stalls.Server, many: int = 5000, large: int = 5) -> None:
    """Objects of 1 KiB and a few of the largest, to be listed; twice does no harm."""
    for space in ("many", "large"):
        server.make("/api/v1/namespaces", {"metadata": {"name": space}})
        rbac = "rbac.authorization.k8s.io"
        binding = {
            "metadata": {"name": "stalls-edit"},
            "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": "edit"},
            "subjects": [{"apiGroup": rbac, "kind": "User", "name": "editor"}],
        }
        server.make(f"/apis/{rbac}/v1/namespaces/{space}/rolebindings", binding)
    for number in range(many):
        labels = {"app": "web", "number": str(number)}
        server.make(MANY, {"metadata": {"name": f"m{number}", "labels": labels}, "data": {"a": "b" * 800}})
    for number in range(large):
        labels = {f"l{index}": "v" for index in range(20_000)}
        server.make(LARGE, {"metadata": {"name": f"l{number}", "labels": labels}, "data": {"a": "b" * 900_000}})


def lists() -> Iterator[Attack]:
    terms = ",".join(f"number!={number}" for number in range(1500))
    sets = "number in (" + ",".join(str(number) for number in range(4500)) + ")"
    fields = ",".join("metadata.name!=a" for _ in range(1000))
    asked = {
        "all": "",
        "all-version-0": "?resourceVersion=0",
        "label": "?labelSelector=app%3Dweb",
        "label-none": "?labelSelector=app%3Dnone",
        "label-terms": f"?labelSelector={urls.quote(terms)}",
        "label-sets": f"?labelSelector={urls.quote(sets)}",
        "field": "?fieldSelector=metadata.name%3Dm7",
        "field-not": "?fieldSelector=metadata.name%21%3Dm7",
        "field-terms": f"?fieldSelector={urls.quote(fields)}",
        "page": "?limit=500",
        "page-one": "?limit=1",
        "page-selected": "?limit=1&labelSelector=number%3D4999",
    }
    for where, path in (("many", MANY), ("large", LARGE)):
        for name, query in asked.items():
            yield Attack(name=f"list {where} {name}", caller=EDIT, method="GET", path=path + query)
        for name, accept in (("table", TABLE), ("partial", PARTIAL)):
            headers = {"Accept": accept}
            yield Attack(name=f"list {where} {name}", caller=EDIT, method="GET", path=path, headers=headers)
        yield Attack(
            name=f"list {where} table-objects",
            caller=EDIT,
            method="GET",
            path=f"{path}?includeObject=Object",
            headers={"Accept": TABLE},
        )
        yield Attack(name=f"deletecollection {where} dry", caller=EDIT, method="DELETE", path=f"{path}?dryRun=All")
        terms_path = f"{path}?dryRun=All&labelSelector={urls.quote(terms)}"
        yield Attack(name=f"deletecollection {where} dry-terms", caller=EDIT, method="DELETE", path=terms_path)
        for name, query in asked.items():
            if "limit" not in query and "version" not in name:
                joined = query.replace("?", "&")
                yield Attack(
                    name=f"watch {where} {name}",
                    caller=EDIT,
                    method="GET",
                    path=f"{path}?watch=1{joined}&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true",
                    ends_after=QUIET,
                )
                yield Attack(
                    name=f"watch-old {where} {name}",
                    caller=EDIT,
                    method="GET",
                    path=f"{path}?watch=1{joined}",
                    ends_after=QUIET,
                )
    yield Attack(name="list all-namespaces as a node", caller=NODE, method="GET", path="/api/v1/services")


FORMS: dict[str, Callable[[], Iterator[Attack]]] = {
    "json-patch": json_patches,
    "merge": merges,
    "apply": applies,
    "yaml": yamls,
    "protobuf": protobufs,
    "delete": deletes,
    "query": queries,
    "variant": variants,
}
