# SPDX-License-Identifier: Apache-2.0
"""Policies that change what is written: whom they are asked about, in which order, and what they never change."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from handfast.api import kinds, status
from handfast.api.cel import engine
from handfast.api.codec import bounds
from handfast.apiserver.admission import mutating_policies, plugin, policies, policy_authors
from handfast.rules import access, decision
from handfast.rules.policies import mutators
from tests.unit.apiserver import admission_world

GROUP = "admissionregistration.k8s.io"
PODS, SECRETS, CONFIGMAPS, NAMESPACES = ("", "pods"), ("", "secrets"), ("", "configmaps"), ("", "namespaces")
REQUESTS = ("certificates.k8s.io", "certificatesigningrequests")
POLICIES, BINDINGS = (GROUP, "mutatingadmissionpolicies"), (GROUP, "mutatingadmissionpolicybindings")
RULES = {"resourceRules": [{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*", "*/*"]}]}


def label(name: str, value: str = "'y'") -> dict[str, Any]:
    text = f"Object{{metadata: Object.metadata{{labels: {{'{name}': {value}}}}}}}"
    return {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": text}}


def patch(text: str) -> dict[str, Any]:
    return {"patchType": "JSONPatch", "jsonPatch": {"expression": text}}


class Cluster:
    """A store's copy with a namespace, and the policies that follow it."""

    def __init__(self) -> None:
        self.world = admission_world.World()
        self.world.put(NAMESPACES, "a", metadata={"labels": {"tier": "front"}})
        self.policies = mutating_policies.MutatingPolicies(self.world.replica)
        self.policies.load()

    def policy(self, name: str = "p", *mutations: dict[str, Any], **spec: Any) -> None:
        done = list(mutations) or [label("by", f"'{name}'")]
        spec = {"matchConstraints": RULES, "mutations": done, "reinvocationPolicy": "Never", **spec}
        self.world.put(POLICIES, name, spec=spec)
        self.world.put(BINDINGS, name, spec={"policyName": name, **spec.pop("binding", {})})

    def mutation(
        self, resource: tuple[str, str] = PODS, operation: str = "CREATE", **more: Any
    ) -> tuple[mutating_policies.Mutation, dict[str, Any]]:
        kind = admission_world.KINDS[resource]
        document = {
            "apiVersion": kind.api_version,
            "kind": kind.kind,
            "metadata": {"name": "x", "namespace": "a"},
            **more.pop("fields", {}),
        }
        where = {"namespace": "a", "name": "x", **more}
        write = admission_world.write_of(operation, resource, document=document, **where)
        return self.policies.begin(write, {}, more.get("work")), document

    async def write(self, resource: tuple[str, str] = PODS, **more: Any) -> tuple[bool, dict[str, Any]]:
        mutation, document = self.mutation(resource, **more)
        return await mutation.first(), document


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def labels(document: dict[str, Any]) -> dict[str, str]:
    found: dict[str, str] = document["metadata"].get("labels", {})
    return found


async def test_an_object_is_changed_in_place(cluster):
    cluster.policy()
    changed, document = await cluster.write()
    assert (changed, labels(document)) == (True, {"by": "p"})


async def test_without_a_binding_or_a_policy_nothing_is(cluster):
    assert await cluster.write() == (False, cluster.mutation()[1])
    cluster.world.put(POLICIES, "p", spec={"matchConstraints": RULES, "mutations": [label("z")]})
    assert (await cluster.write())[0] is False


async def test_they_come_in_the_order_of_their_names(cluster):
    cluster.policy("b", label("seen", "has(object.metadata.labels) ? 'a was first' : 'a was not'"))
    cluster.policy("a")
    assert labels((await cluster.write())[1]) == {"by": "a", "seen": "a was first"}


async def test_those_that_want_it_are_asked_again_if_something_changed(cluster):
    count = "string(size(has(object.metadata.labels) ? object.metadata.labels : {}))"
    cluster.policy("a", label("a", count), reinvocationPolicy="IfNeeded")
    cluster.policy("b", label("b", count))
    mutation, document = cluster.mutation()
    assert await mutation.first()
    assert labels(document) == {"a": "0", "b": "1"}
    assert await mutation.again()
    assert labels(document) == {"a": "2", "b": "1"}


async def test_what_others_change_is_a_reason_too(cluster):
    cluster.policy("a", label("a", "has(object.spec) ? 'spec' : 'none'"), reinvocationPolicy="IfNeeded")
    mutation, document = cluster.mutation()
    assert await mutation.first()
    assert not await mutation.again()
    document["spec"] = {}
    assert await mutation.again()
    assert labels(document) == {"a": "spec"}


