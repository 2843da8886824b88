# SPDX-License-Identifier: Apache-2.0
"""Bodies that are not what they should be, put to a real server by its own administrator.

Proves: each gets the Status Kubernetes would give, nothing of it is stored, and the server goes on.
"""

from __future__ import annotations

import pathlib
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from tests.scenarios import refusals
from tests.scenarios.refusals import (
    APPLY,
    CONFIG_MAPS,
    DEPLOYMENTS,
    JSON,
    JSON_PATCH,
    LEASES,
    MERGE,
    PODS,
    PROTOBUF,
    STRATEGIC,
    YAML,
    Row,
)
from tests.world import world as worlds

POD = {"metadata": {"name": "p"}, "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "i"}]}}
DEPLOYMENT = {
    "metadata": {"name": "d"},
    "spec": {
        "selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
    },
}
MIB = 1 << 20


pytestmark = pytest.mark.usefixtures("quiet")


@pytest.fixture
async def world(tmp_path: pathlib.Path) -> AsyncIterator[worlds.World]:
    async with worlds.world(tmp_path / "world") as made:
        for path, document in ((CONFIG_MAPS, {"metadata": {"name": "x"}}), (PODS, POD), (DEPLOYMENTS, DEPLOYMENT)):
            answer = await made.request("POST", path, document)
            assert answer.status == 201, answer.body
        yield made


def create(body: Any, says: str = "", code: int = 400, media: str = JSON, path: str = CONFIG_MAPS) -> Row:
    return Row("POST", path, body, code, says, media)


def deep(levels: int, opening: bytes = b"[", closing: bytes = b"]") -> bytes:
    return b'{"metadata":{"name":"t"},"data":' + opening * levels + b"1" + closing * levels + b"}"


async def test_not_json(world: worlds.World) -> None:
    await refusals.refused(
        world,
        [
            *(
                create(body, "json parse error")
                for body in (b"", b"{", b"{]", b"\x00", b"nope", b"'", b"\xef\xbb\xbf{}")
            ),
            *(create(body, "the body must be an object") for body in (b"[]", b"null", b'"a"', b"1", b"true")),
            create(b'{"metadata":{"name":"t"}} x', "trailing characters"),
            create(b'{"metadata":{"name":"t"}}{"metadata":{"name":"u"}}', "trailing characters"),
            create(b'{"metadata":{"name":"t"},"data":NaN}', "invalid character"),
            create(b'{"metadata":{"name":"t"},"data":{"a":"\xff"}}', "not valid UTF-8"),
            create(b'{"metadata":{"name":"t"},"data":{"a":"\xed\xa0\x80"}}', "not valid UTF-8"),
            create(b'{"metadata":{"name":"t"},"data":{"a":"\\ud800"}}', "json parse error"),
            create(b'{"metadata":{"name":"t"},"spec":{"replicas":1e999}}', "out of range", path=DEPLOYMENTS),
            create(b'{"metadata":{"name":"t"},"spec":{"replicas":' + b"9" * 5000 + b"}}", "", path=DEPLOYMENTS),
        ],
    )


async def test_not_yaml(world: worlds.World) -> None:
    bomb = b"a: &a [x,x]\n" + b"".join(b"%c: &%c [*%c,*%c]\n" % (n, n, n - 1, n - 1) for n in b"bcdefghijklmnopqrstuv")
    await refusals.refused(
        world,
        [
            create(b"a: [", "yaml parse error", media=YAML),
            create(b"\tx", "yaml parse error", media=YAML),
            create(b"", "the body must be an object", media=YAML),
            create(b"- a", "the body must be an object", media=YAML),
            create(b"metadata: {name: t}\n---\nmetadata: {name: u}\n", "one document", media=YAML),
            create(bomb, "aliases are not accepted", media=YAML),
            create(b"a: &a\n  <<: *a\n", "not accepted", media=YAML),
            create(b"metadata: &m {name: t}\nx: {<<: 1}\n", "merge keys", media=YAML),
            create(b"a: !!python/object/apply:os.system [id]\n", "tag", media=YAML),
            create(b"a: !!binary aGk=\n", "tag", media=YAML),
            create(b"1: a\n", "a key must be a string", media=YAML),
            create(b"? [a]\n: b\n", "a key must be a string", media=YAML),
            create(b"a: .nan\n", "not finite", media=YAML),
            create(b"a: \xff\n", "not valid UTF-8", media=YAML),
            create(b"[" * 20_000, "nested too deeply", media=YAML),
            create(b"{a: " * 10_000, "nested too deeply", media=YAML),
        ],
    )


async def test_not_protobuf(world: worlds.World) -> None:
    type_meta = b"\x0a\x0f\x0a\x02v1\x12\x09ConfigMap"
    await refusals.refused(
        world,
        [
            *(
                create(body, "does not begin with the prefix", media=PROTOBUF)
                for body in (b"", b"{}", b"k8s", b"k8s\x01")
            ),
            create(b"k8s\x00\xff\xff", "unexpected EOF", media=PROTOBUF),
            create(b"k8s\x00", 'no kind "" is registered', media=PROTOBUF),
            create(b"k8s\x00" + type_meta + b"\x12\x05\x0a\xff", "proto parse error", media=PROTOBUF),
            create(
                b"k8s\x00" + type_meta + b"\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "proto", media=PROTOBUF
            ),
            create(b"k8s\x00" + type_meta + b"\x1a\x04gzip", "content encoding", media=PROTOBUF),
            create(b"k8s\x00\x0a\x0c\x0a\x02v1\x12\x06Secret\x12\x00", "found kind 'Secret'", media=PROTOBUF),
            create(b"k8s\x00" + type_meta + b"\x12\x06" + b"\x12\x04\x0a\x02\xff\xff", "", media=PROTOBUF),
        ],
    )


async def test_wrong_object(world: worlds.World) -> None:
    await refusals.refused(
        world,
        [
            create({"kind": "Secret", "metadata": {"name": "t"}}, "must be of type ConfigMap"),
            create({"kind": {}, "metadata": {"name": "t"}}, "must be of type ConfigMap"),
            create({"apiVersion": "v2", "metadata": {"name": "t"}}, "does not match the expected API version (v1)"),
            create({"apiVersion": "apps/v1", "metadata": {"name": "t"}}, "API version in the data (apps/v1)"),
            create({"metadata": {"name": "t", "namespace": "kube-system"}}, "does not match the namespace sent"),
            create({"metadata": {"name": "t", "namespace": {}}}, "cannot unmarshal object"),
            create({"metadata": {"name": "t", "resourceVersion": "1"}}, "resourceVersion should not be set"),
            create({"metadata": {"name": "t", "labels": {"a": 1}}}, "cannot unmarshal number"),
            create({"metadata": "t"}, "v1.ObjectMeta"),
            create({"metadata": {"name": "t"}, "data": {"a": {"b": "c"}}}, "cannot unmarshal object"),
            create(
                {"metadata": {"name": "t"}},
                'namespaces "none" not found',
                404,
                path="/api/v1/namespaces/none/configmaps",
            ),
            create(
                {"metadata": {"name": "t"}}, "could not find the requested resource", 404, path="/api/v1/configmaps"
            ),
            create({"metadata": {"name": "t"}}, "does not allow this method", 405, path=CONFIG_MAPS + "/t"),
            create({"metadata": {"name": "x"}}, 'configmaps "x" already exists', 409),
            Row("PUT", CONFIG_MAPS + "/x", {"metadata": {"name": "y"}}, 400, "does not match the name on the URL (x)"),
            Row("PUT", CONFIG_MAPS + "/x", {"metadata": {"namespace": "a"}}, 400, "does not match the namespace sent"),
            Row("PUT", CONFIG_MAPS + "/none", {"metadata": {"name": "none"}}, 404, 'configmaps "none" not found'),
            Row("PUT", CONFIG_MAPS + "/x", {"metadata": {"resourceVersion": "abc"}}, 409, "has been modified"),
            Row("PUT", CONFIG_MAPS + "/x", {"metadata": {"uid": "other"}}, 409, "Precondition failed: UID"),
            Row("PUT", LEASES + "/A_b", {"metadata": {"name": "A_b"}}, 422, "RFC 1123"),
            Row("PUT", LEASES + "/..", {"metadata": {"name": ".."}}, 422, "RFC 1123"),
        ],
    )


async def test_bad_names_are_refused(world: worlds.World) -> None:
    roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
    await refusals.refused(
        world,
        [
            create({}, "name or generateName is required", 422),
            *(
                create({"metadata": {"name": name}}, "RFC 1123 subdomain", 422)
                for name in ("A", "a_b", "-a", "a.", "a..b", "a/b", "..", "a\n", "a\0", "ä", " ", "a%2fb", "💥")
            ),
            create({"metadata": {"name": "a" * 254}}, "no more than 253", 422),
            create({"metadata": {"generateName": "A" * 100}}, "is invalid", 422),
            *(
                create({"metadata": {"name": name}}, "RFC 1123 label", 422, path="/api/v1/namespaces")
                for name in ("A", "a.b", "..")
            ),
            *(
                create({"metadata": {"name": name}}, "is invalid", 422, path=roles)
                for name in ("..", "a/b", "a%b", "a\0b", "a\nb", "a" * 254)
            ),
        ],
    )


@pytest.mark.slow
@pytest.mark.on_etcd
async def test_too_deep(world: worlds.World) -> None:
    says = "nested too deeply: at most 128 levels"
    await refusals.refused(
        world,
        [
            *(create(deep(levels), says) for levels in (128, 129, 500, 29_000)),
            create(deep(128, b'{"a":', b"}"), says),
            create(deep(29_000, b'{"a":', b"}"), says),
            *(
                Row("PATCH", CONFIG_MAPS + "/x", deep(levels, b'{"a":', b"}"), 400, "", media)
                for levels in (150, 900, 29_000)
                for media in (MERGE, STRATEGIC)
            ),
            Row(
                "PATCH",
                CONFIG_MAPS + "/x",
                b'[{"op":"add","path":"/data","value":' + b"[" * 900 + b"]" * 900 + b"}]",
                400,
                says,
                JSON_PATCH,
            ),
        ],
    )


async def test_repeated_keys(world: worlds.World) -> None:
    body = b'{"metadata":{"name":"%s"},"data":{"a":"1","a":"2"}}'
    await refusals.refused(
        world,
        [
            create(body % b"strict", 'duplicate field "data.a"', path=CONFIG_MAPS + "?fieldValidation=Strict"),
            create(
                b"metadata: {name: t}\ndata: {a: '1', a: '2'}\n",
                'line 2: key "a" already set in map',
                media=YAML,
                path=CONFIG_MAPS + "?fieldValidation=Strict",
            ),
            create(
                {"metadata": {"name": "t"}, "dta": {}},
                'unknown field "dta"',
                path=CONFIG_MAPS + "?fieldValidation=Strict",
            ),
            create(body % b"odd", "Unsupported value", 422, path=CONFIG_MAPS + "?fieldValidation=strict"),
        ],
    )
    warned = await refusals.send(world, create(body % b"warn"))
    assert (warned.status, warned.json()["data"]) == (201, {"a": "2"})
    assert warned.headers.getall("Warning") == ['299 - "duplicate field \\"data.a\\""']
    ignored = await refusals.send(world, create(body % b"ignore", path=CONFIG_MAPS + "?fieldValidation=Ignore"))
    assert (ignored.status, ignored.json()["data"]) == (201, {"a": "2"})
    assert "Warning" not in ignored.headers


async def test_warnings_cannot_carry_headers(world: worlds.World) -> None:
    odd = ["a\\r\\nX-Evil: 1", "a\\u0000", "\\u001b[31m", "a" * 100_000, '\\"', "\\u4e2d"]
    for number, name in enumerate(odd):
        body = f'{{"metadata":{{"name":"w{number}"}},"{name}":1}}'.encode()
        answer = await refusals.send(world, create(body))
        assert answer.status == 201, name
        (warning,) = answer.headers.getall("Warning")
        assert warning.startswith('299 - "unknown field')
        assert len(warning) < 1100
        assert "X-Evil" not in answer.headers
    many = ",".join(f'"{"f" * 200}{number}":1' for number in range(1000))
    answer = await refusals.send(world, create(f'{{"metadata":{{"name":"many"}},{many}}}'.encode()))
    assert answer.status == 201
    assert 10 < len(answer.headers.getall("Warning")) < 25


async def test_bad_patches_are_refused(world: worlds.World) -> None:
    path = CONFIG_MAPS + "/x"

    def patch(body: Any, says: str = "", code: int = 400, media: str = MERGE, at: str = path) -> Row:
        return Row("PATCH", at, body, code, says, media)

    named = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}}
    await refusals.refused(
        world,
        [
            *(patch(body, "must be an object") for body in (b"[]", b"null", b'"a"', b"1")),
            *(patch(body, "error decoding patch") for body in (b"", b"{", b'{"a":"\xff"}')),
            patch({"kind": "Secret"}, "must be of type ConfigMap"),
            patch({"apiVersion": "v2"}, "does not match the expected API version"),
            patch({"metadata": {"name": "y"}}, "does not match the name on the URL (x)"),
            patch({"metadata": {"name": None}}, "does not match the name on the URL (x)"),
            patch({"metadata": {"namespace": "kube-system"}}, "does not match the namespace sent"),
            patch({"metadata": None}, "leaves no metadata"),
            patch({"metadata": "x"}, "metadata"),
            patch({"metadata": {"resourceVersion": "1"}}, "has been modified", 409),
            patch({"data": {"a": 1}}, "cannot unmarshal number", 422),
            patch({"a": 1}, 'unknown field "a"', 422, at=path + "?fieldValidation=Strict"),
            patch({"data": {}}, "not found", 404, at=CONFIG_MAPS + "/none"),
            patch([{"op": "replace", "path": "", "value": [1]}], "not an object", 422, JSON_PATCH),
            patch([{"op": "replace", "path": "/kind", "value": "Secret"}], "must be of type ConfigMap", 400, JSON_PATCH),
            patch([{"op": "test", "path": "/data/a", "value": "1"}], "", 422, JSON_PATCH),
            patch([{"op": "frob", "path": "/data"}], "", 400, JSON_PATCH),
            patch({"op": "add"}, "must be an array", 400, JSON_PATCH),
            patch([{"op": "test", "path": "", "value": 1}] * 10_001, "10000", 413, JSON_PATCH),
            patch({"$patch": "frob"}, "", 400, STRATEGIC),
            patch({"data": {}}, "accepted media types include", 415, JSON),
            patch({"data": {}}, "accepted media types include", 415, "text/plain"),
            patch(named, "is required for apply patch", 422, APPLY),
            patch(named, "may not be more than 128 bytes", 422, APPLY, path + "?fieldManager=" + "m" * 129),
            patch(named, "invalid character U+0000 (at position 1)", 422, APPLY, path + "?fieldManager=a%00b"),
            patch({}, "may not be more than 128 bytes", 422, MERGE, path + "?fieldManager=" + "m" * 129),
            patch({}, "force: Forbidden: may not be specified for non-apply patch", 422, MERGE, path + "?force=true"),
            patch({}, "force: Forbidden: may not be specified for non-apply patch", 422, STRATEGIC, path + "?force=false"),
            patch({**named, "kind": "Secret"}, "must be of type", 400, APPLY, path + "?fieldManager=m"),
            patch({**named, "metadata": {"name": "y"}}, "the name on the URL (x)", 400, APPLY, path + "?fieldManager=m"),
            patch(
                {**named, "metadata": {"namespace": "a"}}, "does not match the namespace", 400, APPLY, path + "?fieldManager=m"
            ),
            patch(b"a: &a [1]\nb: *a\n", "aliases", 400, APPLY, path + "?fieldManager=m"),
        ],
    )  # fmt: skip


