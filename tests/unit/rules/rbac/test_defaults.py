# SPDX-License-Identifier: Apache-2.0
"""What the defaults let people, nodes and controllers do, asked of the policy itself; and what reconciling adds."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from handfast.api import kinds
from handfast.api.defaulting import defaults
from handfast.api.validation import validation
from handfast.rules import access, decision
from handfast.rules.rbac import defaults as rbac_defaults
from handfast.rules.rbac import policy as rbac_policy
from handfast.rules.rbac import policy_rules

KINDS = {kind.plural: kind for kind in kinds.builtin() if kind.group == policy_rules.GROUP}
AUTHENTICATED = ("system:authenticated",)
CONTROLLERS = "system:kube-controller-manager"
CERTIFICATES = "certificates.k8s.io"
VIEW = {"matchLabels": {"rbac.authorization.k8s.io/aggregate-to-view": "true"}}


def gathered() -> list[rbac_defaults.Default]:
    found = rbac_defaults.documents()
    roles = [default.document for default in found if default.plural == "clusterroles"]
    for _ in range(3):
        for role in roles:
            if "aggregationRule" in role:
                role["rules"] = policy_rules.aggregate(role, roles)
    return found


@pytest.fixture(scope="module")
def policy() -> rbac_policy.Policy:
    made = rbac_policy.Policy()
    for default in gathered():
        put = made.set_role if default.plural.endswith("roles") else made.set_binding
        put(default.namespace, default.name, default.document)
    for name in ("view", "edit", "admin"):
        reference = {"kind": "ClusterRole", "name": name}
        made.set_binding("ns", name, {"roleRef": reference, "subjects": [{"kind": "User", "name": name}]})
    return made


def asks(who: str, groups: tuple[str, ...], question: str) -> access.Attributes:
    """`verb path`, or `verb group/resource[/sub] [namespace] [name]` where `-` is none."""
    verb, what, *rest = question.split()
    if what.startswith("/"):
        return access.Attributes(user=who, groups=groups, verb=verb, is_resource=False, path=what)
    group, plural, *sub = what.split("/")
    namespace, name = (*("" if word == "-" else word for word in rest), "", "")[:2]
    return access.Attributes(
        user=who,
        groups=groups,
        verb=verb,
        is_resource=True,
        group="" if group == "core" else group,
        plural=plural,
        subresource="/".join(sub),
        namespace=namespace,
        name=name,
    )


@pytest.mark.parametrize(
    "who, groups, question, allowed",
    [
        ("u", ("system:masters",), "delete core/nodes - n", True),
        ("u", ("system:masters",), "post /anything", True),
        ("u", AUTHENTICATED, "get /apis/apps/v1", True),
        ("u", AUTHENTICATED, "get /openapi/v3", True),
        ("u", AUTHENTICATED, "get /metrics", False),
        ("u", AUTHENTICATED, "create authorization.k8s.io/selfsubjectaccessreviews", True),
        ("u", AUTHENTICATED, "create authentication.k8s.io/selfsubjectreviews", True),
        ("u", AUTHENTICATED, "create authentication.k8s.io/tokenreviews", False),
        ("u", AUTHENTICATED, "get core/pods ns x", False),
        ("system:anonymous", ("system:unauthenticated",), "get /readyz", True),
        ("system:anonymous", ("system:unauthenticated",), "get /version", True),
        ("system:anonymous", ("system:unauthenticated",), "get /api", False),
        ("u", ("system:monitoring",), "get /metrics", True),
        ("u", ("system:monitoring",), "get /livez/replica", True),
        ("system:serviceaccount:a:b", ("system:serviceaccounts",), "get /openid/v1/jwks", True),
        ("system:node:n", ("system:nodes",), "get core/pods ns x", False),
        ("system:kube-proxy", (), "watch discovery.k8s.io/endpointslices", True),
        ("view", (), "list core/pods ns", True),
        ("view", (), "get core/pods/log ns x", True),
        ("view", (), "get core/secrets ns x", False),
        ("view", (), "create core/pods ns", False),
        ("view", (), "list core/pods other", False),
        ("edit", (), "list core/pods ns", True),
        ("edit", (), "get core/secrets ns x", True),
        ("edit", (), "update apps/deployments/scale ns x", True),
        ("edit", (), "deletecollection core/pods ns", True),
        ("edit", (), "deletecollection coordination.k8s.io/leases ns", True),
        ("edit", (), "create rbac.authorization.k8s.io/roles ns", False),
        ("admin", (), "list core/pods ns", True),
        ("admin", (), "delete core/configmaps ns x", True),
        ("admin", (), "create rbac.authorization.k8s.io/rolebindings ns", True),
        ("admin", (), "update core/namespaces ns ns", False),
        ("admin", (), "escalate rbac.authorization.k8s.io/roles ns x", False),
        ("system:serviceaccount:kube-system:bootstrap-signer", (), "list core/secrets kube-system", True),
        ("system:serviceaccount:kube-system:bootstrap-signer", (), "update core/configmaps kube-public cluster-info", True),
        ("system:serviceaccount:kube-system:bootstrap-signer", (), "update core/configmaps kube-public other", False),
        ("jane", ("system:authenticated",), "get core/configmaps kube-public cluster-info", True),
        ("jane", ("system:authenticated",), "get core/configmaps kube-public other", False),
        ("jane", ("system:authenticated",), "update core/configmaps kube-public cluster-info", False),
        # Whether strangers may is said by kubeadm's binding, which is no default.
        ("system:anonymous", ("system:unauthenticated",), "get core/configmaps kube-public cluster-info", False),
        ("system:serviceaccount:kube-system:token-cleaner", (), "delete core/secrets kube-system x", True),
        ("system:serviceaccount:kube-system:token-cleaner", (), "delete core/secrets default x", False),
    ],
)  # fmt: skip
def test_who_may_what(policy: rbac_policy.Policy, who: str, groups: tuple[str, ...], question: str, allowed: bool):
    assert isinstance(policy.decide(asks(who, groups, question)), decision.Approve) is allowed


@pytest.mark.parametrize(
    "question, allowed",
    [
        ("deletecollection example.com/widgets ns", True),
        ("patch example.com/widgets ns x", True),
        ("watch core/secrets", True),
        ("update core/namespaces/finalize ns ns", True),
        ("update core/namespaces/status ns ns", True),
        ("create core/configmaps ns", True),
        ("create core/serviceaccounts ns", True),
        ("create core/endpoints ns", True),
        ("create core/events ns", True),
        ("create discovery.k8s.io/endpointslices ns", True),
        ("create coordination.k8s.io/leases kube-system", True),
        ("create coordination.k8s.io/leases ns", False),
        ("create authentication.k8s.io/tokenreviews", True),
        ("create authorization.k8s.io/subjectaccessreviews", True),
        ("escalate rbac.authorization.k8s.io/clusterroles - admin", True),
        ("escalate rbac.authorization.k8s.io/roles ns x", False),
        ("bind rbac.authorization.k8s.io/clusterroles - cluster-admin", False),
        ("create rbac.authorization.k8s.io/clusterrolebindings", False),
        ("update certificates.k8s.io/certificatesigningrequests/approval - x", True),
        ("approve certificates.k8s.io/signers - kubernetes.io/*", True),
        ("sign certificates.k8s.io/signers - kubernetes.io/*", True),
        ("sign certificates.k8s.io/signers - example.com/*", False),
        ("attest certificates.k8s.io/signers - kubernetes.io/*", False),
        ("trust core/configmaps kube-system extension-apiserver-authentication", True),
        ("trust core/configmaps ns extension-apiserver-authentication", False),
        ("create core/pods ns", False),
        # In one namespace by a Role that comes with a fleet.
        ("create core/secrets ns", False),
        ("create core/secrets openshift-machine-config-operator", False),
        ("create core/serviceaccounts/token ns x", False),
        ("impersonate core/users - admin", False),
        ("get /metrics", False),
        ("get /apis", True),
    ],
)
def test_what_the_controllers_may(policy: rbac_policy.Policy, question: str, allowed: bool):
    verdict = policy.decide(asks(CONTROLLERS, AUTHENTICATED, question))
    assert isinstance(verdict, decision.Approve) is allowed


def test_bootstrapping_roles_are_ready_to_be_bound(policy: rbac_policy.Policy):
    for name, resource in (
        ("system:node-bootstrapper", "certificatesigningrequests"),
        ("system:csr-approver:approve-node-client-csr", "certificatesigningrequests/nodeclient"),
        ("system:certificates.k8s.io:certificatesigningrequests:nodeclient", "certificatesigningrequests/nodeclient"),
        ("system:certificates.k8s.io:certificatesigningrequests:selfnodeclient", "certificatesigningrequests/selfnodeclient"),
    ):  # fmt: skip
        (rule,) = policy.role_rules("ClusterRole", "", name) or ()
        assert "create" in rule.verbs
        assert (rule.api_groups, rule.resources) == ((CERTIFICATES,), (resource,))


def test_no_role_is_missing(policy: rbac_policy.Policy):
    for default in rbac_defaults.documents():
        if default.plural.endswith("bindings"):
            reference = default.document["roleRef"]
            assert policy.role_rules(reference["kind"], default.namespace, reference["name"]) is not None


@pytest.mark.parametrize(
    "default", gathered(), ids=lambda default: f"{default.plural}/{default.namespace}/{default.name}"
)
def test_every_default_is_valid_and_marked(default: rbac_defaults.Default):
    kind = KINDS[default.plural]
    document = {"apiVersion": kind.api_version, "kind": kind.kind, **default.document}
    document["metadata"] = {**document["metadata"], **({"namespace": default.namespace} if kind.namespaced else {})}
    before = copy.deepcopy(document)
    defaults.apply(kind, document)
    assert document == before
    assert list(validation.create(kind, document)) == []
    assert document["metadata"]["labels"]["kubernetes.io/bootstrapping"] == "rbac-defaults"
    assert document["metadata"]["annotations"] == {"rbac.authorization.kubernetes.io/autoupdate": "true"}


@pytest.mark.parametrize(
    "default", gathered(), ids=lambda default: f"{default.plural}/{default.namespace}/{default.name}"
)
def test_what_is_as_it_should_be_stays(default: rbac_defaults.Default):
    assert rbac_defaults.reconciled(default.document, default.document) == default.document
    assert not rbac_defaults.needs_new(default.document, default.document)
    assert not rbac_defaults.is_protected(default.document)


def rule(verbs: list[str], resources: list[str]) -> dict[str, Any]:
    return {"verbs": verbs, "apiGroups": [""], "resources": resources}


def role(*rules: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"metadata": {"name": "r", "labels": {"ours": "1"}, "annotations": {"a": "1"}}, "rules": list(rules), **more}


def subjects(*names: str) -> list[dict[str, str]]:
    return [{"kind": "User", "name": name, "apiGroup": policy_rules.GROUP} for name in names]


@pytest.mark.parametrize(
    "case, found, wanted, result",
    [
        ("nothing missing", [rule(["get"], ["pods"])], [rule(["get"], ["pods"])], [rule(["get"], ["pods"])]),
        (
            "a missing verb is added as a rule",
            [rule(["get"], ["pods"])],
            [rule(["get", "list", "watch"], ["pods"])],
            [rule(["get"], ["pods"]), rule(["list", "watch"], ["pods"])],
        ),
        (
            "what is more stays",
            [rule(["get", "delete"], ["pods", "secrets"])],
            [rule(["get"], ["pods"])],
            [rule(["get", "delete"], ["pods", "secrets"])],
        ),
        ("covered by more", [rule(["*"], ["*"])], [rule(["get"], ["pods"])], [rule(["*"], ["*"])]),
        ("none there", [], [rule(["get"], ["pods"])], [rule(["get"], ["pods"])]),
    ],
)
def test_rules_are_added(case: str, found: list[Any], wanted: list[Any], result: list[Any]):
    assert rbac_defaults.reconciled(role(*found), role(*wanted))["rules"] == result, case


def test_labels_and_annotations_are_added():
    found: dict[str, Any] = {
        "metadata": {"name": "r", "labels": {"own": "1", "ours": "changed"}, "annotations": None},
        "rules": None,
    }
    result = rbac_defaults.reconciled(found, role())
    assert result["metadata"] == {"name": "r", "labels": {"own": "1", "ours": "1"}, "annotations": {"a": "1"}}
    assert found["metadata"]["annotations"] is None


def test_of_aggregated_roles_only_the_selectors_are_added():
    own = {"matchLabels": {"own": "1"}}
    wanted = role(aggregationRule={"clusterRoleSelectors": [VIEW]})
    found = role(rule(["get"], ["pods"]), aggregationRule={"clusterRoleSelectors": [own]})
    result = rbac_defaults.reconciled(found, wanted)
    assert result["aggregationRule"] == {"clusterRoleSelectors": [own, VIEW]}
    assert result["rules"] == found["rules"]
    assert rbac_defaults.reconciled(result, wanted) == result
    assert rbac_defaults.reconciled(role(), wanted)["aggregationRule"] == {"clusterRoleSelectors": [VIEW]}


def test_subjects_are_added():
    wanted = {**role(), "roleRef": {}, "subjects": subjects("a", "b")}
    del wanted["rules"]
    found = {**wanted, "subjects": subjects("own", "b")}
    assert rbac_defaults.reconciled(found, wanted)["subjects"] == subjects("own", "b", "a")


@pytest.mark.parametrize(
    "reference, new",
    [
        ({"kind": "ClusterRole", "name": "r", "apiGroup": policy_rules.GROUP}, False),
        ({"kind": "ClusterRole", "name": "other"}, True),
        ({"kind": "Role", "name": "r"}, True),
        (None, True),
    ],
)
def test_a_binding_to_another_role_is_made_anew(reference: Any, new: bool):
    wanted = {"roleRef": {"kind": "ClusterRole", "name": "r", "apiGroup": policy_rules.GROUP}}
    assert rbac_defaults.needs_new({"roleRef": reference}, wanted) is new


@pytest.mark.parametrize("value, protected", [("false", True), ("true", False), ("False", False), (None, False)])
def test_what_its_owner_wants_left_alone(value: str | None, protected: bool):
    found = {"metadata": {"annotations": {rbac_defaults.AUTOUPDATE: value}}}
    assert rbac_defaults.is_protected(found) is protected
