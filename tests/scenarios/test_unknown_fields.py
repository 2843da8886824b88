# SPDX-License-Identifier: Apache-2.0
"""Fields that the schema does not have, sent to a real server in every way there is.

Proves: whichever way they come, they are not stored, not shown and owned by nobody, and the answer names them; Strict
refuses them; what an older server kept is shown until the next write, which drops it and blames nobody.
"""

from __future__ import annotations

import pathlib
from typing import Any

import pytest

from handfast.api import objects
from handfast.api.defaulting import defaults
from tests.scenarios import hooked, refusals
from tests.scenarios.refusals import APPLY, CONFIG_MAPS, DEPLOYMENTS, JSON_PATCH, MERGE, PODS, STRATEGIC, YAML, Row
from tests.unit.apiserver import hooking
from tests.world import world as worlds
from tests.world.clock import START

pytestmark = pytest.mark.usefixtures("quiet")

ODD: dict[str, Any] = {"colour": [[], {}]}
WARNED = ['299 - "unknown field \\"colour\\""']
NAMED = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}}


def stored(world: worlds.World, prefix: str, name: str, namespace: str = "default") -> Any:
    item = world.server.replica.collection(prefix).get(namespace, name)
    assert item is not None
    return item.document()


async def sent(world: worlds.World, row: Row, code: int = 200) -> worlds.Answer:
    answer = await refusals.send(world, row)
    assert answer.status == code, answer.body
    await world.server.replica.fresh()
    return answer


async def test_every_way_to_write(world: worlds.World) -> None:
    path = f"{CONFIG_MAPS}/x"
    yaml = b"metadata: {name: yaml}\ncolour: [[], {}]\n"
    ways = [
        (Row("POST", CONFIG_MAPS, {"metadata": {"name": "x"}, **ODD}), 201),
        (Row("POST", CONFIG_MAPS, yaml, media=YAML), 201),
        (Row("PUT", path, {**NAMED, "data": {"a": "1"}, **ODD}), 200),
        (Row("PATCH", path, {"data": {"a": "2"}, **ODD}, media=MERGE), 200),
        (Row("PATCH", path, {"data": {"a": "3"}, **ODD}, media=STRATEGIC), 200),
        (Row("PATCH", path, [{"op": "add", "path": "/colour", "value": ODD}], media=JSON_PATCH), 200),
    ]
    for row, code in ways:
        answer = await sent(world, row, code)
        assert answer.headers.getall("Warning") == WARNED, row
        document = answer.json()
        assert "colour" not in document, row
        kept = stored(world, "core/configmaps/", document["metadata"]["name"])
        assert "colour" not in kept, row
        # Nobody owns what is not there.
        assert "colour" not in str(kept["metadata"].get("managedFields")), row
        strict = row._replace(path=row.path + ("&" if "?" in row.path else "?") + "fieldValidation=Strict")
        refusal = await refusals.send(world, strict)
        # Of a patch it is the object behind it that would have the field.
        code = 422 if row.method == "PATCH" else 400
        assert (refusal.status, 'unknown field "colour"' in refusal.message) == (code, True), row
        silent = row._replace(path=strict.path.replace("Strict", "Ignore") + "&dryRun=All")
        assert "Warning" not in (await refusals.send(world, silent)).headers, row


async def test_what_is_applied_has_none_whatever_the_client_says_about_fields(world: worlds.World) -> None:
    await sent(world, Row("POST", CONFIG_MAPS, {"metadata": {"name": "x"}}), 201)
    for mode in ("", "&fieldValidation=Warn", "&fieldValidation=Ignore", "&fieldValidation=Strict"):
        for name in ("x", "new"):
            applied = {**NAMED, "metadata": {"name": name, "odd": 1}, **ODD}
            row = Row("PATCH", f"{CONFIG_MAPS}/{name}?fieldManager=m{mode}", applied, media=APPLY)
            refusal = await refusals.send(world, row)
            assert (refusal.status, refusal.message) == (
                400,
                (
                    f"failed to create typed patch object (/{name}; /v1, Kind=ConfigMap): errors:\n"
                    "  .metadata.odd: field not declared in schema\n"
                    "  .colour: field not declared in schema"
                ),
            )


async def test_a_repeated_key_of_what_is_applied_is_told_with_its_line(world: worlds.World) -> None:
    body = b"apiVersion: v1\nkind: ConfigMap\ndata:\n  a: '1'\n  a: '2'\n"
    row = Row("PATCH", f"{CONFIG_MAPS}/x?fieldManager=m", body, media=APPLY)
    refusal = await refusals.send(world, row._replace(path=row.path + "&fieldValidation=Strict"))
    assert (refusal.status, refusal.message) == (
        400,
        'error strict decoding YAML: yaml: unmarshal errors:\n  line 5: key "a" already set in map',
    )
    answer = await sent(world, row, 201)
    assert answer.headers.getall("Warning") == ['299 - "line 5: key \\"a\\" already set in map"']
    assert answer.json()["data"] == {"a": "2"}


