# SPDX-License-Identifier: Apache-2.0
"""Admission webhooks as real HTTPS servers, asked by a real API server: they change, refuse, and are asked again.

Proves: what a webhook changes is completed and validated like what a client sends; what it refuses is refused in its
words; and it is asked about what its configuration says, and about nothing else. Failures: test_webhooks_failing.py.
"""

from __future__ import annotations

import base64
import json

import pytest
import structlog
from aiohttp import web

from tests.scenarios import test_custom_resources as customs
from tests.scenarios.granting import made
from tests.scenarios.hooked import (
    CONFIG_MAPS,
    CONFIGURATIONS,
    MUTATING,
    NAMESPACES,
    POD,
    PODS,
    SIDECAR,
    VALIDATING,
    add,
    install,
    refused,
    rules,
    serving,
    uninstall,
)
from tests.unit.apiserver import hooking
from tests.world import world as worlds

pytestmark = pytest.mark.usefixtures("quiet")

# --- changing


async def test_a_change_is_completed_and_validated(world: worlds.World) -> None:
    async with serving() as hook:
        await install(world, MUTATING, hooking.webhook("one", hook.config(), rules=rules("pods")))
        hook.answer = hooking.patches(add("/spec/containers/-", SIDECAR))
        answer = await world.request("POST", PODS, POD)
        assert answer.status == 201, answer.body
        ours, sidecar = answer.json()["spec"]["containers"]
        # Defaults, and what the plugins give every container, the new one too.
        assert sidecar["imagePullPolicy"] == ours["imagePullPolicy"] == "Always"
        assert sidecar["volumeMounts"] == ours["volumeMounts"]
        assert (await world.get(f"{PODS}/p")).json() == answer.json()
        asked = hook.reviews[0]["request"]
        assert (asked["operation"], asked["name"], asked["namespace"]) == ("CREATE", "p", "default")
        assert (asked["userInfo"]["username"], asked["dryRun"]) == ("kubernetes-admin", False)
        # It saw what the server had filled in by then.
        assert asked["object"]["spec"]["serviceAccountName"] == "default"
        hook.answer = hooking.patches(add("/spec/containers/-", {"name": "Not A Name", "image": "x"}))
        other = {**POD, "metadata": {"name": "q"}}
        await refused(world, "POST", PODS, other, 422, "spec.containers[1].name")
        hook.answer = hooking.patches(add("/metadata/name", "elsewhere"))
        await refused(world, "POST", PODS, other, 500, "attempted to change metadata.name")


async def test_a_custom_resource_is_pruned_and_validated_after_a_change(world: worlds.World) -> None:
    await customs.define(world)
    async with serving() as hook:
        webhook = hooking.webhook("one", hook.config(), rules=rules("widgets", group="example.com"))
        await install(world, MUTATING, webhook)
        hook.answer = hooking.patches(
            add("/spec/unknown", {"deep": 1}), {"op": "remove", "path": "/spec/colour"}, add("/spec/size", 7)
        )
        found = await customs.create(world, customs.widget())
        assert found["spec"] == {"size": 7, "colour": "red"}
        hook.answer = hooking.patches(add("/spec/size", 99))
        path = customs.WIDGETS
        await refused(
            world, "POST", path, customs.widget("v"), 422, "spec.size in body should be less than or equal to 10"
        )
        hook.answer = hooking.patches(add("/spec/colour", "mauve"))
        body = {**found, "spec": {"size": 2}}
        await refused(world, "PUT", f"{path}/w", body, 422, "spec.colour")
        assert (await world.get(f"{path}/w")).json()["spec"] == {"size": 7, "colour": "red"}


async def test_every_verb_that_writes(world: worlds.World) -> None:
    async with serving(hooking.patches(add("/data", {"by": "hook"}))) as hook:
        await install(world, MUTATING, hooking.webhook("one", hook.config()))
        document = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"by": "me"}}
        media = {"Content-Type": "application/apply-patch+yaml"}
        answers = [
            await world.request("POST", CONFIG_MAPS, document),
            await world.request("PUT", f"{CONFIG_MAPS}/a", document),
            await customs.patch(world, f"{CONFIG_MAPS}/a", {"data": {"by": "patch"}}),
            await world.request("PATCH", f"{CONFIG_MAPS}/a?fieldManager=m&force=1", document, headers=dict(media)),
            await world.request(
                "PATCH",
                f"{CONFIG_MAPS}/b?fieldManager=m",
                {**document, "metadata": {"name": "b"}},
                headers=dict(media),
            ),
        ]
        assert [answer.status for answer in answers] == [201, 200, 200, 200, 201]
        assert [answer.json()["data"] for answer in answers] == [{"by": "hook"}] * 5
        seen = [(review["request"]["operation"], review["request"]["options"]["kind"]) for review in hook.reviews]
        assert seen == [
            ("CREATE", "CreateOptions"),
            ("UPDATE", "UpdateOptions"),
            ("UPDATE", "PatchOptions"),
            ("UPDATE", "PatchOptions"),
            ("CREATE", "PatchOptions"),
        ]
        assert hook.reviews[0]["request"]["oldObject"] is None
        assert hook.reviews[1]["request"]["oldObject"]["data"] == {"by": "hook"}


