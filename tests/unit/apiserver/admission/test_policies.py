# SPDX-License-Identifier: Apache-2.0
"""Policies that judge writes: bindings, params, and what follows."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from handfast.api import handfast_kinds, kinds, status
from handfast.api.cel import engine
from handfast.apiserver.admission import policies
from tests.unit.apiserver import admission_world

GROUP = "admissionregistration.k8s.io"
PODS, CONFIGMAPS, NAMESPACES = ("", "pods"), ("", "configmaps"), ("", "namespaces")
POLICIES, BINDINGS = (GROUP, "validatingadmissionpolicies"), (GROUP, "validatingadmissionpolicybindings")
RULES = {"resourceRules": [{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"]}]}
NO = [{"expression": "object.spec.size < 5", "message": "too large", "reason": "Forbidden"}]


class Cluster:
    """A store's copy with a namespace, and the policies that follow it."""

    def __init__(self, world: admission_world.World | None = None) -> None:
        self.world = world or admission_world.World()
        self.world.put(NAMESPACES, "a", metadata={"labels": {"tier": "front"}})
        self.policies = policies.Policies(self.world.replica)
        self.warnings: list[str] = []
        self.annotations: dict[str, str] = {}

    def policy(self, name: str = "p", validations: Any = NO, **spec: Any) -> None:
        self.world.put(POLICIES, name, spec={"matchConstraints": RULES, "validations": validations, **spec})

    def bind(self, name: str = "b", policy: str = "p", actions: tuple[str, ...] = ("Deny",), **spec: Any) -> None:
        self.world.put(BINDINGS, name, spec={"policyName": policy, "validationActions": list(actions), **spec})

    async def write(self, size: int = 9, resource: tuple[str, str] = PODS, namespace: str = "a", **more: Any) -> None:
        document = {"kind": admission_world.KINDS[resource].kind, "metadata": {"name": "x"}, "spec": {"size": size}}
        write = admission_world.write_of("CREATE", resource, document=document, namespace=namespace, name="x", **more)
        await self.policies.validate(write, {}, self.warnings, self.annotations)


@pytest.fixture
def cluster() -> Cluster:
    made = Cluster()
    made.policies.load()
    return made


async def refused(cluster: Cluster, **write: Any) -> status.StatusError:
    with pytest.raises(status.StatusError) as caught:
        await cluster.write(**write)
    return caught.value


async def test_a_policy_denies_in_kubernetes_words(cluster):
    cluster.policy()
    cluster.bind()
    refusal = await refused(cluster)
    said = "ValidatingAdmissionPolicy 'p' with binding 'b' denied request: too large"
    assert refusal.message == f'pods "x" is forbidden: {said}'
    assert (refusal.code, refusal.reason, refusal.causes[0].message) == (403, "Forbidden", said)
    await cluster.write(size=1)


async def test_without_a_reason_it_is_invalid(cluster):
    cluster.policy(validations=[{"expression": "false"}])
    cluster.bind()
    refusal = await refused(cluster)
    assert (refusal.code, refusal.reason) == (422, "Invalid")
    assert refusal.message.endswith("failed expression: false")


async def test_without_a_binding_it_says_nothing(cluster):
    cluster.policy()
    await cluster.write()
    cluster.bind(policy="another")
    await cluster.write()


async def test_warnings_and_notes(cluster):
    cluster.policy(auditAnnotations=[{"key": "size", "valueExpression": "string(object.spec.size)"}])
    cluster.bind(actions=("Warn", "Audit"))
    await cluster.write()
    assert cluster.warnings == ["Validation failed for ValidatingAdmissionPolicy 'p' with binding 'b': too large"]
    assert cluster.annotations["p/size"] == "9"
    (note,) = json.loads(cluster.annotations[policies.NOTE])
    assert (note["expressionIndex"], note["validationActions"]) == (0, ["Warn", "Audit"])