async def test_delete_options(world: worlds.World) -> None:
    bad: list[tuple[Any, str, int]] = [
        ({"kind": {}}, "expected DeleteOptions", 400),
        ({"kind": ["DeleteOptions"]}, "expected DeleteOptions", 400),
        ({"kind": "Pod"}, "expected DeleteOptions", 400),
        ({"preconditions": "x"}, "cannot unmarshal string", 400),
        ({"preconditions": {"uid": 1}}, "cannot unmarshal number", 400),
        ({"preconditions": {"uid": "other"}}, "Precondition failed: UID", 409),
        ({"preconditions": {"resourceVersion": "1"}}, "Precondition failed: ResourceVersion", 409),
        ({"orphanDependents": {}}, "cannot unmarshal object", 400),
        ({"gracePeriodSeconds": 1.5}, "cannot unmarshal number 1.5", 400),
        ({"gracePeriodSeconds": 10**30}, "cannot unmarshal number", 400),
        ({"propagationPolicy": "Frob"}, 'Unsupported value: "Frob"', 422),
        ({"dryRun": {"a": 1}}, "cannot unmarshal object", 400),
        ({"dryRun": ["Some"]}, "Unsupported value", 422),
        (b"{", "json parse error", 400),
        (b"[]", "must be an object", 400),
    ]
    await refusals.refused(
        world,
        [
            *(Row("DELETE", CONFIG_MAPS + "/x", body, code, says) for body, says, code in bad),
            Row("DELETE", CONFIG_MAPS + "/x", {}, 415, "accepted media types include", "text/plain"),
            Row("DELETE", CONFIG_MAPS + "/x?gracePeriodSeconds=soon", None, 400, "an integer is wanted"),
            Row("DELETE", CONFIG_MAPS + "/x?propagationPolicy=Frob", None, 422, "Unsupported value"),
            Row("DELETE", CONFIG_MAPS + "/x?dryRun=Some", None, 422, "Unsupported value"),
            Row("DELETE", CONFIG_MAPS + "/none", None, 404, 'configmaps "none" not found'),
            Row("DELETE", "/api/v1/namespaces/default", None, 403, "this namespace may not be deleted"),
            Row("DELETE", "/api/v1/namespaces", None, 405, "does not allow this method"),
            Row("DELETE", CONFIG_MAPS + "?limit=x", None, 400, "an integer is wanted"),
        ],
    )
    assert (await world.get(CONFIG_MAPS + "/x")).status == 200


