# SPDX-License-Identifier: Apache-2.0
"""The chain of plugins: who is asked, in which order; and what is asked of webhooks, when."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest
from aiohttp import web

from handfast.api import status
from handfast.apiserver import calls, identity, request
from handfast.apiserver.admission import mutating_policies, namespace_lifecycle, policies, station, webhooks
from handfast.apiserver.admission import plugin as admission
from handfast.rules import access, decision
from tests.unit.apiserver import admission_world

PODS, NODES, NAMESPACES = ("", "pods"), ("", "nodes"), ("", "namespaces")


class Noted:
    """Plugins that write down that they were asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def row(
        self,
        name: str,
        *operations: str,
        resources: frozenset[tuple[str, str]] = frozenset(),
        changes: bool = False,
    ) -> admission.Row:
        def plugin(write: admission.Write, _: admission.Context) -> None:
            self.asked.append(f"{name} {write.operation}")

        return admission.Row(name, frozenset(operations), plugin, resources, changes)


def pod(operation: str = "CREATE", **more: Any) -> admission.Write:
    return admission_world.write_of(operation, PODS, namespace="a", name="p", **more)


class TestChain:
    async def test_order_operations_and_resources(self) -> None:
        noted = Noted()
        rows = (
            noted.row("first", "CREATE", "DELETE"),
            noted.row("nodes", "CREATE", resources=frozenset({NODES})),
            noted.row("pods", "CREATE", resources=frozenset({PODS})),
            noted.row("updates", "UPDATE"),
        )
        chain = admission.Chain(rows, admission_world.World().context)
        for _ in range(2):
            await chain.run(pod())
        await chain.run(pod("DELETE"))
        assert noted.asked == ["first CREATE", "pods CREATE", "first CREATE", "pods CREATE", "first DELETE"]

    @pytest.mark.parametrize("scopes", [(), ("user:info",)])
    async def test_what_plugins_ask_is_limited_by_the_callers_scopes(self, scopes: tuple[str, ...]) -> None:
        asked: list[access.Attributes] = []

        def decide(attributes: access.Attributes) -> decision.Decision:
            asked.append(attributes)
            return decision.NotMine("Test", "", "test")

        def plugin(write: admission.Write, context: admission.Context) -> None:
            context.decide(access.Attributes(write.user.name, (), "trust", is_resource=True))

        rows = (admission.Row("asks", frozenset({"CREATE"}), plugin),)
        user = identity.User("jane", (), extra={access.SCOPES: scopes} if scopes else {})
        await admission.Chain(rows, admission_world.World(decide).context).run(pod(user=user))
        assert [question.scopes for question in asked] == [scopes]

    async def test_the_first_refusal_ends_it(self) -> None:
        noted = Noted()

        def refuse(write: admission.Write, _: admission.Context) -> None:
            raise status.forbidden("pods", "", write.name, "no")

        rows = (admission.Row("no", frozenset({"CREATE"}), refuse), noted.row("after", "CREATE"))
        with pytest.raises(status.StatusError):
            await admission.Chain(rows, admission_world.World().context).run(pod())
        assert noted.asked == []

    async def test_one_that_waits_is_waited_for(self) -> None:
        noted = Noted()

        async def later() -> None:
            noted.asked.append("later")

        def waits(_: admission.Write, __: admission.Context) -> Awaitable[None]:
            return later()

        rows = (admission.Row("waits", frozenset({"CREATE"}), waits), noted.row("after", "CREATE"))
        await admission.Chain(rows, admission_world.World().context).run(pod())
        assert noted.asked == ["later", "after CREATE"]


class Hooks:
    """Webhooks that do as they are told."""

    def __init__(self, noted: Noted, *, there: bool, changes: bool = False) -> None:
        self._noted = noted
        self._there = there
        self._changes = changes
        self.options: dict[str, Any] = {}

    def has_mutating(self, *_: Any) -> bool:
        return self._there

    has_validating = has_mutating

    async def mutate(
        self,
        asked: Any,
        options: dict[str, Any],
        warnings: list[str],
        *,
        annotations: dict[str, str],
        between: Callable[[], Awaitable[None]],
        work: Callable[..., Awaitable[Any]],
    ) -> bool:
        annotations["said"] = "so"
        self._noted.asked.append("webhooks mutate")
        self.options = options
        warnings.append("mind")
        if self._changes:
            await between()
        return self._changes

    async def validate(
        self,
        asked: Any,
        options: dict[str, Any],
        warnings: list[str],
        *,
        annotations: dict[str, str],
        work: Callable[..., Awaitable[Any]],
    ) -> None:
        self._noted.asked.append("webhooks validate")
        self.options = options