async def test_asked_again_after_a_later_change(world: worlds.World) -> None:
    async def counts(_: web.BaseRequest, review: hooking.Review) -> web.StreamResponse:
        data = review["request"]["object"].get("data") or {}
        patch = hooking.encoded([add("/data", {**data, "seen": ",".join(sorted(data))})])
        return web.json_response(hooking.reviewed(review, patchType="JSONPatch", patch=patch))

    async with serving(counts) as first, serving(hooking.patches(add("/data/late", "yes"))) as second:
        await install(
            world,
            MUTATING,
            hooking.webhook("first", first.config(), reinvocationPolicy="IfNeeded"),
            hooking.webhook("second", second.config()),
        )
        answer = await world.request("POST", CONFIG_MAPS, {"metadata": {"name": "a"}, "data": {"mine": "1"}})
        assert answer.json()["data"] == {"mine": "1", "late": "yes", "seen": "late,mine,seen"}
        assert (len(first.reviews), len(second.reviews)) == (2, 1)


async def test_asked_again_after_plugins_completed_a_change(world: worlds.World) -> None:
    async with serving() as looks, serving(hooking.patches(add("/spec/containers/-", SIDECAR))) as adds:
        await install(
            world,
            MUTATING,
            hooking.webhook("looks", looks.config(), rules=rules("pods"), reinvocationPolicy="IfNeeded"),
            hooking.webhook("adds", adds.config(), rules=rules("pods")),
        )
        await made(world, PODS, POD)
        before, after = (review["request"]["object"]["spec"]["containers"] for review in looks.reviews)
        assert [row["name"] for row in before] == ["c"]
        # The second time it sees the token in the new container as well.
        assert [row["name"] for row in after] == ["c", "sidecar"]
        assert after[0]["volumeMounts"] == after[1]["volumeMounts"]


# --- refusing


async def test_a_refusal_in_the_webhooks_words(world: worlds.World) -> None:
    async with serving() as hook:
        await install(world, VALIDATING, hooking.webhook("one", hook.config()))
        body = {"metadata": {"name": "a"}}
        start = 'admission webhook "one.example.com" denied the request'
        hook.answer = hooking.says(allowed=False)
        await refused(world, "POST", CONFIG_MAPS, body, 403, f"{start} without explanation")
        hook.answer = hooking.says(
            allowed=False, status={"message": "no luck", "code": 422, "reason": "Invalid"}, warnings=["beware"]
        )
        answer = await refused(world, "POST", CONFIG_MAPS, body, 422, f"{start}: no luck")
        assert answer.reason == "Invalid"
        assert answer.headers["Warning"] == '299 - "beware"'
        # A refusal cannot be made to look like a success.
        hook.answer = hooking.says(allowed=False, status={"message": "fine", "code": 200})
        await refused(world, "POST", CONFIG_MAPS, body, 400, f"{start}: fine")


async def test_warnings_reach_the_caller(world: worlds.World) -> None:
    long = "x" * 5000
    async with serving(hooking.says(warnings=["old\r\nEvil: header", 'a "quoted" one'])) as hook:
        await install(world, VALIDATING, hooking.webhook("one", hook.config()))
        answer = await world.request("POST", CONFIG_MAPS, {"metadata": {"name": "a"}})
        assert answer.status == 201
        assert answer.headers.getall("Warning") == ['299 - "old  Evil: header"', '299 - "a \\"quoted\\" one"']
        assert "Evil" not in answer.headers
        hook.answer = hooking.says(warnings=[long] * 10)
        answer = await world.request("POST", CONFIG_MAPS, {"metadata": {"name": "b"}})
        assert sum(map(len, answer.headers.getall("Warning"))) < 5000


# --- who is asked