async def test_each_param_is_one_turn(cluster):
    kind = {"apiVersion": "v1", "kind": "ConfigMap"}
    for name in ("m", "n"):
        cluster.world.put(CONFIGMAPS, name, "a", data={"key": name}, metadata={"labels": {"p": "q"}})
    reference = {"selector": {"matchLabels": {"p": "q"}}, "parameterNotFoundAction": "Deny"}
    text = "Object{metadata: Object.metadata{labels: {params.data.key: params.metadata.name}}}"
    mutation = {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": text}}
    cluster.policy("p", mutation, paramKind=kind, binding={"paramRef": reference}, reinvocationPolicy="IfNeeded")
    mutated, document = cluster.mutation()
    assert await mutated.first()
    assert labels(document) == {"m": "m", "n": "n"}
    assert not await mutated.again()


async def refused(cluster: Cluster, *args: Any, **more: Any) -> status.StatusError:
    with pytest.raises(status.StatusError) as caught:
        await cluster.write(*args, **more)
    return caught.value


async def test_an_error_ends_the_request(cluster):
    cluster.policy("p", label("z", "object.nope"))
    refusal = await refused(cluster)
    assert refusal.code == 422
    assert refusal.message.startswith(
        "pods \"x\" is forbidden: MutatingAdmissionPolicy 'p' with binding 'p' denied request: expression '"
    )
    cluster.policy("p", label("z", "object.nope"), failurePolicy="Ignore")
    assert (await cluster.write())[0] is False


async def test_a_binding_that_cannot_be_used_is_an_error(cluster):
    cluster.policy("p", paramKind={"apiVersion": "v9", "kind": "Nope"}, binding={"paramRef": {"name": "x"}})
    assert "failed to configure binding: paramKind kind `v9/Nope` not known" in (await refused(cluster)).message
    cluster.policy(
        "p", matchConstraints={**RULES, "objectSelector": {"matchExpressions": [{"key": "a", "operator": "Nope"}]}}
    )
    assert "MutatingAdmissionPolicy 'p' denied request: failed to configure policy" in (await refused(cluster)).message


async def test_without_the_evaluator_those_that_fail_closed_refuse(cluster, monkeypatch):
    cluster.policy()
    monkeypatch.setattr(engine, "_cel", lambda: None)
    assert "CEL is not evaluated by this server" in (await refused(cluster)).message
    document = {"spec": {"matchConstraints": RULES}}
    write = admission_world.write_of("CREATE", POLICIES, document=document, name="p")
    assert policy_authors.warnings_of(write) == [policy_authors.NOT_EVALUATED]


async def test_what_has_not_the_types_of_its_kind_is_an_error(cluster):
    cluster.policy("p", patch("[JSONPatch{op: 'add', path: '/spec', value: 'text'}]"))
    assert "error applying patch" in (await refused(cluster)).message
    cluster.policy("p", patch("[JSONPatch{op: 'add', path: '/nope', value: 'text'}]"))
    assert 'unknown field "nope"' in (await refused(cluster)).message


async def test_no_secret_becomes_a_token(cluster):
    text = "[JSONPatch{op: 'add', path: '/type', value: 'bootstrap.kubernetes.io/token'}]"
    cluster.policy("p", patch(text))
    assert "a policy may not make a token of a Secret" in (await refused(cluster, SECRETS)).message
    token = {"type": "bootstrap.kubernetes.io/token"}
    cluster.policy("p")
    assert (await cluster.write(SECRETS, fields=token))[0] is False
    assert (await cluster.write(SECRETS))[0] is True


async def test_a_denial_stays(cluster):
    """Approval by policy would be approval with the word of whoever decides."""
    approve = "[JSONPatch{op: 'replace', path: '/status/conditions/0/type', value: 'Approved'}]"
    cluster.policy("p", patch(approve))
    denied = {"status": {"conditions": [{"type": "Denied", "status": "True", "reason": "No"}]}}
    for subresource in ("", "approval", "status"):
        changed, document = await cluster.write(
            REQUESTS, operation="UPDATE", fields=dict(denied), subresource=subresource
        )
        assert (changed, document["status"]) == (False, denied["status"])
        assert cluster.policies.concerned("UPDATE", admission_world.KINDS[REQUESTS], subresource) == ()


async def test_policies_are_never_changed_by_policies(cluster):
    cluster.policy()
    for resource in (
        POLICIES,
        BINDINGS,
        (GROUP, "validatingadmissionpolicies"),
        (GROUP, "mutatingwebhookconfigurations"),
    ):
        assert (await cluster.write(resource))[0] is False


async def test_what_is_deleted_is_not_changed(cluster):
    cluster.policy()
    write = admission_world.write_of("DELETE", PODS, old={"kind": "Pod"}, namespace="a", name="x")
    assert not await cluster.policies.begin(write, {}).first()


async def test_one_write_has_one_budget(cluster, monkeypatch):
    monkeypatch.setattr(mutators, "Budget", lambda: real(3))
    cluster.policy("a")
    cluster.policy("b", label("b"), label("c"), label("d"))
    assert "running out of cost budget" in (await refused(cluster)).message


real = mutators.Budget


async def test_they_work_aside_where_something_is_heavy(cluster):
    seen = []

    async def work(weight: Callable[[], float], do: Any, *arguments: Any) -> Any:
        seen.append(weight())
        return do(*arguments)

    cluster.policy("p", label("aside", "'" + "x" * 40 + "'"))
    for _ in range(2):
        mutation, document = cluster.mutation(work=work)
        assert await mutation.first()
        assert labels(document)["aside"] == "x" * 40
    # It is compiled first, and that is never done where others wait for it.
    assert seen[0] == math.inf
    assert 0 < seen[1] < bounds.LIGHT_BYTES


async def test_another_version_of_the_object_is_changed_as_it_is_seen(cluster):
    """A policy about autoscaling/v1 sees, and changes, an autoscaler that is written as v2."""
    rule = {"operations": ["CREATE"], "apiGroups": ["autoscaling"], "apiVersions": ["v1"], "resources": ["*"]}
    text = "Object{spec: Object.spec{targetCPUUtilizationPercentage: 70}}"
    mutation = {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": text}}
    cluster.policy("p", mutation, matchConstraints={"resourceRules": [rule]})
    row = next(row for row in kinds.builtin() if row.plural == "horizontalpodautoscalers" and row.version == "v2")
    document: dict[str, Any] = {
        "apiVersion": "autoscaling/v2",
        "kind": row.kind,
        "metadata": {"name": "x", "namespace": "a"},
        "spec": {"maxReplicas": 2, "scaleTargetRef": {"kind": "Deployment", "name": "d"}},
    }
    write = plugin.Write(
        operation="CREATE", kind=row, subresource="", namespace="a", name="x", document=document, old=None,
        user=admission_world.JANE, dry_run=False,
    )  # fmt: skip
    assert await cluster.policies.begin(write, {}).first()
    assert document["apiVersion"] == "autoscaling/v2"
    assert document["spec"]["metrics"][0]["resource"]["target"]["averageUtilization"] == 70


async def test_policies_that_judge_see_what_will_be_stored(cluster):
    judging = policies.Policies(cluster.world.replica)
    judging.load()
    rule = {"expression": "!has(object.metadata.labels)", "message": "labelled"}
    cluster.world.put(
        (GROUP, "validatingadmissionpolicies"), "j", spec={"matchConstraints": RULES, "validations": [rule]}
    )
    bound = {"policyName": "j", "validationActions": ["Deny"]}
    cluster.world.put((GROUP, "validatingadmissionpolicybindings"), "j", spec=bound)
    cluster.policy()
    _, document = await cluster.write()
    write = admission_world.write_of("CREATE", PODS, document=document, namespace="a", name="x")
    with pytest.raises(status.StatusError, match="labelled"):
        await judging.validate(write, {}, [], {})


async def test_a_custom_object_is_merged_by_its_schema(cluster):
    listed = {
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"],
        "items": {"type": "object"},
    }
    schema = {"type": "object", "properties": {"spec": {"type": "object", "properties": {"rows": listed}}}}
    row = kinds.Kind(
        group="example.com", version="v1", kind="Widget", plural="widgets", singular="widget", namespaced=True, schema=schema
    )  # fmt: skip
    text = "Object{spec: Object.spec{rows: [Object.spec.rows{name: 'b'}]}}"
    cluster.policy("p", {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": text}})
    document = {
        "apiVersion": "example.com/v1",
        "kind": "Widget",
        "metadata": {"name": "x"},
        "spec": {"rows": [{"name": "a"}]},
    }
    write = plugin.Write(
        operation="CREATE", kind=row, subresource="", namespace="a", name="x", document=document, old=None,
        user=admission_world.JANE, dry_run=False,
    )  # fmt: skip
    assert await cluster.policies.begin(write, {}).first()
    assert document["spec"] == {"rows": [{"name": "a"}, {"name": "b"}]}


async def test_params_are_for_those_who_may_read_them():
    def decide(question: access.Attributes) -> decision.Decision:
        allowed = question.plural == "configmaps"
        return decision.Approve("Test", "yes", "test") if allowed else decision.NotMine("Test", "no", "test")

    world = admission_world.World(decide)
    authors = policy_authors.Authors()
    for kind, is_allowed in (("ConfigMap", True), ("Secret", False)):
        document = {"spec": {"paramKind": {"apiVersion": "v1", "kind": kind}}}
        write = admission_world.write_of("CREATE", POLICIES, document=document, name="p")
        world.put(POLICIES, "stored", spec=document["spec"])
        bound = {"spec": {"policyName": "stored", "paramRef": {"name": "x", "namespace": "a"}}}
        binding = admission_world.write_of("CREATE", BINDINGS, document=bound, name="b")
        for each in (write, binding):
            if is_allowed:
                authors.require_params(each, world.context)
            else:
                with pytest.raises(plugin.Refusal, match="has to be able to read them"):
                    authors.require_params(each, world.context)


def test_who_names_what_is_never_changed_is_told():
    rule = {"operations": ["CREATE"], "apiGroups": ["certificates.k8s.io"], "apiVersions": ["*"], "resources": ["*"]}
    document = {"spec": {"matchConstraints": {"resourceRules": [rule]}}}
    write = admission_world.write_of("CREATE", POLICIES, document=document, name="p")
    (warning,) = mutating_policies.warnings_of(write)
    assert warning.startswith("mutating policies change nothing of certificates.k8s.io")
    assert mutating_policies.warnings_of(admission_world.write_of("CREATE", PODS, document={}, name="p")) == []
