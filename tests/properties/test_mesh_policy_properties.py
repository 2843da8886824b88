# SPDX-License-Identifier: Apache-2.0
"""Whatever policies there are: the judgement, the compiled rules and what a stock proxy makes of its authorizations say the same."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from handfast.rules import decision
from handfast.rules.mesh import authorizations, names, policy, policy_documents

PARTS = st.sampled_from(["web", "api", "sa", "shop", "bank", "evil-bank"])
PORTS = st.sampled_from([80, 443, 8080])
SCHEMES = st.sampled_from(names.Scheme)
UIDS = {(namespace, name): f"u-{name}" for namespace in ("shop", "bank", "sa") for name in ("web", "api")}
DB = policy_documents.Target(namespace="shop", account="db", labels={"app": "db"})


def rows(scheme: names.Scheme) -> st.SearchStrategy[Any]:
    return st.one_of(
        st.builds(lambda namespace, name: {"serviceAccount": {"namespace": namespace, "name": name}}, PARTS, PARTS),
        st.builds(lambda namespace: {"namespace": namespace}, PARTS),
        st.builds(lambda identity: {"identity": identity}, identities(scheme).filter(bool)),
        st.just({"unauthenticated": True}),
        # What no schema lets in.
        st.sampled_from([{}, {"unauthenticated": False}, {"namespace": ""}, 7]),
    )


def identities(scheme: names.Scheme) -> st.SearchStrategy[str]:
    ending = names.Mesh("cluster.local", scheme=scheme).ending
    labels = st.lists(st.one_of(PARTS, st.sampled_from(["u-web", "u-api"])), max_size=4)
    named = labels.map(lambda parts: ".".join([*parts, ending]))
    return st.one_of(st.just(""), named, st.just("someone.elsewhere"))


def targets() -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries(
        {},
        optional={
            "serviceAccounts": st.lists(st.sampled_from(["db", "api"]), max_size=2),
            "podSelector": st.sampled_from([{}, {"matchLabels": {"app": "db"}}, {"matchLabels": {"app": "x"}}, 1]),
            "ports": st.lists(PORTS, max_size=2),
        },
    )


@st.composite
def policies(draw: st.DrawFn, scheme: names.Scheme) -> list[policy_documents.Policy]:
    spec = st.fixed_dictionaries(
        {},
        optional={
            "targets": targets(),
            "clients": st.lists(rows(scheme), max_size=4),
            "mode": st.sampled_from(["audit", "enforce"]),
            "requireIdentity": st.fixed_dictionaries(
                {}, optional={"inbound": st.booleans(), "outbound": st.booleans()}
            ),
        },
    )
    namespaces = st.sampled_from(["shop", "shop", "bank"])
    return [
        policy_documents.parse({"metadata": {"namespace": draw(namespaces), "name": f"p{index}"}, "spec": each})
        for index, each in enumerate(draw(st.lists(spec, max_size=4)))
    ]


def proxy(rows: tuple[authorizations.Authorization, ...], identity: str) -> str | None:
    """What a stock proxy does, written from its own code: the first that fits; None where none does."""
    for row in rows:
        named = bool(identity) and (
            identity in row.identities or any(identity.endswith(suffix) for suffix in row.suffixes)
        )
        if row.anyone or named:
            return row.default or row.policy
    return None


@given(data=st.data(), scheme=SCHEMES, port=PORTS)
def test_nobody_disagrees(data: st.DataObject, scheme: names.Scheme, port: int) -> None:
    naming = policy.Naming(names.Mesh("cluster.local", scheme=scheme), lambda *key: UIDS.get(key, ""))
    there, identity = data.draw(policies(scheme)), data.draw(identities(scheme))
    judgement = policy.judge(there, DB, identity, port, naming)
    rules = policy.compiled(there, DB, naming).inbound(port)
    assert rules.enforced.decide(identity) == judgement.verdict
    assert rules.would_refuse(identity) == (judgement.audit is not None)
    by = proxy(authorizations.of(rules), identity)
    assert (by is not None) == isinstance(judgement.verdict, decision.Approve)
    assert (by == authorizations.AUDIT) == (judgement.audit is not None)


@given(data=st.data(), scheme=SCHEMES, port=PORTS)
def test_the_verdict_is_what_the_decision_page_says(data: st.DataObject, scheme: names.Scheme, port: int) -> None:
    """The same semantics once more, from the sentences and not from the code."""
    mesh = names.Mesh("cluster.local", scheme=scheme)
    there, identity = data.draw(policies(scheme)), data.draw(identities(scheme))
    verdict = policy.judge(there, DB, identity, port, policy.Naming(mesh, lambda *key: UIDS.get(key, ""))).verdict

    def fits(row: policy_documents.Row) -> bool:
        labels = identity.removesuffix(f".{mesh.ending}").split(".") if identity.endswith(f".{mesh.ending}") else []
        if row.account is not None:
            uid = [UIDS[row.account]] if scheme is names.Scheme.UID and row.account in UIDS else []
            known = scheme is not names.Scheme.UID or bool(uid)
            return known and labels == [*uid, row.account[1], row.account[0]]
        if row.namespace:
            return len(labels) >= 2 and labels[-1] == row.namespace
        return row.anyone or (bool(row.identity) and row.identity == identity)

    enforcing = [each for each in there if each.enforced and each.is_about_port(DB, port)]
    saying = [each.rows for each in enforcing if each.rows is not None]
    needed = any(each.needs_inbound for each in enforcing)
    allowed = not saying or any(fits(row) for rows_of in saying for row in rows_of)
    assert isinstance(verdict, decision.Approve) == (allowed and (bool(identity) or not needed))


@given(data=st.data(), scheme=SCHEMES)
def test_audit_never_changes_a_verdict(data: st.DataObject, scheme: names.Scheme) -> None:
    naming = policy.Naming(names.Mesh("cluster.local", scheme=scheme), lambda *key: UIDS.get(key, ""))
    there, identity = data.draw(policies(scheme)), data.draw(identities(scheme))
    without = [each for each in there if each.enforced]
    assert (
        policy.judge(there, DB, identity, 80, naming).verdict == policy.judge(without, DB, identity, 80, naming).verdict
    )