async def test_a_grace_period_beyond_all_dates(world: worlds.World) -> None:
    answer = await world.request("DELETE", PODS + "/p", {"gracePeriodSeconds": 2**62})
    assert answer.status == 200
    assert answer.json()["metadata"]["deletionGracePeriodSeconds"] == 2**31 - 1
    answer = await world.request("DELETE", PODS + "/p", {"gracePeriodSeconds": 0})
    assert answer.status == 200
    assert (await world.get(PODS + "/p")).status == 404


async def test_bad_bodies_of_subresources_are_refused(world: worlds.World) -> None:
    scale, binding, eviction = DEPLOYMENTS + "/d/scale", PODS + "/p/binding", PODS + "/p/eviction"
    await refusals.refused(
        world,
        [
            *(
                Row("PUT", scale, {"spec": spec}, 400, "cannot unmarshal")
                for spec in ("x", [1], {"replicas": "3"}, {"replicas": 2**31}, {"replicas": 10**30}, {"replicas": 1.5})
            ),
            Row("PUT", scale, {"spec": {"replicas": -1}}, 422, "must be greater than or equal to 0"),
            Row("PUT", scale, {"kind": "Pod"}, 400, "must be of type Scale"),
            Row("PATCH", scale, {"spec": "x"}, 400, "cannot unmarshal string", MERGE),
            Row("PATCH", scale, {"spec": {"replicas": 2**31}}, 400, "cannot unmarshal number", MERGE),
            Row("PATCH", scale, [{"op": "replace", "path": "", "value": []}], 422, "not an object", JSON_PATCH),
            Row("POST", binding, {"target": "x"}, 400, "cannot unmarshal string"),
            Row("POST", binding, {"target": {"name": 3}}, 400, "cannot unmarshal number"),
            Row("POST", binding, {}, 422, "target.name: Required value"),
            Row("POST", binding, {"kind": "Pod"}, 400, "must be of type Binding"),
            Row("POST", eviction, {"deleteOptions": "x"}, 400, "cannot unmarshal string"),
            Row("POST", eviction, {"deleteOptions": {"gracePeriodSeconds": "x"}}, 400, "cannot unmarshal string"),
            Row("POST", eviction, b"", 400, "json parse error"),
            Row("PUT", PODS + "/p/status", {"status": "x"}, 400, "cannot unmarshal string"),
            Row("PUT", "/api/v1/namespaces/default/finalize", {"spec": "x"}, 400, "cannot unmarshal string"),
            Row("PUT", PODS + "/p/nonsense", {}, 404, "could not find"),
            Row("DELETE", PODS + "/p/status", None, 405, "does not allow this method"),
        ],
    )


