# SPDX-License-Identifier: Apache-2.0
"""Paths, methods, media types and query parameters that make no sense, put to a real server by its administrator.

Proves: each gets the Status Kubernetes would give, what is unknown but harmless is ignored, and no path is taken for
another.
"""

from __future__ import annotations

import pathlib
import urllib.parse
from collections.abc import AsyncIterator

import pytest

from handfast.apiserver.verbs import options
from tests.scenarios import refusals
from tests.scenarios.refusals import CONFIG_MAPS, Row
from tests.world import world as worlds

pytestmark = pytest.mark.usefixtures("quiet")


@pytest.fixture
async def world(tmp_path: pathlib.Path) -> AsyncIterator[worlds.World]:
    async with worlds.world(tmp_path / "world") as made:
        for name in ("a", "b", "c"):
            await made.create_config_map(name, key=name)
        yield made


def ask(query: str, code: int = 400, says: str = "", path: str = CONFIG_MAPS) -> Row:
    return Row("GET", f"{path}?{query}", None, code, says)


async def test_bad_query_parameters_are_refused(world: worlds.World) -> None:
    future = options.Continue(10**30, "default/a").text()
    await refusals.refused(
        world,
        [
            *(ask(f"limit={text}", 400, "limit: invalid value") for text in ("x", "-", "1.5", "9" * 19, "%D9%A3")),
            *(ask(f"watch=1&timeoutSeconds={text}", 400, "timeoutSeconds") for text in ("x", "1s", "1e3")),
            *(
                ask(f"resourceVersion={text}", 400, "must be an unsigned integer")
                for text in ("x", "-1", "1.0", "1" * 20)
            ),
            *(ask(f"continue={text}", 400, "continue key is not valid") for text in ("x", "%C3%A9", "e30", "AAAA")),
            ask(f"continue={future}", 504, "Too large resource version"),
            ask("continue=x&resourceVersion=3", 400, "not allowed when using continue"),
            ask("resourceVersionMatch=Exact", 422, "unless resourceVersion is provided"),
            ask("resourceVersionMatch=Exact&resourceVersion=0", 422, "forbidden for resourceVersion"),
            ask("resourceVersionMatch=Frob&resourceVersion=1", 422, "Unsupported value"),
            ask("resourceVersionMatch=Exact&resourceVersion=9999999999999999999", 504, "Too large resource version"),
            ask("sendInitialEvents=true", 422, "forbidden for list"),
            ask("watch=1&sendInitialEvents=true", 422, "requires setting resourceVersionMatch"),
            *(
                ask("labelSelector=" + urllib.parse.quote(text), 400)
                for text in ("a in (", "a in", ",", "a b", "!", "-a", "a=" + "x" * 64, "a,," * 500, "(" * 9000, "a=\0")
            ),
            ask("fieldSelector=spec.nodeName%3Dn", 400, "is not a known field selector"),
            ask("fieldSelector=spec.frob%3Dn", 400, "field label not supported: spec.frob", "/api/v1/pods"),
            ask("fieldSelector=%3D", 400, "is not a known field selector"),
            ask("labelSelector=%ff", 400, "the query cannot be read"),
            ask("&".join(f"p{number}=1" for number in range(101)), 400, "the query cannot be read"),
            Row(
                "GET",
                CONFIG_MAPS + "?includeObject=Frob",
                None,
                400,
                "includeObject",
                headers={"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"},
            ),
        ],
    )


async def test_unknown_parameters_are_ignored(world: worlds.World) -> None:
    for query in ("pretty=true", "timeout=32s", "frob=%26", "a;b=c", "limit=-5", "limit=", "x", "&&&", "=", "a=1&a=2"):
        answer = await refusals.send(world, Row("GET", f"{CONFIG_MAPS}?{query}"))
        assert answer.status == 200, query
        assert [item["metadata"]["name"] for item in answer.json()["items"]] == ["a", "b", "c"]


async def test_methods_that_a_path_does_not_have_are_refused(world: worlds.World) -> None:
    await refusals.refused(
        world,
        [
            *(Row(method, CONFIG_MAPS, None, 405, "does not allow") for method in ("OPTIONS", "TRACE", "PUT", "PATCH")),
            *(Row(method, CONFIG_MAPS + "/a", None, 405, "does not allow") for method in ("OPTIONS", "TRACE", "POST")),
            *(Row(method, "/healthz", None, 405, "does not allow") for method in ("POST", "PUT", "DELETE", "OPTIONS")),
            *(Row(method, "/apis", None, 405, "does not allow") for method in ("POST", "PATCH")),
            Row("PROPFIND", CONFIG_MAPS, None, 405, "does not allow"),
        ],
    )