async def test_namespace_and_object_selectors(world: worlds.World) -> None:
    await made(world, NAMESPACES, {"metadata": {"name": "guarded", "labels": {"guard": "on"}}})
    async with serving() as by_namespace, serving() as by_object:
        await install(
            world,
            VALIDATING,
            hooking.webhook("space", by_namespace.config(), namespaceSelector={"matchLabels": {"guard": "on"}}),
            hooking.webhook(
                "object",
                by_object.config(),
                objectSelector={"matchExpressions": [{"key": "look", "operator": "Exists"}]},
            ),
        )
        for space in ("default", "guarded"):
            for name, labels in (("plain", {}), ("looked-at", {"look": "here"})):
                path = f"{NAMESPACES}/{space}/configmaps"
                await made(world, path, {"metadata": {"name": name, "labels": labels}})

        def seen(hook: hooking.Server) -> list[tuple[str, str]]:
            return [(review["request"]["namespace"], review["request"]["name"]) for review in hook.reviews]

        assert seen(by_namespace) == [("guarded", "plain"), ("guarded", "looked-at")]
        assert seen(by_object) == [("default", "looked-at"), ("guarded", "looked-at")]
        # Taking the label away is still shown to whoever watched over it.
        answer = await world.request("PUT", f"{CONFIG_MAPS}/looked-at", {"metadata": {"name": "looked-at"}})
        assert answer.status == 200
        assert seen(by_object)[2:] == [("default", "looked-at")]
        await customs.patch(world, f"{NAMESPACES}/guarded", {"metadata": {"labels": {"guard": None}}})
        await made(world, f"{NAMESPACES}/guarded/configmaps", {"metadata": {"name": "later"}})
        assert len(by_namespace.reviews) == 2


async def test_a_webhook_sees_only_the_subresources_of_its_rules(world: worlds.World) -> None:
    async with serving() as objects, serving() as parts:
        resources = ("pods/status", "pods/eviction", "pods/binding", "serviceaccounts/token")
        await install(
            world,
            VALIDATING,
            hooking.webhook("objects", objects.config(), rules=rules("pods", operations="*")),
            hooking.webhook("parts", parts.config(), rules=rules(*resources, operations="*")),
        )
        await made(world, PODS, POD)
        token = "/api/v1/namespaces/default/serviceaccounts/default/token"
        for method, path, body, code in (
            ("PUT", f"{PODS}/p/status", {**POD, "status": {"phase": "Running"}}, 200),
            ("POST", f"{PODS}/p/binding", {"metadata": {"name": "p"}, "target": {"name": "n"}}, 201),
            ("POST", token, {"spec": {}}, 201),
            ("POST", f"{PODS}/p/eviction", {"metadata": {"name": "p"}}, 201),
        ):
            answer = await world.request(method, path, body)
            assert answer.status == code, answer.body
        assert [review["request"]["operation"] for review in objects.reviews] == ["CREATE"]
        seen = [
            (review["request"]["operation"], review["request"]["subResource"], review["request"]["kind"]["kind"])
            for review in parts.reviews
        ]
        assert seen == [
            ("UPDATE", "status", "Pod"),
            ("CREATE", "binding", "Binding"),
            ("CREATE", "token", "TokenRequest"),
            ("CREATE", "eviction", "Eviction"),
        ]
        # Refused, an eviction deletes nothing and no token is made.
        await made(world, PODS, {**POD, "metadata": {"name": "q"}})
        parts.answer = hooking.says(allowed=False)
        await refused(world, "POST", f"{PODS}/q/eviction", {"metadata": {"name": "q"}}, 403, "denied the request")
        await refused(world, "POST", token, {"spec": {}}, 403, "denied the request")


async def test_a_webhook_may_forbid_a_deletion_and_not_change_it(world: worlds.World) -> None:
    for name in ("a", "b", "keep"):
        await world.create_config_map(name)

    async def keeps(_: web.BaseRequest, review: hooking.Review) -> web.StreamResponse:
        allowed = review["request"]["name"] != "keep"
        return web.json_response(hooking.reviewed(review, allowed=allowed))

    async with serving(keeps) as hook:
        await install(world, VALIDATING, hooking.webhook("one", hook.config(), rules=rules(operations="DELETE")))
        assert (await world.request("DELETE", f"{CONFIG_MAPS}/a")).status == 200
        asked = hook.reviews[0]["request"]
        assert (asked["operation"], asked["object"], asked["oldObject"]["metadata"]["name"]) == ("DELETE", None, "a")
        await refused(world, "DELETE", f"{CONFIG_MAPS}/keep", None, 403, "denied the request")
        answer = await world.request("DELETE", CONFIG_MAPS)
        assert answer.status == 403
        assert (await world.get(f"{CONFIG_MAPS}/keep")).status == 200
    # There is nothing in a deletion that could be changed.
    await uninstall(world, VALIDATING)
    async with serving(hooking.patches(add("/data", {}))) as hook:
        await install(world, MUTATING, hooking.webhook("two", hook.config(), rules=rules(operations="DELETE")))
        says = "attempted to modify the object, which is not supported for this operation"
        await refused(world, "DELETE", f"{CONFIG_MAPS}/keep", None, 500, says)


