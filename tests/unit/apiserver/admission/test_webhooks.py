# SPDX-License-Identifier: Apache-2.0
"""Writes on their way past real webhook servers: allowed, refused, changed, failed and asked again."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import json
import math
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import structlog.testing
from aiohttp import web

from handfast.api import conversion, kinds, status
from handfast.api.cel import engine
from handfast.apiserver import identity
from handfast.apiserver.admission import plugin, webhooks
from tests.properties import sample_documents
from tests.unit.apiserver import hooking
from tests.world import clock as clocks

MUTATING, VALIDATING = hooking.MUTATING, hooking.VALIDATING
USER = identity.User("jane", ("dev", "system:authenticated"), "7", {"example.com/team": ("red", "blue")})
OPTIONS = {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"}


def pod(**metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web", "namespace": "shop", "uid": "u-1", **metadata},
        "spec": {"containers": [{"name": "main", "image": "nginx"}]},
    }


def asked(document: dict[str, Any] | None = None, **more: Any) -> plugin.Write:
    given: dict[str, Any] = {
        "operation": "CREATE",
        "kind": hooking.POD,
        "subresource": "",
        "namespace": "shop",
        "name": "web",
        "document": pod() if document is None else document,
        "old": None,
        "user": USER,
        "dry_run": False,
    }
    return plugin.Write(**{**given, **more})


def label(key: str, value: str = "yes") -> dict[str, Any]:
    """A patch operation; the Pod must have labels."""
    return {"op": "add", "path": f"/metadata/labels/{key}", "value": value}


class Cluster:
    """The webhooks of one server, and what they were told to count."""

    def __init__(self, table: kinds.Table | None = None) -> None:
        self.clock = clocks.MovableClock()
        self.copy = hooking.Copy()
        self.counted: list[tuple[str, str]] = []
        self.hooks = webhooks.Webhooks(
            self.copy.replica, self.clock, table=table, count=lambda *row: self.counted.append(row)
        )
        self.copy.put_namespace("shop", tier="front")
        self.hooks.load()
        self._servers = contextlib.AsyncExitStack()

    async def serve(self, answer: hooking.Answer | None = None) -> hooking.Server:
        certificate = hooking.serving("127.0.0.1", "hook.system.svc")
        return await self._servers.enter_async_context(hooking.Server(certificate, answer))

    async def configured(self, kind: str, answer: hooking.Answer | None = None, **more: Any) -> hooking.Server:
        """One webhook of its own configuration, `one.example.com`."""
        server = await self.serve(answer)
        self.configure(kind, hooking.webhook("one", server.config(), **more))
        return server

    def configure(self, kind: str, *hooks: dict[str, Any], name: str = "config") -> None:
        self.copy.put_configuration(hooking.configuration(kind, *hooks, name=name))

    async def mutated(self, write: plugin.Write, **more: Any) -> bool:
        return await self.hooks.mutate(write, OPTIONS, [], **more)

    async def refused(self, verb: str, write: plugin.Write | None = None) -> status.StatusError:
        with pytest.raises(status.StatusError) as caught:
            await getattr(self.hooks, verb)(write or asked(), OPTIONS, [])
        return caught.value

    async def close(self) -> None:
        await self.hooks.close()
        await self._servers.aclose()


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    made = Cluster()
    yield made
    await made.close()


@pytest.fixture
async def custom() -> AsyncIterator[tuple[Cluster, kinds.Table]]:
    table = kinds.Table(kinds.builtin())
    made = Cluster(table)
    yield made, table
    await made.close()


# --- whom a write concerns


async def test_without_webhooks_nobody_is_asked(cluster):
    assert not cluster.hooks.has_mutating("CREATE", hooking.POD, "")
    assert not cluster.hooks.has_validating("CREATE", hooking.POD, "")
    write = asked()
    assert not await cluster.mutated(write)
    await cluster.hooks.validate(write, OPTIONS, [])
    assert write.document == pod()


async def test_configurations_are_followed(cluster):
    def seen() -> tuple[bool, bool]:
        return (
            cluster.hooks.has_mutating("CREATE", hooking.POD, ""),
            cluster.hooks.has_validating("CREATE", hooking.POD, ""),
        )

    rule = {"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}
    hook = hooking.webhook("one", {"url": "https://example.com"}, rules=[rule])
    cluster.configure(MUTATING, hook)
    assert seen() == (True, False)
    assert not cluster.hooks.has_mutating("UPDATE", hooking.POD, "")
    assert not cluster.hooks.has_mutating("CREATE", hooking.POD, "eviction")
    assert not cluster.hooks.has_mutating("CREATE", kinds.row("secrets"), "")
    cluster.configure(VALIDATING, hook)
    assert seen() == (True, True)
    cluster.configure(MUTATING, {**hook, "rules": []})
    assert seen() == (False, True)
    cluster.copy.drop(webhooks.VALIDATING, "config")
    assert seen() == (False, False)


async def test_what_was_stored_before_counts(cluster):
    cluster.configure(VALIDATING, hooking.webhook("one", {"url": "https://example.com"}))
    later = webhooks.Webhooks(cluster.copy.replica, cluster.clock)
    later.load()
    assert later.has_validating("DELETE", hooking.POD, "")
    await later.close()


async def test_after_close_nothing_is_followed(cluster):
    await cluster.hooks.close()
    cluster.configure(MUTATING, hooking.webhook("one", {"url": "https://example.com"}))
    assert not cluster.hooks.has_mutating("CREATE", hooking.POD, "")


async def test_configurations_are_never_sent(cluster):
    for configured in (MUTATING, VALIDATING):
        cluster.configure(configured, hooking.webhook("one", {"url": "https://example.com"}))
    assert cluster.hooks.has_mutating("DELETE", hooking.POD, "")
    assert cluster.hooks.has_validating("DELETE", hooking.POD, "")
    for plural in ("mutatingwebhookconfigurations", "validatingwebhookconfigurations"):
        own = kinds.row(plural, "admissionregistration.k8s.io")
        assert not cluster.hooks.has_mutating("DELETE", own, "")
        assert not cluster.hooks.has_validating("DELETE", own, "")


async def test_what_is_not_evaluated_and_what_cannot_be_called_is_logged(cluster, monkeypatch):
    monkeypatch.setattr(engine, "_cel", lambda: None)
    conditional = hooking.webhook("one", {"url": "https://a.example"}, matchConditions=[{"name": "x"}])
    with structlog.testing.capture_logs() as logged:
        cluster.configure(MUTATING, conditional, hooking.webhook("two", {}, admissionReviewVersions=["v2"]))
    assert [(row["webhook"], row["event"]) for row in logged] == [
        ("one.example.com", "matchConditions are not evaluated: the webhook is asked without"),
        ("two.example.com", "a webhook cannot be called"),
    ]


NEVER = [{"name": "always", "expression": "request.operation == 'CREATE'"}, {"name": "never", "expression": "false"}]


async def test_without_the_evaluator_webhooks_with_conditions_are_asked(cluster, monkeypatch):
    monkeypatch.setattr(engine, "_cel", lambda: None)
    server = await cluster.configured(VALIDATING, matchConditions=NEVER)
    await cluster.hooks.validate(asked(), OPTIONS, [])
    assert len(server.reviews) == 1


async def test_a_condition_that_is_false_passes_a_webhook_over(cluster):
    server = await cluster.configured(VALIDATING, matchConditions=NEVER)
    await cluster.hooks.validate(asked(), OPTIONS, [])
    assert server.reviews == []
    server = await cluster.configured(VALIDATING, matchConditions=NEVER[:1])
    await cluster.hooks.validate(asked(), OPTIONS, [])
    assert len(server.reviews) == 1


async def test_a_condition_that_is_false_passes_a_changing_webhook_over(cluster):
    server = await cluster.configured(MUTATING, matchConditions=NEVER)
    assert not await cluster.hooks.mutate(asked(), OPTIONS, [])
    assert server.reviews == []


@pytest.mark.parametrize("sort", [MUTATING, VALIDATING])
async def test_conditions_are_evaluated_where_the_caller_says(cluster, sort):
    """Of a heavy object, or of a long condition that is not compiled yet, that is aside."""
    condition = {"name": "x", "expression": f"'{sort}' == 'cold'"}
    server = await cluster.configured(sort, matchConditions=[condition])
    weights: list[float] = []

    async def work(weight: Callable[[], float], do: Callable[..., bool], *arguments: Any) -> bool:
        weights.append(weight())
        return do(*arguments)

    for _ in range(2):
        await (cluster.hooks.mutate if sort == MUTATING else cluster.hooks.validate)(asked(), OPTIONS, [], work=work)
    assert (weights, server.reviews) == ([math.inf, pytest.approx(0, abs=10)], [])


@pytest.mark.parametrize("policy", ["Fail", "Ignore"])
async def test_a_condition_that_cannot_be_evaluated_is_for_the_failure_policy(cluster, policy):
    wrong = [{"name": "wrong", "expression": "object.nobody.has.this == 1"}]
    server = await cluster.configured(VALIDATING, matchConditions=wrong, failurePolicy=policy)
    if policy == "Fail":
        with pytest.raises(status.StatusError, match="resulted in error: no such key: nobody") as caught:
            await cluster.hooks.validate(asked(), OPTIONS, [])
        assert caught.value.code == 403
    else:
        await cluster.hooks.validate(asked(), OPTIONS, [])
    assert server.reviews == []


@pytest.mark.parametrize(
    ("labels", "write", "asks"),
    [
        ({"tier": "front"}, asked(), True),
        ({"tier": "back"}, asked(), False),
        # A Namespace: its own labels, as they will be; of a subresource and of a delete, as they are.
        (
            {"tier": "back"},
            asked({"kind": "Namespace", "metadata": {"labels": {"tier": "back"}}}, kind=kinds.row("namespaces")),
            True,
        ),
        ({"tier": "back"}, asked({"kind": "Namespace", "metadata": {}}, kind=kinds.row("namespaces")), False),
        (
            {"tier": "front"},
            asked(
                {"kind": "Namespace", "metadata": {}}, kind=kinds.row("namespaces"), subresource="status", name="shop"
            ),
            True,
        ),
        # No namespace: the selector is not applied.
        ({"tier": "back"}, asked({"kind": "Node", "metadata": {}}, kind=kinds.row("nodes"), namespace=""), True),
    ],
)
async def test_namespace_selectors(cluster, labels, write, asks):
    server = await cluster.configured(VALIDATING, namespaceSelector={"matchLabels": labels})
    await cluster.hooks.validate(write, OPTIONS, [])
    assert bool(server.reviews) is asks


async def test_a_deleted_namespace_is_selected_by_its_labels(cluster):
    server = await cluster.configured(VALIDATING, namespaceSelector={"matchLabels": {"tier": "front"}})
    write = plugin.Write(
        "DELETE", kinds.row("namespaces"), "", "", "shop", None, {"kind": "Namespace"}, USER, dry_run=False
    )
    await cluster.hooks.validate(write, OPTIONS, [])
    assert server.reviews[0]["request"]["namespace"] == "shop"


async def test_a_namespace_that_is_not_there(cluster):
    await cluster.configured(VALIDATING, namespaceSelector={"matchLabels": {"tier": "front"}})
    refusal = await cluster.refused("validate", asked(namespace="gone"))
    assert (refusal.code, refusal.message) == (404, 'namespaces "gone" not found')


async def test_object_selectors_see_what_earlier_webhooks_left(cluster):
    server = await cluster.serve(hooking.patches(label("late")))
    second = await cluster.serve()
    cluster.configure(
        MUTATING,
        hooking.webhook("one", server.config()),
        hooking.webhook("two", second.config(), objectSelector={"matchLabels": {"late": "yes"}}),
    )
    assert await cluster.mutated(asked(pod(labels={})))
    assert len(second.reviews) == 1


# --- what they are asked


async def test_the_review(cluster):
    server = await cluster.configured(VALIDATING)
    await cluster.hooks.validate(asked(old=pod(labels={"was": "here"}), operation="UPDATE"), OPTIONS, [])
    review = server.reviews[0]
    uid = review["request"].pop("uid")
    assert len(uid) == 36
    assert review == {
        "kind": "AdmissionReview",
        "apiVersion": "admission.k8s.io/v1",
        "request": {
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "requestKind": {"group": "", "version": "v1", "kind": "Pod"},
            "requestResource": {"group": "", "version": "v1", "resource": "pods"},
            "name": "web",
            "namespace": "shop",
            "operation": "UPDATE",
            "userInfo": {
                "username": "jane",
                "uid": "7",
                "groups": ["dev", "system:authenticated"],
                "extra": {"example.com/team": ["red", "blue"]},
            },
            "object": pod(),
            "oldObject": pod(labels={"was": "here"}),
            "dryRun": False,
            "options": OPTIONS,
        },
    }


async def test_the_review_of_a_subresource_with_a_document_of_its_own(cluster):
    server = await cluster.configured(VALIDATING)
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "web", "namespace": "shop"}}
    await cluster.hooks.validate(asked(eviction, subresource="eviction"), OPTIONS, [])
    request = server.reviews[0]["request"]
    assert request["kind"] == request["requestKind"] == {"group": "policy", "version": "v1", "kind": "Eviction"}
    assert request["resource"] == {"group": "", "version": "v1", "resource": "pods"}
    assert request["subResource"] == request["requestSubResource"] == "eviction"
    assert request["object"] == eviction


# --- equivalent names

EVENTS, NEW_EVENTS = kinds.row("events"), kinds.row("events", "events.k8s.io")
EVENT = {
    "apiVersion": "v1",
    "kind": "Event",
    "metadata": {"name": "e", "namespace": "shop"},
    "involvedObject": {"kind": "Pod"},
    "message": "hello",
}


def events_rule(group: str) -> dict[str, Any]:
    return {"operations": ["*"], "apiGroups": [group], "apiVersions": ["v1"], "resources": ["events"]}


@pytest.mark.parametrize("is_stored", [True, False])
async def test_an_equivalent_name_is_shown_and_changed_back(cluster, is_stored):
    """The request is for events.k8s.io; the webhook knows core only, or the other way round."""
    for asked_kind, group, key in ((NEW_EVENTS, "", "message"), (EVENTS, "events.k8s.io", "note")):
        operation = {"op": "replace", "path": f"/{key}", "value": "changed"}
        server = await cluster.configured(MUTATING, hooking.patches(operation), rules=[events_rule(group)])
        document = copy.deepcopy(EVENT) if is_stored else conversion.to_served(asked_kind, copy.deepcopy(EVENT))
        expected = {**EVENT, "message": "changed"}
        write = asked(document, kind=asked_kind, name="e")
        assert await cluster.mutated(write)
        assert write.document == (expected if is_stored else conversion.to_served(asked_kind, expected))
        request = server.reviews[0]["request"]
        assert request["object"][key] == "hello"
        assert request["resource"]["group"] == request["kind"]["group"] == group
        assert request["requestResource"]["group"] == request["requestKind"]["group"] == asked_kind.group


async def test_custom_kinds_are_found_when_they_come(custom):
    """Versions of a custom resource are names of the same objects; the table of kinds says which there are."""
    made, table = custom
    rows = [
        sample_documents.widget(version=version, stored_group="example.com", stored_version="v1")
        for version in ("v1", "v2")
    ]
    table.add(rows[0])
    rule = {"operations": ["*"], "apiGroups": ["example.com"], "apiVersions": ["v2"], "resources": ["widgets"]}
    server = await made.configured(MUTATING, hooking.patches({"op": "add", "path": "/spec", "value": 1}), rules=[rule])
    assert not made.hooks.has_mutating("CREATE", rows[0], "")
    table.add(rows[1])
    made.copy.put(
        "apiextensions.k8s.io/customresourcedefinitions/",
        {"apiVersion": "v1", "kind": "X", "metadata": {"name": "widgets.example.com"}},
    )
    widget = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w", "namespace": "shop"}}
    write = asked(dict(widget), kind=rows[0], name="w")
    assert made.hooks.has_mutating("CREATE", rows[0], "")
    assert await made.mutated(write)
    assert server.reviews[0]["request"]["object"]["apiVersion"] == "example.com/v2"
    assert write.document == {**widget, "spec": 1}


# --- yes and no


@pytest.mark.parametrize("verb", ["mutate", "validate"])
@pytest.mark.parametrize(
    ("response", "code", "reason", "message"),
    [
        ({}, 403, "Forbidden", " without explanation"),
        ({"status": {"message": "not today"}}, 403, "Forbidden", ": not today"),
        ({"status": {"message": "full", "code": 429, "reason": "TooManyRequests"}}, 429, "TooManyRequests", ": full"),
        ({"status": {"message": "fine", "code": 200, "status": "Success"}}, 400, "BadRequest", ": fine"),
    ],
)
async def test_denied_with_message_and_code(cluster, verb, response, code, reason, message):
    answer = hooking.says(allowed=False, **response)
    await cluster.configured(MUTATING if verb == "mutate" else VALIDATING, answer, failurePolicy="Ignore")
    refusal = await cluster.refused(verb)
    assert (refusal.code, refusal.reason) == (code, reason)
    assert refusal.message == f'admission webhook "one.example.com" denied the request{message}'
    assert cluster.counted == [("one.example.com", webhooks.DENIED)]


async def test_warnings_and_annotations_reach_the_caller(cluster):
    said = {"warnings": ["deprecated"], "auditAnnotations": {"rule": "7"}}
    await cluster.configured(MUTATING, hooking.says(**said))
    await cluster.configured(VALIDATING, hooking.says(allowed=False, **said))
    warnings: list[str] = ["before"]
    annotations: dict[str, str] = {}
    await cluster.hooks.mutate(asked(), OPTIONS, warnings, annotations=annotations)
    assert annotations == {"one.example.com/rule": "7"}
    annotations.clear()
    with pytest.raises(status.StatusError):
        await cluster.hooks.validate(asked(), OPTIONS, warnings, annotations=annotations)
    assert warnings == ["before", "deprecated", "deprecated"]
    assert annotations == {"one.example.com/rule": "7"}


async def test_a_service_is_called(cluster):
    server = await cluster.serve(hooking.says(allowed=False, status={"message": "from the service"}))
    cluster.copy.put_service(server.port)
    config = {"service": hooking.SERVICE, "caBundle": hooking.bundle()}
    cluster.configure(VALIDATING, hooking.webhook("one", config))
    assert (await cluster.refused("validate")).message.endswith(": from the service")


@pytest.mark.parametrize(("effects", "allowed"), [("None", True), ("NoneOnDryRun", True), ("Some", False)])
@pytest.mark.parametrize("verb", ["mutate", "validate"])
async def test_dry_runs(cluster, verb, effects, allowed):
    kind_ = MUTATING if verb == "mutate" else VALIDATING
    server = await cluster.configured(kind_, sideEffects=effects, failurePolicy="Ignore")
    write = asked(dry_run=True)
    if allowed:
        await getattr(cluster.hooks, verb)(write, OPTIONS, [])
        assert server.reviews[0]["request"]["dryRun"] is True
        return
    refusal = await cluster.refused(verb, write)
    assert (refusal.code, refusal.reason) == (400, "BadRequest")
    assert refusal.message == 'admission webhook "one.example.com" does not support dry run'
    assert server.reviews == []
    await getattr(cluster.hooks, verb)(asked(), OPTIONS, [])


# --- changes


async def test_a_patch_is_applied_in_place(cluster):
    operation = {"op": "add", "path": "/spec/nodeName", "value": "n1"}
    await cluster.configured(MUTATING, hooking.patches(operation))
    write = asked()
    document = write.document
    assert await cluster.mutated(write)
    assert write.document is document
    assert document == {**pod(), "spec": {**pod()["spec"], "nodeName": "n1"}}


async def test_a_patch_that_changes_nothing_is_no_change(cluster):
    await cluster.configured(MUTATING, hooking.patches({"op": "replace", "path": "/kind", "value": "Pod"}))
    assert not await cluster.mutated(asked())


async def test_a_document_of_a_subresource_may_be_changed(cluster):
    await cluster.configured(MUTATING, hooking.patches({"op": "add", "path": "/deleteOptions", "value": {}}))
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "web", "namespace": "shop"}}
    write = asked(dict(eviction), subresource="eviction")
    assert await cluster.mutated(write)
    assert write.document == {**eviction, "deleteOptions": {}}


async def test_what_is_deleted_cannot_be_changed(cluster):
    await cluster.configured(MUTATING, hooking.patches(label("x")), failurePolicy="Ignore")
    write = plugin.Write("DELETE", hooking.POD, "", "shop", "web", None, pod(), USER, dry_run=False)
    refusal = await cluster.refused("mutate", write)
    assert refusal.code == 500
    assert refusal.message.endswith("attempted to modify the object, which is not supported for this operation")


@pytest.mark.parametrize("path", ["/metadata/name", "/metadata/namespace", "/metadata/uid", "/kind", "/apiVersion"])
async def test_identity_cannot_be_changed(cluster, path):
    """Whatever the failure policy."""
    operation = {"op": "replace", "path": path, "value": "other"}
    await cluster.configured(MUTATING, hooking.patches(operation), failurePolicy="Ignore")
    write = asked()
    refusal = await cluster.refused("mutate", write)
    assert (refusal.code, refusal.reason) == (500, "InternalError")
    assert path.strip("/").replace("/", ".") in refusal.message
    assert write.document == pod()


async def test_what_only_the_server_sets_is_put_back(cluster):
    await cluster.configured(
        MUTATING,
        hooking.patches(
            {"op": "add", "path": "/metadata/deletionTimestamp", "value": "2020-01-01T00:00:00Z"}, label("x")
        ),
    )
    write = asked(pod(labels={}))
    assert await cluster.mutated(write)
    assert write.document == pod(labels={"x": "yes"})


async def test_mutating_webhooks_are_asked_in_order_and_see_each_others_changes(cluster):
    servers = {}
    for name in ("b", "a"):
        hooks = []
        for number in ("2", "1"):
            key = name + number
            servers[key] = await cluster.serve(hooking.patches(label(key)))
            hooks.append(hooking.webhook(key, servers[key].config()))
        cluster.configure(MUTATING, *hooks, name=name)
    write = asked(pod(labels={}))
    assert await cluster.mutated(write)
    seen = {key: list(server.reviews[0]["request"]["object"]["metadata"]["labels"]) for key, server in servers.items()}
    assert seen == {"a2": [], "a1": ["a2"], "b2": ["a2", "a1"], "b1": ["a2", "a1", "b2"]}
    assert write.document is not None
    assert list(write.document["metadata"]["labels"]) == ["a2", "a1", "b2", "b1"]


def counting(key: str) -> hooking.Answer:
    """Sets a label to how many labels there are, other than its own: changes whenever somebody else did."""

    async def answer(_: web.BaseRequest, review: hooking.Review) -> web.StreamResponse:
        labels = review["request"]["object"]["metadata"]["labels"]
        value = str(len([name for name in labels if name != key]))
        return web.json_response(
            hooking.reviewed(review, patchType="JSONPatch", patch=hooking.encoded([label(key, value)]))
        )

    return answer


async def reinvoked(
    cluster: Cluster,
    policies: tuple[str, str],
    between: Callable[[dict[str, Any]], None] | None = None,
    first: hooking.Answer | None = None,
    second: hooking.Answer | None = None,
) -> tuple[dict[str, str], list[int]]:
    """Labels at the end, and how often each of two webhooks was asked."""
    servers = [await cluster.serve(first or counting("one")), await cluster.serve(second or counting("two"))]
    cluster.configure(
        MUTATING,
        *(
            hooking.webhook(name, server.config(), reinvocationPolicy=policy)
            for name, server, policy in zip(("one", "two"), servers, policies, strict=True)
        ),
    )
    write = asked(pod(labels={}))

    async def plugins() -> None:
        assert between is not None
        assert write.document is not None
        between(write.document["metadata"]["labels"])

    again: Callable[[], Awaitable[None]] | None = None if between is None else plugins
    assert await cluster.mutated(write, between=again)
    assert write.document is not None
    return write.document["metadata"]["labels"], [len(server.reviews) for server in servers]


async def test_a_webhook_is_asked_again_after_a_later_change(cluster):
    """Once more, not for ever; and the second one too, because the first changed something the second time."""
    assert await reinvoked(cluster, ("IfNeeded", "IfNeeded")) == ({"one": "1", "two": "1"}, [2, 2])


async def test_who_has_seen_everything_is_not_asked_again(cluster):
    steady = hooking.patches(label("one"))
    assert await reinvoked(cluster, ("IfNeeded", "IfNeeded"), first=steady) == ({"one": "yes", "two": "1"}, [2, 1])


async def test_a_webhook_that_does_not_want_to_is_not_asked_again(cluster):
    assert await reinvoked(cluster, ("Never", "IfNeeded")) == ({"one": "0", "two": "1"}, [1, 1])


async def test_without_a_later_change_nobody_is_asked_again(cluster):
    assert await reinvoked(cluster, ("IfNeeded", "IfNeeded"), second=hooking.says()) == ({"one": "0"}, [1, 1])


@pytest.mark.parametrize(("added", "times"), [({"three": "x"}, [2, 2]), ({}, [2, 1])])
async def test_plugins_run_between_and_their_changes_count(cluster, added, times):
    steady = hooking.patches(label("one"))
    labels, asked_times = await reinvoked(
        cluster, ("IfNeeded", "IfNeeded"), lambda labels: labels.update(added), first=steady
    )
    assert asked_times == times
    assert labels == {"one": "yes", "two": str(1 + len(added)), **added}


async def test_plugins_do_not_run_again_without_a_change(cluster):
    async def plugins() -> None:
        raise AssertionError

    await cluster.configured(MUTATING)
    assert not await cluster.mutated(asked(), between=plugins)


# --- failures

ALLOWED = json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": {"allowed": True}})
FAILURES = [
    pytest.param(hooking.sends(b"", 500), "the server responded with the status code 500 but", id="500"),
    pytest.param(hooking.sends(b"<html>"), "the answer is not the JSON of an AdmissionReview", id="not-json"),
    pytest.param(hooking.sends(ALLOWED.encode()), "expected response.uid=", id="no-uid"),
    pytest.param(hooking.sends(b" " * (4 << 20)), "the answer is larger than 3145728 bytes", id="too-long"),
]
UNDECODABLE = pytest.param(
    hooking.says(patchType="JSONPatch", patch="bm8="), "received undecodable patch in webhook", id="no-patch"
)
BAD_PATCHES = [
    pytest.param(
        hooking.patches({"op": "remove", "path": "/nothing"}), "received a patch that does not apply", id="not-there"
    ),
    pytest.param(
        hooking.patches({"op": "replace", "path": "/spec", "value": "text"}),
        "received a patch that does not leave a valid object: json: cannot unmarshal string",
        id="wrong-type",
    ),
]


@pytest.mark.parametrize(("answer", "why"), FAILURES)
@pytest.mark.parametrize("verb", ["mutate", "validate"])
async def test_failures_end_the_request(cluster, verb, answer, why):
    await cluster.configured(MUTATING if verb == "mutate" else VALIDATING, answer)
    refusal = await cluster.refused(verb)
    assert (refusal.code, refusal.reason) == (500, "InternalError")
    assert refusal.message.startswith('Internal error occurred: failed calling webhook "one.example.com": ')
    assert why in refusal.message
    assert cluster.counted == [("one.example.com", webhooks.FAILED_CLOSED)]


@pytest.mark.parametrize(("answer", "why"), [*FAILURES, UNDECODABLE])
async def test_failures_are_passed_over_if_the_policy_is_ignore(cluster, answer, why):
    failing, healthy = await cluster.serve(answer), await cluster.serve(hooking.patches(label("x")))
    cluster.configure(
        MUTATING,
        hooking.webhook("one", failing.config(), failurePolicy="Ignore"),
        hooking.webhook("two", healthy.config()),
    )
    write = asked(pod(labels={}))
    annotations: dict[str, str] = {}
    with structlog.testing.capture_logs() as logged:
        assert await cluster.mutated(write, annotations=annotations)
    assert write.document == pod(labels={"x": "yes"})
    assert annotations == {"failed-open.mutation.webhook.admission.k8s.io/round_0_index_0": "one.example.com"}
    assert cluster.counted == [("one.example.com", webhooks.FAILED_OPEN)]
    assert [(row["webhook"], row["passed_over"]) for row in logged] == [("one.example.com", True)]
    assert why in logged[0]["error"]


@pytest.mark.parametrize("policy", ["Fail", "Ignore"])
@pytest.mark.parametrize(("answer", "why"), BAD_PATCHES)
async def test_a_patch_that_does_not_apply_is_a_failure(cluster, answer, why, policy):
    hook = await cluster.serve(answer)
    cluster.configure(MUTATING, hooking.webhook("one", hook.config(), failurePolicy=policy))
    write = asked()
    refusal = await cluster.refused("mutate", write)
    assert refusal.code == 500
    assert refusal.message.startswith(f'Internal error occurred: failed calling webhook "one.example.com": {why}')
    assert write.document == pod()


async def test_a_patch_that_breaks_the_types_is_a_failure(cluster):
    """Of custom objects too, whose metadata is known."""
    await cluster.configured(MUTATING, hooking.patches({"op": "add", "path": "/metadata/labels", "value": {"a": 1}}))
    for document in (pod(), {**pod(), "apiVersion": "example.com/v1", "kind": "Widget"}):
        assert "does not leave a valid object" in (await cluster.refused("mutate", asked(document))).message


async def test_a_wrong_uid_is_a_failure(cluster):
    """An answer that was right for another request is not right for this one."""
    first: list[bytes] = []

    async def replays(_: web.BaseRequest, review: hooking.Review) -> web.StreamResponse:
        first.append(json.dumps(hooking.reviewed(review)).encode())
        return web.Response(body=first[0])

    await cluster.configured(VALIDATING, replays)
    await cluster.hooks.validate(asked(), OPTIONS, [])
    assert "expected response.uid=" in (await cluster.refused("validate")).message


async def test_a_webhook_that_hangs_ends_at_its_deadline(cluster):
    server = await cluster.configured(VALIDATING, hooking.hangs, timeoutSeconds=5)
    call = asyncio.ensure_future(cluster.refused("validate"))
    async with asyncio.timeout(10):
        await server.asked.wait()
        await cluster.clock.advance(5.0)
        refusal = await call
    assert refusal.code == 500
    assert refusal.message.endswith("context deadline exceeded")


async def test_a_certificate_of_another_ca_is_a_failure(cluster):
    server = await cluster.serve()
    cluster.configure(VALIDATING, hooking.webhook("one", server.config(caBundle=hooking.bundle("evil"))))
    assert "tls: failed to verify certificate" in (await cluster.refused("validate")).message
    assert server.reviews == []


async def test_a_failing_webhook_is_logged_when_it_begins_and_when_it_ends(cluster):
    server = await cluster.configured(VALIDATING, hooking.sends(b"", 500), failurePolicy="Ignore")
    annotations: dict[str, str] = {}
    with structlog.testing.capture_logs() as logged:
        for _ in range(3):
            await cluster.hooks.validate(asked(), OPTIONS, [], annotations=annotations)
        server.answer = hooking.says()
        for _ in range(2):
            await cluster.hooks.validate(asked(), OPTIONS, [])
        # A new configuration begins anew.
        cluster.configure(VALIDATING, hooking.webhook("one", server.config(), failurePolicy="Ignore"))
        server.answer = hooking.sends(b"", 500)
        await cluster.hooks.validate(asked(), OPTIONS, [])
    assert [row["event"] for row in logged] == [
        "an admission webhook fails",
        "an admission webhook answers again",
        "an admission webhook fails",
    ]
    assert annotations == {"failed-open.validating.webhook.admission.k8s.io/round_0_index_0": "one.example.com"}
    assert cluster.counted == [("one.example.com", webhooks.FAILED_OPEN)] * 4


# --- validating ones together


async def test_validating_webhooks_are_asked_at_the_same_time(cluster):
    both = asyncio.Barrier(2)

    async def together(_: web.BaseRequest, review: hooking.Review) -> web.StreamResponse:
        async with asyncio.timeout(10):
            await both.wait()
        return web.json_response(hooking.reviewed(review, warnings=[review["request"]["name"]]))

    server = await cluster.serve(together)
    cluster.configure(VALIDATING, *(hooking.webhook(name, server.config()) for name in ("one", "two")))
    warnings: list[str] = []
    await cluster.hooks.validate(asked(), OPTIONS, warnings)
    assert warnings == ["web", "web"]


async def test_the_first_refusal_in_order_counts_and_all_are_waited_for(cluster):
    fast_is_done = asyncio.Event()

    async def slow(_: web.BaseRequest, review: hooking.Review) -> web.StreamResponse:
        async with asyncio.timeout(10):
            await fast_is_done.wait()
        return web.json_response(hooking.reviewed(review, allowed=False, status={"message": "slow"}, warnings=["s"]))

    async def fast(_: web.BaseRequest, review: hooking.Review) -> web.StreamResponse:
        fast_is_done.set()
        return web.json_response(hooking.reviewed(review, allowed=False, status={"message": "fast"}, warnings=["f"]))

    servers = [await cluster.serve(slow), await cluster.serve(fast)]
    cluster.configure(
        VALIDATING,
        *(hooking.webhook(name, server.config()) for name, server in zip(("a", "b"), servers, strict=True)),
    )
    warnings: list[str] = []
    with pytest.raises(status.StatusError) as caught:
        await cluster.hooks.validate(asked(), OPTIONS, warnings)
    assert caught.value.message.endswith(": slow")
    assert warnings == ["s", "f"]
