# SPDX-License-Identifier: Apache-2.0
"""Who may write which roles and bindings: a policy, a caller, a write."""

from __future__ import annotations

import copy
import datetime
from typing import Any

import pytest

from handfast.api import kinds, status
from handfast.apiserver import identity
from handfast.apiserver.admission import plugin
from handfast.apiserver.admission import rbac as rbac_admission
from handfast.apiserver.state import envelope, replica
from handfast.rules import access
from handfast.rules.rbac import policy, policy_rules, scopes

KINDS = {kind.plural: kind for kind in kinds.builtin() if kind.group == policy_rules.GROUP}
POD = next(kind for kind in kinds.builtin() if kind.plural == "pods")
READ = {"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods"]}
SECRETS = {"verbs": ["get"], "apiGroups": [""], "resources": ["secrets"]}
PATHS = {"verbs": ["get"], "nonResourceURLs": ["/metrics"]}
FULL = [rule.document() for rule in policy_rules.FULL]
GATHER = {"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]}
NOT_HELD = r'user "ann" \(groups=\["staff"\]\) is attempting to grant RBAC permissions not currently held:\n'


def role(name: str, *rules: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "rules": list(rules), **more}


def binding(kind: str, name: str, *users: str, **more: Any) -> dict[str, Any]:
    subjects = [{"kind": "User", "name": user, "apiGroup": policy_rules.GROUP} for user in users]
    reference = {"apiGroup": policy_rules.GROUP, "kind": kind, "name": name}
    return {"metadata": {"name": "b"}, "roleRef": reference, "subjects": subjects, **more}


class World:
    """ann, of the group staff, may write roles and bindings, and holds what is given to her."""

    def __init__(self) -> None:
        self.policy = policy.Policy()
        context = plugin.Context(
            replica.Replica(None, envelope.Envelopes()),  # type: ignore[arg-type]
            access.Authorizers((self.policy,), scopes.Scopes(self._cluster_role)).decide,
            lambda: datetime.datetime.min,
        )
        self.chain = plugin.Chain(rbac_admission.rows(self.policy), context)
        self.user = identity.User("ann", ("staff",))

    def _cluster_role(self, name: str) -> tuple[policy_rules.PolicyRule, ...] | None:
        return self.policy.role_rules(policy.CLUSTER_ROLE, "", name)

    def limit(self, *held: str) -> None:
        """Limit ann's credential by scopes."""
        self.user = identity.User("ann", ("staff",), extra={access.SCOPES: held})

    def give(self, *rules: dict[str, Any], namespace: str = "") -> None:
        self.policy.set_role("", f"of-ann-{namespace}", {"rules": list(rules)})
        self.policy.set_binding(namespace, "ann", binding("ClusterRole", f"of-ann-{namespace}", "ann"))

    async def write(
        self, plural: str, document: dict[str, Any] | None, old: dict[str, Any] | None = None, namespace: str = ""
    ) -> None:
        kind = KINDS.get(plural, POD)
        operation = plugin.CREATE if old is None else plugin.UPDATE
        name = (document or {"metadata": {"name": "x"}})["metadata"]["name"]
        await self.chain.run(plugin.Write(operation, kind, "", namespace, name, document, old, self.user, False))


@pytest.fixture
def world() -> World:
    return World()


async def refused(world: World, match: str, *write: Any, **more: Any) -> status.StatusError:
    with pytest.raises(status.StatusError, match=match) as caught:
        await world.write(*write, **more)
    return caught.value


def why_of(error: status.StatusError) -> str:
    assert isinstance(error, plugin.Refusal)
    return error.why


async def test_role_with_more_than_held(world: World):
    world.give(READ)
    await world.write("clusterroles", role("r", READ))
    error = await refused(world, NOT_HELD, "clusterroles", role("r", READ, SECRETS))
    assert error.code == 403
    assert error.message.startswith(f'clusterroles.{policy_rules.GROUP} "r" is forbidden: user "ann"')
    assert why_of(error) == "Escalation"
    assert error.message.endswith('\n{APIGroups:[""], Resources:["secrets"], Verbs:["get"]}')
    await refused(world, NOT_HELD, "clusterroles", role("r", PATHS))
    await refused(world, NOT_HELD, "roles", role("r", SECRETS), namespace="ns")
    await refused(world, NOT_HELD, "clusterroles", role("r", READ, SECRETS), role("r", READ))


async def test_permissions_of_another_namespace_do_not_count(world: World):
    world.give(READ, namespace="here")
    world.policy.set_role("", "reader", role("reader", READ))
    await world.write("roles", role("r", READ), namespace="here")
    await world.write("rolebindings", binding("ClusterRole", "reader", "bob"), namespace="here")
    await refused(world, NOT_HELD, "roles", role("r", READ), namespace="there")
    await refused(world, NOT_HELD, "rolebindings", binding("ClusterRole", "reader", "bob"), namespace="there")
    await refused(world, NOT_HELD, "clusterroles", role("r", READ))
    await refused(world, NOT_HELD, "clusterrolebindings", binding("ClusterRole", "reader", "bob"))


@pytest.mark.parametrize("namespace", ["", "ns"])
async def test_masters_and_who_may_escalate(world: World, namespace: str):
    plural = "roles" if namespace else "clusterroles"
    world.give(
        {"verbs": ["escalate"], "apiGroups": [policy_rules.GROUP], "resources": [plural], "resourceNames": ["mine"]}
    )
    await world.write(plural, role("mine", *FULL, aggregationRule=GATHER), namespace=namespace)
    await refused(world, NOT_HELD, plural, role("other", *FULL), namespace=namespace)
    world.user = identity.User("root", (access.MASTERS,))
    await world.write(plural, role("other", *FULL, aggregationRule=GATHER), namespace=namespace)


async def test_what_stays_the_same_is_not_asked_for(world: World):
    old = role("r", SECRETS)
    annotated = {**old, "metadata": {"name": "r", "annotations": {"a": "b"}, "finalizers": ["x"]}}
    await world.write("clusterroles", annotated, old)
    await world.write("clusterroles", {"metadata": {"name": "r"}}, role("r"))
    gathering = role("r", SECRETS, aggregationRule=GATHER)
    await world.write("clusterroles", copy.deepcopy(gathering), gathering)


async def test_labels_are_as_good_as_rules(world: World):
    world.give(READ)
    old = role("cluster-admin", *FULL)
    labelled = {**old, "metadata": {"name": "cluster-admin", "labels": {"aggregate-to-view": "true"}}}
    await refused(world, NOT_HELD, "clusterroles", labelled, old)
    # Of a role that gives no more than ann has, she may change the labels.
    small = role("small", READ)
    await world.write("clusterroles", {**small, "metadata": {"name": "small", "labels": {"a": "b"}}}, small)


async def test_fewer_rules_need_to_be_held_too(world: World):
    """As in Kubernetes: who changes a role answers for all of it."""
    await world.write("clusterroles", role("r"), role("r", READ, SECRETS))
    await refused(world, NOT_HELD, "clusterroles", role("r", READ), role("r", READ, SECRETS))


async def test_aggregation_needs_everything(world: World):
    # Nearly everything: of all verbs only `escalate` and the like are missing.
    world.give({**FULL[0], "verbs": ["get", "list", "create", "update"]}, FULL[1])
    why = "must have cluster-admin privileges to use the aggregationRule"
    gathering = role("r", aggregationRule=GATHER)
    error = await refused(world, why, "clusterroles", gathering)
    assert error.message == f'clusterroles.{policy_rules.GROUP} "r" is forbidden: {why}'
    assert why_of(error) == "AggregationRule"
    await refused(world, why, "clusterroles", gathering, role("r"))
    await refused(world, why, "clusterroles", role("r"), gathering)
    await refused(world, why, "clusterroles", role("r", READ, aggregationRule=GATHER), gathering)
    world.give(*FULL)
    await world.write("clusterroles", gathering)
    await world.write("clusterroles", role("r"), gathering)


async def test_rules_too_broad_to_check(world: World):
    words = [f"w{number}" for number in range(60)]
    broad = {"verbs": words, "apiGroups": words, "resources": words}
    world.give(READ)
    error = await refused(world, "more than 5000 single permissions", "clusterroles", role("r", broad))
    assert why_of(error) == "RulesTooBroad"
    world.give(*FULL)
    await world.write("clusterroles", role("r", broad))


async def test_binding_with_more_than_held(world: World):
    world.policy.set_role("", "cluster-admin", role("cluster-admin", *FULL))
    world.policy.set_role("ns", "local", role("local", SECRETS))
    world.give(READ)
    error = await refused(world, NOT_HELD, "clusterrolebindings", binding("ClusterRole", "cluster-admin", "ann"))
    assert error.message.startswith(f'clusterrolebindings.{policy_rules.GROUP} "b" is forbidden: user "ann"')
    assert error.message.endswith(
        '\n{APIGroups:["*"], Resources:["*"], Verbs:["*"]}\n{NonResourceURLs:["*"], Verbs:["*"]}'
    )
    await refused(world, NOT_HELD, "rolebindings", binding("Role", "local", "ann"), namespace="ns")
    await refused(world, NOT_HELD, "rolebindings", binding("ClusterRole", "cluster-admin", "ann"), namespace="ns")
    world.give(SECRETS)
    await world.write("rolebindings", binding("Role", "local", "bob"), namespace="ns")


async def test_paths_in_a_role_binding_give_nothing_and_need_nothing(world: World):
    world.policy.set_role("", "mixed", role("mixed", READ, PATHS))
    world.give(READ)
    await world.write("rolebindings", binding("ClusterRole", "mixed", "bob"), namespace="ns")
    await refused(world, NOT_HELD, "clusterrolebindings", binding("ClusterRole", "mixed", "bob"))


async def test_an_admin_of_one_namespace_may_make_another(world: World):
    world.policy.set_role("", "cluster-admin", role("cluster-admin", *FULL))
    world.policy.set_binding("ns", "ann", binding("ClusterRole", "cluster-admin", "ann"))
    await world.write("rolebindings", binding("ClusterRole", "cluster-admin", "bob"), namespace="ns")
    await refused(world, NOT_HELD, "clusterrolebindings", binding("ClusterRole", "cluster-admin", "bob"))


async def test_who_may_bind(world: World):
    may_bind = {
        "verbs": ["bind"],
        "apiGroups": [policy_rules.GROUP],
        "resources": ["clusterroles"],
        "resourceNames": ["mighty"],
    }
    world.policy.set_role("", "mighty", role("mighty", *FULL))
    world.give(may_bind, namespace="ns")
    await world.write("rolebindings", binding("ClusterRole", "mighty", "bob"), namespace="ns")
    await refused(world, NOT_HELD, "clusterrolebindings", binding("ClusterRole", "mighty", "bob"))
    await refused(world, "not found", "rolebindings", binding("Role", "mighty", "bob"), namespace="ns")
    world.give(may_bind)
    await world.write("clusterrolebindings", binding("ClusterRole", "mighty", "bob"))
    # Also before there is such a role.
    world.policy.remove_role("", "mighty")
    await world.write("clusterrolebindings", binding("ClusterRole", "mighty", "bob"))


WRITE_BINDINGS = {"verbs": ["create"], "apiGroups": [policy_rules.GROUP], "resources": ["clusterrolebindings"]}
SCOPED = rf"scopes \[role:binder:\*:!\]: {NOT_HELD}"


async def test_a_scope_is_not_shed_by_a_binding(world: World):
    world.policy.set_role("", "cluster-admin", role("cluster-admin", *FULL))
    world.policy.set_role("", "binder", role("binder", WRITE_BINDINGS))
    world.give(*FULL)
    bound = ("clusterrolebindings", binding("ClusterRole", "cluster-admin", "eve"))
    world.limit("role:binder:*:!")
    assert why_of(await refused(world, SCOPED, *bound)) == "ScopeLimited"
    # What the scope includes may be given away, in the namespace where it does.
    await world.write("clusterrolebindings", binding("ClusterRole", "binder", "eve"))
    world.limit("role:binder:ns:!")
    await world.write("rolebindings", binding("ClusterRole", "binder", "eve"), namespace="ns")
    await refused(world, NOT_HELD, "clusterrolebindings", binding("ClusterRole", "binder", "eve"))
    for scope in ("user:full", "role:cluster-admin:*:!"):
        world.limit(scope)
        await world.write(*bound)


async def test_a_scope_gives_nothing_away_that_is_not_held(world: World):
    world.policy.set_role("", "cluster-admin", role("cluster-admin", *FULL))
    world.give(READ)
    for scope in ("user:full", "role:cluster-admin:*:!"):
        world.limit(scope)
        await refused(world, NOT_HELD, "clusterrolebindings", binding("ClusterRole", "cluster-admin", "eve"))


async def test_a_scope_is_not_shed_by_a_role(world: World):
    world.policy.set_role("", "binder", role("binder", WRITE_BINDINGS))
    world.give(*FULL)
    world.limit("role:binder:*:!")
    await refused(world, SCOPED, "clusterroles", role("binder", *FULL), role("binder", WRITE_BINDINGS))
    await refused(world, "must have cluster-admin", "clusterroles", role("binder", aggregationRule=GATHER))
    await world.write("clusterroles", role("other", WRITE_BINDINGS))


async def test_within_a_scope_bind_and_escalate_count(world: World):
    both = {"verbs": ["bind", "escalate"], "apiGroups": [policy_rules.GROUP], "resources": ["clusterroles"]}
    world.policy.set_role("", "cluster-admin", role("cluster-admin", *FULL))
    world.policy.set_role("", "binder", role("binder", both))
    world.give(*FULL)
    bound = ("clusterrolebindings", binding("ClusterRole", "cluster-admin", "eve"))
    world.limit("role:binder:*:!")
    await world.write(*bound)
    await world.write("clusterroles", role("other", *FULL))
    world.limit("role:binder:*")
    await refused(world, NOT_HELD, *bound)


async def test_missing_role(world: World):
    world.give(*FULL[1:], READ)
    error = await refused(world, "not found", "clusterrolebindings", binding("ClusterRole", "x", "bob"))
    assert (error.code, error.message) == (404, f'clusterroles.{policy_rules.GROUP} "x" not found')
    error = await refused(world, "not found", "rolebindings", binding("Role", "x", "bob"), namespace="ns")
    assert (error.code, error.message) == (404, f'roles.{policy_rules.GROUP} "x" not found')
    world.user = identity.User("root", (access.MASTERS,))
    await world.write("clusterrolebindings", binding("ClusterRole", "x", "bob"))


async def test_a_binding_is_asked_for_when_its_subjects_change(world: World):
    world.policy.set_role("", "mighty", role("mighty", *FULL))
    old = binding("ClusterRole", "mighty", "bob")
    labelled = {**copy.deepcopy(old), "metadata": {"name": "b", "labels": {"a": "b"}}}
    await world.write("clusterrolebindings", labelled, old)
    await refused(world, NOT_HELD, "clusterrolebindings", binding("ClusterRole", "mighty", "bob", "ann"), old)
    await refused(world, NOT_HELD, "clusterrolebindings", binding("ClusterRole", "mighty"), old)


async def test_what_names_no_role_is_left_to_validation(world: World):
    await world.write("clusterrolebindings", binding("Everything", "x", "bob"))
    await world.write("clusterrolebindings", {"metadata": {"name": "b"}})


async def test_other_writes_do_not_concern_it(world: World):
    await world.write("pods", {"metadata": {"name": "p"}, "rules": FULL})
    names = [row.name for row in rbac_admission.rows(world.policy)]
    assert names == ["RBACRoleEscalation", "RBACBindingEscalation"]
    assert all(plugin.DELETE not in row.operations for row in rbac_admission.rows(world.policy))