class TestAdmitter:
    @staticmethod
    def admitter(noted: Noted, hooks: Hooks, *more: admission.Row) -> station.Admitter:
        context = admission_world.World().context
        return station.Admitter(
            admission.Chain((noted.row("changes", "CREATE", "UPDATE"), *more), context),
            admission.Chain((noted.row("looks", "CREATE", "UPDATE"),), context),
            cast("webhooks.Webhooks", hooks),
            policies.Policies(context.replica),
            mutating_policies.MutatingPolicies(context.replica),
            admission.Chain((noted.row("reserves", "CREATE"),), context),
        )

    @staticmethod
    def asked(verb: str = "create", **query: str) -> calls.Call:
        info = request.RequestInfo(verb, "", True, "", "v1", "a", "pods", "p", query=query)
        return calls.Call(cast("web.BaseRequest", None), "1", info)

    @pytest.mark.parametrize(
        ("there", "changes", "order"),
        [
            (False, False, ["changes CREATE", "looks CREATE", "reserves CREATE"]),
            (
                True,
                False,
                ["changes CREATE", "webhooks mutate", "looks CREATE", "webhooks validate", "reserves CREATE"],
            ),
            (
                True,
                True,
                [
                    "changes CREATE",
                    "webhooks mutate",
                    "changes CREATE",
                    "looks CREATE",
                    "webhooks validate",
                    "reserves CREATE",
                ],
            ),
        ],
    )
    async def test_those_that_change_are_asked_first_and_those_that_reserve_last(
        self, there: bool, changes: bool, order: list[str]
    ) -> None:
        noted = Noted()
        admitter = self.admitter(noted, Hooks(noted, there=there, changes=changes))
        await admitter.admit(self.asked(), pod())
        assert noted.asked == order

    async def test_warnings_reach_the_caller(self) -> None:
        noted = Noted()
        asked = self.asked()
        assert await self.admitter(noted, Hooks(noted, there=True, changes=True)).mutate(asked, pod())
        assert asked.warnings == ["mind"]
        assert asked.annotations == {"said": "so"}

    @pytest.mark.parametrize(
        ("verb", "operation", "query", "options"),
        [
            ("create", "CREATE", {"fieldManager": "me"}, {"kind": "CreateOptions", "fieldManager": "me"}),
            ("update", "UPDATE", {"x": "y"}, {"kind": "UpdateOptions"}),
            ("patch", "UPDATE", {"fieldValidation": "Strict"}, {"kind": "PatchOptions", "fieldValidation": "Strict"}),
            (
                "delete",
                "DELETE",
                {"propagationPolicy": "Orphan"},
                {"kind": "DeleteOptions", "propagationPolicy": "Orphan"},
            ),
        ],
    )
    async def test_webhooks_see_the_options_of_the_request(
        self, verb: str, operation: str, query: dict[str, str], options: dict[str, str]
    ) -> None:
        noted = Noted()
        hooks = Hooks(noted, there=True)
        await self.admitter(noted, hooks).admit(self.asked(verb, **query), pod(operation))
        assert hooks.options == {"apiVersion": "meta.k8s.io/v1", **options}


class TestRequire:
    @pytest.mark.parametrize("verdict", [None, decision.Approve("A", "a", "r"), decision.NotMine("N", "n", "r")])
    def test_goes_on(self, verdict: decision.Decision | None) -> None:
        admission.require(pod(), verdict)

    def test_a_refusal_keeps_its_word(self) -> None:
        with pytest.raises(admission.Refusal) as caught:
            admission.require(pod(), decision.Deny("OtherNode", "not yours", "r"))
        assert (caught.value.code, caught.value.why) == (403, "OtherNode")
        assert caught.value.message == 'pods "p" is forbidden: not yours'
        assert (caught.value.kind, caught.value.group, caught.value.name) == ("pods", "", "p")

    def test_what_is_missing_is_not_found(self) -> None:
        with pytest.raises(status.StatusError, match='pod "x" not found') as caught:
            admission.require(pod(), decision.Missing("NotFound", 'pod "x" not found', "r", "pod", "x"))
        assert caught.value.code == 404


class TestNamespaceLifecycle:
    def test_a_namespace_that_is_not_there(self) -> None:
        with pytest.raises(status.StatusError) as caught:
            namespace_lifecycle.admit(pod(), admission_world.World().context)
        assert (caught.value.code, caught.value.name) == (404, "a")

    def test_a_namespace_that_is_going(self) -> None:
        world = admission_world.World()
        world.put(NAMESPACES, "a", metadata={"deletionTimestamp": "2026-06-01T00:00:00Z"})
        with pytest.raises(admission.Refusal, match="because it is being terminated") as caught:
            namespace_lifecycle.admit(pod(), world.context)
        assert caught.value.why == "NamespaceTerminating"
        assert [cause.reason for cause in caught.value.causes] == ["NamespaceTerminating"]

    def test_what_is_let_through(self) -> None:
        world = admission_world.World()
        world.put(NAMESPACES, "a")
        namespace_lifecycle.admit(pod(), world.context)
        # Only new objects need the namespace.
        namespace_lifecycle.admit(pod("DELETE"), admission_world.World().context)
        namespace_lifecycle.admit(admission_world.write_of("CREATE", NODES, name="n"), world.context)

    @pytest.mark.parametrize("name", ["default", "kube-system", "kube-public"])
    def test_three_namespaces_never_go(self, name: str) -> None:
        asked = admission_world.write_of("DELETE", NAMESPACES, name=name)
        with pytest.raises(admission.Refusal, match="this namespace may not be deleted") as caught:
            namespace_lifecycle.admit(asked, admission_world.World().context)
        assert caught.value.why == "ProtectedNamespace"