async def test_each_failure_is_noted(cluster):
    """Two bindings, or two validations: the audit line has them all."""
    cluster.policy(validations=[*NO, {"expression": "object.spec.size < 6"}])
    cluster.bind(actions=("Audit",))
    cluster.bind("c", actions=("Audit",))
    await cluster.write()
    notes = json.loads(cluster.annotations[policies.NOTE])
    assert [(note["binding"], note["expressionIndex"]) for note in notes] == [("b", 0), ("b", 1), ("c", 0), ("c", 1)]
    cluster.bind("d" * 200, actions=("Audit",))
    cluster.bind("e" * 600, actions=("Audit",))
    cluster.annotations.clear()
    await cluster.write()
    # What the audit line would cut is left out: the list stays one.
    assert [note["binding"][0] for note in json.loads(cluster.annotations[policies.NOTE])] == ["b", "b", "c", "c", "d"]


async def test_what_is_stored_before_counts_and_what_is_gone_does_not():
    cluster = Cluster()
    cluster.policy()
    cluster.bind()
    cluster.policies.load()
    await refused(cluster)
    cluster.world.replica.collection(policies.BINDINGS).apply("", "b", None, 90)
    await cluster.write()
    cluster.bind()
    await refused(cluster)
    cluster.world.replica.collection(policies.POLICIES).apply("", "p", None, 91)
    await cluster.write()


def test_nobody_is_kept_from_being_revoked(cluster):
    cluster.policy()
    assert cluster.policies.concerned("CREATE", handfast_kinds.REVOCATION, "") == ()
    assert len(cluster.policies.concerned("DELETE", handfast_kinds.REVOCATION, "")) == 1


async def test_policies_are_never_judged_by_policies(cluster):
    cluster.policy(validations=[{"expression": "false"}])
    cluster.bind()
    await cluster.write(resource=POLICIES, namespace="")
    assert not cluster.policies.concerned("DELETE", admission_world.KINDS[BINDINGS], "")


async def test_bindings_match_too(cluster):
    cluster.policy()
    cluster.bind(matchResources={"namespaceSelector": {"matchLabels": {"tier": "back"}}})
    await cluster.write()
    cluster.bind(matchResources={"namespaceSelector": {"matchLabels": {"tier": "front"}}})
    await refused(cluster)


async def test_a_namespace_is_selected_by_its_own_labels(cluster):
    cluster.policy(matchConstraints={**RULES, "namespaceSelector": {"matchLabels": {"tier": "front"}}})
    cluster.bind()
    await cluster.write(resource=NAMESPACES, namespace="")
    await refused(cluster, resource=("", "nodes"), namespace="")


async def test_a_namespace_that_is_gone_passes_nobody(cluster):
    cluster.policy(matchConstraints={**RULES, "namespaceSelector": {"matchLabels": {"tier": "front"}}})
    cluster.bind()
    assert (await refused(cluster, namespace="gone")).code == 404


async def test_what_cannot_be_used_is_an_error(cluster):
    wrong = {"matchExpressions": [{"key": "a", "operator": "Nope"}]}
    cluster.policy(matchConstraints={**RULES, "objectSelector": wrong})
    cluster.bind()
    assert (
        "ValidatingAdmissionPolicy 'p' denied request: failed to configure policy" in (await refused(cluster)).message
    )
    cluster.policy(failurePolicy="Ignore", matchConstraints={**RULES, "objectSelector": wrong})
    await cluster.write()


LIMIT = [
    {"expression": "object.spec.size <= int(params.data.max)", "messageExpression": "'at most ' + params.data.max"}
]
KIND = {"apiVersion": "v1", "kind": "ConfigMap"}