async def test_head_has_the_code_of_get_and_no_body(world: worlds.World) -> None:
    for path, code in ((CONFIG_MAPS, 200), (CONFIG_MAPS + "/a", 200), ("/version", 200), (CONFIG_MAPS + "/none", 404)):
        answer = await refusals.send(world, Row("HEAD", path))
        assert (answer.status, answer.body) == (code, b"")
    answer = await refusals.send(world, Row("HEAD", CONFIG_MAPS + "?watch=1"))
    assert (answer.status, answer.body) == (405, b"")


async def test_media_types(world: worlds.World) -> None:
    await refusals.refused(
        world,
        [
            *(
                Row("POST", CONFIG_MAPS, {"metadata": {"name": "t"}}, 415, "accepted media types include", media)
                for media in (
                    "text/html",
                    "application/xml",
                    "application/cbor",
                    "multipart/form-data",
                    "json",
                    "/",
                    "*/*",
                )
            ),
            *(
                Row("GET", CONFIG_MAPS, None, 406, "only the following media types", headers={"Accept": accept})
                for accept in ("text/html", "application/cbor", "application/json;as=Frob;v=v1;g=meta.k8s.io", "x", ",")
            ),
        ],
    )


async def test_unknown_resources(world: worlds.World) -> None:
    says = "the server could not find the requested resource"
    await refusals.refused(
        world,
        [
            Row(method, path, body, 404, says)
            for method, body in (("GET", None), ("POST", {"metadata": {"name": "t"}}), ("DELETE", None))
            for path in (
                "/api/v1/namespaces/default/frobs",
                "/api/v2/namespaces/default/configmaps",
                "/apis/frob.example.com/v1/frobs",
                "/apis/apps/v1beta1/namespaces/default/deployments",
                "/apis/apps/v1/namespaces/default/configmaps",
                "/api/v1/namespaces/default/nodes",
                "/api/v1/namespaces/default/ConfigMaps",
                "/api/v1/namespaces/default/configmaps/a/b/c",
                "/api/v1/namespaces/default/configmaps/a/frob",
            )
        ]
        + [
            Row("GET", path, None, 404, says)
            for path in ("/frob", "/apis/frob", "/apis/apps/v9", "/api/v9", "/openapi/v9")
        ],
    )


async def test_bad_paths_are_refused_or_not_found(world: worlds.World) -> None:
    await refusals.refused(
        world,
        [
            Row("GET", CONFIG_MAPS + "/a%2Fb", None, 400, 'may not contain "/"'),
            Row("GET", "/api/v1/namespaces/default%2Fconfigmaps/a", None, 400, 'may not contain "/"'),
            Row("GET", "/api%2Fv1/namespaces", None, 400, 'may not contain "/"'),
            Row("GET", CONFIG_MAPS + "/%ff%fe", None, 400, "not valid UTF-8"),
            Row("GET", CONFIG_MAPS + "/%c0%ae%c0%ae", None, 400, "not valid UTF-8"),
            Row("GET", CONFIG_MAPS + "/" + "a" * 4096, None, 400, "at most 4096 are allowed"),
            Row("GET", CONFIG_MAPS + "/a%00", None, 404, "not found"),
            Row("GET", CONFIG_MAPS + "/%zz", None, 404, '"%zz" not found'),
            Row("GET", CONFIG_MAPS + "/%252e%252e", None, 404, '"%2e%2e" not found'),
            Row("GET", CONFIG_MAPS + "/..", None, 404, '".." not found'),
            Row("GET", CONFIG_MAPS + "/%2e%2e/secrets", None, 404, "could not find"),
            Row("GET", CONFIG_MAPS + "/../configmaps/a", None, 404, "could not find"),
            Row("GET", CONFIG_MAPS + "/./a", None, 404, "could not find"),
            Row("GET", CONFIG_MAPS + "/A", None, 404, '"A" not found'),
            Row("GET", "/healthz/../api/v1/namespaces", None, 404, "no check named"),
            Row("GET", "/api/v1/../../healthz", None, 404, "could not find"),
            *(
                Row("GET", path, None, 404, "could not find")
                for path in (
                    "//healthz",
                    "/healthz//ping",
                    "/api//v1",
                    "//api/v1/namespaces",
                    "//",
                    "/api/v1//namespaces",
                )
            ),
            Row("POST", "/api/v1/namespaces/%00/configmaps", {"metadata": {"name": "t"}}, 404, "not found"),
            Row("POST", "/api/v1/namespaces/../configmaps", {"metadata": {"name": "t"}}, 404, "not found"),
            Row("DELETE", CONFIG_MAPS + "/%2e", None, 404, "not found"),
        ],
    )