@pytest.mark.slow
@pytest.mark.on_etcd
async def test_bodies_and_objects_that_are_too_large_are_refused(world: worlds.World) -> None:
    fits = b'{"metadata":{"name":"t"}}'
    big = fits + b" " * (3 * MIB - len(fits))
    await refusals.refused(
        world,
        [
            create(big + b" ", "Request entity too large: limit is 3145728", 413),
            create(
                {"metadata": {"name": "t"}, "spec": {"containers": [{"name": "c", "image": "x" * (3 * MIB // 2)}]}},
                "request is too large",
                413,
                path=PODS,
            ),
            create(
                {"metadata": {"name": "t"}, "spec": {"holderIdentity": "x" * (64 << 10)}},
                "Request entity too large: limit is 65536 for the kind Lease",
                413,
                path=LEASES,
            ),
            create({"metadata": {"name": "t"}, "data": {"a": "x" * (MIB + 1)}}, "Too long", 422),
            create({"metadata": {"name": "t", "annotations": {"a": "x" * (MIB // 4 + 1)}}}, "Too long", 422),
        ],
    )
    assert (await refusals.send(world, create(big))).status == 201


@pytest.mark.slow
@pytest.mark.on_etcd
async def test_sizes_in_chunks(world: worlds.World) -> None:
    """Nobody says beforehand how much comes."""

    async def flood() -> AsyncIterator[bytes]:
        yield b'{"metadata":{"name":"t"},"data":{"a":"'
        for _ in range(50):
            yield b"x" * (MIB // 8)

    before = world.server.replica.version
    headers = {"Content-Type": JSON}
    try:
        async with world.session().post(CONFIG_MAPS, data=flood(), headers=headers) as response:
            assert response.status == 413
            assert (await response.json())["reason"] == "RequestEntityTooLarge"
    except aiohttp.ClientOSError:
        # The server had answered and closed before the client had sent everything.
        pass
    assert world.server.replica.version == before
    assert (await world.get("/healthz")).status == 200


async def test_compressed_bodies(world: worlds.World) -> None:
    says = "send it as it is"
    await refusals.refused(
        world,
        [
            Row("POST", CONFIG_MAPS, b"\x1f\x8b\x08\x00", 415, says, JSON, {"Content-Encoding": coding})
            for coding in ("gzip", "deflate", "br", "x-gzip", "gzip, gzip")
        ],
    )


async def test_an_answer_nobody_can_read_stores_nothing(world: worlds.World) -> None:
    headers = {"Accept": "text/html"}
    body = {"metadata": {"name": "x"}, "data": {"a": "b"}}
    await refusals.refused(
        world,
        [
            Row("POST", CONFIG_MAPS, {"metadata": {"name": "t"}}, 406, "media types", JSON, headers),
            Row("PUT", CONFIG_MAPS + "/x", body, 406, "media types", JSON, headers),
            Row("PATCH", CONFIG_MAPS + "/x", body, 406, "media types", MERGE, headers),
            Row("DELETE", CONFIG_MAPS + "/x", None, 406, "media types", JSON, headers),
            Row("DELETE", CONFIG_MAPS, None, 406, "media types", JSON, headers),
        ],
    )