async def test_what_is_odd_in_a_json_patch_itself_is_told_too(world: worlds.World) -> None:
    await sent(world, Row("POST", CONFIG_MAPS, {"metadata": {"name": "x"}}), 201)
    body = (
        b'[{"op":"add","path":"/data","value":{"a":"1"},"value":{"a":"2"}},'
        b'{"op":"test","path":"/data","value":{"a":"2"},"odd":1}]'
    )
    row = Row("PATCH", f"{CONFIG_MAPS}/x", body, media=JSON_PATCH)
    refusal = await refusals.send(world, row._replace(path=row.path + "?fieldValidation=Strict"))
    texts = ['json patch duplicate field "[0].value"', 'json patch unknown field "[1].odd"']
    assert refusal.status == 422
    assert refusal.message.endswith("strict decoding error: " + ", ".join(texts))
    answer = await sent(world, row)
    assert answer.json()["data"] == {"a": "2"}
    assert len(answer.headers.getall("Warning")) == len(texts)


async def test_subresources_and_questions(world: worlds.World) -> None:
    pod = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    template = {"metadata": {"labels": {"a": "b"}}, "spec": pod["spec"]}
    spec = {"selector": {"matchLabels": {"a": "b"}}, "template": template}
    await sent(world, Row("POST", PODS, pod), 201)
    await sent(world, Row("POST", DEPLOYMENTS, {"metadata": {"name": "d"}, "spec": spec}), 201)
    status = await sent(world, Row("PATCH", f"{PODS}/p/status", {"status": {"phase": "Running", **ODD}}, media=MERGE))
    assert status.json()["status"]["phase"] == "Running"
    assert "colour" not in str(stored(world, "core/pods/", "p"))
    scale = {"metadata": {"name": "d"}, "spec": {"replicas": 2, **ODD}, **ODD}
    await sent(world, Row("PUT", f"{DEPLOYMENTS}/d/scale", scale))
    assert "colour" not in str(stored(world, "apps/deployments/", "d"))
    binding = {"metadata": {"name": "p"}, "target": {"name": "n", **ODD}, **ODD}
    await sent(world, Row("POST", f"{PODS}/p/binding", binding), 201)
    assert "colour" not in str(stored(world, "core/pods/", "p"))
    question = {"spec": {"nonResourceAttributes": {"path": "/x", "verb": "get"}, **ODD}}
    reviews = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    answer = await sent(world, Row("POST", reviews, question), 201)
    assert "colour" not in str(answer.json())
    assert answer.headers.getall("Warning") == ['299 - "unknown field \\"spec.colour\\""']


async def test_what_a_webhook_adds(world: worlds.World) -> None:
    async with hooked.serving(hooking.patches(hooked.add("/colour", ODD), hooked.add("/data", {"a": "b"}))) as server:
        await hooked.install(world, hooked.MUTATING, hooking.webhook("hook.example.com", server.config()))
        answer = await sent(world, Row("POST", CONFIG_MAPS, {"metadata": {"name": "x"}}), 201)
        assert (answer.json()["data"], "colour" in answer.json()) == ({"a": "b"}, False)
        assert "colour" not in str(stored(world, "core/configmaps/", "x"))


async def test_what_an_older_server_kept(tmp_path: pathlib.Path) -> None:
    """It wrote the objects below; this one is started on its store."""
    now = objects.timestamp(START)
    async with worlds.world(tmp_path / "world") as older:
        kind = next(row for row in older.server.table if row.resource == ("", "pods"))
        for name in ("patched", "reported", "read", "applied"):
            metadata = {"name": name, "namespace": "default", "uid": name, "creationTimestamp": now, **ODD}
            spec = {"containers": [{"name": "c", "image": "i", **ODD}], **ODD}
            document = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
            defaults.apply(kind, document)
            await older.server.storage.create(kind, document)
    async with worlds.world(tmp_path / "world") as world:
        assert "colour" in (await world.get(f"{PODS}/read")).json()["spec"]
        # Strict is about what was sent, and that was right.
        label = {"metadata": {"labels": {"a": "b"}}}
        patched = await sent(world, Row("PATCH", f"{PODS}/patched?fieldValidation=Strict", label, media=MERGE))
        assert "Warning" not in patched.headers
        await sent(world, Row("PATCH", f"{PODS}/reported/status", {"status": {"phase": "Running"}}, media=MERGE))
        applied = {"apiVersion": "v1", "kind": "Pod", **label}
        await sent(world, Row("PATCH", f"{PODS}/applied?fieldManager=m", applied, media=APPLY))
        for name in ("patched", "reported", "applied"):
            assert "colour" not in str(stored(world, "core/pods/", name)), name