async def test_dry_runs(world: worlds.World) -> None:
    async with serving(hooking.patches(add("/data", {"by": "hook"}))) as hook:
        await install(world, MUTATING, hooking.webhook("one", hook.config(), rules=rules(operations="*")))
        before = world.server.replica.version
        answer = await world.request("POST", f"{CONFIG_MAPS}?dryRun=All", {"metadata": {"name": "a"}})
        assert (answer.status, answer.json()["data"]) == (201, {"by": "hook"})
        assert world.server.replica.version == before
        asked = hook.reviews[0]["request"]
        assert (asked["dryRun"], asked["options"]["dryRun"]) == (True, ["All"])
    # What may have side effects in a dry run cannot be configured at all.
    webhook = hooking.webhook("two", {"url": "https://127.0.0.1:1/"}, sideEffects="Some", rules=rules())
    document = hooking.configuration(MUTATING, webhook, name="two")
    answer = await world.request("POST", f"{CONFIGURATIONS}/mutatingwebhookconfigurations", document)
    assert (answer.status, "webhooks[0].sideEffects" in answer.message) == (422, True), answer.body


async def test_behind_a_service(world: worlds.World) -> None:
    async with serving(hooking.patches(add("/data", {"by": "service"})), "hook.default.svc") as hook:
        ports = [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": hook.port}]
        await made(
            world, "/api/v1/namespaces/default/services", {"metadata": {"name": "hook"}, "spec": {"ports": ports}}
        )
        config = {
            "service": {"namespace": "default", "name": "hook", "path": "/admit"},
            "caBundle": hooking.bundle(),
        }
        await install(world, MUTATING, hooking.webhook("one", config))
        body = {"metadata": {"name": "a"}}
        await refused(world, "POST", CONFIG_MAPS, body, 500, 'no endpoints available for service "hook"')
        endpoints = {
            "metadata": {"name": "hook-1", "labels": {"kubernetes.io/service-name": "hook"}},
            "addressType": "IPv4",
            "endpoints": [
                {"addresses": ["192.0.2.1"], "conditions": {"ready": False}},
                {"addresses": ["127.0.0.1"], "conditions": {"ready": True}},
            ],
            "ports": [{"name": "https", "port": hook.port, "protocol": "TCP"}],
        }
        slices = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
        answer = await world.request("POST", slices, endpoints)
        assert answer.status == 201, answer.body
        found = await made(world, CONFIG_MAPS, body)
        assert found["data"] == {"by": "service"}
        assert hook.heads[0].headers["Host"] == "hook.default.svc:443"
        assert hook.heads[0].path == "/admit"
    # Somebody else at the same address has no certificate for the Service's name.
    async with serving(hooking.says(), "other.default.svc") as thief:
        moved = {**endpoints, "ports": [{"name": "https", "port": thief.port, "protocol": "TCP"}]}
        assert (await world.request("PUT", f"{slices}/hook-1", moved)).status == 200
        await refused(world, "POST", CONFIG_MAPS, {"metadata": {"name": "b"}}, 500, "tls: failed to verify certificate")
        assert thief.reviews == []


async def test_what_a_webhook_sees_is_not_logged(world: worlds.World) -> None:
    async with serving(hooking.says(allowed=False, status={"message": "no"})) as hook:
        await install(world, VALIDATING, hooking.webhook("one", hook.config(), rules=rules("secrets")))
        value = base64.b64encode(b"correct horse").decode()
        body = {"metadata": {"name": "s"}, "data": {"k": value}}
        with structlog.testing.capture_logs() as logs:
            answer = await refused(
                world, "POST", "/api/v1/namespaces/default/secrets", body, 403, "denied the request: no"
            )
        # The webhook is there to see it; the answer and the log are not.
        assert hook.reviews[0]["request"]["object"]["data"] == {"k": value}
        assert value not in json.dumps(logs, default=str) + answer.message