@pytest.mark.parametrize(
    ("reference", "kind", "said"),
    [
        ({"name": "limit", "parameterNotFoundAction": "Deny"}, KIND, "at most 5"),
        ({"name": "limit", "namespace": "a"}, KIND, "at most 5"),
        ({"selector": {"matchLabels": {"limit": "yes"}}}, KIND, "at most 5"),
        ({"selector": {"matchLabels": {"limit": "no"}}}, KIND, None),
        ({"name": "nope", "parameterNotFoundAction": "Allow"}, KIND, None),
        ({"name": "nope", "parameterNotFoundAction": "Deny"}, KIND, "failed to configure binding: no params found"),
        ({"name": "limit"}, {"apiVersion": "v9", "kind": "Nope"}, "paramKind kind `v9/Nope` not known"),
        (
            {"name": "a", "namespace": "a"},
            {"apiVersion": "v1", "kind": "Namespace"},
            "paramRef.namespace must not be provided",
        ),
        (None, KIND, "resulted in error"),
    ],
)
async def test_params_are_found(cluster, reference, kind, said):
    cluster.world.put(CONFIGMAPS, "limit", "a", data={"max": "5"}, metadata={"labels": {"limit": "yes"}})
    cluster.world.put(CONFIGMAPS, "limit", "other", data={"max": "1"}, metadata={"labels": {"limit": "yes"}})
    cluster.policy(validations=LIMIT, paramKind=kind)
    cluster.bind(**({} if reference is None else {"paramRef": reference}))
    if said is None:
        await cluster.write()
    else:
        assert said in (await refused(cluster)).message


async def test_params_in_a_namespace_are_not_for_objects_in_none(cluster):
    cluster.policy(validations=LIMIT, paramKind=KIND)
    cluster.bind(paramRef={"name": "limit"})
    assert "cluster-scoped resources" in (await refused(cluster, resource=("", "nodes"), namespace="")).message


async def test_the_namespace_and_the_request_are_seen(cluster):
    text = "namespaceObject.metadata.labels.tier == 'front' && request.userInfo.username == 'jane' && oldObject == null"
    cluster.policy(validations=[{"expression": text}])
    cluster.bind()
    await cluster.write(user=admission_world.JANE)
    await refused(cluster)


async def test_work_is_done_where_the_caller_says(cluster):
    """How heavy it is beside the object is told: what must be compiled first, and params."""
    cluster.world.put(CONFIGMAPS, "limit", "a", data={"max": "5"})
    texts = ("int(params.data.max) < 11", "'told by ' + params.data.max", "'audited'")
    validation = {"expression": texts[0], "messageExpression": texts[1]}
    note = {"key": "a", "valueExpression": texts[2]}
    cluster.policy(validations=[validation], paramKind=KIND, auditAnnotations=[note])
    cluster.bind(paramRef={"name": "limit"})
    weights = []

    async def work(weight, do, *arguments):
        weights.append(weight())
        return do(*arguments)

    write = admission_world.write_of("CREATE", PODS, document={"spec": {"size": 1}}, namespace="a", name="x")
    for _ in range(2):
        await cluster.policies.validate(write, {}, [], {}, work)
    item = cluster.world.replica.collection("core/configmaps/").get("a", "limit")
    assert weights == [math.inf, pytest.approx(len(item.body), abs=100)]


@pytest.mark.parametrize(("count", "size", "passes"), [(200, 10, True), (201, 10, False), (3, 1 << 20, False)])
async def test_so_many_params_and_no_more(cluster, count, size, passes):
    """In the object's own namespace, whoever may write ConfigMaps makes them: all are read at every write."""
    for index in range(count):
        cluster.world.put(CONFIGMAPS, f"p{index}", "a", data={"max": "9", "x": "x" * size})
    cluster.policy(validations=LIMIT, paramKind=KIND)
    cluster.bind(paramRef={"selector": {}})
    if passes:
        await cluster.write()
    else:
        assert "more than 200 params" in (await refused(cluster)).message


@pytest.mark.parametrize(("failure_policy", "passes"), [("Fail", False), ("Ignore", True)])
async def test_without_the_evaluator_the_failure_policy_decides(cluster, monkeypatch, failure_policy, passes):
    cluster.policy(failurePolicy=failure_policy)
    cluster.bind()
    monkeypatch.setattr(engine, "_cel", lambda: None)
    if passes:
        await cluster.write()
    else:
        assert "pip install 'handfast[cel]'" in (await refused(cluster)).message


def test_kinds_are_found_by_their_name():
    assert policies.served(kinds.builtin(), "v1", "Pod") == kinds.row("pods")
    assert policies.served(kinds.builtin(), "v1", "Nope") is None
